//! The writer's side: what the API server says.

use std::fmt;
use std::sync::Arc;

use super::delta::Delta;
use super::memory;
use super::reader::Store;
use super::relist::Relist;
use super::state::State;
use crate::object::{Object, ObjectKey, ResourceVersion, Uid};

/// The one writer of a store. It takes the news of one list and watch, in order.
///
/// Deltas are reported after the change is visible and the lock is released, so that a handler may
/// read the store. A `tell` must not panic: other deltas of the current change would be lost.
pub struct Writer<V> {
    pub(super) store: Store<V>,
    /// What is staged, from [`Writer::begin`] on.
    pub(super) relist: Option<Relist<V>>,
    /// Deltas between being made and being reported; kept to reuse its allocation.
    pub(super) out: Vec<Delta<V>>,
}

// === impl Writer ===

impl<V: Object> Writer<V> {
    pub(super) fn new(store: Store<V>) -> Writer<V> {
        Writer { store, relist: None, out: Vec::new() }
    }

    /// A reader of what is written here.
    pub fn store(&self) -> Store<V> {
        self.store.clone()
    }

    /// How far the API server's news has been taken in; unknown before the first list.
    pub fn version(&self) -> ResourceVersion {
        self.store.shared().state.read().seen
    }

    /// ADDED or MODIFIED. An event known not to be newer than [`Writer::version`] changes nothing
    /// that is held.
    ///
    /// A watch event that could be decoded ends a list that was begun and not committed.
    pub fn apply(&mut self, object: V, tell: impl FnMut(Delta<V>)) {
        self.relist = None;
        let hash = self.store.shared().hashing.hash(object.key());
        let object = Arc::new(object);
        self.change(|state, out| state.applied(hash, object, out), tell);
    }

    /// DELETED, with the object's last state. An event known not to be newer than
    /// [`Writer::version`] changes nothing that is held, nor does the end of an older object than
    /// the held one.
    pub fn deleted(&mut self, object: V, tell: impl FnMut(Delta<V>)) {
        self.relist = None;
        let hash = self.store.shared().hashing.hash(object.key());
        let object = Arc::new(object);
        self.change(|state, out| state.deleted(hash, object, out), tell);
    }

    /// DELETED, for an object that could not be decoded.
    pub fn vanished(
        &mut self,
        key: &ObjectKey,
        version: ResourceVersion,
        tell: impl FnMut(Delta<V>),
    ) {
        let hash = self.store.shared().hashing.hash(key);
        self.change(|state, out| state.vanished(hash, key, version, out), tell);
    }

    /// ADDED or MODIFIED, for an object that could not be decoded: the last good state of the same
    /// object stays, a namesake's does not.
    pub fn displaced(&mut self, key: &ObjectKey, uid: Uid, tell: impl FnMut(Delta<V>)) {
        let hash = self.store.shared().hashing.hash(key);
        self.change(|state, out| state.displaced(hash, key, uid, out), tell);
    }

    /// BOOKMARK: there is no other news up to `version`. Forgets own writes that should have come
    /// by now: they were outside what the watch shows.
    pub fn bookmark(&mut self, version: ResourceVersion, mut tell: impl FnMut(Delta<V>)) {
        if self.store.shared().state.write().passed(version) {
            for shard in 0..memory::SHARDS {
                let keys = self.store.shared().state.read().memory.keys_of(shard);
                for key in keys {
                    let hash = self.store.shared().hashing.hash(&key);
                    let overdue = |state: &mut State<V>, out: &mut Vec<Delta<V>>| {
                        state.overdue(hash, &key, version, out);
                    };
                    self.change(overdue, &mut tell);
                }
            }
        }
        // Even if nothing is remembered: lost objects wait for news of any kind.
        self.change(|_, _| {}, tell);
    }

    /// What handlers were told, and so believe to exist. Our own writes are visible already, but
    /// handlers are told of them only when the API server has confirmed them.
    pub fn told(&self) -> Vec<Arc<V>> {
        let state = self.store.shared().state.read();
        let mut told = Vec::with_capacity(state.len());
        state.told(&mut |object| told.push(object.clone()));
        told
    }

    /// A handler is added, and is to be told this first, as the others were. What we have created
    /// and nobody was told of yet will come as [`Origin::Server`](super::Origin::Server): the new
    /// handler does not know that we created it.
    pub fn introduce(&mut self) -> Vec<Arc<V>> {
        self.store.shared().state.write().memory.blur_untold();
        self.told()
    }

    /// Makes a single change under the lock, however many there are to make, so that readers wait
    /// for one only; then reports the result.
    pub(super) fn change(
        &mut self,
        change: impl FnOnce(&mut State<V>, &mut Vec<Delta<V>>),
        tell: impl FnMut(Delta<V>),
    ) {
        self.out.clear();
        let shared = self.store.shared();
        {
            let mut state = shared.state.write();
            state.tell_lost(&shared.hashing, &mut self.out);
            change(&mut state, &mut self.out);
        }
        self.out.drain(..).for_each(tell);
    }
}

impl<V> fmt::Debug for Writer<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("listing", &self.relist.is_some()).finish_non_exhaustive()
    }
}
