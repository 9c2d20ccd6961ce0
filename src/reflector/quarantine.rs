//! Objects that cannot be decoded.

use std::collections::HashMap;

use crate::object::{ObjectKey, ResourceVersion};

/// The keys of objects whose last version could not be decoded. Bounded by the live objects: a key
/// is removed by a version that can be decoded, by the object's end, or by a list without it.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    held: HashMap<ObjectKey, ResourceVersion>,
    /// What the current list has shown so far; replaces `held` when the list is complete.
    listing: HashMap<ObjectKey, ResourceVersion>,
    /// Everything shown by lists since the last complete one, so that what failed lists have
    /// reported is not reported again.
    told: HashMap<ObjectKey, ResourceVersion>,
}

impl Quarantine {
    /// Adds an object; returns whether this version of it is new here, and so worth a log line.
    pub(super) fn put(&mut self, key: ObjectKey, version: ResourceVersion, staging: bool) -> bool {
        let known = self.held.get(&key) == Some(&version);
        if staging {
            self.listing.insert(key.clone(), version);
            return self.told.insert(key, version) != Some(version) && !known;
        }
        self.held.insert(key, version);
        !known
    }

    /// The object can be decoded again, or is gone. Returns whether it was here.
    pub(super) fn remove(&mut self, key: &ObjectKey, staging: bool) -> bool {
        let set = if staging { &mut self.listing } else { &mut self.held };
        // Nearly always empty, and this runs for every event.
        !set.is_empty() && set.remove(key).is_some()
    }

    /// A list begins, or was abandoned.
    pub(super) fn begin(&mut self) {
        self.listing = HashMap::new();
    }

    /// The list is complete.
    pub(super) fn commit(&mut self) {
        self.held = std::mem::take(&mut self.listing);
        self.told = HashMap::new();
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("ns", name)
    }

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::new(number)
    }

    #[test]
    fn one_version_is_news_once_however_often_it_is_listed() {
        let mut quarantine = Quarantine::default();
        assert!(quarantine.put(key("a"), version(1), false));
        assert!(!quarantine.put(key("a"), version(1), false));
        for _ in 0..3 {
            quarantine.begin();
            assert!(!quarantine.put(key("a"), version(1), true));
            quarantine.commit();
        }
        assert!(quarantine.put(key("a"), version(2), false));
    }

    #[test]
    fn one_version_is_news_once_however_many_lists_fail_that_show_it() {
        let mut quarantine = Quarantine::default();
        quarantine.begin();
        assert!(quarantine.put(key("a"), version(1), true));
        for _ in 0..3 {
            quarantine.begin();
            assert!(!quarantine.put(key("a"), version(1), true));
        }
        assert!(quarantine.put(key("a"), version(2), true), "another version");
        quarantine.commit();
        assert!(!quarantine.put(key("a"), version(2), false));
        quarantine.remove(&key("a"), false);
        quarantine.begin();
        assert!(quarantine.put(key("a"), version(2), true), "it was not held any more");
    }

    #[test]
    fn a_list_without_it_lets_a_key_go_and_a_list_given_up_does_not() {
        let mut quarantine = Quarantine::default();
        quarantine.put(key("a"), version(1), false);
        quarantine.begin();
        quarantine.begin();
        assert_eq!(quarantine.len(), 1);
        quarantine.commit();
        assert_eq!(quarantine.len(), 0);
    }
}
