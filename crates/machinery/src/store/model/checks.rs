//! Invariants of what readers see and of what handlers are notified of.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::server::Live;
use super::{Notified, World, name_of};
use crate::object::Object;
use crate::store::{Delta, WriteOrigin};

impl World {
    /// Checks what handlers were notified of since the last call; the story must be consistent.
    pub(super) fn check_deltas(&mut self) {
        let notified = std::mem::take(&mut *self.notified.lock());
        for Notified { delta, sees } in notified {
            let name = name_of(delta.object().key());
            let believed = self.believed.get(&name).cloned();
            match &delta {
                Delta::Added(new, _) => {
                    assert!(believed.is_none(), "added twice: {believed:?}, {new:?}");
                    self.believed.insert(name, new.clone());
                }
                Delta::Updated { old, new, .. } => {
                    let believed = believed.expect("updated before it was added");
                    assert!(Arc::ptr_eq(&believed, old), "{old:?} was never reported");
                    assert_eq!(old.uid(), new.uid());
                    self.believed.insert(name, new.clone());
                }
                Delta::Deleted(last, _) => {
                    let believed = believed.expect("deleted before it was added");
                    assert_eq!(believed.uid(), last.uid());
                    self.believed.remove(&name);
                }
            }
            let origin = delta.origin().map(|origin| self.index_of(origin));
            assert!(
                origin.is_some() || self.foreign.contains(&name) || self.blurred.contains(&name),
                "nobody but us touched it: {delta:?}"
            );
            // Whoever is woken now sees all that is visible now.
            let sees = sees.unwrap_or_else(|| self.shown.max(self.answered[name]));
            for woken in (0..self.authors.len()).filter(|key| Some(*key) != origin) {
                self.look(woken, name, sees);
            }
        }
    }

    fn index_of(&self, origin: &WriteOrigin) -> usize {
        self.authors.iter().position(|known| known == origin).expect("it is one of us")
    }

    /// A key runs, and sees an object as it was at this version.
    pub(super) fn look(&mut self, key: usize, name: usize, sees: u64) {
        self.owed
            .retain(|(owed, change)| *owed != key || change.name != name || change.version > sees);
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

    /// Checks that handlers believe what is held, at every moment.
    pub(super) fn check_believed(&self) {
        let held = self.store.list();
        assert_eq!(held.len(), self.believed.len(), "{held:?}, believed {:?}", self.believed);
        for object in held {
            let believed = self.believed.get(&name_of(object.key()));
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
        assert!(self.owed.is_empty(), "nobody was woken for {:?}", self.owed);
    }
}
