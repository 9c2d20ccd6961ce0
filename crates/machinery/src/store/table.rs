//! Objects by key, where the key is part of the object.

use std::sync::{Arc, LazyLock};

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

use crate::object::{Object, ObjectKey};

/// A table is split into this many, so that the largest step it ever takes, doubling one of them,
/// moves a few hundred objects rather than all of them.
pub(super) const SHARDS: usize = 256;
/// The hashes are cut into this many equal parts, which are dealt out to the shards.
const SLOTS: usize = 4096;
/// A shard with room for more than this is shrunk when it is less than an eighth full.
const SHRINK_FROM: usize = 14;

/// Which shard a slot belongs to. The shares grow geometrically from 1 to 2: shard i has the hashes
/// from 2^(i/256)-1 to 2^((i+1)/256)-1 of the whole. With equal shares, all shards would double at
/// the same time, and right after that the table would be half empty. This way only a few shards
/// double at a time, and the average object costs the same, about 15 bytes, at any size.
static SHARES: LazyLock<Box<[u8; SLOTS]>> = LazyLock::new(|| {
    let mut shares = Box::new([0; SLOTS]);
    for (slot, share) in shares.iter_mut().enumerate() {
        let part = slot as f64 / SLOTS as f64;
        *share = ((1.0 + part).log2() * SHARDS as f64) as u8;
    }
    shares
});

/// Hash function of keys, the same in all tables of a store.
#[derive(Debug, Clone, Default)]
pub(super) struct Hashing(DefaultHashBuilder);

/// Objects by key: one pointer and one byte of hash for each, plus the room that a hash table
/// needs.
#[derive(Debug)]
pub(super) struct Table<V> {
    /// Empty until there is an object.
    shards: Box<[HashTable<Arc<V>>]>,
    len: usize,
    hashing: Hashing,
}

// === impl Hashing ===

impl Hashing {
    pub(super) fn hash(&self, key: &ObjectKey) -> u64 {
        self.0.hash_one(key)
    }

    /// The hash of an index value.
    pub(super) fn hash_value(&self, value: &str) -> u64 {
        self.0.hash_one(value)
    }
}

/// Which of the [`SHARDS`] a hash belongs to.
pub(super) fn shard_of(hash: u64) -> usize {
    // hashbrown itself uses the lowest and the highest bits.
    let slot = (hash >> 32) as usize % SLOTS;
    usize::from(SHARES[slot])
}

/// Returns whether a shard with this capacity must be shrunk, to room for twice what is in it.
pub(super) fn is_too_large(len: usize, capacity: usize) -> bool {
    capacity > SHRINK_FROM && len * 8 < capacity
}

// === impl Table ===

impl<V: Object> Table<V> {
    pub(super) fn new(hashing: Hashing) -> Table<V> {
        Table { shards: Box::default(), len: 0, hashing }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn find(&self, hash: u64, key: &ObjectKey) -> Option<&Arc<V>> {
        self.shards.get(shard_of(hash))?.find(hash, |held| held.key() == key)
    }

    /// Inserts `object`; returns what it replaces.
    pub(super) fn insert(&mut self, hash: u64, object: Arc<V>) -> Option<Arc<V>> {
        if self.shards.is_empty() {
            self.shards = (0..SHARDS).map(|_| HashTable::new()).collect();
        }
        let hashing = &self.hashing;
        let shard = &mut self.shards[shard_of(hash)];
        let key = object.key();
        match shard.find_mut(hash, |held| held.key() == key) {
            Some(held) => Some(std::mem::replace(held, object)),
            None => {
                shard.insert_unique(hash, object, |held| hashing.hash(held.key()));
                self.len += 1;
                None
            }
        }
    }

    pub(super) fn remove(&mut self, hash: u64, key: &ObjectKey) -> Option<Arc<V>> {
        let shard = self.shards.get_mut(shard_of(hash))?;
        let (object, _) = shard.find_entry(hash, |held| held.key() == key).ok()?.remove();
        self.len -= 1;
        if is_too_large(shard.len(), shard.capacity()) {
            let hashing = &self.hashing;
            shard.shrink_to(2 * shard.len(), |held| hashing.hash(held.key()));
        }
        Some(object)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<V>> {
        self.shards.iter().flatten()
    }
}

impl<V> Clone for Table<V> {
    fn clone(&self) -> Table<V> {
        Table { shards: self.shards.clone(), len: self.len, hashing: self.hashing.clone() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{Thing, thing};
    use super::*;

    #[test]
    fn the_shares_go_from_one_to_two_and_leave_no_shard_out() {
        let mut sizes = [0usize; SHARDS];
        for share in SHARES.iter() {
            sizes[usize::from(*share)] += 1;
        }
        assert!(sizes.iter().all(|size| (10..=24).contains(size)), "{sizes:?}");
        assert!(sizes[SHARDS - 1] * 10 >= sizes[0] * 17, "{sizes:?}");
    }

    #[test]
    fn a_table_that_was_emptied_gives_its_room_back() {
        let mut table: Table<Thing> = Table::new(Hashing::default());
        for i in 0..20_000 {
            let object = Arc::new(thing(&i.to_string(), 1, 1));
            table.insert(table.hashing.hash(object.key()), object);
        }
        let full: usize = table.shards.iter().map(HashTable::allocation_size).sum();
        for i in 0..19_900 {
            let key = ObjectKey::new("ns", i.to_string());
            assert!(table.remove(table.hashing.hash(&key), &key).is_some());
        }
        let left: usize = table.shards.iter().map(HashTable::allocation_size).sum();
        assert!(left * 4 < full, "{left} of {full} bytes are left");
        assert_eq!(table.len(), 100);
    }

    proptest! {
        #[test]
        fn a_table_is_a_map(steps in prop::collection::vec((0u8..40, 0u8..3), 0..200)) {
            let mut table: Table<Thing> = Table::new(Hashing::default());
            let mut model = std::collections::BTreeMap::new();
            for (version, (name, step)) in (1..).zip(steps) {
                let key = ObjectKey::new("ns", name.to_string());
                let hash = table.hashing.hash(&key);
                if step > 0 {
                    let object = Arc::new(thing(&name.to_string(), 1, version));
                    let before = table.insert(hash, object);
                    let expected = model.insert(key, version);
                    prop_assert_eq!(before.map(|object| object.meta().version.number()), expected.map(Some));
                } else {
                    prop_assert_eq!(table.remove(hash, &key).is_some(), model.remove(&key).is_some());
                }
                prop_assert_eq!(table.len(), model.len());
            }
            let mut names: Vec<_> = table.iter().map(|object| object.key().clone()).collect();
            names.sort();
            prop_assert!(names.iter().eq(model.keys()));
        }
    }
}
