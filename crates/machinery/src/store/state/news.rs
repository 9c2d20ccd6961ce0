//! What the watch says.

use std::sync::Arc;

use super::State;
use crate::object::{Object, ObjectKey, ResourceVersion, Uid};
use crate::store::delta::{Delta, Origin, step};

impl<V: Object> State<V> {
    /// Whether news at `version` is old. If it is not, it is noted as seen.
    fn is_repetition(&mut self, version: ResourceVersion) -> bool {
        if self.has_passed(version) {
            return true;
        }
        if version.is_known() {
            self.seen = version;
        }
        false
    }

    /// The watch says that `object` exists.
    pub(in crate::store) fn applied(&mut self, hash: u64, object: Arc<V>, out: &mut Vec<Delta<V>>) {
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
            // it does not become visible again.
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
    pub(in crate::store) fn deleted(&mut self, hash: u64, object: Arc<V>, out: &mut Vec<Delta<V>>) {
        let version = object.meta().version;
        if self.is_repetition(version) {
            return;
        }
        let (key, uid) = (object.key().clone(), object.uid());
        let held = self.visible(hash, &key).cloned();
        // We may have written it after it went: a selector can stop matching for a while.
        let stays = |held: &Arc<V>| held.meta().version.is_newer_than(version);
        // A held namesake that is older went before this one came.
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
            // Handlers never knew of it. What they are told next is more than they can know.
            None => memory.foreign |= !ours,
        }
        self.forget_if_idle(hash, &key, out);
    }

    /// The watch says that the object under `key` is gone; nothing else about it could be read.
    pub(in crate::store) fn vanished(
        &mut self,
        hash: u64,
        key: &ObjectKey,
        version: ResourceVersion,
        out: &mut Vec<Delta<V>>,
    ) {
        if self.is_repetition(version) {
            return;
        }
        let stays = |held: &Arc<V>| held.meta().version.is_newer_than(version);
        let went = match self.visible(hash, key) {
            Some(held) if stays(held) => None,
            _ => self.take(hash, key),
        };
        let Some(memory) = self.memory.get_mut(key) else {
            return step(went, None, Origin::Server, out);
        };
        memory.pass(version);
        memory.forget_removed_up_to_now();
        let told = memory.untell();
        memory.foreign = told.is_none();
        step(told, None, Origin::Server, out);
        self.forget_if_idle(hash, key, out);
    }

    /// The watch or a list says that `uid` is under `key`; nothing else about it could be read.
    /// Handlers cannot be told what has changed, so it is remembered for what they are told next,
    /// which may be our own write.
    pub(in crate::store) fn displaced(
        &mut self,
        hash: u64,
        key: &ObjectKey,
        uid: Uid,
        out: &mut Vec<Delta<V>>,
    ) {
        let held = self.visible(hash, key).map(|held| held.uid());
        let awaits = |held: Uid| self.memory.get(key).is_some_and(|memory| memory.awaits(held));
        if held.is_some_and(|held| uid.is_some() && held != uid && !awaits(held)) {
            self.let_go(hash, key, out);
        } else if (held.is_some() || self.memory.contains_key(key))
            && let Some(memory) = self.remember(hash, key)
        {
            memory.foreign = true;
        }
    }

    /// What is under `key` is gone, whether handlers were told of it or not.
    fn let_go(&mut self, hash: u64, key: &ObjectKey, out: &mut Vec<Delta<V>>) {
        let went = self.take(hash, key);
        let told = match self.memory.remove(key) {
            Some(mut memory) => memory.untell(),
            None => went,
        };
        step(told, None, Origin::Server, out);
    }

    /// The API server has said everything up to `version`. Returns whether that is news.
    pub(in crate::store) fn passed(&mut self, version: ResourceVersion) -> bool {
        version.is_known() && !self.is_repetition(version)
    }

    /// A bookmark at `version` was read: forgets what the watch should have shown by now but has
    /// not.
    pub(in crate::store) fn overdue(
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
            // We created it, and the watch does not show it: it is outside the watch's scope.
            self.take(hash, key);
        }
        self.forget_if_idle(hash, key, out);
    }
}
