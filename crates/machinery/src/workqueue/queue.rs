//! The first layer: keys that wait to be taken and keys that are being processed.
//!
//! | a key is …     | flags               | an add …                      | leaves by        |
//! |----------------|---------------------|-------------------------------|------------------|
//! | unknown        | no slot, or IDLE    | queues it                     | –                |
//! | queued         | QUEUED              | can only raise its priority       | `take`           |
//! | in process     | PROCESSING          | makes it dirty                | `done`: idle     |
//! | … and dirty    | PROCESSING, DIRTY   | can only raise its next priority  | `done`: queued   |
//! | held           | HELD, timer pending | makes it dirty                | the timer        |
//! | delayed        | none, but a timer   | queues it                     | the timer        |

use std::time::Duration;

use hashbrown::DefaultHashBuilder;

use super::arena::{Arena, DIRTY, HELD, IDLE, NONE, PROCESSING, QUEUED, RETRY_DUE};
use super::fair::FairQueue;
use super::key::{Hashed, Key, Priority};
use super::sync::Nanos;

/// A run that a worker gets.
pub(super) struct Next<K> {
    pub(super) id: u32,
    pub(super) key: K,
    pub(super) priority: Priority,
    /// Since the run was requested.
    pub(super) waited: Duration,
}

/// Ready keys and keys being processed. Knows nothing of timers.
pub(super) struct Queue<K: Key> {
    pub(super) arena: Arena<K>,
    pub(super) lines: FairQueue<K>,
    /// Slots being processed and when their runs began, each at the place in its `prev`. A place
    /// whose run is over has NONE, and is in `places`.
    processing: Vec<(u32, Nanos)>,
    /// Places to reuse.
    places: Vec<u32>,
}

// === impl Queue ===

impl<K: Key> Queue<K> {
    pub(super) fn new(hasher: DefaultHashBuilder) -> Queue<K> {
        Queue {
            arena: Arena::new(hasher.clone()),
            lines: FairQueue::new(hasher),
            processing: Vec::new(),
            places: Vec::new(),
        }
    }

    pub(super) fn processing(&self) -> usize {
        self.processing.len() - self.places.len()
    }

    /// The slot of a key, created if need be; the caller sets a flag or a timer on it.
    pub(super) fn enter(&mut self, wish: &Hashed<'_, K>) -> u32 {
        match self.arena.find(wish) {
            Some(id) => {
                if self.arena.get(id).is(IDLE) {
                    self.arena.revive(id);
                }
                id
            }
            None => {
                let tenant = self.lines.enter(wish.key.tenant());
                self.arena.insert(wish.hash, wish.key.clone(), tenant)
            }
        }
    }

    /// Requests a run. Returns true if none was requested already.
    pub(super) fn mark(&mut self, now: Nanos, id: u32, priority: Priority) -> bool {
        let slot = self.arena.get_mut(id);
        if slot.is(QUEUED) {
            if priority > slot.priority {
                self.lines.remove(&mut self.arena, id);
                self.lines.push(&mut self.arena, id, priority);
            }
            return false;
        }
        if slot.is(PROCESSING | HELD) {
            if slot.is(DIRTY) {
                slot.wanted = slot.wanted.max(priority);
                return false;
            }
            slot.set(DIRTY);
            (slot.wanted, slot.asked_at) = (priority, now);
            return true;
        }
        slot.set(QUEUED);
        slot.asked_at = now;
        self.lines.push(&mut self.arena, id, priority);
        true
    }

    /// Queues a key that was requested when it could not be queued, if it can be now.
    pub(super) fn settle(&mut self, id: u32) {
        let slot = self.arena.get_mut(id);
        if !slot.is(DIRTY) || slot.is(PROCESSING | HELD) {
            return;
        }
        slot.clear(DIRTY);
        slot.set(QUEUED);
        let priority = slot.wanted;
        self.lines.push(&mut self.arena, id, priority);
    }

    /// Takes the next key. `retries`: whether it may be one of [`Priority::Retry`].
    pub(super) fn take(&mut self, now: Nanos, retries: bool) -> Option<Next<K>> {
        let id = self.lines.pop(&mut self.arena, retries)?;
        let place = self.begin(now, id);
        let slot = self.arena.get_mut(id);
        slot.clear(QUEUED);
        slot.set(PROCESSING);
        slot.prev = place;
        let key = slot.key.clone().expect("a slot in a line has a key");
        let waited = Duration::from_nanos(now.saturating_sub(slot.asked_at));
        let priority = slot.priority;
        Some(Next { id, key, priority, waited })
    }

    /// A place for a run that is beginning.
    fn begin(&mut self, now: Nanos, id: u32) -> u32 {
        match self.places.pop() {
            Some(place) => {
                self.processing[place as usize] = (id, now);
                place
            }
            None => {
                self.processing.push((id, now));
                self.processing.len() as u32 - 1
            }
        }
    }

    /// Ends a run; returns how long it took. The caller settles or releases the slot.
    pub(super) fn done(&mut self, now: Nanos, id: u32) -> Duration {
        let slot = self.arena.get_mut(id);
        slot.clear(PROCESSING);
        let place = slot.prev;
        let (_, began) = std::mem::replace(&mut self.processing[place as usize], (NONE, 0));
        self.places.push(place);
        Duration::from_nanos(now.saturating_sub(began))
    }

    /// Queues a key again that was taken and not run, in the priority that it was taken from or one that
    /// was requested meanwhile. Returns that priority.
    pub(super) fn untake(&mut self, id: u32) -> Priority {
        self.done(0, id);
        let slot = self.arena.get_mut(id);
        slot.clear(RETRY_DUE);
        let priority = if slot.is(DIRTY) { slot.priority.max(slot.wanted) } else { slot.priority };
        slot.clear(DIRTY);
        slot.set(QUEUED);
        self.lines.push(&mut self.arena, id, priority);
        priority
    }

    /// Releases the slot if nothing needs it any more. Returns the key that this evicted, if any,
    /// to be dropped without the lock.
    pub(super) fn release(&mut self, id: u32) -> Option<K> {
        if !self.arena.get(id).is_unwanted() {
            return None;
        }
        let (key, tenant) = self.arena.retire(id)?;
        self.lines.leave(tenant);
        key
    }

    /// Discards every key that waits in a line, and every request for those being processed.
    pub(super) fn abandon(&mut self) {
        while let Some(id) = self.lines.pop(&mut self.arena, true) {
            self.arena.get_mut(id).clear(QUEUED);
            self.release(id);
        }
        for (id, _) in self.processing.iter().filter(|(id, _)| *id != NONE) {
            self.arena.get_mut(*id).clear(DIRTY | RETRY_DUE);
        }
    }

    /// Slots being processed and when their runs began, in no particular order.
    pub(super) fn in_process(&self) -> impl Iterator<Item = (u32, Nanos)> {
        self.processing.iter().copied().filter(|(id, _)| *id != NONE)
    }
}
