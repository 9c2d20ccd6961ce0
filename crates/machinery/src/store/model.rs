//! A store against a server, in random interleavings: others' writes and our own; answers that come
//! late and in any order; a watch that is late and repeats itself; lists that lag.

mod answer;
mod checks;
mod server;
mod steps;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;

use self::answer::Answer;
use self::server::{Change, Live, Server};
use self::steps::{Step, steps};
use super::tests::{Thing, thing, uid};
use super::{Store, Writer, new};
use crate::object::{Object, ObjectKey, ResourceVersion, Uid};

const NAMES: [&str; 3] = ["a", "b", "c"];

struct World {
    writer: Writer<Thing>,
    store: Store<Thing>,
    server: Server,
    answers: Vec<Answer>,
    /// The watch, or the last list, has shown the log up to here.
    shown: u64,
    /// The version of the current list, and how far its items have arrived.
    list: Option<(u64, usize)>,
    /// What handlers believe: the deltas applied to an empty map.
    told: HashMap<usize, Arc<Thing>>,
    /// Changes by others that handlers must be woken for.
    owed: Vec<Change>,
    /// Where an own write may be reported as somebody else's: the answer came after its event, or a
    /// list.
    blurred: HashSet<usize>,
    foreign: HashSet<usize>,
    /// Whether something in the last list, or a change since, could not be read: the object is held
    /// as it was before.
    unread: bool,
    /// What we deleted after it had been seen: it must not be seen again.
    removed: HashSet<Uid>,
}

fn name_of(key: &ObjectKey) -> usize {
    NAMES.iter().position(|name| key.name() == name).unwrap()
}

fn key(name: usize) -> ObjectKey {
    ObjectKey::new("ns", NAMES[name])
}

impl World {
    fn new() -> World {
        let (writer, store) = new(Vec::new());
        World {
            writer,
            store,
            server: Server::default(),
            answers: Vec::new(),
            shown: 0,
            list: None,
            told: HashMap::new(),
            owed: Vec::new(),
            blurred: HashSet::new(),
            foreign: HashSet::new(),
            unread: false,
            removed: HashSet::new(),
        }
    }

    /// Somebody creates, changes or deletes an object.
    fn change(&mut self, name: usize, deleted: bool, readable: bool) {
        if self.server.change(name, deleted, readable, false).is_some() {
            self.foreign.insert(name);
            self.owed.extend(self.server.log.last());
        }
    }

    /// We do.
    fn own_change(&mut self, name: usize, deleted: bool) -> Option<Live> {
        let live = self.server.at(self.server.now()).get(&name).copied();
        let readable = !deleted || live.is_some_and(|live| self.server.is_readable(&live));
        self.server.change(name, deleted, readable, true)
    }

    /// Takes an answer out. Answers to writes of one object may come out of order, but a client
    /// that deletes an object has seen the answers to its earlier writes.
    fn pick(&mut self, at: usize) -> Answer {
        let picked = self.answers[at].name();
        let first = self.answers.iter().position(|answer| answer.name() == picked).unwrap();
        let deletes = self.answers[first..=at]
            .iter()
            .any(|answer| matches!(answer, Answer::Removed(other, _) if *other == picked));
        self.answers.remove(if deletes { first } else { at })
    }

    fn answer(&mut self, answer: Answer) {
        match answer {
            Answer::Wrote(name, live) if live.version <= self.shown || self.list.is_some() => {
                self.blurred.insert(name);
            }
            Answer::Got(name, _) => drop(self.blurred.insert(name)),
            Answer::Wrote(..) | Answer::Removed(..) => {}
        }
        self.removed.extend(answer.arrives(&self.store));
    }

    fn unreadable(&mut self, change: Change) {
        let (key, mut deltas) = (key(change.name), Vec::new());
        if self.store.get(&key).is_none() && !self.told.contains_key(&change.name) {
            // Nobody knows of the object, nor will anybody until it can be read.
            self.owed.retain(|owed| owed.name != change.name || owed.version > change.version);
        }
        if change.deleted {
            let version = ResourceVersion::new(change.version);
            self.writer.vanished(&key, version, |delta| deltas.push(delta));
        } else {
            self.unread = true;
            self.writer.displaced(&key, uid(change.uid), |delta| deltas.push(delta));
        }
        self.tell(deltas);
    }

    fn event(&mut self, change: Change) {
        let object = thing(NAMES[change.name], change.uid, change.version);
        let mut deltas = Vec::new();
        if change.deleted {
            if !self.told.contains_key(&change.name) {
                // It could never be read.
                self.owed.retain(|owed| owed.version != change.version);
            }
            self.writer.deleted(object, |delta| deltas.push(delta));
        } else {
            self.writer.apply(object, |delta| deltas.push(delta));
        }
        self.tell(deltas);
    }

    fn begin(&mut self, pick: &prop::sample::Index) {
        // Sometimes the list lags behind the watch; but then the store must know that it does.
        let from = if self.unread { self.shown } else { self.shown.saturating_sub(1) };
        let version = from + pick.index((self.server.now() - from + 1) as usize) as u64;
        if version == 0 {
            return;
        }
        self.writer.begin();
        self.list = Some((version, 0));
        self.blurred.extend(0..NAMES.len());
    }

    fn half(&mut self) {
        let Some((version, from)) = self.list else { return };
        let until = (from + 2).min(NAMES.len());
        for (name, live) in self.server.at(version) {
            if !(from..until).contains(&name) {
                continue;
            }
            if self.server.is_readable(&live) {
                self.writer.listed(thing(NAMES[name], live.uid, live.version));
            } else {
                self.writer.keep(&key(name), uid(live.uid));
            }
        }
        self.list = Some((version, until));
    }

    fn commit(&mut self, answered: usize) {
        self.half();
        self.half();
        let Some((version, _)) = self.list.take() else { return };
        let mut before = self.store.list();
        let answered = answered.min(self.answers.len());
        let mut answers = self.answers.iter().take(answered);
        let mut deltas = Vec::new();
        let taken = self.writer.commit(ResourceVersion::new(version), |delta| {
            deltas.push(delta);
            if let Some(answer) = answers.next() {
                before.retain(|old| name_of(old.key()) != answer.name());
                self.removed.extend(answer.arrives(&self.store));
            }
        });
        let waiting = answers.len();
        self.answers.drain(..answered - waiting);
        assert_eq!(taken, version >= self.shown);
        let (objects, unreadable): (BTreeMap<_, _>, BTreeMap<_, _>) = self
            .server
            .at(version)
            .into_iter()
            .partition(|(_, live)| self.server.is_readable(live));
        if taken {
            // What came and went between two lists is owed to nobody, nor is what nobody knows of
            // until it can be read.
            let told = &self.told;
            self.owed.retain(|change| {
                change.version > version
                    || objects.contains_key(&change.name)
                    || told.contains_key(&change.name)
            });
            self.shown = version.max(self.shown);
            self.unread = !unreadable.is_empty();
        }
        self.tell(deltas);
        for old in before {
            let now = self.store.get(old.key());
            let same = now.is_some_and(|now| Arc::ptr_eq(&now, &old));
            let listed = objects.get(&name_of(old.key()));
            let unchanged =
                listed.is_some_and(|live| Some(live.version) == old.meta().version.number());
            assert!(same || !unchanged || !taken, "{old:?} was replaced by itself");
        }
    }

    /// The watch goes one change further.
    fn next_event(&mut self) {
        let Some(change) = self.server.log.get(self.shown as usize).copied() else { return };
        self.shown = change.version;
        let under_way = |answer: &Answer| match answer {
            Answer::Wrote(_, live) => live.version == change.version,
            Answer::Removed(name, uid) => *name == change.name && *uid == change.uid,
            Answer::Got(..) => false,
        };
        if change.own && self.answers.iter().any(under_way) {
            self.blurred.insert(change.name);
        }
        if change.readable {
            self.event(change);
        } else {
            self.unreadable(change);
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Write(name, readable) => self.change(*name, false, *readable),
            Step::Delete(name, readable) => self.change(*name, true, *readable),
            Step::OwnWrite(name) => {
                let live = self.own_change(*name, false);
                self.answers.extend(live.map(|live| Answer::Wrote(*name, live)));
            }
            Step::OwnDelete(name) => {
                let live = self.own_change(*name, true);
                self.answers.extend(live.map(|live| Answer::Removed(*name, live.uid)));
            }
            Step::Get(name) => {
                let live = self.server.at(self.server.now()).get(name).copied();
                let live = live.filter(|live| self.server.is_readable(live));
                self.answers.extend(live.map(|live| Answer::Got(*name, live)));
            }
            Step::Answer(pick) if !self.answers.is_empty() => {
                let answer = self.pick(pick.index(self.answers.len()));
                self.answer(answer);
            }
            Step::Event if self.list.is_none() => self.next_event(),
            Step::Repeat(pick) if self.list.is_none() && self.shown > 0 => {
                let change = self.server.log[pick.index(self.shown as usize)];
                if change.readable {
                    self.event(change);
                }
            }
            Step::Bookmark if self.list.is_none() && self.shown > 0 => {
                let mut deltas = Vec::new();
                let version = ResourceVersion::new(self.shown);
                self.writer.bookmark(version, |delta| deltas.push(delta));
                self.tell(deltas);
            }
            Step::Introduce => {
                self.blurred.extend(0..NAMES.len());
                self.writer.introduce();
            }
            Step::Begin(pick) if self.list.is_none() => self.begin(pick),
            Step::Half => self.half(),
            Step::Commit(answered) => self.commit(*answered),
            _ => {}
        }
    }

    /// Everything that is pending arrives.
    fn finish(&mut self) {
        self.commit(0);
        for answer in std::mem::take(&mut self.answers) {
            self.answer(answer);
        }
        while self.shown < self.server.now() {
            self.step(&Step::Event);
        }
        if self.unread {
            // It can be read now.
            self.server.log.iter_mut().for_each(|change| change.readable = true);
            self.blurred.extend(0..NAMES.len());
            self.writer.begin();
            self.list = Some((self.server.now(), 0));
            self.commit(0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn the_store_becomes_what_the_server_has_and_no_change_of_others_is_hidden(steps in steps()) {
        let mut world = World::new();
        let mut seen = HashMap::new();
        for step in &steps {
            world.step(step);
            world.check_told();
            seen = world.check_monotonic(&seen);
        }
        world.finish();
        world.check_end();
        world.check_monotonic(&seen);
    }
}
