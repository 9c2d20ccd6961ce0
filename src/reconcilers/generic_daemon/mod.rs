//! GenericDaemon: a DaemonSet with its name.
//!
//! Has to be wired to
//! - informer of [`GenericDaemon`]: enqueue the object itself;
//! - informer of `DaemonSet`, of all of them (a foreign one may have the name): enqueue the
//!   controlling GenericDaemon (`enqueue::for_owner`), and the one that waits for its name
//!   (`enqueue::for_freed_name`).
//!
//! Nodes are not watched: the DaemonSet controller follows their labels, and its status shows the
//! result.

mod view;
mod desired;
mod status;

pub use desired::desired;
pub use status::{of_daemon_set, status};
pub use view::{GenericDaemon, Spec, Status};

use super::condition::Time;
use super::custom::{Custom, is_paused, is_told};
use super::error::{Diagnosis, Error, diagnose};
use super::hands::{Hands, Parent, sooner};
use super::situation::Situation;
use super::workload::DaemonSet;
use crate::controller::{Action, Reconciler};
use crate::object::ObjectKey;
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
            if is_told(&*daemon) {
                return Ok(Action::Done);
            }
            let parent = Parent::new(&*daemon);
            let daemon_set = parent.own(&self.stores.daemon_sets);
            self.report_status(&daemon, &parent, daemon_set.as_deref(), Situation::Paused).await
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
        let situation = outcome.situation(&parent, |child| of_daemon_set(daemon, child));
        let child = outcome.child(&parent, &self.stores.daemon_sets);
        let reported = self.report_status(daemon, &parent, child.as_deref(), situation).await?;
        Ok(sooner(reported, outcome.into_result()?))
    }

    /// Writes the status if it has changed, and publishes trouble that has begun.
    async fn report_status(
        &self,
        daemon: &GenericDaemon,
        parent: &Parent,
        daemon_set: Option<&DaemonSet>,
        situation: Situation,
    ) -> Result<Action, Error> {
        let now = status(daemon, daemon_set, &situation, Time::now());
        self.hands.report(parent, &self.stores.daemons, daemon, &now, &situation).await
    }
}

#[cfg(test)]
mod tests;
