//! Remembers our own writes until the watch has passed them.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashMap;

use super::table::is_too_large;
use crate::object::{Object, ObjectKey, ResourceVersion, Uid};

/// How many unconfirmed writes to one object are remembered. The echo of a forgotten one is
/// reported as somebody else's, which wakes a reconciler for nothing.
const WRITES: usize = 16;
/// How many unconfirmed deletes under one name are remembered. A forgotten object may be seen once
/// more, until its deletion comes over the watch.
const DELETES: usize = 16;
/// An unconfirmed delete is forgotten after this many bookmarks, which come about once a minute:
/// the object was one that this watch does not show.
const BOOKMARKS: u8 = 3;

/// How many maps the memories are split into, so that none is ever so large that growing it, or
/// going through it, keeps readers waiting.
pub(super) const SHARDS: usize = 256;

/// The memories of all keys with own writes in flight, or with something that could not be read.
#[derive(Debug)]
pub(super) struct Memories<V> {
    /// Empty until there is a memory.
    shards: Box<[HashMap<ObjectKey, Memory<V>>]>,
    len: usize,
    hashing: RandomState,
}

/// What we did to the objects under one key, as far as the watch has not passed it yet.
#[derive(Debug)]
pub(super) struct Memory<V> {
    /// What handlers were last told; what is held may be newer. `None`: that there is no object.
    told: Option<Arc<V>>,
    /// The version at which the API server last showed the object to handlers. What they were told
    /// then may have been newer, if we had written since.
    shown: ResourceVersion,
    /// The writes, oldest first, all newer than what the watch has shown.
    writes: Vec<Write>,
    /// The newest version that was ever among `writes`.
    newest: ResourceVersion,
    /// UIDs of objects that we deleted for good. None of them is held.
    removed: Vec<Uid>,
    /// Something happened to an object that handlers were not told of, so what they are told next
    /// is not only ours.
    pub(super) foreign: bool,
    /// The number of the last list whose word on this key handlers were already told by settling,
    /// or will be as of something lost; `confirm` must not tell it again.
    pub(super) settled: u64,
    bookmarks: u8,
}

#[derive(Debug, Clone, Copy)]
struct Write {
    uid: Uid,
    version: ResourceVersion,
    /// Certainly ours; otherwise only known.
    ours: bool,
}

// === impl Memories ===

impl<V> Memories<V> {
    pub(super) fn new() -> Memories<V> {
        Memories { shards: Box::default(), len: 0, hashing: RandomState::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Memory<V>> {
        if self.is_empty() {
            return None;
        }
        self.shards.get(self.shard_of(key))?.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut Memory<V>> {
        if self.is_empty() {
            return None;
        }
        let shard = self.shard_of(key);
        self.shards.get_mut(shard)?.get_mut(key)
    }

    pub(super) fn contains_key(&self, key: &ObjectKey) -> bool {
        self.get(key).is_some()
    }

    /// Starts the memory of a key that has none.
    pub(super) fn insert(&mut self, key: ObjectKey, memory: Memory<V>) {
        if self.shards.is_empty() {
            self.shards = (0..SHARDS).map(|_| HashMap::new()).collect();
        }
        let shard = self.shard_of(&key);
        if self.shards[shard].insert(key, memory).is_none() {
            self.len += 1;
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Memory<V>> {
        let shard = self.shard_of(key);
        let shard = self.shards.get_mut(shard)?;
        let removed = shard.remove(key)?;
        self.len -= 1;
        if is_too_large(shard.len(), shard.capacity()) {
            shard.shrink_to(2 * shard.len());
        }
        Some(removed)
    }

    /// The keys in one of the [`SHARDS`].
    pub(super) fn keys_of(&self, shard: usize) -> Vec<ObjectKey> {
        self.shards.get(shard).into_iter().flat_map(HashMap::keys).cloned().collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Memory<V>> {
        self.shards.iter().flat_map(HashMap::values)
    }

    /// What handlers have not been told of yet will not be reported as ours.
    pub(super) fn blur_untold(&mut self) {
        let all = self.shards.iter_mut().flat_map(HashMap::values_mut);
        all.filter(|memory| memory.told.is_none()).for_each(|memory| memory.foreign = true);
    }

    fn shard_of(&self, key: &ObjectKey) -> usize {
        (self.hashing.hash_one(key) >> 32) as usize % SHARDS
    }
}

// === impl Memory ===

impl<V: Object> Memory<V> {
    pub(super) fn new(told: Option<Arc<V>>) -> Memory<V> {
        Memory {
            shown: told.as_ref().map_or(ResourceVersion::UNKNOWN, |told| told.meta().version),
            told,
            writes: Vec::new(),
            newest: ResourceVersion::UNKNOWN,
            removed: Vec::new(),
            foreign: false,
            settled: 0,
            bookmarks: 0,
        }
    }

    /// What handlers were last told.
    pub(super) fn told(&self) -> Option<&Arc<V>> {
        self.told.as_ref()
    }

    /// Handlers are told `new`, as the API server showed it at `version`. Returns what they were
    /// told before.
    pub(super) fn tell(&mut self, new: Arc<V>, version: ResourceVersion) -> Option<Arc<V>> {
        self.shown = version;
        self.foreign = false;
        self.told.replace(new)
    }

    /// Handlers are told that there is nothing. Returns what they were told before.
    pub(super) fn untell(&mut self) -> Option<Arc<V>> {
        self.told.take()
    }

    /// Whether the API server has shown `object` at this version before.
    pub(super) fn is_old_news(&self, object: &Arc<V>) -> bool {
        let same = |told: &Arc<V>| told.uid() == object.uid();
        self.told.as_ref().is_some_and(same) && self.shown.is_same_as(object.meta().version)
    }

    pub(super) fn wrote(&mut self, uid: Uid, version: ResourceVersion, ours: bool) {
        if self.writes.iter().any(|write| write.version == version) {
            return;
        }
        let at = self.writes.partition_point(|write| write.version.is_older_than(version));
        self.writes.insert(at, Write { uid, version, ours });
        if !self.newest.is_newer_than(version) {
            self.newest = version;
        }
        if self.writes.len() > WRITES {
            self.writes.remove(0);
        }
    }

    pub(super) fn removed(&mut self, uid: Uid) {
        if self.has_removed(uid) {
            return;
        }
        if self.removed.len() == DELETES {
            self.removed.remove(0);
        }
        self.removed.push(uid);
        self.bookmarks = 0;
    }

    pub(super) fn has_removed(&self, uid: Uid) -> bool {
        self.removed.contains(&uid)
    }

    /// Whether an object at `version` must no longer be seen: we have deleted it, or what we later
    /// wrote under its name.
    pub(super) fn is_past(&self, uid: Uid, version: ResourceVersion) -> bool {
        self.has_removed(uid) || version.is_older_than(self.newest)
    }

    pub(super) fn removed_uids(&self) -> &[Uid] {
        &self.removed
    }

    /// The watch shows a change at `version`, so all writes up to it have passed. Returns whether
    /// the change is one of our writes.
    pub(super) fn pass(&mut self, version: ResourceVersion) -> bool {
        let ours = self.writes.iter().any(|write| write.ours && write.version.is_same_as(version));
        self.forget_writes(version);
        ours
    }

    /// Forgets the writes up to `version`; returns whether there were any.
    pub(super) fn forget_writes(&mut self, version: ResourceVersion) -> bool {
        let before = self.writes.len();
        self.writes.retain(|write| write.version.is_newer_than(version));
        self.writes.len() < before
    }

    /// Whether the watch has yet to show a write to this object.
    pub(super) fn awaits(&self, uid: Uid) -> bool {
        self.writes.iter().any(|write| write.uid == uid)
    }

    /// Forgets a delete; returns whether it was known.
    pub(super) fn forget_removed(&mut self, uid: Uid) -> bool {
        let before = self.removed.len();
        self.removed.retain(|removed| *removed != uid);
        self.removed.len() < before
    }

    /// Some object under this key is gone: forgets all deletes, except of objects that the watch
    /// has yet to show.
    pub(super) fn forget_removed_up_to_now(&mut self) {
        let writes = &self.writes;
        self.removed.retain(|uid| writes.iter().any(|write| write.uid == *uid));
    }

    /// A bookmark came: forgets deletes that are too old.
    pub(super) fn age(&mut self) {
        self.bookmarks = self.bookmarks.saturating_add(1);
        if self.bookmarks >= BOOKMARKS {
            self.removed.clear();
        }
    }

    /// Whether the watch has nothing left to show.
    pub(super) fn is_idle(&self) -> bool {
        self.writes.is_empty() && self.removed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Thing;
    use super::*;

    #[test]
    fn a_burst_of_own_writes_leaves_no_room_behind() {
        let mut memories: Memories<Thing> = Memories::new();
        let key = |number: usize| ObjectKey::new("ns", number.to_string());
        (0..10_000).for_each(|number| memories.insert(key(number), Memory::new(None)));
        let room = |memories: &Memories<Thing>| {
            memories.shards.iter().map(HashMap::capacity).sum::<usize>()
        };
        let full = room(&memories);
        assert!((0..9_900).all(|number| memories.remove(&key(number)).is_some()));
        assert!(room(&memories) * 4 < full, "room for {} of {full} is left", room(&memories));
        assert_eq!((memories.len(), memories.iter().count()), (100, 100));
    }
}
