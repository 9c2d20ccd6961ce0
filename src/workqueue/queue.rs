//! The first layer: keys that wait to be taken and keys that are in process.
//!
//! | a key is …     | flags               | an add …                      | leaves by        |
//! |----------------|---------------------|-------------------------------|------------------|
//! | unknown        | no slot, or IDLE    | queues it                     | –                |
//! | queued         | QUEUED              | can only raise its band       | `take`           |
//! | in process     | PROCESSING          | makes it dirty                | `done`: idle     |
//! | … and dirty    | PROCESSING, DIRTY   | can only raise its next band  | `done`: queued   |
//! | held           | HELD, timer pending | makes it dirty                | the timer        |
//! | delayed        | none, but a timer   | queues it                     | the timer        |

use std::time::Duration;

use hashbrown::DefaultHashBuilder;

use super::key::{Band, Hashed, Key};
use super::lines::Lines;
use super::slots::{DIRTY, HELD, IDLE, NONE, PROCESSING, QUEUED, RETRY_DUE, Slots};
use super::sync::Nanos;

/// What a worker is given.
pub(super) struct Next<K> {
    pub(super) id: u32,
    pub(super) key: K,
    pub(super) band: Band,
    /// Since the run was asked for.
    pub(super) waited: Duration,
}

/// Ready keys and keys in process. Knows no timers.
pub(super) struct Queue<K: Key> {
    pub(super) slots: Slots<K>,
    pub(super) lines: Lines<K>,
    /// Slots in process and when their runs began, each in the place that its `prev` says. A place
    /// whose run is over has NONE, and is in `places`.
    processing: Vec<(u32, Nanos)>,
    /// Places to be taken again.
    places: Vec<u32>,
}

// === impl Queue ===

impl<K: Key> Queue<K> {
    pub(super) fn new(hasher: DefaultHashBuilder) -> Queue<K> {
        Queue {
            slots: Slots::new(hasher.clone()),
            lines: Lines::new(hasher),
            processing: Vec::new(),
            places: Vec::new(),
        }
    }

    pub(super) fn processing(&self) -> usize {
        self.processing.len() - self.places.len()
    }

    /// The slot of a key, made if need be, to which the caller gives a flag or a timer; and the
    /// key, if the slot has it already: it is to be dropped without the lock, as dropping it
    /// touches memory that others may be writing to.
    pub(super) fn enter(&mut self, wish: Hashed<K>) -> (u32, Option<K>) {
        let Hashed { key, hash } = wish;
        match self.slots.find(hash, &key) {
            Some(id) => {
                if self.slots.get(id).is(IDLE) {
                    self.slots.revive(id);
                }
                (id, Some(key))
            }
            None => {
                let tenant = self.lines.enter(key.tenant());
                (self.slots.insert(hash, key, tenant), None)
            }
        }
    }

    /// Asks for a run. Whether one was asked for that was not asked for already.
    pub(super) fn mark(&mut self, now: Nanos, id: u32, band: Band) -> bool {
        let slot = self.slots.get_mut(id);
        if slot.is(QUEUED) {
            if band > slot.band {
                self.lines.remove(&mut self.slots, id);
                self.lines.push(&mut self.slots, id, band);
            }
            return false;
        }
        if slot.is(PROCESSING | HELD) {
            if slot.is(DIRTY) {
                slot.wanted = slot.wanted.max(band);
                return false;
            }
            slot.set(DIRTY);
            (slot.wanted, slot.asked_at) = (band, now);
            return true;
        }
        slot.set(QUEUED);
        slot.asked_at = now;
        self.lines.push(&mut self.slots, id, band);
        true
    }

    /// Queues a key that was asked for while it could not be, if now it can.
    pub(super) fn settle(&mut self, id: u32) {
        let slot = self.slots.get_mut(id);
        if !slot.is(DIRTY) || slot.is(PROCESSING | HELD) {
            return;
        }
        slot.clear(DIRTY);
        slot.set(QUEUED);
        let band = slot.wanted;
        self.lines.push(&mut self.slots, id, band);
    }

    /// Takes the next key. `retries`: whether one of [`Band::Retry`] may be.
    pub(super) fn take(&mut self, now: Nanos, retries: bool) -> Option<Next<K>> {
        let id = self.lines.pop(&mut self.slots, retries)?;
        let place = self.begin(now, id);
        let slot = self.slots.get_mut(id);
        slot.clear(QUEUED);
        slot.set(PROCESSING);
        slot.prev = place;
        let key = slot.key.clone().expect("a slot in a line has a key");
        let waited = Duration::from_nanos(now.saturating_sub(slot.asked_at));
        let band = slot.band;
        Some(Next { id, key, band, waited })
    }

    /// A place for a run that begins.
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

    /// Ends a run; how long it took. The caller settles or releases the slot.
    pub(super) fn done(&mut self, now: Nanos, id: u32) -> Duration {
        let slot = self.slots.get_mut(id);
        slot.clear(PROCESSING);
        let place = slot.prev;
        let (_, began) = std::mem::replace(&mut self.processing[place as usize], (NONE, 0));
        self.places.push(place);
        Duration::from_nanos(now.saturating_sub(began))
    }

    /// Lets go of the slot if nothing keeps it; the key that is forgotten for that, to be dropped
    /// without the lock.
    pub(super) fn release(&mut self, id: u32) -> Option<K> {
        if !self.slots.get(id).is_unwanted() {
            return None;
        }
        let (key, tenant) = self.slots.retire(id)?;
        self.lines.leave(tenant);
        key
    }

    /// Throws away every key that waits in a line, and every wish of those in process.
    pub(super) fn abandon(&mut self) {
        while let Some(id) = self.lines.pop(&mut self.slots, true) {
            self.slots.get_mut(id).clear(QUEUED);
            self.release(id);
        }
        for (id, _) in self.processing.iter().filter(|(id, _)| *id != NONE) {
            self.slots.get_mut(*id).clear(DIRTY | RETRY_DUE);
        }
    }

    /// Slots in process and when their runs began, in no order.
    pub(super) fn in_process(&self) -> impl Iterator<Item = (u32, Nanos)> {
        self.processing.iter().copied().filter(|(id, _)| *id != NONE)
    }
}
