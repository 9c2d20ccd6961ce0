//! The readers of a store.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::index::{Index, Objects, UnknownIndex, by_controller};
use super::state::StoreState;
use crate::object::{InternedStr, Object, ObjectKey, Resource, Uid};

/// A reader of the local cache. Cheap to clone.
pub struct Store<V> {
    /// One with all objects, or one per namespace, sorted. Each has its own writer and is independent of the others.
    parts: Arc<[Part<V>]>,
}

/// The objects of a namespace; `None`: all.
type Part<V> = (Option<InternedStr>, Arc<Shared<V>>);

pub(super) struct Shared<V> {
    /// Locked during each change of the objects, until handlers have been notified.
    pub(super) state: Mutex<StoreState<V>>,
    /// Locked for one lookup or one change at a time, and for reading while a list is reported. Changed only with
    /// the state locked, so a handler never waits for a writer.
    pub(super) objects: RwLock<Objects<V>>,
}

// === impl Store ===

impl<V> Clone for Store<V> {
    fn clone(&self) -> Self {
        Store { parts: self.parts.clone() }
    }
}

opaque!(Store<V>);

impl<V: Object> Store<V> {
    pub(super) fn new(indexes: Vec<Index<V>>) -> Store<V> {
        let objects = RwLock::new(Objects::new(indexes));
        let state = Mutex::new(StoreState::new());
        let shared = Arc::new(Shared { state, objects });
        Store { parts: Arc::new([(None, shared)]) }
    }

    /// Reads several stores as one, each with the objects of one namespace only, or a single one with all objects. "At
    /// one instant" then applies to each namespace separately.
    pub(crate) fn of_namespaces(
        stores: impl IntoIterator<Item = (Option<InternedStr>, Store<V>)>,
    ) -> Store<V> {
        let part = |(namespace, store): (_, Store<V>)| (namespace, store.parts[0].1.clone());
        let mut parts: Vec<Part<V>> = stores.into_iter().map(part).collect();
        parts.sort_by(|a, b| a.0.cmp(&b.0));
        Store { parts: parts.into() }
    }

    pub(super) fn shared(&self) -> &Shared<V> {
        &self.parts[0].1
    }

    /// Returns whether objects in the namespace of `key` are stored.
    pub(crate) fn covers(&self, key: &ObjectKey) -> bool {
        self.part(key).is_some()
    }

    /// Returns the part that `key` belongs to.
    fn part(&self, key: &ObjectKey) -> Option<&Shared<V>> {
        if let [(None, all)] = &*self.parts {
            return Some(all);
        }
        let namespace = Some(key.namespace());
        let at = self.parts.binary_search_by(|(part, _)| part.as_ref().cmp(&namespace));
        Some(&self.parts[at.ok()?].1)
    }

    fn all(&self) -> impl Iterator<Item = &Shared<V>> {
        self.parts.iter().map(|(_, part)| &**part)
    }

    /// Returns the object under `key`.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<V>> {
        self.part(key)?.objects.read().get(key).cloned()
    }

    /// Returns whether there is an object under `key`.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.part(key).is_some_and(|part| part.objects.read().get(key).is_some())
    }

    /// Returns all objects at one instant, in no particular order.
    pub fn list(&self) -> Vec<Arc<V>> {
        let mut all = Vec::new();
        for part in self.all() {
            all.extend(part.objects.read().iter().cloned());
        }
        all
    }

    /// Returns the objects that index `name` has under `value`, in no particular order.
    ///
    /// # Errors
    /// If there is no such index.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<V>>, UnknownIndex> {
        self.find_by(name, value, |_| true)
    }

    /// Returns the objects controlled by `owner`, compared by UID, in no particular order.
    ///
    /// # Errors
    /// If there is no [`Index::by_controller`] for its kind.
    pub fn controlled_by<P: Resource>(&self, owner: &P) -> Result<Vec<Arc<V>>, UnknownIndex> {
        self.find_by(&by_controller::<P>(), owner.key().name(), |object| {
            object.meta().is_controlled_by(owner.uid())
        })
    }

    /// Returns the objects that the index has under `value` and that are `wanted`.
    fn find_by(
        &self,
        name: &str,
        value: &str,
        wanted: impl Fn(&V) -> bool,
    ) -> Result<Vec<Arc<V>>, UnknownIndex> {
        let mut found = Vec::new();
        for part in self.all() {
            part.objects.read().under(name, value, &mut |object| {
                if wanted(object) {
                    found.push(object.clone());
                }
            })?;
        }
        Ok(found)
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.all().map(|part| part.objects.read().len()).sum()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores the response to a write, if it is the newest state, and reports it at once. Returns the newest state.
    ///
    /// A response whose version is unknown, or that the watch has overtaken, is not stored.
    pub fn apply_response(&self, object: V) -> Arc<V> {
        self.store_response(object, true)
    }

    /// Like [`Store::apply_response`], for the response to a read. An object that the informer does not select stays in
    /// the store until the next list.
    pub fn apply_read(&self, object: V) -> Arc<V> {
        self.store_response(object, false)
    }

    fn store_response(&self, object: V, is_written: bool) -> Arc<V> {
        let object = Arc::new(object);
        match self.part(object.key()) {
            Some(part) => part.transact(|change| change.apply_response(object, is_written)),
            None => object,
        }
    }

    /// Removes an object that the API server has deleted for good, at once. The object does not reappear even if the
    /// watch still shows earlier states of it.
    pub fn apply_delete(&self, key: &ObjectKey, uid: Uid) {
        if let Some(part) = self.part(key) {
            part.transact(|change| change.apply_delete(key, uid));
        }
    }

    /// Calls `then` with all objects while nothing is written or reported. It can read stores, but not write to them.
    pub fn with_writes_blocked<T>(&self, then: impl FnOnce(Vec<Arc<V>>) -> T) -> T {
        // Always locked in the same order.
        let _doors: Vec<_> = self.all().map(|part| part.state.lock()).collect();
        then(self.list())
    }

    /// Returns the number of keys whose responses the watch has not shown yet.
    #[cfg(test)]
    pub(super) fn unconfirmed(&self) -> usize {
        self.all().map(|part| part.state.lock().unconfirmed.len()).sum()
    }
}
