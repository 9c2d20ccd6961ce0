//! Backoffs and log levels of failures.

use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

use super::{ErrorClass, Name};
use crate::object::{KeyHasher, ObjectKey};
use crate::workqueue::{Backoff, Retry};

/// Backoffs of failures, by class. [`ErrorClass::Terminal`] is not retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Default 5 ms to 30 s. Also for reconciles that panic or exceed their deadline. (client-go's limit is 1000 s, so
    /// after an outage its keys can wait as long again as the outage lasted.)
    pub transient: Backoff,
    /// Default 5 ms to 1 s: the next reconcile sees the other client's write as soon as the store has it. After ten
    /// consecutive conflicts, [`Retries::transient`] applies: the store does not show the cause.
    pub conflict: Backoff,
    /// Default 1 s to 120 s, by the number of refusals only. After permissions are granted, users wait two minutes at
    /// most. Also for [`ErrorClass::Waiting`].
    pub forbidden: Backoff,
    /// Default 1 s to 30 s, by the number of refusals only: no event reports that the kind is now served, and a retry
    /// is cheap for the API server.
    pub not_served: Backoff,
    /// Maximum of a server's Retry-After. Default 300 s: a Retry-After also delays changes by users, so a wrong value
    /// must not apply for a day.
    pub retry_after_max: Duration,
}

impl Default for Retries {
    fn default() -> Retries {
        let law = |base, max| Backoff { base, max: Duration::from_secs(max) };
        Retries {
            transient: Backoff { max: Duration::from_secs(30), ..Backoff::DEFAULT },
            conflict: law(Duration::from_millis(5), 1),
            forbidden: law(Duration::from_secs(1), 120),
            not_served: law(Duration::from_secs(1), 30),
            retry_after_max: Duration::from_secs(300),
        }
    }
}

impl Retries {
    /// Returns the retry that the last failure of a streak requests, if any.
    pub(super) fn of(&self, streak: &FailureStreak) -> Option<Retry> {
        let refused =
            |backoff: Backoff| Backoff::always(backoff.delay(streak.refusals.saturating_sub(1)));
        let backoff = match streak.class {
            ErrorClass::Transient => self.transient,
            ErrorClass::Conflict if streak.conflicts >= CONFLICTS => self.transient,
            ErrorClass::Conflict => self.conflict,
            // The queue counts failures of all classes. If these delays grew with that count, the first refusal after
            // a minute of outage would wait two minutes.
            ErrorClass::Forbidden | ErrorClass::Waiting => refused(self.forbidden),
            ErrorClass::NotServed => refused(self.not_served),
            ErrorClass::Terminal => return None,
        };
        Some(Retry { backoff, at_least: streak.retry_after() })
    }
}

/// Failures of a key, until a reconcile succeeds or fails with a terminal error.
#[derive(Debug, Clone)]
pub(super) struct FailureStreak {
    /// Class of the last failure.
    pub(super) class: ErrorClass,
    /// Names that the key waits for, if its last failure was not transient.
    names: Vec<Name>,
    /// End of the server's Retry-After. The backoff can be longer, but no retry begins earlier.
    asked: Option<Instant>,
    /// Number of refusals (forbidden, name taken, kind not served), counted across other failures. One within
    /// [`SECOND_LOOK`] of the last is the same refusal: its report in the status enqueues the key at once.
    pub(super) refusals: u32,
    /// True if the last failure is counted in `refusals`.
    is_counted: bool,
    /// Time of the last counted refusal.
    refused_at: Option<Instant>,
    /// Number of consecutive conflicts.
    pub(super) conflicts: u32,
}

/// Number of consecutive conflicts that indicates another cause than a race. For example, a kind without the status
/// subresource always returns 404.
const CONFLICTS: u32 = 10;

/// See [`FailureStreak::refusals`]; half of the shortest backoff of a refusal.
const SECOND_LOOK: Duration = Duration::from_millis(500);

/// Failing keys.
#[derive(Debug, Default)]
pub(super) struct Failing {
    rows: HashMap<ObjectKey, FailureStreak, KeyHasher>,
    /// Keys in `rows`, by the names that they wait for.
    waiting: HashMap<Name, HashSet<ObjectKey, KeyHasher>>,
    /// Time at which a name last became free.
    freed_at: Option<Instant>,
}

impl Failing {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&FailureStreak> {
        self.rows.get(key)
    }

    /// Stores the streak of a key after a reconcile that began at `began`. Returns whether the reconcile may have missed
    /// that a name became free: the key did not wait for this name before.
    pub(super) fn put(&mut self, key: &ObjectKey, streak: FailureStreak, began: Instant) -> bool {
        let known = self.remove(key).map_or_else(Vec::new, |before| before.names);
        let is_new = streak.names.iter().any(|name| !known.contains(name));
        for name in &streak.names {
            self.waiting.entry(name.clone()).or_default().insert(key.clone());
        }
        self.rows.insert(key.clone(), streak);
        is_new && self.freed_at.is_some_and(|at| at >= began)
    }

    /// Removes and returns the streak of a key.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<FailureStreak> {
        let streak = self.rows.remove(key)?;
        for name in &streak.names {
            if let Entry::Occupied(mut keys) = self.waiting.entry(name.clone()) {
                keys.get_mut().remove(key);
                if keys.get().is_empty() {
                    keys.remove();
                }
            }
        }
        Some(streak)
    }

    /// Records that a name became free, and returns the keys that wait for it.
    pub(super) fn freed(
        &mut self,
        name: &Name,
    ) -> impl Iterator<Item = (&ObjectKey, &FailureStreak)> {
        self.freed_at = Some(Instant::now());
        let keys = self.waiting.get(name).into_iter().flatten();
        keys.filter_map(|key| self.rows.get_key_value(key))
    }

    /// Returns the keys whose last failure was transient.
    pub(super) fn transient(&self) -> impl Iterator<Item = (&ObjectKey, &FailureStreak)> {
        self.rows.iter().filter(|(_, streak)| streak.class == ErrorClass::Transient)
    }
}

impl FailureStreak {
    /// Returns the rest of the server's Retry-After.
    pub(super) fn retry_after(&self) -> Duration {
        self.asked.map(|until| until.saturating_duration_since(Instant::now())).unwrap_or_default()
    }

    /// Returns the streak after one more failure. `asked`: the server's Retry-After.
    pub(super) fn after(
        before: Option<&FailureStreak>,
        class: ErrorClass,
        asked: Option<Duration>,
        names: &[&Name],
        now: Instant,
    ) -> FailureStreak {
        let refused =
            matches!(class, ErrorClass::Forbidden | ErrorClass::Waiting | ErrorClass::NotServed);
        let last = before.and_then(|streak| streak.refused_at);
        let counts = refused && last.is_none_or(|last| now >= last + SECOND_LOOK);
        FailureStreak {
            class,
            names: match class {
                ErrorClass::Transient => Vec::new(),
                _ => names.iter().copied().cloned().collect(),
            },
            asked: asked.map(|asked| now + asked),
            refusals: before.map_or(0, |streak| streak.refusals).saturating_add(u32::from(counts)),
            is_counted: counts,
            refused_at: if counts { Some(now) } else { last },
            conflicts: match class {
                ErrorClass::Conflict => {
                    before.map_or(0, |streak| streak.conflicts).saturating_add(1)
                }
                _ => 0,
            },
        }
    }
}

/// Returns the log level of a failure. ERROR means that an administrator must act. It is logged once per streak, at the
/// second refusal: an API server that has just started refuses requests until it has read its roles. Terminal errors
/// are reported in the status of the object, and taken names in an Event. The tenth consecutive conflict is a WARN: it
/// is no longer a race.
pub(super) fn level(streak: &FailureStreak, failures: u32) -> Level {
    let &FailureStreak { class, refusals, is_counted, conflicts, .. } = streak;
    match class {
        ErrorClass::Conflict if conflicts == CONFLICTS => Level::WARN,
        ErrorClass::Forbidden | ErrorClass::NotServed if refusals == 2 => Level::ERROR,
        ErrorClass::Forbidden | ErrorClass::NotServed if refusals < 2 => Level::WARN,
        ErrorClass::Terminal => Level::WARN,
        // Not at first: an owned object that is being deleted soon frees its name.
        ErrorClass::Waiting if refusals == 2 && is_counted => Level::INFO,
        // Otherwise, each key would log a line every half minute during an outage.
        ErrorClass::Transient if failures.is_power_of_two() || failures == 0 => Level::WARN,
        ErrorClass::Forbidden
        | ErrorClass::NotServed
        | ErrorClass::Waiting
        | ErrorClass::Conflict
        | ErrorClass::Transient => Level::DEBUG,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_streak_logs_one_error_at_the_second_refusal() {
        use ErrorClass::{Conflict, Forbidden, Transient};
        let (mut streak, mut errors, mut now) = (None, Vec::new(), Instant::now());
        let classes = [Transient, Forbidden, Transient, Conflict, Forbidden, Transient, Forbidden];
        for (at, class) in classes.into_iter().enumerate() {
            let after = FailureStreak::after(streak.as_ref(), class, None, &[], now);
            now += SECOND_LOOK;
            errors.extend((level(&after, 1) == Level::ERROR).then_some(at));
            streak = Some(after);
        }
        assert_eq!(errors, [4]);
        let again = |now| FailureStreak::after(streak.as_ref(), Forbidden, None, &[], now).refusals;
        now -= SECOND_LOOK;
        assert_eq!([again(now), again(now + SECOND_LOOK)], [3, 4], "its own report woke the key");
    }

    #[test]
    fn persistent_conflicts_are_logged_once_and_retried_less_often() {
        let (retries, mut streak, mut told) = (Retries::default(), None, Vec::new());
        for conflict in 1..=20 {
            let after = FailureStreak::after(
                streak.as_ref(),
                ErrorClass::Conflict,
                None,
                &[],
                Instant::now(),
            );
            told.extend((level(&after, 1) == Level::WARN).then_some(conflict));
            let longest = retries.of(&after).unwrap().backoff.max;
            assert_eq!(longest.as_secs(), if conflict < 10 { 1 } else { 30 });
            streak = Some(after);
        }
        assert_eq!(told, [10]);
        let after =
            FailureStreak::after(streak.as_ref(), ErrorClass::Transient, None, &[], Instant::now());
        assert_eq!(after.conflicts, 0);
    }

    #[test]
    fn a_name_enqueues_only_the_keys_that_wait_for_it() {
        let streak =
            |class, names: &[&Name]| FailureStreak::after(None, class, None, names, Instant::now());
        let key = |name: &str| ObjectKey::new("ns", name);
        let name = |name: &str| Name {
            kind: crate::object::Kind::namespaced("", "v1", "Pod", "pods"),
            key: key(name),
        };
        let (mut failing, began) = (Failing::default(), Instant::now());
        let waiting = streak(ErrorClass::Waiting, &[&name("w"), &name("x")]);
        assert!(!failing.put(&key("a"), waiting.clone(), began));
        assert!(!failing.put(&key("b"), streak(ErrorClass::Transient, &[]), began));
        assert_eq!(["x", "y"].map(|freed| failing.freed(&name(freed)).count()), [1, 0]);
        assert_eq!(failing.transient().count(), 1);
        assert!(!failing.put(&key("a"), waiting.clone(), began), "it was woken by the name");
        assert!(failing.remove(&key("a")).is_some() && failing.remove(&key("a")).is_none());
        assert_eq!(failing.freed(&name("x")).count(), 0);
        assert!(failing.waiting.is_empty());
        assert!(failing.put(&key("a"), waiting, began), "a name may have become free unnoticed");
    }

    #[test]
    fn after_any_outage_the_next_retry_is_within_half_a_minute() {
        let streak = FailureStreak::after(None, ErrorClass::Transient, None, &[], Instant::now());
        let retry = Retries::default().of(&streak).unwrap();
        for failures in 0..100 {
            assert!(retry.backoff.delay(failures) <= Duration::from_secs(30), "{failures}");
        }
    }
}
