//! The observer of a controller.

use std::time::Duration;

use super::Class;
use crate::object::ObjectKey;

/// Outcome of a reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Success.
    Success,
    /// Success, and it will be reconciled again later.
    RequeueAfter,
    /// An error.
    Failed(Class),
    /// A panic, which is a bug. Retried as a transient error.
    Panicked,
    /// It exceeded its deadline and was dropped. Retried as a transient error.
    TimedOut,
    /// It was dropped by shutdown, or together with its worker.
    Dropped,
}

/// An observer of a controller, implemented by the metrics. Every method has an empty default and must neither block
/// nor panic. The comments name the corresponding metrics of controller-runtime.
pub trait Observer: Send + Sync + 'static {
    /// A controller starts (`controller_runtime_max_concurrent_reconciles`).
    fn running(&self, controller: &'static str, workers: usize) {
        let _ = (controller, workers);
    }

    /// A reconcile begins (`controller_runtime_active_workers` rises).
    fn started(&self, controller: &'static str) {
        let _ = controller;
    }

    /// A reconcile ended (`active_workers` falls; `reconcile_total{result}`, `reconcile_time_seconds`,
    /// `reconcile_errors_total`, `terminal_reconcile_errors_total`, `reconcile_panics_total`,
    /// `reconcile_timeouts_total`). Every `started` is followed by one of these. Called within the `tracing` span of
    /// the reconcile.
    fn finished(
        &self,
        controller: &'static str,
        key: &ObjectKey,
        outcome: Outcome,
        took: Duration,
    ) {
        let _ = (controller, key, outcome, took);
    }
}

/// An observer that ignores everything.
impl Observer for () {}

impl Outcome {
    /// Returns the label `result` of `controller_runtime_reconcile_total`.
    pub fn result(self) -> &'static str {
        match self {
            Outcome::Success => "success",
            Outcome::RequeueAfter => "requeue_after",
            Outcome::Failed(_) | Outcome::Panicked | Outcome::TimedOut | Outcome::Dropped => {
                "error"
            }
        }
    }
}
