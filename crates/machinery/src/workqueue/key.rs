//! Keys of a queue.

use std::fmt::Debug;
use std::hash::Hash;

/// The name of a piece of work. Two equal keys are the same piece of work.
///
/// Cloned when the queue gets to know it and each time it is taken, so a clone should be cheap
/// (reference counts, no copies).
pub trait Key: Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// On whose behalf the work is done. Tenants take turns.
    type Tenant: Clone + Eq + Hash + Send + Sync + 'static;

    /// The tenant of this key. Equal keys have equal tenants.
    fn tenant(&self) -> &Self::Tenant;
}

/// Urgency of a key. A higher priority goes first, but never keeps a lower one waiting forever: see
/// [`Priority::EVERY`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Retries after the second failure in a row. Only the queue itself puts keys here; if
    /// requested from outside, it means [`Priority::Low`].
    Retry,
    /// The initial list, resyncs and timers: no user waits for one of them in particular.
    Low,
    /// Something changed: somebody may be watching.
    High,
}

// === impl Priority ===

impl Priority {
    /// All priorities, lowest first; the order of [`Snapshot::depth`](super::Snapshot::depth).
    pub const ALL: [Priority; 3] = [Priority::Retry, Priority::Low, Priority::High];

    /// The ageing bound, in the order of [`Priority::ALL`]: a priority with waiting keys is served at least
    /// once in this many gets, however many keys arrive above it (for [`Priority::Retry`]: gets at
    /// which the overall limit lets a retry through). One get in eight is enough to work off an
    /// initial list on a busy day, and costs people at most an eighth of the speed.
    pub const EVERY: [u32; 3] = [16, 8, 1];

    /// A static word, for metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Priority::Retry => "retry",
            Priority::Low => "low",
            Priority::High => "high",
        }
    }

    pub(super) fn index(self) -> usize {
        self as usize
    }
}
