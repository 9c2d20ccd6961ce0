//! The relist: a list is built separately, swapped in at one instant, then reported.

use std::sync::Arc;

use hashbrown::HashMap;

use super::index::Objects;
use super::reader::Shared;
use super::state::{Unconfirmed, is_same_state};
use super::{Delta, step};
use crate::object::{KeyHasher, Object, ObjectKey, ResourceVersion, Uid};

/// A list, from which the next content of the store is built.
pub(super) struct Relist<V> {
    /// The objects of the list. One that the store has in the same state is the stored one.
    pub(super) next: Objects<V>,
    /// Objects of the list that cannot be decoded.
    pub(super) kept: HashMap<ObjectKey, Uid, KeyHasher>,
}

// === impl Relist ===

impl<V: Object> Relist<V> {
    /// Adds an object of the list. The last one of a key counts.
    pub(super) fn stage(&mut self, shared: &Shared<V>, object: V) {
        let key = object.key();
        self.kept.remove(key);
        let stored = shared.objects.read().get(key).cloned();
        let stored = stored.filter(|stored| is_same_state::<V>(stored, &object));
        self.next.insert(&stored.unwrap_or_else(|| Arc::new(object)));
    }

    /// Returns whether the list has `uid`, but cannot decode it.
    fn keeps(&self, key: &ObjectKey, uid: Uid) -> bool {
        self.kept.get(key).is_some_and(|kept| !kept.is_some() || *kept == uid)
    }

    /// Returns whether the list has this object.
    fn shows(&self, key: &ObjectKey, uid: Uid) -> bool {
        self.next.get(key).is_some_and(|listed| listed.uid() == uid) || self.keeps(key, uid)
    }

    /// Merges one name of the list with the responses: drops a listed state that a response supersedes, and forgets the
    /// responses that the list includes or overrides.
    fn confirm(
        &mut self,
        key: &ObjectKey,
        unconfirmed: &mut Unconfirmed,
        version: ResourceVersion,
    ) {
        if self.shows(key, unconfirmed.created) {
            unconfirmed.created = Uid::NONE;
        }
        unconfirmed.listed(version, |uid| self.shows(key, uid));
        let listed = self.next.get(key);
        if listed.is_some_and(|it| unconfirmed.is_superseded(it.uid(), it.meta().version)) {
            self.next.remove(key);
        }
    }

    /// Returns whether a stored state stays, although the list has another one or none.
    fn spares(&self, stored: &Arc<V>, version: ResourceVersion) -> bool {
        let (key, at) = (stored.key(), stored.meta().version);
        // A state newer than the list is a response.
        let is_response = at.is_newer_than(version);
        match self.next.get(key) {
            None => is_response || self.keeps(key, stored.uid()),
            // It is listed already.
            Some(listed) if Arc::ptr_eq(stored, listed) => false,
            // Otherwise the list wins.
            Some(listed) => {
                is_same_state::<V>(stored, listed)
                    || is_response && at.is_newer_than(listed.meta().version)
            }
        }
    }
}

// === impl Shared ===

impl<V: Object> Shared<V> {
    /// Replaces the content with a complete list of this version and reports the differences. A list older than the
    /// store changes nothing and returns false.
    ///
    /// The state stays locked, so nothing else changes the objects. Readers wait only for the swap.
    pub(super) fn replace(&self, mut relist: Relist<V>, version: ResourceVersion) -> bool {
        let mut state = self.state.lock();
        let state = &mut *state;
        if version.is_older_than(state.seen) {
            return false;
        }
        for (key, unconfirmed) in &mut state.unconfirmed {
            relist.confirm(key, unconfirmed, version);
        }
        for stored in self.objects.read().iter() {
            if relist.spares(stored, version) {
                relist.next.insert(stored);
            }
        }
        let old = std::mem::replace(&mut *self.objects.write(), relist.next);
        let objects = self.objects.read();
        state.unconfirmed.retain(|key, unconfirmed| {
            if objects.get(key).is_none_or(|stored| stored.uid() != unconfirmed.created) {
                unconfirmed.created = Uid::NONE;
            }
            !unconfirmed.is_idle()
        });
        if version.is_known() {
            state.seen = version;
        }
        let initial = !std::mem::replace(&mut state.synced, true);
        let mut report = |delta| (state.handler)(&delta, initial);
        for gone in old.iter().filter(|stored| objects.get(stored.key()).is_none()) {
            report(Delta::Deleted(gone.clone()));
        }
        for object in objects.iter() {
            match old.get(object.key()) {
                Some(stored) if Arc::ptr_eq(stored, object) => {}
                stored => step(stored.cloned(), object.clone(), &mut report),
            }
        }
        true
    }
}
