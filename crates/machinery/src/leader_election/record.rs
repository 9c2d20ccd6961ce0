//! What a Lease says, and what follows from it. Pure.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `leaseDurationSeconds` of a lease that its holder has given up (as in client-go).
const RELEASED: i32 = 1;

/// `spec` of a Lease, coordination.k8s.io/v1.
///
/// The times are for humans. They are kept as text so that nothing can compare them with a clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Record {
    pub(super) holder_identity: Option<String>,
    pub(super) lease_duration_seconds: Option<i32>,
    pub(super) acquire_time: Option<String>,
    pub(super) renew_time: Option<String>,
    pub(super) lease_transitions: Option<i32>,
}

/// Who may have the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// This process holds it.
    Mine,
    /// Nobody holds it: it is new, was given up or has expired.
    Free,
    /// Somebody else's until then, by this process's clock.
    TakenUntil(Duration),
}

/// Whose lease this is at `now`, if `record` was first seen at `since` and has not changed since
/// then. `fallback` is the duration of a lease that does not state its own.
pub(super) fn decide(
    record: &Record,
    me: &str,
    since: Duration,
    now: Duration,
    fallback: Duration,
) -> Claim {
    if record.holder() == Some(me) {
        return Claim::Mine;
    }
    let until = since + record.duration(fallback);
    if record.is_given_up() || now >= until { Claim::Free } else { Claim::TakenUntil(until) }
}

// === impl Record ===

impl Record {
    /// Who holds it.
    pub(super) fn holder(&self) -> Option<&str> {
        self.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    /// How long it stays valid unchanged. The API has no Lease of less than a second.
    pub(super) fn duration(&self, fallback: Duration) -> Duration {
        match self.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()) {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
            _ => fallback,
        }
    }

    /// Nobody ever held it, or the holder gave it up in good order. If somebody else cleared the
    /// holder, it may still be writing: that does not count as given up.
    fn is_given_up(&self) -> bool {
        let never = self.renew_time.is_none();
        self.holder().is_none() && (never || self.lease_duration_seconds == Some(RELEASED))
    }

    /// The record that follows `self` when `me` takes or renews the lease.
    pub(super) fn held_by(&self, me: &str, lease: Duration, wall: Timestamp) -> Record {
        let mine = self.holder() == Some(me);
        let transitions = self.lease_transitions.unwrap_or_default().max(0);
        let now = self.new_time(wall);
        Record {
            holder_identity: Some(me.to_owned()),
            lease_duration_seconds: Some(i32::try_from(lease.as_secs()).unwrap_or(i32::MAX)),
            acquire_time: self.acquire_time.clone().filter(|_| mine).or(Some(now.clone())),
            renew_time: Some(now),
            // As in client-go: a new lease starts at 0.
            lease_transitions: Some(match self {
                _ if mine || self == &Record::default() => transitions,
                _ => transitions.saturating_add(1),
            }),
        }
    }

    /// The record with which the holder gives the lease up.
    pub(super) fn given_up(&self, wall: Timestamp) -> Record {
        Record {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(RELEASED),
            renew_time: Some(self.new_time(wall)),
            ..self.clone()
        }
    }

    /// `wall` as metav1.MicroTime, made to differ from the last renewal: a patch that changes
    /// nothing gets no new resourceVersion, so nobody else would notice it.
    fn new_time(&self, wall: Timestamp) -> String {
        let text = |time: Timestamp| format!("{time:.6}");
        let now = text(wall);
        if self.renew_time.as_deref() != Some(now.as_str()) {
            return now;
        }
        text(
            wall.checked_add(jiff::SignedDuration::from_micros(1)).unwrap_or(Timestamp::UNIX_EPOCH),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn claim(record: &Record, seconds: u64) -> Claim {
        let since = Duration::from_secs(100);
        decide(record, "me", since, since + Duration::from_secs(seconds), LEASE)
    }

    #[test]
    fn a_rivals_lease_is_taken_until_it_was_seen_unchanged_for_its_own_duration() {
        let mut rival = Record::default().held_by("rival", Duration::from_secs(30), at(0));
        assert_eq!(claim(&rival, 29), Claim::TakenUntil(Duration::from_secs(130)));
        assert_eq!(claim(&rival, 30), Claim::Free);
        for nonsense in [None, Some(0), Some(-5)] {
            rival.lease_duration_seconds = nonsense;
            assert_eq!(claim(&rival, 14), Claim::TakenUntil(Duration::from_secs(115)));
        }
    }

    #[test]
    fn the_times_in_a_lease_change_nothing() {
        let mut rival = Record::default().held_by("rival", LEASE, at(0));
        let before = claim(&rival, 3);
        rival.renew_time = Some("1970-01-01T00:00:00.000000Z".into());
        assert_eq!(claim(&rival, 3), before);
        rival.renew_time = Some("not a time".into());
        assert_eq!(claim(&rival, 3), before);
    }

    #[test]
    fn a_new_or_given_up_lease_is_free_at_once_but_not_one_whose_holder_was_cleared_by_hand() {
        assert_eq!(claim(&Record::default(), 0), Claim::Free);
        let held = Record::default().held_by("rival", LEASE, at(0));
        assert_eq!(claim(&held.given_up(at(1)), 0), Claim::Free);
        let cleared = Record { holder_identity: Some(String::new()), ..held };
        assert_eq!(claim(&cleared, 0), Claim::TakenUntil(Duration::from_secs(115)));
    }

    #[test]
    fn a_renewal_keeps_acquire_time_and_transitions_and_a_takeover_does_not() {
        let first = Record::default().held_by("me", LEASE, at(1));
        let renewed = first.held_by("me", LEASE, at(2));
        assert_eq!(renewed.acquire_time, first.acquire_time);
        assert_eq!((first.lease_transitions, renewed.lease_transitions), (Some(0), Some(0)));
        let taken = renewed.held_by("rival", LEASE, at(3));
        assert_eq!(taken.lease_transitions, Some(1));
        assert_eq!(taken.acquire_time.as_deref(), Some("1970-01-01T00:00:03.000000Z"));
        assert_eq!(renewed.given_up(at(4)).held_by("x", LEASE, at(5)).lease_transitions, Some(1));
    }

    #[test]
    fn a_renewal_differs_from_the_last_even_when_the_wall_clock_stands_still() {
        let first = Record::default().held_by("me", LEASE, at(1));
        assert_ne!(first.held_by("me", LEASE, at(1)), first);
    }
}
