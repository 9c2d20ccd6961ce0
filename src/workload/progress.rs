//! State across reconciles: whether a rollout has completed, and whether it makes progress.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::health::{Health, Level, READY_FIRST, Rollout, UNPROCESSED};
use crate::object::Uid;
use crate::workload::condition::{Status, Time, Type};
use crate::workload::custom_resource::Custom;
use crate::workload::reason::Reason;

/// Returns whether the rollout of the newest generation has completed before. The conditions record it, so that
/// another process knows it, too.
pub fn completed<V: Custom>(object: &V) -> bool {
    if !object.is_observed() {
        return false;
    }
    let of = |kind: Type| object.conditions().iter().find(move |condition| condition.is(kind));
    let is_true = |kind| of(kind).is_some_and(|condition| condition.status == Status::True);
    let reason = of(Type::Progressing).map(|progressing| &*progressing.reason);
    // An App's Progressing is its Deployment's, which does not change with the size.
    let after = || {
        let reasons = [Reason::Paused.as_str(), Reason::ReplicasUnavailable.as_str()];
        let is_later = of(Type::Ready).is_some_and(|ready| {
            reasons.contains(&&*ready.reason) || ready.message.ends_with(READY_FIRST)
        });
        is_later || is_true(Type::Degraded) && of(Type::Reconciling).is_none()
    };
    is_true(Type::Ready)
        || reason == Some(Reason::RolloutComplete.as_str())
        || reason == Some("NewReplicaSetAvailable") && after()
}

/// Returns the health that the status reports for the newest generation, if it reports one.
pub fn reported<V: Custom>(object: &V) -> Option<Health> {
    if !object.is_observed() {
        return None;
    }
    let of = |kind: Type| object.conditions().iter().find(move |condition| condition.is(kind));
    let is_true = |kind| of(kind).is_some_and(|condition| condition.status == Status::True);
    let ready = of(Type::Ready)?;
    let level = if ready.status == Status::True {
        Level::Ready
    } else if is_true(Type::Stalled) {
        Level::Stalled
    } else if is_true(Type::Degraded) {
        Level::Degraded
    } else {
        Level::Progressing
    };
    let rollout = if completed(object) {
        Rollout::Complete
    } else if is_true(Type::Reconciling) {
        Rollout::UnderWay
    } else {
        Rollout::Halted
    };
    // The problem of a paused object is separate from the reason Paused.
    let is_paused = ready.reason == Reason::Paused.as_str();
    let told = of(Type::Degraded).filter(|_| is_paused && is_true(Type::Degraded)).unwrap_or(ready);
    let reason = Reason::named(&told.reason)?;
    Some(Health { level, rollout, reason, message: told.message.to_string(), paused_problem: None })
}

/// Returns for how long the condition Degraded has been True, by the clock of its writer.
pub(super) fn degraded_for<V: Custom>(object: &V, now: Time) -> Duration {
    let degraded = object.conditions().iter().find(|condition| condition.is(Type::Degraded));
    let since = degraded.filter(|c| c.status == Status::True).map(|c| c.last_transition_time);
    let seconds = since.map_or(0, |since| now.seconds_since(since));
    Duration::from_secs(seconds.unsigned_abs())
}

/// Progress of incomplete rollouts, by custom resource. An object that is healthy, or was not observed for a
/// long time, takes no memory.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Marks>);

#[derive(Debug, Default)]
struct Marks {
    of: HashMap<Uid, Mark>,
    /// Time of the last removal of old marks.
    swept: Option<Instant>,
}

/// State of a rollout. Pods in a crash loop become ready repeatedly, so only a count above the highest one so
/// far is progress.
#[derive(Debug, Clone, Copy)]
struct Mark {
    generation: i64,
    best: [i32; 4],
    since: Instant,
    seen: Instant,
    /// The last problem of the health, if there was one, and its start.
    problem: Option<(Reason, Instant)>,
    /// Time when the rollout was first seen, or when its pods were last listed although it made progress.
    looked: Instant,
    /// True once its pods were listed.
    has_looked: bool,
    /// Time of the last report that changed only counts.
    counted: Option<Instant>,
}

// === impl Mark ===

impl Mark {
    fn new(generation: i64, best: [i32; 4], now: Instant) -> Mark {
        let (since, seen, looked) = (now, now, now);
        let (problem, has_looked, counted) = (None, false, None);
        Mark { generation, best, since, seen, problem, looked, has_looked, counted }
    }
}

// === impl Progress ===

impl Progress {
    /// Time without progress after which the pods of a rollout are listed.
    pub const IDLE_MAX: Duration = Duration::from_secs(30);
    /// Minimum time between two statuses of a rollout that differ only in counts.
    const COUNTS_EVERY: Duration = Duration::from_secs(5);
    /// Maximum time between two observations of an object that is not healthy.
    const SELDOM: Duration = Duration::from_secs(300);
    /// Time without an observation after which an object is forgotten.
    const FORGOTTEN: Duration = Duration::from_secs(3 * 300);

    /// Returns for how long the owned object, of this generation, has made no progress. `is_observed`: its controller
    /// has processed this generation. `counts` grow with progress.
    pub fn idle<V: Custom>(
        &self,
        object: &V,
        (generation, is_observed): (i64, bool),
        counts: [i32; 4],
        now: Instant,
    ) -> Duration {
        let mut marks = self.0.lock();
        if now.duration_since(*marks.swept.get_or_insert(now)) >= Self::FORGOTTEN {
            marks.of.retain(|_, mark| now.duration_since(mark.seen) < Self::FORGOTTEN);
            marks.swept = Some(now);
        }
        let mark = marks.of.entry(object.meta().uid).or_insert_with(|| {
            // Another process has listed the pods already, if the status names a problem of them.
            // A change that no controller has processed yet is newer than this problem.
            let is_current = |health: &Health| is_observed || health.message.contains(UNPROCESSED);
            let known = reported(object).filter(|health| {
                health.reason.is_of_pods() && health.trouble().is_some() && is_current(health)
            });
            let ago = |time: Duration| now.checked_sub(time).unwrap_or(now);
            let idle = known.as_ref().map_or(Duration::ZERO, |_| Self::IDLE_MAX);
            let problem =
                known.map(|health| (health.reason, ago(degraded_for(object, Time::now()))));
            Mark { since: ago(idle), problem, ..Mark::new(generation, counts, now) }
        });
        if mark.generation != generation {
            *mark = Mark::new(generation, counts, now);
        }
        for (best, count) in mark.best.iter_mut().zip(counts) {
            if count > *best {
                (*best, mark.since) = (count, now);
            }
        }
        mark.seen = now;
        now.duration_since(mark.since)
    }

    /// Returns for how long `reason` has been the problem of an object that was observed before.
    pub fn lasting(&self, object: Uid, reason: Reason, now: Instant) -> Duration {
        let problem = self.0.lock().of.get(&object).and_then(|mark| mark.problem);
        let same = problem.filter(|(known, _)| *known == reason);
        same.map_or(Duration::ZERO, |(_, since)| now.duration_since(since))
    }

    /// Records the problem of an object that was observed.
    pub fn note(&self, object: Uid, reason: Option<Reason>, now: Instant) {
        if let Some(mark) = self.0.lock().of.get_mut(&object)
            && mark.problem.map(|(known, _)| known) != reason
        {
            mark.problem = reason.map(|reason| (reason, now));
        }
    }

    /// Returns whether the pods of a rollout must be listed although it makes progress: after
    /// [`Progress::IDLE_MAX`], and then at this interval.
    pub fn is_look_due(&self, object: Uid, every: Duration, now: Instant) -> bool {
        let marks = self.0.lock();
        let Some(mark) = marks.of.get(&object) else { return false };
        let wait = if mark.has_looked { every } else { Self::IDLE_MAX };
        now.duration_since(mark.looked) >= wait
    }

    /// Records that the pods of a rollout were listed.
    pub fn looked(&self, object: Uid, now: Instant) {
        if let Some(mark) = self.0.lock().of.get_mut(&object) {
            (mark.looked, mark.has_looked) = (now, true);
        }
    }

    /// Returns the wait until counts of an object can be reported when nothing else has changed; `None` if they
    /// can be now.
    pub fn wait_to_count(&self, object: Uid, now: Instant) -> Option<Duration> {
        let mut marks = self.0.lock();
        let mark = marks.of.get_mut(&object)?;
        let next = mark.counted.map(|counted| counted + Self::COUNTS_EVERY);
        let wait = next.and_then(|next| next.checked_duration_since(now));
        if wait.is_none_or(|wait| wait.is_zero()) {
            mark.counted = Some(now);
            return None;
        }
        wait
    }

    /// Removes an object that is healthy.
    pub fn forget(&self, object: Uid) {
        self.0.lock().of.remove(&object);
    }

    /// Returns the pause before the next observation of an object that has been idle for this long.
    pub fn next(idle: Duration) -> Duration {
        match Self::IDLE_MAX.checked_sub(idle).filter(|left| !left.is_zero()) {
            // A little later, so that the time is over for sure.
            Some(left) => left + Duration::from_millis(10),
            None => (idle / 2).clamp(Self::IDLE_MAX, Self::SELDOM),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memcached::Memcached;
    use crate::workload::fixtures::{custom, found};

    const SAMPLE: &str = include_str!("../../artifacts/examples/memcached.yaml");

    #[tokio::test(start_paused = true)]
    async fn only_a_new_maximum_is_progress() {
        let (progress, memcached) = (Progress::default(), custom::<Memcached>(SAMPLE));
        let start = Instant::now();
        let idle = |second, generation, counts| {
            let now = start + Duration::from_secs(second);
            progress.idle(&memcached, (generation, true), counts, now).as_secs()
        };
        assert_eq!(idle(0, 1, [2, 0, 0, 0]), 0);
        assert_eq!(idle(10, 1, [2, 1, 0, 0]), 0);
        assert_eq!(idle(20, 1, [2, 0, 0, 0]), 10, "a pod that crashes");
        assert_eq!(idle(40, 1, [2, 1, 0, 0]), 30, "and comes again");
        assert_eq!(idle(45, 2, [0, 0, 0, 0]), 0, "another generation");
        progress.forget(memcached.meta.uid);
        assert!(progress.0.lock().of.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_process_uses_the_problem_in_the_status() {
        let said = |reason: &str, is_observed: bool| {
            let mut object: serde_json::Value = serde_yaml_ng::from_str(SAMPLE).unwrap();
            let is = |kind: &str, status: &str| {
                serde_json::json!({"type": kind, "status": status, "reason": reason, "message": "m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1})
            };
            let conditions = [is("Ready", "False"), is("Degraded", "True")];
            object["status"] =
                serde_json::json!({"observedGeneration": 1, "conditions": conditions});
            let memcached = custom::<Memcached>(&object.to_string());
            let now = Instant::now() + Duration::from_secs(3600);
            Progress::default().idle(&memcached, (1, is_observed), [0; 4], now)
        };
        assert_eq!(said("CrashLoopBackOff", true), Progress::IDLE_MAX);
        assert_eq!(said("CrashLoopBackOff", false), Duration::ZERO, "of a former template");
        assert_eq!(said("ErrResourceExists", true), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_problem_lasts_until_its_reason_changes() {
        let (progress, memcached) = (Progress::default(), custom::<Memcached>(SAMPLE));
        let (uid, start) = (memcached.meta.uid, Instant::now());
        let at = |second| start + Duration::from_secs(second);
        let (crash, pull) = (Reason::CrashLoopBackOff, Reason::ImagePullFailed);
        progress.idle(&memcached, (1, true), [0; 4], start);
        for (second, reason) in [(0, crash), (60, pull), (90, pull)] {
            progress.note(uid, Some(reason), at(second));
        }
        assert_eq!(progress.lasting(uid, pull, at(100)), Duration::from_secs(40));
        assert_eq!(progress.lasting(uid, crash, at(100)), Duration::ZERO);
        progress.note(uid, None, at(100));
        assert_eq!(progress.lasting(uid, pull, at(110)), Duration::ZERO);
    }

    #[test]
    fn a_completed_rollout_is_complete_after_a_pause() {
        let mut object: serde_json::Value = serde_yaml_ng::from_str(SAMPLE).unwrap();
        let paused = custom::<Memcached>(SAMPLE);
        for before in [true, false] {
            let found = found(None, Health::paused(before));
            let status = crate::memcached::status(&paused, &found, Vec::new(), Time::new(0));
            object["status"] = serde_json::to_value(status).unwrap();
            assert_eq!(completed(&custom::<Memcached>(&object.to_string())), before);
        }
        assert!(!completed(&paused), "nothing is reported yet");
    }

    #[test]
    fn a_paused_app_whose_deployment_was_complete_stays_complete() {
        let app = |reason: &str| {
            let is = |kind: &str, reason: &str| {
                serde_json::json!({"type": kind, "status": "False", "reason": reason, "message": "m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1})
            };
            let conditions = [is("Ready", reason), is("Progressing", "NewReplicaSetAvailable")];
            let mut object: serde_json::Value = serde_yaml_ng::from_str(SAMPLE).unwrap();
            object["status"] =
                serde_json::json!({"observedGeneration": 1, "conditions": conditions});
            completed(&custom::<Memcached>(&object.to_string()))
        };
        assert!(app("Paused"));
        assert!(!app("RollingOut"));
    }

    #[tokio::test(start_paused = true)]
    async fn pods_of_a_progressing_rollout_are_listed_at_long_intervals() {
        let (progress, memcached) = (Progress::default(), custom::<Memcached>(SAMPLE));
        let (start, uid) = (Instant::now(), memcached.meta.uid);
        let at = |second| start + Duration::from_secs(second);
        let minute = Duration::from_secs(60);
        assert!(!progress.is_look_due(uid, minute, start), "nothing is known of it");
        progress.idle(&memcached, (1, true), [0; 4], start);
        let is_due = |second| progress.is_look_due(uid, minute, at(second));
        assert_eq!([29, 30, 31].map(is_due), [false, true, true], "until it was looked at");
        progress.looked(uid, at(31));
        assert_eq!([32, 90, 91].map(is_due), [false, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn counts_alone_are_reported_every_five_seconds() {
        let (progress, memcached) = (Progress::default(), custom::<Memcached>(SAMPLE));
        let (start, uid) = (Instant::now(), memcached.meta.uid);
        let wait = |second| progress.wait_to_count(uid, start + Duration::from_secs(second));
        assert_eq!(wait(0), None, "nothing is known of it");
        progress.idle(&memcached, (1, true), [0; 4], start);
        assert_eq!(
            [0, 1, 4, 5, 6].map(wait).map(|wait| wait.map_or(0, |wait| wait.as_secs())),
            [0, 4, 1, 0, 4]
        );
    }

    #[test]
    fn the_time_of_a_problem_counts_from_its_condition() {
        let mut object: serde_json::Value = serde_yaml_ng::from_str(SAMPLE).unwrap();
        let degraded = serde_json::json!({"type": "Degraded", "status": "True", "reason": "r",
            "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        object["status"] = serde_json::json!({"conditions": [degraded]});
        let memcached = custom::<Memcached>(&object.to_string());
        let since = memcached.status.conditions[0].last_transition_time;
        let minute = Duration::from_secs(60);
        assert_eq!(degraded_for(&memcached, since.plus(60)), minute);
        assert_eq!(degraded_for(&custom::<Memcached>(SAMPLE), since.plus(60)), Duration::ZERO);
    }

    #[test]
    fn a_lasting_problem_is_observed_at_growing_intervals() {
        let next = |idle| Progress::next(Duration::from_secs(idle)).as_secs();
        assert_eq!([next(0), next(20), next(30), next(200), next(9999)], [30, 10, 30, 100, 300]);
    }
}
