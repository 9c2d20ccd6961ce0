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

    /// Stores `value` under `key` and returns it.
    pub(super) fn insert(&mut self, key: K, value: V) -> &mut V {
        if self.entries.len() >= self.capacity {
            let mut ages: Vec<u64> = self.entries.values().map(|slot| slot.used).collect();
            let last = self.capacity / 8;
            let (_, &mut newest, _) = ages.select_nth_unstable(last);
            self.entries.retain(|_, slot| slot.used > newest);
        }
        self.uses += 1;
        let slot = Slot { value, used: self.uses };
        &mut self.entries.entry(key).insert(slot).into_mut().value
    }

    pub(super) fn remove(&mut self, key: &K) {
        self.entries.remove(key);
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
            recent.insert(i, ());
            assert!(recent.len() <= 64);
            assert!(recent.get_mut(&0).is_some(), "used all the time, forgotten at {i}");
        }
    }
}
