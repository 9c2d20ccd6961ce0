//! The clock of a candidate.

use std::time::Duration;

/// A monotonic time. Readings from different machines cannot be compared.
pub trait Clock: Send + Sync + 'static {
    /// Time since some moment in the past.
    fn now(&self) -> Duration;
}

/// The clock that continues while the machine is suspended: CLOCK_BOOTTIME, on macOS CLOCK_MONOTONIC. `Instant`
/// stops meanwhile on both: a leader would resume hours later and assume that it has a second left.
#[derive(Debug, Clone, Copy, Default)]
pub struct Boottime;

impl Clock for Boottime {
    fn now(&self) -> Duration {
        crate::clock::since_boot()
    }
}
