//! An interner: equal values share an allocation.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use arcstr::ArcStr;
use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::Mutex;

/// Number of shards. Each has its own lock, so growing or sweeping one delays only calls for its values.
const SHARDS: usize = 64;
/// Size below which a shard is not swept.
const FIRST_SWEEP: usize = 64;
/// Lookups per entry after which a shard is swept, even if it does not grow.
const CALLS: usize = 4;

/// A handle of a value, shared by its clones.
pub(super) trait Shared: Clone + Borrow<Self::Value> {
    /// The type of the value.
    type Value: Hash + Eq + ?Sized;

    /// Returns whether there are other handles than this one.
    fn is_shared(&self) -> bool;
}

/// All values in use, by their handles.
///
/// A sweep removes values that only the table holds. A shard is swept when it has doubled, or after four lookups per
/// entry. So a lookup is amortized O(1), and a table shrinks only while it is used.
pub(super) struct Interner<S> {
    shards: Box<[Mutex<Shard<S>>]>,
    hasher: DefaultHashBuilder,
}

struct Shard<S> {
    table: HashTable<S>,
    /// `table.len()` at which the next sweep is due.
    sweep_at: usize,
    /// Lookups since the last sweep.
    calls: usize,
}

// === impl Shared ===

impl<T: Hash + Eq> Shared for Arc<T> {
    type Value = T;

    fn is_shared(&self) -> bool {
        Arc::strong_count(self) > 1
    }
}

impl Shared for ArcStr {
    type Value = str;

    /// The empty string is static and has no count. It is never removed.
    fn is_shared(&self) -> bool {
        ArcStr::strong_count(self).is_none_or(|handles| handles > 1)
    }
}

// === impl Interner ===

impl<S: Shared> Interner<S> {
    /// Creates an empty interner.
    pub(super) fn new() -> Interner<S> {
        let shard = || Shard { table: HashTable::new(), sweep_at: FIRST_SWEEP, calls: 0 };
        let shards = (0..SHARDS).map(|_| Mutex::new(shard())).collect();
        Interner { shards, hasher: DefaultHashBuilder::default() }
    }

    /// Returns the handle of `value`, creating it if necessary.
    pub(super) fn intern(&self, value: impl Borrow<S::Value> + Into<S>) -> S {
        let hash = self.hasher.hash_one(value.borrow());
        // hashbrown itself uses the lowest and the highest bits.
        let mut shard = self.shards[(hash >> 32) as usize % SHARDS].lock();
        shard.calls += 1;
        let known = shard.table.find(hash, |known| known.borrow() == value.borrow()).cloned();
        shard.sweep_if_due(&self.hasher);
        if let Some(known) = known {
            return known;
        }
        let new: S = value.into();
        let rehash = |known: &S| self.hasher.hash_one(known.borrow());
        shard.table.insert_unique(hash, new.clone(), rehash);
        new
    }
}

impl<S: Shared> Shard<S> {
    /// Removes the values that only the table holds. No other thread can clone one meanwhile, because that requires the
    /// lock of the table.
    fn sweep_if_due(&mut self, hasher: &DefaultHashBuilder) {
        let len = self.table.len();
        if len < FIRST_SWEEP || len < self.sweep_at && self.calls < CALLS * len {
            return;
        }
        self.table.retain(|known| known.is_shared());
        self.sweep_at = FIRST_SWEEP.max(2 * self.table.len());
        self.calls = 0;
        if self.table.capacity() > 8 * self.table.len().max(FIRST_SWEEP) {
            let rehash = |known: &S| hasher.hash_one(known.borrow());
            self.table.shrink_to(2 * self.table.len(), rehash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(interner: &Interner<ArcStr>) -> usize {
        interner.shards.iter().map(|shard| shard.lock().table.len()).sum()
    }

    #[test]
    fn an_unused_value_is_removed_from_the_table() {
        let interner: Interner<ArcStr> = Interner::new();
        let (kept, empty) = (interner.intern("kept"), interner.intern(""));
        for i in 0..4 * SHARDS * FIRST_SWEEP {
            drop(interner.intern(format!("gone-{i}").as_str()));
        }
        assert!(held(&interner) <= 2 * SHARDS * FIRST_SWEEP, "{} values left", held(&interner));
        assert!(ArcStr::ptr_eq(&kept, &interner.intern("kept")), "a held value was swept");
        assert!(ArcStr::ptr_eq(&empty, &interner.intern("")), "it has one address for ever");
    }

    #[test]
    fn lookups_of_known_values_shrink_an_oversized_table() {
        let interner: Interner<ArcStr> = Interner::new();
        let text = |i: usize| format!("text-{i}");
        let many: Vec<ArcStr> = (0..100_000).map(|i| interner.intern(text(i).as_str())).collect();
        let few: Vec<ArcStr> = many[..1000].to_vec();
        drop(many);
        // Each part has about 1,600 values, of which 16 are held.
        for _ in 0..6 * CALLS * 100 {
            few.iter().for_each(|known| drop(interner.intern(known.as_str())));
        }
        assert!(held(&interner) < SHARDS * FIRST_SWEEP, "{} values left", held(&interner));
        let room = |shard: &Mutex<Shard<ArcStr>>| shard.lock().table.capacity();
        let room: usize = interner.shards.iter().map(room).sum();
        assert!(room < 20_000, "room for {room}");
    }

    #[test]
    fn equal_values_of_any_type_share_an_allocation() {
        let interner: Interner<Arc<Vec<u8>>> = Interner::new();
        let (a, b) = (interner.intern(vec![1, 2]), interner.intern(vec![1, 2]));
        assert!(Arc::ptr_eq(&a, &b) && !Arc::ptr_eq(&a, &interner.intern(vec![1])));
    }
}
