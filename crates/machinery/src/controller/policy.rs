//! Backoffs and log levels of failures.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

use super::{Class, Name};
use crate::object::{KeyHasher, ObjectKey};
use crate::workqueue::{Backoff, Retry};

/// Backoffs of failures, by class. [`Class::Terminal`] is not retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Default 5 ms to 30 s. Also for reconciles that panic or exceed their deadline. (client-go's limit is 1000 s, so
    /// after an outage its keys can wait as long again as the outage lasted.)
    pub transient: Backoff,
    /// Default 5 ms to 1 s: the next reconcile sees the other client's write as soon as the store has it. After ten
    /// consecutive conflicts, [`Retries::transient`] applies: the store does not show the cause.
    pub conflict: Backoff,
    /// Default 1 s to 120 s, by the number of refusals only. After permissions are granted, users wait two minutes at
    /// most. Also for [`Class::Waiting`].
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
    /// Returns the retry that a failure requests, if any; `row` includes the failure.
    pub(super) fn of(
        &self,
        class: Class,
        row: &FailureStreak,
        retry_after: Option<Duration>,
    ) -> Option<Retry> {
        let backoff = match class {
            Class::Transient => self.transient,
            Class::Conflict if row.conflicts >= CONFLICTS => self.transient,
            Class::Conflict => self.conflict,
            // The queue counts failures of all classes. If these delays grew with that count, the first refusal after
            // a minute of outage would wait two minutes.
            Class::Forbidden | Class::Waiting => {
                Backoff::always(self.forbidden.delay(row.refusals.saturating_sub(1)))
            }
            Class::NotServed => {
                Backoff::always(self.not_served.delay(row.refusals.saturating_sub(1)))
            }
            Class::Terminal => return None,
        };
        Some(Retry { backoff, at_least: self.asked(retry_after).unwrap_or_default() })
    }

    /// Caps a server's Retry-After.
    pub(super) fn asked(&self, retry_after: Option<Duration>) -> Option<Duration> {
        retry_after.map(|asked| asked.min(self.retry_after_max))
    }
}

/// Failures of a key, until a reconcile succeeds or fails with a terminal error.
#[derive(Debug, Clone)]
pub(super) struct FailureStreak {
    /// Condition whose end enqueues the key; `None` if its end is not observed.
    pub(super) wakes: Option<Wakes>,
    /// End of the server's Retry-After. The backoff can be longer, but no retry begins earlier.
    pub(super) asked: Option<Instant>,
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

/// Condition whose end enqueues a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wakes {
    /// The API server is unreachable.
    Outage,
    /// Other objects have these names.
    Names(Box<[Name]>),
}

/// Failing keys, and names that recently became free.
#[derive(Debug, Default)]
pub(super) struct Failing {
    rows: HashMap<ObjectKey, FailureStreak, KeyHasher>,
    /// Keys in `rows`, by the names that they wait for.
    waiting: HashMap<Name, HashSet<ObjectKey>>,
    freed: VecDeque<(Instant, Name)>,
}

/// Number of stored names that became free, for running reconciles that still saw them taken.
const FREED: usize = 64;

impl Failing {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&FailureStreak> {
        self.rows.get(key)
    }

    pub(super) fn put(&mut self, key: &ObjectKey, row: FailureStreak) {
        self.remove(key);
        for name in row.names() {
            self.waiting.entry(name.clone()).or_default().insert(key.clone());
        }
        self.rows.insert(key.clone(), row);
    }

    /// Removes the streak of a key. Returns whether it had one.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> bool {
        let Some(row) = self.rows.remove(key) else { return false };
        for name in row.names() {
            if let Some(keys) = self.waiting.get_mut(name) {
                keys.remove(key);
                if keys.is_empty() {
                    self.waiting.remove(name);
                }
            }
        }
        true
    }

    /// Returns the keys that wait for this name. Without a name, returns those that wait for the end of an outage.
    pub(super) fn woken_by<'a>(
        &'a self,
        name: Option<&Name>,
    ) -> Box<dyn Iterator<Item = (&'a ObjectKey, &'a FailureStreak)> + 'a> {
        match name {
            Some(name) => {
                let keys = self.waiting.get(name).into_iter().flatten();
                Box::new(keys.filter_map(|key| self.rows.get_key_value(key)))
            }
            None => Box::new(self.rows.iter().filter(|(_, row)| row.wakes == Some(Wakes::Outage))),
        }
    }

    /// Stores a name that has become free.
    pub(super) fn freed(&mut self, name: Name) {
        self.freed.truncate(FREED - 1);
        self.freed.push_front((Instant::now(), name));
    }

    /// Returns whether a name that the streak waits for became free after `began`, or may have.
    pub(super) fn is_over(&self, row: &FailureStreak, began: Instant) -> bool {
        let names = row.names();
        if names.is_empty() {
            return false;
        }
        let mut since = self.freed.iter().take_while(|(at, _)| *at >= began);
        let oldest = self.freed.back().filter(|_| self.freed.len() == FREED);
        since.any(|(_, freed)| names.contains(freed)) || oldest.is_some_and(|(at, _)| *at >= began)
    }
}

impl FailureStreak {
    /// Returns the names that the key waits for.
    fn names(&self) -> &[Name] {
        match &self.wakes {
            Some(Wakes::Names(names)) => names,
            Some(Wakes::Outage) | None => &[],
        }
    }

    /// Returns the streak after one more failure. `asked`: the server's Retry-After.
    pub(super) fn after(
        before: Option<&FailureStreak>,
        class: Class,
        asked: Option<Duration>,
        names: &[&Name],
        now: Instant,
    ) -> FailureStreak {
        let refused = matches!(class, Class::Forbidden | Class::Waiting | Class::NotServed);
        let last = before.and_then(|row| row.refused_at);
        let counts = refused && last.is_none_or(|last| now >= last + SECOND_LOOK);
        FailureStreak {
            wakes: match class {
                Class::Transient => Some(Wakes::Outage),
                _ if names.is_empty() => None,
                _ => Some(Wakes::Names(names.iter().copied().cloned().collect())),
            },
            asked: asked.map(|asked| now + asked),
            refusals: before.map_or(0, |row| row.refusals).saturating_add(u32::from(counts)),
            is_counted: counts,
            refused_at: if counts { Some(now) } else { last },
            conflicts: match class {
                Class::Conflict => before.map_or(0, |row| row.conflicts).saturating_add(1),
                _ => 0,
            },
        }
    }
}

/// Returns the log level of a failure. ERROR means that an administrator must act. It is logged once per streak, at the
/// second refusal: an API server that has just started refuses requests until it has read its roles. Terminal errors
/// are reported in the status of the object, and taken names in an Event. The tenth consecutive conflict is a WARN: it
/// is no longer a race.
pub(super) fn level(
    class: Class,
    &FailureStreak { refusals, is_counted, conflicts, .. }: &FailureStreak,
    failures: u32,
) -> Level {
    match class {
        Class::Conflict if conflicts == CONFLICTS => Level::WARN,
        Class::Forbidden | Class::NotServed if refusals == 2 => Level::ERROR,
        Class::Forbidden | Class::NotServed if refusals < 2 => Level::WARN,
        Class::Terminal => Level::WARN,
        // Not at first: an owned object that is being deleted soon frees its name.
        Class::Waiting if refusals == 2 && is_counted => Level::INFO,
        // Otherwise, each key would log a line every half minute during an outage.
        Class::Transient if failures.is_power_of_two() || failures == 0 => Level::WARN,
        Class::Forbidden
        | Class::NotServed
        | Class::Waiting
        | Class::Conflict
        | Class::Transient => Level::DEBUG,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_streak_logs_one_error_at_the_second_refusal() {
        use Class::{Conflict, Forbidden, Transient};
        let (mut row, mut errors, mut now) = (None, Vec::new(), Instant::now());
        let classes = [Transient, Forbidden, Transient, Conflict, Forbidden, Transient, Forbidden];
        for (at, class) in classes.into_iter().enumerate() {
            let after = FailureStreak::after(row.as_ref(), class, None, &[], now);
            now += SECOND_LOOK;
            errors.extend((level(class, &after, 1) == Level::ERROR).then_some(at));
            row = Some(after);
        }
        assert_eq!(errors, [4]);
        let again = |now| FailureStreak::after(row.as_ref(), Forbidden, None, &[], now).refusals;
        now -= SECOND_LOOK;
        assert_eq!([again(now), again(now + SECOND_LOOK)], [3, 4], "its own report woke the key");
    }

    #[test]
    fn persistent_conflicts_are_logged_once_and_retried_less_often() {
        let (retries, mut row, mut told) = (Retries::default(), None, Vec::new());
        for conflict in 1..=20 {
            let after =
                FailureStreak::after(row.as_ref(), Class::Conflict, None, &[], Instant::now());
            told.extend((level(Class::Conflict, &after, 1) == Level::WARN).then_some(conflict));
            let longest = retries.of(Class::Conflict, &after, None).unwrap().backoff.max;
            assert_eq!(longest.as_secs(), if conflict < 10 { 1 } else { 30 });
            row = Some(after);
        }
        assert_eq!(told, [10]);
        let after = FailureStreak::after(row.as_ref(), Class::Transient, None, &[], Instant::now());
        assert_eq!(after.conflicts, 0);
    }

    #[test]
    fn a_name_enqueues_only_the_keys_that_wait_for_it() {
        let row =
            |class, names: &[&Name]| FailureStreak::after(None, class, None, names, Instant::now());
        let key = |name: &str| ObjectKey::new("ns", name);
        let name = |name: &str| Name {
            kind: crate::object::Kind::namespaced("", "v1", "Pod", "pods"),
            key: key(name),
        };
        let mut failing = Failing::default();
        failing.put(&key("a"), row(Class::Waiting, &[&name("w"), &name("x")]));
        failing.put(&key("a"), row(Class::Waiting, &[&name("w"), &name("x")]));
        failing.put(&key("b"), row(Class::Transient, &[]));
        let woken = |failing: &Failing, name: Option<&Name>| failing.woken_by(name).count();
        let (x, y) = (name("x"), name("y"));
        assert_eq!([Some(&x), Some(&y), None].map(|over| woken(&failing, over)), [1, 0, 1]);
        assert!(failing.remove(&key("a")) && !failing.remove(&key("a")));
        assert_eq!([Some(&x), None].map(|over| woken(&failing, over)), [0, 1]);
        assert!(failing.waiting.is_empty());
    }

    #[test]
    fn after_any_outage_the_next_retry_is_within_half_a_minute() {
        let row = FailureStreak::after(None, Class::Transient, None, &[], Instant::now());
        let retry = Retries::default().of(Class::Transient, &row, None).unwrap();
        for failures in 0..100 {
            assert!(retry.backoff.delay(failures) <= Duration::from_secs(30), "{failures}");
        }
    }
}
