//! Witnesses: they remember what was seen and told, and report what cannot be true.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use workload_operator::informer::Informer;
use workload_operator::object::{Object, ObjectKey, Uid};
use workload_operator::store::Delta;

use crate::thing::Thing;

/// The first thing that went wrong.
#[derive(Clone, Default)]
pub(crate) struct Verdict {
    wrong: Arc<Mutex<Option<String>>>,
}

impl Verdict {
    pub(crate) fn wrong(&self, what: String) {
        self.wrong.lock().get_or_insert(what);
    }

    pub(crate) fn get(&self) -> Option<String> {
        self.wrong.lock().clone()
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

    pub(crate) fn reported(&self, delta: &Delta<Thing>) {
        let mut known = self.known.lock();
        let (object, expected, stays) = match delta {
            Delta::Added(new) => (new, None, true),
            Delta::Updated { old, new } => {
                if old.uid() != new.uid() || new.version() <= old.version() {
                    self.wrong(&format!("an update from {old:?} to {new:?}"));
                }
                (new, Some((old.uid(), Some(old.version()))), true)
            }
            Delta::Deleted(old) => (old, Some((old.uid(), None)), false),
        };
        let key = object.key().clone();
        let newest = self.newest.lock().insert(key.clone(), object.version());
        let stale = |newest| match stays {
            true => object.version() <= newest,
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
            (Some((uid, version)), Some((reported, at))) => {
                uid == reported && at.is_none_or(|at| at == version)
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
