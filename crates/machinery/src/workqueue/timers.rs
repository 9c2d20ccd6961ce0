//! Timers, earliest first. An item stores its due time, so its timer can be moved or cancelled without leaving an entry
//! behind.

use std::collections::BTreeSet;
use std::time::Duration;

use super::items::{Items, NEVER};
use super::key::Key;

/// Nanoseconds since the queue was created: enough for 584 years.
pub(super) type Nanos = u64;

/// Due time and item of every timer.
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

    /// Takes the first timer that is due by `now`. Returns its time and its item.
    pub(super) fn pop<K: Key>(&mut self, items: &mut Items<K>, now: Nanos) -> Option<(Nanos, u32)> {
        let first = self.0.first().copied().filter(|(due, _)| *due <= now)?;
        self.cancel(items, first.1);
        Some(first)
    }
}

/// Returns `now` plus `delay`, capped below [`NEVER`].
pub(super) fn after(now: Nanos, delay: Duration) -> Nanos {
    let delay = Nanos::try_from(delay.as_nanos()).unwrap_or(NEVER);
    now.saturating_add(delay).min(NEVER - 1)
}
