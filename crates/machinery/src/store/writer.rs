//! The writer of a store.

use std::sync::Arc;

use hashbrown::HashMap;

use super::Delta;
use super::reader::Store;
use super::relist::Relist;
use crate::object::{Object, ObjectKey, ResourceVersion, Uid};

/// The one writer of a store. It receives the events of one list and watch, in order.
///
/// Deltas are reported after the change is visible, so that a handler can read the store. While a list is reported,
/// readers share the lock of the objects with it; writers wait for the lock of the state. A handler must not panic:
/// other deltas of the current change would be lost.
pub struct Writer<V> {
    pub(super) store: Store<V>,
    /// The staged list, from [`Writer::begin_replace`] on.
    pub(super) relist: Option<Relist<V>>,
}

opaque!(Writer<V>);

// === impl Writer ===

impl<V: Object> Writer<V> {
    /// Returns a reader of this store.
    pub fn store(&self) -> Store<V> {
        self.store.clone()
    }

    /// Sets the handler of every change of the store from now on, by this writer or by a response.
    pub fn on_delta(&mut self, handler: impl FnMut(&Delta<V>, bool) + Send + 'static) {
        self.store.shared().state.lock().handler = Box::new(handler);
    }

    /// Handles ADDED or MODIFIED. Ignores an event known not to be newer than the version of the store.
    ///
    /// A decoded watch event discards a list that was begun and not committed.
    pub fn apply(&mut self, object: V) {
        self.relist = None;
        let object = Arc::new(object);
        self.store.shared().transact(|change| change.upsert(object));
    }

    /// Handles DELETED, with the object's last state. Ignores the deletion of an older object or state than the stored
    /// one. An object without a UID means any object of its name, as some servers send only that; such an event is also
    /// ignored if it is known not to be newer than the version of the store.
    pub fn delete(&mut self, object: V) {
        self.relist = None;
        let (key, uid, version) = (object.key().clone(), object.uid(), object.meta().version);
        // The stored object is more complete than a name alone.
        let last = uid.is_some().then(|| Arc::new(object));
        self.store.shared().transact(|change| change.delete(&key, uid, version, last));
    }

    /// Handles an event of an object that cannot be decoded. Unless it is `deleted`, the last good state of the same
    /// object stays; another object of the same name is removed.
    pub fn undecodable(
        &mut self,
        key: &ObjectKey,
        uid: Uid,
        version: ResourceVersion,
        deleted: bool,
    ) {
        self.store.shared().transact(|change| {
            if deleted {
                change.delete(key, uid, version, None);
            } else {
                change.undecodable(key, uid, version);
            }
        });
    }

    /// Handles BOOKMARK: all changes up to `version` have arrived. Forgets responses that the watch should have shown
    /// by now: their objects are outside its scope.
    pub fn bookmark(&mut self, version: ResourceVersion) {
        let shared = self.store.shared();
        let Some(is_news) = shared.transact(|change| change.reported_until(version)) else {
            return;
        };
        let keys: Vec<ObjectKey> = shared.state.lock().unconfirmed.keys().cloned().collect();
        for key in keys {
            shared.transact(|change| change.expire_unconfirmed(&key, version, is_news));
        }
        let mut state = shared.state.lock();
        let twice = 2 * state.unconfirmed.len();
        state.unconfirmed.shrink_to(twice);
    }

    /// Begins a list, and discards what an unfinished one has staged.
    pub fn begin_replace(&mut self) {
        let next = self.store.shared().objects.read().emptied();
        self.relist = Some(Relist { next, kept: HashMap::default() });
    }

    /// Adds an object of the list. The last one of a key counts.
    pub fn stage(&mut self, object: V) {
        if let Some(relist) = &mut self.relist {
            relist.stage(self.store.shared(), object);
        }
    }

    /// Adds an object of the list that cannot be decoded: its stored state stays.
    pub fn keep(&mut self, key: &ObjectKey, uid: Uid) {
        if let Some(relist) = &mut self.relist {
            relist.kept.insert(key.clone(), uid);
        }
    }

    /// Removes the object listed under `key`, which was deleted since: a streaming list includes later changes.
    pub fn unstage(&mut self, key: &ObjectKey) {
        if let Some(relist) = &mut self.relist {
            relist.next.remove(key);
            relist.kept.remove(key);
        }
    }

    /// Ends the list without using it.
    pub fn abort(&mut self) {
        self.relist = None;
    }

    /// Completes the list at this version: makes it visible at one instant, then reports the differences from the
    /// previous content. A list older than the store changes nothing and returns false.
    pub fn commit(&mut self, version: ResourceVersion) -> bool {
        let Some(relist) = self.relist.take() else { return false };
        self.store.shared().replace(relist, version)
    }
}
