//! Storage of keys: an arena of slots, identified by a `u32`, and a table from key to slot.
//!
//! The arena grows in chunks, so growing never copies what is there and never wastes more than one
//! chunk. A slot takes 32 bytes beyond its key; with its entry in the table (5 bytes at a load of
//! 7/16 to 7/8) and one timer (12 bytes plus a quarter) a parked key costs at most 59.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use prefetch_index::prefetch_index;

use super::key::{Hashed, Key, Priority};
use super::recent::Recent;
use super::sync::Nanos;

/// No slot, no tenant, no timer.
pub(super) const NONE: u32 = u32::MAX;

/// Slots per chunk.
const CHUNK: usize = 512;

/// Slots side by side.
struct Chunk<K>([Slot<K>; CHUNK]);

/// All that the queue knows about one key. The fields belong to these layers: flags and times to
/// `queue.rs`, tenant and links to `fair.rs`, timer positions to `delaying.rs`, failures to
/// `rate_limited.rs`.
pub(super) struct Slot<K> {
    /// None only in a free slot.
    pub(super) key: Option<K>,
    /// Time of the first request for the wanted run. Meaningful while QUEUED or DIRTY.
    pub(super) asked_at: Nanos,
    /// Index into the tenants.
    pub(super) tenant: u32,
    /// While QUEUED, the previous slot in the tenant's line, unless it is the first; while PROCESSING
    /// or IDLE, its place among the slots in that state. It is never in two of them.
    pub(super) prev: u32,
    /// While QUEUED, the next slot in the tenant's line; if free, the next in the free list.
    pub(super) next: u32,
    /// Place of each kind of timer in the heap, or NONE. Index: `Timer as usize`.
    pub(super) timers: [u32; 2],
    /// Failures in a row, each after the backoff of the previous one had passed.
    pub(super) failures: u8,
    /// See the constants.
    pub(super) flags: u8,
    /// The priority it is in while QUEUED; the one it was taken from while PROCESSING.
    pub(super) priority: Priority,
    /// The priority it will be in next; meaningful while DIRTY.
    pub(super) wanted: Priority,
}

/// In a line.
pub(super) const QUEUED: u8 = 1;
/// Taken, not done.
pub(super) const PROCESSING: u8 = 2;
/// Requested while PROCESSING or HELD: it is queued when that ends.
pub(super) const DIRTY: u8 = 4;
/// Its retry came due while PROCESSING: unless forgotten, it is queued when that ends.
pub(super) const RETRY_DUE: u8 = 8;
/// The server wants this key left alone until its retry is due; requesting it does not help.
pub(super) const HELD: u8 = 16;
/// Its key is not wanted; it has a place among the idle slots.
pub(super) const IDLE: u8 = 32;

/// An idle slot stays until this many others have become idle. A key that is done is often wanted
/// again soon, because of the news of what its run wrote; it then finds its slot instead of being
/// inserted into the table again. A few dozen workers produce about this many, and with their keys
/// they take some kilobytes. Few in tests, so that models see slots being freed.
const IDLE_KEPT: usize = if cfg!(any(test, loom, shuttle)) { 2 } else { 64 };

/// The arena and the table.
pub(super) struct Arena<K> {
    chunks: Vec<Box<Chunk<K>>>,
    /// First free slot, linked by `next`.
    free: u32,
    /// Every slot with a key.
    table: HashTable<u32>,
    /// Idle slots, each at the place in its `prev`; NONE where one was wanted again.
    idle: [u32; IDLE_KEPT],
    /// The place to fill next: that of the slot that has been idle the longest.
    idle_next: usize,
    idle_len: usize,
    /// Slots to look at before searching the table.
    recent: Recent,
    hasher: DefaultHashBuilder,
}

// === impl Slot ===

impl<K> Slot<K> {
    const FREE: Slot<K> = Slot {
        key: None,
        asked_at: 0,
        tenant: NONE,
        prev: NONE,
        next: NONE,
        timers: [NONE; 2],
        failures: 0,
        flags: 0,
        priority: Priority::Low,
        wanted: Priority::Low,
    };

    pub(super) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn set(&mut self, flag: u8) {
        self.flags |= flag;
    }

    pub(super) fn clear(&mut self, flag: u8) {
        self.flags &= !flag;
    }

    /// Nothing waits for it, it waits for nothing, and it is not idle yet.
    pub(super) fn is_unwanted(&self) -> bool {
        !self.is(QUEUED | PROCESSING | DIRTY | RETRY_DUE | IDLE) && self.timers == [NONE; 2]
    }
}

// === impl Arena ===

impl<K: Key> Arena<K> {
    pub(super) fn new(hasher: DefaultHashBuilder) -> Arena<K> {
        Arena {
            chunks: Vec::new(),
            free: NONE,
            table: HashTable::new(),
            idle: [NONE; IDLE_KEPT],
            idle_next: 0,
            idle_len: 0,
            recent: Recent::new(),
            hasher,
        }
    }

    /// Keys whose slots are not idle.
    pub(super) fn len(&self) -> usize {
        self.table.len() - self.idle_len
    }

    /// The slot of a key, hashed by this arena's hasher, as all hashes here.
    pub(super) fn find(&self, Hashed { key, hash }: &Hashed<'_, K>) -> Option<u32> {
        let is_it = |id: u32| self.get(id).key.as_ref() == Some(*key);
        if let Some(id) = self.recent.look(*hash).filter(|&id| is_it(id)) {
            return Some(id);
        }
        self.table.find(*hash, |&id| is_it(id)).copied()
    }

    /// Notes a slot that is likely to be requested soon; `hash` is its key's hash.
    pub(super) fn remember(&mut self, hash: u64, id: u32) {
        self.recent.remember(hash, id);
    }

    /// Creates a slot for a key that has none.
    pub(super) fn insert(&mut self, hash: u64, key: K, tenant: u32) -> u32 {
        if self.free == NONE {
            self.grow();
        }
        let id = self.free;
        let slot = Slot { key: Some(key), tenant, ..Slot::FREE };
        self.free = std::mem::replace(self.get_mut(id), slot).next;
        let (chunks, hasher) = (&self.chunks, &self.hasher);
        self.table.insert_unique(hash, id, |&id| hash_of(hasher, &at(chunks, id).key));
        id
    }

    /// Adds a chunk of free slots when there are none. A separate function because it builds the
    /// chunk on the stack: if it were inlined, each `add` would reserve and touch twice the 20 KiB
    /// of a chunk of [`ObjectKey`](crate::object::ObjectKey)s.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let first = self.chunks.len() * CHUNK;
        // The top bit belongs to the timers.
        assert!(first < (u32::MAX >> 1) as usize, "a queue of more than two thousand million keys");
        let mut chunk = Box::new(Chunk([const { Slot::<K>::FREE }; CHUNK]));
        for (slot, next) in chunk.0[..CHUNK - 1].iter_mut().zip(first as u32 + 1..) {
            slot.next = next;
        }
        self.chunks.push(chunk);
        self.free = first as u32;
    }

    /// A slot is no longer wanted. If that frees another slot, returns its key and its tenant.
    pub(super) fn retire(&mut self, id: u32) -> Option<(Option<K>, u32)> {
        let place = self.idle_next;
        self.idle_next = (place + 1) % IDLE_KEPT;
        let former = std::mem::replace(&mut self.idle[place], id);
        self.idle_len += 1;
        let slot = self.get_mut(id);
        (slot.failures, slot.priority, slot.flags) = (0, Priority::Low, IDLE);
        slot.prev = place as u32;
        (former != NONE).then(|| self.free(former))
    }

    /// An idle slot is wanted again.
    pub(super) fn revive(&mut self, id: u32) {
        let slot = self.get_mut(id);
        slot.clear(IDLE);
        let place = slot.prev as usize;
        self.idle[place] = NONE;
        self.idle_len -= 1;
    }

    /// Frees an idle slot that has lost its place; returns its key and its tenant.
    fn free(&mut self, id: u32) -> (Option<K>, u32) {
        self.idle_len -= 1;
        let hash = hash_of(&self.hasher, &self.get(id).key);
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == id) {
            entry.remove();
        }
        let free = self.free;
        let slot = self.get_mut(id);
        slot.clear(IDLE);
        slot.next = free;
        let freed = (slot.key.take(), slot.tenant);
        self.free = id;
        freed
    }

    pub(super) fn get(&self, id: u32) -> &Slot<K> {
        at(&self.chunks, id)
    }

    /// Has the processor fetch a slot that will be used soon: its first cache line, and the one after
    /// its end, which is its second if it has two. (There need not be a slot after it.)
    pub(super) fn prefetch(&self, id: u32) {
        let (chunk, at) = (&self.chunks[id as usize / CHUNK].0, id as usize % CHUNK);
        prefetch_index(chunk, at);
        prefetch_index(chunk, at + 1);
    }

    pub(super) fn get_mut(&mut self, id: u32) -> &mut Slot<K> {
        let id = id as usize;
        &mut self.chunks[id / CHUNK].0[id % CHUNK]
    }
}

/// The hash of a slot's key. Only a free slot has none, and the table has no free slots.
fn hash_of<K: Key>(hasher: &DefaultHashBuilder, key: &Option<K>) -> u64 {
    key.as_ref().map_or(0, |key| hasher.hash_one(key))
}

fn at<K>(chunks: &[Box<Chunk<K>>], id: u32) -> &Slot<K> {
    let id = id as usize;
    &chunks[id / CHUNK].0[id % CHUNK]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of one tenant.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    struct Few(u32);

    impl Key for Few {
        type Tenant = ();
        fn tenant(&self) -> &() {
            &()
        }
    }

    fn slots_of(keys: u32) -> Arena<Few> {
        let mut arena = Arena::new(DefaultHashBuilder::default());
        for key in (0..keys).map(Few) {
            arena.insert(arena.hasher.hash_one(key), key, 0);
        }
        arena
    }

    fn find(arena: &Arena<Few>, key: u32) -> Option<u32> {
        arena.find(&Hashed::new(&arena.hasher, &Few(key)))
    }

    #[test]
    fn of_idle_slots_the_last_ones_stay_and_the_longest_idle_is_freed_first() {
        let mut arena = slots_of(4);
        let freed: Vec<_> = (0..4).map(|id| arena.retire(id).and_then(|(key, _)| key)).collect();
        assert_eq!(freed, [None, None, Some(Few(0)), Some(Few(1))]);
        assert_eq!(arena.len(), 0);
        assert_eq!([0, 1, 2, 3].map(|key| find(&arena, key)), [None, None, Some(2), Some(3)]);
    }

    #[test]
    fn an_idle_slot_that_is_wanted_again_is_not_freed_for_others() {
        let mut arena = slots_of(4);
        arena.retire(0);
        arena.retire(1);
        arena.revive(0);
        assert!(arena.retire(2).is_none());
        assert_eq!(arena.retire(3).and_then(|(key, _)| key), Some(Few(1)));
        assert_eq!((arena.len(), find(&arena, 0)), (1, Some(0)));
    }

    #[test]
    fn a_slot_beyond_its_key_is_32_bytes() {
        assert_eq!(size_of::<Slot<Box<u8>>>() - size_of::<Box<u8>>(), 32);
    }
}
