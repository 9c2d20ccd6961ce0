//! A change of one object, field by field: pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::cli::one_line;
use crate::client::{DryWrite, Rejection};

/// A planned change to one object.
#[derive(Debug, PartialEq)]
pub(super) struct Change {
    /// `Kind namespace/name`.
    pub(super) name: String,
    /// Effect on the object.
    pub(super) effect: Effect,
    /// Changed fields; empty for an object that would be created or deleted.
    pub(super) fields: Vec<Field>,
    /// True if pods of a workload would be replaced.
    pub(super) restarts: bool,
}

/// Effect of a write on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Effect {
    Create,
    Change,
    Delete,
}

/// A field that differs.
#[derive(Debug, PartialEq)]
pub(super) struct Field {
    path: String,
    before: Option<Value>,
    after: Option<Value>,
}

/// Metadata that the API server sets.
const SET_BY_THE_API_SERVER: [&str; 5] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"];

// === impl Change ===

impl Change {
    /// Returns the change that the write would make; `None` if there is none.
    ///
    /// # Errors
    /// If the API server refused it.
    pub(super) fn of(write: &DryWrite) -> Result<Option<Change>, Rejection> {
        let after = write.after.as_ref().map_err(Rejection::clone)?.as_ref();
        let Some(object) = after.or(write.before.as_ref()) else { return Ok(None) };
        let name = name(write.kind.kind, &object["metadata"]);
        let change = |effect, fields, restarts| Some(Change { name, effect, fields, restarts });
        Ok(match (&write.before, after) {
            (Some(before), Some(after)) => {
                let restarts = replaces_pods(before, after);
                let mut fields = differences(&settable(before), &settable(after));
                if fields.is_empty() && restarts {
                    let template = |object: &Value| Some(object["spec"]["template"].clone());
                    let path = "spec.template".to_owned();
                    fields.push(Field { path, before: template(before), after: template(after) });
                }
                if fields.is_empty() { None } else { change(Effect::Change, fields, restarts) }
            }
            (None, _) => change(Effect::Create, Vec::new(), false),
            (Some(_), None) => change(Effect::Delete, Vec::new(), false),
        })
    }

    pub(super) fn as_text(&self) -> String {
        let does = match self.effect {
            Effect::Create => "would be created",
            Effect::Change if self.restarts => "would change, and its pods would restart",
            Effect::Change => "would change",
            Effect::Delete => "would be deleted",
        };
        let mut text = format!("{} {does}\n", one_line(&self.name));
        for Field { path, before, after } in &self.fields {
            let line = match (before, after) {
                (None, Some(after)) => format!("  + {path}: {after}"),
                (Some(before), None) => format!("  - {path}: {before}"),
                (before, after) => format!("  ~ {path}: {} -> {}", shown(before), shown(after)),
            };
            writeln!(text, "{}", one_line(&line)).expect("a String takes all that is written");
        }
        text
    }

    pub(super) fn as_json(&self) -> Value {
        let field = |field: &Field| {
            let Field { path, before, after } = field;
            json!({ "path": path, "before": before, "after": after })
        };
        json!({
            "object": self.name,
            "effect": self.effect,
            "restarts": self.restarts,
            "fields": self.fields.iter().map(field).collect::<Vec<_>>(),
        })
    }
}

fn shown(value: &Option<Value>) -> String {
    value.as_ref().map_or_else(String::new, Value::to_string)
}

fn name(kind: &str, meta: &Value) -> String {
    let text = |field: &str| meta[field].as_str().unwrap_or_default();
    match (text("namespace"), text("name")) {
        ("", name) => format!("{kind} {name}"),
        (namespace, name) => format!("{kind} {namespace}/{name}"),
    }
}

/// Returns whether the controller of a workload would replace pods. A DaemonSet with the strategy OnDelete
/// leaves that to users.
fn replaces_pods(before: &Value, after: &Value) -> bool {
    let on_delete = after["spec"]["updateStrategy"]["type"] == "OnDelete";
    !on_delete && before["spec"]["template"] != after["spec"]["template"]
}

/// Returns the part of an object that a write can change, without its status.
fn settable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        // Items of lists lack the first two.
        ["apiVersion", "kind", "status"].iter().for_each(|field| drop(fields.remove(*field)));
    }
    if let Some(meta) = object["metadata"].as_object_mut() {
        SET_BY_THE_API_SERVER.iter().for_each(|field| drop(meta.remove(*field)));
    }
    object
}

/// Returns the fields that differ, in the order of the objects' fields.
fn differences(before: &Value, after: &Value) -> Vec<Field> {
    let mut all = Vec::new();
    compare("", Some(before), Some(after), &mut all);
    all
}

fn compare(path: &str, before: Option<&Value>, after: Option<&Value>, all: &mut Vec<Field>) {
    match (before, after) {
        (Some(before), Some(after)) if before == after => {}
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            for field in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
                compare(&child(path, field), before.get(field), after.get(field), all);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            compare_lists(path, before, after, all);
        }
        (before, after) => {
            let (before, after) = (before.cloned(), after.cloned());
            all.push(Field { path: path.to_owned(), before, after });
        }
    }
}

/// Compares lists: entries with names by name, others by position.
fn compare_lists(path: &str, before: &[Value], after: &[Value], all: &mut Vec<Field>) {
    if let (Some(before), Some(after)) = (by_name(before), by_name(after)) {
        for name in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
            compare(&format!("{path}[{name}]"), before.get(name), after.get(name), all);
        }
        return;
    }
    for at in 0..before.len().max(after.len()) {
        compare(&format!("{path}[{at}]"), before.get(at), after.get(at), all);
    }
}

/// Returns the entries by name, if all have different names.
fn by_name(list: &[Value]) -> Option<Map<String, Value>> {
    let mut named = Map::new();
    for entry in list {
        named.insert(entry["name"].as_str()?.to_owned(), entry.clone());
    }
    (named.len() == list.len()).then_some(named)
}

/// Returns the path of a field. A key with other characters than letters and digits is quoted.
fn child(path: &str, field: &str) -> String {
    if !field.chars().all(|c| c.is_ascii_alphanumeric()) {
        return format!("{path}[{field:?}]");
    }
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::RejectionCause;
    use crate::workload::{ChildSpec, DeploymentSpec};

    fn write(before: Option<Value>, after: Option<Value>) -> DryWrite {
        DryWrite {
            verb: "patch",
            kind: DeploymentSpec::KIND,
            path: "/apis/apps/v1/namespaces/shop/deployments/cache".into(),
            sent: Default::default(),
            subresource: "",
            before,
            after: Ok(after),
        }
    }

    fn deployment(version: u32, image: &str, env: &Value) -> Value {
        json!({
            "metadata": { "namespace": "shop", "name": "cache", "resourceVersion": version.to_string(),
                "annotations": { "example.com/a": version.to_string() } },
            "spec": { "template": { "spec": { "containers": [
                { "name": "memcached", "image": image, "args": ["-m", "64"], "env": env },
            ] } } },
            "status": { "replicas": version },
        })
    }

    #[test]
    fn fields_that_the_api_server_sets_are_not_changes() {
        let mut before = deployment(1, "a", &json!([]));
        let mut after = deployment(2, "a", &json!([]));
        for object in [&mut before, &mut after] {
            object["metadata"].as_object_mut().unwrap().remove("annotations");
        }
        assert_eq!(Change::of(&write(Some(before), Some(after))), Ok(None));
    }

    #[test]
    fn changed_fields_are_named_and_list_entries_matched_by_name() {
        let before = deployment(1, "a", &json!([{"name": "A", "value": "1"}]));
        let env = json!([{"name": "Z", "value": "\u{1b}2"}, {"name": "A", "value": "1"}]);
        let change = Change::of(&write(Some(before), Some(deployment(2, "b", &env)))).unwrap();
        let container = "spec.template.spec.containers[memcached]";
        assert_eq!(
            change.unwrap().as_text(),
            format!(
                "Deployment shop/cache would change, and its pods would restart\n  \
                 ~ metadata.annotations[\"example.com/a\"]: \"1\" -> \"2\"\n  \
                 + {container}.env[Z]: {{\"name\":\"Z\",\"value\":\"\\u001b2\"}}\n  \
                 ~ {container}.image: \"a\" -> \"b\"\n"
            )
        );
    }

    #[test]
    fn a_daemon_set_with_on_delete_restarts_no_pods() {
        let mut after = deployment(1, "b", &json!([]));
        after["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
        let before = deployment(1, "a", &json!([]));
        let change = Change::of(&write(Some(before), Some(after))).unwrap().unwrap();
        assert!(!change.restarts);
    }

    #[test]
    fn a_new_order_is_shown_if_it_restarts_pods() {
        let env = |names: [&str; 2]| json!(names.map(|name| json!({"name": name, "value": "1"})));
        let before = deployment(1, "a", &env(["A", "B"]));
        let after = deployment(1, "a", &env(["B", "A"]));
        let change = Change::of(&write(Some(before), Some(after))).unwrap().unwrap();
        assert!(change.restarts && change.fields[0].path == "spec.template");
    }

    #[test]
    fn created_and_deleted_objects_are_changes() {
        let object = || Some(deployment(1, "a", &json!([])));
        let effect = |write: &DryWrite| Change::of(write).unwrap().unwrap().effect;
        assert_eq!(effect(&write(None, object())), Effect::Create);
        assert_eq!(effect(&write(object(), None)), Effect::Delete);
    }

    #[test]
    fn a_refused_write_is_not_a_change() {
        let refusal = Rejection { message: "too many".into(), cause: RejectionCause::Write };
        let refused = DryWrite { after: Err(refusal.clone()), ..write(None, None) };
        assert_eq!(Change::of(&refused), Err(refusal));
    }
}
