//! Limits on repeated writes of a controller.
//!
//! Guarantees
//! - The same state is written to a subject at most [`TIMES`] times within [`WINDOW`]. Another desired state starts
//!   a new count. A subject is an owned object, the creation of one, or a status.
//! - If all reconciles of an object write, the object is reconciled at most once a second after a short burst.
//! - Writes older than [`WINDOW`] are forgotten by the first write after another [`WINDOW`].

use std::collections::VecDeque;
use std::hash::Hash;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::object::{ObjectKey, Uid};

/// Maximum number of writes of one state within [`WINDOW`]. A user who tests changes by hand needs fewer.
const TIMES: usize = 5;
/// The period to which [`TIMES`] applies.
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// The object, and the part of it that is written: 0 for all.
pub(super) type Subject = (Uid, u64);

/// Values by key, until [`WINDOW`] after they were last set.
#[derive(Debug)]
struct Recent<K, T> {
    values: HashMap<K, (Instant, T)>,
    /// Time of the last search for old values.
    searched: Option<Instant>,
}

/// Recent writes by subject.
#[derive(Debug, Default)]
pub(super) struct WriteThrottle(Mutex<Recent<Subject, Applied>>);

/// The hash of the last state written to one subject, and the times of its writes.
#[derive(Debug)]
struct Applied {
    hash: u64,
    times: VecDeque<Instant>,
}

/// The statuses written within [`WINDOW`], to detect that another program writes a different one: the hash of each as
/// the API server stored it, and the generation that it was written for.
#[derive(Debug, Default)]
pub(super) struct LastStatuses(Mutex<Recent<Uid, (u64, i64)>>);

// === impl Recent ===

impl<K, T> Default for Recent<K, T> {
    fn default() -> Recent<K, T> {
        Recent { values: HashMap::new(), searched: None }
    }
}

impl<K: Hash + Eq, T> Recent<K, T> {
    fn get(&mut self, key: &K, now: Instant) -> Option<&mut T> {
        let (at, value) = self.values.get_mut(key)?;
        (now.saturating_duration_since(*at) < WINDOW).then_some(value)
    }

    fn set(&mut self, key: K, now: Instant, value: T) {
        let is_over = |at: Instant| now.saturating_duration_since(at) >= WINDOW;
        if is_over(*self.searched.get_or_insert(now)) {
            self.searched = Some(now);
            self.values.retain(|_, (at, _)| !is_over(*at));
            self.values.shrink_to_fit();
        }
        self.values.insert(key, (now, value));
    }
}

// === impl WriteThrottle ===

impl WriteThrottle {
    /// Returns the wait before the next write to the subject, if this state was written too often.
    pub(super) fn wait(&self, subject: Subject, hash: u64, now: Instant) -> Option<Duration> {
        let mut recent = self.0.lock();
        let applied = recent.get(&subject, now).filter(|applied| applied.hash == hash)?;
        applied.times.retain(|at| now.saturating_duration_since(*at) < WINDOW);
        let first = applied.times.front().filter(|_| applied.times.len() >= TIMES)?;
        Some(WINDOW.saturating_sub(now.duration_since(*first)))
    }

    /// Returns whether something was written to the subject within [`WINDOW`].
    pub(super) fn knows(&self, subject: Subject, now: Instant) -> bool {
        self.0.lock().get(&subject, now).is_some()
    }

    /// Removes a subject whose last write the controller itself has undone.
    pub(super) fn forget(&self, subject: Subject) {
        self.0.lock().values.remove(&subject);
    }

    /// Counts a write that the API server has accepted. A refused write undoes nothing.
    pub(super) fn wrote(&self, subject: Subject, hash: u64, now: Instant) {
        let mut recent = self.0.lock();
        let applied = recent.get(&subject, now).filter(|applied| applied.hash == hash);
        let mut times = applied.map(|it| std::mem::take(&mut it.times)).unwrap_or_default();
        times.push_back(now);
        recent.set(subject, now, Applied { hash, times });
    }
}

// === impl LastStatuses ===

impl LastStatuses {
    /// Returns whether a different status was written to the object for the same generation.
    pub(super) fn is_overwritten(
        &self,
        object: Uid,
        status: impl FnOnce() -> (u64, i64),
        now: Instant,
    ) -> bool {
        let Some((last, at_generation)) = self.0.lock().get(&object, now).copied() else {
            return false;
        };
        let (hash, generation) = status();
        at_generation == generation && last != hash
    }

    /// Stores the hash of a status as the API server stored it, and the generation of its object.
    pub(super) fn wrote(&self, object: Uid, status: (u64, i64), now: Instant) {
        self.0.lock().set(object, now, status);
    }
}

/// Burst of consecutive reconciles of one object that write; after that, one per second.
const BURST: f64 = 20.0;
/// Time for which an object is delayed before this is reported. Even a large rollout with its many status updates takes
/// less time.
const REPORT_AFTER: Duration = Duration::from_secs(600);

/// A limit on the rate of reconciles of an object whose reconciles write each time, for any reason.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<Recent<ObjectKey, Spent>>);

/// The rest of an object's burst, which is complete again within [`WINDOW`].
#[derive(Debug, Clone, Copy)]
struct Spent {
    left: f64,
    at: Instant,
    /// Start of the current series of delays.
    held_since: Option<Instant>,
    is_reported: bool,
}

// === impl Pace ===

impl Pace {
    /// Returns the wait before the next reconcile of an object, if any, and whether to report it.
    pub(super) fn wait(&self, key: &ObjectKey, now: Instant) -> Option<(Duration, bool)> {
        let mut recent = self.0.lock();
        let spent = recent.get(key, now)?;
        let left = spent.left_at(now);
        if left >= 1.0 {
            return None;
        }
        let since = *spent.held_since.get_or_insert(now);
        let is_news = !spent.is_reported && now.saturating_duration_since(since) >= REPORT_AFTER;
        spent.is_reported |= is_news;
        Some((Duration::from_secs_f64(1.0 - left), is_news))
    }

    /// Counts a reconcile of the object that has written something.
    pub(super) fn wrote(&self, key: &ObjectKey, now: Instant) {
        let mut recent = self.0.lock();
        let new = Spent { left: BURST, at: now, held_since: None, is_reported: false };
        let mut spent = recent.get(key, now).map_or(new, |spent| *spent);
        (spent.left, spent.at) = (spent.left_at(now) - 1.0, now);
        if spent.left >= BURST / 2.0 {
            (spent.held_since, spent.is_reported) = (None, false);
        }
        recent.set(key.clone(), now, spent);
    }
}

impl Spent {
    fn left_at(&self, now: Instant) -> f64 {
        (self.left + now.saturating_duration_since(self.at).as_secs_f64()).min(BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(number: u32) -> Uid {
        format!("00000000-0000-0000-0000-{number:012}").parse().unwrap()
    }

    #[test]
    fn a_repeated_state_is_throttled_and_a_new_one_is_not() {
        let (throttle, start) = (WriteThrottle::default(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        let wait = |object, hash, second| {
            throttle.wait((uid(object), 0), hash, at(second)).map(|wait| wait.as_secs())
        };
        for second in 0..5 {
            assert_eq!(wait(1, 7, second), None);
            throttle.wrote((uid(1), 0), 7, at(second));
        }
        assert_eq!(wait(1, 7, 10), Some(50));
        assert_eq!(wait(2, 7, 10), None, "another object");
        assert_eq!(wait(1, 8, 10), None, "another state");
        assert_eq!(wait(1, 7, 60), None);
        throttle.wrote((uid(1), 0), 7, at(60));
        assert_eq!(wait(1, 7, 60), Some(1));
        throttle.wrote((uid(1), 0), 8, at(60));
        assert_eq!(wait(1, 7, 60), None, "it was something else meanwhile");
    }

    #[test]
    fn a_status_of_another_generation_is_no_overwrite() {
        let (statuses, start) = (LastStatuses::default(), Instant::now());
        statuses.wrote(uid(1), (7, 1), start);
        assert!(!statuses.is_overwritten(uid(1), || (7, 1), start));
        assert!(statuses.is_overwritten(uid(1), || (8, 1), start));
        assert!(!statuses.is_overwritten(uid(1), || (8, 2), start), "the spec is another");
        assert!(!statuses.is_overwritten(uid(2), || (8, 1), start), "another object");
        assert!(!statuses.is_overwritten(uid(1), || (8, 1), start + WINDOW), "long ago");
        statuses.wrote(uid(2), (7, 1), start + WINDOW);
        assert_eq!(statuses.0.lock().values.len(), 1, "what is over takes no memory");
    }

    #[test]
    fn an_object_written_each_time_is_slowed_down_and_reported() {
        let (pace, start, key) = (Pace::default(), Instant::now(), ObjectKey::new("ns", "a"));
        let (mut now, mut reconciles, mut told) = (start, 0, Vec::new());
        while now < start + Duration::from_secs(700) {
            match pace.wait(&key, now) {
                Some((wait, is_news)) => {
                    told.extend(is_news.then_some((now - start).as_secs()));
                    now += wait.max(Duration::from_millis(1));
                }
                None => {
                    reconciles += 1;
                    pace.wrote(&key, now);
                    now += Duration::from_millis(10);
                }
            }
        }
        assert!((715..=722).contains(&reconciles), "{reconciles}");
        assert!(matches!(told[..], [600..=602]), "{told:?}");
        assert!(pace.wait(&ObjectKey::new("ns", "b"), now).is_none(), "another object");
        now += Duration::from_secs(20);
        assert!(pace.wait(&key, now).is_none());
    }
}
