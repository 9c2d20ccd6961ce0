//! Notices when somebody else keeps undoing what a controller does.
//!
//! Guarantees
//! - The same state is applied to a child at most [`TIMES`] times within [`WINDOW`]; another desired state
//!   counts from the beginning.
//! - What was applied longer ago than [`WINDOW`] takes no memory. No call goes through all of it.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::object::Uid;

/// More often than a person needs who tries things by hand.
const TIMES: usize = 5;
/// See [`TIMES`].
const WINDOW: Duration = Duration::from_secs(60);

/// What was applied to which object.
#[derive(Debug, Default)]
pub(super) struct Fights(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    applied: HashMap<Uid, Applied>,
    /// Each apply, in the order of time.
    expire: VecDeque<(Instant, Uid)>,
}

/// The hash of what was applied to one object, and when.
#[derive(Debug)]
struct Applied {
    hash: u64,
    times: VecDeque<Instant>,
}

impl Fights {
    /// How long to leave the object alone, if the state with this hash was applied to it too often.
    pub(super) fn wait(&self, object: Uid, hash: u64, now: Instant) -> Option<Duration> {
        let mut state = self.0.lock();
        state.expire(now);
        let applied = state.applied.get(&object).filter(|applied| applied.hash == hash)?;
        let first = applied.times.front().filter(|_| applied.times.len() >= TIMES)?;
        Some(WINDOW.saturating_sub(now.duration_since(*first)))
    }

    /// Counts an apply that the API server has accepted. One that is refused undoes nobody's work.
    pub(super) fn applied(&self, object: Uid, hash: u64, now: Instant) {
        let mut state = self.0.lock();
        let new = || Applied { hash, times: VecDeque::new() };
        let applied = state.applied.entry(object).or_insert_with(new);
        if applied.hash != hash {
            *applied = new();
        }
        applied.times.push_back(now);
        state.expire.push_back((now, object));
    }
}

impl State {
    fn expire(&mut self, now: Instant) {
        let is_over = |at: Instant| now.saturating_duration_since(at) >= WINDOW;
        while self.expire.front().is_some_and(|(at, _)| is_over(*at)) {
            let Some((_, object)) = self.expire.pop_front() else { return };
            let Some(applied) = self.applied.get_mut(&object) else { continue };
            applied.times.retain(|at| !is_over(*at));
            if applied.times.is_empty() {
                self.applied.remove(&object);
            }
        }
        if self.applied.is_empty() {
            self.applied.shrink_to_fit();
            self.expire.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(number: u32) -> Uid {
        format!("00000000-0000-0000-0000-{number:012}").parse().unwrap()
    }

    #[test]
    fn a_state_is_applied_a_few_times_a_minute_and_another_one_at_once() {
        let (fights, start) = (Fights::default(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        let wait = |object, hash, second| {
            fights.wait(uid(object), hash, at(second)).map(|wait| wait.as_secs())
        };
        for second in 0..5 {
            assert_eq!(wait(1, 7, second), None);
            fights.applied(uid(1), 7, at(second));
        }
        assert_eq!(wait(1, 7, 10), Some(50));
        assert_eq!(wait(2, 7, 10), None, "another object");
        assert_eq!(wait(1, 8, 10), None, "another state");
        assert_eq!(wait(1, 7, 60), None);
        fights.applied(uid(1), 7, at(60));
        assert_eq!(wait(1, 7, 60), Some(1));
        fights.applied(uid(1), 8, at(60));
        assert_eq!(wait(1, 7, 60), None, "it was something else meanwhile");
    }

    #[test]
    fn what_is_over_takes_no_memory() {
        let (fights, start) = (Fights::default(), Instant::now());
        for number in 0..100 {
            fights.applied(uid(number), 0, start);
        }
        assert_eq!(fights.wait(uid(0), 0, start + WINDOW), None);
        let state = fights.0.lock();
        assert_eq!((state.applied.len(), state.expire.len()), (0, 0));
    }
}
