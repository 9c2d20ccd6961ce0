//! Snapshots of a queue.

use std::time::Duration;

/// The state of a queue at one moment. client-go's names are given where they exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot<K> {
    /// Runs requested so far, without repeated requests (`workqueue_adds_total`). A retry or timer counts when it is
    /// due.
    pub adds: u64,
    /// Delays and retries requested so far (`workqueue_retries_total`).
    pub retries: u64,
    /// Runs requested that have not begun, in the order of [`Priority::ALL`](super::Priority::ALL) (their sum: `workqueue_depth`): keys ready
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
