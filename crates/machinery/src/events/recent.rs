//! An LRU map. Pure.

use std::hash::Hash;

use hashbrown::HashMap;

/// A map of at most `capacity` entries; the least recently used ones are removed first.
///
/// A full map drops an eighth of its entries at once. The search for the oldest entries reads all of them, and many
/// insertions share its cost, so no linked list is needed.
pub(super) struct Recent<K, V> {
    entries: HashMap<K, Slot<V>>,
    capacity: usize,
    /// Grows with every use; larger is more recent.
    uses: u64,
}

struct Slot<V> {
    value: V,
    used: u64,
}

impl<K: Hash + Eq, V> Recent<K, V> {
    pub(super) fn new(capacity: usize) -> Recent<K, V> {
        Recent { entries: HashMap::new(), capacity, uses: 0 }
    }

    /// Returns the value under `key` and marks it as the most recently used.
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let slot = self.entries.get_mut(key)?;
        self.uses += 1;
        slot.used = self.uses;
        Some(&mut slot.value)
    }

    /// Stores `value` under `key` and returns it. Values that are `pinned` are not removed.
    pub(super) fn insert(&mut self, key: K, value: V, pinned: impl Fn(&V) -> bool) -> &mut V {
        if self.entries.len() >= self.capacity {
            self.forget(pinned);
        }
        self.uses += 1;
        let slot = Slot { value, used: self.uses };
        &mut self.entries.entry(key).insert(slot).into_mut().value
    }

    fn forget(&mut self, pinned: impl Fn(&V) -> bool) {
        let mut ages: Vec<u64> =
            self.entries.values().filter(|s| !pinned(&s.value)).map(|s| s.used).collect();
        if ages.is_empty() {
            return;
        }
        let last = (self.capacity / 8).min(ages.len() - 1);
        let (_, &mut newest, _) = ages.select_nth_unstable(last);
        self.entries.retain(|_, slot| slot.used > newest || pinned(&slot.value));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_never_exceeds_its_capacity_and_keeps_used_entries() {
        let mut recent = Recent::new(64);
        for i in 0..10_000 {
            recent.insert(i, (), |_| false);
            assert!(recent.len() <= 64);
            assert!(recent.get_mut(&0).is_some(), "used all the time, forgotten at {i}");
        }
    }

    #[test]
    fn pinned_entries_stay() {
        let mut recent = Recent::new(16);
        recent.insert(0, true, |pinned| *pinned);
        for i in 1..1_000 {
            recent.insert(i, false, |pinned| *pinned);
        }
        assert!(recent.get_mut(&0).is_some());
    }
}
