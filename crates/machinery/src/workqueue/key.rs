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

/// Urgency of a key. A higher priority goes first, but cannot starve a lower one: see [`Priority::MAX_INTERVALS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Retries after the second consecutive failure. Only the queue uses this; a request from outside with it gets
    /// [`Priority::Low`].
    Retry,
    /// The initial list, resyncs and timers: no user waits for a particular key.
    Low,
    /// Changes: a user can be waiting.
    High,
}

// === impl Priority ===

impl Priority {
    /// All priorities, lowest first; the order of [`Snapshot::depth`](super::Snapshot::depth).
    pub const ALL: [Priority; 3] = [Priority::Retry, Priority::Low, Priority::High];

    /// Maximum gets between two of a priority with waiting keys, in the order of [`Priority::ALL`], however many keys
    /// arrive above it. For [`Priority::Retry`], only gets at which the overall limit permits a retry count. One get in
    /// eight is enough to finish an initial list under load, and costs urgent keys at most an eighth of the speed.
    pub const MAX_INTERVALS: [u32; 3] = [16, 8, 1];

    /// Returns a static word for metric labels.
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
