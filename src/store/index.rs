//! Objects by what is in them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::{HashMap, HashTable};

use super::table::{Hashing, Table};
use crate::object::{Object, ObjectKey, Resource, Text};

/// A named way to find objects: the values under which an object is found.
pub struct Index<V> {
    /// Its name.
    pub name: &'static str,
    /// Hands on the values of one object: a pure function of it. An object for which this panics is
    /// found under no value.
    pub values: fn(&V, &mut dyn FnMut(Text)),
}

/// The indexes of a store.
#[derive(Debug)]
pub(super) struct Indexes<V> {
    all: Vec<Index<V>>,
    /// How often an index function has panicked.
    panics: AtomicU64,
}

/// A table and what finds the objects in it. Every object in `table` is, for each index and each of
/// its values, in the posting of that value, and nothing else is.
#[derive(Debug)]
pub(super) struct Indexed<V> {
    table: Table<V>,
    /// As many as there are indexes.
    postings: Vec<HashMap<Text, Posting<V>>>,
    indexes: Arc<Indexes<V>>,
    hashing: Hashing,
}

/// The objects under one value.
#[derive(Debug)]
enum Posting<V> {
    /// The usual case, an owner's only child, without an allocation.
    One(Arc<V>),
    /// Several, by key, so that one of many leaves as quickly as one of few. Boxed, as it would
    /// double what every entry of an index takes.
    Many(Box<HashTable<Arc<V>>>),
}

/// The name of [`Index::by_controller`].
pub(super) const BY_CONTROLLER: &str = "controller";

// === impl Index ===

impl<V: Object> Index<V> {
    /// Finds objects by their controller, if that is a `P`: makes
    /// [`Store::controlled_by`](super::Store::controlled_by) work.
    pub fn by_controller<P: Resource>() -> Index<V> {
        let values = |object: &V, each: &mut dyn FnMut(Text)| match &object.meta().owner {
            Some(owner) if owner.kind == P::KIND.kind => each(owner.name.clone()),
            _ => {}
        };
        Index { name: BY_CONTROLLER, values }
    }
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

    /// The values of `object`; none if the function panics.
    fn values(&self, at: usize, object: &V) -> Vec<Text> {
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

    fn position(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|index| index.name == name)
    }
}

// === impl Indexed ===

impl<V: Object> Indexed<V> {
    pub(super) fn new(hashing: Hashing, indexes: Arc<Indexes<V>>) -> Indexed<V> {
        let postings = indexes.all.iter().map(|_| HashMap::new()).collect();
        Indexed { table: Table::new(hashing.clone()), postings, indexes, hashing }
    }

    pub(super) fn table(&self) -> &Table<V> {
        &self.table
    }

    pub(super) fn find(&self, hash: u64, key: &ObjectKey) -> Option<&Arc<V>> {
        self.table.find(hash, key)
    }

    /// Puts `object` in; what it replaces.
    pub(super) fn insert(&mut self, hash: u64, object: Arc<V>) -> Option<Arc<V>> {
        // Added before the old one is removed: most updates change no value, and then the posting
        // never becomes empty.
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

    /// Takes some objects out, at most `most`; none when there are none left.
    pub(super) fn take_some(&mut self, most: usize) -> Vec<Arc<V>> {
        let taken = self.table.take_some(most);
        for object in &taken {
            self.unpost(self.hashing.hash(object.key()), object);
        }
        taken
    }

    /// Hands on the objects that index `name` has under `value`.
    pub(super) fn under(&self, name: &str, value: &str, each: &mut dyn FnMut(&Arc<V>)) {
        let posting = self
            .indexes
            .position(name)
            .and_then(|at| self.postings.get(at))
            .and_then(|postings| postings.get(value));
        match posting {
            Some(Posting::One(object)) => each(object),
            Some(Posting::Many(objects)) => objects.iter().for_each(each),
            None => {}
        }
    }

    fn post(&mut self, hash: u64, object: &Arc<V>) {
        let hashing = &self.hashing;
        for (at, postings) in self.postings.iter_mut().enumerate() {
            for value in self.indexes.values(at, object) {
                match postings.get_mut(&value) {
                    Some(posting) => posting.insert(hash, object, hashing),
                    None => drop(postings.insert(value, Posting::One(object.clone()))),
                }
            }
        }
    }

    fn unpost(&mut self, hash: u64, object: &Arc<V>) {
        for (at, postings) in self.postings.iter_mut().enumerate() {
            for value in self.indexes.values(at, object) {
                if postings.get_mut(&value).is_some_and(|posting| posting.remove(hash, object)) {
                    postings.remove(&value);
                }
            }
        }
    }
}

// === impl Posting ===

impl<V: Object> Posting<V> {
    fn insert(&mut self, hash: u64, object: &Arc<V>, hashing: &Hashing) {
        let rehash = |held: &Arc<V>| hashing.hash(held.key());
        match self {
            // An object may name a value twice.
            Posting::One(held) if Arc::ptr_eq(held, object) => {}
            Posting::One(held) => {
                let mut many = Box::new(HashTable::with_capacity(2));
                many.insert_unique(rehash(held), held.clone(), rehash);
                many.insert_unique(hash, object.clone(), rehash);
                *self = Posting::Many(many);
            }
            Posting::Many(many) => {
                if many.find(hash, |held| Arc::ptr_eq(held, object)).is_none() {
                    many.insert_unique(hash, object.clone(), rehash);
                }
            }
        }
    }

    /// Takes this very object out; whether nothing is left.
    fn remove(&mut self, hash: u64, object: &Arc<V>) -> bool {
        match self {
            Posting::One(held) => Arc::ptr_eq(held, object),
            Posting::Many(many) => {
                if let Ok(found) = many.find_entry(hash, |held| Arc::ptr_eq(held, object)) {
                    found.remove();
                }
                if many.len() == 1
                    && let Some(last) = many.iter().next().cloned()
                {
                    *self = Posting::One(last);
                    return false;
                }
                many.is_empty()
            }
        }
    }
}
