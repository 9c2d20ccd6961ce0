//! Timers, earliest first. An item knows when its own timer is due, so it can be moved or cancelled: nothing is
//! left behind, and nothing fires that is no longer wanted.

use std::collections::BTreeSet;
use std::time::Duration;

use super::items::{Items, NEVER};
use super::key::Key;

/// Nanoseconds since the queue was created: enough for 584 years.
pub(super) type Nanos = u64;

/// Every timer that is set: when it is due, and its item.
pub(super) struct Timers(BTreeSet<(Nanos, u32)>);

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
        self.0.first().map(|(due, _)| *due)
    }

    /// Sets the timer of an item, or moves it.
    pub(super) fn set<K: Key>(&mut self, items: &mut Items<K>, id: u32, due: Nanos) {
        self.cancel(items, id);
        items.get_mut(id).due = due;
        self.0.insert((due, id));
    }

    /// Cancels an item's timer, if it is set.
    pub(super) fn cancel<K: Key>(&mut self, items: &mut Items<K>, id: u32) {
        let due = std::mem::replace(&mut items.get_mut(id).due, NEVER);
        if due != NEVER {
            self.0.remove(&(due, id));
        }
    }

    /// Takes the first timer that is due by `now`: its time, and its item.
    pub(super) fn pop<K: Key>(&mut self, items: &mut Items<K>, now: Nanos) -> Option<(Nanos, u32)> {
        let first = self.0.first().copied().filter(|(due, _)| *due <= now)?;
        self.cancel(items, first.1);
        Some(first)
    }
}

/// `delay` after `now`, or the end of time.
pub(super) fn after(now: Nanos, delay: Duration) -> Nanos {
    let delay = Nanos::try_from(delay.as_nanos()).unwrap_or(NEVER);
    now.saturating_add(delay).min(NEVER - 1)
}
