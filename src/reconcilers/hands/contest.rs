//! When somebody else keeps undoing what the operator does.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::object::ObjectKey;

/// So often a child is restored within [`WINDOW`]. More than a person who tries something does by
/// hand; with the status that is written beside, at most twelve writes a minute.
const RESTORATIONS: usize = 5;
/// See [`RESTORATIONS`].
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// When which child was restored. Children that were not for [`WINDOW`] take no memory.
#[derive(Debug, Default)]
pub(super) struct Contests(Mutex<HashMap<(&'static str, ObjectKey), VecDeque<Instant>>>);

impl Contests {
    /// Counts a restoration of this child of a kind, or says how long to leave it as it is.
    pub(super) fn restore(
        &self,
        kind: &'static str,
        key: &ObjectKey,
        now: Instant,
    ) -> Result<(), Duration> {
        let mut contests = self.0.lock();
        contests.retain(|_, times| {
            times.retain(|time| now.duration_since(*time) < WINDOW);
            !times.is_empty()
        });
        let times = contests.entry((kind, key.clone())).or_default();
        match times.front() {
            Some(first) if times.len() >= RESTORATIONS => {
                Err(WINDOW.saturating_sub(now.duration_since(*first)))
            }
            _ => {
                times.push_back(now);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_restored_a_few_times_a_minute_whatever_becomes_of_others() {
        let (contests, start) = (Contests::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let (a, b) = (ObjectKey::new("ns", "a"), ObjectKey::new("ns", "b"));
        for second in 0..5 {
            assert_eq!(contests.restore("Deployment", &a, at(second)), Ok(()));
        }
        let wait = contests.restore("Deployment", &a, at(10));
        assert_eq!(wait, Err(Duration::from_secs(50)));
        assert_eq!(contests.restore("Deployment", &b, at(10)), Ok(()));
        assert_eq!(contests.restore("Service", &a, at(10)), Ok(()));
        assert_eq!(contests.restore("Deployment", &a, at(60)), Ok(()));
        assert_eq!(contests.restore("Deployment", &a, at(60)), Err(Duration::from_secs(1)));
    }

    #[test]
    fn what_is_over_takes_no_memory() {
        let (contests, start) = (Contests::default(), Instant::now());
        for number in 0..100 {
            let key = ObjectKey::new("ns", number.to_string());
            contests.restore("Deployment", &key, start).unwrap();
        }
        contests.restore("Deployment", &ObjectKey::new("ns", "x"), start + WINDOW).unwrap();
        assert_eq!(contests.0.lock().len(), 1);
    }
}
