//! Changes by users.

use std::sync::Arc;

use serde_json::Value;

use super::deletion;
use super::history::Id;
use super::managers::Writer;
use super::object::{self, Content, Outcome};
use super::request::{body, not_found};
use super::server::{Server, State};
use crate::client::PropagationPolicy;

impl Server {
    /// Creates or replaces an object, including its status, and returns its new version. The field manager `somebody`
    /// owns the changed fields.
    pub fn put(&self, id: &Id, object: Value) -> u64 {
        self.change(|state| state.store(id, object, Writer::somebody()))
    }

    /// Creates an object, as `kubectl create` does. A custom resource of [`Server::crd`] gets defaults and is
    /// validated.
    ///
    /// # Errors
    ///
    /// The metav1.Status of the refusal.
    pub fn create(&self, id: &Id, object: Value) -> Result<Arc<Value>, Value> {
        self.outcome(|state| {
            let old = state.history.now(id);
            object::create(state, id, old.as_deref(), object, Writer::somebody())
        })
    }

    /// Changes an object by a JSON merge patch, as `kubectl patch --type=merge` does.
    ///
    /// # Errors
    ///
    /// The metav1.Status of the refusal.
    pub fn patch(&self, id: &Id, patch: &Value) -> Result<Arc<Value>, Value> {
        self.write_by(id, patch, Content::MergePatch, Writer::somebody())
    }

    /// Applies fields of an object as this field manager, as `kubectl apply --server-side --force-conflicts` does.
    ///
    /// # Errors
    ///
    /// The metav1.Status of the refusal, also if the object does not exist.
    pub fn apply(&self, id: &Id, manager: &str, fields: &Value) -> Result<Arc<Value>, Value> {
        let (name, subresource) = (manager.to_owned(), String::new());
        let by = Writer { operation: "Apply", name, subresource };
        self.write_by(id, fields, Content::Apply { force: true }, by)
    }

    /// Changes the status of an object by a JSON merge patch, such as `{"status": {"phase": "Done"}}`, as
    /// `kubectl patch --subresource=status` does. Use it to act as another controller.
    ///
    /// # Errors
    ///
    /// The metav1.Status of the refusal.
    pub fn patch_status(&self, id: &Id, patch: &Value) -> Result<Arc<Value>, Value> {
        let by = Writer { subresource: "status".to_owned(), ..Writer::somebody() };
        self.write_by(id, patch, Content::MergePatch, by)
    }

    fn write_by(
        &self,
        id: &Id,
        body: &Value,
        content: Content,
        by: Writer,
    ) -> Result<Arc<Value>, Value> {
        self.outcome(|state| match state.history.now(id) {
            _ if !by.subresource.is_empty() && !state.has_status(id) => Err(not_found(id).into()),
            Some(old) => object::patch(state, id, &old, body, content, by),
            None => Err(not_found(id).into()),
        })
    }

    /// Deletes an object, as `kubectl delete --wait=false` does. Finalizers and the grace period of a pod delay the
    /// deletion.
    pub fn delete(&self, id: &Id) {
        self.delete_as(id, None);
    }

    /// Deletes an object and leaves the objects that it owns, as `kubectl delete --cascade=orphan` does.
    pub fn delete_orphaning(&self, id: &Id) {
        self.delete_as(id, Some(PropagationPolicy::Orphan));
    }

    /// Deletes an object after the objects that it owns, as `kubectl delete --cascade=foreground` does.
    pub fn delete_foreground(&self, id: &Id) {
        self.delete_as(id, Some(PropagationPolicy::Foreground));
    }

    fn delete_as(&self, id: &Id, propagation: Option<PropagationPolicy>) {
        self.change(|state| {
            if let Some(old) = state.history.now(id) {
                let propagation = propagation.unwrap_or_else(|| deletion::propagation_of(&old));
                deletion::delete(state, id, &old, &propagation, None);
            }
        });
    }

    fn outcome(&self, write: impl FnOnce(&mut State) -> Outcome) -> Result<Arc<Value>, Value> {
        let mut outcome = None;
        self.change(|state| outcome = Some(write(state)));
        match outcome {
            Some(Ok((_, object))) => Ok(object),
            Some(Err(refusal)) => Err(body(*refusal)),
            None => Err(Value::Null),
        }
    }

    /// Removes an object at once, even with finalizers, and returns the version of the deletion. To act as a user, call
    /// [`Server::delete`].
    pub fn remove(&self, id: &Id) -> u64 {
        self.change(|state| drop(state.history.remove(id)))
    }
}
