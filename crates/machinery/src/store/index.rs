//! The objects of a store and their indexes.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashSet;

use crate::object::{InternedStr, KeyHasher, Object, ObjectKey, Resource};

/// A named function that returns the values under which an object is found.
pub struct Index<V> {
    name: InternedStr,
    values: Arc<Values<V>>,
    is_by_controller: bool,
}

/// Calls the closure with each value of one object.
type Values<V> = dyn Fn(&V, &mut dyn FnMut(InternedStr)) + Send + Sync;

/// A lookup in an index that the store does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no index {name:?}; the indexes of this store are {known:?}. Add it where its informer is built: .index(…)"
)]
pub struct UnknownIndex {
    /// The requested name.
    pub name: String,
    /// The names of the store's indexes.
    pub known: Vec<String>,
}

/// The indexes of a store.
#[derive(Debug)]
pub(super) struct Indexes<V> {
    all: Vec<Index<V>>,
    /// Number of panics of index functions.
    panics: AtomicU64,
}

/// Objects by key and by index. Per index, every object is under each of its values, and nowhere else.
#[derive(Debug)]
pub(super) struct Objects<V> {
    by_key: HashSet<ByKey<V>, KeyHasher>,
    /// One per index.
    postings: Vec<Postings<V>>,
    indexes: Arc<Indexes<V>>,
}

/// An object that hashes and compares by its key.
#[derive(Debug)]
struct ByKey<V>(Arc<V>);

/// The objects of an index, by value and key.
type Postings<V> = BTreeMap<(InternedStr, ObjectKey), Arc<V>>;

// === impl Index ===

impl<V: Object> Index<V> {
    /// Creates an index. `values` calls the closure with each value of an object and must be a pure function of it. An
    /// object for which it panics is not in the index.
    pub fn new(
        name: impl Into<InternedStr>,
        values: impl Fn(&V, &mut dyn FnMut(InternedStr)) + Send + Sync + 'static,
    ) -> Index<V> {
        Index { name: name.into(), values: Arc::new(values), is_by_controller: false }
    }

    /// Creates an index by the controller of an object, if that is a `P`; needed by
    /// [`Store::controlled_by`](super::Store::controlled_by). Its name includes the kind, so that an informer can have
    /// several.
    pub fn by_controller<P: Resource>() -> Index<V> {
        let values = |object: &V, each: &mut dyn FnMut(InternedStr)| match &object.meta().owner {
            Some(owner) if owner.kind == P::kind().kind && is_of_group::<P>(&owner.api_version) => {
                each(owner.name.clone());
            }
            _ => {}
        };
        Index { is_by_controller: true, ..Index::new(by_controller::<P>(), values) }
    }

    /// Returns whether both are indexes by controllers of the same kind.
    pub(crate) fn is_same(&self, other: &Index<V>) -> bool {
        self.is_by_controller && other.is_by_controller && self.name == other.name
    }

    /// Returns its name.
    pub fn name(&self) -> &InternedStr {
        &self.name
    }
}

impl<V> Clone for Index<V> {
    fn clone(&self) -> Index<V> {
        let Index { name, values, is_by_controller } = self;
        Index { name: name.clone(), values: values.clone(), is_by_controller: *is_by_controller }
    }
}

/// Returns the name of [`Index::by_controller`]: `controller foos.example.com`.
pub(super) fn by_controller<P: Resource>() -> String {
    format!("controller {}", P::kind().resource())
}

fn is_of_group<P: Resource>(api_version: &str) -> bool {
    api_version.split_once('/').map_or("", |(group, _)| group) == P::kind().group
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

    /// Returns the values of `object`; empty if the function panics.
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

    /// Returns the position of the index of this name.
    pub(super) fn position(&self, name: &str) -> Result<usize, UnknownIndex> {
        let unknown = || UnknownIndex {
            name: name.to_owned(),
            known: self.all.iter().map(|index| index.name.to_string()).collect(),
        };
        self.all.iter().position(|index| *index.name == *name).ok_or_else(unknown)
    }
}

// === impl ByKey ===

impl<V> Clone for ByKey<V> {
    fn clone(&self) -> ByKey<V> {
        ByKey(self.0.clone())
    }
}

impl<V: Object> PartialEq for ByKey<V> {
    fn eq(&self, other: &ByKey<V>) -> bool {
        self.0.key() == other.0.key()
    }
}

impl<V: Object> Eq for ByKey<V> {}

impl<V: Object> Hash for ByKey<V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key().hash(state);
    }
}

impl<V: Object> Borrow<ObjectKey> for ByKey<V> {
    fn borrow(&self) -> &ObjectKey {
        self.0.key()
    }
}

// === impl Objects ===

impl<V> Clone for Objects<V> {
    fn clone(&self) -> Objects<V> {
        Objects {
            by_key: self.by_key.clone(),
            postings: self.postings.clone(),
            indexes: self.indexes.clone(),
        }
    }
}

impl<V: Object> Objects<V> {
    pub(super) fn new(indexes: Arc<Indexes<V>>) -> Objects<V> {
        let postings = indexes.all.iter().map(|_| BTreeMap::new()).collect();
        Objects { by_key: HashSet::default(), postings, indexes }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<V>> {
        self.by_key.iter().map(|object| &object.0)
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<V>> {
        self.by_key.get(key).map(|object| &object.0)
    }

    /// Inserts `object`; returns the one it replaces.
    pub(super) fn insert(&mut self, object: &Arc<V>) -> Option<Arc<V>> {
        let before = self.by_key.replace(ByKey(object.clone())).map(|object| object.0);
        for (at, postings) in self.postings.iter_mut().enumerate() {
            for value in before.iter().flat_map(|before| self.indexes.values(at, before)) {
                postings.remove(&(value, object.key().clone()));
            }
            for value in self.indexes.values(at, object) {
                postings.insert((value, object.key().clone()), object.clone());
            }
        }
        before
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<V>> {
        let ByKey(object) = self.by_key.take(key)?;
        if has_spare_room(self.by_key.len(), self.by_key.capacity()) {
            self.by_key.shrink_to(2 * self.by_key.len());
        }
        for (at, postings) in self.postings.iter_mut().enumerate() {
            for value in self.indexes.values(at, &object) {
                postings.remove(&(value, key.clone()));
            }
        }
        Some(object)
    }

    /// Calls `each` with the objects that the index at this position has under `value`.
    pub(super) fn under(&self, at: usize, value: &str, each: &mut dyn FnMut(&Arc<V>)) {
        let first = (InternedStr::new(value), ObjectKey::new("", ""));
        let from_first = self.postings.get(at).into_iter().flat_map(|all| all.range(&first..));
        let of_value = from_first.take_while(|((found, _), _)| *found == first.0);
        of_value.for_each(|(_, object)| each(object));
    }
}

/// Returns whether to shrink a table, to a capacity of twice its length.
pub(super) fn has_spare_room(len: usize, capacity: usize) -> bool {
    capacity > 14 && len * 8 < capacity
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{Thing, thing};
    use super::*;

    /// Objects, found by the first letter of their name.
    fn objects() -> Objects<Thing> {
        let index =
            Index::new("letter", |thing: &Thing, each| each(thing.key().name()[..1].into()));
        Objects::new(Arc::new(Indexes::new(vec![index])))
    }

    #[test]
    fn an_emptied_table_releases_its_memory() {
        let index = Index::new("name", |thing: &Thing, each| each(thing.key().name().clone()));
        let mut objects = Objects::new(Arc::new(Indexes::new(vec![index])));
        let room = |objects: &Objects<Thing>| objects.by_key.allocation_size();
        (0..20_000).for_each(|i: u64| drop(objects.insert(&Arc::new(thing(&i.to_string(), 1, 1)))));
        let full = room(&objects);
        for i in 0..19_900 {
            assert!(objects.remove(&ObjectKey::new("ns", i.to_string())).is_some());
        }
        assert!(room(&objects) * 4 < full, "{} of {full} bytes are left", room(&objects));
        assert_eq!((objects.len(), objects.postings[0].len()), (100, 100));
    }

    proptest! {
        #[test]
        fn objects_behave_like_a_map_without_duplicate_postings(
            steps in prop::collection::vec((0u8..40, 0u8..3), 0..200)
        ) {
            let (mut objects, mut model) = (objects(), BTreeMap::new());
            for (version, (name, step)) in (1..).zip(steps) {
                let key = ObjectKey::new("ns", name.to_string());
                if step > 0 {
                    let before = objects.insert(&Arc::new(thing(&name.to_string(), 1, version)));
                    let before = before.map(|object| object.meta().version.number());
                    prop_assert_eq!(before, model.insert(key, version).map(Some));
                } else {
                    prop_assert_eq!(objects.remove(&key).is_some(), model.remove(&key).is_some());
                }
            }
            let mut names: Vec<_> = objects.iter().map(|object| object.key().clone()).collect();
            names.sort();
            prop_assert!(names.iter().eq(model.keys()));
            for letter in 0..10 {
                let (value, mut posted) = (letter.to_string(), Vec::new());
                objects.under(0, &value, &mut |object| {
                    posted.push((object.key().clone(), object.meta().version.number().unwrap()));
                });
                posted.sort();
                let of_letter = model.iter().filter(|(key, _)| key.name().starts_with(&value));
                let of_letter = of_letter.map(|(key, version)| (key.clone(), *version));
                prop_assert_eq!(posted, of_letter.collect::<Vec<_>>());
            }
        }
    }
}
