//! The queue as seen from outside.

use std::sync::Arc;
use std::time::Duration;

use super::key::Band;

/// Told of every key that goes out and every run that ends; metrics implement it. Every method
/// has an empty default, is called without any lock held, and runs in the worker: it must be
/// quick and must not block. What is a number rather than a distribution is in [`Snapshot`].
pub trait Observer: Send + Sync + 'static {
    /// A worker took a key from `band`, `waited` after its run was asked for (client-go:
    /// `workqueue_queue_duration_seconds`). Time in backoff does not count, nor does time for
    /// which a Retry-After held the key; time in which the key's run before was not done does.
    fn taken(&self, band: Band, waited: Duration) {
        let _ = (band, waited);
    }

    /// A run ended (client-go: `workqueue_work_duration_seconds`).
    fn done(&self, worked: Duration) {
        let _ = worked;
    }
}

/// Observes nothing.
impl Observer for () {}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn taken(&self, band: Band, waited: Duration) {
        (**self).taken(band, waited);
    }
    fn done(&self, worked: Duration) {
        (**self).done(worked);
    }
}

/// How a queue stands at a moment. Names in client-go are given where they exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot<K> {
    /// Runs asked for so far that were not asked for already (`workqueue_adds_total`); a retry
    /// or timer counts when it is due.
    pub adds: u64,
    /// Delays and retries asked for so far (`workqueue_retries_total`).
    pub retries: u64,
    /// Runs asked for that have not begun, in the order of [`Band::ALL`] (their sum:
    /// `workqueue_depth`): keys ready to be taken and, as in client-go, keys in process that were
    /// asked for again. Those in [`Band::Retry`] may wait for the overall rate.
    pub depth: [usize; 3],
    /// Timers set: backoffs and `add_after`.
    pub delayed: usize,
    /// Keys in process.
    pub processing: usize,
    /// Keys of which the queue holds anything at all.
    pub known: usize,
    /// Ages of all runs under way, added up (`workqueue_unfinished_work_seconds`).
    pub unfinished: Duration,
    /// The key longest in process, and for how long
    /// (`workqueue_longest_running_processor_seconds`).
    pub oldest: Option<(K, Duration)>,
}
