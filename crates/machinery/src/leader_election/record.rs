//! The content of a Lease, and the decisions based on it, without I/O.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `leaseDurationSeconds` of a released lease (as in client-go).
const RELEASED: i32 = 1;

/// The longest configurable lease; a longer one in a Lease is a mistake.
const LONGEST: Duration = Duration::from_secs(86_400);

/// `spec` of a Lease, coordination.k8s.io/v1.
///
/// The times are for humans. They are stored as text so that no code can compare them with a clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Record {
    pub(super) holder_identity: Option<String>,
    pub(super) lease_duration_seconds: Option<i32>,
    pub(super) acquire_time: Option<String>,
    pub(super) renew_time: Option<String>,
    pub(super) lease_transitions: Option<i32>,
}

/// The state of the lease for this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// This process holds it.
    Mine,
    /// No process holds it: it is new, released or expired.
    Free,
    /// Another process holds it until then, by this process's clock.
    HeldUntil(Duration),
}

/// Returns the holder of this lease at `now`, if `record` was first seen at `since` and is unchanged. `own` is the
/// duration configured for this process.
pub(super) fn decide(
    record: &Record,
    me: &str,
    since: Duration,
    now: Duration,
    own: Duration,
) -> Claim {
    if record.holder() == Some(me) {
        return Claim::Mine;
    }
    let until = since + record.duration(own);
    if record.is_given_up() || now >= until { Claim::Free } else { Claim::HeldUntil(until) }
}

// === impl Record ===

impl Record {
    /// Returns its holder.
    pub(super) fn holder(&self) -> Option<&str> {
        self.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    /// Returns its validity without changes: the recorded duration, but no less than `own`. The record can have been
    /// edited, and its holder counts with its configured duration.
    pub(super) fn duration(&self, own: Duration) -> Duration {
        let seconds = self.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Duration::from_secs(seconds.unwrap_or_default()).min(LONGEST).max(own)
    }

    /// Returns whether the holder released it. An edit that clears the spec looks different, because then the holder
    /// can still be writing.
    pub(super) fn is_given_up(&self) -> bool {
        self.holder().is_none()
            && self.lease_duration_seconds == Some(RELEASED)
            && self.renew_time.is_some()
            && self.acquire_time.is_none()
    }

    /// Returns the record that follows `self` when `me` takes or renews the lease.
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

    /// Returns the record with which the holder releases the lease.
    pub(super) fn released(&self, wall: Timestamp) -> Record {
        Record {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(RELEASED),
            acquire_time: None,
            renew_time: Some(self.new_time(wall)),
            ..self.clone()
        }
    }

    /// Returns `wall` as metav1.MicroTime, different from the last renewal. A patch without changes gets no new
    /// resourceVersion, so other processes would not notice it.
    fn new_time(&self, wall: Timestamp) -> String {
        let now = format!("{wall:.6}");
        if self.renew_time.as_ref() != Some(&now) {
            return now;
        }
        let later = wall.checked_add(jiff::SignedDuration::from_micros(1));
        format!("{:.6}", later.unwrap_or(Timestamp::UNIX_EPOCH))
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
    fn a_rivals_lease_expires_after_its_duration_without_changes() {
        let mut rival = Record::default().held_by("rival", Duration::from_secs(30), at(0));
        assert_eq!(claim(&rival, 29), Claim::HeldUntil(Duration::from_secs(130)));
        assert_eq!(claim(&rival, 30), Claim::Free);
        for edited in [None, Some(0), Some(-5), Some(1)] {
            rival.lease_duration_seconds = edited;
            assert_eq!(claim(&rival, 14), Claim::HeldUntil(Duration::from_secs(115)));
        }
        rival.lease_duration_seconds = Some(i32::MAX);
        assert_eq!(claim(&rival, 86_400), Claim::Free);
    }

    #[test]
    fn the_times_in_a_lease_are_ignored() {
        let mut rival = Record::default().held_by("rival", LEASE, at(0));
        let before = claim(&rival, 3);
        rival.renew_time = Some("1970-01-01T00:00:00.000000Z".into());
        assert_eq!(claim(&rival, 3), before);
        rival.renew_time = Some("not a time".into());
        assert_eq!(claim(&rival, 3), before);
    }

    #[test]
    fn a_released_lease_is_free_at_once_and_an_edited_one_not() {
        let held = Record::default().held_by("rival", LEASE, at(0));
        assert_eq!(claim(&held.released(at(1)), 0), Claim::Free);
        assert_ne!(held.released(at(1)).renew_time, held.renew_time, "others notice the write");
        let cleared = Record { holder_identity: Some(String::new()), ..held.clone() };
        let lowered = Record { lease_duration_seconds: Some(1), ..cleared.clone() };
        let without_time = Record { renew_time: None, ..held.released(at(1)) };
        for edited in [Record::default(), cleared, lowered, without_time] {
            assert_eq!(claim(&edited, 0), Claim::HeldUntil(Duration::from_secs(115)));
        }
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
        assert_eq!(renewed.released(at(4)).held_by("x", LEASE, at(5)).lease_transitions, Some(1));
    }

    #[test]
    fn a_renewal_differs_from_the_last_even_if_the_clock_stops() {
        let first = Record::default().held_by("me", LEASE, at(1));
        assert_ne!(first.held_by("me", LEASE, at(1)), first);
    }
}
