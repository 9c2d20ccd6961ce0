//! The overall rate: governor's token bucket with a manual clock.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::StateInformationMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

use super::timers::Nanos;

/// A token bucket of `burst` tokens that refills at `rate` per second. Tokens cannot be reserved, so a key without a
/// token does not delay other keys.
pub(super) struct Bucket {
    limiter: RateLimiter<NotKeyed, InMemoryState, GivenTime, StateInformationMiddleware>,
    /// Time of the next token, as of the last take. governor reports it only when a token is requested, which takes a
    /// token if there is one.
    next: Nanos,
}

/// A clock that returns the time it was given, so that the core is deterministic.
struct GivenTime(Cell<Duration>);

// === impl Bucket ===

impl Bucket {
    /// Creates a bucket. A rate of 0 counts as 1 per second, a burst of 0 as 1.
    pub(super) fn new(rate: u32, burst: u32) -> Bucket {
        let at_least_one = |number: u32| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_second(at_least_one(rate)).allow_burst(at_least_one(burst));
        let clock = GivenTime(Cell::new(Duration::ZERO));
        let limiter = RateLimiter::direct_with_clock(quota, clock).with_middleware();
        Bucket { limiter, next: 0 }
    }

    /// Returns the time of the next token, as of the last take. A past time means that one is left.
    pub(super) fn next(&self) -> Nanos {
        self.next
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self, now: Nanos) {
        self.limiter.clock().0.set(Duration::from_nanos(now));
        if self.limiter.check().is_ok_and(|left| left.remaining_burst_capacity() > 0) {
            return;
        }
        // None is left, so this only returns when the next one is available.
        if let Err(until) = self.limiter.check() {
            self.next = until.earliest_possible().as_nanos() as Nanos;
        }
    }
}

// === impl GivenTime ===

impl Clock for GivenTime {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_immediate_and_later_keys_follow_the_rate() {
        let mut bucket = Bucket::new(50, 300);
        let (mut now, mut through) = (0, 0);
        while now <= 10_000_000_000 {
            while bucket.next() <= now {
                bucket.take(now);
                through += 1;
            }
            now += 1_000_000;
        }
        assert_eq!(through, 300 + 10 * 50);
    }

    #[test]
    fn a_take_without_a_token_reserves_no_later_token() {
        let mut bucket = Bucket::new(1, 1);
        (0..10).for_each(|_| bucket.take(0));
        assert_eq!(bucket.next(), 1_000_000_000);
    }
}
