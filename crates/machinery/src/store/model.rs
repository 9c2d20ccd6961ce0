//! A store against a server, in random interleavings: others' writes and own ones; responses that come late and in any
//! order; a watch that is late and repeats itself; lists that lag.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;

use super::state::BOOKMARKS;
use super::tests::{Thing, thing, uid};
use super::{Delta, Store, Writer, new};
use crate::object::{Object, ObjectKey, ResourceVersion, Uid};

const NAMES: [&str; 3] = ["a", "b", "c"];

struct World {
    writer: Writer<Thing>,
    store: Store<Thing>,
    notified: Arc<Mutex<Vec<Notified>>>,
    server: Server,
    answers: Vec<Answer>,
    /// The watch, or the last list, has shown the log up to here.
    shown: u64,
    /// The version of the current list, and how far its items have arrived.
    list: Option<(u64, usize)>,
    /// State as handlers believe it: the deltas applied to an empty map.
    believed: HashMap<usize, Arc<Thing>>,
    /// Number of deltas of each name.
    told: [usize; NAMES.len()],
    /// Changes that handlers have to hear of.
    owed: Vec<Change>,
    /// True if something in the last list, or a change since, could not be read: the object is stored
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

/// A response that is on its way.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// To a write by one of three clients, and the number of deltas of the name before it.
    Wrote {
        name: usize,
        live: Live,
        by: usize,
        told: usize,
    },
    Removed {
        name: usize,
        uid: u64,
        by: usize,
    },
    Got {
        name: usize,
        live: Live,
    },
}

impl Answer {
    /// The name, and who asked.
    fn of(&self) -> (usize, Option<usize>) {
        match *self {
            Answer::Wrote { name, by, .. } | Answer::Removed { name, by, .. } => (name, Some(by)),
            Answer::Got { name, .. } => (name, None),
        }
    }
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
            let stored = reads.get(delta.object().key());
            let sees = stored.and_then(|stored| stored.meta().version.number());
            let delta = match delta {
                Delta::Added(new) => Delta::Added(new.clone()),
                Delta::Deleted(last) => Delta::Deleted(last.clone()),
                Delta::Updated { old, new } => {
                    Delta::Updated { old: old.clone(), new: new.clone() }
                }
            };
            notes.lock().push(Notified { delta, sees });
        });
        World {
            writer,
            store,
            notified,
            server: Server::default(),
            answers: Vec::new(),
            shown: 0,
            list: None,
            believed: HashMap::new(),
            told: [0; NAMES.len()],
            owed: Vec::new(),
            unread: false,
            late: 0,
            removed: HashSet::new(),
        }
    }

    /// Lets another client create, change or delete an object, which handlers must notice.
    fn change(&mut self, name: usize, deleted: bool, readable: bool) -> Option<Live> {
        let live = self.server.change(name, deleted, readable)?;
        self.owed.push(*self.server.log.last().expect("it was just made"));
        Some(live)
    }

    /// Lets this process do the same.
    fn own_change(&mut self, name: usize, deleted: bool) -> Option<Live> {
        let live = self.server.at(self.server.now()).get(&name).copied();
        let readable = !deleted || live.is_some_and(|live| self.server.is_readable(&live));
        self.change(name, deleted, readable)
    }

    /// Takes a response out. Responses to writes of one object may come out of order, but a client
    /// that deletes an object has seen the responses to its own earlier writes.
    fn pick(&mut self, at: usize) -> Answer {
        let picked = self.answers[at];
        let same = |answer: &&Answer| answer.of() == picked.of();
        let first = self.answers.iter().position(|answer| same(&answer)).unwrap();
        let mut before = self.answers[first..=at].iter().filter(same);
        let deletes = before.any(|answer| matches!(answer, Answer::Removed { .. }));
        self.answers.remove(if deletes { first } else { at })
    }

    fn answer(&mut self, answer: Answer) {
        match answer {
            Answer::Got { name, live } => {
                self.store.apply_read(thing(NAMES[name], live.uid, live.version));
            }
            Answer::Removed { name, uid: number, .. } => {
                let stored = self.store.get(&key(name));
                if stored.is_some_and(|stored| stored.uid() == uid(number)) {
                    self.removed.insert(uid(number));
                }
                self.store.apply_delete(&key(name), uid(number));
            }
            Answer::Wrote { name, live, told, .. } => {
                self.store.apply_response(thing(NAMES[name], live.uid, live.version));
                let stored = self.store.get(&key(name));
                let is_there = stored.is_some_and(|stored| {
                    stored.uid() == uid(live.uid)
                        && stored.meta().version.number() >= Some(live.version)
                });
                self.check_deltas();
                assert!(is_there || self.told[name] > told, "its author believes in {live:?}");
            }
        }
    }

    fn unreadable(&mut self, change: Change) {
        let key = key(change.name);
        if self.store.get(&key).is_none() {
            // No handler knows of the object, nor will any until it can be read.
            self.owed.retain(|owed| owed.name != change.name || owed.version > change.version);
        }
        let version = ResourceVersion::new(change.version);
        self.unread |= !change.deleted;
        self.writer.undecodable(&key, uid(change.uid), version, change.deleted);
    }

    fn event(&mut self, change: Change) {
        let object = thing(NAMES[change.name], change.uid, change.version);
        if change.deleted {
            if !self.believed.contains_key(&change.name) {
                // It could never be read, or is known to be gone.
                self.owed.retain(|owed| owed.version != change.version);
            }
            self.writer.delete(object);
        } else {
            if self.removed.contains(&uid(change.uid)) {
                // We deleted it since, and handlers know that.
                self.owed.retain(|owed| owed.version != change.version);
            }
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
        self.writer.begin_replace();
        self.list = Some((version, 0));
    }

    fn half(&mut self) {
        let Some((version, from)) = self.list else { return };
        let until = (from + 2).min(NAMES.len());
        for (name, live) in self.server.at(version) {
            if !(from..until).contains(&name) {
                continue;
            }
            if self.server.is_readable(&live) {
                self.writer.stage(thing(NAMES[name], live.uid, live.version));
            } else {
                self.writer.keep(&key(name), uid(live.uid));
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
            self.owed.retain(|change| {
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
        if change.readable {
            self.event(change);
        } else {
            self.unreadable(change);
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Write(name, readable) => drop(self.change(*name, false, *readable)),
            Step::Delete(name, readable) => drop(self.change(*name, true, *readable)),
            Step::OwnWrite(name, by) => {
                let (name, by, told) = (*name, *by, self.told[*name]);
                let live = self.own_change(name, false);
                self.answers.extend(live.map(|live| Answer::Wrote { name, live, by, told }));
            }
            Step::OwnDelete(name, by) => {
                let (name, by) = (*name, *by);
                let live = self.own_change(name, true);
                self.answers.extend(live.map(|Live { uid, .. }| Answer::Removed { name, uid, by }));
            }
            Step::Get(name) => {
                let live = self.server.at(self.server.now()).get(name).copied();
                let live = live.filter(|live| self.server.is_readable(live));
                self.answers.extend(live.map(|live| Answer::Got { name: *name, live }));
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
            self.writer.begin_replace();
            self.list = Some((self.server.now().max(self.shown), 0));
            self.commit();
        }
    }

    /// Checks what handlers were notified of since the last call; the story must be consistent.
    fn check_deltas(&mut self) {
        let notified = std::mem::take(&mut *self.notified.lock());
        for Notified { delta, sees } in notified {
            let name = name_of(delta.object().key());
            self.told[name] += 1;
            let believed = self.believed.get(&name).cloned();
            match &delta {
                Delta::Added(new) => {
                    assert!(believed.is_none(), "added twice: {believed:?}, {new:?}");
                    self.believed.insert(name, new.clone());
                }
                Delta::Updated { old, new } => {
                    let believed = believed.expect("updated before it was added");
                    assert!(Arc::ptr_eq(&believed, old), "{old:?} was never reported");
                    assert_eq!(old.uid(), new.uid());
                    let number = |thing: &Thing| thing.meta().version.number();
                    assert!(number(old) < number(new), "an echo was reported: {new:?}");
                    self.believed.insert(name, new.clone());
                }
                Delta::Deleted(last) => {
                    let believed = believed.expect("deleted before it was added");
                    assert_eq!(believed.uid(), last.uid());
                    self.believed.remove(&name);
                    self.owed.retain(|change| uid(change.uid) != last.uid());
                }
            }
            // A key that is enqueued now sees everything that is visible now.
            let sees = sees.unwrap_or(self.shown);
            self.owed.retain(|change| change.name != name || change.version > sees);
        }
    }

    /// Readers never see an object older than one they saw before.
    fn check_monotonic(&self, before: &HashMap<usize, u64>) -> HashMap<usize, u64> {
        let mut now = before.clone();
        for object in self.store.list() {
            let version = object.meta().version.number().unwrap();
            let name = name_of(object.key());
            assert!(now.get(&name).is_none_or(|seen| *seen <= version), "{object:?} went back");
            assert!(!self.removed.contains(&object.uid()), "{object:?} was deleted by us");
            now.insert(name, version);
        }
        now
    }

    /// Checks that handlers believe what is stored, at every moment.
    fn check_believed(&self) {
        let stored = self.store.list();
        assert_eq!(stored.len(), self.believed.len(), "{stored:?}, believed {:?}", self.believed);
        for object in stored {
            let believed = self.believed.get(&name_of(object.key()));
            assert!(believed.is_some_and(|believed| Arc::ptr_eq(believed, &object)), "{object:?}");
        }
    }

    /// In the end the store is what the server has, and handlers know it.
    fn check_end(&self) {
        let number = |object: &Arc<Thing>| {
            let text = object.uid().to_string();
            u64::from_str_radix(text.rsplit('-').next().unwrap(), 16).unwrap()
        };
        let live = |object: &Arc<Thing>| {
            let version = object.meta().version.number().unwrap();
            (name_of(object.key()), Live { uid: number(object), version })
        };
        let stored: BTreeMap<usize, Live> = self.store.list().iter().map(live).collect();
        assert_eq!(
            stored,
            self.server.at(self.server.now()),
            "the store is not what the server has"
        );
        assert_eq!(self.store.unconfirmed(), 0, "something is remembered for ever");
        assert!(self.owed.is_empty(), "nobody was told of {:?}", self.owed);
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Live {
    uid: u64,
    version: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Change {
    version: u64,
    name: usize,
    uid: u64,
    deleted: bool,
    /// True if the object can be read as it is after it, or as it was before it was deleted.
    readable: bool,
}

#[derive(Default)]
struct Server {
    /// Its changes, in order; versions are 2, 4, 6, … The others are of other kinds: lists and
    /// bookmarks have them too.
    log: Vec<Change>,
    uids: u64,
}

impl Server {
    /// Its objects at a version.
    fn at(&self, version: u64) -> BTreeMap<usize, Live> {
        let mut objects = BTreeMap::new();
        for change in self.log.iter().take_while(|change| change.version <= version) {
            if change.deleted {
                objects.remove(&change.name);
            } else {
                objects.insert(change.name, Live { uid: change.uid, version: change.version });
            }
        }
        objects
    }

    fn now(&self) -> u64 {
        2 * self.log.len() as u64
    }

    /// The changes up to a version.
    fn until(&self, version: u64) -> usize {
        (version / 2) as usize
    }

    fn is_readable(&self, live: &Live) -> bool {
        self.log[self.until(live.version) - 1].readable
    }

    /// Creates, changes or deletes an object. `None` if there is nothing to delete.
    fn change(&mut self, name: usize, deleted: bool, readable: bool) -> Option<Live> {
        let live = self.at(self.now()).get(&name).copied();
        if deleted && live.is_none() {
            return None;
        }
        let uid = live.map_or_else(
            || {
                self.uids += 1;
                self.uids
            },
            |live| live.uid,
        );
        let version = self.now() + 2;
        self.log.push(Change { version, name, uid, deleted, readable });
        Some(Live { uid, version })
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Another client creates or changes an object; the flag is true if it can be decoded.
    Write(usize, bool),
    /// Another client deletes it; the flag is true if its last state can be decoded.
    Delete(usize, bool),
    /// This process creates or changes it; the response is in transit.
    OwnWrite(usize, usize),
    /// This process deletes it; the response is in transit.
    OwnDelete(usize, usize),
    /// We read it; the answer is on its way.
    Get(usize),
    /// One of the pending answers arrives.
    Answer(prop::sample::Index),
    /// The next event of the watch arrives.
    Event,
    /// An earlier event arrives again.
    Repeat(prop::sample::Index),
    /// A bookmark for everything that has arrived; the flag says whether it counts changes of other
    /// kinds too.
    Bookmark(bool),
    /// A list begins. It will show the server at some version since the last event.
    Begin(prop::sample::Index),
    /// Half of the current list arrives.
    Half,
    /// The list is complete.
    Commit,
}

/// Random sequences of steps.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || 0..NAMES.len();
    let readable = || prop::bool::weighted(0.8);
    let step = prop_oneof![
        4 => (name(), readable()).prop_map(|(name, readable)| Step::Write(name, readable)),
        2 => (name(), readable()).prop_map(|(name, readable)| Step::Delete(name, readable)),
        5 => (name(), 0..3usize).prop_map(|(name, origin)| Step::OwnWrite(name, origin)),
        2 => (name(), 0..3usize).prop_map(|(name, origin)| Step::OwnDelete(name, origin)),
        2 => name().prop_map(Step::Get),
        8 => any::<prop::sample::Index>().prop_map(Step::Answer),
        8 => Just(Step::Event),
        1 => any::<prop::sample::Index>().prop_map(Step::Repeat),
        1 => any::<bool>().prop_map(Step::Bookmark),
        2 => any::<prop::sample::Index>().prop_map(Step::Begin),
        1 => Just(Step::Half),
        2 => Just(Step::Commit),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn the_store_converges_to_the_server_and_hides_no_change(steps in steps()) {
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
