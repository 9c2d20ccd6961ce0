//! What a queue is given: keys, their priorities, and the delays of retries.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

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

/// Delays that double with every consecutive failure: `base · 2ⁿ`, at most `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The delay after the first failure.
    pub base: Duration,
    /// The upper limit.
    pub max: Duration,
}

impl Backoff {
    /// Same as client-go's DefaultTypedControllerRateLimiter: 5 ms to 1000 s.
    pub const DEFAULT: Backoff =
        Backoff { base: Duration::from_millis(5), max: Duration::from_secs(1000) };

    /// The same delay after every failure.
    pub const fn always(delay: Duration) -> Backoff {
        Backoff { base: delay, max: delay }
    }

    /// Returns the delay after a failure that follows `failures` others.
    pub fn delay(&self, failures: u32) -> Duration {
        let delay = 1u32.checked_shl(failures).and_then(|factor| self.base.checked_mul(factor));
        delay.map_or(self.max, |delay| delay.min(self.max))
    }
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff::DEFAULT
    }
}

/// The retry that a failure requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retry {
    /// Growth of the delays.
    pub backoff: Backoff,
    /// Minimum delay (the server's Retry-After). Unlike backoff, it also delays runs requested from outside. Zero means
    /// no such limit.
    pub at_least: Duration,
}

/// Limits of a queue's retries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Fraction of a backoff up to which a random time is added, so that keys that failed together are not retried
    /// together. Default 0.1.
    pub jitter: f64,
    /// Overall rate at which retries after the second consecutive failure are queued, in keys per second. Tenants take
    /// turns. Default 50, as in sample-controller. First runs and first retries do not count and do not wait.
    pub retries_per_second: u32,
    /// Burst of these retries. Default 300, as in sample-controller.
    pub retry_burst: u32,
    /// Seed of the jitter. `None` means random.
    pub seed: Option<u64>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { jitter: 0.1, retries_per_second: 50, retry_burst: 300, seed: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_from_5_milliseconds_to_1000_seconds() {
        let backoff = Backoff::DEFAULT;
        let delays: Vec<u128> = (0..20).map(|n| backoff.delay(n).as_millis()).collect();
        assert_eq!(delays[..5], [5, 10, 20, 40, 80]);
        assert_eq!(delays[17..], [655_360, 1_000_000, 1_000_000]);
        assert_eq!(backoff.delay(255), Duration::from_secs(1000));
    }
}
