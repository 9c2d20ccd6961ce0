//! Observers and snapshots of a queue.

use std::sync::Arc;
use std::time::Duration;

use super::key::Priority;

/// Receives an event for every key taken and every run ended; metrics implement it. Every method has an empty default,
/// is called without a lock, and runs in the worker: it must be quick and must not block. Counts, as opposed to
/// distributions, are in [`Snapshot`].
pub trait Observer: Send + Sync + 'static {
    /// A worker took a key from `priority`, `waited` after its run was requested (client-go:
    /// `workqueue_queue_duration_seconds`). Time in a backoff or Retry-After does not count; time waiting for the key's
    /// previous run does.
    fn dequeued(&self, priority: Priority, waited: Duration) {
        let _ = (priority, waited);
    }

    /// A run ended (client-go: `workqueue_work_duration_seconds`).
    fn done(&self, worked: Duration) {
        let _ = worked;
    }
}

/// Observes nothing.
impl Observer for () {}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn dequeued(&self, priority: Priority, waited: Duration) {
        (**self).dequeued(priority, waited);
    }
    fn done(&self, worked: Duration) {
        (**self).done(worked);
    }
}

/// The state of a queue at one moment. client-go's names are given where they exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot<K> {
    /// Runs requested so far, without repeated requests (`workqueue_adds_total`). A retry or timer counts when it is
    /// due.
    pub adds: u64,
    /// Delays and retries requested so far (`workqueue_retries_total`).
    pub retries: u64,
    /// Runs requested that have not begun, in the order of [`Priority::ALL`] (their sum: `workqueue_depth`): keys ready
    /// to be taken and, as in client-go, keys requested again while being processed.
    pub depth: [usize; 2],
    /// Timers set: backoffs, requeues, and retries that wait for the overall rate.
    pub delayed: usize,
    /// Keys being processed.
    pub processing: usize,
    /// Keys with state in the queue.
    pub known: usize,
    /// Total age of all running runs (`workqueue_unfinished_work_seconds`).
    pub unfinished: Duration,
    /// The key that has been processed longest, and its duration (`workqueue_longest_running_processor_seconds`).
    pub oldest: Option<(K, Duration)>,
}
