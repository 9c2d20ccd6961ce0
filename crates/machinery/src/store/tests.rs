mod lists;
mod answers;
mod reads;

use std::sync::Arc;

use parking_lot::Mutex;

use super::*;
use crate::object::{InternedStr, Kind, Meta, ObjectKey, Resource, ResourceVersion, Uid};

/// An object with nothing but metadata and a color.
#[derive(Debug)]
pub(super) struct Thing {
    meta: Meta,
    color: InternedStr,
}

impl Object for Thing {
    type MetadataFilter = crate::object::NoMetadata;
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

pub(super) fn uid(number: u64) -> Uid {
    format!("00000000-0000-4000-8000-{number:012x}").parse().unwrap()
}

/// A kind that controls things.
#[derive(Debug, serde::Deserialize)]
struct Parent {
    metadata: Meta,
}
crate::view!(Parent: Kind::namespaced("example.com", "v1", "Parent", "parents"));

/// Another such kind.
#[derive(Debug, serde::Deserialize)]
struct Uncle {
    metadata: Meta,
}
crate::view!(Uncle: Kind::namespaced("other.example.com", "v1", "Parent", "parents"));

/// An object in namespace `ns`; version 0 is unknown.
pub(super) fn thing(name: &str, uid_number: u64, version: u64) -> Thing {
    colored(name, uid_number, version, "none")
}

fn colored(name: &str, uid_number: u64, version: u64, color: &str) -> Thing {
    let mut meta = Meta::named(ObjectKey::new("ns", name));
    meta.uid = uid(uid_number);
    meta.version = ResourceVersion::new(version);
    Thing { meta, color: color.into() }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

/// A store and what it reported, in short: `+a1@5` is an add of `a` with UID 1 at version 5.
struct Bed {
    writer: Writer<Thing>,
    store: Store<Thing>,
    log: Arc<Mutex<Vec<String>>>,
}

pub(super) fn short(delta: &Delta<Thing>) -> String {
    let number = |object: &Arc<Thing>| {
        let text = object.uid().to_string();
        u64::from_str_radix(text.rsplit('-').next().unwrap(), 16).unwrap()
    };
    let name = |object: &Arc<Thing>| {
        format!("{}{}@{}", object.key().name(), number(object), object.meta().version)
    };
    match delta {
        Delta::Added(object) => format!("+{}", name(object)),
        Delta::Updated { old, new } => format!("~{}>{}", name(old), new.meta().version),
        Delta::Deleted(object) => format!("-{}", name(object)),
    }
}

impl Bed {
    fn new() -> Bed {
        let colors = Index::new("color", |thing: &Thing, each| each(thing.color.clone()));
        let (mut writer, store) = new(vec![colors]);
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let notified = log.clone();
        writer.on_delta(move |delta, _| notified.lock().push(short(delta)));
        Bed { writer, store, log }
    }

    fn list(&mut self, version: u64, things: Vec<Thing>) -> bool {
        self.writer.begin_replace();
        things.into_iter().for_each(|thing| self.writer.stage(thing));
        self.commit(version)
    }

    fn commit(&mut self, version: u64) -> bool {
        self.writer.commit(ResourceVersion::new(version))
    }

    fn apply(&mut self, thing: Thing) {
        self.writer.apply(thing);
    }

    fn deleted(&mut self, thing: Thing) {
        self.writer.delete(thing);
    }

    fn bookmark(&mut self, version: u64) {
        self.writer.bookmark(ResourceVersion::new(version));
    }

    /// The response to a write.
    fn wrote(&self, thing: Thing) {
        self.store.apply_response(thing);
    }

    /// The response to a delete.
    fn removed(&self, name: &str, number: u64) {
        self.store.apply_delete(&key(name), uid(number));
    }

    /// Returns the deltas reported since the last call, in order.
    fn in_order(&mut self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock())
    }

    /// Returns the deltas reported since the last call, sorted.
    fn reported(&mut self) -> Vec<String> {
        let mut reported = self.in_order();
        reported.sort();
        reported
    }

    /// Returns the held objects, as `a1@5`.
    fn held(&self) -> Vec<String> {
        let mut held: Vec<String> = self
            .store
            .list()
            .iter()
            .map(|object| short(&Delta::Added(object.clone())).split_off(1))
            .collect();
        held.sort();
        assert_eq!(held.len(), self.store.len());
        held
    }

    fn under(&self, color: &str) -> Vec<String> {
        let mut names: Vec<String> = self
            .store
            .by_index("color", color)
            .unwrap()
            .iter()
            .map(|object| object.key().name().to_string())
            .collect();
        names.sort();
        names
    }
}
