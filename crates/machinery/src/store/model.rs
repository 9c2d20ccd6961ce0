//! A store against a server, in random interleavings: others' writes and those of two keys and
//! another controller's; answers that come late and in any order; a watch that is late and repeats
//! itself; lists that lag.

mod answer;
mod checks;
mod server;
mod steps;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;

use self::answer::{Answer, authors};
use self::server::{Change, Live, Server};
use self::steps::{Step, steps};
use super::pending::BOOKMARKS;
use super::tests::{Thing, thing, uid};
use super::{Delta, Store, WriteOrigin, Writer, new};
use crate::object::{Object, ObjectKey, ResourceVersion, Uid};

const NAMES: [&str; 3] = ["a", "b", "c"];

struct World {
    writer: Writer<Thing>,
    store: Store<Thing>,
    authors: Vec<WriteOrigin>,
    notified: Arc<Mutex<Vec<Notified>>>,
    server: Server,
    answers: Vec<Answer>,
    /// The watch, or the last list, has shown the log up to here.
    shown: u64,
    /// Per name the newest change that was answered.
    answered: [u64; NAMES.len()],
    /// The version of the current list, and how far its items have arrived.
    list: Option<(u64, usize)>,
    /// State as handlers believe it: the deltas applied to an empty map.
    believed: HashMap<usize, Arc<Thing>>,
    /// Changes that a key must be woken for: those made by anybody else.
    owed: Vec<(usize, Change)>,
    /// Names of which an own write may be reported as foreign: the answer came after its event, or a
    /// list.
    blurred: HashSet<usize>,
    foreign: HashSet<usize>,
    /// True if something in the last list, or a change since, could not be read: the object is held
    /// as it was before.
    unread: bool,
    /// Bookmarks that came while the watch was behind: fewer than a tombstone outlives.
    late: u8,
    /// Objects that we deleted after they had been seen: they must not be seen again.
    removed: HashSet<Uid>,
}

/// A delta, and the version that was visible when handlers were notified of it.
struct Notified {
    delta: Delta<Thing>,
    sees: Option<u64>,
}

fn name_of(key: &ObjectKey) -> usize {
    NAMES.iter().position(|name| key.name() == name).unwrap()
}

fn key(name: usize) -> ObjectKey {
    ObjectKey::new("ns", NAMES[name])
}

impl World {
    fn new() -> World {
        let (mut writer, store) = new::<Thing>(Vec::new());
        let notified: Arc<Mutex<Vec<Notified>>> = Arc::default();
        let (notes, reads) = (notified.clone(), store.clone());
        writer.on_delta(move |delta, _| {
            let held = reads.get(delta.object().key());
            let sees = held.and_then(|held| held.meta().version.number());
            let delta = match delta {
                Delta::Added(new, origin) => Delta::Added(new.clone(), origin.clone()),
                Delta::Deleted(last, origin) => Delta::Deleted(last.clone(), origin.clone()),
                Delta::Updated { old, new, origin } => {
                    let (old, new, origin) = (old.clone(), new.clone(), origin.clone());
                    Delta::Updated { old, new, origin }
                }
            };
            notes.lock().push(Notified { delta, sees });
        });
        World {
            writer,
            store,
            authors: authors(),
            notified,
            server: Server::default(),
            answers: Vec::new(),
            shown: 0,
            answered: [0; NAMES.len()],
            list: None,
            believed: HashMap::new(),
            owed: Vec::new(),
            blurred: HashSet::new(),
            foreign: HashSet::new(),
            unread: false,
            late: 0,
            removed: HashSet::new(),
        }
    }

    /// Somebody, or one of us, creates, changes or deletes an object: everybody else is to look.
    fn change(
        &mut self,
        name: usize,
        deleted: bool,
        readable: bool,
        origin: Option<usize>,
    ) -> Option<Live> {
        let live = self.server.change(name, deleted, readable, origin)?;
        if origin.is_none() {
            self.foreign.insert(name);
        }
        let change = *self.server.log.last().expect("it was just made");
        let others = (0..self.authors.len()).filter(|key| Some(*key) != origin);
        self.owed.extend(others.map(|key| (key, change)));
        Some(live)
    }

    /// One of us does.
    fn own_change(&mut self, name: usize, deleted: bool, origin: usize) -> Option<Live> {
        let live = self.server.at(self.server.now()).get(&name).copied();
        let readable = !deleted || live.is_some_and(|live| self.server.is_readable(&live));
        self.change(name, deleted, readable, Some(origin))
    }

    /// Takes an answer out. Answers to writes of one object may come out of order, but a client
    /// that deletes an object has seen the answers to its own earlier writes.
    fn pick(&mut self, at: usize) -> Answer {
        let picked = self.answers[at];
        let same =
            |answer: &&Answer| answer.name() == picked.name() && answer.origin() == picked.origin();
        let first = self.answers.iter().position(|answer| same(&answer)).unwrap();
        let mut before = self.answers[first..=at].iter().filter(same);
        let deletes = before.any(|answer| matches!(answer, Answer::Removed(..)));
        self.answers.remove(if deletes { first } else { at })
    }

    fn answer(&mut self, answer: Answer) {
        let name = answer.name();
        let (Answer::Wrote(_, Live { uid: number, .. }, _)
        | Answer::Removed(_, number, _)
        | Answer::Got(_, Live { uid: number, .. })) = answer;
        let made = self.server.log.iter().rfind(|change| match answer {
            Answer::Wrote(_, live, _) | Answer::Got(_, live) => change.version == live.version,
            Answer::Removed(..) => change.uid == number && change.deleted,
        });
        let at = made.expect("the server made it").version;
        let held = self.store.get(&key(name));
        // The delete of what is not visible (any more, or yet) leaves no trace.
        let unseen = held.as_ref().is_none_or(|held| held.uid() != uid(number));
        let blurred = match answer {
            // The object it replaces went by a change that no handler has heard of.
            Answer::Wrote(..) => {
                at <= self.shown || self.list.is_some() || held.is_some() && unseen
            }
            Answer::Removed(..) => unseen || self.list.is_some(),
            Answer::Got(..) => true,
        };
        if blurred {
            self.blurred.insert(name);
        }
        let overtaken =
            self.server.log.iter().any(|change| {
                change.uid == number && change.deleted && change.version <= self.shown
            });
        let replaced = held.is_some_and(|held| {
            held.uid() != uid(number) && held.meta().version.number() > Some(at)
        });
        let gone = overtaken || replaced || self.removed.contains(&uid(number));
        // The answer to a later write of the name came before this one, or a state that could not be
        // read did.
        let is_unread = |change: &Change| {
            change.name == name && (at..=self.shown).contains(&change.version) && !change.readable
        };
        let is_past = self.answered[name] > at || self.server.log.iter().any(is_unread);
        let (removed, outdated) = answer.arrives(&self.store, &self.authors);
        self.removed.extend(removed);
        self.answered[name] = self.answered[name].max(at);
        if let (Answer::Removed(.., origin), false) = (answer, unseen) {
            // Whoever deletes an object need not know what it was, nor what had its name before.
            self.owed.retain(|(owed, change)| {
                *owed != origin || change.name != name || change.version > at
            });
        }
        if let Answer::Wrote(_, live, origin) = answer {
            assert!(outdated || !gone, "{:?} believes in {live:?}", self.authors[origin]);
            assert!(gone || is_past || !outdated, "{live:?} is what there is");
            if outdated {
                self.blurred.insert(name);
                // Its next pass sees what is visible.
                let held = self.store.get(&key(name)).and_then(|held| held.meta().version.number());
                self.look(origin, name, held.unwrap_or(self.shown.max(self.answered[name])));
            }
        }
    }

    fn unreadable(&mut self, change: Change) {
        let key = key(change.name);
        if self.store.get(&key).is_none() {
            // No handler knows of the object, nor will any until it can be read.
            self.owed.retain(|(_, owed)| owed.name != change.name || owed.version > change.version);
        }
        let version = ResourceVersion::new(change.version);
        if change.deleted {
            self.writer.delete_undecodable(&key, uid(change.uid), version);
        } else {
            self.unread = true;
            self.writer.update_undecodable(&key, uid(change.uid), version);
        }
    }

    fn event(&mut self, change: Change) {
        let object = thing(NAMES[change.name], change.uid, change.version);
        if change.deleted {
            if !self.believed.contains_key(&change.name) {
                // It could never be read, or is known to be gone.
                self.owed.retain(|(_, owed)| owed.version != change.version);
            }
            self.writer.deleted(object);
        } else {
            self.writer.apply(object);
        }
    }

    fn begin(&mut self, pick: &prop::sample::Index) {
        // Sometimes the list lags behind the watch; but then the store must know that it does.
        let from = self.shown.saturating_sub(1);
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
                self.writer.retain(&key(name), uid(live.uid));
            }
        }
        self.list = Some((version, until));
    }

    fn commit(&mut self) {
        self.half();
        self.half();
        let Some((version, _)) = self.list.take() else { return };
        let before = self.store.list();
        let known: HashSet<usize> = self.believed.keys().copied().collect();
        let taken = self.writer.commit(ResourceVersion::new(version));
        assert_eq!(taken, version >= self.shown);
        let (objects, unreadable): (BTreeMap<_, _>, BTreeMap<_, _>) = self
            .server
            .at(version)
            .into_iter()
            .partition(|(_, live)| self.server.is_readable(live));
        if taken {
            // An object that came and went between two lists is owed to no handler, nor is one that
            // is unknown until it can be read.
            self.owed.retain(|(_, change)| {
                change.version > version
                    || objects.contains_key(&change.name)
                    || known.contains(&change.name)
            });
            self.shown = version.max(self.shown);
            self.unread = !unreadable.is_empty();
        }
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
        let Some(change) = self.server.log.get(self.server.until(self.shown)).copied() else {
            return;
        };
        self.shown = change.version;
        let under_way = |answer: &Answer| match answer {
            Answer::Wrote(_, live, _) => live.version == change.version,
            Answer::Removed(name, uid, _) => *name == change.name && *uid == change.uid,
            Answer::Got(..) => false,
        };
        if change.origin.is_some() && self.answers.iter().any(under_way) {
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
            Step::Write(name, readable) => drop(self.change(*name, false, *readable, None)),
            Step::Delete(name, readable) => drop(self.change(*name, true, *readable, None)),
            Step::OwnWrite(name, origin) => {
                let live = self.own_change(*name, false, *origin);
                self.answers.extend(live.map(|live| Answer::Wrote(*name, live, *origin)));
            }
            Step::OwnDelete(name, origin) => {
                let live = self.own_change(*name, true, *origin);
                self.answers.extend(live.map(|live| Answer::Removed(*name, live.uid, *origin)));
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
            Step::Repeat(pick) if self.list.is_none() && self.server.until(self.shown) > 0 => {
                let change = self.server.log[pick.index(self.server.until(self.shown))];
                if change.readable {
                    self.event(change);
                }
            }
            Step::Bookmark(others) if self.list.is_none() && self.shown > 0 => {
                let is_behind = self.shown < self.server.now();
                self.late = if is_behind { self.late + 1 } else { 0 };
                if self.late >= BOOKMARKS {
                    return;
                }
                self.shown = (self.shown / 2) * 2 + u64::from(*others || self.shown % 2 == 1);
                self.writer.bookmark(ResourceVersion::new(self.shown));
            }
            Step::Begin(pick) if self.list.is_none() => self.begin(pick),
            Step::Half => self.half(),
            Step::Commit => self.commit(),
            _ => {}
        }
    }

    /// Everything that is pending arrives.
    fn finish(&mut self) {
        self.commit();
        self.check_deltas();
        for answer in std::mem::take(&mut self.answers) {
            self.answer(answer);
            self.check_deltas();
        }
        while self.shown < self.server.now() {
            self.step(&Step::Event);
            self.check_deltas();
        }
        if self.unread {
            // It can be read now.
            self.server.log.iter_mut().for_each(|change| change.readable = true);
            self.blurred.extend(0..NAMES.len());
            self.writer.begin();
            self.list = Some((self.server.now().max(self.shown), 0));
            self.commit();
        }
    }
}

proptest! {
    #[test]
    fn the_store_becomes_what_the_server_has_and_no_change_of_others_is_hidden(steps in steps()) {
        let mut world = World::new();
        let mut seen = HashMap::new();
        for step in &steps {
            world.step(step);
            world.check_deltas();
            world.check_believed();
            seen = world.check_monotonic(&seen);
        }
        world.finish();
        world.check_deltas();
        world.check_believed();
        world.check_end();
        world.check_monotonic(&seen);
    }
}
