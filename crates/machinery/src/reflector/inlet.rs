//! The way from the wire into the store.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::action::Reason;
use super::observer::Observer;
use super::quarantine::Quarantine;
use super::rewound::Rewound;
use super::sink::Sink;
use super::state::HealthHandle;
use crate::client::{Event, Undecodable};
use crate::object::{Kind, ObjectKey, Resource, ResourceVersion};
use crate::store::Writer;

/// Puts what is read into the store, staged or at once, and passes on what that changed.
pub(super) struct Inlet<V, S> {
    /// Locked while the sink is told, so that whoever locks it sees no change partly reported.
    writer: Arc<Mutex<Writer<V>>>,
    sink: S,
    quarantine: Quarantine,
    observer: Arc<dyn Observer>,
    health: HealthHandle,
    kind: Kind,
    /// Objects staged since `began`.
    items: usize,
    began: Instant,
    /// Whether there has been a commit: everything up to the first one is initial.
    synced: bool,
}

impl<V: Resource, S: Sink<V>> Inlet<V, S> {
    pub(super) fn new(
        writer: Arc<Mutex<Writer<V>>>,
        sink: S,
        observer: Arc<dyn Observer>,
        health: HealthHandle,
        kind: Kind,
    ) -> Inlet<V, S> {
        Inlet {
            writer,
            sink,
            quarantine: Quarantine::default(),
            observer,
            health,
            kind,
            items: 0,
            began: Instant::now(),
            synced: false,
        }
    }

    /// A list begins; what an unfinished one has staged is discarded.
    pub(super) fn begin(&mut self, reason: Reason) {
        self.items = 0;
        self.began = Instant::now();
        self.quarantine.begin();
        self.writer.lock().begin();
        self.observer.list_began(&self.kind, reason);
    }

    /// An item of a list.
    pub(super) fn listed(&mut self, item: Result<V, Undecodable>) {
        self.items += 1;
        match item {
            Ok(object) => self.writer.lock().listed(object),
            Err(bad) => {
                // Its last decodable state stays.
                self.writer.lock().keep(&bad.key, bad.uid);
                self.quarantine(bad, true);
            }
        }
    }

    /// An event of a streaming list, before its end.
    pub(super) fn stage(&mut self, event: Event<V>) {
        match event {
            Event::Added(object) | Event::Modified(object) => {
                self.quarantine.remove(object.key(), true);
                self.listed(Ok(object));
            }
            Event::Deleted(object) => {
                self.unlisted(object.key());
            }
            Event::Undecodable(bad) if bad.deleted => {
                self.unlisted(&bad.key);
            }
            Event::Undecodable(bad) => self.listed(Err(bad)),
            Event::Bookmark { .. } => {}
        }
    }

    fn unlisted(&mut self, key: &ObjectKey) {
        self.quarantine.remove(key, true);
        self.writer.lock().unlisted(key);
    }

    /// An event of a watch.
    pub(super) fn apply(&mut self, event: Event<V>) {
        let sink = &mut self.sink;
        let tell = |delta| sink.told(delta, false);
        match event {
            Event::Added(object) | Event::Modified(object) => {
                let key = object.key().clone();
                self.writer.lock().apply(object, tell);
                self.heal(&key);
            }
            Event::Deleted(object) => {
                let key = object.key().clone();
                self.writer.lock().deleted(object, tell);
                self.heal(&key);
            }
            Event::Undecodable(bad) if bad.deleted => {
                self.writer.lock().vanished(&bad.key, bad.version, tell);
                self.heal(&bad.key);
            }
            Event::Undecodable(bad) => {
                // A namesake is a different object: then the one held is gone.
                self.writer.lock().displaced(&bad.key, bad.uid, tell);
                self.quarantine(bad, false);
            }
            Event::Bookmark { version, .. } => {
                self.writer.lock().bookmark(ResourceVersion::parse(&version), tell);
            }
        }
    }

    /// The list is complete: shows it to readers, and tells the sink what it changed.
    ///
    /// # Errors
    /// If the list is from a different history than what is held.
    pub(super) fn commit(&mut self, at: ResourceVersion) -> Result<(), Rewound> {
        if let Some((held, at)) = self.writer.lock().contradiction(at) {
            return Err(Rewound { held: held.to_string(), at: at.to_string() });
        }
        let initial = !self.synced;
        let sink = &mut self.sink;
        let taken = self.writer.lock().commit(at, |delta| sink.told(delta, initial));
        if !taken {
            // The state machine refuses such a list before it gets here.
            tracing::error!("the list of {} at {at} was not taken", self.kind.resource());
            return Ok(());
        }
        self.quarantine.commit();
        self.health.update(|health| {
            health.synced = true;
            health.quarantined = self.quarantine.len();
        });
        self.observer.listed(&self.kind, self.items, self.began.elapsed());
        if initial {
            self.synced = true;
            self.sink.synced();
        }
        Ok(())
    }

    /// The list will not be used.
    pub(super) fn abandon(&mut self) {
        self.quarantine.abandon();
        self.writer.lock().abandon();
        self.observer.list_failed(&self.kind);
    }

    fn heal(&mut self, key: &ObjectKey) {
        if self.quarantine.remove(key, false) {
            tracing::info!("{} {key} can be decoded again, or is gone", self.kind.resource());
            let held = self.quarantine.len();
            self.health.update(|health| health.quarantined = held);
        }
    }

    fn quarantine(&mut self, bad: Undecodable, staging: bool) {
        let Undecodable { key, version, why, .. } = bad;
        if self.quarantine.put(key.clone(), version, staging) {
            let resource = self.kind.resource();
            tracing::warn!("{resource} {key} cannot be decoded and stays as it was: {why}");
            self.observer.decode_error(&self.kind, &key, &why);
        }
        let held = self.quarantine.len();
        self.health.update(|health| health.quarantined = held);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::object::Uid;
    use crate::object::fixtures::Thing;
    use crate::reflector::observer::Unobserved;
    use crate::store::{self, Delta};

    /// What was reported: `+` added, `~` updated, `-` deleted.
    type Told = Arc<Mutex<Vec<char>>>;

    impl Sink<Thing> for Told {
        fn told(&mut self, delta: Delta<Thing>, _: bool) {
            self.lock().push(match delta {
                Delta::Added(..) => '+',
                Delta::Updated { .. } => '~',
                Delta::Deleted(..) => '-',
            });
        }
        fn synced(&mut self) {}
    }

    fn uid(number: u8) -> String {
        format!("00000000-0000-4000-8000-{number:012x}")
    }

    fn undecodable(number: u8, version: u64) -> Event<Thing> {
        Event::Undecodable(Undecodable {
            key: ObjectKey::new("ns", "it"),
            uid: uid(number).parse::<Uid>().unwrap(),
            version: ResourceVersion::new(version),
            deleted: false,
            why: "a number is a text".to_owned(),
        })
    }

    #[test]
    fn an_undecodable_object_leaves_itself_as_it_was_and_replaces_a_namesake() {
        let (writer, store) = store::new(Vec::new());
        let (told, health) = (Told::default(), HealthHandle::new(Instant::now()));
        let writer = Arc::new(Mutex::new(writer));
        let mut inlet =
            Inlet::new(writer, told.clone(), Arc::new(Unobserved), health.clone(), Thing::KIND);
        let meta: Value = json!({
            "name": "it", "namespace": "ns", "uid": uid(1), "resourceVersion": "5",
        });
        let thing: Thing = serde_json::from_value(json!({ "metadata": meta })).unwrap();
        let key = thing.meta.key.clone();
        inlet.apply(Event::Added(thing));
        inlet.apply(undecodable(1, 6));
        assert!(store.get(&key).is_some(), "the object as it last could be decoded");
        inlet.apply(undecodable(2, 7));
        assert!(store.get(&key).is_none(), "it is another one that cannot be decoded");
        assert_eq!(*told.lock(), ['+', '-']);
        assert_eq!(health.get().quarantined, 1);
    }
}
