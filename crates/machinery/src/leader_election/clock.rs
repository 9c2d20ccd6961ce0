//! Time on this machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time that only goes forward. Readings from different machines cannot be compared.
pub trait Clock: Send + Sync + 'static {
    /// Time since some moment in the past.
    fn now(&self) -> Duration;
}

/// CLOCK_BOOTTIME. `Instant` is CLOCK_MONOTONIC on Linux, which stands still while the machine is
/// suspended: a leader would wake up hours later and believe it had a second left.
#[derive(Debug, Clone, Copy, Default)]
pub struct Boottime;

impl Clock for Boottime {
    fn now(&self) -> Duration {
        let time = clock_gettime(ClockId::Boottime);
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
