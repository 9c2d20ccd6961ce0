//! Which objects refer to which.

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;

use crate::object::{Object, ObjectKey};
use crate::store::Delta;

/// The keys that refer to each key.
#[derive(Default)]
pub(super) struct Referrers(Mutex<HashMap<ObjectKey, HashSet<ObjectKey>>>);

// === impl Referrers ===

impl Referrers {
    /// Records to what an object refers now.
    pub(super) fn record<V: Object>(&self, delta: &Delta<V>, keys: &impl Fn(&V) -> Vec<ObjectKey>) {
        let (old, new) = match delta {
            Delta::Added(new) => (Vec::new(), keys(new)),
            Delta::Updated { old, new } => (keys(old), keys(new)),
            Delta::Deleted(old) => (keys(old), Vec::new()),
        };
        let by = delta.object().key();
        let mut all = self.0.lock();
        for gone in old.iter().filter(|key| !new.contains(key)) {
            if let Some(referrers) = all.get_mut(gone) {
                referrers.remove(by);
                if referrers.is_empty() {
                    all.remove(gone);
                }
            }
        }
        for key in new {
            all.entry(key).or_default().insert(by.clone());
        }
    }

    /// The keys that refer to `key`.
    pub(super) fn of(&self, key: &ObjectKey) -> Vec<ObjectKey> {
        self.0.lock().get(key).into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::object::Meta;
    use crate::object::fixtures::Thing;

    #[test]
    fn a_reference_is_known_from_its_beginning_to_its_end() {
        // The first finalizer names the thing that this one refers to.
        let to = |name: &str| {
            let mut meta = Meta::named(ObjectKey::new("ns", "a"));
            meta.finalizers.extend((!name.is_empty()).then(|| name.into()));
            Arc::new(Thing { meta })
        };
        let keys = |thing: &Thing| -> Vec<ObjectKey> {
            thing.meta.finalizers.iter().map(|name| thing.key().sibling(name.clone())).collect()
        };
        let (b, c) = (ObjectKey::new("ns", "b"), ObjectKey::new("ns", "c"));
        let referrers = Referrers::default();
        referrers.record(&Delta::Added(to("b")), &keys);
        assert_eq!(referrers.of(&b), [ObjectKey::new("ns", "a")]);
        let changed = Delta::Updated { old: to("b"), new: to("c") };
        referrers.record(&changed, &keys);
        assert_eq!((referrers.of(&b), referrers.of(&c)), (vec![], vec![ObjectKey::new("ns", "a")]));
        referrers.record(&Delta::Deleted(to("c")), &keys);
        assert!(referrers.0.lock().is_empty());
    }
}
