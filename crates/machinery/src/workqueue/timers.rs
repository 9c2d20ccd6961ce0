//! Timers, earliest first. An item knows when its own timers are due, so any of them can be moved or
//! cancelled: nothing is left behind, and nothing fires that is no longer wanted.

use std::collections::BTreeSet;
use std::time::Duration;

use super::items::{Items, NEVER};
use super::key::Key;
use super::sync::Nanos;

/// Purpose of a timer. An item has at most one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Requested by `add_after`.
    After = 0,
    /// The retry after a failure; for a key in the line of retries, the end of its patience with
    /// the overall limit.
    Retry = 1,
}

/// Every timer that is set: when it is due, its item, and its purpose.
pub(super) struct Timers(BTreeSet<(Nanos, u32, Timer)>);

// === impl Timers ===

impl Timers {
    pub(super) fn new() -> Timers {
        Timers(BTreeSet::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns when the first timer is due.
    pub(super) fn first(&self) -> Option<Nanos> {
        self.0.first().map(|(due, ..)| *due)
    }

    /// Sets the timer of an item, or moves it.
    pub(super) fn set<K: Key>(&mut self, items: &mut Items<K>, id: u32, timer: Timer, due: Nanos) {
        self.cancel(items, id, timer);
        items.get_mut(id).timers[timer as usize] = due;
        self.0.insert((due, id, timer));
    }

    /// Cancels an item's timer, if it is set.
    pub(super) fn cancel<K: Key>(&mut self, items: &mut Items<K>, id: u32, timer: Timer) {
        let due = std::mem::replace(&mut items.get_mut(id).timers[timer as usize], NEVER);
        if due != NEVER {
            self.0.remove(&(due, id, timer));
        }
    }

    /// Takes the first timer that is due by `now`.
    pub(super) fn pop<K: Key>(
        &mut self,
        items: &mut Items<K>,
        now: Nanos,
    ) -> Option<(Nanos, u32, Timer)> {
        let first = self.0.first().copied().filter(|(due, ..)| *due <= now)?;
        let (_, id, timer) = first;
        self.cancel(items, id, timer);
        Some(first)
    }
}

/// `delay` after `now`, or the end of time.
pub(super) fn after(now: Nanos, delay: Duration) -> Nanos {
    let delay = Nanos::try_from(delay.as_nanos()).unwrap_or(NEVER);
    now.saturating_add(delay).min(NEVER - 1)
}
