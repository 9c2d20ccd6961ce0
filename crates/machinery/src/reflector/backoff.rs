//! Waits after failures.

use std::time::Duration;

use tokio::time::Instant;

/// The first wait, as in client-go's reflector.
const FIRST: Duration = Duration::from_millis(800);
/// The largest base. With jitter, a wait is then in [15 s, 30 s): within client-go's 30 s, and still with jitter, so
/// that replicas do not align at the cap.
const LAST: Duration = Duration::from_secs(15);
/// Time without a failure after which the waits start over.
const HEALTHY: Duration = Duration::from_secs(120);
/// Upper limit of the server's wait: a larger one is a mistake.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(300);

/// Waits of [d, 2d), with d doubling from 800 ms to 15 s. Starts over when a watch delivers something new, and after
/// two minutes without a failure. Failures of lists and watches of a reflector add up.
#[derive(Debug)]
pub(super) struct Backoff {
    base: Duration,
    /// End of the last wait; health is counted from then.
    ended: Option<Instant>,
    rng: fastrand::Rng,
}

impl Backoff {
    pub(super) fn new(rng: fastrand::Rng) -> Backoff {
        Backoff { base: FIRST, ended: None, rng }
    }

    /// Makes the next failure count as the first one.
    pub(super) fn start_over(&mut self) {
        self.base = FIRST;
    }

    /// Returns the time of the next attempt after a failure at `now`. `retry_after` is a lower bound. It has jitter
    /// on top, because the server sends it to all clients.
    pub(super) fn after_failure(&mut self, now: Instant, retry_after: Option<Duration>) -> Instant {
        if self.ended.is_some_and(|ended| now.saturating_duration_since(ended) >= HEALTHY) {
            self.base = FIRST;
        }
        let jitter = self.base.mul_f64(self.rng.f64());
        let asked = retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER);
        let until = now + self.base.max(asked) + jitter;
        self.base = (self.base * 2).min(LAST);
        self.ended = Some(until);
        until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backoff() -> Backoff {
        Backoff::new(fastrand::Rng::with_seed(7))
    }

    /// Fails again as soon as each wait is over; returns the waits.
    fn waits(backoff: &mut Backoff, mut now: Instant, times: usize) -> (Vec<Duration>, Instant) {
        let mut waits = Vec::new();
        for _ in 0..times {
            let until = backoff.after_failure(now, None);
            waits.push(until - now);
            now = until;
        }
        (waits, now)
    }

    #[test]
    fn waits_double_with_jitter_and_never_exceed_thirty_seconds() {
        let (waits, _) = waits(&mut backoff(), Instant::now(), 40);
        let mut base = FIRST;
        for wait in &waits {
            assert!((base..base * 2).contains(wait), "{wait:?} is not in [{base:?}, 2×)");
            base = (base * 2).min(LAST);
        }
        let last = &waits[20..];
        assert!(last.windows(2).any(|two| two[0] != two[1]), "no jitter at the cap: {last:?}");
    }

    #[test]
    fn only_two_minutes_without_failure_reset_the_backoff() {
        let mut backoff = backoff();
        let (_, now) = waits(&mut backoff, Instant::now(), 10);
        let now = now + HEALTHY - Duration::from_millis(1);
        let until = backoff.after_failure(now, None);
        assert!(until - now >= LAST);
        let now = until + HEALTHY;
        assert!(backoff.after_failure(now, None) - now < FIRST * 2);
    }

    #[test]
    fn retry_after_is_a_lower_bound_with_jitter_on_top() {
        let (mut backoff, now) = (backoff(), Instant::now());
        let asked = Duration::from_secs(20);
        let waits: Vec<_> = (0..5).map(|_| backoff.after_failure(now, Some(asked)) - now).collect();
        assert!(waits.iter().all(|&wait| wait > asked), "{waits:?}");
        let now = now + 3 * HEALTHY;
        let shorter = backoff.after_failure(now, Some(Duration::from_millis(1))) - now;
        assert!(shorter >= FIRST, "Retry-After must not shorten a wait");
    }

    #[test]
    fn a_retry_after_is_capped() {
        let now = Instant::now();
        let until = backoff().after_failure(now, Some(Duration::from_secs(86_400)));
        assert!(until - now < LONGEST_RETRY_AFTER + LAST);
    }
}
