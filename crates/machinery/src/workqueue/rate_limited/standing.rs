//! The state of the queue, and how it ends.

use std::time::Duration;

use super::super::items::{DIRTY, HELD, NEVER, PROCESSING};
use super::super::key::{Key, Priority};
use super::super::observer::Snapshot;
use super::super::sync::Nanos;
use super::{Phase, RateLimited};

impl<K: Key> RateLimited<K> {
    /// Returns the time at which something becomes ready that is not ready yet, if nothing is added.
    pub(in super::super) fn next_deadline(&self) -> Option<Nanos> {
        let timer = self.timers.first();
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
        self.queue.lines.waiting()
    }

    /// Number of timers set.
    pub(in super::super) fn delayed(&self) -> usize {
        // A queued retry's timer is its patience, not a delay.
        self.timers.len().saturating_sub(self.depth()[Priority::Retry.index()])
    }

    pub(in super::super) fn processing(&self) -> usize {
        self.queue.processing()
    }

    /// Keys about which anything is known.
    pub(in super::super) fn known(&self) -> usize {
        self.queue.items.len()
    }

    /// The current state.
    pub(in super::super) fn snapshot(&mut self, now: Nanos) -> Snapshot<K> {
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

    /// From now on no key comes in and no timer fires; what is queued goes out.
    pub(in super::super) fn shut_down(&mut self, now: Nanos) {
        self.fire(now);
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
        }
        while let Some((_, id, _)) = self.timers.pop(&mut self.queue.items, NEVER) {
            let item = self.queue.items.get_mut(id);
            item.clear(HELD);
            if !item.is(PROCESSING) {
                item.clear(DIRTY);
            }
            let queue = &mut self.queue;
            queue.release(id);
        }
    }

    /// Like `shut_down`, but nothing goes out either.
    pub(in super::super) fn shut_down_now(&mut self, now: Nanos) {
        self.shut_down(now);
        self.phase = Phase::Abandoned;
        self.queue.abandon();
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
