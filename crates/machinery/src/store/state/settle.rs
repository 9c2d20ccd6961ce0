//! Makes a list that is shown part of `base`, one object at a time.

use std::sync::Arc;

use super::State;
use crate::object::{Object, ObjectKey, ResourceVersion};
use crate::store::delta::{Delta, Origin, step};
use crate::store::relist::Item;
use crate::store::table::Hashing;

impl<V: Object> State<V> {
    /// Takes an object out of `base`; returns whether there may be more.
    pub(in crate::store) fn settle_gone(
        &mut self,
        hashing: &Hashing,
        out: &mut Vec<Delta<V>>,
    ) -> bool {
        let Some(object) = self.gone.pop() else { return false };
        let key = object.key();
        let held = self.base.remove(hashing.hash(key), key);
        let told = match self.memory.get_mut(key) {
            Some(memory) => memory.untell(),
            None => held.clone(),
        };
        if told.is_none() {
            // We created it and somebody has deleted it. Whoever wants it must know.
            step(None, held.clone(), Origin::Server, out);
        }
        step(told.or(held), None, Origin::Server, out);
        true
    }

    pub(in crate::store) fn settle_changed(
        &mut self,
        hashing: &Hashing,
        out: &mut Vec<Delta<V>>,
    ) -> bool {
        let object = self.changed.pop();
        self.settle_one(object, hashing, out)
    }

    pub(in crate::store) fn settle_added(
        &mut self,
        hashing: &Hashing,
        out: &mut Vec<Delta<V>>,
    ) -> bool {
        let object = self.added.pop();
        self.settle_one(object, hashing, out)
    }

    /// Puts an object into `base`; returns whether there may be more.
    fn settle_one(
        &mut self,
        object: Option<Arc<V>>,
        hashing: &Hashing,
        out: &mut Vec<Delta<V>>,
    ) -> bool {
        let Some(object) = object else { return false };
        let held = self.base.insert(hashing.hash(object.key()), object.clone());
        let told = match self.memory.get_mut(object.key()) {
            Some(memory) => {
                memory.settled = self.lists;
                memory.tell(object.clone(), object.meta().version)
            }
            None => held,
        };
        step(told, Some(object), Origin::Server, out);
        true
    }

    /// Handles a key with own writes in flight, after a list is shown and settled.
    pub(in crate::store) fn confirm(
        &mut self,
        hash: u64,
        key: &ObjectKey,
        item: Item<V>,
        version: ResourceVersion,
        out: &mut Vec<Delta<V>>,
    ) {
        let held = self.visible(hash, key).cloned();
        let Some(memory) = self.memory.get_mut(key) else { return };
        match item.object {
            _ if memory.settled == self.lists => {}
            None => step(memory.untell(), None, Origin::Server, out),
            // What could not be read before is no newer.
            Some(listed) if memory.is_old_news(&listed) => memory.foreign = false,
            Some(listed) => {
                let shown = listed.meta().version;
                let removed = memory.has_removed(listed.uid());
                let new = held.filter(|_| !removed).unwrap_or(listed);
                step(memory.tell(new.clone(), shown), Some(new), Origin::Server, out);
            }
        }
        memory.forget_writes(version);
        for uid in item.removed {
            // What was created after the list is not in it, and the watch has yet to show it.
            if !memory.awaits(uid) {
                memory.forget_removed(uid);
            }
        }
        self.forget_if_idle(hash, key, out);
    }
}
