//! Tells how a custom resource is: its status, and Events about trouble.

use std::sync::Arc;

use serde_json::json;
use tokio::time::Instant;

use super::written::Words;
use super::{Hands, Parent, failed};
use crate::controller::Action;
use crate::events;
use crate::reconcilers::condition::{Status, Type};
use crate::reconcilers::custom::Custom;
use crate::reconcilers::error::{Diagnosis, Error, diagnose};
use crate::reconcilers::health::Health;
use crate::reconcilers::reason;
use crate::store::Store;

impl Hands {
    /// Writes the status if it has changed, and publishes trouble that has begun. If somebody else,
    /// such as a second operator, keeps writing another status for the same spec, theirs is left
    /// for a while.
    ///
    /// # Errors
    /// When it could not be written.
    pub async fn report<V: Custom>(
        &self,
        parent: &Parent,
        store: &Store<V>,
        object: &V,
        status: &V::Status,
        health: &Health,
    ) -> Result<Action, Error> {
        let (kind, uid, now) = (V::KIND.kind, object.uid(), Instant::now());
        let last = self.written.last(uid, now);
        let trouble = health.trouble().map(|(reason, _)| reason);
        if status != object.status() {
            // As long as the status is of an older spec, nothing that is done for the new one counts
            // as undone, so it is not left like that.
            let undone = object.is_observed() && last.is_some_and(|it| !it.are(object.status()));
            if undone && let Some(wait) = self.contests.wait(kind, uid, now) {
                return Ok(Action::RequeueAfter(wait));
            }
            self.write_status(store, object, status).await?;
            self.written.wrote(uid, Words::of(status, trouble), now);
            if undone {
                self.contests.restored(kind, uid, now);
            }
        }
        // Whoever overwrites the status does not make it new.
        if last.and_then(|last| last.trouble) != trouble {
            self.publish_trouble(parent, object, health);
        }
        Ok(Action::Done)
    }

    /// Publishes what is wrong, but only once: not if the conditions already say so.
    pub fn publish_trouble<V: Custom>(&self, parent: &Parent, object: &V, health: &Health) {
        let Some((reason, message)) = health.trouble() else { return };
        let known = object.conditions().iter().any(|condition| {
            condition.is(Type::Degraded)
                && condition.status == Status::True
                && condition.reason == reason.as_str()
        });
        if !known {
            let action = reason::Action::Reconcile;
            self.publish_event(parent, events::Type::Warning, reason, action, message);
        }
    }

    /// Writes the status. `None` if the object is gone.
    ///
    /// # Errors
    /// When it could not be written.
    pub async fn write_status<V: Custom>(
        &self,
        store: &Store<V>,
        object: &V,
        status: &V::Status,
    ) -> Result<Option<Arc<V>>, Error> {
        // The version keeps the status of a deleted object off a new one of the same name: the API
        // server ignores a UID in a status patch. It also keeps a status decided for an outdated
        // spec from being written for the new one.
        let version = object.meta().version;
        let mut body = json!({ "status": status });
        if version.is_known() {
            body["metadata"] = json!({ "resourceVersion": version });
        }
        match self.client.patch_status::<V>(object.key(), &body).await {
            Ok(object) => Ok(Some(store.wrote(object))),
            Err(error) if diagnose(&error) == Diagnosis::Gone => Ok(None),
            Err(source) => Err(failed("update the status of", V::KIND.kind, object.key(), source)),
        }
    }

    /// Asks the API server whether `object` still exists unchanged, by writing the status it
    /// already has with its resourceVersion as precondition. Called before a missing child is
    /// recreated, because the owner may be gone and its watch behind.
    ///
    /// # Errors
    /// A conflict if it was changed meanwhile, or if its deletion began.
    pub async fn is_still<V: Custom>(&self, store: &Store<V>, object: &V) -> Result<bool, Error> {
        Ok(self.write_status(store, object, object.status()).await?.is_some())
    }
}
