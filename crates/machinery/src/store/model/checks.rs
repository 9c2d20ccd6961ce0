//! What must be true of what readers see and of what handlers are told.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::server::Live;
use super::{World, key, name_of};
use crate::object::{Object, ResourceVersion};
use crate::store::tests::{Thing, uid};
use crate::store::{Delta, Origin, Write};

impl World {
    /// Handlers are told `deltas`; the story must be consistent.
    pub(super) fn tell(&mut self, deltas: Vec<Delta<Thing>>) {
        for delta in deltas {
            let name = name_of(delta.object().key());
            let believed = self.told.get(&name).cloned();
            match &delta {
                Delta::Added(new, _) => {
                    assert!(believed.is_none(), "added twice: {believed:?}, {new:?}");
                    self.told.insert(name, new.clone());
                }
                Delta::Updated { old, new, .. } => {
                    let believed = believed.expect("updated before it was added");
                    assert!(Arc::ptr_eq(&believed, old), "{old:?} was never told");
                    assert_eq!(old.uid(), new.uid());
                    self.told.insert(name, new.clone());
                }
                Delta::Deleted(last, _) => {
                    let believed = believed.expect("deleted before it was added");
                    assert_eq!(believed.uid(), last.uid());
                    self.told.remove(&name);
                }
            }
            match delta.origin() {
                // Its author will recognize it, and wakes nobody.
                Origin::Unclaimed if self.is_own(&delta) => {}
                Origin::Server | Origin::Unclaimed => {
                    // Whoever is woken now sees all that is visible now.
                    let held = self.store.get(&key(name));
                    let sees = held.map_or(u64::MAX, |held| held.meta().version.number().unwrap());
                    self.owed.retain(|change| change.name != name || change.version > sees);
                    assert!(
                        self.foreign.contains(&name) || self.blurred.contains(&name),
                        "nobody but us touched it: {delta:?}"
                    );
                }
                Origin::Own => {}
            }
        }
    }

    /// Whether the write that `delta` reports, if it is claimed, was our own.
    fn is_own(&self, delta: &Delta<Thing>) -> bool {
        let own = self.server.log.iter().filter(|change| change.own);
        let mut writes = own.map(|change| match change.deleted {
            true => Write::removal(uid(change.uid)),
            false => Write::at(uid(change.uid), ResourceVersion::new(change.version)),
        });
        let unclaimed = Write::unclaimed(delta).expect("its origin says so");
        writes.any(|write| write == unclaimed)
    }

    /// Readers never see an object older than one they saw before.
    pub(super) fn check_monotonic(&self, before: &HashMap<usize, u64>) -> HashMap<usize, u64> {
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

    /// A handler added now would start where the others are.
    pub(super) fn check_told(&self) {
        let told = self.writer.told();
        assert_eq!(told.len(), self.told.len());
        for object in told {
            let believed = self.told.get(&name_of(object.key()));
            assert!(believed.is_some_and(|believed| Arc::ptr_eq(believed, &object)), "{object:?}");
        }
    }

    /// In the end the store is what the server has, and handlers know it.
    pub(super) fn check_end(&self) {
        let held: BTreeMap<usize, Live> = self
            .store
            .list()
            .iter()
            .map(|object| {
                let version = object.meta().version.number().unwrap();
                let text = object.uid().to_string();
                let uid = u64::from_str_radix(text.rsplit('-').next().unwrap(), 16).unwrap();
                (name_of(object.key()), Live { uid, version })
            })
            .collect();
        assert_eq!(held, self.server.at(self.server.now()), "the store is not what the server has");
        assert_eq!(self.store.unconfirmed(), 0, "something is remembered for ever");
        assert_eq!(self.told.len(), held.len());
        for object in self.told.values() {
            let now = self.store.get(object.key()).unwrap();
            assert!(Arc::ptr_eq(object, &now), "handlers believe {object:?}, but it is {now:?}");
        }
        assert!(self.owed.is_empty(), "nobody was woken for {:?}", self.owed);
    }
}
