//! The objects of a store and their indexes.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

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

/// Objects by key and by index. Per index, every object is under each of its values, and nowhere else.
pub(super) struct Objects<V> {
    by_key: HashSet<ByKey<V>, KeyHasher>,
    indexes: Vec<(Index<V>, Postings<V>)>,
}

/// An object that hashes and compares by its key.
struct ByKey<V>(Arc<V>);

/// The objects of an index, by value and key.
type Postings<V> = BTreeMap<(InternedStr, ObjectKey), Arc<V>>;

opaque!(Index<V>);

// === impl Index ===

impl<V: Object> Index<V> {
    /// Creates an index. `values` calls the closure with each value of an object and must be a pure function of it. A
    /// panic is logged: the object may not be found by this index.
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
            Some(owner) if owner.is_of(&P::kind()) => each(owner.name.clone()),
            _ => {}
        };
        Index { is_by_controller: true, ..Index::new(by_controller::<P>(), values) }
    }

    /// Returns whether both are indexes by controllers of the same kind.
    pub(crate) fn is_same(&self, other: &Index<V>) -> bool {
        self.is_by_controller && other.is_by_controller && self.name == other.name
    }

    /// Calls `each` with each value of an object, up to a panic, which is a bug.
    fn each(&self, object: &V, each: &mut dyn FnMut(InternedStr)) {
        let values = AssertUnwindSafe(|| (self.values)(object, each));
        if catch_unwind(values).is_err() {
            tracing::error!(index = %self.name, object = %object.key(), "an index function panicked");
        }
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

// === impl ByKey ===

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

impl<V: Object> Objects<V> {
    pub(super) fn new(indexes: impl IntoIterator<Item = Index<V>>) -> Objects<V> {
        let indexes = indexes.into_iter().map(|index| (index, BTreeMap::new())).collect();
        Objects { by_key: HashSet::default(), indexes }
    }

    /// Returns an empty table with the same indexes, and room for as many objects.
    pub(super) fn emptied(&self) -> Objects<V> {
        let by_key = HashSet::with_capacity_and_hasher(self.len(), KeyHasher::default());
        let indexes = self.indexes.iter().map(|(index, _)| index.clone());
        Objects { by_key, ..Objects::new(indexes) }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<V>> {
        self.by_key.iter().map(|object| &object.0)
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<V>> {
        self.by_key.get(key).map(|object| &object.0)
    }

    /// Inserts `object`; returns the one it replaces.
    pub(super) fn insert(&mut self, object: &Arc<V>) -> Option<Arc<V>> {
        self.unpost(object.key());
        for (index, postings) in &mut self.indexes {
            index.each(object, &mut |value| {
                postings.insert((value, object.key().clone()), object.clone());
            });
        }
        self.by_key.replace(ByKey(object.clone())).map(|object| object.0)
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<V>> {
        self.unpost(key);
        self.by_key.take(key).map(|object| object.0)
    }

    /// Removes the object under `key` from the indexes.
    fn unpost(&mut self, key: &ObjectKey) {
        let Some(ByKey(object)) = self.by_key.get(key) else { return };
        for (index, postings) in &mut self.indexes {
            index.each(object, &mut |value| drop(postings.remove(&(value, key.clone()))));
        }
    }

    /// Calls `each` with the objects that the index `name` has under `value`.
    pub(super) fn under(
        &self,
        name: &str,
        value: &str,
        each: &mut dyn FnMut(&Arc<V>),
    ) -> Result<(), UnknownIndex> {
        let Some((_, postings)) = self.indexes.iter().find(|(index, _)| *index.name == *name)
        else {
            let known = self.indexes.iter().map(|(index, _)| index.name.to_string()).collect();
            return Err(UnknownIndex { name: name.to_owned(), known });
        };
        let first = (InternedStr::new(value), ObjectKey::default());
        let of_value = postings.range(&first..).take_while(|((found, _), _)| *found == first.0);
        of_value.for_each(|(_, object)| each(object));
        Ok(())
    }
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
        Objects::new([index])
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
                let found = objects.under("letter", &value, &mut |object| {
                    posted.push((object.key().clone(), object.meta().version.number().unwrap()));
                });
                prop_assert!(found.is_ok());
                posted.sort();
                let of_letter = model.iter().filter(|(key, _)| key.name().starts_with(&value));
                let of_letter = of_letter.map(|(key, version)| (key.clone(), *version));
                prop_assert_eq!(posted, of_letter.collect::<Vec<_>>());
            }
        }
    }
}
