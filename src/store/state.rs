//! What is behind the lock: what is visible here, what changes it in the files below.

mod own;
mod news;
mod settle;

use std::cmp::Ordering;
use std::sync::Arc;

use super::delta::{Delta, Origin, step};
use super::index::{Indexed, Indexes};
use super::memory::{Memories, Memory};
use super::table::{Hashing, Table};
use crate::object::{Object, ObjectKey, ResourceVersion};

/// Own writes are remembered for so many keys; others wait for the watch. Normally a write is
/// forgotten within milliseconds: this is for a watch that is down for long.
const REMEMBERED: usize = 1 << 16;

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
    /// For each key on which own writes are under way, or of which something could not be read.
    /// Where there is none, handlers were told what is in `base`.
    pub(super) memory: Memories<V>,
    /// How far the API server's news have been taken in: all up to this version. What is not newer
    /// is a repetition.
    pub(super) seen: ResourceVersion,
    /// The newest list that was taken over: what came and went before it was told to nobody.
    pub(super) listed: ResourceVersion,
    /// How many lists were taken over; the number of the last one.
    pub(super) lists: u64,
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
            lists: 0,
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

    /// All that handlers were told, in no order.
    pub(super) fn told(&self, each: &mut dyn FnMut(&Arc<V>)) {
        let settled = |object: &&Arc<V>| !self.memory.contains_key(object.key());
        self.base.table().iter().filter(settled).for_each(&mut *each);
        self.memory.iter().filter_map(Memory::told).for_each(each);
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

    /// Whether the API server has surely told us all up to `version`.
    fn has_passed(&self, version: ResourceVersion) -> bool {
        matches!(version.order(self.seen), Some(Ordering::Less | Ordering::Equal))
    }

    /// Forgets a key on which nothing is under way any more. Then handlers know what is held.
    pub(super) fn forget_if_idle(&mut self, hash: u64, key: &ObjectKey, out: &mut Vec<Delta<V>>) {
        let Some(memory) = self.memory.get(key).filter(|memory| memory.is_idle()) else { return };
        let held = self.visible(hash, key).cloned();
        let known = match (memory.told(), &held) {
            (Some(told), Some(held)) => Arc::ptr_eq(told, held),
            (None, None) => true,
            _ => false,
        };
        if known && memory.foreign && held.is_some() {
            return;
        }
        let told = self.memory.remove(key).and_then(|mut memory| memory.untell());
        if !known {
            step(told, held, Origin::Server, out);
        }
    }
}
