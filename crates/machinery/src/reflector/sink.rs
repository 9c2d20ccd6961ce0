//! The path from responses into the store.

use hashbrown::HashSet;
use tokio::time::Instant;

use super::health::HealthHandle;
use crate::client::{InvalidObject, WatchEvent};
use crate::instruments::{LIST_FAILURES, LIST_ITEMS, LIST_SECONDS, LISTS, UNDECODABLE};
use crate::object::{ObjectKey, Resource, ResourceVersion};
use crate::store::Writer;

/// Approximate limit of keys from failed lists, until a list is complete.
const MOST: usize = 10_000;

/// Writes received objects to the store, staged or at once.
pub(super) struct StoreSink<V> {
    writer: Writer<V>,
    quarantine: Quarantine,
    health: HealthHandle,
    /// Number of objects staged since `began`.
    items: usize,
    began: Instant,
}

/// Keys of objects whose last version could not be decoded. A decodable version, the object's deletion, or a
/// complete list without it removes a key.
#[derive(Debug, Default)]
struct Quarantine {
    keys: HashSet<ObjectKey>,
    /// The keys that the current list has shown so far.
    listed: HashSet<ObjectKey>,
}

impl<V: Resource> StoreSink<V> {
    pub(super) fn new(writer: Writer<V>, health: HealthHandle) -> StoreSink<V> {
        let (quarantine, began) = (Quarantine::default(), Instant::now());
        StoreSink { writer, quarantine, health, items: 0, began }
    }

    /// Begins a list and discards the staged objects of an unfinished one.
    pub(super) fn begin(&mut self) {
        self.items = 0;
        self.began = Instant::now();
        self.quarantine.begin();
        self.writer.begin_replace();
        LISTS.with([V::kind().resource()]).inc();
    }

    /// Stages an item of a list.
    pub(super) fn listed(&mut self, item: Result<V, InvalidObject>) {
        self.items += 1;
        match item {
            Ok(object) => self.writer.stage(object),
            Err(bad) => {
                // Its last decodable state stays.
                self.writer.keep(&bad.key, bad.uid);
                self.quarantine(bad, true);
            }
        }
    }

    /// Stages an event of a streaming list.
    pub(super) fn stage(&mut self, event: WatchEvent<V>) {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.quarantine.remove(object.key(), true);
                self.listed(Ok(object));
            }
            WatchEvent::Deleted(object) => self.unstage(object.key()),
            WatchEvent::InvalidObject(bad) if bad.deleted => self.unstage(&bad.key),
            WatchEvent::InvalidObject(bad) => self.listed(Err(bad)),
            WatchEvent::Bookmark { .. } => {}
        }
    }

    fn unstage(&mut self, key: &ObjectKey) {
        self.quarantine.remove(key, true);
        self.writer.unstage(key);
    }

    /// Applies an event of a watch.
    pub(super) fn apply(&mut self, event: WatchEvent<V>) {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let key = object.key().clone();
                self.writer.apply(object);
                self.forget_invalid(&key);
            }
            WatchEvent::Deleted(object) => {
                let key = object.key().clone();
                self.writer.delete(object);
                self.forget_invalid(&key);
            }
            WatchEvent::InvalidObject(bad) => {
                self.writer.undecodable(&bad.key, bad.uid, bad.version, bad.deleted);
                if bad.deleted {
                    self.forget_invalid(&bad.key);
                } else {
                    self.quarantine(bad, false);
                }
            }
            WatchEvent::Bookmark { version, .. } => {
                self.writer.bookmark(ResourceVersion::parse(&version));
            }
        }
    }

    /// Returns whether an object is stored under `key`.
    pub(super) fn holds(&self, key: &ObjectKey) -> bool {
        self.writer.store().contains(key)
    }

    /// Shows the complete list to readers, and reports what it changed.
    pub(super) fn commit(&mut self, at: ResourceVersion) {
        if !self.writer.commit(at) {
            // The reflector refuses such a list earlier.
            tracing::error!("the list of {} at {at} was not accepted", V::kind().resource());
            return;
        }
        self.quarantine.commit();
        self.count_quarantined();
        self.health.update(|health| health.synced = true);
        LIST_SECONDS.with([V::kind().resource()]).observe(self.began.elapsed().as_secs_f64());
        LIST_ITEMS.with([V::kind().resource()]).observe(self.items as f64);
    }

    /// Discards the list.
    pub(super) fn abandon(&mut self) {
        self.writer.abort();
        LIST_FAILURES.with([V::kind().resource()]).inc();
    }

    fn forget_invalid(&mut self, key: &ObjectKey) {
        if self.quarantine.remove(key, false) {
            tracing::info!("{} {key} can be decoded again, or is deleted", V::kind().resource());
            self.count_quarantined();
        }
    }

    fn quarantine(&mut self, bad: InvalidObject, staging: bool) {
        let InvalidObject { key, why, .. } = bad;
        if self.quarantine.put(key.clone(), staging) {
            let resource = V::kind().resource();
            tracing::warn!("{resource} {key} cannot be decoded and stays as it was: {why}");
            UNDECODABLE.with([resource]).inc();
        }
        self.count_quarantined();
    }

    fn count_quarantined(&self) {
        self.health.update(|health| health.quarantined = self.quarantine.keys.len());
    }
}

// === impl Quarantine ===

impl Quarantine {
    /// Adds an object. Returns whether it is new; only new objects are logged.
    fn put(&mut self, key: ObjectKey, staging: bool) -> bool {
        if staging {
            self.listed.insert(key.clone());
        }
        self.keys.insert(key)
    }

    /// Removes an object that can be decoded again or was deleted. Returns whether it was quarantined. Removals by a
    /// list take effect when it is complete.
    fn remove(&mut self, key: &ObjectKey, staging: bool) -> bool {
        let keys = if staging { &mut self.listed } else { &mut self.keys };
        // Nearly always empty, and this runs for every event.
        !keys.is_empty() && keys.remove(key)
    }

    /// Begins a list.
    fn begin(&mut self) {
        self.listed = HashSet::new();
        if self.keys.len() > MOST {
            self.keys = HashSet::new();
        }
    }

    /// Completes the list.
    fn commit(&mut self) {
        self.keys = std::mem::take(&mut self.listed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::object::fixtures::Thing;
    use crate::store::{self, Delta};
    use parking_lot::Mutex;

    fn uid(number: u8) -> String {
        format!("00000000-0000-4000-8000-{number:012x}")
    }

    fn undecodable(number: u8, version: u64) -> WatchEvent<Thing> {
        WatchEvent::InvalidObject(InvalidObject {
            key: ObjectKey::new("ns", "it"),
            uid: uid(number).parse::<crate::object::Uid>().unwrap(),
            version: ResourceVersion::new(version),
            deleted: false,
            why: "a number is a text".to_owned(),
        })
    }

    #[test]
    fn an_undecodable_object_keeps_its_state_but_replaces_a_namesake() {
        let (mut writer, store) = store::new(Vec::new());
        let deltas = Arc::new(Mutex::new(Vec::new()));
        let notified = deltas.clone();
        writer.on_delta(move |delta, _| {
            notified.lock().push(match delta {
                Delta::Added(..) => '+',
                Delta::Updated { .. } => '~',
                Delta::Deleted(..) => '-',
            });
        });
        let health = HealthHandle::new(Instant::now());
        let mut feed = StoreSink::new(writer, health.clone());
        let meta: Value = json!({
            "name": "it", "namespace": "ns", "uid": uid(1), "resourceVersion": "5",
        });
        let thing: Thing = serde_json::from_value(json!({ "metadata": meta })).unwrap();
        let key = thing.meta.key.clone();
        feed.apply(WatchEvent::Added(thing));
        feed.apply(undecodable(1, 6));
        assert!(store.get(&key).is_some(), "the object as it last could be decoded");
        feed.apply(undecodable(2, 7));
        assert!(store.get(&key).is_none(), "it is another one that cannot be decoded");
        assert_eq!(*deltas.lock(), ['+', '-']);
        assert_eq!(health.get().quarantined, 1);
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("ns", name)
    }

    #[test]
    fn an_undecodable_object_is_new_only_once() {
        let mut quarantine = Quarantine::default();
        quarantine.begin();
        assert!(quarantine.put(key("a"), true));
        quarantine.begin();
        assert!(!quarantine.put(key("a"), true), "the first list broke off");
        quarantine.commit();
        assert!(!quarantine.put(key("a"), false), "a watch shows its next version");
        assert!(quarantine.remove(&key("a"), false));
        assert!(quarantine.put(key("a"), false), "it could be decoded meanwhile");
    }

    #[test]
    fn only_a_complete_list_without_a_key_releases_it() {
        let mut quarantine = Quarantine::default();
        quarantine.put(key("a"), false);
        quarantine.begin();
        quarantine.begin();
        assert_eq!(quarantine.keys.len(), 1);
        quarantine.commit();
        assert_eq!(quarantine.keys.len(), 0);
    }
}
