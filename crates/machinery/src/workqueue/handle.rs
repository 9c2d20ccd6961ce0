//! The shell around the pure queue: one lock, and wake-ups after every change under it.

use std::borrow::Borrow;
use std::fmt;
use std::time::Duration;

use super::backoff::{Limits, Retry};
use super::key::{Key, Priority};
use super::observer::{Observer, Snapshot};
use super::rate_limited::RateLimited;
use super::sync::{Arc, Clock, Mutex, Nanos};
use super::waiting::{State, unlock};
use super::work_item::{Drained, Get, WorkItem};

/// A queue of keys. Cheap to clone; all clones are one queue.
pub struct WorkQueue<K: Key> {
    pub(super) shared: Arc<Shared<K>>,
}

pub(super) struct Shared<K: Key> {
    pub(super) state: Mutex<State<K>>,
    pub(super) clock: Clock,
    limits: Limits,
    pub(super) observer: Box<dyn Observer>,
}

// === impl WorkQueue ===

impl<K: Key> WorkQueue<K> {
    /// An empty queue with the default limits and no observer.
    pub fn new() -> WorkQueue<K> {
        WorkQueue::with(Limits::default(), ())
    }

    /// An empty queue. Any number of workers may get keys of one tenant.
    pub fn with(limits: Limits, observer: impl Observer) -> WorkQueue<K> {
        WorkQueue::with_workers(usize::MAX, limits, observer)
    }

    /// An empty queue for this many workers: while another tenant waits, one tenant gets half of them
    /// at most.
    pub fn with_workers(workers: usize, limits: Limits, observer: impl Observer) -> WorkQueue<K> {
        let shared = Shared {
            state: Mutex::new(State::new(RateLimited::new(limits, workers))),
            clock: Clock::new(),
            limits,
            observer: Box::new(observer),
        };
        WorkQueue { shared: Arc::new(shared) }
    }

    /// Requests a run of `key` in [`Priority::High`].
    pub fn add(&self, key: impl Borrow<K>) {
        self.add_with(key, Priority::High);
    }

    /// Requests a run of `key`. If it is waiting already, it only rises to `priority`; if it is being
    /// processed, it runs again afterwards. A pending backoff does not hold it off; a Retry-After
    /// does. A key passed by reference, here and below, is cloned only if the queue does not know it.
    pub fn add_with(&self, key: impl Borrow<K>, priority: Priority) {
        self.change(|queue, now| queue.add(now, key.borrow(), priority));
    }

    /// Requests a run after `delay`. If there are several such requests, the earliest counts.
    pub fn add_after(&self, key: impl Borrow<K>, delay: Duration) {
        self.change(|queue, now| queue.add_after(now, key.borrow(), delay));
    }

    /// Requests a run after `delay` on behalf of the run that is ending, which did not fail. Unlike
    /// what [`add_after`](Self::add_after) requested, it is forgotten with
    /// [`forget`](Self::forget): the last run decides. Must be called before the run is done.
    pub fn requeue_after(&self, key: impl Borrow<K>, delay: Duration) {
        self.change(|queue, now| queue.requeue(now, key.borrow(), delay));
    }

    /// Counts a failure of `key` and requests a retry after a backoff, as the limits say. Must be
    /// called before the run is done. Returns how long the backoff is.
    ///
    /// While a retry is pending, another failure (of a run caused by an outside event) neither
    /// counts nor moves the retry.
    pub fn add_rate_limited(&self, key: impl Borrow<K>) -> Duration {
        let backoff = self.shared.limits.backoff;
        self.add_rate_limited_with(key, Retry { backoff, at_least: Duration::ZERO })
    }

    /// Like [`add_rate_limited`](Self::add_rate_limited), but with its own backoff. While a retry
    /// is pending, the earlier of the two times counts, but never one before `at_least`.
    pub fn add_rate_limited_with(&self, key: impl Borrow<K>, retry: Retry) -> Duration {
        self.change(|queue, now| queue.retry(now, key.borrow(), retry))
    }

    /// `key` is well: forgets its failures and cancels its pending retry or requeue. Runs requested in
    /// other ways, including by `add_after`, stay.
    pub fn forget(&self, key: &K) {
        self.change(|queue, now| queue.forget(now, key));
    }

    /// Cancels what [`add_after`](Self::add_after) requested, if it is not due yet.
    pub fn cancel(&self, key: &K) {
        self.change(|queue, now| queue.cancel(now, key));
    }

    /// Failures of `key` in a row, each after the backoff of the previous one (at most 255). 0 once
    /// it was forgotten, or a run of it ended while no retry was pending.
    pub fn requeues(&self, key: &K) -> u32 {
        self.shared.state.lock().queue.requeues(key)
    }

    /// The next key; `None` once the queue is shut down and nothing is left to take. Cancel-safe:
    /// if dropped before it is ready, it has taken nothing.
    pub fn get(&self) -> Get<'_, K> {
        Get::new(self, None)
    }

    /// Ends a run and takes the next key under one lock: like dropping `before` and then calling
    /// [`get`](Self::get), for a worker's loop. `before` must belong to this queue.
    pub fn done_and_get(&self, before: WorkItem<K>) -> Get<'_, K> {
        Get::new(self, Some(before))
    }

    /// Keys that are ready to be taken, or wait only for the overall rate.
    pub fn len(&self) -> usize {
        self.change(|queue, now| {
            queue.fire(now);
            queue.depth().iter().sum()
        })
    }

    /// Returns whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The current state. Takes time proportional to the number of keys being processed.
    pub fn snapshot(&self) -> Snapshot<K> {
        self.change(|queue, now| queue.snapshot(now))
    }

    /// No more keys come in and delays are dropped; keys that are ready still go out, and those
    /// that became dirty while being processed go out again. Like client-go's ShutDown.
    pub fn shut_down(&self) {
        self.change(|queue, now| queue.shut_down(now));
    }

    /// Like [`shut_down`](Self::shut_down), but ready keys are dropped too: nothing goes out.
    pub fn shut_down_now(&self) {
        self.change(|queue, now| queue.shut_down_now(now));
    }

    /// Ready once the queue is shut down and the last run is done.
    pub fn drained(&self) -> Drained<'_, K> {
        Drained::new(self)
    }

    /// Changes the queue, then, without the lock, wakes those affected.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut RateLimited<K>, Nanos) -> T) -> T {
        let now = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        let result = change(&mut state.queue, now);
        unlock(state);
        result
    }

    /// Moves the clock forward, for models.
    #[cfg(any(loom, shuttle))]
    pub(super) fn advance(&self, by: Nanos) {
        self.shared.clock.advance(by);
    }
}

impl<K: Key> Default for WorkQueue<K> {
    fn default() -> WorkQueue<K> {
        WorkQueue::new()
    }
}

impl<K: Key> Clone for WorkQueue<K> {
    fn clone(&self) -> WorkQueue<K> {
        WorkQueue { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Key> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").finish_non_exhaustive()
    }
}
