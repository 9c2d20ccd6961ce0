//! The second layer: delayed keys, and retries with a backoff and an overall rate.
//!
//! A retry is *pending* from the failure until its backoff has passed. Then it is queued: after the first failure in
//! the priority that the key was taken from, after further failures in [`Priority::Retry`], which the overall rate
//! limits. There, the key's timer ends its wait for that rate ([`Limits::retry_patience`]): the key then moves to
//! [`Priority::Low`]. So a timer means "pending" unless the key is queued in [`Priority::Retry`].

use std::time::Duration;

use super::backoff::{Limits, Retry};
use super::bucket::Bucket;
use super::items::{DIRTY, HELD, NEVER, PROCESSING, QUEUED, RETRY_DUE};
use super::key::{Key, Priority};
use super::observer::Snapshot;
use super::queue::{Next, Queue};
use super::timers::{Nanos, Timers, after};

/// The whole queue, without locks and wake-ups.
pub(super) struct RateLimited<K: Key> {
    queue: Queue<K>,
    timers: Timers,
    bucket: Bucket,
    limits: Limits,
    random: fastrand::Rng,
    is_shut_down: bool,
    /// The latest time seen. Clocks are read before the lock is taken, so times can arrive out of order.
    now: Nanos,
    /// Runs requested since the start.
    adds: u64,
    /// Delays requested since the start.
    retries: u64,
}

// === impl RateLimited ===

impl<K: Key> RateLimited<K> {
    /// Creates a queue for this number of workers. While another tenant waits, one tenant gets at most half of them.
    pub(super) fn new(limits: Limits, workers: usize) -> RateLimited<K> {
        RateLimited {
            queue: Queue::new((workers / 2).max(1)),
            timers: Timers::new(),
            bucket: Bucket::new(limits.retries_per_second, limits.retry_burst),
            random: limits.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed),
            limits,
            is_shut_down: false,
            now: 0,
            adds: 0,
            retries: 0,
        }
    }

    /// Requests a run.
    pub(super) fn add(&mut self, now: Nanos, key: &K, priority: Priority) {
        let now = self.fire(now);
        if !self.is_shut_down {
            let id = self.queue.enter(key);
            self.ask(now, id, priority.max(Priority::Low));
        }
    }

    /// Requests a run later, without a failure.
    pub(super) fn requeue(&mut self, now: Nanos, key: &K, delay: Duration) {
        let now = self.fire(now);
        if self.is_shut_down {
            return;
        }
        self.retries += 1;
        let id = self.queue.enter(key);
        if !self.is_throttled(id) {
            // The retry of an earlier run that came due during this one is superseded.
            self.queue.items.get_mut(id).clear(RETRY_DUE);
            let due = after(now, delay);
            self.timers.set(&mut self.queue.items, id, due);
        }
    }

    /// Counts a failure and schedules a retry after a backoff. Returns its length.
    pub(super) fn retry(&mut self, now: Nanos, key: &K, retry: Retry) -> Duration {
        let now = self.fire(now);
        if self.is_shut_down {
            return Duration::ZERO;
        }
        self.retries += 1;
        let id = self.queue.enter(key);
        if self.is_throttled(id) {
            return Duration::ZERO;
        }
        let pending = self.pending(id);
        let item = self.queue.items.get_mut(id);
        item.clear(RETRY_DUE);
        // A run that outside events caused before the backoff had passed does not count. A pending timer without a
        // failure is a requeue.
        if pending.is_none() || item.failures == 0 {
            item.failures = item.failures.saturating_add(1);
        }
        let before = item.failures - 1;
        let backoff = retry.backoff.delay(u32::from(before));
        let jitter = 1.0 + self.limits.jitter.clamp(0.0, 1.0) * self.random.f64();
        // A backoff that overflows never ends.
        let stretched = Duration::try_from_secs_f64(backoff.as_secs_f64() * jitter);
        let mut due = after(now, stretched.unwrap_or(Duration::MAX));
        due = pending.map_or(due, |pending| pending.min(due));
        if retry.at_least > Duration::ZERO {
            item.set(HELD);
            due = due.max(after(now, retry.at_least));
        } else if item.is(HELD) {
            due = due.max(pending.unwrap_or(due));
        }
        self.timers.set(&mut self.queue.items, id, due);
        Duration::from_nanos(due - now)
    }

    /// Ends the failure streak: cancels the pending retry and resets the count.
    pub(super) fn forget(&mut self, now: Nanos, key: &K) {
        self.fire(now);
        let Some(id) = self.queue.items.find(key) else { return };
        if !self.is_throttled(id) {
            self.cancel_retry(id);
        }
        let item = self.queue.items.get_mut(id);
        item.failures = 0;
        item.clear(RETRY_DUE | HELD);
        self.queue.enqueue_if_dirty(id);
        self.queue.release(id);
    }

    /// Returns the number of consecutive failures.
    pub(super) fn requeues(&self, key: &K) -> u32 {
        let items = &self.queue.items;
        items.find(key).map_or(0, |id| u32::from(items.get(id).failures))
    }

    /// Takes the next key.
    pub(super) fn take(&mut self, now: Nanos) -> Option<Next<K>> {
        let now = self.fire(now);
        let next = self.queue.take(now, self.lets_retries_through())?;
        if next.priority == Priority::Retry {
            self.cancel_retry(next.id);
            self.bucket.take(now);
        }
        Some(next)
    }

    /// Puts back a key that was taken but not run. Counts neither a run nor a failure, and keeps the priority.
    pub(super) fn put_back(&mut self, now: Nanos, id: u32) {
        let now = self.fire(now);
        if self.is_shut_down {
            self.queue.done(now, id);
            self.queue.release(id);
            return;
        }
        if self.queue.put_back(id) == Priority::Retry {
            // Its token is lost: governor's tokens cannot be returned.
            let patience = after(now, self.limits.retry_patience);
            self.timers.set(&mut self.queue.items, id, patience);
        }
    }

    /// Ends a run. Returns how long it took.
    pub(super) fn done(&mut self, now: Nanos, id: u32) -> Duration {
        let now = self.fire(now);
        let took = self.queue.done(now, id);
        let pending = self.pending(id).is_some();
        let item = self.queue.items.get_mut(id);
        if item.is(RETRY_DUE) {
            item.clear(RETRY_DUE);
            if !item.is(DIRTY) {
                self.enqueue_retry(now, id);
            }
        } else if !pending {
            // No retry was requested: the failure streak is over, forgotten or not.
            item.failures = 0;
        }
        self.queue.enqueue_if_dirty(id);
        self.queue.release(id);
        took
    }

    /// Queues the keys whose timers are due. Every operation that has the time calls it first, to keep the order.
    /// Returns the time to continue with.
    #[inline]
    pub(super) fn fire(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now);
        if self.timers.first().is_some_and(|due| due <= self.now) {
            self.fire_all(self.now);
        }
        self.now
    }

    /// Out of line, since usually no timer is due.
    #[cold]
    fn fire_all(&mut self, now: Nanos) {
        while let Some((due, id)) = self.timers.pop(&mut self.queue.items, now) {
            self.retry_due(due, id);
        }
    }

    /// Requests a run for a reason other than a failure.
    fn ask(&mut self, now: Nanos, id: u32, priority: Priority) {
        if self.is_throttled(id) {
            // The overall rate no longer applies to the key.
            self.cancel_retry(id);
        }
        self.mark(now, id, priority);
    }

    fn mark(&mut self, now: Nanos, id: u32, priority: Priority) {
        self.adds += u64::from(self.queue.mark(now, id, priority));
    }

    fn retry_due(&mut self, due: Nanos, id: u32) {
        let queue = &mut self.queue;
        let item = queue.items.get_mut(id);
        item.clear(HELD);
        if item.is(QUEUED) {
            // Either the overall rate has delayed it for too long, or another request came before the retry.
            queue.mark(due, id, Priority::Low);
        } else if item.is(PROCESSING) {
            item.set(RETRY_DUE);
        } else if item.is(DIRTY) {
            // The time of a Retry-After does not count as waiting in the queue.
            item.asked_at = due;
            queue.enqueue_if_dirty(id);
        } else {
            self.enqueue_retry(due, id);
        }
    }

    /// Queues a retry that is due.
    fn enqueue_retry(&mut self, due: Nanos, id: u32) {
        let item = self.queue.items.get(id);
        if item.failures <= 1 {
            // A requeue is a timer: no user waits for this key.
            let priority =
                if item.failures == 0 { Priority::Low } else { item.priority.max(Priority::Low) };
            self.mark(due, id, priority);
            return;
        }
        self.mark(due, id, Priority::Retry);
        let patience = after(due, self.limits.retry_patience);
        self.timers.set(&mut self.queue.items, id, patience);
    }

    /// Returns when the pending retry or requeue of the key is due, if it has one.
    fn pending(&self, id: u32) -> Option<Nanos> {
        if self.is_throttled(id) {
            return None;
        }
        Some(self.queue.items.get(id).due).filter(|due| *due != NEVER)
    }

    /// Returns whether a retry of the key waits for the overall rate.
    fn is_throttled(&self, id: u32) -> bool {
        let item = self.queue.items.get(id);
        item.is(QUEUED) && item.priority == Priority::Retry
    }

    fn cancel_retry(&mut self, id: u32) {
        self.timers.cancel(&mut self.queue.items, id);
    }

    /// Returns when the next key becomes ready if nothing is added.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let timer = self.timers.first();
        let token = (self.depth()[Priority::Retry.index()] > 0).then(|| self.bucket.next());
        [timer, token].into_iter().flatten().min()
    }

    /// Returns the number of keys that can be taken now. Those delayed by the overall rate count as at most one.
    pub(super) fn ready(&self) -> usize {
        let [retry, initial, people] = self.depth();
        initial + people + usize::from(retry > 0 && self.lets_retries_through())
    }

    fn lets_retries_through(&self) -> bool {
        self.bucket.next() <= self.now
    }

    /// Returns the number of queued keys per priority.
    pub(super) fn depth(&self) -> [usize; 3] {
        self.queue.fair.waiting()
    }

    /// Returns the number of timers set.
    pub(super) fn delayed(&self) -> usize {
        // The timer of a queued retry limits its wait for the overall rate and is not a delay.
        self.timers.len().saturating_sub(self.depth()[Priority::Retry.index()])
    }

    pub(super) fn processing(&self) -> usize {
        self.queue.processing()
    }

    /// Returns the number of keys with state.
    pub(super) fn known(&self) -> usize {
        self.queue.items.len()
    }

    /// Returns the current state.
    pub(super) fn snapshot(&mut self, now: Nanos) -> Snapshot<K> {
        let now = self.fire(now);
        let queue = &self.queue;
        let age = |began: Nanos| Duration::from_nanos(now.saturating_sub(began));
        let oldest = queue.in_process().min_by_key(|(_, began)| *began);
        let mut depth = self.depth();
        for item in queue.in_process().map(|(id, _)| queue.items.get(id)) {
            depth[item.wanted.index()] += usize::from(item.is(DIRTY) && !item.is(HELD));
        }
        Snapshot {
            adds: self.adds,
            retries: self.retries,
            depth,
            delayed: self.delayed(),
            processing: self.processing(),
            known: self.known(),
            unfinished: queue.in_process().map(|(_, began)| age(began)).sum(),
            oldest: oldest.and_then(|(id, began)| {
                queue.items.get(id).key.clone().map(|key| (key, age(began)))
            }),
        }
    }

    /// Shuts the queue down: no key is accepted or returned, and no timer fires.
    pub(super) fn shut_down(&mut self, now: Nanos) {
        self.fire(now);
        self.is_shut_down = true;
        while let Some((_, id)) = self.timers.pop(&mut self.queue.items, NEVER) {
            let item = self.queue.items.get_mut(id);
            item.clear(HELD);
            if !item.is(PROCESSING) {
                item.clear(DIRTY);
            }
            self.queue.release(id);
        }
        self.queue.abandon();
    }

    /// Accepts keys again after a shutdown, once no key is being processed.
    pub(super) fn restart(&mut self) {
        self.queue = Queue::new(self.queue.fair.share);
        self.timers = Timers::new();
        self.is_shut_down = false;
    }

    pub(super) fn is_shut_down(&self) -> bool {
        self.is_shut_down
    }
}
