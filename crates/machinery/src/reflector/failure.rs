//! Failed lists and watches, and the waits after them.

use std::time::Duration;

use tokio::time::Instant;

use super::ResourceVersionRegressed;
use crate::client;

/// The first wait, as in client-go's reflector.
const FIRST: Duration = Duration::from_millis(800);
/// The largest base. With jitter, a wait is then in [15 s, 30 s): within client-go's 30 s, and still with jitter, so
/// that replicas do not align at the cap.
const LAST: Duration = Duration::from_secs(15);
/// Time without a failure after which the waits start over.
const HEALTHY: Duration = Duration::from_secs(120);
/// Upper limit of the server's wait: a larger one is a mistake.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(300);

/// A failure, reduced to what determines the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) class: FailureClass,
    /// True if there was a response.
    pub(super) is_answered: bool,
    /// Wait requested by the server (Retry-After).
    pub(super) retry_after: Option<Duration>,
    /// The cause as one sentence.
    pub(super) why: String,
    /// Set if the failure shows that the server's data went back.
    pub(super) regressed: Option<ResourceVersionRegressed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureClass {
    /// The requested version was compacted: list again.
    Expired,
    /// The requested version is newer than the server's newest ("Too large resource version").
    ServerBehind,
    /// A refusal that will repeat: 400, 422 and the rest of 4xx. A server without streaming lists refuses them in
    /// this way.
    Refused,
    /// No permission for this kind.
    Forbidden,
    /// The kind is not served.
    NotServed,
    /// The server failed on this particular request, or its response could not be decoded. If the cause is in the
    /// history after the stored version, this can last indefinitely.
    Internal,
    /// No response by the deadline: the server hangs, or a proxy delays the headers until the body begins. This can
    /// last indefinitely.
    Unanswered,
    /// The server shows something that does not fit the stored version: list again.
    OutOfStep,
    /// A temporary failure: connection, 401, 408, 429, 5xx other than 500.
    Transient,
}

/// Waits of [d, 2d), with d doubling from 800 ms to 15 s. Starts over when a watch delivers something new, and after
/// two minutes without a failure. Failures of lists and watches of a reflector add up.
#[derive(Debug)]
pub(super) struct Backoff {
    base: Duration,
    /// End of the last wait; health is counted from then.
    ended: Option<Instant>,
    /// Number of failures in a row without any response.
    unanswered: u32,
}

impl Failure {
    /// Creates a failure of a server that did respond.
    pub(super) fn new(class: FailureClass, why: impl Into<String>) -> Failure {
        let why = why.into();
        Failure { class, is_answered: true, retry_after: None, why, regressed: None }
    }

    /// Creates the failure of an accepted streaming list. A proxy can cut each of them.
    pub(super) fn of_stream(error: &client::Error) -> Failure {
        let mut failure = Failure::from(error);
        if failure.class == FailureClass::Transient {
            failure.class = FailureClass::Internal;
        }
        failure
    }
}

impl From<&client::Error> for Failure {
    fn from(error: &client::Error) -> Failure {
        Failure {
            is_answered: error.code().is_some(),
            retry_after: error.retry_after(),
            ..Failure::new(classify(error), error.to_string())
        }
    }
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { base: FIRST, ended: None, unanswered: 0 }
    }
}

impl Backoff {
    /// Makes the next failure count as the first one.
    pub(super) fn start_over(&mut self) {
        self.base = FIRST;
    }

    /// Returns the time of the next attempt after a failure at `now`. Retry-After is a lower bound. It has jitter on top,
    /// because the server sends it to all clients.
    pub(super) fn after(&mut self, failure: &Failure, now: Instant) -> Instant {
        if !failure.is_answered {
            self.unanswered += 1;
        } else if failure.class == FailureClass::Transient {
            // After an outage, what the server answers first is over soon, such as 429 while it initializes.
            if std::mem::take(&mut self.unanswered) > 1 {
                self.base = FIRST;
            }
        }
        if self.ended.is_some_and(|ended| now.saturating_duration_since(ended) >= HEALTHY) {
            self.base = FIRST;
        }
        let jitter = self.base.mul_f64(fastrand::f64());
        let asked = failure.retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER);
        let until = now + self.base.max(asked) + jitter;
        self.base = (self.base * 2).min(LAST);
        self.ended = Some(until);
        until
    }
}

fn classify(error: &client::Error) -> FailureClass {
    if error.is_expired() {
        return FailureClass::Expired;
    }
    if error.is_too_large_version() {
        return FailureClass::ServerBehind;
    }
    match error.code() {
        Some(403) => FailureClass::Forbidden,
        Some(404) => FailureClass::NotServed,
        // The client renews an expired token; 408 and 429 come from load on the server.
        Some(401 | 408 | 429) => FailureClass::Transient,
        Some(400..=499) => FailureClass::Refused,
        Some(500) => FailureClass::Internal,
        Some(_) => FailureClass::Transient,
        None => match error {
            client::Error::Decode { .. } | client::Error::TooLarge { .. } => FailureClass::Internal,
            client::Error::Deadline(_) => FailureClass::Unanswered,
            _ => FailureClass::Transient,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(code: u16) -> FailureClass {
        classify(&client::Error::api(code, "", ""))
    }

    #[test]
    fn permanent_refusals_are_distinguished_from_overload() {
        assert_eq!(class(403), FailureClass::Forbidden);
        assert_eq!(class(404), FailureClass::NotServed);
        for code in [401, 429, 502, 503, 504] {
            assert_eq!(class(code), FailureClass::Transient, "{code}");
        }
        assert_eq!(class(422), FailureClass::Refused);
        assert_eq!((class(500), class(410)), (FailureClass::Internal, FailureClass::Expired));
    }

    #[test]
    fn a_lagging_server_is_distinguished_from_a_slow_one() {
        let lags = client::Error::api(504, "Timeout", "Too large resource version: 9, current: 7");
        assert_eq!(classify(&lags), FailureClass::ServerBehind);
    }

    #[test]
    fn an_undecodable_response_is_an_internal_failure() {
        let text = || String::new();
        let error = client::Error::Decode { why: text(), excerpt: text() };
        assert_eq!(classify(&error), FailureClass::Internal);
        assert_eq!(classify(&client::Error::Cut("an event")), FailureClass::Transient);
        let late = client::Error::Deadline(Duration::ZERO);
        assert_eq!(classify(&late), FailureClass::Unanswered);
    }

    fn asking(retry_after: Option<Duration>) -> Failure {
        Failure { retry_after, ..Failure::new(FailureClass::Transient, "why") }
    }

    /// Fails again as soon as each wait is over; returns the waits.
    fn waits(backoff: &mut Backoff, mut now: Instant, times: usize) -> (Vec<Duration>, Instant) {
        let mut waits = Vec::new();
        for _ in 0..times {
            let until = backoff.after(&asking(None), now);
            waits.push(until - now);
            now = until;
        }
        (waits, now)
    }

    #[test]
    fn waits_double_with_jitter_and_never_exceed_thirty_seconds() {
        let (waits, _) = waits(&mut Backoff::default(), Instant::now(), 40);
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
        let mut backoff = Backoff::default();
        let (_, now) = waits(&mut backoff, Instant::now(), 10);
        let now = now + HEALTHY - Duration::from_millis(1);
        let until = backoff.after(&asking(None), now);
        assert!(until - now >= LAST);
        let now = until + HEALTHY;
        assert!(backoff.after(&asking(None), now) - now < FIRST * 2);
    }

    #[test]
    fn retry_after_is_a_lower_bound_with_jitter_on_top() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        let asked = Duration::from_secs(20);
        let waits: Vec<_> =
            (0..5).map(|_| backoff.after(&asking(Some(asked)), now) - now).collect();
        assert!(waits.iter().all(|&wait| wait > asked), "{waits:?}");
        let now = now + 3 * HEALTHY;
        let shorter = backoff.after(&asking(Some(Duration::from_millis(1))), now) - now;
        assert!(shorter >= FIRST, "Retry-After must not shorten a wait");
    }

    #[test]
    fn a_retry_after_is_capped() {
        let now = Instant::now();
        let until = Backoff::default().after(&asking(Some(Duration::from_secs(86_400))), now);
        assert!(until - now < LONGEST_RETRY_AFTER + LAST);
    }
}
