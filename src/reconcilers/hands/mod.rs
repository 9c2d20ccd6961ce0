//! Carries out decisions: the only writer of children and status.
//!
//! Guarantees
//! - A create never overwrites an existing object: a name that is taken is a conflict, and then the
//!   API server itself is asked who owns it.
//! - A change, a delete or a status applies only to the object it was decided for; another object
//!   of the same name is a conflict.
//! - An Event is published once per write, after the write was acknowledged.
//! - If somebody keeps undoing what it does, even a second operator with other settings, the
//!   operator does not race them: it restores a child and the status a few times a minute each, and
//!   reports that.
//! - Trouble is published when it begins, not each time it is seen again.

mod contest;
mod whole;
mod settling;
mod written;
mod report;
mod outcome;
mod observing;

use std::sync::Arc;

use serde_json::json;

use contest::Contests;
pub(super) use observing::Looking;
pub use outcome::Outcome;
pub(super) use outcome::sooner;
use settling::Settling;
use written::Written;

use crate::client::{self, Client, Deletion, Preconditions};
use crate::events::{self, Recorder, Regarding};
use crate::object::{Meta, ObjectKey, Owner, Resource, Uid};
use crate::reconcilers::child::{Child, ChildSpec, Made};
use crate::reconcilers::diagnostics::Diagnostics;
use crate::reconcilers::error::{Diagnosis, Error, diagnose, is_to_be_told};
use crate::reconcilers::health::Progress;
use crate::reconcilers::reason::{Action, Reason};
use crate::reconcilers::service::ServiceSpec;
use crate::store::Store;

/// Writes for one controller. Cheap to clone.
#[derive(Clone)]
pub struct Hands {
    client: Client,
    recorder: Recorder,
    contests: Arc<Contests>,
    written: Arc<Written>,
    progress: Arc<Progress>,
    diagnostics: Diagnostics,
}

/// The custom resource on whose behalf something is written.
#[derive(Debug, Clone)]
pub struct Parent {
    /// Its name, which its children have too.
    pub key: ObjectKey,
    owner: Owner,
    regarding: Regarding,
    carried_out: bool,
}

// === impl Parent ===

impl Parent {
    /// `object` as a parent.
    pub fn new<V: Resource>(object: &V) -> Parent {
        Parent {
            key: object.key().clone(),
            owner: object.as_owner(),
            regarding: Regarding::object(object),
            carried_out: false,
        }
    }

    /// Sets whether its spec was carried out before: if so, a child that differs was changed by
    /// somebody else, perhaps an operator with other settings.
    pub fn carried_out(self, carried_out: bool) -> Parent {
        Parent { carried_out, ..self }
    }

    /// Its UID.
    pub fn uid(&self) -> Uid {
        self.owner.uid
    }

    /// Its child in `store`, if there is one that it controls.
    pub fn own<S: ChildSpec>(&self, store: &Store<Child<S>>) -> Option<Arc<Child<S>>> {
        store.get(&self.key).filter(|child| child.meta.is_controlled_by(self.uid()))
    }
}

// === impl Hands ===

impl Hands {
    /// Writes with `client`, publishes Events with `recorder`, and lists with `diagnostics`.
    pub fn new(client: Client, recorder: Recorder, diagnostics: Diagnostics) -> Hands {
        Hands {
            client,
            diagnostics,
            recorder,
            contests: Arc::default(),
            written: Arc::default(),
            progress: Arc::default(),
        }
    }

    /// Brings the child to `desired`, with only the writes that takes.
    ///
    /// # Errors
    /// When the pass cannot go on: somebody was faster, or the API server does not answer. What the
    /// API server refuses is an [`Outcome`], since a person should see it.
    pub async fn settle<S: ChildSpec>(
        &self,
        parent: &Parent,
        store: &Store<Child<S>>,
        desired: &Made<S>,
    ) -> Result<Outcome<S>, Error> {
        match (Settling { hands: self, parent, store, desired }).settle().await {
            Err(error) if is_to_be_told(&error.source) => Ok(Outcome::Failed(error)),
            outcome => outcome,
        }
    }

    /// Deletes the child if the parent controls it.
    ///
    /// # Errors
    /// As for [`Hands::settle`].
    pub async fn remove<S: ChildSpec>(
        &self,
        parent: &Parent,
        store: &Store<Child<S>>,
        reason: Reason,
    ) -> Result<Outcome<S>, Error> {
        let Some(there) = store.get(&parent.key) else { return Ok(Outcome::Unwanted) };
        if !there.meta.is_controlled_by(parent.uid()) || there.meta.deleting {
            return Ok(Outcome::Unwanted);
        }
        let Meta { uid, version, .. } = there.meta;
        match self.client.delete::<Child<S>>(&parent.key, Preconditions { uid, version }).await {
            Ok(Deletion::Final) => store.removed(&parent.key, uid),
            Ok(Deletion::Started) => {}
            Err(error) if diagnose(&error) == Diagnosis::Gone => {}
            Err(source) => {
                let told = is_to_be_told(&source);
                let error = failed("delete", S::KIND.kind, &parent.key, source);
                return if told { Ok(Outcome::Failed(error)) } else { Err(error) };
            }
        }
        let note = format!("Deleted {} {}", S::KIND.kind, parent.key.name());
        self.publish_event(parent, events::Type::Normal, reason, Action::Delete, &note);
        Ok(Outcome::Unwanted)
    }

    /// Applies an RFC 6902 patch to `object`, if it is unchanged since it was read.
    ///
    /// # Errors
    /// A conflict if it has changed.
    pub async fn patch_exactly<V: Resource>(
        &self,
        object: &V,
        mut operations: Vec<serde_json::Value>,
    ) -> Result<V, Error> {
        let version = object.meta().version;
        if version.is_known() {
            operations.insert(0, test("/metadata/resourceVersion", &json!(version)));
        }
        self.patch(object, operations).await
    }

    /// Applies an RFC 6902 patch to `object`, even if it has changed since it was read.
    pub(super) async fn patch<V: Resource>(
        &self,
        object: &V,
        mut operations: Vec<serde_json::Value>,
    ) -> Result<V, Error> {
        operations.insert(0, test("/metadata/uid", &json!(object.uid())));
        let answer = self.client.json_patch(object.key(), &json!(operations)).await;
        answer.map_err(|error| {
            failed("update", V::KIND.kind, object.key(), conflict_if_test_failed(error))
        })
    }

    /// Returns whether the API server says that the namespace is being deleted. It is asked by a
    /// dry run of a create, which takes no right that the operator does not have.
    pub(super) async fn is_terminating(&self, namespace: &str) -> bool {
        let kind = ServiceSpec::KIND;
        let body = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind,
            "metadata": { "generateName": "workload-operator-" },
            "spec": { "clusterIP": "None", "ports": [{ "port": 80 }] },
        });
        let answer = self.client.try_create(&kind, namespace, &body).await;
        answer.is_err_and(|error| error.is_namespace_terminating())
    }

    /// Publishes an Event on the parent.
    pub fn publish_event(
        &self,
        parent: &Parent,
        kind: events::Type,
        reason: Reason,
        action: Action,
        note: &str,
    ) {
        self.recorder.publish(&parent.regarding, kind, reason.as_str(), action.as_str(), note);
    }
}

/// The JSON patch operation that fails unless `value` is at `path`.
fn test(path: &str, value: &serde_json::Value) -> serde_json::Value {
    json!({ "op": "test", "path": path, "value": value })
}

fn failed(verb: &'static str, kind: &'static str, key: &ObjectKey, source: client::Error) -> Error {
    Error { verb, kind, key: key.clone(), source: Box::new(source) }
}

/// A JSON patch whose `test` fails is answered with 422 (k8s.io/apiserver, endpoints/handlers), and
/// so is one that would make the object invalid. Only the latter names fields.
fn conflict_if_test_failed(error: client::Error) -> client::Error {
    let names_a_field = matches!(&error, client::Error::Api { causes, .. }
        if causes.iter().any(|cause| cause.starts_with("FieldValue")));
    if error.is_invalid() && !names_a_field { as_conflict(error) } else { error }
}

fn as_conflict(error: client::Error) -> client::Error {
    match error {
        client::Error::Api { reason, message, causes, retry_after, .. } => {
            client::Error::Api { code: 409, reason, message, causes, retry_after }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_that_would_be_invalid_is_refused_and_one_that_came_late_a_conflict() {
        let invalid = |causes: &[&str]| client::Error::Api {
            code: 422,
            reason: "Invalid".to_owned(),
            message: String::new(),
            causes: causes.iter().map(|&cause| cause.to_owned()).collect(),
            retry_after: None,
        };
        let late = conflict_if_test_failed(invalid(&[]));
        assert_eq!(diagnose(&late), Diagnosis::Conflict);
        let refused = conflict_if_test_failed(invalid(&["FieldValueRequired"]));
        assert_eq!(diagnose(&refused), Diagnosis::Refused(Reason::Invalid));
    }
}
