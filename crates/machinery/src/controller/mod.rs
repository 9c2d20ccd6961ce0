//! Workers that take a key from the queue, reconcile it, and forget or retry it.
//!
//! Guarantees
//! - A key is reconciled by at most one worker at a time, and every request is followed by a reconcile that begins
//!   later. Every change of an object is a request, including the controller's own writes: the reconcile after a write
//!   finds nothing to do.
//! - A reconcile that fails, panics or exceeds its deadline is retried after the backoff of its class ([`Retries`]).
//!   Its worker is free at once, and other keys are not affected. The controller respects a server's Retry-After. A
//!   terminal error is not retried until the object changes.
//! - The last reconcile decides: if it succeeds, it cancels an earlier retry or timer.
//! - A reconcile that blocks its thread cannot be dropped; the queue's metrics show how long it has run.
//! - After shutdown, no reconcile begins. Running ones have a limited time to end and are then dropped at an await
//!   point. [`Controller::run`] returns when none is left, or reports how many could not be dropped. Queued keys are
//!   discarded: after a restart, the initial list enqueues them again.
//! - ERROR in the log means that an administrator must act.

mod error;
mod policy;
mod worker;
mod run;
mod program;
pub mod enqueue;

pub use error::{ErrorClass, Name, ReconcileError};
pub use policy::Retries;
pub use program::{ExitError, Program, ProgramError};
pub(crate) use run::End;
pub use run::{Controller, Finished, Handle, Options, Summary};

use std::future::Future;
use std::time::Duration;

use crate::object::ObjectKey;

/// A reconciler, which brings one object to its desired state.
pub trait Reconciler: Send + Sync + 'static {
    /// Reconciles the object under `key`, which may have been deleted. The call can be dropped at any await point
    /// (deadline, shutdown), so it must be safe to repeat.
    fn reconcile(
        &self,
        key: &ObjectKey,
    ) -> impl Future<Output = Result<Action, ReconcileError>> + Send;

    /// Returns how long to delay the reconcile of `key`, if at all. It is called before each reconcile. A delayed key
    /// keeps its failures.
    fn delay(&self, key: &ObjectKey) -> Option<Duration> {
        let _ = key;
        None
    }
}

/// Next step after a successful reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Wait for the next change. Cancels an earlier RequeueAfter and the retry of an earlier failure.
    Done,
    /// Reconcile again after this time (at least 0.1 s), even without a change. A random delay of up to a tenth of the
    /// time, at most a minute, spreads objects that were created together. Replaces an earlier RequeueAfter.
    RequeueAfter(Duration),
}

/// Outcome of a reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Success.
    Success,
    /// Success, and it will be reconciled again later.
    RequeueAfter,
    /// An error.
    Failed(ErrorClass),
    /// A panic, which is a bug. Retried as a transient error.
    Panicked,
    /// It exceeded its deadline and was dropped. Retried as a transient error.
    TimedOut,
    /// It was dropped by shutdown, or together with its worker.
    Dropped,
}

impl Outcome {
    /// Returns the label `result` of `controller_runtime_reconcile_total`.
    pub fn result(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::RequeueAfter => "requeue_after",
            Self::Failed(_) | Self::Panicked | Self::TimedOut | Self::Dropped => "error",
        }
    }
}

#[cfg(test)]
mod tests;
