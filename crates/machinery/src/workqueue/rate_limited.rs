//! The third layer: keys that failed come back after a backoff, within an overall rate.
//!
//! A retry of a key is *pending* from the failure until its backoff has passed. Then it is queued:
//! after the first failure in the priority the key was taken from, after further ones in
//! [`Priority::Retry`], which the overall rate limits. While it is there, the retry timer marks the end
//! of its patience, after which the key moves to [`Priority::Low`]. So a retry timer means
//! "pending" unless the key is queued in that priority.

mod standing;

use std::time::Duration;

use hashbrown::DefaultHashBuilder;

use super::arena::{DIRTY, HELD, PROCESSING, QUEUED, RETRY_DUE};
use super::backoff::{Limits, Retry};
use super::bucket::Bucket;
use super::delaying::{Delaying, after};
use super::key::{Hashed, Key, Priority};
use super::queue::Next;
use super::sync::Nanos;
use super::timers::Timer;

/// Phase of the queue: in which directions keys pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Both.
    Open,
    /// Only out, until none are waiting.
    Draining,
    /// Neither.
    Abandoned,
}

/// The whole queue, without locks and wake-ups.
pub(super) struct RateLimited<K: Key> {
    delaying: Delaying<K>,
    bucket: Bucket,
    limits: Limits,
    random: fastrand::Rng,
    phase: Phase,
    /// The latest time seen: clocks are read before the lock is taken, so times may arrive out of
    /// order.
    now: Nanos,
    /// Runs requested since the start.
    adds: u64,
    /// Delays requested since the start.
    retries: u64,
}

// === impl RateLimited ===

impl<K: Key> RateLimited<K> {
    pub(super) fn new(limits: Limits, hasher: DefaultHashBuilder) -> RateLimited<K> {
        RateLimited {
            delaying: Delaying::new(hasher),
            bucket: Bucket::new(limits.retries_per_second, limits.retry_burst),
            random: limits.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed),
            limits,
            phase: Phase::Open,
            now: 0,
            adds: 0,
            retries: 0,
        }
    }

    /// Requests a run.
    pub(super) fn add(&mut self, now: Nanos, wish: &Hashed<'_, K>, priority: Priority) {
        let now = self.fire(now);
        if self.phase == Phase::Open {
            let id = self.delaying.queue.enter(wish);
            self.ask(now, id, priority.max(Priority::Low));
        }
    }

    /// Requests a run later.
    pub(super) fn add_after(&mut self, now: Nanos, wish: &Hashed<'_, K>, delay: Duration) {
        let now = self.fire(now);
        if self.phase == Phase::Open {
            self.retries += 1;
            self.delaying.add_after(now, wish, delay);
        }
    }

    /// Requests a run later, like a retry, but without a failure.
    pub(super) fn requeue(&mut self, now: Nanos, wish: &Hashed<'_, K>, delay: Duration) {
        let now = self.fire(now);
        if self.phase != Phase::Open {
            return;
        }
        self.retries += 1;
        let id = self.delaying.queue.enter(wish);
        if !self.is_throttled(id) {
            // A retry of an earlier run that came due during this one is not wanted any more.
            self.delaying.queue.arena.get_mut(id).clear(RETRY_DUE);
            let due = after(now, delay);
            self.delaying.timers.set(&mut self.delaying.queue.arena, id, Timer::Retry, due);
        }
    }

    /// Counts a failure and retries the key after a backoff; returns how long that is.
    pub(super) fn retry(&mut self, now: Nanos, wish: &Hashed<'_, K>, retry: Retry) -> Duration {
        let now = self.fire(now);
        if self.phase != Phase::Open {
            return Duration::ZERO;
        }
        self.retries += 1;
        let id = self.delaying.queue.enter(wish);
        if self.is_throttled(id) {
            return Duration::ZERO;
        }
        let pending = self.pending(id);
        let slot = self.delaying.queue.arena.get_mut(id);
        slot.clear(RETRY_DUE);
        // A run that outside events caused before the backoff had passed does not count. What is
        // pending without a failure is a requeue.
        if pending.is_none() || slot.failures == 0 {
            slot.failures = slot.failures.saturating_add(1);
        }
        let before = slot.failures - 1;
        let backoff = retry.backoff.delay(u32::from(before));
        let jitter = 1.0 + self.limits.jitter.clamp(0.0, 1.0) * self.random.f64();
        // A backoff too long to stretch counts as forever.
        let stretched = Duration::try_from_secs_f64(backoff.as_secs_f64() * jitter);
        let mut due = after(now, stretched.unwrap_or(Duration::MAX));
        due = pending.map_or(due, |pending| pending.min(due));
        if retry.at_least > Duration::ZERO {
            slot.set(HELD);
            due = due.max(after(now, retry.at_least));
        } else if slot.is(HELD) {
            due = due.max(pending.unwrap_or(due));
        }
        self.delaying.timers.set(&mut self.delaying.queue.arena, id, Timer::Retry, due);
        Duration::from_nanos(due - now)
    }

    /// Ends a row of failures: the pending retry is cancelled, the next failure is the first.
    pub(super) fn forget(&mut self, now: Nanos, known: &Hashed<'_, K>) {
        self.fire(now);
        let Some(id) = self.delaying.queue.arena.find(known) else { return };
        if !self.is_throttled(id) {
            self.cancel_retry(id);
        }
        let slot = self.delaying.queue.arena.get_mut(id);
        slot.failures = 0;
        slot.clear(RETRY_DUE | HELD);
        self.delaying.queue.settle(id);
        self.delaying.queue.release(id);
    }

    /// Cancels what `add_after` requested.
    pub(super) fn cancel(&mut self, now: Nanos, known: &Hashed<'_, K>) {
        self.fire(now);
        let Some(id) = self.delaying.queue.arena.find(known) else { return };
        self.delaying.timers.cancel(&mut self.delaying.queue.arena, id, Timer::After);
        self.delaying.queue.release(id);
    }

    /// Failures in a row.
    pub(super) fn requeues(&self, known: &Hashed<'_, K>) -> u32 {
        let arena = &self.delaying.queue.arena;
        arena.find(known).map_or(0, |id| u32::from(arena.get(id).failures))
    }

    /// Takes the next key.
    pub(super) fn take(&mut self, now: Nanos) -> Option<Next<K>> {
        let now = self.fire(now);
        let next = self.delaying.queue.take(now, self.lets_retries_through())?;
        if next.priority == Priority::Retry {
            self.cancel_retry(next.id);
            self.bucket.take(now);
        }
        Some(next)
    }

    /// Takes a key back that was taken and not run: nothing counts, neither a run nor a failure, and
    /// its priority stays.
    pub(super) fn untake(&mut self, now: Nanos, id: u32) {
        let now = self.fire(now);
        if self.phase == Phase::Abandoned {
            self.delaying.queue.done(now, id);
            self.delaying.queue.release(id);
            return;
        }
        if self.delaying.queue.untake(id) == Priority::Retry && self.phase == Phase::Open {
            // Its token is lost: governor takes none back.
            let patience = after(now, self.limits.retry_patience);
            self.delaying.timers.set(&mut self.delaying.queue.arena, id, Timer::Retry, patience);
        }
    }

    /// Ends a run of the key with this hash. Returns how long it took, and the key that this
    /// evicted, if any.
    pub(super) fn done(&mut self, now: Nanos, id: u32, hash: u64) -> (Duration, Option<K>) {
        self.delaying.queue.arena.remember(hash, id);
        let now = self.fire(now);
        let took = self.delaying.queue.done(now, id);
        let pending = self.pending(id).is_some();
        let slot = self.delaying.queue.arena.get_mut(id);
        if slot.is(RETRY_DUE) {
            slot.clear(RETRY_DUE);
            if !slot.is(DIRTY) {
                self.enqueue_retry(now, id);
            }
        } else if !pending {
            // No retry was requested: the failure streak is over, forgotten or not.
            slot.failures = 0;
        }
        self.delaying.queue.settle(id);
        (took, self.delaying.queue.release(id))
    }

    /// Queues what is due by now. Every operation that is given the time calls it first, so that
    /// what was due earlier comes before what is added later. Returns the time to continue with.
    #[inline]
    pub(super) fn fire(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now);
        if self.delaying.timers.first().is_some_and(|due| due <= self.now) {
            self.fire_all(self.now);
        }
        self.now
    }

    /// Out of line, since usually nothing is due.
    #[cold]
    fn fire_all(&mut self, now: Nanos) {
        while let Some((due, id, timer)) = self.delaying.next_due(now) {
            match timer {
                Timer::After => self.ask(due, id, Priority::Low),
                Timer::Retry => self.retry_due(due, id),
            }
        }
    }

    /// A run is wanted for a reason other than a failure.
    fn ask(&mut self, now: Nanos, id: u32, priority: Priority) {
        if self.is_throttled(id) {
            // The overall rate no longer applies to it, so it needs no patience.
            self.cancel_retry(id);
        }
        self.mark(now, id, priority);
    }

    fn mark(&mut self, now: Nanos, id: u32, priority: Priority) {
        self.adds += u64::from(self.delaying.queue.mark(now, id, priority));
    }

    fn retry_due(&mut self, due: Nanos, id: u32) {
        let queue = &mut self.delaying.queue;
        let slot = queue.arena.get_mut(id);
        slot.clear(HELD);
        if slot.is(QUEUED) {
            // Either its patience has run out, or something else was faster than the retry.
            queue.mark(due, id, Priority::Low);
        } else if slot.is(PROCESSING) {
            slot.set(RETRY_DUE);
        } else if slot.is(DIRTY) {
            // It was held until now, which does not count as waiting in the queue.
            slot.asked_at = due;
            queue.settle(id);
        } else {
            self.enqueue_retry(due, id);
        }
    }

    /// Puts a retry that is due into its line.
    fn enqueue_retry(&mut self, due: Nanos, id: u32) {
        let slot = self.delaying.queue.arena.get(id);
        if slot.failures <= 1 {
            // A requeue is a timer: no user waits for it in particular.
            let priority =
                if slot.failures == 0 { Priority::Low } else { slot.priority.max(Priority::Low) };
            self.mark(due, id, priority);
            return;
        }
        self.mark(due, id, Priority::Retry);
        let patience = after(due, self.limits.retry_patience);
        self.delaying.timers.set(&mut self.delaying.queue.arena, id, Timer::Retry, patience);
    }

    /// Until when a retry of the key waits for its backoff, if one does.
    fn pending(&self, id: u32) -> Option<Nanos> {
        if self.is_throttled(id) {
            return None;
        }
        self.delaying.timers.due(&self.delaying.queue.arena, id, Timer::Retry)
    }

    /// Returns whether a retry of the key waits for the overall rate.
    fn is_throttled(&self, id: u32) -> bool {
        let slot = self.delaying.queue.arena.get(id);
        slot.is(QUEUED) && slot.priority == Priority::Retry
    }

    fn cancel_retry(&mut self, id: u32) {
        self.delaying.timers.cancel(&mut self.delaying.queue.arena, id, Timer::Retry);
    }
}
