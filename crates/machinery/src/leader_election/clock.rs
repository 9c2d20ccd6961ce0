//! The clock of a candidate.

use std::time::Duration;

/// A monotonic clock. Readings from different machines cannot be compared.
pub trait Clock: Send + Sync + 'static {
    /// Returns the time since an arbitrary moment in the past.
    fn now(&self) -> Duration;
}

/// The clock that continues while the machine is suspended: CLOCK_BOOTTIME, on macOS CLOCK_MONOTONIC. `Instant` stops
/// during suspension on both: a leader that resumes hours later would assume that it still has permission.
#[derive(Debug, Clone, Copy, Default)]
pub struct Boottime;

impl Clock for Boottime {
    fn now(&self) -> Duration {
        crate::clock::since_boot()
    }
}
