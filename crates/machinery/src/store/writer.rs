//! The writer's side: news from the API server.

use std::fmt;
use std::sync::Arc;

use super::delta::Delta;
use super::index::Objects;
use super::reader::Store;
use super::relist::Relist;
use crate::object::{Object, ObjectKey, ResourceVersion, Uid};

/// The one writer of a store. It takes the news of one list and watch, in order.
///
/// Deltas are reported after the change is visible and the objects' lock is released, so that a
/// handler may read the store. A handler must not panic: other deltas of the current change would be
/// lost.
pub struct Writer<V> {
    store: Store<V>,
    /// The staged list, from [`Writer::begin`] on.
    relist: Option<Relist<V>>,
}

// === impl Writer ===

impl<V: Object> Writer<V> {
    pub(super) fn new(store: Store<V>) -> Writer<V> {
        Writer { store, relist: None }
    }

    /// A reader of what is written here.
    pub fn store(&self) -> Store<V> {
        self.store.clone()
    }

    /// Sets the handler, which is called for every change of the store from now on, whether the
    /// writer makes it or a response does.
    pub fn on_delta(&mut self, handler: impl FnMut(&Delta<V>, bool) + Send + 'static) {
        self.store.shared().state.lock().handler = Box::new(handler);
    }

    /// Returns the version up to which news has been taken in; unknown before the first list.
    pub fn version(&self) -> ResourceVersion {
        self.store.shared().state.lock().seen
    }

    /// ADDED or MODIFIED. An event known not to be newer than [`Writer::version`] is ignored.
    ///
    /// A watch event that could be decoded ends a list that was begun and not committed.
    pub fn apply(&mut self, object: V) {
        self.relist = None;
        let object = Arc::new(object);
        self.store.shared().enter(|change| change.applied(object));
    }

    /// DELETED, with the object's last state. The end of an older object, or of an older state, than
    /// the held one is ignored. An object without a UID means whatever has its name, as some
    /// servers send no more than that; such an event is also ignored if it is known not to be newer
    /// than [`Writer::version`].
    pub fn deleted(&mut self, object: V) {
        self.relist = None;
        let (key, uid, version) = (object.key().clone(), object.uid(), object.meta().version);
        // The held object knows more than a name alone.
        let last = uid.is_some().then(|| Arc::new(object));
        self.gone(&key, uid, version, last);
    }

    /// DELETED, for an object that could not be decoded.
    pub fn delete_undecodable(&mut self, key: &ObjectKey, uid: Uid, version: ResourceVersion) {
        self.gone(key, uid, version, None);
    }

    fn gone(&self, key: &ObjectKey, uid: Uid, version: ResourceVersion, last: Option<Arc<V>>) {
        self.store.shared().enter(|change| change.deleted(key, uid, version, last));
    }

    /// ADDED or MODIFIED, for an object that could not be decoded: the last good state of the same
    /// object stays, a namesake's does not.
    pub fn update_undecodable(&mut self, key: &ObjectKey, uid: Uid, version: ResourceVersion) {
        self.store.shared().enter(|change| change.update_undecodable(key, uid, version));
    }

    /// BOOKMARK: there is no other news up to `version`. Forgets responses that should have been
    /// shown by now: their objects are outside what the watch shows.
    pub fn bookmark(&mut self, version: ResourceVersion) {
        let shared = self.store.shared();
        let Some(is_news) = shared.enter(|change| change.passed(version)) else { return };
        let keys: Vec<ObjectKey> = shared.state.lock().unconfirmed.keys().cloned().collect();
        for key in keys {
            shared.enter(|change| change.overdue(&key, version, is_news));
        }
    }

    /// A list begins. Whatever an unfinished one has staged is discarded.
    pub fn begin(&mut self) {
        let shared = self.store.shared();
        let staged = Objects::new(shared.indexes.clone());
        let stored = shared.objects.read().len();
        self.relist = Some(Relist::new(stored, staged));
    }

    /// The list has `object`. If several have the same key, the last one counts.
    pub fn listed(&mut self, object: V) {
        if let Some(relist) = &mut self.relist {
            relist.listed(self.store.shared(), object);
        }
    }

    /// The list has `uid` under `key`, but it cannot be decoded: what is held of it stays.
    pub fn retain(&mut self, key: &ObjectKey, uid: Uid) {
        if let Some(relist) = &mut self.relist {
            relist.retain(key, uid);
        }
    }

    /// Removes the object listed under `key`, which was deleted since: a streaming list shows changes
    /// made meanwhile.
    pub fn unstage(&mut self, key: &ObjectKey) {
        if let Some(relist) = &mut self.relist {
            relist.unstage(key);
        }
    }

    /// Ends the list without using it.
    pub fn abandon(&mut self) {
        self.relist = None;
    }

    /// The list is complete, at this version: shows it at one instant, then reports how it differs
    /// from what was held before. If it is older than what has already been seen, changes nothing
    /// and returns false.
    pub fn commit(&mut self, version: ResourceVersion) -> bool {
        let Some(relist) = self.relist.take() else { return false };
        self.store.shared().take_over(relist, version)
    }
}

impl<V> fmt::Debug for Writer<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("listing", &self.relist.is_some()).finish_non_exhaustive()
    }
}
