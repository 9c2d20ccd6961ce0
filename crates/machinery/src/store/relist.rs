//! A list replaces what is held: it is staged, shown at one instant, then reported.

mod seen;
mod takeover;

use std::collections::HashMap;
use std::sync::Arc;

use self::seen::Seen;
use super::delta::{Delta, Origin};
use super::index::Indexed;
use super::memory::Memory;
use super::state::State;
use super::table::{Hashing, SHARDS, Table};
use super::writer::Writer;
use crate::object::{Object, ObjectKey, ResourceVersion, Uid};

/// A list, reduced to its differences from what is held.
pub(super) struct Relist<V> {
    /// Objects in `State::base` that the list confirms, replaces or keeps.
    seen: Seen,
    /// Like the fields of the same names in [`State`], and moved there when the list is complete.
    added: Indexed<V>,
    changed: Indexed<V>,
    gone: Table<V>,
    /// What the list says about keys with own writes in flight.
    items: HashMap<ObjectKey, Item<V>>,
    /// Objects that the list has but that could not be read.
    kept: HashMap<ObjectKey, Uid>,
    /// Objects that are held at a newer version than the list has.
    behind: HashMap<ObjectKey, Behind>,
}

/// The version held, and the older version listed.
type Behind = (ResourceVersion, ResourceVersion);

/// What a list says about one key.
pub(super) struct Item<V> {
    /// `None`: that there is no object.
    pub(super) object: Option<Arc<V>>,
    /// Our own deletes, known when the list was put in place, of objects that it does not have.
    pub(super) removed: Vec<Uid>,
}

// === impl Relist ===

impl<V: Object> Relist<V> {
    /// For a store with this many objects.
    fn new(held: usize, hashing: &Hashing, fresh: impl Fn() -> Indexed<V>) -> Relist<V> {
        Relist {
            seen: Seen::with_room_for(held),
            added: fresh(),
            changed: fresh(),
            gone: Table::new(hashing.clone()),
            items: HashMap::new(),
            kept: HashMap::new(),
            behind: HashMap::new(),
        }
    }

    fn listed(&mut self, state: &State<V>, hash: u64, object: V) {
        let key = object.key();
        if !self.kept.is_empty() {
            self.kept.remove(key);
        }
        if !state.memory.is_empty() && state.memory.contains_key(key) {
            // If it was behind before we wrote, it may have caught up with what was held then.
            let version = object.meta().version;
            if self.behind.get(key).is_some_and(|(held, _)| !version.is_older_than(*held)) {
                self.caught_up(key);
            }
            let key = key.clone();
            let item = Item { object: Some(Arc::new(object)), removed: Vec::new() };
            self.items.insert(key, item);
            return;
        }
        let Some(held) = state.base.find(hash, key) else {
            self.added.insert(hash, Arc::new(object));
            return;
        };
        self.seen.insert(held);
        let (version, holds) = (object.meta().version, held.meta().version);
        if version.is_older_than(holds) {
            self.behind.insert(key.clone(), (holds, version));
            return;
        }
        self.caught_up(key);
        if version.is_same_as(holds) && object.uid() == held.uid() {
            self.changed.remove(hash, key);
            return;
        }
        self.changed.insert(hash, Arc::new(object));
    }

    fn keep(&mut self, state: &State<V>, hash: u64, key: &ObjectKey, uid: Uid) {
        let same = |object: &&Arc<V>| !uid.is_some() || object.uid() == uid;
        let told = state.memory.get(key).and_then(Memory::told);
        for object in told.into_iter().chain(state.base.find(hash, key)).filter(same) {
            self.seen.insert(object);
        }
        self.kept.insert(key.clone(), uid);
    }

    fn unlisted(&mut self, state: &State<V>, hash: u64, key: &ObjectKey) {
        self.added.remove(hash, key);
        self.changed.remove(hash, key);
        self.items.remove(key);
        self.kept.remove(key);
        self.caught_up(key);
        let told = state.memory.get(key).and_then(Memory::told);
        for object in told.into_iter().chain(state.base.find(hash, key)) {
            self.seen.remove(object);
        }
    }

    /// Whether `uid` is an object that could not be read.
    fn has_kept(&self, key: &ObjectKey, uid: Uid) -> bool {
        self.kept.get(key).is_some_and(|kept| !kept.is_some() || *kept == uid)
    }

    /// Notes that nothing newer is held under this key. `behind` is nearly always empty; then the
    /// key is not hashed.
    fn caught_up(&mut self, key: &ObjectKey) {
        if !self.behind.is_empty() {
            self.behind.remove(key);
        }
    }

    /// The held objects of one shard that the list does not have.
    fn unseen(&self, state: &State<V>, shard: usize) -> Vec<Arc<V>> {
        let unseen =
            |held: &&Arc<V>| !self.seen.has(held) && !state.memory.contains_key(held.key());
        state.base.table().shard(shard).filter(unseen).cloned().collect()
    }

    /// Decides what a key with own writes in flight will show: what is listed, unless what is held
    /// is newer.
    fn resolve(&mut self, state: &State<V>, hash: u64, key: &ObjectKey, version: ResourceVersion) {
        let Some(memory) = state.memory.get(key) else { return };
        let held = state.base.find(hash, key);
        let staged = self.added.remove(hash, key).or(self.changed.remove(hash, key));
        self.gone.remove(hash, key);
        let object = match self.items.remove(key) {
            Some(item) => item.object,
            None => staged.or_else(|| {
                let mut known = memory.told().into_iter().chain(held);
                let listed =
                    |object: &&Arc<V>| self.seen.has(object) || self.has_kept(key, object.uid());
                known.find(listed).cloned()
            }),
        };
        match (&object, held) {
            // A list from before our delete.
            (Some(listed), _) if memory.is_past(listed.uid(), listed.meta().version) => {}
            (Some(listed), None) => drop(self.added.insert(hash, listed.clone())),
            (Some(listed), Some(held)) => {
                if listed.meta().version.is_newer_than(held.meta().version) {
                    self.changed.insert(hash, listed.clone());
                }
            }
            (None, Some(held)) if !held.meta().version.is_newer_than(version) => {
                self.gone.insert(hash, held.clone());
            }
            (None, _) => {}
        }
        let lacks = |uid: &Uid| {
            let listed = object.as_ref().is_some_and(|object| object.uid() == *uid);
            !listed && !self.has_kept(key, *uid)
        };
        let removed = memory.removed_uids().iter().copied().filter(lacks).collect();
        self.items.insert(key.clone(), Item { object, removed });
    }
}

// === impl Writer ===

impl<V: Object> Writer<V> {
    /// A list begins. Whatever an unfinished one has staged is discarded.
    pub fn begin(&mut self) {
        let shared = self.store.shared();
        let fresh = || Indexed::new(shared.hashing.clone(), shared.indexes.clone());
        let held = shared.state.read().base.table().len();
        self.relist = Some(Relist::new(held, &shared.hashing, fresh));
    }

    /// The list has `object`. It is staged, unless it or something newer is held already. If
    /// several have the same key, the last one counts.
    pub fn listed(&mut self, object: V) {
        let hash = self.store.shared().hashing.hash(object.key());
        if let Some(relist) = &mut self.relist {
            relist.listed(&self.store.shared().state.read(), hash, object);
        }
    }

    /// The list has `uid` under `key`, but it cannot be decoded: what is held of it stays.
    pub fn keep(&mut self, key: &ObjectKey, uid: Uid) {
        let hash = self.store.shared().hashing.hash(key);
        if let Some(relist) = &mut self.relist {
            relist.keep(&self.store.shared().state.read(), hash, key, uid);
        }
    }

    /// What was listed under `key` is gone again: a streaming list shows changes made meanwhile.
    pub fn unlisted(&mut self, key: &ObjectKey) {
        let hash = self.store.shared().hashing.hash(key);
        if let Some(relist) = &mut self.relist {
            relist.unlisted(&self.store.shared().state.read(), hash, key);
        }
    }

    /// Whether a list of this version cannot belong to the history that is held: it has an object
    /// in an older state than the held one, although the held one is no newer than the list.
    /// Returns the version held and the version listed.
    pub fn contradiction(&self, version: ResourceVersion) -> Option<Behind> {
        let mut behind = self.relist.iter().flat_map(|relist| relist.behind.values());
        behind.find(|(held, _)| version.is_known() && !held.is_newer_than(version)).copied()
    }

    /// The list will not be used.
    pub fn abandon(&mut self) {
        self.relist = None;
    }

    /// The list is complete, at this version: shows it at one instant, then reports how it differs
    /// from what was told before. If it is older than what has already been seen, changes nothing
    /// and returns false.
    pub fn commit(&mut self, version: ResourceVersion, mut tell: impl FnMut(Delta<V>)) -> bool {
        let Some(mut relist) = self.relist.take() else { return false };
        let shared = self.store.shared();
        if version.is_older_than(shared.state.read().seen) {
            return false;
        }
        for shard in 0..SHARDS {
            let unseen = relist.unseen(&shared.state.read(), shard);
            for held in unseen {
                relist.gone.insert(shared.hashing.hash(held.key()), held);
            }
        }
        let initial = self.show(&mut relist, version);
        for object in initial {
            tell(Delta::Added(object, Origin::Server));
        }
        self.settle(&mut tell);
        self.confirm(relist.items, version, &mut tell);
        for (key, uid) in relist.kept {
            self.displaced(&key, uid, &mut tell);
        }
        true
    }
}
