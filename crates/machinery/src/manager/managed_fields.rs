//! Server-side applies that take over fields of other managers (`metadata.managedFields`).
//!
//! Guarantees
//! - Another manager's field is removed only if the API server refuses the desired state with it, or if the caller
//!   declares it unwanted.
//! - An object that would be invalid without these fields is not changed, so a Service continues to serve.
//! - A field that is no longer desired is removed, even if another manager has set the same value since.
//! - Each patch applies only to the object and version that it was decided for.
//! - A patch to an adopted object also sets its owner reference: no other write changes an object that the owner does
//!   not control.

use serde::ser::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::Context;
use super::children::{Desired, EnsureOptions, failed, json_of, record};
use super::compared::{Place, is_atomic_map, keys};
use super::conflicts::{self, Owners};
use crate::client::{self, Patch};
use crate::controller::{Name, ReconcileError};
use crate::object::{MetadataFilter, Resource};

// === impl Context ===

impl<V: Resource> Context<V> {
    /// Applies the desired state to an existing object and removes conflicting fields. `is_applied`: this exact
    /// state was applied before, so every other field belongs to another manager. It becomes true if another manager
    /// has changed the record, such as `kubectl rollout undo`, which restores it with the rest.
    pub(super) async fn apply_over<C: Resource + Serialize>(
        &self,
        desired: &Desired,
        options: EnsureOptions<'_, C>,
        child: &C,
        is_applied: &mut bool,
    ) -> Result<C, ReconcileError> {
        let (client, key) = (self.client(), &desired.key);
        let mut only = desired.body.clone();
        only["metadata"]["uid"] = json!(child.uid()); // This one, not a namesake.
        let owned;
        let is_shared = child.meta().is_co_owned || self.is_orphan(child);
        let child = if !*is_applied && is_shared && !client.is_dry_run() {
            owned = self.own_removed_fields(desired, child, is_applied).await?;
            owned.as_ref().unwrap_or(child)
        } else {
            child
        };
        let apply = async || {
            let applied = client.patch::<C>(key, &Patch::Apply(&only)).await;
            applied.map_err(conflict_if_another)
        };
        let applied = match apply().await {
            Err(error) if let Some(field) = immutable(&error) => {
                let name = Name { kind: C::kind(), key: key.clone() };
                Err(ReconcileError::Immutable { name, field })
            }
            Err(error) if may_be_a_conflict(&error) => {
                match self.resolve_conflicts(desired, options, child, &error).await {
                    // A dry-run apply would start from the stored object, which still has the conflicting fields.
                    Ok(Some(resolved)) if client.is_dry_run() => return Ok(resolved),
                    Ok(Some(_)) => apply().await.map_err(|error| {
                        // The object was written, so this attempt counts, too.
                        let subject = (child.uid(), 0);
                        self.controller.throttle.wrote(subject, desired.hash, Instant::now());
                        failed::<C>("update", key, error)
                    }),
                    // The object would be invalid even without the conflicting fields, so the first error is returned.
                    Err(problem) if !problem.api_error().is_some_and(may_be_a_conflict) => {
                        Err(problem)
                    }
                    Ok(None) | Err(_) => Err(failed::<C>("update", key, error)),
                }
            }
            answer => answer.map_err(|error| failed::<C>("update", key, error)),
        }?;
        if client.is_dry_run() {
            return Ok(applied);
        }
        let unwanted = options.unwanted_in(&applied);
        let version = json!(applied.meta().version);
        Ok(self.patch_exactly(&applied, &version, unwanted).await?.unwrap_or(applied))
    }

    /// Makes this manager the only owner of the fields that it applied and no longer desires. Otherwise, the apply
    /// would keep them for their other owners. Changes only `managedFields`.
    async fn own_removed_fields<C: Resource + Serialize>(
        &self,
        desired: &Desired,
        child: &C,
        is_applied: &mut bool,
    ) -> Result<Option<C>, ReconcileError> {
        let (client, key) = (self.client(), &desired.key);
        let manager = &client.options().field_manager;
        let fields = client.read(&C::kind(), key).await;
        let fields = ManagedFields(fields.map_err(|error| failed::<C>("get", key, error))?);
        if fields.0["metadata"]["uid"] != json!(child.uid()) {
            return Ok(None);
        }
        let at = C::MetadataFilter::APPLIED.replace('~', "~0").replace('/', "~1");
        *is_applied = record(child, C::MetadataFilter::APPLIED).is_some()
            && fields.applied_by(manager).is_some()
            && !fields.was_applied(manager, &format!("/metadata/annotations/{at}"));
        let mut operations = match fields.applied_by(manager) {
            Some(applied) => fields.take_ownership(manager, &gone(applied, &desired.body)),
            // The owners were cleared, or the object was restored. The fields that the view shows count as applied by
            // this manager.
            None if record(child, C::MetadataFilter::APPLIED).is_some() => {
                let claimed = fields.without_those_of_others(&json_of(child)?);
                let mut operations = fields.take_ownership(manager, &gone(&claimed, &desired.body));
                operations.push(fields.own_all(manager, &C::kind().api_version(), &claimed));
                operations
            }
            None => Vec::new(),
        };
        if !operations.is_empty() {
            operations.extend(self.adopting(child, &fields));
        }
        let version = &fields.0["metadata"]["resourceVersion"];
        self.patch_exactly(child, version, operations).await
    }

    /// Returns the operation that sets the owner of an uncontrolled object.
    fn adopting<C: Resource>(&self, child: &C, fields: &ManagedFields) -> Option<Value> {
        let owner = json!(self.object.as_owner());
        self.is_orphan(child).then(|| {
            let has_others = fields.0["metadata"]["ownerReferences"].is_array();
            let (path, value) =
                if has_others { ("/-", owner) } else { ("", json!([owner])) };
            json!({ "op": "add", "path": format!("/metadata/ownerReferences{path}"), "value": value })
        })
    }

    /// Removes or replaces the fields of other managers that the API server refuses together with the desired state. If
    /// it names none, removes the unwanted ones.
    async fn resolve_conflicts<C: Resource>(
        &self,
        desired: &Desired,
        options: EnsureOptions<'_, C>,
        child: &C,
        error: &client::Error,
    ) -> Result<Option<C>, ReconcileError> {
        let causes = error.causes();
        let (client, key) = (self.client(), child.key());
        let manager = &client.options().field_manager;
        let fields = client.read(&C::kind(), key).await;
        let fields = ManagedFields(fields.map_err(|error| failed::<C>("get", key, error))?);
        let mut operations = if causes.iter().all(|cause| matches!(&*cause.field, "" | "spec")) {
            options.unwanted_in(child)
        } else {
            let owners = Owners {
                applied: &|at| fields.was_applied(manager, at),
                others: &|at| fields.is_of_others(manager, at),
            };
            conflicts::operations(causes, &desired.body, &fields.0, &owners)
        };
        if !operations.is_empty() {
            operations.extend(self.adopting(child, &fields));
        }
        self.patch_exactly(child, &json!(child.meta().version), operations).await
    }

    /// Sends an RFC 6902 patch that applies only to this object and version. Sends nothing without operations.
    async fn patch_exactly<C: Resource>(
        &self,
        child: &C,
        version: &Value,
        mut operations: Vec<Value>,
    ) -> Result<Option<C>, ReconcileError> {
        if operations.is_empty() {
            return Ok(None);
        }
        let test = |path: &str, value: Value| json!({ "op": "test", "path": path, "value": value });
        operations.insert(0, test("/metadata/resourceVersion", json!(version)));
        operations.insert(0, test("/metadata/uid", json!(child.uid())));
        let answer = self.client().json_patch(child.key(), &json!(operations)).await;
        let answer = answer.map_err(conflict_if_test_failed);
        Ok(Some(answer.map_err(|error| failed::<C>("update", child.key(), error))?))
    }
}

/// A function that returns JSON patch operations, last position first, that remove unwanted fields.
pub(super) type Unwanted<'a, C> = &'a (dyn Fn(&C) -> Vec<Value> + Send + Sync);

/// Returns the immutable field that the write would have changed, if it was refused for that.
fn immutable(error: &client::Error) -> Option<String> {
    let is_immutable = |cause: &&client::Cause| {
        // The second text is that of the address of a Service.
        cause.message.contains("field is immutable")
            || cause.message.contains("may not change once set")
    };
    error.causes().iter().find(is_immutable).map(|cause| cause.field.clone())
}

/// Returns whether the API server may have refused the write because of other managers' fields. This excludes refusals
/// by admission and those that pass. The API server returns 500 for two ports with the same node port (k8s.io/kubernetes,
/// pkg/registry/core/service/storage).
fn may_be_a_conflict(error: &client::Error) -> bool {
    matches!(error.code(), Some(400 | 422 | 500))
        && !(error.is_denied() || error.is_unmergeable() || error.is_transient_refusal())
        && !error.to_string().contains("failed calling webhook")
}

/// Returns a conflict if an apply was refused because of another object's UID. The API server returns 422, because a
/// UID is immutable.
pub(super) fn conflict_if_another(error: client::Error) -> client::Error {
    let is_another =
        error.is_invalid() && error.to_string().contains("metadata.uid: Invalid value");
    if is_another { as_conflict(error) } else { error }
}

/// Returns a conflict if the `test` of a JSON patch failed. The API server returns 422 for that (k8s.io/apiserver,
/// endpoints/handlers) and for an invalid result, but names fields only for the latter.
fn conflict_if_test_failed(error: client::Error) -> client::Error {
    let names_a_field = error.causes().iter().any(|it| it.reason.starts_with("FieldValue"));
    if error.is_invalid() && !names_a_field && !error.is_denied() {
        as_conflict(error)
    } else {
        error
    }
}

fn as_conflict(mut error: client::Error) -> client::Error {
    if let client::Error::Api { code, .. } = &mut error {
        *code = 409;
    }
    error
}

/// A complete object. It is read only when needed, because it is much larger than a view.
#[derive(Debug)]
pub(super) struct ManagedFields(Value);

// === impl ManagedFields ===

impl ManagedFields {
    /// Returns whether the last apply of `manager` set the field at this JSON pointer. If so, an apply without the
    /// field removes it.
    pub(super) fn was_applied(&self, manager: &str, pointer: &str) -> bool {
        let by_apply = |entry: &&Value| is_apply_of(manager, entry);
        let applied = self.entries().filter(by_apply).map(|entry| &entry["fieldsV1"]);
        applied.into_iter().any(|fields| holds(fields, &self.0, pointer))
    }

    /// Returns whether a manager other than `manager` owns the field at this JSON pointer, or a part of it. A patch
    /// or update of `manager` itself counts: its next apply does not remove these fields. Without an apply of
    /// `manager`, the owners were cleared, and every field counts.
    fn is_of_others(&self, manager: &str, pointer: &str) -> bool {
        if self.applied_by(manager).is_none() {
            return true;
        }
        let is_other = |entry: &&Value| is_of_object(entry) && !is_apply_of(manager, entry);
        let mut others = self.entries().filter(is_other);
        others.any(|entry| holds(&entry["fieldsV1"], &self.0, pointer))
    }

    /// Returns the fields that `manager` applied last.
    fn applied_by(&self, manager: &str) -> Option<&Value> {
        let mut entries = self.entries();
        entries.find(|entry| is_apply_of(manager, entry)).map(|entry| &entry["fieldsV1"])
    }

    /// Returns the fields that the view shows and that no other manager has applied.
    fn without_those_of_others(&self, shown: &Value) -> Value {
        let labels = fields_of(&Place::SPEC.inner("labels"), &shown["metadata"]["labels"]);
        let mut claimed = json!({ "f:metadata": { "f:labels": labels } });
        if shown["spec"].is_object() {
            claimed["f:spec"] = fields_of(&Place::SPEC, &shown["spec"]);
        }
        let applied = self.entries().filter(|entry| entry["operation"] == "Apply");
        for entry in applied.filter(|entry| is_of_object(entry)) {
            take(&mut claimed, &entry["fieldsV1"]);
        }
        claimed
    }

    /// Returns the JSON patch operation that records these fields as applied by `manager`.
    fn own_all(&self, manager: &str, api_version: &str, fields: &Value) -> Value {
        let entry = json!({ "manager": manager, "operation": "Apply", "apiVersion": api_version,
            "fieldsType": "FieldsV1", "fieldsV1": fields });
        let (path, value) = match self.entries().next() {
            Some(_) => ("/-", entry),
            None => ("", json!([entry])),
        };
        json!({ "op": "add", "path": format!("/metadata/managedFields{path}"), "value": value })
    }

    /// Returns JSON patch operations that remove fields from all other entries. A patch of `manager` itself has one.
    fn take_ownership(&self, manager: &str, taken: &Value) -> Vec<Value> {
        let is_other = |entry: &Value| !is_apply_of(manager, entry) && is_of_object(entry);
        let others = self.entries().enumerate().filter(|(_, entry)| is_other(entry));
        let less = others.filter_map(|(at, entry)| {
            let (mut fields, path) =
                (entry["fieldsV1"].clone(), format!("/metadata/managedFields/{at}/fieldsV1"));
            take(&mut fields, taken)
                .then(|| json!({ "op": "replace", "path": path, "value": fields }))
        });
        less.collect()
    }

    fn entries(&self) -> impl Iterator<Item = &Value> {
        self.0["metadata"]["managedFields"].as_array().into_iter().flatten()
    }
}

/// Returns whether `manager` applied these fields. Entries of subresources belong to other
/// controllers.
fn is_apply_of(manager: &str, entry: &Value) -> bool {
    entry["manager"] == manager && entry["operation"] == "Apply" && is_of_object(entry)
}

fn is_of_object(entry: &Value) -> bool {
    entry["subresource"].as_str().is_none_or(str::is_empty)
}

/// Returns whether `fields` (`fieldsV1`) contains the field at a JSON pointer into `object`.
fn holds(mut fields: &Value, mut object: &Value, pointer: &str) -> bool {
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let below;
        (below, object) = match object {
            Value::Array(items) => {
                let item = step.parse().ok().and_then(|at: usize| items.get(at));
                let Some(item) = item else { return false };
                (of_item(fields, item), item)
            }
            _ => (fields.get(format!("f:{step}")), &object[&step]),
        };
        match below {
            Some(below) => fields = below,
            // A list or map without entries has one owner.
            None => return fields.as_object().is_some_and(Map::is_empty),
        }
    }
    true
}

/// Returns the part of `fields` that `desired` lacks. A name without entries stands for everything below it. A missing
/// list item is returned as a whole; of other fields, only those that `fields` names.
fn gone(fields: &Value, desired: &Value) -> Value {
    let parts = fields.as_object().into_iter().flatten().filter(|(name, _)| *name != ".");
    let gone = parts.filter_map(|(name, below)| {
        let there = match name.split_once(':') {
            Some(("f", field)) => desired.get(field),
            _ => desired
                .as_array()
                .and_then(|items| items.iter().find(|item| is_of_item(name, item))),
        };
        let is_item = !name.starts_with("f:");
        let gone = match there {
            None if is_item => json!({}),
            None => gone(below, &Value::Null),
            Some(there) => gone(below, there),
        };
        let is_some = there.is_none() || gone != json!({});
        is_some.then(|| (name.clone(), gone))
    });
    Value::Object(gone.collect())
}

/// Removes fields from a set. Returns whether it contained any of them.
fn take(fields: &mut Value, taken: &Value) -> bool {
    let (Some(fields), Some(taken)) = (fields.as_object_mut(), taken.as_object()) else {
        return false;
    };
    let mut any = false;
    for (name, below) in taken {
        let Some(there) = fields.get_mut(name) else { continue };
        if *below == json!({}) {
            fields.remove(name);
            any = true;
        } else {
            any |= take(there, below);
            // An empty entry would stand for all fields below it.
            if *there == json!({}) {
                fields.remove(name);
            }
        }
    }
    any
}

/// Returns the fields of a value in the form of `managedFields`.
fn fields_of(at: &Place<'_>, value: &Value) -> Value {
    match value {
        Value::Object(map) if !is_atomic_map(at) => {
            let below = map
                .iter()
                .map(|(name, value)| (format!("f:{name}"), fields_of(&at.inner(name), value)));
            Value::Object(below.collect())
        }
        Value::Array(items) => {
            let Some(keys) = keys(at, items) else { return json!({}) };
            let below = items.iter().map(|item| {
                let key: Map<_, _> =
                    keys.iter().map(|key| ((*key).to_owned(), item[*key].clone())).collect();
                let mut fields = fields_of(at, item);
                fields["."] = json!({});
                (format!("k:{}", Value::Object(key)), fields)
            });
            Value::Object(below.collect())
        }
        _ => json!({}),
    }
}

/// Returns the fields of one `item` of a list, found by its keys or, in a set, by its value.
fn of_item<'a>(fields: &'a Value, item: &Value) -> Option<&'a Value> {
    fields.as_object()?.iter().find(|(name, _)| is_of_item(name, item)).map(|(_, below)| below)
}

/// Returns whether an entry of a list's fields is for `item`.
fn is_of_item(name: &str, item: &Value) -> bool {
    match name.split_once(':') {
        Some(("k", keys)) => serde_json::from_str::<Map<String, Value>>(keys).is_ok_and(|keys| {
            keys.iter().all(|(key, value)| {
                // The API server fills in the protocol of a port.
                item[key] == *value || item[key].is_null() && key == "protocol" && value == "TCP"
            })
        }),
        Some(("v", value)) => serde_json::from_str::<Value>(value).is_ok_and(|v| v == *item),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANAGER: &str = "test";

    fn fields(managed: &Value) -> ManagedFields {
        ManagedFields(json!({
            "metadata": {
                "name": "shop", "namespace": "ns", "resourceVersion": "7", "managedFields": managed,
                "annotations": { "a.b/c": "1" },
            },
            "spec": {
                "ports": [
                    { "port": 80, "protocol": "TCP", "name": "web" },
                    { "port": 80, "protocol": "UDP", "name": "dns" },
                ],
                "ranges": ["10.0.0.0/8"],
            },
        }))
    }

    fn entry(operation: &str, fields: &Value) -> Value {
        json!({ "manager": MANAGER, "operation": operation, "fieldsV1": fields })
    }

    #[test]
    fn applied_fields_are_found_by_path_by_keys_and_by_parent() {
        let keys = r#"k:{"port":80,"protocol":"UDP"}"#;
        let spec = json!({ "f:ports": { keys: { ".": {}, "f:port": {} } }, "f:ranges": {} });
        let set = json!({ "f:metadata": { "f:annotations": { "f:a.b/c": {} } }, "f:spec": spec });
        let read = fields(&json!([entry("Apply", &set)]));
        let applied = [
            "/metadata/annotations/a.b~1c",
            "/spec/ports/1",
            "/spec/ports/1/port",
            "/spec/ranges",
            "/spec/ranges/0",
        ];
        assert!(applied.iter().all(|pointer| read.was_applied(MANAGER, pointer)));
        let others = ["/metadata/annotations/x", "/spec/ports/0", "/spec/ports/1/name", "/spec/x"];
        assert_eq!(others.map(|pointer| read.was_applied(MANAGER, pointer)), [false; 4]);
    }

    #[test]
    fn undesired_fields_are_removed_from_all_other_managers() {
        let (web, dns) = (r#"k:{"port":80,"protocol":"TCP"}"#, r#"k:{"port":80,"protocol":"UDP"}"#);
        let port = json!({ ".": {}, "f:port": {}, "f:name": {} });
        let spec = json!({ "f:ports": { web: port, dns: port }, "f:ranges": {}, "f:kind": {} });
        let set = json!({ "f:spec": spec });
        let desired = json!({ "spec": { "kind": "a", "ports": [{ "port": 80, "name": "web" }] } });
        let gone = gone(&set, &desired);
        assert_eq!(gone, json!({ "f:spec": { "f:ports": { dns: {} }, "f:ranges": {} } }));
        // Of a list that goes, only the items that were applied.
        let without = super::gone(&set, &json!({ "spec": { "kind": "a", "ranges": [] } }));
        let both = json!({ web: {}, dns: {} });
        assert_eq!(without, json!({ "f:spec": { "f:ports": both } }));
        let mut more = json!({ "f:spec": { "f:ports": { web: port, "k:{\"port\":1}": port } } });
        assert!(take(&mut more, &without));
        assert_eq!(more, json!({ "f:spec": { "f:ports": { "k:{\"port\":1}": port } } }));
        let mut theirs = entry("Update", &set);
        theirs["manager"] = json!("gitops");
        let read = fields(&json!([entry("Apply", &set), theirs]));
        let left = json!({ "f:spec": { "f:ports": { web: port }, "f:kind": {} } });
        assert_eq!(
            read.take_ownership(MANAGER, &gone),
            [
                json!({ "op": "replace", "path": "/metadata/managedFields/1/fieldsV1", "value": left })
            ]
        );
        assert!(read.take_ownership(MANAGER, &json!({ "f:spec": { "f:x": {} } })).is_empty());
    }

    #[test]
    fn field_names_match_those_of_the_api_server() {
        let spec = json!({ "selector": { "a": "b" }, "ports": [{ "port": 80, "protocol": "TCP" }],
            "ranges": ["10.0.0.0/8"], "paused": false });
        let port = json!({ ".": {}, "f:port": {}, "f:protocol": {} });
        assert_eq!(
            fields_of(&Place::SPEC, &spec),
            json!({ "f:selector": {}, "f:ranges": {}, "f:paused": {},
                "f:ports": { r#"k:{"port":80,"protocol":"TCP"}"#: port } })
        );
    }

    #[test]
    fn an_invalid_patch_is_refused_and_a_late_patch_conflicts() {
        let invalid = |causes: &[&str]| client::Error::Api {
            code: 422,
            reason: "Invalid".to_owned(),
            message: String::new(),
            causes: causes
                .iter()
                .map(|&reason| client::Cause { reason: reason.to_owned(), ..Default::default() })
                .collect(),
            retry_after: None,
        };
        assert!(conflict_if_test_failed(invalid(&[])).is_conflict());
        assert!(conflict_if_test_failed(invalid(&["FieldValueRequired"])).is_invalid());
        let mut denied = invalid(&[]);
        if let client::Error::Api { message, .. } = &mut denied {
            *message = "ValidatingAdmissionPolicy 'p' denied request: not today".to_owned();
        }
        assert!(!may_be_a_conflict(&denied) && conflict_if_test_failed(denied).is_invalid());
    }

    #[test]
    fn only_its_own_apply_counts() {
        let ports = json!({ "f:spec": { "f:ports": {} } });
        let mut theirs = entry("Apply", &ports);
        theirs["manager"] = json!("kubectl");
        let mut status = entry("Apply", &ports);
        status["subresource"] = json!("status");
        let all = json!([entry("Update", &ports), theirs, status, entry("Update", &ports)]);
        let read = fields(&all);
        assert!(!read.was_applied(MANAGER, "/spec/ports"));
        let taken = read.take_ownership(MANAGER, &ports);
        let at = |operation: &Value| operation["path"].as_str().unwrap().to_owned();
        let paths: Vec<String> = taken.iter().map(at).collect();
        let path = |at: usize| format!("/metadata/managedFields/{at}/fieldsV1");
        assert_eq!(paths, [path(0), path(1), path(3)], "a patch of its own, too");
    }
}
