//! What has to be remembered from pass to pass: whether a rollout has completed, and whether it
//! makes progress.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::object::Uid;
use crate::reconcilers::condition::{Status, Type};
use crate::reconcilers::custom::Custom;
use crate::reconcilers::reason::Reason;

/// Whether the rollout of the newest generation has completed before, according to the status. The
/// conditions say so, so that another process knows, too.
pub fn completed<V: Custom>(object: &V) -> bool {
    if !object.is_observed() {
        return false;
    }
    let of = |kind: Type| object.conditions().iter().find(move |condition| condition.is(kind));
    let is_true = |kind| of(kind).is_some_and(|condition| condition.status == Status::True);
    let reason = of(Type::Progressing).map(|progressing| &*progressing.reason);
    // An App's Progressing is its Deployment's own, which does not change with the size.
    let after = || is_true(Type::Degraded) && of(Type::Reconciling).is_none();
    is_true(Type::Ready)
        || reason == Some(Reason::RolloutComplete.as_str())
        || reason == Some("NewReplicaSetAvailable") && after()
}

/// Whether the status says already that something keeps the pods from serving.
fn is_known<V: Custom>(object: &V) -> bool {
    object.is_observed()
        && object.conditions().iter().any(|condition| {
            condition.is(Type::Degraded)
                && condition.status == Status::True
                && Reason::ALL
                    .iter()
                    .any(|reason| reason.is_of_pods() && condition.reason == reason.as_str())
        })
}

/// The progress of rollouts that have not completed, by custom resource. An object that is healthy,
/// or was not looked at for long, takes no memory.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Marks>);

#[derive(Debug, Default)]
struct Marks {
    of: HashMap<Uid, Mark>,
    /// When the old ones were last removed.
    swept: Option<Instant>,
}

/// How far a rollout came. Pods in a crash loop come and go: only more than ever before is progress.
#[derive(Debug, Clone, Copy)]
struct Mark {
    generation: i64,
    best: [i32; 4],
    since: Instant,
    seen: Instant,
}

// === impl Progress ===

impl Progress {
    /// How long a rollout may make no progress before its pods are looked at.
    pub const PATIENCE: Duration = Duration::from_secs(30);
    /// The longest time between two looks at an object that is not healthy.
    const SELDOM: Duration = Duration::from_secs(300);
    /// What was not looked at for this long is forgotten.
    const FORGOTTEN: Duration = Duration::from_secs(3 * 300);

    /// How long the child, of this generation, has made no progress. `counts` grow with progress.
    pub fn idle<V: Custom>(
        &self,
        object: &V,
        generation: i64,
        counts: [i32; 4],
        now: Instant,
    ) -> Duration {
        let mut marks = self.0.lock();
        if now.duration_since(*marks.swept.get_or_insert(now)) >= Self::FORGOTTEN {
            marks.of.retain(|_, mark| now.duration_since(mark.seen) < Self::FORGOTTEN);
            marks.swept = Some(now);
        }
        let mark = marks.of.entry(object.meta().uid).or_insert_with(|| {
            // Another process has looked already.
            let idle = if is_known(object) { Self::PATIENCE } else { Duration::ZERO };
            let since = now.checked_sub(idle).unwrap_or(now);
            Mark { generation, best: counts, since, seen: now }
        });
        if mark.generation != generation {
            *mark = Mark { generation, best: counts, since: now, seen: now };
        }
        for (best, count) in mark.best.iter_mut().zip(counts) {
            if count > *best {
                (*best, mark.since) = (count, now);
            }
        }
        mark.seen = now;
        now.duration_since(mark.since)
    }

    /// Forgets an object that is healthy.
    pub fn forget(&self, object: Uid) {
        self.0.lock().of.remove(&object);
    }

    /// When to look again at an object that has been idle for this long.
    pub fn next(idle: Duration) -> Duration {
        match Self::PATIENCE.checked_sub(idle).filter(|left| !left.is_zero()) {
            // Not a moment too soon: then the pass would find it a moment short.
            Some(left) => left + Duration::from_millis(10),
            None => (idle / 2).clamp(Self::PATIENCE, Self::SELDOM),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcilers::fixtures::custom;
    use crate::reconcilers::memcached::Memcached;

    const SAMPLE: &str = include_str!("../../../artifacts/examples/memcached.yaml");

    #[tokio::test(start_paused = true)]
    async fn only_more_than_ever_before_is_progress() {
        let (progress, memcached) = (Progress::default(), custom::<Memcached>(SAMPLE));
        let start = Instant::now();
        let idle = |second, generation, counts| {
            let now = start + Duration::from_secs(second);
            progress.idle(&memcached, generation, counts, now).as_secs()
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
    async fn a_new_process_believes_what_the_status_says_of_the_pods() {
        let said = |reason: &str| {
            let mut object: serde_json::Value = serde_yaml_ng::from_str(SAMPLE).unwrap();
            object["status"] = serde_json::json!({"observedGeneration": 1, "conditions": [
                {"type": "Degraded", "status": "True", "reason": reason, "message": "m",
                 "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}]});
            let memcached = custom::<Memcached>(&object.to_string());
            let now = Instant::now() + Duration::from_secs(3600);
            Progress::default().idle(&memcached, 1, [0; 4], now)
        };
        assert_eq!(said("CrashLoopBackOff"), Progress::PATIENCE);
        assert_eq!(said("ErrResourceExists"), Duration::ZERO);
    }

    #[test]
    fn what_does_not_heal_is_looked_at_less_and_less_often() {
        let next = |idle| Progress::next(Duration::from_secs(idle)).as_secs();
        assert_eq!([next(0), next(20), next(30), next(200), next(9999)], [30, 10, 30, 100, 300]);
    }
}
