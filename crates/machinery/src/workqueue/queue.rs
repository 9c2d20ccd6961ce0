//! The first layer: waiting keys and keys being processed.
//!
//! | a key is …     | flags               | an add …                      | leaves by        |
//! |----------------|---------------------|-------------------------------|------------------|
//! | unknown        | no item, or idle    | queues it                     | –                |
//! | queued         | QUEUED              | can only raise its priority       | `take`           |
//! | in process     | PROCESSING          | makes it dirty                | `done`: unknown  |
//! | … and dirty    | PROCESSING, DIRTY   | can only raise its next priority  | `done`: queued   |
//! | held           | HELD, timer pending | makes it dirty                | the timer        |
//! | delayed        | none, but a timer   | queues it                     | the timer        |

use std::time::Duration;

use hashbrown::HashMap;

use super::fair::FairQueue;
use super::items::{DIRTY, HELD, Items, PROCESSING, QUEUED, RETRY_DUE};
use super::key::{Key, Priority};
use super::timers::Nanos;

/// A run that a worker received.
pub(super) struct Next<K> {
    pub(super) id: u32,
    pub(super) key: K,
    pub(super) priority: Priority,
    /// Time since the run was requested.
    pub(super) waited: Duration,
}

/// Ready keys and keys being processed, without timers.
pub(super) struct Queue<K: Key> {
    pub(super) items: Items<K>,
    pub(super) fair: FairQueue<K>,
    /// Items being processed and when their runs began.
    runs: HashMap<u32, Nanos>,
}

// === impl Queue ===

impl<K: Key> Queue<K> {
    /// Creates a queue. While another tenant waits, a tenant with `share` running keys is skipped.
    pub(super) fn new(share: usize) -> Queue<K> {
        Queue { items: Items::new(), fair: FairQueue::new(share), runs: HashMap::new() }
    }

    pub(super) fn processing(&self) -> usize {
        self.runs.len()
    }

    /// Returns the item of a key, created if necessary. The caller sets a flag or a timer on it.
    pub(super) fn enter(&mut self, key: &K) -> u32 {
        self.items.enter(key).unwrap_or_else(|| {
            let tenant = self.fair.enter(key.tenant());
            self.items.insert(key.clone(), tenant)
        })
    }

    /// Requests a run. Returns false if one was requested already.
    pub(super) fn mark(&mut self, now: Nanos, id: u32, priority: Priority) -> bool {
        let item = self.items.get_mut(id);
        if item.is(QUEUED) {
            if priority > item.priority {
                self.fair.remove(&mut self.items, id);
                self.fair.push(&mut self.items, id, priority);
            }
            return false;
        }
        if item.is(PROCESSING | HELD) {
            if item.is(DIRTY) {
                item.wanted = item.wanted.max(priority);
                return false;
            }
            item.set(DIRTY);
            (item.wanted, item.asked_at) = (priority, now);
            return true;
        }
        item.set(QUEUED);
        item.asked_at = now;
        self.fair.push(&mut self.items, id, priority);
        true
    }

    /// Queues a key that was requested while it could not be queued, if it can be now.
    pub(super) fn enqueue_if_dirty(&mut self, id: u32) {
        let item = self.items.get_mut(id);
        if !item.is(DIRTY) || item.is(PROCESSING | HELD) {
            return;
        }
        item.clear(DIRTY);
        item.set(QUEUED);
        let priority = item.wanted;
        self.fair.push(&mut self.items, id, priority);
    }

    /// Takes the next key. `retries` permits keys of [`Priority::Retry`].
    pub(super) fn take(&mut self, now: Nanos, retries: bool) -> Option<Next<K>> {
        let id = self.fair.pop(&mut self.items, retries)?;
        self.runs.insert(id, now);
        let item = self.items.get_mut(id);
        self.fair.begin(item.tenant);
        item.clear(QUEUED);
        item.set(PROCESSING);
        let key = item.key.clone().expect("an item in a line has a key");
        let waited = Duration::from_nanos(now.saturating_sub(item.asked_at));
        let priority = item.priority;
        Some(Next { id, key, priority, waited })
    }

    /// Ends a run and returns its duration. The caller must then queue or release the item.
    pub(super) fn done(&mut self, now: Nanos, id: u32) -> Duration {
        let item = self.items.get_mut(id);
        item.clear(PROCESSING);
        let Some(began) = self.runs.remove(&id) else { return Duration::ZERO };
        self.fair.end(item.tenant);
        Duration::from_nanos(now.saturating_sub(began))
    }

    /// Queues a key again that was taken but not run, in its priority or a higher one requested meanwhile. Returns that
    /// priority.
    pub(super) fn put_back(&mut self, id: u32) -> Priority {
        self.done(0, id);
        let item = self.items.get_mut(id);
        item.clear(RETRY_DUE);
        let priority = if item.is(DIRTY) { item.priority.max(item.wanted) } else { item.priority };
        item.clear(DIRTY);
        item.set(QUEUED);
        self.fair.push(&mut self.items, id, priority);
        priority
    }

    /// Retires the item of a key without state.
    pub(super) fn release(&mut self, id: u32) {
        if self.items.get(id).is_unwanted()
            && let Some(tenant) = self.items.retire(id)
        {
            self.fair.leave(tenant);
        }
    }

    /// Discards every waiting key, and every request for a key being processed.
    pub(super) fn abandon(&mut self) {
        while let Some(id) = self.fair.pop(&mut self.items, true) {
            self.items.get_mut(id).clear(QUEUED);
            self.release(id);
        }
        for id in self.runs.keys() {
            self.items.get_mut(*id).clear(DIRTY | RETRY_DUE);
        }
    }

    /// Returns the items being processed and the starts of their runs, in no particular order.
    pub(super) fn in_process(&self) -> impl Iterator<Item = (u32, Nanos)> {
        self.runs.iter().map(|(id, began)| (*id, *began))
    }
}
