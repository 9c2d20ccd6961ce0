//! Witnesses: they remember what was seen and told, and report what cannot be true.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use workload_operator::informer::Informer;
use workload_operator::object::{Object, ObjectKey, Uid};
use workload_operator::store::{Delta, WriteOrigin};

use crate::thing::Thing;

/// The version of a change, and its author, if it is one of us.
type Change = (u64, Option<WriteOrigin>);

/// The first thing that went wrong.
#[derive(Clone, Default)]
pub(crate) struct Verdict {
    wrong: Arc<Mutex<Option<String>>>,
    /// Versions of our own writes, and their authors. Handlers may be notified of them again.
    own: Arc<Mutex<HashMap<u64, WriteOrigin>>>,
    /// The changes of each object since it was created, and their authors; `None`: another client.
    changes: Arc<Mutex<HashMap<String, Vec<Change>>>>,
}

impl Verdict {
    pub(crate) fn wrong(&self, what: String) {
        self.wrong.lock().get_or_insert(what);
    }

    pub(crate) fn get(&self) -> Option<String> {
        self.wrong.lock().clone()
    }

    pub(crate) fn wrote(&self, object: &Thing, origin: &WriteOrigin) {
        self.own.lock().insert(object.version(), origin.clone());
        self.changed(object.key(), object.version(), Some(origin));
    }

    pub(crate) fn changed(&self, key: &ObjectKey, version: u64, origin: Option<&WriteOrigin>) {
        let mut changes = self.changes.lock();
        changes.entry(key.to_string()).or_default().push((version, origin.cloned()));
    }

    pub(crate) fn deleted(&self, key: &ObjectKey) {
        self.changes.lock().remove(&key.to_string());
    }

    /// The newest change of an object that is not by `origin`, if it is known.
    fn newest_of_others(&self, key: &str, origin: &WriteOrigin) -> Option<u64> {
        let changes = self.changes.lock();
        let others = changes.get(key)?.iter().filter(|(_, by)| by.as_ref() != Some(origin));
        others.map(|(version, _)| *version).max()
    }

    fn author_of(&self, version: u64) -> Option<WriteOrigin> {
        self.own.lock().get(&version).cloned()
    }

    /// Returns whether the version is newer, or is our own write once more.
    fn follows(&self, before: u64, version: u64) -> bool {
        version > before || version == before && self.own.lock().contains_key(&version)
    }
}

/// State of the store as a handler knows it, from its notifications.
#[derive(Clone)]
pub(crate) struct Listener {
    who: &'static str,
    known: Arc<Mutex<HashMap<ObjectKey, (Uid, u64)>>>,
    /// Per key the newest version it was ever told of: a deleted object must not reappear.
    newest: Arc<Mutex<HashMap<ObjectKey, u64>>>,
    verdict: Verdict,
}

impl Listener {
    pub(crate) fn new(who: &'static str, verdict: &Verdict) -> Listener {
        Listener { who, known: Arc::default(), newest: Arc::default(), verdict: verdict.clone() }
    }

    pub(crate) fn told(&self, delta: &Delta<Thing>) {
        let mut known = self.known.lock();
        let (object, expected, stays) = match delta {
            Delta::Added(new, _) => (new, None, true),
            Delta::Updated { old, new, .. } => {
                if old.uid() != new.uid() || !self.verdict.follows(old.version(), new.version()) {
                    self.wrong(&format!("an update from {old:?} to {new:?}"));
                }
                (new, Some((old.uid(), Some(old.version()))), true)
            }
            Delta::Deleted(old, _) => (old, Some((old.uid(), None)), false),
        };
        let key = object.key().clone();
        let newest = self.newest.lock().insert(key.clone(), object.version());
        let stale = |newest| match stays {
            true => !self.verdict.follows(newest, object.version()),
            false => newest > object.version(),
        };
        if newest.is_some_and(stale) {
            self.wrong(&format!("{delta:?} after version {newest:?}"));
        }
        let before = if stays {
            known.insert(key, (object.uid(), object.version()))
        } else {
            known.remove(&key)
        };
        let follows = match (before, expected) {
            (None, None) => true,
            (Some((uid, version)), Some((told, at))) => {
                uid == told && at.is_none_or(|at| at == version)
            }
            _ => false,
        };
        if !follows {
            self.wrong(&format!("told {delta:?}, though it believed {before:?}"));
        }
    }

    fn wrong(&self, what: &str) {
        self.verdict.wrong(format!("{} {what}", self.who));
    }

    /// The objects that it believes to exist.
    pub(crate) fn believes(&self) -> Vec<(String, u64)> {
        let known = self.known.lock();
        let mut all: Vec<_> = known.iter().map(|(key, (_, at))| (key.to_string(), *at)).collect();
        all.sort();
        all
    }
}

/// A key that is woken by all but its own writes.
#[derive(Clone)]
pub(crate) struct Sleeper {
    pub(crate) origin: WriteOrigin,
    /// The newest state of each object that it was woken for.
    woken: Arc<Mutex<HashMap<String, u64>>>,
}

impl Sleeper {
    pub(crate) fn new(origin: WriteOrigin) -> Sleeper {
        Sleeper { origin, woken: Arc::default() }
    }

    pub(crate) fn told(&self, delta: &Delta<Thing>) {
        if delta.origin() != Some(&self.origin) {
            let object = delta.object();
            self.woken.lock().insert(object.key().to_string(), object.version());
        }
    }

    /// The newest change of an object by anybody else that it was not woken for: it may have written
    /// over one without knowing.
    pub(crate) fn is_owed(&self, served: &[(String, u64)], verdict: &Verdict) -> Option<String> {
        served.iter().find_map(|(key, version)| {
            let own = verdict.author_of(*version).as_ref() == Some(&self.origin);
            let others = verdict.newest_of_others(key, &self.origin);
            let owed = if own { others.unwrap_or(0) } else { *version };
            let (who, woken) = (&self.origin, self.woken.lock().get(key).copied());
            let what = || format!("{who:?} was woken for {woken:?}, and {key} was at {owed}");
            (owed > woken.unwrap_or(0)).then(what)
        })
    }
}

/// A reader that looks now and then: what it sees must never be older than what it saw before.
pub(crate) struct Reader {
    /// Per key the version last seen, or the version up to which it is known to be absent.
    seen: HashMap<ObjectKey, Seen>,
    /// The objects that were seen. One that was not may come late: it could not be decoded before.
    uids: HashSet<Uid>,
}

#[derive(Clone, Copy, Debug)]
enum Seen {
    At(Uid, u64),
    Absent(u64),
}

impl Reader {
    /// A reader of these keys.
    pub(crate) fn new(keys: impl IntoIterator<Item = ObjectKey>) -> Reader {
        let seen = keys.into_iter().map(|key| (key, Seen::Absent(0))).collect();
        Reader { seen, uids: HashSet::new() }
    }

    pub(crate) fn look(&mut self, informer: &Informer<Thing>, verdict: &Verdict) {
        let complete_to: HashMap<_, _> = informer
            .health()
            .into_iter()
            .map(|(namespace, health)| (namespace, health.version.number().unwrap_or(0)))
            .collect();
        let store = informer.store();
        for (key, seen) in &mut self.seen {
            let before = *seen;
            match (store.get(key), before) {
                (Some(object), _) => {
                    let version = object.version();
                    let back = match before {
                        Seen::At(_, before) => version < before,
                        Seen::Absent(until) => {
                            version <= until && self.uids.contains(&object.uid())
                        }
                    };
                    self.uids.insert(object.uid());
                    if back {
                        verdict.wrong(format!("a reader saw {object:?} after {before:?}"));
                    }
                    *seen = Seen::At(object.uid(), version);
                }
                (None, Seen::At(..)) => {
                    let own = Some(key.namespace().clone());
                    let complete = complete_to.get(&own).or_else(|| complete_to.get(&None));
                    *seen = Seen::Absent(complete.copied().unwrap_or(0));
                }
                (None, Seen::Absent(_)) => {}
            }
        }
    }

    /// Returns whether it sees this very object, in any state.
    pub(crate) fn sees(&self, key: &ObjectKey, uid: &str) -> bool {
        matches!(self.seen.get(key), Some(Seen::At(seen, _)) if seen.to_string() == uid)
    }
}
