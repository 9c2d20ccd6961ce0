//! What is behind the lock.

use std::cmp::Ordering;
use std::sync::Arc;

use super::delta::{Delta, Origin, step};
use super::index::{Indexed, Indexes};
use super::memory::{Memories, Memory};
use super::table::{Hashing, Table};
use crate::object::{Object, ObjectKey, ResourceVersion, Uid};

/// Own writes are remembered for so many keys; others wait for the watch. Normally a write is
/// forgotten within milliseconds: this is for a watch that is down for long.
const REMEMBERED: usize = 1 << 16;
/// So many objects that went before we heard that we made them wait to be told; for others whoever
/// made them has to look again by himself. The next news tells them all.
const LOST: usize = 64;

/// All that readers see, and what is needed to keep it right.
///
/// What is visible under a key is in `added` or `changed`, or else in `base` unless it is in `gone`.
/// The three are empty but for a moment after a relist. No key is in two of them; those in `added`
/// are not in `base`, those in `changed` and `gone` are.
#[derive(Debug)]
pub(super) struct State<V> {
    pub(super) base: Indexed<V>,
    pub(super) added: Indexed<V>,
    pub(super) changed: Indexed<V>,
    pub(super) gone: Table<V>,
    /// For each key on which own writes are under way. Where there is none, handlers were told what
    /// is in `base`.
    pub(super) memory: Memories<V>,
    /// How far the API server's news have been taken in: all up to this version. What is not newer
    /// is a repetition.
    pub(super) seen: ResourceVersion,
    /// The newest list that was taken over: what came and went before it was told to nobody.
    pub(super) listed: ResourceVersion,
    /// Objects that we made and somebody deleted before a list and before the answer to us: they
    /// were never shown, and who made them believes that they are there.
    lost: Vec<Arc<V>>,
    /// The keys written since a relist began to look at `memory`, while it does.
    pub(super) touched: Option<Vec<ObjectKey>>,
}

// === impl State ===

impl<V: Object> State<V> {
    pub(super) fn new(hashing: &Hashing, indexes: &Arc<Indexes<V>>) -> State<V> {
        let indexed = || Indexed::new(hashing.clone(), indexes.clone());
        State {
            base: indexed(),
            added: indexed(),
            changed: indexed(),
            gone: Table::new(hashing.clone()),
            memory: Memories::new(),
            seen: ResourceVersion::UNKNOWN,
            listed: ResourceVersion::UNKNOWN,
            lost: Vec::new(),
            touched: None,
        }
    }

    /// Whether all of the last relist is in `base`.
    pub(super) fn is_settled(&self) -> bool {
        self.added.table().is_empty() && self.changed.table().is_empty() && self.gone.is_empty()
    }

    pub(super) fn visible(&self, hash: u64, key: &ObjectKey) -> Option<&Arc<V>> {
        if self.is_settled() {
            return self.base.find(hash, key);
        }
        let fresh = self.added.find(hash, key).or_else(|| self.changed.find(hash, key));
        fresh.or_else(|| match self.gone.find(hash, key) {
            Some(_) => None,
            None => self.base.find(hash, key),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.base.table().len() + self.added.table().len() - self.gone.len()
    }

    /// All that is visible, in no order.
    pub(super) fn for_each(&self, hashing: &Hashing, each: &mut dyn FnMut(&Arc<V>)) {
        self.added.table().iter().for_each(&mut *each);
        self.changed.table().iter().for_each(&mut *each);
        let settled = self.is_settled();
        for object in self.base.table().iter() {
            if settled || !self.is_hidden(hashing, object) {
                each(object);
            }
        }
    }

    /// All that is visible under a value of an index.
    pub(super) fn under(
        &self,
        hashing: &Hashing,
        name: &str,
        value: &str,
        each: &mut dyn FnMut(&Arc<V>),
    ) {
        self.added.under(name, value, each);
        self.changed.under(name, value, each);
        let settled = self.is_settled();
        self.base.under(name, value, &mut |object| {
            if settled || !self.is_hidden(hashing, object) {
                each(object);
            }
        });
    }

    /// Whether an object in `base` is not visible.
    fn is_hidden(&self, hashing: &Hashing, object: &Arc<V>) -> bool {
        let (hash, key) = (hashing.hash(object.key()), object.key());
        self.changed.find(hash, key).is_some() || self.gone.find(hash, key).is_some()
    }

    /// Makes `object` visible; what was.
    pub(super) fn put(&mut self, hash: u64, object: Arc<V>) -> Option<Arc<V>> {
        let key = object.key();
        if self.added.find(hash, key).is_some() {
            return self.added.insert(hash, object);
        }
        if self.gone.remove(hash, key).is_some() {
            // Still in `base`, where handlers know it from.
            self.changed.insert(hash, object);
            return None;
        }
        if self.changed.find(hash, key).is_some() {
            return self.changed.insert(hash, object);
        }
        self.base.insert(hash, object)
    }

    /// Makes what is under `key` invisible; what was.
    fn take(&mut self, hash: u64, key: &ObjectKey) -> Option<Arc<V>> {
        if let Some(object) = self.added.remove(hash, key) {
            return Some(object);
        }
        if let Some(object) = self.changed.remove(hash, key) {
            if let Some(old) = self.base.find(hash, key).cloned() {
                self.gone.insert(hash, old);
            }
            return Some(object);
        }
        match self.gone.find(hash, key) {
            Some(_) => None,
            None => self.base.remove(hash, key),
        }
    }

    /// The memory of `key`, begun if need be; none if there is too much already.
    fn remember(&mut self, hash: u64, key: &ObjectKey) -> Option<&mut Memory<V>> {
        if !self.memory.contains_key(key) {
            if self.memory.len() >= REMEMBERED {
                return None;
            }
            // Not what is visible: of a relist handlers are told when it reaches `base`.
            let told = self.base.find(hash, key).cloned();
            self.memory.insert(key.clone(), Memory::new(told));
        }
        if let Some(touched) = &mut self.touched {
            touched.push(key.clone());
        }
        self.memory.get_mut(key)
    }

    /// An answer of the API server to us. What is to be used instead of `object`: what is held if
    /// that is newer.
    pub(super) fn answered(&mut self, hash: u64, object: Arc<V>, ours: bool) -> Arc<V> {
        let (key, version) = (object.key(), object.meta().version);
        let held = self.visible(hash, key).cloned();
        if let Some(held) = &held
            && !version.is_newer_than(held.meta().version)
        {
            let same = held.uid() == object.uid();
            let overtaken = same && version.is_older_than(held.meta().version);
            if overtaken && !self.has_passed(version) && self.memory.contains_key(key) {
                // The answers to two writes have changed places.
                if let Some(memory) = self.remember(hash, key) {
                    memory.wrote(version, ours);
                }
            }
            return if same { held.clone() } else { object };
        }
        // Up to `seen` the API server has told us everything: the object is gone again.
        if !version.is_known() || self.has_passed(version) {
            let untold =
                matches!(version.order(self.listed), Some(Ordering::Less | Ordering::Equal));
            if ours && untold && held.is_none() && self.lost.len() < LOST {
                self.lost.push(object.clone());
            }
            return object;
        }
        let Some(memory) = self.remember(hash, key) else { return object };
        if memory.has_removed(object.uid()) {
            return object;
        }
        memory.wrote(version, ours);
        self.put(hash, object.clone());
        object
    }

    /// Tells what was lost: that it was there, and that it is gone.
    pub(super) fn tell_lost(&mut self, hashing: &Hashing, out: &mut Vec<Delta<V>>) {
        for object in std::mem::take(&mut self.lost) {
            let key = object.key();
            let told = match self.memory.get(key) {
                Some(memory) => memory.told().is_some(),
                None => self.base.find(hashing.hash(key), key).is_some(),
            };
            // That a namesake went, or came, is news enough.
            if told {
                continue;
            }
            step(None, Some(object.clone()), Origin::Server, out);
            step(Some(object), None, Origin::Server, out);
        }
    }

    /// The API server has deleted `uid` for us, for good.
    pub(super) fn removed(&mut self, hash: u64, key: &ObjectKey, uid: Uid) {
        let held = self.visible(hash, key).is_some_and(|held| held.uid() == uid);
        let told = self.memory.get(key).and_then(Memory::told);
        let told = told.is_some_and(|told| told.uid() == uid);
        if !held && !told {
            // Its deletion has come over the watch already.
            return;
        }
        let Some(memory) = self.remember(hash, key) else { return };
        memory.removed(uid);
        if held {
            self.take(hash, key);
        }
    }

    /// Whether news at `version` are none. If not, they are taken note of.
    fn is_repetition(&mut self, version: ResourceVersion) -> bool {
        if self.has_passed(version) {
            return true;
        }
        if version.is_known() {
            self.seen = version;
        }
        false
    }

    /// Whether the API server has surely told us all up to `version`.
    fn has_passed(&self, version: ResourceVersion) -> bool {
        matches!(version.order(self.seen), Some(Ordering::Less | Ordering::Equal))
    }

    /// The watch says that there is `object`.
    pub(super) fn applied(&mut self, hash: u64, object: Arc<V>, out: &mut Vec<Delta<V>>) {
        let version = object.meta().version;
        if self.is_repetition(version) {
            return;
        }
        if self.memory.is_empty() || !self.memory.contains_key(object.key()) {
            let told = self.put(hash, object.clone());
            return step(told, Some(object), Origin::Unclaimed, out);
        }
        let key = object.key().clone();
        let held = self.visible(hash, &key).cloned();
        let memory = self.memory.get_mut(&key).expect("it is there, as was just seen");
        let ours = memory.pass(version) && !memory.foreign;
        let origin = if ours { Origin::Own } else { Origin::Server };
        let newest = match held {
            Some(held) if held.meta().version.is_newer_than(version) => {
                if held.uid() == object.uid() { held } else { object }
            }
            // We have deleted it since: handlers are told, so that nothing is hidden from them, but
            // it is not seen again.
            _ if memory.is_past(object.uid(), version) => object,
            _ => {
                self.put(hash, object.clone());
                object
            }
        };
        if let Some(memory) = self.memory.get_mut(&key) {
            step(memory.tell(newest.clone(), version), Some(newest), origin, out);
        }
        self.forget_if_idle(hash, &key, out);
    }

    /// The watch says that `object` is gone; this was its last state.
    pub(super) fn deleted(&mut self, hash: u64, object: Arc<V>, out: &mut Vec<Delta<V>>) {
        let version = object.meta().version;
        if self.is_repetition(version) {
            return;
        }
        let (key, uid) = (object.key().clone(), object.uid());
        let held = self.visible(hash, &key).cloned();
        // It may have been written by us after it went: a selector does not match for a while.
        let stays = |held: &Arc<V>| held.meta().version.is_newer_than(version);
        // A namesake that is held and older went before this one came.
        let goes = |held: &Arc<V>| {
            !stays(held) && (held.uid() == uid || held.meta().version.is_older_than(version))
        };
        let went = held.as_ref().filter(|held| goes(held)).and_then(|_| self.take(hash, &key));
        let Some(memory) = self.memory.get_mut(&key) else {
            if let Some(went) = went {
                let (last, origin) = match went.uid() == uid {
                    true => (object, Origin::Unclaimed),
                    false => (went, Origin::Server),
                };
                out.push(Delta::Deleted(last, origin));
            }
            return;
        };
        let ours = memory.pass(version) | memory.forget_removed(uid);
        let origin = if ours && !memory.foreign { Origin::Own } else { Origin::Server };
        match memory.untell() {
            Some(told) => {
                let last = if told.uid() == uid { object } else { told };
                let origin = if last.uid() == uid { origin } else { Origin::Server };
                memory.foreign = false;
                out.push(Delta::Deleted(last, origin));
            }
            // Handlers never knew it. What they are told next is more than they can know.
            None => memory.foreign |= !ours,
        }
        self.forget_if_idle(hash, &key, out);
    }

    /// The watch says that the object under `key`, of which nothing else could be read, is gone.
    pub(super) fn vanished(
        &mut self,
        hash: u64,
        key: &ObjectKey,
        version: ResourceVersion,
        out: &mut Vec<Delta<V>>,
    ) {
        if self.is_repetition(version) {
            return;
        }
        let newer = |held: &Arc<V>| held.meta().version.is_newer_than(version);
        if !self.visible(hash, key).is_some_and(newer) {
            self.let_go(hash, key, out);
        } else if let Some(memory) = self.memory.get_mut(key) {
            step(memory.untell(), None, Origin::Server, out);
        }
    }

    /// The watch says that under `key` there is `uid`, of which nothing else could be read.
    pub(super) fn displaced(
        &mut self,
        hash: u64,
        key: &ObjectKey,
        uid: Uid,
        out: &mut Vec<Delta<V>>,
    ) {
        if let Some(memory) = self.memory.get_mut(key) {
            memory.foreign = true;
        } else if self.visible(hash, key).is_some_and(|held| uid.is_some() && held.uid() != uid) {
            self.let_go(hash, key, out);
        }
    }

    /// What is under `key` is gone, told or not.
    fn let_go(&mut self, hash: u64, key: &ObjectKey, out: &mut Vec<Delta<V>>) {
        let went = self.take(hash, key);
        let told = match self.memory.remove(key) {
            Some(mut memory) => memory.untell(),
            None => went,
        };
        step(told, None, Origin::Server, out);
    }

    /// The API server has said everything up to `version`: whether that is news.
    pub(super) fn passed(&mut self, version: ResourceVersion) -> bool {
        version.is_known() && !self.is_repetition(version)
    }

    /// A bookmark at `version` was read: forgets what the watch should have shown and has not.
    pub(super) fn overdue(
        &mut self,
        hash: u64,
        key: &ObjectKey,
        version: ResourceVersion,
        out: &mut Vec<Delta<V>>,
    ) {
        let Some(memory) = self.memory.get_mut(key) else { return };
        memory.age();
        let unseen = memory.forget_writes(version) && memory.told().is_none();
        let held = self.visible(hash, key);
        if unseen && held.is_some_and(|held| !held.meta().version.is_newer_than(version)) {
            // We created it, and the watch shows no such object: it is not in its scope.
            self.take(hash, key);
        }
        self.forget_if_idle(hash, key, out);
    }

    /// Forgets a key on which nothing is under way any more. Then handlers know what is held.
    pub(super) fn forget_if_idle(&mut self, hash: u64, key: &ObjectKey, out: &mut Vec<Delta<V>>) {
        if !self.memory.get(key).is_some_and(Memory::is_idle) {
            return;
        }
        let told = self.memory.remove(key).and_then(|mut memory| memory.untell());
        let held = self.visible(hash, key).cloned();
        let known = match (&told, &held) {
            (Some(told), Some(held)) => Arc::ptr_eq(told, held),
            (None, None) => true,
            _ => false,
        };
        if !known {
            step(told, held, Origin::Server, out);
        }
    }
}
