//! The state of the queue, and how it ends.

use std::time::Duration;

use super::super::arena::{DIRTY, HELD, PROCESSING};
use super::super::key::{Key, Priority};
use super::super::observer::Snapshot;
use super::super::sync::Nanos;
use super::{Phase, RateLimited};

impl<K: Key> RateLimited<K> {
    /// Returns the time at which something becomes ready that is not ready yet, if nothing is added.
    pub(in super::super) fn next_deadline(&self) -> Option<Nanos> {
        let timer = self.delaying.timers.first();
        let token = (self.depth()[Priority::Retry.index()] > 0).then(|| self.bucket.next());
        [timer, token].into_iter().flatten().min()
    }

    /// Keys that could be taken now. Those delayed by the overall rate count as at most one.
    pub(in super::super) fn ready(&self) -> usize {
        let [retry, initial, people] = self.depth();
        initial + people + usize::from(retry > 0 && self.lets_retries_through())
    }

    /// After shutdown, what is left is worked off without limits.
    pub(super) fn lets_retries_through(&self) -> bool {
        self.is_shut_down() || self.bucket.next() <= self.now
    }

    /// Keys queued, by priority.
    pub(in super::super) fn depth(&self) -> [usize; 3] {
        self.delaying.queue.lines.waiting()
    }

    /// Number of timers set.
    pub(in super::super) fn delayed(&self) -> usize {
        // A queued retry's timer is its patience, not a delay.
        self.delaying.timers.len().saturating_sub(self.depth()[Priority::Retry.index()])
    }

    pub(in super::super) fn processing(&self) -> usize {
        self.delaying.queue.processing()
    }

    /// Keys about which anything is known.
    pub(in super::super) fn known(&self) -> usize {
        self.delaying.queue.arena.len()
    }

    /// The current state.
    pub(in super::super) fn snapshot(&mut self, now: Nanos) -> Snapshot<K> {
        let now = self.fire(now);
        let queue = &self.delaying.queue;
        let age = |began: Nanos| Duration::from_nanos(now.saturating_sub(began));
        let oldest = queue.in_process().min_by_key(|(_, began)| *began);
        let mut depth = self.depth();
        for slot in queue.in_process().map(|(id, _)| queue.arena.get(id)) {
            depth[slot.wanted.index()] += usize::from(slot.is(DIRTY) && !slot.is(HELD));
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
                queue.arena.get(id).key.clone().map(|key| (key, age(began)))
            }),
        }
    }

    /// From now on no key comes in and no timer fires; what is queued goes out.
    pub(in super::super) fn shut_down(&mut self, now: Nanos) {
        self.fire(now);
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
        }
        while let Some(id) = self.delaying.timers.pop_any(&mut self.delaying.queue.arena) {
            let slot = self.delaying.queue.arena.get_mut(id);
            slot.clear(HELD);
            if !slot.is(PROCESSING) {
                slot.clear(DIRTY);
            }
            let queue = &mut self.delaying.queue;
            queue.release(id);
        }
    }

    /// Like `shut_down`, but nothing goes out either.
    pub(in super::super) fn shut_down_now(&mut self, now: Nanos) {
        self.shut_down(now);
        self.phase = Phase::Abandoned;
        self.delaying.queue.abandon();
    }

    pub(in super::super) fn is_shut_down(&self) -> bool {
        self.phase != Phase::Open
    }

    pub(in super::super) fn is_abandoned(&self) -> bool {
        self.phase == Phase::Abandoned
    }

    /// Shut down, with nothing queued or being processed.
    pub(in super::super) fn is_drained(&self) -> bool {
        self.is_shut_down() && self.processing() == 0 && self.depth() == [0; 3]
    }
}
