//! Values of which equal ones share one allocation.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

/// Values nobody holds are swept from the table when it has grown to this many, then whenever it
/// has doubled since the last sweep: interning stays amortized O(1) and the table stays within
/// twice what is alive.
const FIRST_SWEEP: usize = 1024;

/// All values of one type that are in use.
pub(super) struct Interner<T: ?Sized> {
    table: HashTable<Arc<T>>,
    hasher: DefaultHashBuilder,
    /// `table.len()` at which the next sweep is due.
    sweep_at: usize,
}

// === impl Interner ===

impl<T: Hash + Eq + ?Sized> Interner<T> {
    /// The one copy of `value`, made if there is none.
    pub(super) fn intern(&mut self, value: impl Borrow<T> + Into<Arc<T>>) -> Arc<T> {
        let hash = self.hasher.hash_one(value.borrow());
        if let Some(known) = self.table.find(hash, |known| **known == *value.borrow()) {
            return known.clone();
        }
        if self.table.len() >= self.sweep_at.max(FIRST_SWEEP) {
            self.sweep();
        }
        let new: Arc<T> = value.into();
        let hasher = &self.hasher;
        self.table.insert_unique(hash, new.clone(), |known| hasher.hash_one(&**known));
        new
    }

    /// Drops the values that only the table holds. Nobody can take one in the meantime: the only
    /// way to one is through the table, and for that it has to be borrowed.
    fn sweep(&mut self) {
        self.table.retain(|known| Arc::strong_count(known) > 1);
        self.sweep_at = 2 * self.table.len();
    }
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Interner<T> {
        Interner { table: HashTable::new(), hasher: DefaultHashBuilder::default(), sweep_at: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_nobody_holds_leaves_the_table_at_the_next_sweep() {
        let mut interner: Interner<str> = Interner::default();
        let kept = interner.intern("kept");
        for i in 0..4 * FIRST_SWEEP {
            drop(interner.intern(format!("gone-{i}").as_str()));
        }
        assert!(interner.table.len() <= FIRST_SWEEP + 1, "{} values left", interner.table.len());
        assert!(Arc::ptr_eq(&kept, &interner.intern("kept")), "a held value was swept");
    }
}
