//! Keys of a queue.

use std::fmt::Debug;
use std::hash::Hash;

/// The name of a piece of work. Two equal keys are the same piece of work.
///
/// The queue clones a key when it first stores it and each time it is taken, so a clone should be cheap (reference
/// counts, no copies).
pub trait Key: Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// The owner of the work. Tenants are served round robin.
    type Tenant: Clone + Eq + Hash + Send + Sync + 'static;

    /// Returns the tenant of this key. Equal keys must have equal tenants.
    fn tenant(&self) -> &Self::Tenant;
}

/// Urgency of a key. The higher priority goes first, but cannot starve the lower one: see [`Priority::LOW_INTERVAL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// The initial list, resyncs, timers, and retries after the second failure in a row: no user waits for a particular
    /// key.
    Low,
    /// Changes: a user can be waiting.
    High,
}

// === impl Priority ===

impl Priority {
    /// All priorities, lowest first; the order of [`Snapshot::depth`](super::Snapshot::depth).
    pub const ALL: [Priority; 2] = [Priority::Low, Priority::High];

    /// Maximum gets between two of [`Priority::Low`] while it has waiting keys, however many keys arrive above it. One
    /// get in eight is enough to finish an initial list under load, and costs urgent keys at most an eighth of the speed.
    pub const LOW_INTERVAL: u32 = 8;

    /// Returns a static word for metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Priority::Low => "low",
            Priority::High => "high",
        }
    }

    pub(super) fn index(self) -> usize {
        self as usize
    }
}
