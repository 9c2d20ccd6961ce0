//! State of each key: items, identified by a `u32`, and a table from key to item.
//!
//! Items are stored in chunks: growing copies nothing and wastes at most one chunk, although at a cold start the key of
//! every object waits at once.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::key::{Key, Priority};
use super::timers::Nanos;

/// No item.
pub(super) const NONE: u32 = u32::MAX;

/// No time: the timer is not set.
pub(super) const NEVER: Nanos = Nanos::MAX;

/// Items per chunk.
const CHUNK: usize = 512;

/// State of one key. Flags and times belong to `queue.rs`, tenant and links to `fair.rs`, timers to `timers.rs`,
/// failures to `rate_limited.rs`.
pub(super) struct Item<K> {
    /// `None` only in a free item.
    pub(super) key: Option<K>,
    /// Time of the first request for the wanted run. Meaningful while QUEUED or DIRTY.
    pub(super) asked_at: Nanos,
    /// Due time of its timer, or NEVER: its retry or requeue, or in [`Priority::Retry`] the time from which the overall
    /// rate no longer delays it.
    pub(super) due: Nanos,
    /// Index into the tenants.
    pub(super) tenant: u32,
    /// While QUEUED, the previous item in the tenant's queue, unless it is the first.
    pub(super) prev: u32,
    /// While QUEUED, the next item in the tenant's queue.
    pub(super) next: u32,
    /// Consecutive failures, each after the backoff of the previous one.
    pub(super) failures: u8,
    /// See the constants.
    pub(super) flags: u8,
    /// Its priority while QUEUED; while PROCESSING, the one it was taken from.
    pub(super) priority: Priority,
    /// Its next priority; meaningful while DIRTY.
    pub(super) wanted: Priority,
}

/// In a queue.
pub(super) const QUEUED: u8 = 1;
/// Taken, not done.
pub(super) const PROCESSING: u8 = 2;
/// Requested while PROCESSING or HELD: queued when that ends.
pub(super) const DIRTY: u8 = 4;
/// Its retry came due while PROCESSING: unless forgotten, queued when that ends.
pub(super) const RETRY_DUE: u8 = 8;
/// A Retry-After applies: requests do not run before the retry is due.
pub(super) const HELD: u8 = 16;

/// Without state, in a slot of the idle items.
const IDLE: u8 = 32;

/// Slots for idle items: several times the number of workers, so that few share a slot; 1 KiB. Few in tests, so that
/// models cover freed items.
const PLACES: usize = if cfg!(test) { 2 } else { 256 };

/// The items and the table.
pub(super) struct Items<K> {
    chunks: Vec<Vec<Item<K>>>,
    free: Vec<u32>,
    /// Every item with a key.
    table: HashTable<u32>,
    /// Items of finished keys, each in the slot of its hash until another replaces it. A finished key is often
    /// requested again soon, when the watch reports the writes of its run. It is then found without a table lookup,
    /// which among a million keys is a cache miss.
    idle: Box<[u32; PLACES]>,
    idle_len: usize,
    hasher: DefaultHashBuilder,
}

// === impl Item ===

impl<K> Item<K> {
    fn new(key: K, tenant: u32) -> Item<K> {
        Item {
            key: Some(key),
            asked_at: 0,
            due: NEVER,
            tenant,
            prev: NONE,
            next: NONE,
            failures: 0,
            flags: 0,
            priority: Priority::Low,
            wanted: Priority::Low,
        }
    }

    pub(super) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn set(&mut self, flag: u8) {
        self.flags |= flag;
    }

    pub(super) fn clear(&mut self, flag: u8) {
        self.flags &= !flag;
    }

    /// Returns whether it has no run, request or timer, and is not idle yet.
    pub(super) fn is_unwanted(&self) -> bool {
        !self.is(QUEUED | PROCESSING | DIRTY | RETRY_DUE | IDLE) && self.due == NEVER
    }
}

// === impl Items ===

impl<K: Key> Items<K> {
    pub(super) fn new() -> Items<K> {
        Items {
            chunks: Vec::new(),
            free: Vec::new(),
            table: HashTable::new(),
            idle: Box::new([NONE; PLACES]),
            idle_len: 0,
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Returns the number of keys with state.
    pub(super) fn len(&self) -> usize {
        self.table.len() - self.idle_len
    }

    /// Returns the item of a key with state.
    pub(super) fn find(&self, key: &K) -> Option<u32> {
        let id = self.look(self.hasher.hash_one(key), key)?;
        (!self.get(id).is(IDLE)).then_some(id)
    }

    /// Returns the item of a key and ends its idle state.
    pub(super) fn enter(&mut self, key: &K) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        let id = self.look(hash, key)?;
        let item = self.get_mut(id);
        if item.is(IDLE) {
            item.clear(IDLE);
            self.idle[hash as usize % PLACES] = NONE;
            self.idle_len -= 1;
        }
        Some(id)
    }

    fn look(&self, hash: u64, key: &K) -> Option<u32> {
        let is_it = |id: u32| self.get(id).key.as_ref() == Some(key);
        match self.idle[hash as usize % PLACES] {
            id if id != NONE && is_it(id) => Some(id),
            _ => self.table.find(hash, |&id| is_it(id)).copied(),
        }
    }

    /// Creates an item for a key that has none.
    pub(super) fn insert(&mut self, key: K, tenant: u32) -> u32 {
        let hash = self.hasher.hash_one(&key);
        let item = Item::new(key, tenant);
        let id = match self.free.pop() {
            Some(id) => {
                *self.get_mut(id) = item;
                id
            }
            None => self.grow(item),
        };
        let (chunks, hasher) = (&self.chunks, &self.hasher);
        self.table.insert_unique(hash, id, |&id| hash_of(hasher, at(chunks, id)));
        id
    }

    /// Appends an item.
    fn grow(&mut self, item: Item<K>) -> u32 {
        if self.chunks.last().is_none_or(|last| last.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let before = (self.chunks.len() - 1) * CHUNK;
        let last = self.chunks.last_mut().expect("a chunk was added if there was none");
        last.push(item);
        u32::try_from(before + last.len() - 1).expect("fewer keys than four thousand million")
    }

    /// Makes an item without state idle. Frees the item that was in its slot, and returns the tenant of that one.
    pub(super) fn retire(&mut self, id: u32) -> Option<u32> {
        let hash = hash_of(&self.hasher, self.get(id));
        let former = std::mem::replace(&mut self.idle[hash as usize % PLACES], id);
        self.idle_len += 1;
        let item = self.get_mut(id);
        (item.failures, item.priority, item.flags) = (0, Priority::Low, IDLE);
        (former != NONE).then(|| self.remove(former))
    }

    /// Frees an idle item that was replaced; returns its tenant.
    fn remove(&mut self, id: u32) -> u32 {
        self.idle_len -= 1;
        let hash = hash_of(&self.hasher, self.get(id));
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == id) {
            entry.remove();
        }
        self.free.push(id);
        let item = self.get_mut(id);
        item.key = None;
        item.tenant
    }

    pub(super) fn get(&self, id: u32) -> &Item<K> {
        at(&self.chunks, id)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> &mut Item<K> {
        let id = id as usize;
        &mut self.chunks[id / CHUNK][id % CHUNK]
    }
}

/// Returns the hash of an item's key. Only free items have no key, and the table has no free items.
fn hash_of<K: Key>(hasher: &DefaultHashBuilder, item: &Item<K>) -> u64 {
    item.key.as_ref().map_or(0, |key| hasher.hash_one(key))
}

fn at<K>(chunks: &[Vec<Item<K>>], id: u32) -> &Item<K> {
    let id = id as usize;
    &chunks[id / CHUNK][id % CHUNK]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Items of three keys, of which at least two share a place.
    fn three() -> Items<(u32, u32)> {
        let mut items = Items::new();
        for name in 0..3 {
            items.insert((0, name), 7);
        }
        items
    }

    #[test]
    fn an_idle_item_is_freed_when_another_replaces_it() {
        let mut items = three();
        let freed: Vec<u32> = (0..3).filter_map(|id| items.retire(id)).collect();
        assert_eq!((items.len(), freed.len()), (0, 3 - items.idle_len));
        assert!(freed.iter().all(|tenant| *tenant == 7) && !freed.is_empty());
        let known = (0..3).filter(|name| items.enter(&(0, *name)).is_some()).count();
        assert_eq!(known, 3 - freed.len());
        assert_eq!((items.len(), items.idle_len), (known, 0));
    }

    #[test]
    fn a_requested_item_is_no_longer_idle_and_is_not_freed() {
        let mut items = three();
        items.retire(0);
        assert_eq!((items.find(&(0, 0)), items.enter(&(0, 0))), (None, Some(0)));
        items.retire(1);
        assert_eq!((items.find(&(0, 0)), items.len()), (Some(0), 2));
    }

    #[test]
    fn an_item_takes_32_bytes_beyond_its_key() {
        assert_eq!(size_of::<Item<Box<u8>>>() - size_of::<Box<u8>>(), 32);
    }
}
