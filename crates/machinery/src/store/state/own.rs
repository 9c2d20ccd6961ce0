//! Our own writes, as the API server has answered them.

use std::cmp::Ordering;
use std::sync::Arc;

use super::State;
use crate::object::{Object, ObjectKey, Uid};
use crate::store::delta::{Delta, Origin, step};
use crate::store::memory::Memory;
use crate::store::table::Hashing;

/// How many objects that were gone before anybody was told of them can wait to be reported; whoever
/// wants any others must check again. The next news reports them all.
const LOST: usize = 64;

impl<V: Object> State<V> {
    /// The API server has answered us. Returns what to use instead of `object`: what is held, if
    /// that is newer.
    pub(in crate::store) fn answered(&mut self, hash: u64, object: Arc<V>, ours: bool) -> Arc<V> {
        let (key, version) = (object.key(), object.meta().version);
        let held = self.visible(hash, key).cloned();
        if let Some(held) = &held
            && !version.is_newer_than(held.meta().version)
        {
            let same = held.uid() == object.uid();
            let overtaken = same && version.is_older_than(held.meta().version);
            if overtaken && !self.has_passed(version) && self.memory.contains_key(key) {
                // The answers to two writes came in the wrong order.
                if let Some(memory) = self.remember(hash, key) {
                    memory.wrote(object.uid(), version, ours);
                }
            }
            return if same { held.clone() } else { object };
        }
        // The API server has told us everything up to `seen`: the object is gone again.
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
        memory.wrote(object.uid(), version, ours);
        self.put(hash, object.clone());
        object
    }

    /// Reports lost objects: that they existed, and that they are gone.
    pub(in crate::store) fn tell_lost(&mut self, hashing: &Hashing, out: &mut Vec<Delta<V>>) {
        for object in std::mem::take(&mut self.lost) {
            let key = object.key();
            let told = match self.memory.get(key) {
                Some(memory) => memory.told().is_some(),
                None => self.base.find(hashing.hash(key), key).is_some(),
            };
            // That a namesake came or went is news enough.
            if told {
                continue;
            }
            step(None, Some(object.clone()), Origin::Server, out);
            step(Some(object), None, Origin::Server, out);
        }
    }

    /// The API server has deleted `uid` for us, for good.
    pub(in crate::store) fn removed(&mut self, hash: u64, key: &ObjectKey, uid: Uid) {
        let held = self.visible(hash, key).is_some_and(|held| held.uid() == uid);
        let told = self.memory.get(key).and_then(Memory::told);
        let told = told.is_some_and(|told| told.uid() == uid);
        if !held && (!told || self.is_hidden(hash, key)) {
            // Its deletion has already come over the watch, or the list being settled lacks it.
            return;
        }
        let Some(memory) = self.remember(hash, key) else { return };
        memory.removed(uid);
        if held {
            let unsettled = self.added.find(hash, key).is_some();
            let went = self.take(hash, key).filter(|_| unsettled);
            went.into_iter().for_each(|object| self.lose(object));
        }
    }

    /// We have deleted what the list being settled has added. If handlers were not told of it yet,
    /// they will never be by settling.
    fn lose(&mut self, object: Arc<V>) {
        if let Some(memory) = self.memory.get_mut(object.key())
            && memory.told().is_none()
            && self.lost.len() < LOST
        {
            memory.settled = self.lists;
            self.lost.push(object);
        }
    }
}
