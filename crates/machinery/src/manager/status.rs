//! The status: comparison, patch and write-through to the store.
//!
//! The status is written by a merge patch with the object's version as precondition, not by a server-side apply.
//! - An apply would never remove conditions from schema defaults, because they have no owner.
//! - The API server ignores a UID in a status patch. Without the version, a status for an older spec would count for
//!   the new one.

use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::Context;
use super::children::{failed, json_of};
use super::compared::{form, hash, is_equal, remove_nulls};
use crate::client::{self, Patch};
use crate::controller::ReconcileError;
use crate::object::Resource;

/// The subject of writes of the status.
const STATUS: u64 = 1;

// === impl Context ===

impl<V: Resource> Context<V> {
    /// Sets the object's status to `status`, the content of the field `status`. Fields that the view shows and
    /// `status` lacks are removed. Conditions are removed only if
    /// [`ControllerBuilder::conditions`](super::ControllerBuilder::conditions) declares their type. Sends nothing if
    /// the view already shows this status. Therefore, the view's `status` must contain all fields that are set here,
    /// and no fields of other controllers except complete [`Condition`](super::Condition)s.
    ///
    /// ```
    /// # use controller_machinery::{controller::ReconcileError, manager::Context, object::Typed};
    /// # use {k8s_openapi::api::core::v1::ConfigMap, serde_json::json};
    /// # async fn example(cx: Context<Typed<ConfigMap>>) -> Result<(), ReconcileError> {
    /// cx.patch_status(json!({"readyReplicas": 2})).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - A conflict if the object has changed since this reconcile read it. The next reconcile sees the change.
    /// - [`ReconcileError::Contested`] if another program keeps writing a different status for the same spec.
    /// - `ErrNoStatusSubresource` if the CustomResourceDefinition lacks `subresources.status`.
    /// - `ErrWiring` if `status` is an object with metadata instead of its status.
    /// - All errors of a write.
    pub async fn patch_status(&self, status: impl Serialize) -> Result<(), ReconcileError>
    where
        V: Serialize,
    {
        let mut status = json_of(&status)?;
        remove_nulls(&mut status);
        let (controller, object, now) = (&self.controller, self.latest(), Instant::now());
        let observed = status_of(&*object)?;
        if contains_status(&status, &observed) {
            let what = "patch_status takes what is in `status`, not an object with that field: leave out `status`";
            return Err(ReconcileError::terminal("ErrWiring", what));
        }
        if is_same(&status, &observed, &controller.declared.conditions)
            || controller.accepts(self.key(), form(&status, &observed))
        {
            return Ok(());
        }
        let (key, subject, generation) =
            (self.key(), (object.uid(), STATUS), object.meta().generation);
        let digest =
            |observed: &Value| (hash(&own(observed, &controller.declared.conditions)), generation);
        let is_undone = controller.statuses.is_overwritten(object.uid(), || digest(&observed), now);
        if is_undone && let Some(wait) = controller.throttle.wait(subject, 0, now) {
            return Err(ReconcileError::contested::<V>(key, Some("status".to_owned()), wait));
        }
        let body = json!({
            "metadata": { "resourceVersion": object.meta().version },
            "status": patch(&status, &observed, &controller.declared.conditions),
        });
        let written = match self.client().patch_status::<V>(key, &Patch::Merge(&body)).await {
            Err(error) if error.is_not_found() => return Err(self.no_status(error).await),
            written => written.map_err(|error| failed::<V>("update the status of", key, error))?,
        };
        // A schema changes the same status in the same way each time.
        let observed = status_of(&written)?;
        let other = !is_same(&status, &observed, &controller.declared.conditions);
        controller.accept(key, other.then(|| form(&status, &observed)));
        if is_undone {
            controller.throttle.wrote(subject, 0, now);
        }
        controller.statuses.wrote(object.uid(), digest(&observed), now);
        self.wrote(written);
        Ok(())
    }
}

impl<V: Resource> Context<V> {
    /// Returns the problem behind a 404: without the subresource, the response is the same as for a deleted object.
    async fn no_status(&self, error: client::Error) -> ReconcileError {
        match self.client().find::<V>(self.key()).await {
            Ok(Some(live)) if live.uid() == self.object.uid() => {
                let what = format!(
                    "{} has no status subresource: add `subresources: {{status: {{}}}}` to its version in the \
                     CustomResourceDefinition",
                    V::kind().resource()
                );
                ReconcileError::forbidden("ErrNoStatusSubresource", what)
            }
            _ => failed::<V>("update the status of", self.key(), error),
        }
    }
}

/// Returns whether this is a complete object instead of its status.
fn contains_status(status: &Value, observed: &Value) -> bool {
    const FIELDS: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];
    let all_known = |map: &Map<String, Value>| map.keys().all(|it| FIELDS.contains(&it.as_str()));
    status.as_object().is_some_and(|map| map.contains_key("status") && all_known(map))
        && observed["status"].is_null()
}

fn status_of<V: Resource + Serialize>(object: &V) -> Result<Value, ReconcileError> {
    Ok(json_of(object)?["status"].take())
}

/// Returns the merge patch from `observed` to the desired status. `own`: the condition types of this controller.
fn patch(desired: &Value, observed: &Value, own: &[&str]) -> Value {
    match (desired, observed) {
        (Value::Object(desired), Value::Object(observed)) => {
            let set = desired.iter().map(|(field, value)| {
                (field.clone(), patch(value, observed.get(field).unwrap_or(&Value::Null), own))
            });
            let gone = observed.iter().filter(|(field, _)| !desired.contains_key(*field));
            let gone = gone.map(|(field, value)| (field.clone(), left_of(value, own)));
            set.chain(gone).collect()
        }
        (Value::Array(desired), Value::Array(observed)) if are_conditions(desired, observed) => {
            let is_desired = |entry: &&Value| desired.iter().any(|it| it["type"] == entry["type"]);
            let theirs = observed.iter().filter(|it| !is_own(it, own) && !is_desired(it));
            theirs.chain(desired).cloned().collect()
        }
        (desired, _) => desired.clone(),
    }
}

/// Returns the rest of a field that is no longer set: the conditions of other controllers.
fn left_of(observed: &Value, own: &[&str]) -> Value {
    match observed {
        Value::Array(list)
            if are_conditions(&[], list) && !list.iter().all(|it| is_own(it, own)) =>
        {
            list.iter().filter(|it| !is_own(it, own)).cloned().collect()
        }
        _ => Value::Null,
    }
}

/// Returns whether a status is the desired one, ignoring other controllers' conditions.
fn is_same(desired: &Value, observed: &Value, own: &[&str]) -> bool {
    match (desired, observed) {
        (Value::Object(desired), Value::Object(observed)) => {
            let known = |map: &Map<String, Value>, field: &String| {
                map.get(field).cloned().unwrap_or_default()
            };
            desired
                .keys()
                .chain(observed.keys())
                .all(|field| is_same(&known(desired, field), &known(observed, field), own))
        }
        (Value::Array(desired), Value::Array(observed)) if are_conditions(desired, observed) => {
            desired.iter().all(|wanted| {
                let found = observed.iter().find(|entry| entry["type"] == wanted["type"]);
                found.is_some_and(|found| is_same(wanted, found, own))
            }) && observed.iter().filter(|it| is_own(it, own)).count()
                <= desired.iter().filter(|it| is_own(it, own)).count()
        }
        (Value::Array(desired), Value::Array(observed)) => {
            desired.len() == observed.len()
                && desired.iter().zip(observed).all(|(d, o)| is_same(d, o, own))
        }
        // A view shows an absent field as an empty list or struct.
        (Value::Null, Value::Array(list)) => {
            are_conditions(&[], list) && !list.iter().any(|it| is_own(it, own))
        }
        (Value::Null, Value::Object(map)) => map.values().all(|v| is_same(&Value::Null, v, own)),
        (desired, observed) => is_equal(desired, observed),
    }
}

/// Returns `observed` without the conditions of other controllers. It does not depend on the next status, whose
/// conditions can have other types.
fn own(observed: &Value, own: &[&str]) -> Value {
    let mut status = observed.clone();
    for (_, list) in status.as_object_mut().into_iter().flatten() {
        if let Some(list) = list.as_array_mut().filter(|list| are_conditions(&[], list)) {
            list.retain(|it| is_own(it, own));
        }
    }
    status
}

/// Returns whether an entry is a condition of one of these types.
fn is_own(entry: &Value, own: &[&str]) -> bool {
    entry["type"].as_str().is_some_and(|kind| own.contains(&kind))
}

/// Returns whether all entries are conditions (metav1.Condition, or an older form). Other controllers can add to these.
/// The entries of another list can have the same two fields, and several can have one type.
fn are_conditions(desired: &[Value], observed: &[Value]) -> bool {
    let is_condition = |entry: &Value| {
        let status = entry["status"].as_str();
        entry["type"].is_string() && status.is_some_and(|it| STATUSES.contains(&it))
    };
    desired.iter().chain(observed).all(is_condition)
}

/// The values of a condition's status.
const STATUSES: [&str; 3] = ["True", "False", "Unknown"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_status_is_compared_except_other_controllers_conditions() {
        let ready = json!({"type": "Ready", "status": "True"});
        let desired = json!({"url": "x", "conditions": [ready]});
        let also = json!({"type": "Audited", "status": "True"});
        assert!(is_same(&desired, &json!({"url": "x", "conditions": [also, ready]}), &[]));
        assert!(is_same(&desired, &json!({"url": "x", "old": null, "conditions": [ready]}), &[]));
        for other in [
            json!({"url": "x", "conditions": [also]}),
            json!({"url": "x", "old": 1, "conditions": [ready]}),
            json!({"conditions": [ready]}),
            json!({"url": "x", "conditions": [{"type": "Ready", "status": "False"}]}),
        ] {
            assert!(!is_same(&desired, &other, &[]), "{other}");
        }
    }

    #[test]
    fn a_patch_removes_unset_fields_and_keeps_other_controllers_conditions() {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
        let desired =
            json!({"pods": 1, "conditions": [condition("Ready", "True")], "at": {"a": 1}});
        let theirs = condition("Audited", "True");
        let observed = json!({"old": 1, "at": {"b": 2}, "conditions":
            [condition("Ready", "False"), theirs]});
        let expected = json!({"pods": 1, "old": null, "at": {"a": 1, "b": null},
            "conditions": [theirs, condition("Ready", "True")]});
        assert_eq!(patch(&desired, &observed, &[]), expected);
    }

    #[test]
    fn a_status_without_conditions_keeps_those_of_others() {
        let condition = |kind: &str| json!({"type": kind, "status": "True"});
        let (desired, own) = (json!({"pods": 1}), ["Stalled"]);
        let theirs = json!({"pods": 1, "conditions": [condition("Audited")]});
        assert!(is_same(&desired, &theirs, &own));
        let both = json!({"pods": 1, "conditions": [condition("Stalled"), condition("Audited")]});
        assert!(!is_same(&desired, &both, &own));
        assert_eq!(patch(&desired, &both, &own), theirs);
        let ours = json!({"pods": 1, "conditions": [condition("Stalled")]});
        assert_eq!(patch(&desired, &ours, &own), json!({"pods": 1, "conditions": null}));
        let list = json!({"pods": 1, "conditions": ["a"]});
        assert!(!is_same(&desired, &list, &own));
    }

    #[test]
    fn typed_entries_other_than_conditions_are_compared_completely() {
        let address = |kind: &str| json!({"type": kind, "address": "1.2.3.4"});
        let desired = json!({"addresses": [address("InternalIP")]});
        let observed = json!({"addresses": [address("InternalIP"), address("ExternalIP")]});
        assert!(!is_same(&desired, &observed, &[]));
        assert_eq!(patch(&desired, &observed, &[]), desired);
    }

    #[test]
    fn a_list_with_type_and_status_is_not_always_one_of_conditions() {
        let part = |name: &str, status: &str| json!({"type": "Deployment", "name": name, "status": status});
        let desired = json!({"components": [part("web", "Ready")]});
        let observed = json!({"components": [part("web", "Ready"), part("db", "Ready")]});
        assert!(!is_same(&desired, &observed, &[]));
        assert_eq!(patch(&desired, &observed, &[]), desired, "the other entry goes");
    }

    #[test]
    fn a_complete_object_is_no_status() {
        let whole = json!({"kind": "Site", "status": {"pods": 1}});
        assert!(contains_status(&whole, &json!({"pods": 0})));
        assert!(!contains_status(&whole["status"], &Value::Null));
        assert!(
            !contains_status(&whole, &json!({"status": {"pods": 0}})),
            "the view has such a field"
        );
        assert!(!contains_status(&json!({"status": "up", "pods": 1}), &Value::Null));
    }

    #[test]
    fn a_condition_of_another_controller_undoes_nothing() {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
        let with = |ready: &str, theirs: &str| json!({"conditions": [condition("Ready", ready), condition("Audited", theirs)]});
        let digest = |observed: &Value| own(observed, &["Ready", "Stalled"]);
        assert_eq!(digest(&with("True", "True")), digest(&with("True", "False")));
        assert_ne!(digest(&with("True", "True")), digest(&with("False", "True")));
    }

    #[test]
    fn an_own_condition_is_removed_if_the_status_omits_it() {
        let condition = |kind: &str| json!({"type": kind, "status": "True"});
        let desired = json!({"conditions": [condition("Ready")]});
        let observed =
            json!({"conditions": [condition("Stalled"), condition("Ready"), condition("Audited")]});
        let own = ["Ready", "Stalled"];
        assert!(is_same(&desired, &observed, &[]) && !is_same(&desired, &observed, &own));
        let expected = json!({"conditions": [condition("Audited"), condition("Ready")]});
        assert_eq!(patch(&desired, &observed, &own), expected);
        assert!(is_same(&desired, &expected, &own));
    }
}
