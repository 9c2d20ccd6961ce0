//! Finds objects by their content.

mod posting;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;

use self::posting::Posting;
use super::table::{Hashing, SHARDS, Table, is_too_large, shard_of};
use crate::object::{Dynamic, InternedStr, Object, ObjectKey, Resource};

/// A named way to find objects: the values under which an object is found.
pub struct Index<V> {
    name: InternedStr,
    values: fn(&V, &mut dyn FnMut(InternedStr)),
    is_by_controller: bool,
}

/// A lookup named an index that the store does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no index {name:?}; the indexes of this store are {known:?}. Add it where its informer is built: .index(…)"
)]
pub struct UnknownIndex {
    /// The name of the lookup.
    pub name: String,
    /// The names that there are.
    pub known: Vec<String>,
}

/// The indexes of a store.
#[derive(Debug)]
pub(super) struct Indexes<V> {
    all: Vec<Index<V>>,
    /// Number of panics of index functions.
    panics: AtomicU64,
}

/// A table and what finds the objects in it. For each index, every object in `table` is in the
/// posting of each of its values, and nothing else is.
#[derive(Debug)]
pub(super) struct Indexed<V> {
    table: Table<V>,
    /// One per index.
    postings: Vec<Postings<V>>,
    indexes: Arc<Indexes<V>>,
    hashing: Hashing,
}

/// Values and their postings.
type Values<V> = HashTable<(InternedStr, Posting<V>)>;

/// The postings of one index by value: many small tables, for the same reason as in [`Table`], as
/// there may be as many values as objects.
#[derive(Debug)]
struct Postings<V> {
    /// Empty until there is a value.
    shards: Box<[Values<V>]>,
    hashing: Hashing,
}

// === impl Index ===

impl<V: Object> Index<V> {
    /// An index of this name. `values` passes on the values of one object; it must be a pure
    /// function of it. An object for which it panics is found under no value.
    pub fn new(
        name: impl Into<InternedStr>,
        values: fn(&V, &mut dyn FnMut(InternedStr)),
    ) -> Index<V> {
        Index { name: name.into(), values, is_by_controller: false }
    }

    /// Finds objects by their controller, if that is a `P`; needed by
    /// [`Store::controlled_by`](super::Store::controlled_by). Its name includes the kind, so that
    /// one informer can have several.
    pub fn by_controller<P: Resource>() -> Index<V> {
        let values = |object: &V, each: &mut dyn FnMut(InternedStr)| match &object.meta().owner {
            Some(owner) if owner.kind == P::KIND.kind && is_of_group::<P>(&owner.api_version) => {
                each(owner.name.clone());
            }
            _ => {}
        };
        Index { is_by_controller: true, ..Index::new(by_controller::<P>(), values) }
    }

    /// Returns whether it finds the same objects as `other`: by their controller, of the same kind.
    pub(crate) fn is_same(&self, other: &Index<V>) -> bool {
        self.is_by_controller && other.is_by_controller && self.name == other.name
    }

    /// Returns whether it is by controllers of a kind that is known only at run time.
    pub(crate) fn is_by_unknown_controller(&self) -> bool {
        self.is_by_controller && *self.name == *by_controller::<Dynamic>()
    }

    /// Its name.
    pub fn name(&self) -> &InternedStr {
        &self.name
    }
}

impl<V> Clone for Index<V> {
    fn clone(&self) -> Index<V> {
        Index { name: self.name.clone(), ..*self }
    }
}

/// The name of [`Index::by_controller`]: `controller foos.example.com`.
pub(super) fn by_controller<P: Resource>() -> String {
    format!("controller {}", P::KIND.resource())
}

fn is_of_group<P: Resource>(api_version: &str) -> bool {
    api_version.split_once('/').map_or("", |(group, _)| group) == P::KIND.group
}

impl<V> fmt::Debug for Index<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Index").field(&self.name).finish()
    }
}

// === impl Indexes ===

impl<V> Indexes<V> {
    pub(super) fn new(all: Vec<Index<V>>) -> Indexes<V> {
        Indexes { all, panics: AtomicU64::new(0) }
    }

    pub(super) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// The values of `object`; empty if the function panics.
    fn values(&self, at: usize, object: &V) -> Vec<InternedStr> {
        let Some(index) = self.all.get(at) else { return Vec::new() };
        let mut values = Vec::new();
        let made = catch_unwind(AssertUnwindSafe(|| {
            (index.values)(object, &mut |value| values.push(value));
        }));
        if made.is_err() {
            self.panics.fetch_add(1, Ordering::Relaxed);
            return Vec::new();
        }
        values
    }

    /// The place of the index of this name.
    pub(super) fn position(&self, name: &str) -> Result<usize, UnknownIndex> {
        let unknown = || UnknownIndex {
            name: name.to_owned(),
            known: self.all.iter().map(|index| index.name.to_string()).collect(),
        };
        self.all.iter().position(|index| *index.name == *name).ok_or_else(unknown)
    }
}

// === impl Indexed ===

impl<V: Object> Indexed<V> {
    pub(super) fn new(hashing: Hashing, indexes: Arc<Indexes<V>>) -> Indexed<V> {
        let postings = indexes.all.iter().map(|_| Postings::new(hashing.clone())).collect();
        Indexed { table: Table::new(hashing.clone()), postings, indexes, hashing }
    }

    pub(super) fn table(&self) -> &Table<V> {
        &self.table
    }

    pub(super) fn find(&self, hash: u64, key: &ObjectKey) -> Option<&Arc<V>> {
        self.table.find(hash, key)
    }

    /// Inserts `object`; returns what it replaces.
    pub(super) fn insert(&mut self, hash: u64, object: Arc<V>) -> Option<Arc<V>> {
        // Added before the old one is removed: most updates change no value, and this way the
        // posting never becomes empty.
        self.post(hash, &object);
        let before = self.table.insert(hash, object);
        if let Some(before) = &before {
            self.unpost(hash, before);
        }
        before
    }

    pub(super) fn remove(&mut self, hash: u64, key: &ObjectKey) -> Option<Arc<V>> {
        let object = self.table.remove(hash, key)?;
        self.unpost(hash, &object);
        Some(object)
    }

    /// Passes on the objects that the index at this place has under `value`.
    pub(super) fn under(&self, at: usize, value: &str, each: &mut dyn FnMut(&Arc<V>)) {
        match self.postings.get(at).and_then(|postings| postings.get(value)) {
            Some(Posting::One(object)) => each(object),
            Some(Posting::Few(objects)) => objects.iter().for_each(each),
            Some(Posting::Many(objects)) => objects.iter().for_each(each),
            None => {}
        }
    }

    fn post(&mut self, hash: u64, object: &Arc<V>) {
        for (at, postings) in self.postings.iter_mut().enumerate() {
            for value in self.indexes.values(at, object) {
                postings.insert(value, hash, object);
            }
        }
    }

    fn unpost(&mut self, hash: u64, object: &Arc<V>) {
        for (at, postings) in self.postings.iter_mut().enumerate() {
            for value in self.indexes.values(at, object) {
                postings.remove(&value, hash, object);
            }
        }
    }
}

impl<V> Clone for Indexed<V> {
    fn clone(&self) -> Indexed<V> {
        Indexed {
            table: self.table.clone(),
            postings: self.postings.clone(),
            indexes: self.indexes.clone(),
            hashing: self.hashing.clone(),
        }
    }
}

// === impl Postings ===

impl<V> Clone for Postings<V> {
    fn clone(&self) -> Postings<V> {
        Postings { shards: self.shards.clone(), hashing: self.hashing.clone() }
    }
}

impl<V: Object> Postings<V> {
    fn new(hashing: Hashing) -> Postings<V> {
        Postings { shards: Box::default(), hashing }
    }

    fn get(&self, value: &str) -> Option<&Posting<V>> {
        let hash = self.hashing.hash_value(value);
        let found = self.shards.get(shard_of(hash))?.find(hash, |(known, _)| &**known == value);
        found.map(|(_, posting)| posting)
    }

    fn insert(&mut self, value: InternedStr, hash: u64, object: &Arc<V>) {
        if self.shards.is_empty() {
            self.shards = (0..SHARDS).map(|_| HashTable::new()).collect();
        }
        let hashing = &self.hashing;
        let hash_of_value = hashing.hash_value(&value);
        let shard = &mut self.shards[shard_of(hash_of_value)];
        match shard.find_mut(hash_of_value, |(known, _)| *known == value) {
            Some((_, posting)) => posting.insert(hash, object, hashing),
            None => {
                let rehash = |(known, _): &(InternedStr, Posting<V>)| hashing.hash_value(known);
                shard.insert_unique(hash_of_value, (value, Posting::One(object.clone())), rehash);
            }
        }
    }

    fn remove(&mut self, value: &str, hash: u64, object: &Arc<V>) {
        let hash_of_value = self.hashing.hash_value(value);
        let Some(shard) = self.shards.get_mut(shard_of(hash_of_value)) else { return };
        if let Ok(mut found) = shard.find_entry(hash_of_value, |(known, _)| &**known == value)
            && found.get_mut().1.remove(hash, object)
        {
            found.remove();
            if is_too_large(shard.len(), shard.capacity()) {
                let hashing = &self.hashing;
                shard.shrink_to(2 * shard.len(), |(known, _)| hashing.hash_value(known));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Thing, thing};
    use super::*;

    #[test]
    fn values_that_nothing_has_any_more_leave_no_room_behind() {
        let hashing = Hashing::default();
        let mut postings: Postings<Thing> = Postings::new(hashing.clone());
        let object = Arc::new(thing("it", 1, 1));
        let hash = hashing.hash(object.key());
        let value = |number: usize| InternedStr::from(number.to_string());
        (0..10_000).for_each(|number| postings.insert(value(number), hash, &object));
        let room =
            |postings: &Postings<Thing>| postings.shards.iter().map(HashTable::capacity).sum();
        let full: usize = room(&postings);
        (0..9_900).for_each(|number| postings.remove(&value(number), hash, &object));
        let left: usize = room(&postings);
        assert!(left * 4 < full, "room for {left} of {full} is left");
        assert!(postings.get("9900").is_some() && postings.get("9899").is_none());
    }
}
