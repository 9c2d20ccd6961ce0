//! State of a store's changes: watch events and responses to own writes are applied here, one
//! after another, and handlers are notified before the next may enter.

use std::cmp::Ordering;
use std::fmt;
use std::sync::{Arc, atomic};

use hashbrown::HashMap;

use super::delta::{Delta, DeltaHandler, step};
use super::index::Indexed;
use super::origin::WriteOrigin;
use super::pending::PendingWrites;
use super::reader::Shared;
use super::table::is_too_large;
use crate::object::{Object, ObjectKey, ResourceVersion, Uid};

/// Number of keys whose answers are remembered; answers for others wait for the watch. Normally one is
/// confirmed within milliseconds: this limit is for a watch that is down for long.
const REMEMBERED: usize = 1 << 16;

/// State to tell news from repetitions, and the handler that is notified of news. Locked for one
/// change and its report at a time.
pub(super) struct StoreState<V> {
    pub(super) handler: DeltaHandler<V>,
    /// Keys with answers that the watch has yet to confirm, or with something that could not be
    /// decoded.
    pub(super) unconfirmed: HashMap<ObjectKey, PendingWrites>,
    /// All news from the API server up to this version has been taken in. What is not newer is a
    /// repetition.
    pub(super) seen: ResourceVersion,
    /// True if a list was taken over.
    pub(super) synced: bool,
    /// Empty; kept for its allocation.
    deltas: Vec<Delta<V>>,
}

/// A change that is being made: this state is locked, and so are the objects.
pub(super) struct Change<'a, V> {
    state: &'a mut StoreState<V>,
    objects: &'a mut Indexed<V>,
    deltas: &'a mut Vec<Delta<V>>,
}

// === impl Shared ===

impl<V: Object> Shared<V> {
    /// Makes one change, then notifies the handlers of it.
    pub(super) fn enter<T>(&self, change: impl FnOnce(&mut Change<'_, V>) -> T) -> T {
        let mut state = self.state.lock();
        let mut deltas = std::mem::take(&mut state.deltas);
        let result = {
            let mut objects = self.objects.write();
            change(&mut Change { state: &mut state, objects: &mut objects, deltas: &mut deltas })
        };
        self.unconfirmed.store(state.unconfirmed.len(), atomic::Ordering::Relaxed);
        for delta in deltas.drain(..) {
            (state.handler)(&delta, false);
        }
        state.deltas = deltas;
        result
    }
}

// === impl StoreState ===

impl<V> StoreState<V> {
    pub(super) fn new() -> StoreState<V> {
        StoreState {
            handler: Box::new(|_, _| {}),
            unconfirmed: HashMap::new(),
            seen: ResourceVersion::UNKNOWN,
            synced: false,
            deltas: Vec::new(),
        }
    }

    /// Returns whether the API server has certainly shown everything up to `version`.
    fn has_passed(&self, version: ResourceVersion) -> bool {
        matches!(version.order(self.seen), Some(Ordering::Less | Ordering::Equal))
    }

    /// Returns whether news at `version` is old. If it is not, it counts as seen from now on.
    fn is_repetition(&mut self, version: ResourceVersion) -> bool {
        if self.has_passed(version) {
            return true;
        }
        if version.is_known() {
            self.seen = version;
        }
        false
    }

    /// Returns the memory of `key`, new if there is none; `None` if too much is remembered already.
    pub(super) fn remember(&mut self, key: &ObjectKey) -> Option<&mut PendingWrites> {
        if self.unconfirmed.len() >= REMEMBERED && !self.unconfirmed.contains_key(key) {
            return None;
        }
        Some(self.unconfirmed.entry_ref(key).or_default())
    }

    /// Forgets a key of which nothing is left to remember.
    pub(super) fn forget_if_idle(&mut self, key: &ObjectKey) {
        if self.unconfirmed.get(key).is_some_and(PendingWrites::is_idle) {
            self.unconfirmed.remove(key);
            if is_too_large(self.unconfirmed.len(), self.unconfirmed.capacity()) {
                self.unconfirmed.shrink_to(2 * self.unconfirmed.len());
            }
        }
    }
}

impl<V> fmt::Debug for StoreState<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreState").field("seen", &self.seen).finish_non_exhaustive()
    }
}

// === impl Change ===

impl<V: Object> Change<'_, V> {
    /// The answer to a write, by `origin`. Returns what to use instead of `object`: what is held,
    /// if that is newer.
    pub(super) fn answered(
        &mut self,
        hash: u64,
        object: Arc<V>,
        origin: Option<WriteOrigin>,
    ) -> Arc<V> {
        let (key, uid, version) = (object.key(), object.uid(), object.meta().version);
        if let Some(held) = self.objects.find(hash, key)
            && !version.is_newer_than(held.meta().version)
        {
            let held = held.clone();
            return self.answered_late(object, held, origin);
        }
        if !version.is_known() {
            return object;
        }
        if self.state.has_passed(version) {
            // The API server has shown everything up to here: the object is gone again.
            if origin.is_some() && self.objects.find(hash, key).is_none() {
                WriteOrigin::note_outdated();
            }
            return object;
        }
        let known = self.objects.find(hash, key).is_some_and(|held| held.uid() == uid);
        let Some(memory) = self.state.remember(key) else { return object };
        if memory.is_past(uid, object.meta().version) {
            // It is gone, or another object has come under its name since.
            if origin.is_some() {
                WriteOrigin::note_outdated();
            }
            return object;
        }
        memory.wrote(uid, version);
        if !known {
            memory.unseen = uid;
        }
        let unread = std::mem::take(&mut memory.unread);
        let old = self.objects.insert(hash, object.clone());
        step(old, Some(object.clone()), origin.filter(|_| !unread), self.deltas);
        object
    }

    /// The answer to a write when something is held that is no older.
    fn answered_late(
        &mut self,
        object: Arc<V>,
        held: Arc<V>,
        origin: Option<WriteOrigin>,
    ) -> Arc<V> {
        let (key, version) = (object.key(), object.meta().version);
        if held.uid() != object.uid() {
            if origin.is_some() && version.is_known() {
                WriteOrigin::note_outdated();
            }
            return object;
        }
        // The answers to two writes came in the wrong order: no handler knows of this one yet.
        if version.is_older_than(held.meta().version)
            && !self.state.has_passed(version)
            && let Some(memory) = self.state.unconfirmed.get_mut(key)
            && !memory.has_written(version)
        {
            memory.wrote(object.uid(), version);
            self.deltas.push(Delta::again(held.clone(), origin));
        }
        held
    }

    /// The API server has deleted `uid` for `origin`, for good.
    pub(super) fn removed(
        &mut self,
        hash: u64,
        key: &ObjectKey,
        uid: Uid,
        origin: Option<WriteOrigin>,
    ) {
        // Otherwise its deletion has already come over the watch, or with a list.
        let held = self.objects.find(hash, key).filter(|held| held.uid() == uid);
        let Some(version) = held.map(|held| held.meta().version) else { return };
        let Some(memory) = self.state.remember(key) else { return };
        memory.bury(uid, version);
        memory.unread = false;
        let gone = self.objects.remove(hash, key);
        step(gone, None, origin, self.deltas);
    }

    /// The watch shows that `object` exists.
    pub(super) fn applied(&mut self, hash: u64, object: Arc<V>) {
        let (uid, version) = (object.uid(), object.meta().version);
        if self.state.is_repetition(version) {
            return;
        }
        let Some(memory) = self.state.unconfirmed.get_mut(object.key()) else {
            let old = self.objects.insert(hash, object.clone());
            return step(old, Some(object), None, self.deltas);
        };
        let key = object.key().clone();
        let reported = memory.confirm(version);
        if memory.unseen == uid {
            memory.unseen = Uid::NONE;
        }
        let held = self.objects.find(hash, &key);
        if memory.is_past(uid, version) {
            if !reported {
                self.missed(hash, object);
            }
        } else if !held.is_some_and(|held| is_same_state::<V>(held, &object)) {
            memory.unread = false;
            let old = self.objects.insert(hash, object.clone());
            step(old, Some(object), None, self.deltas);
        }
        self.state.forget_if_idle(&key);
    }

    /// Reports a change that can no longer be shown: what is held includes it, or it is gone.
    fn missed(&mut self, hash: u64, object: Arc<V>) {
        match self.objects.find(hash, object.key()) {
            Some(held) => self.deltas.push(Delta::again(held.clone(), None)),
            None => {
                self.deltas.push(Delta::Added(object.clone(), None));
                self.deltas.push(Delta::Deleted(object, None));
            }
        }
    }

    /// The watch shows that the object under `key` is gone. `last` is its last state, if it could
    /// be decoded. [`Uid::NONE`]: it says only the name, and means whatever has it.
    pub(super) fn deleted(
        &mut self,
        hash: u64,
        key: &ObjectKey,
        uid: Uid,
        version: ResourceVersion,
        last: Option<Arc<V>>,
    ) {
        if self.state.is_repetition(version) {
            return self.deleted_late(hash, key, uid, version, last);
        }
        let ours = self.state.unconfirmed.get_mut(key).is_some_and(|memory| {
            let written = memory.confirm(version);
            memory.unbury(uid) || written
        });
        if let Some(held) = self.objects.find(hash, key).cloned() {
            let at = held.meta().version;
            let same = !uid.is_some() || held.uid() == uid;
            if !at.is_newer_than(version) && (same || at.is_older_than(version)) {
                // A held namesake that is older went before this one came.
                let last = last.filter(|last| last.uid() == held.uid());
                self.objects.remove(hash, key);
                if let Some(memory) = self.state.unconfirmed.get_mut(key) {
                    memory.unread = false;
                    if !version.is_known() {
                        // A version written since is news if it comes again.
                        *memory = PendingWrites::default();
                    }
                }
                self.deltas.push(Delta::Deleted(last.unwrap_or(held), None));
            } else if !ours {
                // It was written since: a selector can stop matching for a while. Or it came since.
                self.deltas.push(Delta::again(held, None));
            }
        }
        self.state.forget_if_idle(key);
    }

    /// The end of an object, at a version that the watch has passed. Some servers send it with the
    /// version of the object's last state (OpenShift's projects). An object that has ended does not
    /// come back, so this is news if it is held in no newer state.
    fn deleted_late(
        &mut self,
        hash: u64,
        key: &ObjectKey,
        uid: Uid,
        version: ResourceVersion,
        last: Option<Arc<V>>,
    ) {
        let ended = |held: &&Arc<V>| {
            uid.is_some() && held.uid() == uid && !held.meta().version.is_newer_than(version)
        };
        if self.objects.find(hash, key).filter(ended).is_none() {
            return;
        }
        if let Some(held) = self.objects.remove(hash, key) {
            self.deltas.push(Delta::Deleted(last.unwrap_or(held), None));
        }
        if let Some(memory) = self.state.unconfirmed.get_mut(key) {
            memory.unread = false;
        }
        self.state.forget_if_idle(key);
    }

    /// The watch shows that `uid` is under `key`, but it could not be decoded: the last good state
    /// of the same object stays, and what changed is reported with what is shown next. A namesake
    /// is gone.
    pub(super) fn update_undecodable(
        &mut self,
        hash: u64,
        key: &ObjectKey,
        uid: Uid,
        version: ResourceVersion,
    ) {
        if self.state.is_repetition(version) {
            return;
        }
        let memory = self.state.unconfirmed.get_mut(key);
        let reported = memory.is_some_and(|memory| memory.confirm(version));
        let Some(held) = self.objects.find(hash, key).cloned() else {
            return self.state.forget_if_idle(key);
        };
        if held.meta().version.is_newer_than(version) {
            if !reported {
                self.deltas.push(Delta::again(held, None));
            }
        } else if uid.is_some() && held.uid() != uid {
            self.objects.remove(hash, key);
            self.deltas.push(Delta::Deleted(held, None));
            self.state.unconfirmed.entry_ref(key).and_modify(|memory| memory.unread = false);
        } else if !reported && let Some(memory) = self.state.remember(key) {
            memory.unread = true;
        }
        self.state.forget_if_idle(key);
    }

    /// The API server has shown everything up to `version`. Returns whether that is news; `None` if it has shown
    /// more before.
    pub(super) fn passed(&mut self, version: ResourceVersion) -> Option<bool> {
        if version.is_same_as(self.state.seen) {
            return Some(false);
        }
        (version.is_known() && !self.state.is_repetition(version)).then_some(true)
    }

    /// A bookmark at `version` came: forgets what the watch should have shown under `key` by now.
    pub(super) fn overdue(
        &mut self,
        hash: u64,
        key: &ObjectKey,
        version: ResourceVersion,
        is_news: bool,
    ) {
        let Some(memory) = self.state.unconfirmed.get_mut(key) else { return };
        // One that repeats a version may come from a server that has seen no deletion since.
        if is_news {
            memory.age();
        }
        memory.confirm(version);
        let unseen = memory.unseen;
        let outside = |held: &&Arc<V>| {
            unseen.is_some() && held.uid() == unseen && !held.meta().version.is_newer_than(version)
        };
        if self.objects.find(hash, key).filter(outside).is_some() {
            // It was created, and the watch does not show it: it is outside the watch's scope.
            let gone = self.objects.remove(hash, key);
            step(gone, None, None, self.deltas);
        }
        self.state.forget_if_idle(key);
    }
}

/// Returns whether both are certainly the same state of the same object.
pub(super) fn is_same_state<V: Object>(held: &V, object: &V) -> bool {
    held.uid() == object.uid() && held.meta().version.is_same_as(object.meta().version)
}
