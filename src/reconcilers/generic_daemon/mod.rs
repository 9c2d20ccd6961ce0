//! GenericDaemon: a DaemonSet with its name.
//!
//! Has to be wired to
//! - informer of [`GenericDaemon`]: enqueue the object itself;
//! - informer of `DaemonSet`, of all of them (a foreign one may have the name): enqueue the
//!   controlling GenericDaemon (`enqueue::for_owner`), and the one that waits for its name
//!   (`enqueue::for_freed_name`).
//!
//! Nodes are not watched: the DaemonSet controller follows their labels, and its status shows the
//! result. While it shows none, nodes are listed once a minute, to tell a missing label from a taint.

mod view;
mod desired;
mod status;

pub use desired::desired;
pub use status::{Found, status};
pub use view::{GenericDaemon, Spec, Status};

use super::child::{Decision, decide};
use super::condition::Time;
use super::custom::{Custom, is_paused};
use super::error::{Diagnosis, Error, diagnose};
use super::hands::{Hands, Looking, Outcome, Parent, sooner};
use super::health::{Health, completed};
use super::workload::DaemonSet;
use crate::controller::{Action, Reconciler};
use crate::object::{ObjectKey, Resource};
use crate::store::Store;

/// The stores that the reconciler reads.
#[derive(Clone)]
pub struct Stores {
    /// GenericDaemons.
    pub daemons: Store<GenericDaemon>,
    /// DaemonSets.
    pub daemon_sets: Store<DaemonSet>,
}

/// Reconciles GenericDaemons.
#[derive(Clone)]
pub struct GenericDaemonReconciler {
    stores: Stores,
    hands: Hands,
}

impl Reconciler for GenericDaemonReconciler {
    type Error = Error;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(daemon) = self.stores.daemons.get(key) else { return Ok(Action::Done) };
        let pass = if daemon.meta.deleting {
            // The garbage collector does the rest.
            Ok(Action::Done)
        } else if is_paused(&daemon.meta) {
            let parent = Parent::new(&*daemon);
            let daemon_set = parent.own(&self.stores.daemon_sets);
            let owner = daemon.as_owner();
            let as_desired = daemon_set.as_deref().is_some_and(|child| {
                decide(&owner, &desired(&daemon), Some(child)) == Decision::Nothing
            });
            let health = Health::paused(completed(&*daemon));
            let found = Found { daemon_set: daemon_set.as_deref(), as_desired, health };
            self.report_status(&daemon, &parent, found).await
        } else {
            self.bring_about(&daemon).await
        };
        match pass {
            Err(error) if diagnose(&error.source) == Diagnosis::NamespaceGoing => Ok(Action::Done),
            Err(error) => Err(error),
            Ok(action) => Ok(action),
        }
    }
}

impl GenericDaemonReconciler {
    /// A reconciler over these stores.
    pub fn new(stores: Stores, hands: Hands) -> GenericDaemonReconciler {
        GenericDaemonReconciler { stores, hands }
    }

    async fn bring_about(&self, daemon: &GenericDaemon) -> Result<Action, Error> {
        let carried_out = daemon.is_observed();
        let parent = Parent::new(daemon).carried_out(carried_out);
        let child_missing = self.stores.daemon_sets.get(&parent.key).is_none();
        if carried_out
            && child_missing
            && !self.hands.is_still(&self.stores.daemons, daemon).await?
        {
            return Ok(Action::Done);
        }
        let outcome =
            self.hands.settle(&parent, &self.stores.daemon_sets, &desired(daemon)).await?;
        let (settled, again) = match &outcome {
            Outcome::Settled(child) => {
                self.hands.observe(daemon, child, looking(daemon, child)).await
            }
            _ => (Health::paused(false), Action::Done),
        };
        let health = outcome.health(&parent, settled);
        let child = outcome.child(&parent, &self.stores.daemon_sets);
        let as_desired = matches!(outcome, Outcome::Settled(_));
        let found = Found { daemon_set: child.as_deref(), as_desired, health };
        let reported = self.report_status(daemon, &parent, found).await?;
        Ok(sooner(sooner(reported, again), outcome.into_result()?))
    }

    /// Writes the status if it has changed, and publishes trouble that has begun.
    async fn report_status(
        &self,
        daemon: &GenericDaemon,
        parent: &Parent,
        found: Found<'_>,
    ) -> Result<Action, Error> {
        let now = status(daemon, &found, Time::now());
        self.hands.report(parent, &self.stores.daemons, daemon, &now, &found.health).await
    }
}

/// What its status and spec say about its DaemonSet.
fn looking<'a>(daemon: &'a GenericDaemon, daemon_set: &DaemonSet) -> Looking<'a> {
    let desired = daemon_set.status.desired_number_scheduled;
    Looking {
        label: daemon.spec.label.as_deref(),
        desired_before: daemon.status.desired,
        grown: desired.is_some_and(|desired| desired > daemon.status.desired),
        ..Looking::default()
    }
}

#[cfg(test)]
mod tests;
