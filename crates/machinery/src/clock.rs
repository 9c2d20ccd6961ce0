//! The time of this machine.
//!
//! Guarantees
//! - All times sent to the API server (in conditions, Events and the Lease) are from [`now`].
//! - On a thread that has created a `testing::Server`, both clocks follow tokio's clock, which can be paused.

use std::time::Duration;

#[cfg(any(test, feature = "testing"))]
use jiff::SignedDuration;
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

#[cfg(not(target_vendor = "apple"))]
const BOOTTIME: ClockId = ClockId::Boottime;
#[cfg(target_vendor = "apple")]
const BOOTTIME: ClockId = ClockId::Monotonic;

/// Returns the wall clock's time.
pub fn now() -> Timestamp {
    #[cfg(any(test, feature = "testing"))]
    if let Some((begin, began)) = simulated::BEGIN.get() {
        return begin + began.elapsed() + simulated::AHEAD.get();
    }
    Timestamp::now()
}

/// Returns the time since the machine was started, including the time in which it was suspended: CLOCK_BOOTTIME, on
/// macOS CLOCK_MONOTONIC. `Instant` stops during suspension on both.
pub(crate) fn boottime() -> Duration {
    #[cfg(any(test, feature = "testing"))]
    if let Some(booted) = simulated::BOOTED.get() {
        return simulated::UPTIME + booted.elapsed();
    }
    let time = clock_gettime(BOOTTIME);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Makes the clocks of this thread follow tokio's clock. The wall clock starts at `begin`.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn simulate(begin: Timestamp) {
    let now = tokio::time::Instant::now();
    simulated::BEGIN.set(Some((begin, now)));
    simulated::AHEAD.set(SignedDuration::ZERO);
    // Not later than `now`: the clock would stand still until then.
    simulated::BOOTED.set(Some(simulated::BOOTED.get().map_or(now, |booted| booted.min(now))));
}

/// Sets how far the wall clock of this thread is ahead of the time of the `testing::Server`.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn set_ahead(time: SignedDuration) {
    simulated::AHEAD.set(time);
}

/// Suspends the machine of this thread for `time`: only [`boottime`] goes on.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn suspend(time: Duration) {
    simulated::BOOTED.set(simulated::BOOTED.get().map(|booted| booted - time));
}

#[cfg(any(test, feature = "testing"))]
mod simulated {
    use std::cell::Cell;
    use std::time::Duration;

    use jiff::{SignedDuration, Timestamp};
    use tokio::time::Instant;

    /// A machine that has run for a while.
    pub(super) const UPTIME: Duration = Duration::from_secs(3600);

    thread_local! {
        pub(super) static BEGIN: Cell<Option<(Timestamp, Instant)>> = const { Cell::new(None) };
        pub(super) static AHEAD: Cell<SignedDuration> = const { Cell::new(SignedDuration::ZERO) };
        pub(super) static BOOTED: Cell<Option<Instant>> = const { Cell::new(None) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_never_goes_back() {
        let readings: Vec<Duration> = (0..1_000).map(|_| boottime()).collect();
        assert!(readings.is_sorted() && readings[0] > Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_stops_while_tokio_is_paused() {
        simulate(Timestamp::UNIX_EPOCH);
        let (wall, boot) = (now(), boottime());
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!((now() - wall).get_milliseconds(), 0);
        assert_eq!(now().as_second() - wall.as_second(), 60);
        assert_eq!((boottime() - boot).as_secs(), 60);
    }
}
