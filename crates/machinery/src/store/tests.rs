mod lists;
mod answers;
mod answers_during_lists;
mod reads;

use std::sync::Arc;

use super::*;
use crate::object::{Kind, Meta, ObjectKey, Resource, ResourceVersion, Text, Uid};

/// An object with nothing but metadata and a color.
#[derive(Debug)]
pub(super) struct Thing {
    meta: Meta,
    color: Text,
}

impl Object for Thing {
    type Keep = crate::object::Nothing;
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

/// A store and what it reported, in short: `+a1@5` is an add of `a` with UID 1 at version 5; `own`
/// after it means that it was ours.
struct Bed {
    writer: Writer<Thing>,
    store: Store<Thing>,
    told: Vec<String>,
}

pub(super) fn short(delta: &Delta<Thing>) -> String {
    let number = |object: &Arc<Thing>| {
        let text = object.uid().to_string();
        u64::from_str_radix(text.rsplit('-').next().unwrap(), 16).unwrap()
    };
    let name = |object: &Arc<Thing>| {
        format!("{}{}@{}", object.key().name(), number(object), object.meta().version)
    };
    let text = match delta {
        Delta::Added(object, _) => format!("+{}", name(object)),
        Delta::Updated { old, new, .. } => format!("~{}>{}", name(old), new.meta().version),
        Delta::Deleted(object, _) => format!("-{}", name(object)),
    };
    if delta.origin() == Origin::Own { text + " own" } else { text }
}

impl Bed {
    fn new() -> Bed {
        let colors =
            Index { name: "color", values: |thing: &Thing, each| each(thing.color.clone()) };
        let (writer, store) = new(vec![colors]);
        Bed { writer, store, told: Vec::new() }
    }

    fn list(&mut self, version: u64, things: Vec<Thing>) -> bool {
        self.writer.begin();
        things.into_iter().for_each(|thing| self.writer.listed(thing));
        self.commit(version)
    }

    fn commit(&mut self, version: u64) -> bool {
        let told = &mut self.told;
        self.writer.commit(ResourceVersion::new(version), |delta| told.push(short(&delta)))
    }

    /// Lists two things, by name, UID and version, and has `answer` called for the one that is
    /// settled last when the other one is reported. Returns its name and UID.
    fn list_and_answer<'a>(
        &mut self,
        version: u64,
        things: [(&'a str, u64, u64); 2],
        answer: impl Fn(&Store<Thing>, &str, u64),
    ) -> (&'a str, u64) {
        self.writer.begin();
        for (name, number, version) in things {
            self.writer.listed(thing(name, number, version));
        }
        let (store, told) = (&self.store, &mut self.told);
        let mut last = None;
        self.writer.commit(ResourceVersion::new(version), |delta| {
            told.push(short(&delta));
            if last.is_none() {
                let first = delta.object().key().name() == things[0].0;
                let (name, number, _) = things[usize::from(first)];
                answer(store, name, number);
                last = Some((name, number));
            }
        });
        last.expect("something was reported")
    }

    fn apply(&mut self, thing: Thing) {
        let told = &mut self.told;
        self.writer.apply(thing, |delta| told.push(short(&delta)));
    }

    fn deleted(&mut self, thing: Thing) {
        let told = &mut self.told;
        self.writer.deleted(thing, |delta| told.push(short(&delta)));
    }

    fn bookmark(&mut self, version: u64) {
        let told = &mut self.told;
        self.writer.bookmark(ResourceVersion::new(version), |delta| told.push(short(&delta)));
    }

    /// What was reported since the last call.
    fn told(&mut self) -> Vec<String> {
        let mut told = std::mem::take(&mut self.told);
        told.sort();
        told
    }

    /// What is held, as `a1@5`.
    fn held(&self) -> Vec<String> {
        let mut held: Vec<String> = self
            .store
            .list()
            .iter()
            .map(|object| short(&Delta::Added(object.clone(), Origin::Server)).split_off(1))
            .collect();
        held.sort();
        assert_eq!(held.len(), self.store.len());
        held
    }

    fn under(&self, color: &str) -> Vec<String> {
        let mut names: Vec<String> = self
            .store
            .by_index("color", color)
            .iter()
            .map(|object| object.key().name().to_string())
            .collect();
        names.sort();
        names
    }
}
