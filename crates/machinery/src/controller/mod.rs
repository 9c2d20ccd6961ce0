//! 6. Workers: take a key, reconcile it, forget it or retry.
//!
//! Guarantees
//! - A key is reconciled by at most one worker at a time, and every request to reconcile it is
//!   followed by a pass that began later. Every change of an object is such a request, the controller's own
//!   writes included: the pass after a write finds nothing to do.
//! - A pass that fails, panics or misses its deadline is retried after a backoff, by the rule of
//!   its class ([`Retries`]); its worker is free again at once, and other keys are not affected. A
//!   server's Retry-After is observed. A terminal error is not retried until the object changes.
//! - The last pass decides: success cancels the retry and the timer that an earlier pass asked for.
//! - A pass that blocks its thread cannot be dropped, but it is named in the log and counted in a
//!   metric.
//! - After shutdown no pass begins. Those under way have a limited time to end and are then dropped
//!   at an await point; [`Controller::run`] returns only when none is left, or reports how many
//!   could not be dropped. Waiting keys are forgotten: after a restart, the initial list brings
//!   them all back.
//! - ERROR in the log means that an administrator must act.

mod error;
mod policy;
mod observer;
mod watchdog;
mod worker;
mod run;
mod program;
pub mod enqueue;

pub use error::{Class, Name, Problem};
pub use observer::{Observer, Outcome};
pub use policy::Retries;
pub use program::{ExitError, Program, ProgramError};
pub use run::{Controller, Handle, Options, Summary};

use std::future::Future;
use std::time::Duration;

use crate::object::ObjectKey;

/// Brings one object to its desired state.
pub trait Reconciler: Send + Sync + 'static {
    /// One pass over the object under `key`, which may be gone. Reads stores, decides, writes. May
    /// be dropped at any await point (deadline, shutdown), so it must be safe to repeat.
    fn reconcile(&self, key: &ObjectKey) -> impl Future<Output = Result<Action, Problem>> + Send;

    /// Returns the time before which no pass over `key` may begin, if there is one. It is asked before each pass. A
    /// key that is held back keeps its failures.
    fn held_for(&self, key: &ObjectKey) -> Option<Duration> {
        let _ = key;
        None
    }
}

/// Next step after a successful pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Wait for the next change.
    Done,
    /// Reconcile again after this time, changed or not; after a tenth of a second at the earliest.
    RequeueAfter(Duration),
}

#[cfg(test)]
mod tests;
