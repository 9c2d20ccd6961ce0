//! Keys of a queue.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hash};

use hashbrown::DefaultHashBuilder;

/// The name of a piece of work. Two equal keys are the same piece of work.
///
/// Cloned when the queue gets to know it and each time it is taken, so a clone should be cheap
/// (reference counts, no copies).
pub trait Key: Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// On whose behalf the work is done. Tenants take turns.
    type Tenant: Clone + Eq + Hash + Send + Sync + 'static;

    /// The tenant of this key. Equal keys have equal tenants.
    fn tenant(&self) -> &Self::Tenant;

    /// Has the processor fetch what the key points to, because the key is about to be cloned, and
    /// the clone should not wait for memory. A hint, called with the lock held; by default nothing.
    fn prefetch(&self) {}
}

/// A key and its hash, computed before the lock is taken: hashing may read what the key points to, and
/// no other thread should have to wait for that.
pub(super) struct Hashed<'a, K> {
    pub(super) key: &'a K,
    pub(super) hash: u64,
}

/// Urgency of a key. A higher band goes first, but never keeps a lower one waiting forever: see
/// [`Band::EVERY`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Band {
    /// Retries after the second failure in a row. Only the queue itself puts keys here; if
    /// requested from outside, it means [`Band::Initial`].
    Retry,
    /// The initial list, resyncs and timers: no user waits for one of them in particular.
    Initial,
    /// Something changed: somebody may be watching.
    People,
}

// === impl Hashed ===

impl<'a, K: Key> Hashed<'a, K> {
    pub(super) fn new(hasher: &DefaultHashBuilder, key: &'a K) -> Hashed<'a, K> {
        Hashed { key, hash: hasher.hash_one(key) }
    }
}

// === impl Band ===

impl Band {
    /// All bands, lowest first; the order of [`Snapshot::depth`](super::Snapshot::depth).
    pub const ALL: [Band; 3] = [Band::Retry, Band::Initial, Band::People];

    /// The ageing bound, in the order of [`Band::ALL`]: a band with waiting keys is served at least
    /// once in this many gets, however many keys arrive above it (for [`Band::Retry`]: gets at
    /// which the overall limit lets a retry through). One get in eight is enough to work off an
    /// initial list on a busy day, and costs people at most an eighth of the speed.
    pub const EVERY: [u32; 3] = [16, 8, 1];

    /// A static word, for metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Band::Retry => "retry",
            Band::Initial => "initial",
            Band::People => "people",
        }
    }

    pub(super) fn index(self) -> usize {
        self as usize
    }
}
