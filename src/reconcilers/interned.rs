//! Equal parts of objects, stored once.

use std::hash::{BuildHasher, Hash};
use std::ops::Deref;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::Mutex;

/// The table is swept of values that are no longer referenced when it has doubled since the last
/// sweep, but never below this many.
const FIRST_SWEEP: usize = 256;

/// A value whose equal copies share one allocation, for as long as there is one.
#[derive(Debug)]
pub struct Interned<T>(Arc<T>);

/// Where the values of one type are interned.
#[derive(Debug)]
pub struct Interner<T>(Mutex<Option<Table<T>>>);

#[derive(Debug)]
struct Table<T> {
    values: HashTable<Arc<T>>,
    hasher: DefaultHashBuilder,
    /// `values.len()` at which the next sweep is due.
    sweep_at: usize,
}

// === impl Interner ===

impl<T: Eq + Hash> Interner<T> {
    /// An empty table.
    pub const fn new() -> Interner<T> {
        Interner(Mutex::new(None))
    }

    /// The shared copy of `value`.
    pub fn intern(&self, value: T) -> Interned<T> {
        let mut table = self.0.lock();
        let table = table.get_or_insert_with(|| Table {
            values: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            sweep_at: FIRST_SWEEP,
        });
        let hash = table.hasher.hash_one(&value);
        if let Some(known) = table.values.find(hash, |known| **known == value) {
            return Interned(known.clone());
        }
        if table.values.len() >= table.sweep_at {
            table.values.retain(|known| Arc::strong_count(known) > 1);
            table.sweep_at = FIRST_SWEEP.max(2 * table.values.len());
        }
        let new = Arc::new(value);
        let hasher = &table.hasher;
        table.values.insert_unique(hash, new.clone(), |known| hasher.hash_one(&**known));
        Interned(new)
    }
}

impl<T: Eq + Hash> Default for Interner<T> {
    fn default() -> Interner<T> {
        Interner::new()
    }
}

// === impl Interned ===

impl<T> Interned<T> {
    /// Returns whether both are the same allocation.
    pub fn is_same_as(&self, other: &Interned<T>) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Clone for Interned<T> {
    fn clone(&self) -> Interned<T> {
        Interned(self.0.clone())
    }
}

impl<T> Deref for Interned<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_one_allocation() {
        let interner = Interner::new();
        let (a, b) = (interner.intern(vec![1, 2]), interner.intern(vec![1, 2]));
        assert!(a.is_same_as(&b));
        assert!(!a.is_same_as(&interner.intern(vec![1])));
    }

    #[test]
    fn what_nobody_holds_is_swept() {
        let interner = Interner::new();
        let kept = interner.intern(usize::MAX);
        for value in 0..10 * FIRST_SWEEP {
            drop(interner.intern(value));
        }
        let left = interner.0.lock().as_ref().map_or(0, |table| table.values.len());
        assert!(left <= FIRST_SWEEP + 1, "{left} values left");
        assert!(kept.is_same_as(&interner.intern(usize::MAX)));
    }
}
