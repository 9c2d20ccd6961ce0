//! Values of which equal ones share one allocation.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use arcstr::ArcStr;
use hashbrown::{DefaultHashBuilder, HashTable};

/// Values nobody holds are swept from the table when it has grown to this many, then whenever it
/// has doubled since the last sweep: interning stays amortized O(1) and the table stays within
/// twice what is alive.
const FIRST_SWEEP: usize = 1024;

/// A handle of a value: clones of one handle share it.
pub(super) trait Shared: Clone + Borrow<Self::Value> {
    type Value: Hash + Eq + ?Sized;

    /// Whether there are other handles than this one.
    fn is_shared(&self) -> bool;
}

/// All values in use, by their handles.
pub(super) struct Interner<S> {
    table: HashTable<S>,
    hasher: DefaultHashBuilder,
    /// `table.len()` at which the next sweep is due.
    sweep_at: usize,
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

    /// The empty one is not counted; it stays.
    fn is_shared(&self) -> bool {
        ArcStr::strong_count(self).is_none_or(|handles| handles > 1)
    }
}

// === impl Interner ===

impl<S: Shared> Interner<S> {
    /// The handle of `value`, made if there is none.
    pub(super) fn intern(&mut self, value: impl Borrow<S::Value> + Into<S>) -> S {
        let hash = self.hasher.hash_one(value.borrow());
        if let Some(known) = self.table.find(hash, |known| known.borrow() == value.borrow()) {
            return known.clone();
        }
        if self.table.len() >= self.sweep_at.max(FIRST_SWEEP) {
            self.sweep();
        }
        let new: S = value.into();
        let hasher = &self.hasher;
        self.table.insert_unique(hash, new.clone(), |known| hasher.hash_one(known.borrow()));
        new
    }

    /// Drops the values that only the table holds. Nobody can take one in the meantime: the only
    /// way to one is through the table, and for that it has to be borrowed.
    fn sweep(&mut self) {
        self.table.retain(|known| known.is_shared());
        self.sweep_at = 2 * self.table.len();
    }
}

impl<S> Default for Interner<S> {
    fn default() -> Interner<S> {
        Interner { table: HashTable::new(), hasher: DefaultHashBuilder::default(), sweep_at: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_nobody_holds_leaves_the_table_at_the_next_sweep() {
        let mut interner: Interner<ArcStr> = Interner::default();
        let (kept, empty) = (interner.intern("kept"), interner.intern(""));
        for i in 0..4 * FIRST_SWEEP {
            drop(interner.intern(format!("gone-{i}").as_str()));
        }
        assert!(interner.table.len() <= FIRST_SWEEP + 2, "{} values left", interner.table.len());
        assert!(ArcStr::ptr_eq(&kept, &interner.intern("kept")), "a held value was swept");
        assert!(ArcStr::ptr_eq(&empty, &interner.intern("")), "it has one address for ever");
    }
}
