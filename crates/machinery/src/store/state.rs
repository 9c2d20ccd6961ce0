//! Changes of a store: watch events and responses to own writes are applied one after another, and handlers are
//! notified of each before the next.

use std::cmp::Ordering;
use std::sync::Arc;

use hashbrown::HashMap;

use super::index::Objects;
use super::reader::Shared;
use super::{Delta, DeltaHandler, step};
use crate::object::{KeyHasher, Object, ObjectKey, ResourceVersion, Uid};

/// Number of keys with responses that the watch has not shown yet. At the limit, responses of other keys wait for the
/// watch. Normally, the watch shows a response within milliseconds; the limit matters only while the watch is down for
/// long.
const REMEMBERED: usize = 1 << 16;
/// Number of tombstones of one name. An object whose tombstone is dropped can reappear until the watch shows its
/// deletion.
const TOMBSTONES: usize = 16;
/// Number of bookmarks after which a tombstone is dropped. Bookmarks arrive about once a minute; by then, the watch
/// would have shown the object.
pub(super) const BOOKMARKS: u8 = 3;

/// State that distinguishes new events from repeated ones, and the handler. Locked for one change and its report at a
/// time.
pub(super) struct StoreState<V> {
    pub(super) handler: DeltaHandler<V>,
    /// Keys whose creation or deletion by a response the watch has not shown yet.
    pub(super) unconfirmed: HashMap<ObjectKey, Unconfirmed, KeyHasher>,
    /// The version up to which the store includes all changes. An event that is not newer is a repetition.
    pub(super) seen: ResourceVersion,
    /// True after the first list.
    pub(super) synced: bool,
}

/// Responses for one name that the watch has not shown yet.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    /// The created object that the watch has not shown yet.
    pub(super) created: Uid,
    /// Deleted objects and their last known versions.
    tombstones: Vec<(Uid, ResourceVersion)>,
    bookmarks: u8,
}

/// A change in progress: this state and the objects are locked.
pub(super) struct Transaction<'a, V> {
    state: &'a mut StoreState<V>,
    objects: &'a mut Objects<V>,
    deltas: &'a mut Vec<Delta<V>>,
}

// === impl Shared ===

impl<V: Object> Shared<V> {
    /// Applies one change, then notifies the handler of it.
    pub(super) fn transact<T>(&self, change: impl FnOnce(&mut Transaction<'_, V>) -> T) -> T {
        let mut state = self.state.lock();
        let mut deltas = Vec::new();
        let result = {
            let mut objects = self.objects.write();
            change(&mut Transaction {
                state: &mut state,
                objects: &mut objects,
                deltas: &mut deltas,
            })
        };
        for delta in deltas {
            (state.handler)(&delta, false);
        }
        result
    }
}

// === impl StoreState ===

impl<V> StoreState<V> {
    pub(super) fn new() -> StoreState<V> {
        StoreState {
            handler: Box::new(|_, _| {}),
            unconfirmed: HashMap::default(),
            seen: ResourceVersion::UNKNOWN,
            synced: false,
        }
    }

    /// Returns whether the API server has certainly reported everything up to `version`.
    fn has_reported(&self, version: ResourceVersion) -> bool {
        matches!(version.order(self.seen), Some(Ordering::Less | Ordering::Equal))
    }

    /// Returns whether an event of `version` is a repetition. If not, records the version as seen.
    fn is_repetition(&mut self, version: ResourceVersion) -> bool {
        if self.has_reported(version) {
            return true;
        }
        if version.is_known() {
            self.seen = version;
        }
        false
    }

    /// Returns the entry of `key`, created if necessary; `None` at the limit.
    fn remember(&mut self, key: &ObjectKey) -> Option<&mut Unconfirmed> {
        if self.unconfirmed.len() >= REMEMBERED && !self.unconfirmed.contains_key(key) {
            return None;
        }
        Some(self.unconfirmed.entry_ref(key).or_default())
    }

    /// Changes the entry of `key`, if there is one, and removes it when it is empty.
    fn confirm<T>(
        &mut self,
        key: &ObjectKey,
        change: impl FnOnce(&mut Unconfirmed) -> T,
    ) -> Option<T> {
        let unconfirmed = self.unconfirmed.get_mut(key)?;
        let result = change(unconfirmed);
        if unconfirmed.is_idle() {
            self.unconfirmed.remove(key);
        }
        Some(result)
    }
}

// === impl Unconfirmed ===

impl Unconfirmed {
    /// Adds a tombstone of the object, last known at this version.
    fn add_tombstone(&mut self, uid: Uid, version: ResourceVersion) {
        if self.tombstones.len() == TOMBSTONES {
            self.tombstones.remove(0);
        }
        self.tombstones.push((uid, version));
        self.bookmarks = 0;
    }

    /// Returns whether a state must not be stored, because its object or a newer object of the same name was deleted.
    pub(super) fn is_superseded(&self, uid: Uid, version: ResourceVersion) -> bool {
        self.tombstones.iter().any(|(gone, at)| *gone == uid || version.is_older_than(*at))
    }

    /// Removes the tombstones that the watch has confirmed: that of `uid` or, without a UID, those not newer than
    /// `version`.
    fn remove_tombstone(&mut self, uid: Uid, version: ResourceVersion) {
        self.tombstones.retain(|(gone, at)| {
            if uid.is_some() { *gone != uid } else { at.is_newer_than(version) }
        });
    }

    /// Removes the tombstones of objects that a list of this version does not show although it could.
    pub(super) fn listed(&mut self, version: ResourceVersion, shows: impl Fn(Uid) -> bool) {
        self.tombstones.retain(|(gone, at)| at.is_newer_than(version) || shows(*gone));
    }

    /// Confirms the creation of this object; [`Uid::NONE`] means any.
    fn shown(&mut self, uid: Uid) {
        if self.created == uid || !uid.is_some() {
            self.created = Uid::NONE;
        }
    }

    /// Counts a bookmark and drops tombstones that are too old.
    fn on_bookmark(&mut self) {
        self.bookmarks = self.bookmarks.saturating_add(1);
        if self.bookmarks >= BOOKMARKS {
            self.tombstones.clear();
        }
    }

    /// Returns whether the entry is empty.
    pub(super) fn is_idle(&self) -> bool {
        self.tombstones.is_empty() && !self.created.is_some()
    }
}

// === impl Transaction ===

impl<V: Object> Transaction<'_, V> {
    /// Applies a response. `is_written`: the request changed the object. Returns the newest state: the stored one, if
    /// that is newer.
    pub(super) fn apply_response(&mut self, object: Arc<V>, is_written: bool) -> Arc<V> {
        let (key, uid, version) = (object.key(), object.uid(), object.meta().version);
        let stored = self.objects.get(key);
        if let Some(stored) = stored.filter(|it| !version.is_newer_than(it.meta().version)) {
            return if stored.uid() == uid { stored.clone() } else { object };
        }
        if !version.is_known() {
            return object;
        }
        let is_known = stored.is_some_and(|stored| stored.uid() == uid);
        if !is_known && self.state.has_reported(version) {
            // Already deleted, perhaps before any handler saw it, or outside the scope of the lists.
            if is_written && stored.is_none() {
                self.deltas.extend([Delta::Added(object.clone()), Delta::Deleted(object.clone())]);
            }
            return object;
        }
        let is_superseded =
            self.state.unconfirmed.get(key).is_some_and(|it| it.is_superseded(uid, version));
        if is_superseded {
            return object;
        }
        if !is_known {
            let Some(unconfirmed) = self.state.remember(key) else { return object };
            unconfirmed.created = uid;
        }
        self.put(object.clone());
        object
    }

    /// Removes `uid`, which the API server has deleted for good for this process.
    pub(super) fn apply_delete(&mut self, key: &ObjectKey, uid: Uid) {
        // Otherwise the watch or a list has already reported its deletion.
        let stored = self.objects.get(key).filter(|stored| stored.uid() == uid);
        let Some(version) = stored.map(|stored| stored.meta().version) else { return };
        let Some(unconfirmed) = self.state.remember(key) else { return };
        unconfirmed.add_tombstone(uid, version);
        unconfirmed.shown(uid);
        self.take(key);
    }

    /// Applies ADDED or MODIFIED.
    pub(super) fn upsert(&mut self, object: Arc<V>) {
        let (key, uid, version) = (object.key(), object.uid(), object.meta().version);
        if self.state.is_repetition(version) {
            return;
        }
        let is_superseded = self.state.confirm(key, |unconfirmed| {
            unconfirmed.shown(uid);
            unconfirmed.is_superseded(uid, version)
        });
        let is_stored = self.objects.get(key).is_some_and(|stored| {
            // A newer state is a response that was reported and includes this change.
            stored.meta().version.is_newer_than(version) || is_same_state::<V>(stored, &object)
        });
        if is_superseded != Some(true) && !is_stored {
            self.put(object);
        }
    }

    /// Applies DELETED. `last` is the last state of the object, if it could be decoded. [`Uid::NONE`] means any object
    /// of this name.
    pub(super) fn delete(
        &mut self,
        key: &ObjectKey,
        uid: Uid,
        version: ResourceVersion,
        last: Option<Arc<V>>,
    ) {
        let is_repetition = self.state.is_repetition(version);
        if !is_repetition {
            self.state.confirm(key, |unconfirmed| unconfirmed.remove_tombstone(uid, version));
        }
        let Some(stored) = self.objects.get(key).cloned() else { return };
        let is_deleted = match stored.meta().version {
            // It was written since, for example when a selector matched again.
            at if at.is_newer_than(version) => false,
            // A deleted object does not come back. So this holds for a repetition too: some servers send a deletion
            // with the version of the last state (OpenShift's projects).
            _ if uid.is_some() && stored.uid() == uid => true,
            _ if is_repetition => false,
            // An object of this name that is older than the deleted one was deleted before it.
            at => !uid.is_some() || at.is_older_than(version),
        };
        if is_deleted {
            self.objects.remove(key);
            self.state.confirm(key, |unconfirmed| unconfirmed.shown(stored.uid()));
            let last = last.filter(|last| last.uid() == stored.uid());
            self.deltas.push(Delta::Deleted(last.unwrap_or(stored)));
        }
    }

    /// Applies ADDED or MODIFIED of an object that cannot be decoded: the last good state of the same object stays;
    /// another object of the same name is removed.
    pub(super) fn undecodable(&mut self, key: &ObjectKey, uid: Uid, version: ResourceVersion) {
        if self.state.is_repetition(version) {
            return;
        }
        self.state.confirm(key, |unconfirmed| unconfirmed.shown(uid));
        let is_another = |stored: &Arc<V>| {
            uid.is_some() && stored.uid() != uid && !stored.meta().version.is_newer_than(version)
        };
        if self.objects.get(key).is_some_and(is_another) {
            self.take(key);
        }
    }

    /// Records that the API server has reported everything up to `version`. Returns whether the version is new; `None`
    /// if it is older.
    pub(super) fn reported_until(&mut self, version: ResourceVersion) -> Option<bool> {
        if version.is_same_as(self.state.seen) {
            return Some(false);
        }
        (version.is_known() && !self.state.is_repetition(version)).then_some(true)
    }

    /// Handles a bookmark of `version`: forgets what the watch should have shown under `key` by now.
    pub(super) fn expire_unconfirmed(
        &mut self,
        key: &ObjectKey,
        version: ResourceVersion,
        is_news: bool,
    ) {
        let stored = self.objects.get(key);
        let is_outside = self.state.confirm(key, |unconfirmed| {
            // A repeated version can come from a server that has not seen the deletion yet.
            if is_news {
                unconfirmed.on_bookmark();
            }
            let created = unconfirmed.created;
            let stored = stored.filter(|it| created.is_some() && it.uid() == created);
            if stored.is_some_and(|it| it.meta().version.is_newer_than(version)) {
                return false;
            }
            unconfirmed.created = Uid::NONE;
            stored.is_some()
        });
        if is_outside == Some(true) {
            // The watch does not show the created object: it is outside its scope.
            self.take(key);
        }
    }

    /// Stores `object` and reports it.
    fn put(&mut self, object: Arc<V>) {
        let old = self.objects.insert(&object);
        step(old, object, |delta| self.deltas.push(delta));
    }

    /// Removes the object under `key` and reports it.
    fn take(&mut self, key: &ObjectKey) {
        self.deltas.extend(self.objects.remove(key).map(Delta::Deleted));
    }
}

/// Returns whether both are certainly the same state of the same object.
pub(super) fn is_same_state<V: Object>(stored: &V, object: &V) -> bool {
    stored.uid() == object.uid() && stored.meta().version.is_same_as(object.meta().version)
}
