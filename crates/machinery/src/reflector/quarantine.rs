//! Objects that cannot be decoded.

use hashbrown::HashSet;

use crate::object::ObjectKey;

/// Approximate limit of keys from failed lists, until a list is complete.
const MOST: usize = 10_000;

/// Keys of objects whose last version could not be decoded. A decodable version, the object's deletion, or a
/// complete list without it removes a key.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    keys: HashSet<ObjectKey>,
    /// The keys that the current list has shown so far.
    listed: HashSet<ObjectKey>,
}

impl Quarantine {
    /// Adds an object. Returns whether it is new; only new objects are logged.
    pub(super) fn put(&mut self, key: ObjectKey, staging: bool) -> bool {
        if staging {
            self.listed.insert(key.clone());
        }
        self.keys.insert(key)
    }

    /// Removes an object that can be decoded again or was deleted. Returns whether it was quarantined. Removals by a
    /// list take effect when it is complete.
    pub(super) fn remove(&mut self, key: &ObjectKey, staging: bool) -> bool {
        let keys = if staging { &mut self.listed } else { &mut self.keys };
        // Nearly always empty, and this runs for every event.
        !keys.is_empty() && keys.remove(key)
    }

    /// Begins a list.
    pub(super) fn begin(&mut self) {
        self.listed = HashSet::new();
        if self.keys.len() > MOST {
            self.keys = HashSet::new();
        }
    }

    /// Completes the list.
    pub(super) fn commit(&mut self) {
        self.keys = std::mem::take(&mut self.listed);
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("ns", name)
    }

    #[test]
    fn an_undecodable_object_is_new_only_once() {
        let mut quarantine = Quarantine::default();
        quarantine.begin();
        assert!(quarantine.put(key("a"), true));
        quarantine.begin();
        assert!(!quarantine.put(key("a"), true), "the first list broke off");
        quarantine.commit();
        assert!(!quarantine.put(key("a"), false), "a watch shows its next version");
        assert!(quarantine.remove(&key("a"), false));
        assert!(quarantine.put(key("a"), false), "it could be decoded meanwhile");
    }

    #[test]
    fn only_a_complete_list_without_a_key_releases_it() {
        let mut quarantine = Quarantine::default();
        quarantine.put(key("a"), false);
        quarantine.begin();
        quarantine.begin();
        assert_eq!(quarantine.len(), 1);
        quarantine.commit();
        assert_eq!(quarantine.len(), 0);
    }
}
