//! Objects that cannot be decoded.

use std::collections::HashMap;

use crate::object::{ObjectKey, ResourceVersion};

/// Number of further lists for which the objects of a failed list are remembered. One would not do:
/// each may break off somewhere else.
const REMEMBERED: u64 = 16;

/// The keys of objects whose last version could not be decoded. Bounded by the live objects: a key
/// is removed by a version that can be decoded, by the object's end, or by a list without it. While
/// lists fail, what the current one and the [`REMEMBERED`] before it showed comes on top.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    held: HashMap<ObjectKey, ResourceVersion>,
    /// Objects that the current list has shown so far; replaces `held` when the list is complete.
    listing: HashMap<ObjectKey, ResourceVersion>,
    /// Objects that the last lists showed, if none was complete, each with the number of the last
    /// list that did: objects that failed lists have reported are not reported again.
    told: HashMap<ObjectKey, (ResourceVersion, u64)>,
    /// The number of the current list, counted from the last complete one.
    list: u64,
}

impl Quarantine {
    /// Adds an object; returns whether this version of it is new here, and so worth a log line.
    pub(super) fn put(&mut self, key: ObjectKey, version: ResourceVersion, staging: bool) -> bool {
        let known = self.held.get(&key) == Some(&version);
        if staging {
            self.listing.insert(key.clone(), version);
            let before = self.told.insert(key, (version, self.list));
            return !known && before.is_none_or(|(told, _)| told != version);
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

    /// A list begins.
    pub(super) fn begin(&mut self) {
        self.abandon();
        self.list += 1;
        self.told.retain(|_, (_, shown)| self.list - *shown <= REMEMBERED);
    }

    /// The list will not be complete.
    pub(super) fn abandon(&mut self) {
        self.listing = HashMap::new();
    }

    /// The list is complete.
    pub(super) fn commit(&mut self) {
        self.held = std::mem::take(&mut self.listing);
        self.told = HashMap::new();
        self.list = 0;
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
    fn what_failed_lists_showed_is_forgotten_when_many_more_have_failed_without_it() {
        let mut quarantine = Quarantine::default();
        quarantine.begin();
        assert!(quarantine.put(key("a"), version(1), true));
        for number in 1..=1000 {
            quarantine.abandon();
            quarantine.begin();
            assert!(quarantine.put(key(&format!("churn-{number}")), version(number), true));
            assert!(quarantine.told.len() as u64 <= REMEMBERED + 1);
            let remembered = quarantine.told.contains_key(&key("a"));
            assert_eq!(remembered, number <= REMEMBERED, "after {number} lists");
        }
    }

    #[test]
    fn a_list_that_breaks_off_early_does_not_make_the_next_one_tell_again() {
        let mut quarantine = Quarantine::default();
        for list in 0..3 {
            quarantine.begin();
            assert_eq!(quarantine.put(key("a"), version(1), true), list == 0);
            assert_eq!(quarantine.put(key("z"), version(1), true), list == 0);
            quarantine.abandon();
            quarantine.begin();
            assert!(!quarantine.put(key("a"), version(1), true));
            quarantine.abandon();
        }
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
