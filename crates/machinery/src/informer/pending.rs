//! What a slow handler has yet to be told, coalesced by key.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::object::{Object, ObjectKey};
use crate::store::{Delta, Origin};

/// What one handler has not been told yet. However slow it is, there is one entry per key: at most
/// the objects that exist and those that it still believes to exist.
#[derive(Debug)]
pub(super) struct Pending<V> {
    /// For each key, its place in `order` and the change.
    changes: HashMap<ObjectKey, (u64, Change<V>)>,
    /// The keys of `changes`, in the order in which they first changed.
    order: BTreeMap<u64, ObjectKey>,
    next: u64,
    /// The place of the initial list's last change, once that list is complete.
    initial_until: Option<u64>,
}

/// All changes to one key since the handler was last told about it, merged into one.
#[derive(Debug)]
enum Change<V> {
    Added {
        new: Arc<V>,
        origin: Origin,
        initial: bool,
    },
    Updated {
        old: Arc<V>,
        new: Arc<V>,
        origin: Origin,
        initial: bool,
    },
    Deleted {
        old: Arc<V>,
        origin: Origin,
    },
    /// Another object under the same name: a delete and an add.
    Replaced {
        gone: Arc<V>,
        new: Arc<V>,
        origin: Origin,
    },
}

impl<V> Default for Pending<V> {
    fn default() -> Pending<V> {
        Pending { changes: HashMap::new(), order: BTreeMap::new(), next: 0, initial_until: None }
    }
}

impl<V: Object> Pending<V> {
    /// Adds a change.
    pub(super) fn push(&mut self, delta: &Delta<V>, initial: bool) {
        let (Delta::Added(object, _)
        | Delta::Updated { new: object, .. }
        | Delta::Deleted(object, _)) = delta;
        let key = object.key();
        let (place, before) = match self.changes.remove(key) {
            Some((place, before)) => (place, Some(before)),
            None => {
                self.next += 1;
                (self.next, None)
            }
        };
        match combine(before, delta, initial) {
            Some(change) => {
                self.order.entry(place).or_insert_with(|| key.clone());
                self.changes.insert(key.clone(), (place, change));
            }
            None => drop(self.order.remove(&place)),
        }
    }

    /// Removes what to tell next: one delta, or a delete and an add. The flag is `initial`.
    pub(super) fn pop(&mut self) -> Option<(Delta<V>, Option<Delta<V>>, bool)> {
        let (_, key) = self.order.pop_first()?;
        let (_, change) = self.changes.remove(&key)?;
        if self.changes.is_empty() {
            // Frees the memory that a burst has taken.
            self.changes = HashMap::new();
        }
        Some(match change {
            Change::Added { new, origin, initial } => (Delta::Added(new, origin), None, initial),
            Change::Updated { old, new, origin, initial } => {
                (Delta::Updated { old, new, origin }, None, initial)
            }
            Change::Deleted { old, origin } => (Delta::Deleted(old, origin), None, false),
            Change::Replaced { gone, new, origin } => {
                (Delta::Deleted(gone, origin), Some(Delta::Added(new, origin)), false)
            }
        })
    }

    /// The initial list is complete.
    pub(super) fn mark_initial(&mut self) {
        self.initial_until.get_or_insert(self.next);
    }

    /// Whether the initial list is complete and all of it has been taken out.
    pub(super) fn is_initial_told(&self) -> bool {
        let first = self.order.first_key_value().map(|(place, _)| *place);
        self.initial_until.is_some_and(|until| first.is_none_or(|first| first > until))
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }
}

/// `Own` only if both are.
fn both(a: Origin, b: Origin) -> Origin {
    if a == Origin::Own && b == Origin::Own { Origin::Own } else { Origin::Server }
}

/// Merges two changes into one; `None` if they cancel out.
fn combine<V>(before: Option<Change<V>>, delta: &Delta<V>, initial: bool) -> Option<Change<V>> {
    let first = before.is_none();
    let merged = |was: Origin, is: Origin| if first { is } else { both(was, is) };
    Some(match (before, delta) {
        (None, Delta::Added(new, origin)) => {
            Change::Added { new: new.clone(), origin: *origin, initial }
        }
        (None, Delta::Updated { old, new, origin }) => {
            Change::Updated { old: old.clone(), new: new.clone(), origin: *origin, initial }
        }
        (None, Delta::Deleted(old, origin)) => {
            Change::Deleted { old: old.clone(), origin: *origin }
        }
        // The handler was never told about it.
        (Some(Change::Added { .. }), Delta::Deleted(..)) => return None,
        (Some(Change::Added { origin: was, initial, .. }), Delta::Added(new, is))
        | (
            Some(Change::Added { origin: was, initial, .. }),
            Delta::Updated { new, origin: is, .. },
        ) => Change::Added { new: new.clone(), origin: merged(was, *is), initial },
        (Some(Change::Updated { old, origin: was, initial: still, .. }), Delta::Added(new, is))
        | (
            Some(Change::Updated { old, origin: was, initial: still, .. }),
            Delta::Updated { new, origin: is, .. },
        ) => {
            let (new, origin) = (new.clone(), merged(was, *is));
            Change::Updated { old, new, origin, initial: still && initial }
        }
        (Some(Change::Updated { origin: was, .. }), Delta::Deleted(old, is)) => {
            Change::Deleted { old: old.clone(), origin: merged(was, *is) }
        }
        (Some(Change::Deleted { old, origin: was }), Delta::Deleted(_, is)) => {
            Change::Deleted { old, origin: merged(was, *is) }
        }
        (Some(Change::Deleted { old: gone, origin: was }), Delta::Added(new, is))
        | (
            Some(Change::Deleted { old: gone, origin: was }),
            Delta::Updated { new, origin: is, .. },
        )
        | (Some(Change::Replaced { gone, origin: was, .. }), Delta::Added(new, is))
        | (
            Some(Change::Replaced { gone, origin: was, .. }),
            Delta::Updated { new, origin: is, .. },
        ) => Change::Replaced { gone, new: new.clone(), origin: merged(was, *is) },
        (Some(Change::Replaced { gone, origin: was, .. }), Delta::Deleted(_, is)) => {
            Change::Deleted { old: gone, origin: merged(was, *is) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::fixtures::Thing;
    use crate::object::{Meta, ResourceVersion, Uid};
    use proptest::prelude::*;

    fn thing(name: u8, uid: u64, version: u64) -> Arc<Thing> {
        let mut meta = Meta::named(ObjectKey::new("ns", format!("t{name}")));
        meta.uid = format!("00000000-0000-4000-8000-{uid:012x}").parse().unwrap();
        meta.version = ResourceVersion::new(version);
        Arc::new(Thing { meta })
    }

    /// What a handler believes; panics on a delta that does not fit it.
    #[derive(Default)]
    struct Believes(HashMap<ObjectKey, (Uid, ResourceVersion)>);

    impl Believes {
        fn told(&mut self, delta: &Delta<Thing>) {
            match delta {
                Delta::Added(new, _) => {
                    let before =
                        self.0.insert(new.meta.key.clone(), (new.meta.uid, new.meta.version));
                    assert_eq!(before, None, "added twice");
                }
                Delta::Updated { old, new, .. } => {
                    let before =
                        self.0.insert(new.meta.key.clone(), (new.meta.uid, new.meta.version));
                    assert_eq!(before, Some((old.meta.uid, old.meta.version)));
                    assert_eq!(old.meta.uid, new.meta.uid);
                }
                Delta::Deleted(old, _) => {
                    let before = self.0.remove(&old.meta.key).expect("deleted, and not known");
                    assert_eq!(before.0, old.meta.uid, "another was deleted");
                }
            }
        }
    }

    fn tell(pending: &mut Pending<Thing>, believes: &mut Believes) -> bool {
        let Some((first, second, _)) = pending.pop() else { return false };
        believes.told(&first);
        second.iter().for_each(|second| believes.told(second));
        true
    }

    proptest! {
        #[test]
        fn a_handler_however_slow_is_told_a_true_story_with_the_same_end(
            steps in proptest::collection::vec((0u8..4, 0u8..4, any::<bool>()), 0..200)
        ) {
            let mut live: HashMap<u8, Arc<Thing>> = HashMap::new();
            let (mut pending, mut believes) = (Pending::default(), Believes::default());
            let mut truth = Believes::default();
            let mut clock = 0;
            for (name, what, tells) in steps {
                clock += 1;
                let mut push = |delta: Delta<Thing>| {
                    truth.told(&delta);
                    pending.push(&delta, false);
                };
                match (what, live.remove(&name)) {
                    (0, Some(old)) => push(Delta::Deleted(old, Origin::Server)),
                    (1, Some(old)) => {
                        push(Delta::Deleted(old, Origin::Server));
                        let new = thing(name, clock, clock);
                        live.insert(name, new.clone());
                        push(Delta::Added(new, Origin::Server));
                    }
                    (_, Some(old)) => {
                        let mut meta = old.meta.clone();
                        meta.version = ResourceVersion::new(clock);
                        let new = Arc::new(Thing { meta });
                        live.insert(name, new.clone());
                        push(Delta::Updated { old, new, origin: Origin::Server });
                    }
                    (_, None) => {
                        let new = thing(name, clock, clock);
                        live.insert(name, new.clone());
                        push(Delta::Added(new, Origin::Own));
                    }
                }
                let lives = |key: &ObjectKey| live.values().any(|object| object.meta.key == *key);
                let kept = |key: &ObjectKey| lives(key) || believes.0.contains_key(key);
                prop_assert!(pending.changes.keys().all(kept));
                prop_assert_eq!(pending.len(), pending.order.len());
                if tells {
                    tell(&mut pending, &mut believes);
                }
            }
            while tell(&mut pending, &mut believes) {}
            prop_assert_eq!(believes.0, truth.0);
        }
    }

    #[test]
    fn of_several_changes_only_own_ones_stay_ours_and_nobody_can_claim_them_as_one() {
        for (first, second, told) in [
            (Origin::Own, Origin::Own, Origin::Own),
            (Origin::Own, Origin::Server, Origin::Server),
            (Origin::Own, Origin::Unclaimed, Origin::Server),
            (Origin::Unclaimed, Origin::Unclaimed, Origin::Server),
        ] {
            let mut pending = Pending::default();
            let (a, b, c) = (thing(0, 1, 1), thing(0, 1, 2), thing(0, 1, 3));
            pending.push(&Delta::Updated { old: a, new: b.clone(), origin: first }, false);
            pending.push(&Delta::Updated { old: b, new: c, origin: second }, false);
            let (delta, _, _) = pending.pop().unwrap();
            assert_eq!(delta.origin(), told, "{first:?}, {second:?}");
        }
    }

    #[test]
    fn a_resync_stays_one_unless_something_changes_meanwhile() {
        let mut pending = Pending::default();
        let (a, b) = (thing(0, 1, 1), thing(0, 1, 2));
        let update = |old: &Arc<Thing>, new: &Arc<Thing>| Delta::Updated {
            old: old.clone(),
            new: new.clone(),
            origin: Origin::Server,
        };
        pending.push(&update(&a, &a), true);
        pending.push(&update(&a, &a), true);
        assert!(pending.pop().unwrap().2);
        pending.push(&update(&a, &a), true);
        pending.push(&update(&a, &b), false);
        assert!(!pending.pop().unwrap().2);
    }
}
