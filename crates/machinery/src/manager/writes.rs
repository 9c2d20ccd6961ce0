//! Writes of a reconcile other than [`Context::ensure`] and [`Context::patch_status`].
//!
//! Guarantees
//! - A written object is in the store before the call returns, if the controller declares the view and its informer
//!   selects the object. The same is true for a deletion that completes at once. The watch reports all other changes:
//!   [`Context::scale`], [`Context::delete_all`], and the start of a deletion.
//! - An error names the verb, the kind and the object.
//! - If all reconciles of an object write, it is reconciled at most once a second, and an Event reports this.

use std::any::Any;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::Context;
use super::children::{failed, json_of};
use crate::client::{Deletion, Error, Patch, Preconditions, PropagationPolicy, Scope};
use crate::controller::ReconcileError;
use crate::object::{Kind, ObjectKey, Resource, ResourceVersion, Uid};
use crate::store::Store;

// === impl Context ===

impl<V: Resource> Context<V> {
    /// Creates an object (POST) and returns it as stored. `object` contains `metadata.name` or `generateName`, and a
    /// namespace if its kind is namespaced. The kind is filled in. Check the store before, because the next reconcile
    /// calls this again.
    ///
    /// # Errors
    /// A conflict if the name is taken; all errors of a write.
    pub async fn create<C: Resource>(
        &self,
        object: impl Serialize,
    ) -> Result<Arc<C>, ReconcileError> {
        let (key, body) = self.body::<C>(&object)?;
        self.write("create", &key, self.client().create::<C>(&key, &body)).await
    }

    /// Applies an object (server-side apply, forced), and creates it if it does not exist. Takes over fields of other
    /// managers, and removes fields that this program applied before and `object` lacks. Therefore, do not use it for
    /// objects of [`Context::ensure`]; patch these instead. The kind is filled in.
    ///
    /// # Errors
    /// All errors of a write.
    pub async fn apply<C: Resource>(
        &self,
        object: impl Serialize,
    ) -> Result<Arc<C>, ReconcileError> {
        let (key, body) = self.body::<C>(&object)?;
        self.write("apply", &key, self.client().patch::<C>(&key, &Patch::Apply(&body))).await
    }

    /// Like [`Context::apply`], but without force.
    ///
    /// # Errors
    /// A refusal if another manager owns one of the fields with another value
    /// ([`Error::conflicting_fields`](crate::client::Error::conflicting_fields) of [`ReconcileError::api_error`]); all errors
    /// of a write.
    pub async fn apply_unforced<C: Resource>(
        &self,
        object: impl Serialize,
    ) -> Result<Arc<C>, ReconcileError> {
        let (key, body) = self.body::<C>(&object)?;
        self.write("apply", &key, self.client().apply_unforced::<C>(&key, &body)).await
    }

    /// Replaces an object (PUT): fields that `object` lacks are removed. A `metadata.resourceVersion` is a
    /// precondition; custom resources require it. The kind is filled in.
    ///
    /// # Errors
    /// A conflict if the object does not exist or has changed; all errors of a write.
    pub async fn update<C: Resource>(
        &self,
        object: impl Serialize,
    ) -> Result<Arc<C>, ReconcileError> {
        let (key, body) = self.body::<C>(&object)?;
        self.write("update", &key, self.client().update::<C>(&key, &body)).await
    }

    /// Changes an object by a JSON merge patch. A `metadata.uid` or `metadata.resourceVersion` in it is a precondition.
    ///
    /// # Errors
    /// A conflict if a precondition fails; all errors of a write.
    pub async fn merge_patch<C: Resource>(
        &self,
        key: &ObjectKey,
        patch: impl Serialize,
    ) -> Result<Arc<C>, ReconcileError> {
        let patch = json_of(&patch)?;
        self.write("patch", key, self.client().patch::<C>(key, &Patch::Merge(&patch))).await
    }

    /// Sets the number of replicas of an object through its scale subresource. The watch reports the change.
    ///
    /// # Errors
    /// All errors of a write.
    pub async fn scale<C: Resource>(
        &self,
        key: &ObjectKey,
        replicas: u32,
    ) -> Result<(), ReconcileError> {
        let scaled = self.client().scale::<C>(key, replicas).await;
        scaled.map_err(|error| failed::<C>("scale", key, error))
    }

    /// Deletes this object, but no later one with the same name. Does nothing if it was already deleted.
    ///
    /// # Errors
    /// All errors of a write.
    pub async fn delete<C: Resource>(
        &self,
        object: &C,
        propagation: PropagationPolicy,
    ) -> Result<(), ReconcileError> {
        let (key, uid) = (object.key(), object.uid());
        let only = Preconditions { uid, version: ResourceVersion::UNKNOWN };
        match self.client().delete::<C>(key, only, propagation).await {
            Ok(Deletion::Terminating) => return Ok(()),
            Ok(Deletion::Deleted) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                // A conflict can mean that another object now has the name.
                let there = match error.is_conflict() {
                    true => self.client().find::<C>(key).await.ok(),
                    false => None,
                };
                if there.is_none_or(|there| there.is_some_and(|there| there.uid() == uid)) {
                    return Err(failed::<C>("delete", key, error));
                }
            }
        }
        if let Ok(store) = self.store::<C>()
            && !self.client().is_dry_run()
        {
            self.deleted(&store, key, uid);
        }
        Ok(())
    }

    /// Removes an object that this reconcile has deleted from the store. The owner has not lost it to the garbage
    /// collector, so the next create needs no request that confirms the owner.
    pub(super) fn deleted<C: Resource>(&self, store: &Store<C>, key: &ObjectKey, uid: Uid) {
        let had_lost_children = self.lost_children();
        store.apply_delete(key, uid);
        if !had_lost_children {
            self.controller.parts.lost_children.lock().remove(self.key());
        }
    }

    /// Deletes all objects of a kind that `scope` selects in its namespace. The watch reports the deletions.
    ///
    /// # Errors
    /// `ErrUnnamed` if the kind is namespaced and `scope` names no namespace; all errors of a write.
    pub async fn delete_all<C: Resource>(&self, scope: &Scope) -> Result<(), ReconcileError> {
        let key = ObjectKey::new(scope.namespace.clone().unwrap_or_default(), "");
        namespaced(&C::kind(), &key)?;
        let deleted = self.client().delete_collection::<C>(scope).await;
        deleted.map_err(|error| failed::<C>("delete all", &key, error))
    }

    /// Returns the key and the body of an object of kind `C`.
    fn body<C: Resource>(
        &self,
        object: &impl Serialize,
    ) -> Result<(ObjectKey, Value), ReconcileError> {
        let (mut body, kind) = (json_of(object)?, C::kind());
        if !body["metadata"].is_object() {
            let what = format!("a {} to be written has no metadata", kind.kind);
            return Err(ReconcileError::terminal("ErrUnnamed", what));
        }
        body["apiVersion"] = kind.api_version().into();
        body["kind"] = kind.kind.into();
        let text = |name: &str| body["metadata"][name].as_str().unwrap_or_default();
        let key = ObjectKey::new(text("namespace"), text("name"));
        namespaced(&kind, &key)?;
        Ok((key, body))
    }

    /// Sends a write, stores the response, and returns the object as stored. If the store lacks an object that is not
    /// new, its informer may not select it. Stored as a write, such an object would be removed again, and enqueue a
    /// reconcile each time.
    async fn write<C: Resource>(
        &self,
        verb: &'static str,
        key: &ObjectKey,
        call: impl Future<Output = Result<C, Error>>,
    ) -> Result<Arc<C>, ReconcileError> {
        let store = self.store::<C>().ok();
        let is_known = store.as_ref().is_some_and(|store| store.get(key).is_some());
        let response = call.await.map_err(|error| failed::<C>(verb, key, error))?;
        let Some(store) = store.filter(|_| !self.client().is_dry_run()) else {
            return Ok(Arc::new(response));
        };
        let version = response.meta().version;
        let stored = match is_known || verb == "create" {
            true => store.apply_response(response),
            false => store.apply_read(response),
        };
        // If the store has a newer state, this reconcile has not seen it, and its next write conflicts.
        let own = (stored.clone() as Arc<dyn Any + Send + Sync>).downcast::<V>();
        if let Ok(own) = own
            && own.uid() == self.object.uid()
            && own.meta().version.is_same_as(version)
        {
            self.build_on(own);
        }
        Ok(stored)
    }
}

/// Fails if an object of a namespaced kind has no namespace.
fn namespaced(kind: &Kind, key: &ObjectKey) -> Result<(), ReconcileError> {
    if kind.namespaced && key.namespace().is_empty() {
        let what = format!("a {} is in a namespace: name it", kind.kind);
        return Err(ReconcileError::terminal("ErrUnnamed", what));
    }
    Ok(())
}
