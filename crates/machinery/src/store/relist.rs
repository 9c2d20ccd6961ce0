//! The relist: a list is built separately, swapped in at one instant, then reported.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;

use super::delta::{Delta, step};
use super::index::Objects;
use super::reader::Shared;
use super::state::{Unconfirmed, is_same_state};
use crate::object::{KeyHasher, Object, ObjectKey, ResourceVersion, Uid};

/// A list, reduced to its differences from what is stored.
pub(super) struct Relist<V> {
    /// Objects that the store has in the same state.
    unchanged: HashMap<ObjectKey, Uid, KeyHasher>,
    /// All other objects of the list.
    staged: Objects<V>,
    /// Objects of the list that cannot be decoded.
    kept: HashMap<ObjectKey, Uid, KeyHasher>,
}

// === impl Relist ===

impl<V: Object> Relist<V> {
    /// Creates a list for a store with this many objects.
    pub(super) fn new(stored: usize, staged: Objects<V>) -> Relist<V> {
        Relist {
            unchanged: HashMap::with_capacity_and_hasher(stored, KeyHasher::default()),
            staged,
            kept: HashMap::default(),
        }
    }

    /// Adds an object of the list. The last one of a key counts.
    pub(super) fn listed(&mut self, shared: &Shared<V>, object: V) {
        let key = object.key();
        if !self.kept.is_empty() {
            self.kept.remove(key);
        }
        let is_stored = |stored: &Arc<V>| is_same_state::<V>(stored, &object);
        if shared.objects.read().get(key).is_some_and(is_stored) {
            if !self.staged.is_empty() {
                self.staged.remove(key);
            }
            self.unchanged.insert(key.clone(), object.uid());
        } else {
            self.unchanged.remove(key);
            self.staged.insert(&Arc::new(object));
        }
    }

    /// Adds an object of the list that cannot be decoded.
    pub(super) fn retain(&mut self, key: &ObjectKey, uid: Uid) {
        self.kept.insert(key.clone(), uid);
    }

    /// Removes the object listed under `key`, which was deleted since.
    pub(super) fn unstage(&mut self, key: &ObjectKey) {
        self.staged.remove(key);
        self.unchanged.remove(key);
        self.kept.remove(key);
    }

    /// Returns whether the list has `uid`, but cannot decode it.
    fn keeps(&self, key: &ObjectKey, uid: Uid) -> bool {
        self.kept.get(key).is_some_and(|kept| !kept.is_some() || *kept == uid)
    }

    /// Returns whether the list has this object.
    fn shows(&self, key: &ObjectKey, uid: Uid) -> bool {
        let staged = self.staged.get(key).map(|staged| staged.uid());
        staged.or(self.unchanged.get(key).copied()) == Some(uid) || self.keeps(key, uid)
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
        let is_past = |it: &&Arc<V>| unconfirmed.is_past(it.uid(), it.meta().version);
        if self.staged.get(key).filter(is_past).is_some() {
            self.staged.remove(key);
        }
    }

    /// Returns the stored objects that are not in the list, except newer ones.
    fn gone(&self, objects: &Objects<V>, version: ResourceVersion) -> Vec<Arc<V>> {
        let is_gone = |stored: &&Arc<V>| {
            let key = stored.key();
            !self.unchanged.contains_key(key)
                && self.staged.get(key).is_none()
                && !self.keeps(key, stored.uid())
                && !stored.meta().version.is_newer_than(version)
        };
        objects.iter().filter(is_gone).cloned().collect()
    }

    /// Returns the new content of the store; adds its differences from `objects` to `deltas`, unless all of it is new.
    fn build(
        self,
        objects: &Objects<V>,
        version: ResourceVersion,
        gone: Vec<Arc<V>>,
        deltas: &mut Vec<Delta<V>>,
    ) -> Objects<V> {
        if objects.is_empty() {
            return self.staged;
        }
        deltas.reserve_exact(gone.len() + self.staged.len());
        let mut next = objects.clone();
        for stored in gone {
            next.remove(stored.key());
            deltas.push(Delta::Deleted(stored));
        }
        for staged in self.staged.iter() {
            // A state newer than the list is a response. Otherwise the list wins.
            let stays = |stored: &&Arc<V>| {
                let at = stored.meta().version;
                is_same_state::<V>(stored, staged)
                    || at.is_newer_than(version) && at.is_newer_than(staged.meta().version)
            };
            if next.get(staged.key()).filter(stays).is_none() {
                let old = next.insert(staged);
                step(old, staged.clone(), deltas);
            }
        }
        next
    }
}

// === impl Shared ===

impl<V: Object> Shared<V> {
    /// Replaces the content with a complete list of this version and reports the differences. A list older than the
    /// store changes nothing and returns false.
    ///
    /// The state stays locked, so nothing else changes the objects. Readers wait only for the swap.
    pub(super) fn take_over(&self, mut relist: Relist<V>, version: ResourceVersion) -> bool {
        let mut state = self.state.lock();
        let state = &mut *state;
        if version.is_older_than(state.seen) {
            return false;
        }
        let was_empty = self.objects.read().is_empty();
        let mut deltas = Vec::new();
        for (key, unconfirmed) in &mut state.unconfirmed {
            relist.confirm(key, unconfirmed, version);
        }
        let next = {
            let objects = self.objects.read();
            let gone = relist.gone(&objects, version);
            let is_changed = !gone.is_empty() || !relist.staged.is_empty();
            is_changed.then(|| relist.build(&objects, version, gone, &mut deltas))
        };
        if let Some(next) = next {
            // The old objects are dropped without the lock.
            let _old = std::mem::replace(&mut *self.objects.write(), next);
        }
        let objects = self.objects.read();
        for (key, unconfirmed) in &mut state.unconfirmed {
            if objects.get(key).is_none_or(|stored| stored.uid() != unconfirmed.created) {
                unconfirmed.created = Uid::NONE;
            }
        }
        drop(objects);
        let keys: Vec<ObjectKey> = state.unconfirmed.keys().cloned().collect();
        keys.iter().for_each(|key| state.forget_if_idle(key));
        if version.is_known() {
            state.seen = version;
        }
        self.unconfirmed.store(state.unconfirmed.len(), Ordering::Relaxed);
        let initial = !std::mem::replace(&mut state.synced, true);
        deltas.iter().for_each(|delta| (state.handler)(delta, initial));
        if was_empty {
            // At a cold start, a vector of these deltas would be the largest allocation.
            let added = self.objects.read();
            added.iter().cloned().for_each(|it| (state.handler)(&Delta::Added(it), initial));
        }
        true
    }
}
