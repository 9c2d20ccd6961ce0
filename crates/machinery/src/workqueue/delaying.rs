//! The second layer: keys that will be queued later.

use std::time::Duration;

use hashbrown::DefaultHashBuilder;

use super::key::{Hashed, Key};
use super::queue::Queue;
use super::sync::Nanos;
use super::timers::{Timer, Timers};

/// A queue with timers.
pub(super) struct Delaying<K: Key> {
    pub(super) queue: Queue<K>,
    pub(super) timers: Timers,
}

// === impl Delaying ===

impl<K: Key> Delaying<K> {
    pub(super) fn new(hasher: DefaultHashBuilder) -> Delaying<K> {
        Delaying { queue: Queue::new(hasher), timers: Timers::new() }
    }

    /// Queues `key` after `delay`. If there are several such requests, the earliest counts.
    pub(super) fn add_after(&mut self, now: Nanos, wish: &Hashed<'_, K>, delay: Duration) {
        let id = self.queue.enter(wish);
        let due = after(now, delay);
        let known = self.timers.due(&self.queue.arena, id, Timer::After);
        if known.is_none_or(|known| due < known) {
            self.timers.set(&mut self.queue.arena, id, Timer::After, due);
        }
    }

    /// The next timer that has expired by `now`: when it expired, its slot, and which kind it is.
    pub(super) fn next_due(&mut self, now: Nanos) -> Option<(Nanos, u32, Timer)> {
        self.timers.pop(&mut self.queue.arena, now)
    }
}

/// `delay` after `now`, or the end of time.
pub(super) fn after(now: Nanos, delay: Duration) -> Nanos {
    now.saturating_add(Nanos::try_from(delay.as_nanos()).unwrap_or(Nanos::MAX))
}
