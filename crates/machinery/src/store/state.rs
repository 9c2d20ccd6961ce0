//! What is behind the lock: what is visible is here, what changes it is in the submodules.

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

/// How many keys own writes are remembered for; writes to others wait for the watch. Normally a
/// write is forgotten within milliseconds: this limit is for a watch that is down for long.
const REMEMBERED: usize = 1 << 16;

/// Everything that readers see, and what is needed to keep it right.
///
/// The visible object of a key is in `added` or `changed`, or else in `base`, unless it is in
/// `gone`. These three are empty except for a moment after a relist. No key is in two of them;
/// those in `added` are not in `base`, those in `changed` and `gone` are.
#[derive(Debug)]
pub(super) struct State<V> {
    pub(super) base: Indexed<V>,
    pub(super) added: Indexed<V>,
    pub(super) changed: Indexed<V>,
    pub(super) gone: Table<V>,
    /// For each key with own writes in flight, or with something that could not be read. For all
    /// others, handlers were told what is in `base`.
    pub(super) memory: Memories<V>,
    /// All news from the API server up to this version has been taken in. What is not newer is a
    /// repetition.
    pub(super) seen: ResourceVersion,
    /// The newest list that was taken over: what came and went before it was never reported.
    pub(super) listed: ResourceVersion,
    /// How many lists were taken over, which is also the number of the last one.
    pub(super) lists: u64,
    /// Objects that are gone before handlers were told of them. Those that we created and somebody
    /// deleted before a list and before we got the answer: their creators believe that they exist.
    /// And those of others that a list has added and that we deleted before it was settled.
    lost: Vec<Arc<V>>,
    /// While a relist examines `memory`: the keys written since it began to.
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

    /// Whether the last relist is entirely in `base`.
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

    /// Everything that is visible, in no particular order.
    pub(super) fn for_each(&self, hashing: &Hashing, each: &mut dyn FnMut(&Arc<V>)) {
        self.added.table().iter().for_each(&mut *each);
        self.changed.table().iter().for_each(&mut *each);
        let settled = self.is_settled();
        for object in self.base.table().iter() {
            if settled || !self.is_hidden(hashing.hash(object.key()), object.key()) {
                each(object);
            }
        }
    }

    /// Everything that handlers were told, in no particular order.
    pub(super) fn told(&self, each: &mut dyn FnMut(&Arc<V>)) {
        let settled = |object: &&Arc<V>| !self.memory.contains_key(object.key());
        self.base.table().iter().filter(settled).for_each(&mut *each);
        self.memory.iter().filter_map(Memory::told).for_each(each);
    }

    /// Everything that is visible under a value of an index.
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
            if settled || !self.is_hidden(hashing.hash(object.key()), object.key()) {
                each(object);
            }
        });
    }

    /// Whether what is under `key` in `base` is not visible.
    fn is_hidden(&self, hash: u64, key: &ObjectKey) -> bool {
        self.changed.find(hash, key).is_some() || self.gone.find(hash, key).is_some()
    }

    /// Makes `object` visible; returns what was visible before.
    pub(super) fn put(&mut self, hash: u64, object: Arc<V>) -> Option<Arc<V>> {
        let key = object.key();
        if self.added.find(hash, key).is_some() {
            return self.added.insert(hash, object);
        }
        if self.gone.remove(hash, key).is_some() {
            // Still in `base`, from where handlers know it.
            self.changed.insert(hash, object);
            return None;
        }
        if self.changed.find(hash, key).is_some() {
            return self.changed.insert(hash, object);
        }
        self.base.insert(hash, object)
    }

    /// Makes what is under `key` invisible; returns what was visible.
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

    /// The memory of `key`, started if need be; `None` if there are too many already.
    fn remember(&mut self, hash: u64, key: &ObjectKey) -> Option<&mut Memory<V>> {
        if !self.memory.contains_key(key) {
            if self.memory.len() >= REMEMBERED {
                return None;
            }
            // Not what is visible: handlers are told of a relist only when it reaches `base`.
            let told = self.base.find(hash, key).cloned();
            self.memory.insert(key.clone(), Memory::new(told));
        }
        if let Some(touched) = &mut self.touched {
            touched.push(key.clone());
        }
        self.memory.get_mut(key)
    }

    /// Whether the API server has certainly told us everything up to `version`.
    fn has_passed(&self, version: ResourceVersion) -> bool {
        matches!(version.order(self.seen), Some(Ordering::Less | Ordering::Equal))
    }

    /// Forgets a key that has nothing in flight any more. Afterwards handlers know what is held.
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
