//! 6. Workers: take a key, reconcile it, forget it or retry.
//!
//! Guarantees
//! - A key is reconciled by at most one worker at a time, and every wish to reconcile it is
//!   followed by a pass that began later. The echo of a pass's own write is no wish, be it read
//!   after the answer to the write or before.
//! - A pass that fails, panics or misses its deadline comes back after a backoff, by the rule of
//!   its class ([`Retries`]); its worker is free again at once, and other keys do not notice.
//!   A server's Retry-After is kept. A terminal error is not retried until the object changes.
//! - The last pass has the last word: success cancels the retry and the timer that an earlier
//!   pass asked for.
//! - A pass that blocks its thread cannot be dropped, but it is named, in the log and in a metric.
//! - After shutdown no pass begins. Those under way have a bounded time to end and are then
//!   dropped at an await point; [`Controller::run`] returns only when none is left, or says how
//!   many could not be dropped. Keys that waited are forgotten: the initial list after a restart
//!   brings them all.
//! - ERROR in the log means that an administrator must act.

mod failure;
mod policy;
mod observer;
mod watchdog;
mod underway;
mod worker;
mod run;
mod program;
pub mod enqueue;

pub use failure::{Class, Failure, Problem};
pub use observer::{Observer, Outcome};
pub use policy::Retries;
pub use program::{Died, Program};
pub use run::{Controller, Handle, Options, Summary};

use std::future::Future;
use std::time::Duration;

use crate::object::ObjectKey;

/// Brings one object to its desired state.
pub trait Reconciler: Send + Sync + 'static {
    /// Why a pass failed.
    type Error: Failure;

    /// One pass over the object under `key`, which may be gone. Reads stores, decides, writes.
    /// May be dropped at any await point (deadline, shutdown): a pass must be safe to repeat.
    fn reconcile(
        &self,
        key: &ObjectKey,
    ) -> impl Future<Output = Result<Action, Self::Error>> + Send;
}

/// What to do after a pass that went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Wait for the next change.
    Done,
    /// Look again after this time, changed or not.
    RequeueAfter(Duration),
}

#[cfg(test)]
mod tests;
