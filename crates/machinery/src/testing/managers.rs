//! Owners of fields (`metadata.managedFields`), and the conflicts of a server-side apply.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fields::{self, Changes, Fields, NoKey};
use super::request::{Refusal, json_answer, status, status_answer};
use super::schema::Type;

/// A field manager, with the operation and the subresource of its writes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Writer {
    /// Sorts first, as in `managedFields`: Apply before Update.
    pub(super) operation: &'static str,
    pub(super) name: String,
    /// Empty for the object itself.
    pub(super) subresource: String,
}

impl Writer {
    /// Returns the field manager of users' changes in a test.
    pub(super) fn somebody() -> Writer {
        let (name, subresource) = ("anyone".to_owned(), String::new());
        Writer { operation: "Update", name, subresource }
    }
}

/// The fields of one manager.
#[derive(Debug, Clone, Default)]
struct Owned {
    fields: Fields,
    /// The time of the last write that changed them, in RFC 3339.
    time: String,
}

/// The managers of an object's fields.
type Managers = BTreeMap<Writer, Owned>;

/// The properties of a write that determine the owners of fields.
pub(super) struct Write<'a> {
    pub(super) kind: Type<'a>,
    pub(super) api_version: &'a str,
    pub(super) manager: Writer,
    /// True if the status has its own subresource.
    pub(super) has_status: bool,
    pub(super) now: &'a str,
}

/// Fields without owners (stripmeta.go).
const UNOWNED: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// The manager of the existing fields, if an object has no managers at its first apply.
const BEFORE: &str = "before-first-apply";

impl Write<'_> {
    /// Records the owners after a create, an update or a patch, by which `new` replaces `live`.
    pub(super) fn update(&self, live: Option<&Value>, new: &mut Value) {
        let sent = &new["metadata"]["managedFields"];
        let is_typed = matches!(self.kind, Type::BuiltIn { .. });
        let is_reset = *sent == json!([{}]) || is_typed && *sent == json!([]);
        let mut managers = if is_reset { Managers::new() } else { decode(sent) };
        if managers.is_empty() && !is_reset || !self.manager.subresource.is_empty() {
            managers =
                live.map(|live| decode(&live["metadata"]["managedFields"])).unwrap_or_default();
        }
        // If an object has no managers, none are recorded before the next apply.
        if live.is_some() && managers.is_empty() {
            set(new, Value::Null);
            return;
        }
        match fields::changes(self.kind, live.unwrap_or(&json!({})), new) {
            Ok(changes) => {
                self.take(&mut managers, &changes);
                set(new, self.encode(&managers));
            }
            Err(_) => set(
                new,
                live.map(|live| live["metadata"]["managedFields"].clone()).unwrap_or_default(),
            ),
        }
    }

    /// Makes the manager of this update the owner of the changed fields.
    fn take(&self, managers: &mut Managers, changes: &Changes) {
        let (changed, removed) = (self.counted(&changes.set), self.counted(&changes.removed));
        for owned in managers.values_mut() {
            owned.fields.retain(|path| !changed.contains(path) && !removed.contains(path));
        }
        let mut own = &changed - &unowned();
        if !own.is_empty() {
            let mine = managers.entry(self.manager.clone()).or_default();
            mine.fields.append(&mut own);
            self.now.clone_into(&mut mine.time);
        }
        managers.retain(|_, owned| !owned.fields.is_empty());
    }

    /// Returns the live object with `config` applied to it, or a refusal because of conflicts.
    pub(super) fn apply(
        &self,
        live: &Value,
        config: &Value,
        force: bool,
    ) -> Result<Value, Refusal> {
        if config["metadata"]["managedFields"].as_array().is_some_and(|sent| !sent.is_empty()) {
            let why = "metadata.managedFields must be nil";
            return Err(status_answer(400, "BadRequest", why).into());
        }
        let mut managers = decode(&live["metadata"]["managedFields"]);
        if managers.is_empty() && live["metadata"]["uid"].is_string() {
            let before = Writer {
                operation: "Update",
                name: BEFORE.to_owned(),
                subresource: self.manager.subresource.clone(),
            };
            let before = Write { manager: before, ..*self };
            let changes =
                fields::changes(self.kind, &json!({}), &bare(live)).map_err(unmergeable)?;
            before.take(&mut managers, &changes);
        }
        let live = bare(live);
        let set_by_it = self.counted(&fields::of(self.kind, config).map_err(unmergeable)?);
        let owned = Owned { fields: set_by_it, time: self.now.to_owned() };
        let before = managers.insert(self.manager.clone(), owned);
        let merged = fields::merge(self.kind, &live, config).map_err(unmergeable)?;
        let last = before.map(|owned| owned.fields).unwrap_or_default();
        let mut new = self.prune(merged, &managers, &last).map_err(unmergeable)?;

        let changes = fields::changes(self.kind, &live, &new).map_err(unmergeable)?;
        let (changed, removed) = (self.counted(&changes.set), self.counted(&changes.removed));
        let mut conflicts = Vec::new();
        for (manager, owned) in managers.iter_mut().filter(|(manager, _)| **manager != self.manager)
        {
            conflicts.extend(
                owned.fields.intersection(&changed).map(|path| (manager.clone(), path.clone())),
            );
            owned.fields = &(&owned.fields - &changed) - &removed;
        }
        if !conflicts.is_empty() && !force {
            return Err(self.conflict(&conflicts));
        }
        for owned in managers.values_mut() {
            owned.fields = &owned.fields - &unowned();
        }
        managers.retain(|_, owned| !owned.fields.is_empty());
        set(&mut new, self.encode(&managers));
        Ok(new)
    }

    /// Removes the fields that this manager applied last and that no longer have an owner (`prune` in merge/update.go).
    fn prune(&self, merged: Value, managers: &Managers, last: &Fields) -> Result<Value, NoKey> {
        if last.is_empty() {
            return Ok(merged);
        }
        let named = |set: &Fields| fields::with_enclosing(self.kind, set);
        let last = named(last);
        let owned: Fields =
            managers.values().flat_map(|owned| owned.fields.iter().cloned()).collect();
        let all = named(&fields::of(self.kind, &merged)?);
        let pruned = fields::without(self.kind, &merged, &last)?;
        let kept = &named(&fields::of(self.kind, &pruned)?) | &named(&owned);
        let with_owned = fields::without(self.kind, &merged, &(&all - &kept))?;
        let kept = named(&fields::of(self.kind, &with_owned)?);
        fields::without(self.kind, &merged, &(&(&all - &kept) & &last))
    }

    /// Returns the fields of the set that a request to this subresource can change.
    fn counted(&self, set: &Fields) -> Fields {
        let is_counted = |path: &&fields::Path| match path.first().map(String::as_str) {
            Some("f:status") => !self.has_status || !self.manager.subresource.is_empty(),
            Some("f:metadata" | "f:spec") => self.manager.subresource.is_empty(),
            _ => true,
        };
        set.iter().filter(is_counted).cloned().collect()
    }

    fn encode(&self, managers: &Managers) -> Value {
        let mut entries: Vec<_> = managers.iter().collect();
        entries.sort_by_key(|(manager, owned)| (manager.operation, owned.time.clone(), *manager));
        let entry = |(manager, owned): (&Writer, &Owned)| {
            let mut entry = json!({
                "manager": manager.name, "operation": manager.operation, "apiVersion": self.api_version,
                "time": owned.time, "fieldsType": "FieldsV1", "fieldsV1": fields::encode(&owned.fields),
            });
            if !manager.subresource.is_empty() {
                entry["subresource"] = json!(manager.subresource);
            }
            entry
        };
        entries.into_iter().map(entry).collect()
    }

    /// Returns the refusal of an apply that would change fields of other managers (`NewConflictError`).
    fn conflict(&self, conflicts: &[(Writer, fields::Path)]) -> Refusal {
        let with = |manager: &Writer| {
            let name = match manager.subresource.as_str() {
                "" => format!("{:?}", manager.name),
                subresource => format!("{:?} with subresource {subresource:?}", manager.name),
            };
            let version = self.api_version;
            if manager.operation == "Update" { format!("{name} using {version}") } else { name }
        };
        let shown = |(manager, path): &(Writer, fields::Path)| {
            format!("conflict with {}: {}", with(manager), fields::shown(path))
        };
        let all: Vec<String> = conflicts.iter().map(shown).collect();
        let noun = if all.len() == 1 { "conflict" } else { "conflicts" };
        let message = format!("Apply failed with {} {noun}: {}", all.len(), all.join("\n"));
        let cause = |(manager, path): &(Writer, fields::Path)| {
            json!({ "reason": "FieldManagerConflict", "field": fields::shown(path),
                "message": format!("conflict with {}", with(manager)) })
        };
        let mut status = status(409, "Conflict", &message);
        status["details"] = json!({ "causes": conflicts.iter().map(cause).collect::<Vec<_>>() });
        json_answer(409, &status).into()
    }
}

/// Returns the refusal of an object whose lists cannot be merged.
fn unmergeable(NoKey(message): NoKey) -> Refusal {
    status_answer(500, "", &message).into()
}

fn unowned() -> Fields {
    let of_metadata = UNOWNED.map(|name| vec!["f:metadata".to_owned(), format!("f:{name}")]);
    let outer = ["f:apiVersion", "f:kind", "f:metadata"].map(|name| vec![name.to_owned()]);
    of_metadata.into_iter().chain(outer).collect()
}

/// Returns the object without `managedFields`.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    set(&mut object, Value::Null);
    object
}

/// Sets or removes `managedFields`.
fn set(object: &mut Value, managers: Value) {
    match object["metadata"].as_object_mut() {
        Some(meta) if managers.as_array().is_none_or(Vec::is_empty) => {
            drop(meta.remove("managedFields"));
        }
        Some(meta) => drop(meta.insert("managedFields".to_owned(), managers)),
        None => {}
    }
}

fn decode(entries: &Value) -> Managers {
    let entries = entries.as_array().into_iter().flatten();
    let decoded = entries.filter_map(|entry| {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let operation = match entry["operation"].as_str()? {
            "Apply" => "Apply",
            _ => "Update",
        };
        let manager = Writer { operation, name: text("manager"), subresource: text("subresource") };
        Some((manager, Owned { fields: fields::decode(&entry["fieldsV1"]), time: text("time") }))
    });
    decoded.collect()
}
