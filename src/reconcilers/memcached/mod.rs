//! Memcached: a Deployment and a headless Service, both with its name.
//!
//! Has to be wired to
//! - informer of [`Memcached`]: enqueue the object itself;
//! - informer of `Deployment`, of all of them (a foreign one may have the name): enqueue the
//!   controlling Memcached (`enqueue::for_owner`), and the one that waits for its name
//!   (`enqueue::for_freed_name`);
//! - informer of `Service`: the same;
//! - informer of [`Pod`], metadata only, with [`Pod::scope`] and [`Pod::index`]: enqueue
//!   [`Pod::memcached`] (`enqueue::for_mapped`).

mod view;
mod desired;
mod status;

pub use desired::{Children, desired};
pub use status::{Found, finalizing, status};
pub use view::{Memcached, Spec, Status};

use std::sync::Arc;

use futures::StreamExt;
use serde_json::{Value, json};

use super::Settings;
use super::condition::Time;
use super::custom::{Custom, is_paused};
use super::error::{Diagnosis, Error, diagnose, is_to_be_told};
use super::hands::{Hands, Looking, Outcome, Parent, sooner};
use super::health::{Health, Level, completed};
use super::pod::{BY_MEMCACHED, Pod};
use super::reason::{Action as Act, Reason};
use super::service::Service;
use super::workload::Deployment;
use crate::controller::{Action, Reconciler};
use crate::events;
use crate::object::{Object, ObjectKey, Text};
use crate::store::Store;

/// The operator removes it once it has reported that a Memcached is being deleted.
pub const FINALIZER: &str = "cache.example.com/finalizer";

/// The message if `MEMCACHED_IMAGE` is not set or empty.
const NO_IMAGE: &str = "Unable to find MEMCACHED_IMAGE environment variable with the image";

/// How many finalizers are removed at once when the operator ends.
const RELEASED_AT_ONCE: usize = 16;

/// The stores that the reconciler reads.
#[derive(Clone)]
pub struct Stores {
    /// Memcacheds.
    pub memcacheds: Store<Memcached>,
    /// Deployments.
    pub deployments: Store<Deployment>,
    /// Services.
    pub services: Store<Service>,
    /// Pods of Memcacheds, with the index [`BY_MEMCACHED`].
    pub pods: Store<Pod>,
}

/// Reconciles Memcacheds.
#[derive(Clone)]
pub struct MemcachedReconciler {
    stores: Stores,
    hands: Hands,
    settings: Settings,
}

/// The operations that remove the finalizer at this position, if it is there.
fn removal(at: usize) -> Vec<Value> {
    let path = format!("/metadata/finalizers/{at}");
    vec![
        json!({ "op": "test", "path": path, "value": FINALIZER }),
        json!({ "op": "remove", "path": path }),
    ]
}

// === impl MemcachedReconciler ===

impl Reconciler for MemcachedReconciler {
    type Error = Error;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(memcached) = self.stores.memcacheds.get(key) else { return Ok(Action::Done) };
        let pass = if memcached.meta.deleting {
            self.finalize(&memcached).await.map(|()| Action::Done)
        } else if is_paused(&memcached.meta) {
            self.report_only(&memcached, Health::paused(completed(&*memcached)), None).await
        } else {
            self.bring_about(&memcached).await
        };
        match pass {
            Err(error) if diagnose(&error.source) == Diagnosis::NamespaceGoing => Ok(Action::Done),
            Err(error) => Err(error),
            Ok(action) => Ok(action),
        }
    }
}

impl MemcachedReconciler {
    /// A reconciler over these stores.
    pub fn new(stores: Stores, hands: Hands, settings: Settings) -> MemcachedReconciler {
        MemcachedReconciler { stores, hands, settings }
    }

    async fn bring_about(&self, memcached: &Memcached) -> Result<Action, Error> {
        let image = self.settings.memcached_image.as_ref().filter(|image| !image.is_empty());
        let Some(image) = image else {
            let health = Health::new(Level::Stalled, Reason::ImageMissing, NO_IMAGE);
            return self.report_only(memcached, health, Some(NO_IMAGE.to_owned())).await;
        };
        let with_finalizer;
        let memcached = if memcached.meta.finalizers.iter().any(|name| name == FINALIZER) {
            memcached
        } else {
            with_finalizer = match self.add_finalizer(memcached).await {
                Ok(memcached) => memcached,
                Err(error) => return Err(self.report_no_finalizer(memcached, error).await?),
            };
            &*with_finalizer
        };
        let carried_out = memcached.is_observed();
        let parent = Parent::new(memcached).carried_out(carried_out);
        let children = desired(memcached, image);
        let (hands, stores) = (&self.hands, &self.stores);
        let child_missing = stores.deployments.get(&parent.key).is_none()
            || stores.services.get(&parent.key).is_none();
        if carried_out && child_missing && !hands.is_still(&stores.memcacheds, memcached).await? {
            return Ok(Action::Done);
        }
        let deployment = hands.settle(&parent, &stores.deployments, &children.deployment).await?;
        let service = hands.settle(&parent, &stores.services, &children.service).await?;
        let nodes = self.nodes(memcached);
        let (settled, again) = match &deployment {
            Outcome::Settled(child) => {
                let looking = Looking { listed: Some(nodes.len()), ..Looking::default() };
                hands.observe(memcached, child, looking).await
            }
            _ => (Health::paused(false), Action::Done),
        };
        let health = deployment
            .health(&parent, settled)
            .and(service.health(&parent, Health::ready(Reason::AsExpected, "")));
        let failure = deployment.failure(&parent);
        let child = deployment.child(&parent, &stores.deployments);
        let found = Found { deployment: child.as_deref(), nodes, health, failure };
        let reported = sooner(self.report_status(memcached, &parent, found).await?, again);
        Ok(sooner(reported, sooner(deployment.into_result()?, service.into_result()?)))
    }

    /// Reports that the Memcached is being deleted, then lets it go. Its children are left to the
    /// garbage collector. This happens even if it is paused: a deletion is never held up.
    async fn finalize(&self, memcached: &Memcached) -> Result<(), Error> {
        let Some(at) = memcached.meta.finalizers.iter().position(|name| name == FINALIZER) else {
            return Ok(());
        };
        let store = &self.stores.memcacheds;
        let mut told = None;
        if finalizing(memcached, true, Time::now()) != memcached.status {
            let begun = finalizing(memcached, false, Time::now());
            let Some(begun) = self.hands.write_status(store, memcached, &begun).await? else {
                return Ok(());
            };
            let key = memcached.key();
            let note = format!(
                "Custom Resource {} is being deleted from the namespace {}",
                key.name(),
                key.namespace()
            );
            let (parent, warning) = (Parent::new(memcached), events::Type::Warning);
            self.hands.publish_event(&parent, warning, Reason::Deleting, Act::Finalize, &note);
            let accomplished = finalizing(&begun, true, Time::now());
            told = self.hands.write_status(store, &*begun, &accomplished).await?;
            if told.is_none() {
                return Ok(());
            }
        }
        let memcached = told.as_deref().unwrap_or(memcached);
        match self.hands.patch_exactly(memcached, removal(at)).await {
            Ok(left) if left.meta.finalizers.is_empty() => {
                store.removed(left.key(), left.uid());
                Ok(())
            }
            Ok(left) => {
                store.wrote(left);
                Ok(())
            }
            Err(error) if diagnose(&error.source) == Diagnosis::Gone => Ok(()),
            Err(error) => {
                // The status says that all is done but this.
                if is_to_be_told(&error.source) {
                    let health = Health::of_failure(&error);
                    self.hands.publish_trouble(&Parent::new(memcached), memcached, &health);
                }
                Err(error)
            }
        }
    }

    /// Removes the finalizers of all Memcacheds in `namespace` if it is being deleted. Called when
    /// the operator that runs in it ends: nobody would remove them afterwards, and all that they
    /// stand for is a report.
    pub async fn release(&self, namespace: &str) {
        let finalized = |memcached: &Arc<Memcached>| {
            let at = memcached.meta.finalizers.iter().position(|name| name == FINALIZER)?;
            (memcached.key().namespace() == namespace).then(|| (memcached.clone(), at))
        };
        let all: Vec<_> = self.stores.memcacheds.list().iter().filter_map(finalized).collect();
        if all.is_empty() || !self.hands.is_terminating(namespace).await {
            return;
        }
        tracing::info!(
            namespace,
            memcacheds = all.len(),
            "Removing finalizers: it is being deleted"
        );
        let remove = |(memcached, at): (Arc<Memcached>, usize)| async move {
            if let Err(error) = self.hands.patch(&*memcached, removal(at)).await {
                tracing::warn!(object = %memcached.key(), %error, "The finalizer stays");
            }
        };
        futures::stream::iter(all).for_each_concurrent(RELEASED_AT_ONCE, remove).await;
    }

    async fn add_finalizer(&self, memcached: &Memcached) -> Result<Arc<Memcached>, Error> {
        let operation = if memcached.meta.finalizers.is_empty() {
            json!({ "op": "add", "path": "/metadata/finalizers", "value": [FINALIZER] })
        } else {
            json!({ "op": "add", "path": "/metadata/finalizers/-", "value": FINALIZER })
        };
        let answer = self.hands.patch_exactly(memcached, vec![operation]).await?;
        Ok(self.stores.memcacheds.wrote(answer))
    }

    /// Reports that the finalizer could not be added, without which nothing is created for a
    /// Memcached. Returns the error.
    async fn report_no_finalizer(
        &self,
        memcached: &Memcached,
        error: Error,
    ) -> Result<Error, Error> {
        if is_to_be_told(&error.source) {
            let deployment = Parent::new(memcached).own(&self.stores.deployments);
            let failure = deployment.is_none().then(|| error.to_string());
            self.report_only(memcached, Health::of_failure(&error), failure).await?;
        }
        Ok(error)
    }

    /// Writes the status if it has changed, and publishes trouble that has begun.
    async fn report_status(
        &self,
        memcached: &Memcached,
        parent: &Parent,
        found: Found<'_>,
    ) -> Result<Action, Error> {
        let health = found.health.clone();
        let now = status(memcached, found, Time::now());
        self.hands.report(parent, &self.stores.memcacheds, memcached, &now, &health).await
    }

    /// Reports the health of a Memcached for which nothing else is written.
    async fn report_only(
        &self,
        memcached: &Memcached,
        health: Health,
        failure: Option<String>,
    ) -> Result<Action, Error> {
        let parent = Parent::new(memcached);
        let deployment = parent.own(&self.stores.deployments);
        let nodes = self.nodes(memcached);
        let found = Found { deployment: deployment.as_deref(), nodes, health, failure };
        self.report_status(memcached, &parent, found).await
    }

    fn nodes(&self, memcached: &Memcached) -> Vec<Text> {
        let key = memcached.key();
        let pods = self.stores.pods.by_index(BY_MEMCACHED, &key.to_string());
        let pods = pods.expect("the store of pods is made with Pod::index");
        let serving = pods.iter().filter(|pod| pod.serves(key.name()));
        serving.map(|pod| pod.key().name().clone()).collect()
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod passes;
