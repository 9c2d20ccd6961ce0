//! The time of this machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A monotonic time. Readings from different machines cannot be compared.
pub trait Clock: Send + Sync + 'static {
    /// Time since some moment in the past.
    fn now(&self) -> Duration;
}

/// The clock that continues while the machine is suspended: CLOCK_BOOTTIME, on macOS CLOCK_MONOTONIC. `Instant`
/// stops meanwhile on both: a leader would resume hours later and assume that it has a second left.
#[derive(Debug, Clone, Copy, Default)]
pub struct Boottime;

#[cfg(not(target_vendor = "apple"))]
const GOES_ON: ClockId = ClockId::Boottime;
#[cfg(target_vendor = "apple")]
const GOES_ON: ClockId = ClockId::Monotonic;

impl Clock for Boottime {
    fn now(&self) -> Duration {
        let time = clock_gettime(GOES_ON);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_back() {
        let readings: Vec<Duration> = (0..1_000).map(|_| Boottime.now()).collect();
        assert!(readings.is_sorted() && readings[0] > Duration::ZERO);
    }
}
