//! Applies over the fields that others set (`metadata.managedFields`).
//!
//! Guarantees
//! - A field that another manager set is removed only if the API server refuses the desired state beside it,
//!   or if it is not wanted beside that state at all; the caller says which those are.
//! - An object that would be invalid by itself stays as it was: a Service goes on serving.
//! - Each patch applies only to the object and version that it was decided for.

use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error};
use serde_json::{Value, json};

use super::Context;
use super::children::{Desired, EnsureOptions, failed, record};
use crate::client;
use crate::controller::Problem;
use crate::object::{Keep, Kind, Meta, Nothing, Object, ObjectKey, Resource, ResourceVersion, Uid};

/// The record of an apply to a child of which a patch has set fields, too, until these are left to the apply. The
/// next pass sees it if this one does not get that far.
const PENDING: &str = "pending";

/// Number of attempts to leave fields to the apply, while others write.
const LEAVING: u32 = 5;

// === impl Context ===

impl<V: Resource> Context<V> {
    /// Applies what is desired to an existing child, and removes what is in its way. `is_applied` says that
    /// the same was applied before: then everything beside it is another manager's.
    pub(super) async fn apply_over<C: Resource>(
        &self,
        desired: &Desired,
        options: EnsureOptions<'_, C>,
        child: &C,
        is_applied: bool,
    ) -> Result<C, Problem> {
        let (client, key) = (self.client(), &desired.key);
        let mut only = desired.body.clone();
        only["metadata"]["uid"] = json!(child.uid()); // This one, not a namesake.
        if record(child, C::Keep::APPLIED) == Some(PENDING) {
            self.leave_to_the_apply::<C>(key, child.uid()).await?;
        }
        let mut answer = client.apply::<C>(key, &only).await.map_err(conflict_if_another);
        if let Some(conflicts) = options.conflicts
            && answer.as_ref().is_err_and(may_be_hindered)
        {
            let cleared = if is_applied {
                self.patch_exactly(child, conflicts(child, &|_| true)).await
            } else {
                self.clear_the_way(child, conflicts).await
            };
            match cleared {
                Ok(None) => {}
                // The apply would meet what is stored, again.
                Ok(Some(cleared)) if client.is_dry_run() => return Ok(cleared),
                Ok(Some(_)) => {
                    let mut pending = only.clone();
                    pending["metadata"]["annotations"][C::Keep::APPLIED] = json!(PENDING);
                    answer = client.apply(key, &pending).await.map_err(conflict_if_another);
                    if answer.is_ok() {
                        self.leave_to_the_apply::<C>(key, child.uid()).await?;
                        answer = client.apply(key, &only).await.map_err(conflict_if_another);
                    }
                }
                // Without what conflicts the object would be invalid, too: the first answer says
                // why the desired one is.
                Err(problem) if problem.api_error().is_some_and(may_be_hindered) => {}
                Err(problem) => return Err(problem),
            }
        }
        let applied = answer.map_err(|error| failed::<C>("update", key, error))?;
        if client.is_dry_run() {
            return Ok(applied);
        }
        let beside = options.beside(&applied);
        Ok(self.patch_exactly(&applied, beside).await?.unwrap_or(applied))
    }

    /// Removes what others set. Fields of this manager's last apply do not conflict: the next apply
    /// removes them, and until then a Service goes on as it was.
    async fn clear_the_way<C: Resource>(
        &self,
        child: &C,
        conflicts: Conflicts<'_, C>,
    ) -> Result<Option<C>, Problem> {
        let (client, key) = (self.client(), child.key());
        let manager = &client.options().field_manager;
        let fields = client.get::<ManagedFields<C>>(key).await;
        let fields = fields.map_err(|error| failed::<C>("get", key, error))?;
        let mut operations = conflicts(child, &|at| !fields.was_applied(manager, at));
        operations.extend(fields.drop_update_entries(manager));
        self.patch_exactly(child, operations).await
    }

    /// Leaves the fields that this manager set by a patch to its apply, so that they go when they are no longer
    /// applied. Tries again if a controller writes a status meanwhile.
    async fn leave_to_the_apply<C: Resource>(
        &self,
        key: &ObjectKey,
        uid: Uid,
    ) -> Result<(), Problem> {
        let client = self.client();
        let mut attempt = 1;
        loop {
            let fields = client.get::<ManagedFields<C>>(key).await;
            let fields = fields.map_err(|error| failed::<C>("get", key, error))?;
            if fields.meta.uid != uid {
                return Ok(());
            }
            let operations = fields.drop_update_entries(&client.options().field_manager);
            let version = (uid, fields.meta.version);
            match self.patch_version::<C>(key, version, operations).await {
                Ok(_) => return Ok(()),
                Err(problem)
                    if attempt < LEAVING
                        && problem.api_error().is_some_and(client::Error::is_conflict) =>
                {
                    attempt += 1;
                }
                Err(problem) => return Err(problem),
            }
        }
    }

    /// Applies an RFC 6902 patch to a child, if it is unchanged since it was read. Sends nothing if there
    /// are no operations.
    async fn patch_exactly<C: Resource>(
        &self,
        child: &C,
        operations: Vec<Value>,
    ) -> Result<Option<C>, Problem> {
        let Meta { uid, version, .. } = child.meta();
        self.patch_version(child.key(), (*uid, *version), operations).await
    }

    /// The same to this version of the child.
    async fn patch_version<C: Resource>(
        &self,
        key: &ObjectKey,
        (uid, version): (Uid, ResourceVersion),
        mut operations: Vec<Value>,
    ) -> Result<Option<C>, Problem> {
        if operations.is_empty() {
            return Ok(None);
        }
        let test = |path: &str, value: Value| json!({ "op": "test", "path": path, "value": value });
        operations.insert(0, test("/metadata/resourceVersion", json!(version)));
        operations.insert(0, test("/metadata/uid", json!(uid)));
        let answer = self.client().json_patch(key, &json!(operations)).await;
        let answer = answer.map_err(conflict_if_test_failed);
        Ok(Some(answer.map_err(|error| failed::<C>("update", key, error))?))
    }
}

/// Finds what conflicts with a desired state: JSON patch operations, last position first, that
/// remove it from a child if it is [`Foreign`].
pub(super) type Conflicts<'a, C> = &'a (dyn Fn(&C, Foreign<'_>) -> Vec<Value> + Send + Sync);

/// Returns whether another manager set what is at a JSON pointer into a child.
pub type Foreign<'a> = &'a dyn Fn(&str) -> bool;

/// Returns whether the API server may have refused the write because of what others set; admission has not, and
/// could be asked.
/// Two ports with one node port are answered with 500 (k8s.io/kubernetes,
/// pkg/registry/core/service/storage).
fn may_be_hindered(error: &client::Error) -> bool {
    matches!(error.code(), Some(400 | 422 | 500))
        && !(error.is_denied() || error.is_unmergeable())
        && !error.to_string().contains("failed calling webhook")
}

/// Applying with the UID of another object is answered with 422, as a UID cannot be changed.
pub(super) fn conflict_if_another(error: client::Error) -> client::Error {
    let is_another =
        error.is_invalid() && error.to_string().contains("metadata.uid: Invalid value");
    if is_another { as_conflict(error) } else { error }
}

/// A JSON patch whose `test` fails is answered with 422 (k8s.io/apiserver, endpoints/handlers), and so is
/// one that would make the object invalid. Only the latter names fields.
fn conflict_if_test_failed(error: client::Error) -> client::Error {
    let names_a_field = matches!(&error, client::Error::Api { causes, .. }
        if causes.iter().any(|cause| cause.starts_with("FieldValue")));
    if error.is_invalid() && !names_a_field && !error.is_denied() {
        as_conflict(error)
    } else {
        error
    }
}

fn as_conflict(error: client::Error) -> client::Error {
    match error {
        client::Error::Api { reason, message, causes, retry_after, .. } => {
            client::Error::Api { code: 409, reason, message, causes, retry_after }
        }
        other => other,
    }
}

/// A child with everything in it. Much larger than a view, so it is read only when an apply was refused.
#[derive(Debug)]
pub(super) struct ManagedFields<C> {
    meta: Meta,
    object: Value,
    kind: PhantomData<fn() -> C>,
}

// === impl ManagedFields ===

impl<C> ManagedFields<C> {
    /// Returns whether the last apply of `manager` set what is at this JSON pointer. If so, the next apply
    /// that leaves it out removes it.
    pub(super) fn was_applied(&self, manager: &str, pointer: &str) -> bool {
        let by_apply = |entry: &&Value| is_of(manager, entry, "Apply");
        let applied = self.entries().filter(by_apply).map(|entry| &entry["fieldsV1"]);
        applied.into_iter().any(|fields| holds(fields, &self.object, pointer))
    }

    /// JSON patch operations, last position first, that leave the fields which `manager` set by anything but
    /// an apply to the apply. It would not remove them otherwise, as they have a second owner.
    pub(super) fn drop_update_entries(&self, manager: &str) -> Vec<Value> {
        let entries: Vec<_> = self.entries().enumerate().collect();
        let by_patch = entries.iter().rev().filter(|(_, entry)| is_of(manager, entry, "Update"));
        let path = |at: &usize| format!("/metadata/managedFields/{at}");
        by_patch.map(|(at, _)| json!({ "op": "remove", "path": path(at) })).collect()
    }

    fn entries(&self) -> impl Iterator<Item = &Value> {
        self.object["metadata"]["managedFields"].as_array().into_iter().flatten()
    }
}

/// Returns whether these are the fields that `manager` set in this way. Subresources are written by
/// other controllers.
fn is_of(manager: &str, entry: &Value, operation: &str) -> bool {
    entry["manager"] == manager
        && entry["operation"] == operation
        && entry["subresource"].as_str().is_none_or(str::is_empty)
}

/// Returns whether `fields` (`fieldsV1`) has what is at a JSON pointer into `object`.
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
            // A list or map without parts of its own is set as a whole.
            None => return fields.as_object().is_some_and(serde_json::Map::is_empty),
        }
    }
    true
}

/// The part of a list's fields that is about `item`, by its keys or, in a set, by its value.
fn of_item<'a>(fields: &'a Value, item: &Value) -> Option<&'a Value> {
    let is_of_it = |name: &str| match name.split_once(':') {
        Some(("k", keys)) => serde_json::from_str::<Value>(keys).is_ok_and(|keys| {
            keys.as_object().is_some_and(|keys| keys.iter().all(|(key, value)| item[key] == *value))
        }),
        Some(("v", value)) => serde_json::from_str::<Value>(value).is_ok_and(|v| v == *item),
        _ => false,
    };
    fields.as_object()?.iter().find(|(name, _)| is_of_it(name)).map(|(_, below)| below)
}

impl<C: Resource> Object for ManagedFields<C> {
    type Keep = Nothing;
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl<C: Resource> Resource for ManagedFields<C> {
    const KIND: Kind = C::KIND;
}

impl<'de, C: Resource> Deserialize<'de> for ManagedFields<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ManagedFields<C>, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let meta = Meta::deserialize(&object["metadata"]).map_err(D::Error::custom)?;
        Ok(ManagedFields { meta, object, kind: PhantomData })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::fixtures::Thing;

    const MANAGER: &str = "test";

    fn fields(managed: &Value) -> ManagedFields<Thing> {
        serde_json::from_value(json!({
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
        .unwrap()
    }

    fn entry(operation: &str, fields: &Value) -> Value {
        json!({ "manager": MANAGER, "operation": operation, "fieldsV1": fields })
    }

    #[test]
    fn applied_fields_are_found_by_place_by_keys_and_as_a_whole() {
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
    fn a_patch_that_would_be_invalid_is_refused_and_a_late_one_conflicts() {
        let invalid = |causes: &[&str]| client::Error::Api {
            code: 422,
            reason: "Invalid".to_owned(),
            message: String::new(),
            causes: causes.iter().map(|&cause| cause.to_owned()).collect(),
            retry_after: None,
        };
        assert!(conflict_if_test_failed(invalid(&[])).is_conflict());
        assert!(conflict_if_test_failed(invalid(&["FieldValueRequired"])).is_invalid());
        let mut denied = invalid(&[]);
        if let client::Error::Api { message, .. } = &mut denied {
            *message = "ValidatingAdmissionPolicy 'p' denied request: not today".to_owned();
        }
        assert!(!may_be_hindered(&denied) && conflict_if_test_failed(denied).is_invalid());
    }

    #[test]
    fn only_its_own_apply_counts_and_patched_fields_are_left_to_it() {
        let ports = json!({ "f:spec": { "f:ports": {} } });
        let mut theirs = entry("Apply", &ports);
        theirs["manager"] = json!("kubectl");
        let mut status = entry("Apply", &ports);
        status["subresource"] = json!("status");
        let all = json!([entry("Update", &ports), theirs, status, entry("Update", &ports)]);
        let read = fields(&all);
        assert!(!read.was_applied(MANAGER, "/spec/ports"));
        let path = |at| json!({ "op": "remove", "path": format!("/metadata/managedFields/{at}") });
        assert_eq!(read.drop_update_entries(MANAGER), [path(3), path(0)]);
    }
}
