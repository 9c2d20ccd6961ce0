//! Notices when somebody else keeps undoing what the operator does.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::object::Uid;

/// How often a child, or the status, is restored within [`WINDOW`]. More often than a person trying
/// things by hand needs.
const RESTORATIONS: usize = 5;
/// See [`RESTORATIONS`].
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// When what of each custom resource was restored: its child of a kind, or its own status. What was
/// not restored within [`WINDOW`] takes no memory.
#[derive(Debug, Default)]
pub(super) struct Contests(Mutex<HashMap<(&'static str, Uid), VecDeque<Instant>>>);

impl Contests {
    /// How long to leave what is of this kind alone, if it was restored too often.
    pub(super) fn wait(&self, kind: &'static str, parent: Uid, now: Instant) -> Option<Duration> {
        let mut contests = self.0.lock();
        contests.retain(|_, times| {
            times.retain(|time| now.duration_since(*time) < WINDOW);
            !times.is_empty()
        });
        let times = contests.get(&(kind, parent))?;
        match times.front() {
            Some(first) if times.len() >= RESTORATIONS => {
                Some(WINDOW.saturating_sub(now.duration_since(*first)))
            }
            _ => None,
        }
    }

    /// Counts a restoration; `wait` was called before it.
    pub(super) fn restored(&self, kind: &'static str, parent: Uid, now: Instant) {
        self.0.lock().entry((kind, parent)).or_default().push_back(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcilers::fixtures::uid;

    #[test]
    fn a_child_is_restored_a_few_times_a_minute_whatever_becomes_of_others() {
        let (contests, start) = (Contests::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let wait = |kind, parent, second| {
            contests.wait(kind, parent, at(second)).map(|wait| wait.as_secs())
        };
        let (a, b) = (uid(1), uid(2));
        for second in 0..5 {
            assert_eq!(wait("Deployment", a, second), None);
            contests.restored("Deployment", a, at(second));
        }
        assert_eq!(wait("Deployment", a, 10), Some(50));
        assert_eq!(wait("Deployment", b, 10), None);
        assert_eq!(wait("Service", a, 10), None);
        assert_eq!(wait("Deployment", a, 60), None);
        contests.restored("Deployment", a, at(60));
        assert_eq!(wait("Deployment", a, 60), Some(1));
    }

    #[test]
    fn what_is_over_takes_no_memory() {
        let (contests, start) = (Contests::default(), Instant::now());
        for number in 0..100 {
            contests.restored("Deployment", uid(number), start);
        }
        assert_eq!(contests.wait("Deployment", uid(100), start + WINDOW), None);
        assert_eq!(contests.0.lock().len(), 0);
    }
}
