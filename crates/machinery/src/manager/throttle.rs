//! Limits on repeated writes of a controller.
//!
//! Guarantees
//! - The same state is written to a subject at most [`TIMES`] times within [`WINDOW`]. Another desired state starts
//!   a new count. A subject is an owned object, the creation of one, or a status.
//! - If all reconciles of an object write, the object is reconciled at most once a second after a short burst.
//! - Writes older than [`WINDOW`] are forgotten, up to [`AT_ONCE`] by each later write, so that no call iterates over
//!   all writes.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::object::{ObjectKey, Uid};

/// Maximum number of writes of one state within [`WINDOW`]. A user who tests changes by hand needs fewer.
const TIMES: usize = 5;
/// The period to which [`TIMES`] applies.
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// Number of old writes that one call forgets.
const AT_ONCE: usize = 16;

/// The object, and the part of it that is written: 0 for all.
pub(super) type Subject = (Uid, u64);

/// Recent writes by subject.
#[derive(Debug, Default)]
pub(super) struct WriteThrottle(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    applied: HashMap<Subject, Applied>,
    /// Each write, in the order of time.
    expire: VecDeque<(Instant, Subject)>,
}

/// The hash of the last state written to one subject, and the times of its writes.
#[derive(Debug)]
struct Applied {
    hash: u64,
    times: VecDeque<Instant>,
}

impl WriteThrottle {
    /// Returns the wait before the next write to the subject, if this state was written too often.
    pub(super) fn wait(&self, subject: Subject, hash: u64, now: Instant) -> Option<Duration> {
        let mut state = self.0.lock();
        state.expire(now);
        let applied = state.applied.get(&subject).filter(|applied| applied.hash == hash)?;
        let first = applied.times.front().filter(|_| applied.times.len() >= TIMES)?;
        Some(WINDOW.saturating_sub(now.duration_since(*first)))
    }

    /// Returns whether something was written to the subject within [`WINDOW`].
    pub(super) fn knows(&self, subject: Subject) -> bool {
        self.0.lock().applied.contains_key(&subject)
    }

    /// Removes a subject whose last write the controller itself has undone.
    pub(super) fn forget(&self, subject: Subject) {
        self.0.lock().applied.remove(&subject);
    }

    /// Counts a write that the API server has accepted. A refused write undoes nothing.
    pub(super) fn wrote(&self, subject: Subject, hash: u64, now: Instant) {
        let mut state = self.0.lock();
        let new = || Applied { hash, times: VecDeque::new() };
        let applied = state.applied.entry(subject).or_insert_with(new);
        if applied.hash != hash {
            *applied = new();
        }
        applied.times.push_back(now);
        state.expire.push_back((now, subject));
    }
}

impl State {
    fn expire(&mut self, now: Instant) {
        let is_over = |at: Instant| now.saturating_duration_since(at) >= WINDOW;
        for _ in 0..AT_ONCE {
            let Some((_, subject)) = pop_if(&mut self.expire, |(at, _)| is_over(*at)) else {
                break;
            };
            let Some(applied) = self.applied.get_mut(&subject) else { continue };
            applied.times.retain(|at| !is_over(*at));
            if applied.times.is_empty() {
                self.applied.remove(&subject);
            }
        }
        if self.applied.is_empty() {
            self.applied.shrink_to_fit();
            self.expire.shrink_to_fit();
        }
    }
}

/// Removes the first element for which `is` returns true.
fn pop_if<T>(queue: &mut VecDeque<T>, is: impl FnOnce(&T) -> bool) -> Option<T> {
    if queue.front().is_some_and(is) { queue.pop_front() } else { None }
}

/// The statuses written within [`WINDOW`], to detect that another program writes a different one.
#[derive(Debug, Default)]
pub(super) struct LastStatuses(Mutex<Statuses>);

#[derive(Debug, Default)]
struct Statuses {
    /// The hash of each status as the API server stored it, and the generation that it was written for.
    last: HashMap<Uid, (u64, i64, Instant)>,
    expire: VecDeque<(Instant, Uid)>,
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
        let Some((last, at_generation, at)) = self.0.lock().last.get(&object).copied() else {
            return false;
        };
        let (hash, generation) = status();
        at_generation == generation && last != hash && now.saturating_duration_since(at) < WINDOW
    }

    /// Stores the hash of a status as the API server stored it, and the generation of its object.
    pub(super) fn wrote(&self, object: Uid, (hash, generation): (u64, i64), now: Instant) {
        let mut statuses = self.0.lock();
        let is_over = |at: Instant| now.saturating_duration_since(at) >= WINDOW;
        for _ in 0..AT_ONCE {
            let Some((_, object)) = pop_if(&mut statuses.expire, |(at, _)| is_over(*at)) else {
                break;
            };
            if statuses.last.get(&object).is_some_and(|(_, _, at)| is_over(*at)) {
                statuses.last.remove(&object);
            }
        }
        if statuses.last.is_empty() {
            statuses.last.shrink_to_fit();
            statuses.expire.shrink_to_fit();
        }
        statuses.last.insert(object, (hash, generation, now));
        statuses.expire.push_back((now, object));
    }
}

/// Burst of consecutive reconciles of one object that write; after that, one per second.
const BURST: f64 = 20.0;
/// Time for which an object is delayed before this is reported. Even a large rollout with its many status updates takes
/// less time.
const REPORT_AFTER: Duration = Duration::from_secs(600);

/// A limit on the rate of reconciles of an object whose reconciles write each time, for any reason.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<Paces>);

#[derive(Debug, Default)]
struct Paces {
    of: HashMap<ObjectKey, Spent>,
    /// Each reconcile that wrote, in the order of time.
    expire: VecDeque<(Instant, ObjectKey)>,
}

/// The rest of an object's burst.
#[derive(Debug)]
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
        let mut paces = self.0.lock();
        let spent = paces.of.get_mut(key)?;
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
        let mut paces = self.0.lock();
        let full = Duration::from_secs_f64(BURST);
        let is_over = |at: Instant| now.saturating_duration_since(at) >= full;
        for _ in 0..AT_ONCE {
            let Some((_, key)) = pop_if(&mut paces.expire, |(at, _)| is_over(*at)) else { break };
            if paces.of.get(&key).is_some_and(|spent| is_over(spent.at)) {
                paces.of.remove(&key);
            }
        }
        if paces.of.is_empty() {
            paces.of.shrink_to_fit();
            paces.expire.shrink_to_fit();
        }
        let new = || Spent { left: BURST, at: now, held_since: None, is_reported: false };
        let spent = paces.of.entry_ref(key).or_insert_with(new);
        (spent.left, spent.at) = (spent.left_at(now) - 1.0, now);
        if spent.left >= BURST / 2.0 {
            (spent.held_since, spent.is_reported) = (None, false);
        }
        paces.expire.push_back((now, key.clone()));
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
        let state = statuses.0.lock();
        assert_eq!((state.last.len(), state.expire.len()), (1, 1));
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
        for _ in 0..2 {
            pace.wrote(&ObjectKey::new("ns", "b"), now);
        }
        let paces = pace.0.lock();
        assert_eq!((paces.of.len(), paces.expire.len()), (1, 2), "what is over takes no memory");
    }

    #[test]
    fn expired_writes_are_forgotten_a_few_at_a_time() {
        let (throttle, start) = (WriteThrottle::default(), Instant::now());
        for number in 0..100 {
            throttle.wrote((uid(number), 0), 0, start);
        }
        let expire = || throttle.wait((uid(0), 0), 0, start + WINDOW);
        assert_eq!(expire(), None);
        assert_eq!(throttle.0.lock().expire.len(), 100 - AT_ONCE);
        for _ in 0..100 / AT_ONCE {
            assert_eq!(expire(), None);
        }
        let state = throttle.0.lock();
        assert_eq!((state.applied.len(), state.expire.len()), (0, 0));
    }
}
