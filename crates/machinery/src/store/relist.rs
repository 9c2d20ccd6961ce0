//! A list replaces what is held: it is built beside, swapped in at one instant, then reported.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::{HashMap, HashSet, HashTable};

use super::delta::{Delta, step};
use super::index::Indexed;
use super::pending::PendingWrites;
use super::reader::Shared;
use super::state::{StoreState, is_same_state};
use super::table::Hashing;
use crate::object::{Object, ObjectKey, ResourceVersion, Uid};

/// A list, reduced to its differences from what is held.
pub(super) struct Relist<V> {
    /// Keys whose objects were held just as they are listed.
    unchanged: HashTable<ObjectKey>,
    /// All other objects of the list.
    staged: Indexed<V>,
    /// Objects that the list has but that could not be decoded.
    kept: HashMap<ObjectKey, Uid>,
}

/// An object that a list has in an older state than the held one, although the held one is no newer
/// than the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// Its key.
    pub key: ObjectKey,
    /// The version held.
    pub held: ResourceVersion,
    /// The version listed.
    pub listed: ResourceVersion,
}

// === impl Relist ===

impl<V: Object> Relist<V> {
    /// For a store with this many objects.
    pub(super) fn new(held: usize, staged: Indexed<V>) -> Relist<V> {
        Relist { unchanged: HashTable::with_capacity(held), staged, kept: HashMap::new() }
    }

    /// The list has `object`. If several have the same key, the last one counts.
    pub(super) fn listed(&mut self, shared: &Shared<V>, object: V) {
        let key = object.key();
        let hash = shared.hashing.hash(key);
        if !self.kept.is_empty() {
            self.kept.remove(key);
        }
        let same = shared
            .objects
            .read()
            .find(hash, key)
            .is_some_and(|held| is_same_state::<V>(held, &object));
        if same {
            if !self.staged.table().is_empty() {
                self.staged.remove(hash, key);
            }
            self.insert_unchanged(hash, key, &shared.hashing);
        } else {
            self.forget_unchanged(hash, key);
            self.staged.insert(hash, Arc::new(object));
        }
    }

    /// The list has `uid` under `key`, but it cannot be decoded.
    pub(super) fn retain(&mut self, key: &ObjectKey, uid: Uid) {
        self.kept.insert(key.clone(), uid);
    }

    /// Removes the object listed under `key`, which was deleted since.
    pub(super) fn unstage(&mut self, hash: u64, key: &ObjectKey) {
        self.staged.remove(hash, key);
        self.forget_unchanged(hash, key);
        self.kept.remove(key);
    }

    /// The objects of a list of this version that contradict what is held. The lock is taken for one
    /// of them at a time, so that no reader waits for all.
    pub(super) fn contradictions(
        &self,
        shared: &Shared<V>,
        version: ResourceVersion,
    ) -> Vec<Contradiction> {
        if !version.is_known() || shared.objects.read().table().is_empty() {
            return Vec::new();
        }
        let contradiction = |object: &Arc<V>| {
            let (key, listed) = (object.key(), object.meta().version);
            let hash = shared.hashing.hash(key);
            let held = shared.objects.read().find(hash, key)?.meta().version;
            let contradicts = listed.is_older_than(held) && !held.is_newer_than(version);
            contradicts.then(|| Contradiction { key: key.clone(), held, listed })
        };
        self.staged.table().iter().filter_map(contradiction).collect()
    }

    fn insert_unchanged(&mut self, hash: u64, key: &ObjectKey, hashing: &Hashing) {
        if !self.is_unchanged(hash, key) {
            self.unchanged.insert_unique(hash, key.clone(), |key| hashing.hash(key));
        }
    }

    fn is_unchanged(&self, hash: u64, key: &ObjectKey) -> bool {
        self.unchanged.find(hash, |known| known == key).is_some()
    }

    fn forget_unchanged(&mut self, hash: u64, key: &ObjectKey) {
        if let Ok(found) = self.unchanged.find_entry(hash, |known| known == key) {
            found.remove();
        }
    }

    /// Returns whether the list has `uid` in a form that could not be decoded.
    fn keeps(&self, key: &ObjectKey, uid: Uid) -> bool {
        self.kept.get(key).is_some_and(|kept| !kept.is_some() || *kept == uid)
    }

    /// The list meets an answer that the watch has not confirmed: whichever is newer stays. Then
    /// forgets the answers that the list includes. Returns an object of the list that has gone since, if
    /// no handler has heard of it.
    fn resolve(
        &mut self,
        shared: &Shared<V>,
        key: &ObjectKey,
        memory: &mut PendingWrites,
        version: ResourceVersion,
    ) -> Option<Arc<V>> {
        let hash = shared.hashing.hash(key);
        let mut missed = None;
        let state = |object: &Arc<V>| (object.uid(), object.meta().version);
        let unchanged = self
            .is_unchanged(hash, key)
            .then(|| memory.held_at(shared.objects.read().find(hash, key).map(state), version));
        let staged = self.staged.find(hash, key).map(state);
        if let Some((uid, at)) = staged.filter(|(uid, at)| memory.is_past(*uid, *at)) {
            let past = self.staged.remove(hash, key);
            if !memory.has_buried(uid) && at.is_known() {
                self.insert_unchanged(hash, key, &shared.hashing);
                let is_new = !memory.has_written(at);
                let is_held = || shared.objects.read().find(hash, key).is_some();
                missed = past.filter(|_| is_new && !is_held());
            }
        }
        memory.confirm(version);
        memory.unbury_unlisted(|uid| {
            staged.is_some_and(|(listed, _)| listed == uid)
                || unchanged == Some(Some(uid))
                || self.keeps(key, uid)
        });
        memory.unread = false;
        if unchanged.is_some() || staged.is_some() || self.kept.contains_key(key) {
            memory.unseen = Uid::NONE;
        }
        missed
    }

    /// The held objects that the list does not have, except those created after it.
    fn gone(
        &self,
        objects: &Indexed<V>,
        hashing: &Hashing,
        state: &StoreState<V>,
        version: ResourceVersion,
    ) -> Vec<Arc<V>> {
        let is_gone = |held: &&Arc<V>| {
            let (key, hash) = (held.key(), hashing.hash(held.key()));
            let newer = || {
                state.unconfirmed.contains_key(key) && held.meta().version.is_newer_than(version)
            };
            !self.is_unchanged(hash, key)
                && self.staged.find(hash, key).is_none()
                && !self.keeps(key, held.uid())
                && !newer()
        };
        objects.table().iter().filter(is_gone).cloned().collect()
    }

    /// Returns the objects held from now on; adds the differences from `objects` to `deltas`.
    fn build(
        self,
        objects: &Indexed<V>,
        hashing: &Hashing,
        gone: Vec<Arc<V>>,
        deltas: &mut Vec<Delta<V>>,
    ) -> Indexed<V> {
        deltas.reserve_exact(gone.len() + self.staged.table().len());
        if objects.table().is_empty() {
            deltas.extend(self.staged.table().iter().map(|new| Delta::Added(new.clone(), None)));
            return self.staged;
        }
        let mut next = objects.clone();
        for held in gone {
            next.remove(hashing.hash(held.key()), held.key());
            deltas.push(Delta::Deleted(held, None));
        }
        for staged in self.staged.table().iter() {
            let hash = hashing.hash(staged.key());
            let held = next.find(hash, staged.key());
            let stays = |held: &&Arc<V>| {
                held.meta().version.is_newer_than(staged.meta().version)
                    || is_same_state::<V>(held, staged)
            };
            if held.filter(stays).is_none() {
                let old = next.insert(hash, staged.clone());
                step(old, Some(staged.clone()), None, deltas);
            }
        }
        next
    }
}

// === impl Shared ===

impl<V: Object> Shared<V> {
    /// Takes over a list that is complete, at this version, and reports how it differs from what
    /// was held. If it is older than what has already been seen, changes nothing and returns false.
    ///
    /// Whatever changes the objects needs the state, which is locked all the while. So
    /// readers wait only for the swap.
    pub(super) fn take_over(&self, mut relist: Relist<V>, version: ResourceVersion) -> bool {
        let mut state = self.state.lock();
        let state = &mut *state;
        if version.is_older_than(state.seen) {
            return false;
        }
        let mut deltas = Vec::new();
        // A foreign change that the list has swallowed may be part of these answers.
        let mut doubtful: HashSet<ObjectKey> = HashSet::new();
        for (key, memory) in &mut state.unconfirmed {
            if memory.has_writes() {
                doubtful.insert(key.clone());
            }
            if let Some(missed) = relist.resolve(self, key, memory, version) {
                deltas.extend([Delta::Added(missed.clone(), None), Delta::Deleted(missed, None)]);
            }
        }
        let kept: Vec<ObjectKey> = relist.kept.keys().cloned().collect();
        let next = {
            let objects = self.objects.read();
            let gone = relist.gone(&objects, &self.hashing, state, version);
            let changed = !gone.is_empty() || !relist.staged.table().is_empty();
            changed.then(|| relist.build(&objects, &self.hashing, gone, &mut deltas))
        };
        if let Some(next) = next {
            // The old objects are dropped without the lock.
            let _old = std::mem::replace(&mut *self.objects.write(), next);
        }
        let objects = self.objects.read();
        let find = |key: &ObjectKey| objects.find(self.hashing.hash(key), key).cloned();
        if !doubtful.is_empty() {
            for delta in &deltas {
                doubtful.remove(delta.object().key());
            }
            deltas.extend(doubtful.iter().filter_map(find).map(|held| Delta::again(held, None)));
        }
        for key in kept.iter().filter(|key| find(key).is_some()) {
            if let Some(memory) = state.remember(key) {
                memory.unread = true;
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
        true
    }
}
