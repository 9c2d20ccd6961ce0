mod table;

use super::*;
use crate::controller::ReconcileError;
use crate::object::Resource as _;

fn all() -> [Health; 7] {
    let of = |level| Health::new(level, Reason::RollingOut, "why");
    let trouble = |completed| {
        let (reason, message) = (Reason::CrashLoopBackOff, "why".to_owned());
        let trouble = Trouble { reason, message, stalls_at_once: false };
        Context::default().health_of(trouble, completed)
    };
    [
        of(Level::Ready),
        of(Level::Progressing),
        trouble(true),
        trouble(false),
        of(Level::Degraded),
        of(Level::Stalled),
        Health::paused(false),
    ]
}

fn status_of(conditions: &[Wanted], kind: Type) -> Option<Status> {
    conditions.iter().find(|c| c.kind == kind).map(|c| c.status)
}

/// The rules by which Flux checks conditions (fluxcd/pkg, runtime/conditions/check).
#[test]
fn every_health_obeys_the_condition_rules_of_flux() {
    for health in all() {
        let mut conditions = health.summary();
        conditions.push(health.degraded());
        let is = |kind, status| status_of(&conditions, kind) == Some(status);
        let ready = is(Type::Ready, Status::True);
        let (reconciling, stalled) =
            (is(Type::Reconciling, Status::True), is(Type::Stalled, Status::True));
        assert!(status_of(&conditions, Type::Ready).is_some(), "{health:?}: FAIL0002");
        assert!(!(ready && is(Type::Degraded, Status::True)), "{health:?}: FAIL0001");
        assert!(!(ready && (reconciling || stalled)), "{health:?}: FAIL0003, FAIL0004");
        assert!(!(reconciling && stalled), "{health:?}: FAIL0005");
        assert!(!is(Type::Ready, Status::Unknown) || reconciling, "{health:?}: FAIL0011");
        for kind in [Type::Reconciling, Type::Stalled] {
            assert_ne!(status_of(&conditions, kind), Some(Status::False), "{health:?}: WARN");
        }
    }
}

#[test]
fn changed_node_counts_do_not_change_a_message() {
    let pod = |count: u32, kind: &str| {
        let message = format!("0/{count} nodes are available: {count} Insufficient {kind}.");
        let scheduled =
            serde_json::json!({"type": "PodScheduled", "status": "False", "message": message});
        let pod = serde_json::json!({"metadata": {"name": "a-1", "namespace": "n"},
            "status": {"phase": "Pending", "conditions": [scheduled]}});
        let pods = Answer::Found(vec![serde_json::from_value(pod).unwrap()].into());
        Evidence { pods, ..Evidence::default() }
    };
    let told = |evidence, previous| Context { evidence, previous, ..Context::default() }.of_pods();
    let first = told(pod(4987, "cpu"), None).unwrap();
    let known = || Some(Health::new(Level::Degraded, first.reason, &*first.message));
    assert_eq!(told(pod(4990, "cpu"), known()).unwrap().message, first.message);
    assert_ne!(told(pod(4987, "memory"), known()).unwrap().message, first.message);
}

/// With updateStrategy OnDelete, old pods remain until a user deletes them. Two reconciles report the same.
#[test]
fn a_repeated_report_of_old_pods_is_identical() {
    let daemon = |updated: i32| -> Child<crate::workload::DaemonSetSpec> {
        let owner = serde_json::json!([{"apiVersion": "mydomain.com/v1beta1", "kind": "GenericDaemon", "name": "a",
            "controller": true, "uid": "00000000-0000-4000-8000-000000000001"}]);
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "a", "namespace": "n", "ownerReferences": owner},
            "spec": {"updateStrategy": {"type": "OnDelete"}},
            "status": {"desiredNumberScheduled": 3, "currentNumberScheduled": 3, "numberAvailable": 3,
                "updatedNumberScheduled": updated, "numberReady": 3}}))
        .unwrap()
    };
    for label in [None, Some("logs")] {
        let told = |previous, updated| {
            let context = Context { previous, label, completed: true, ..Context::default() };
            Health::of_daemon_set(&daemon(updated), &context)
        };
        let first = told(None, 1);
        assert!(
            first.message.ends_with("; 2 run the previous template until you delete them"),
            "{first:?}"
        );
        assert_eq!(told(Some(first.clone()), 1), first);
        assert!(!told(Some(first), 3).message.contains("previous"));
    }
}

#[test]
fn the_worse_health_of_two_counts() {
    for worse in all() {
        for better in all().into_iter().filter(|better| better.level < worse.level) {
            for both in [worse.clone().and(better.clone()), better.and(worse.clone())] {
                assert_eq!((both.level, both.reason), (worse.level, worse.reason));
            }
        }
    }
}

#[test]
fn the_message_of_an_error_has_no_local_address() {
    let text = |message: &str| {
        let source = Box::new(client::Error::api(500, "InternalError", message));
        let key = crate::object::ObjectKey::new("n", "a");
        stable(&ReconcileError::Call { verb: "create", kind: "Deployment", key, source })
    };
    let start = "cannot create Deployment n/a: ";
    for (message, expected) in [
        ("read tcp 10.0.0.1:51234->10.0.0.2:443: reset", "read tcp 10.0.0.2:443: reset"),
        ("read tcp [::1]:51234->[::1]:443: reset", "read tcp [::1]:443: reset"),
        ("a -> b, c->d", "a -> b, c->d"),
    ] {
        assert_eq!(text(message), format!("{start}{expected}"));
    }
}

#[test]
fn a_service_problem_does_not_affect_a_completed_rollout() {
    let taken = Health::new(Level::Stalled, Reason::ErrResourceExists, "taken");
    let both = Health::ready(Reason::AllReplicasReady, "all").and(taken.clone());
    assert_eq!(both.progressing().reason, "RolloutComplete");
    let under_way = Health::rolling_out("one of two").and(taken);
    assert_eq!((under_way.level, under_way.rollout), (Level::Stalled, Rollout::UnderWay));
}

/// Other objects can release quota.
#[test]
fn a_quota_that_refuses_a_write_stalls_after_five_minutes() {
    use crate::memcached::Memcached;
    use crate::workload::fixtures::custom;
    use serde_json::json;
    let since = |reason: &str| {
        let degraded = json!({"type": "Degraded", "status": "True", "reason": reason, "message": "m",
            "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let ready = json!({"type": "Ready", "status": "False", "reason": reason, "message": "m",
            "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"observedGeneration": 1, "conditions": [ready, degraded]});
        let object = json!({"metadata": {"name": "a"}, "spec": {}, "status": status});
        custom::<Memcached>(&object.to_string())
    };
    let at = |text: &str| serde_json::from_value::<Time>(json!(text)).unwrap();
    let quota = || Health::new(Level::Degraded, Reason::QuotaExceeded, "m");
    let (soon, late) = (at("2026-01-01T00:04:59Z"), at("2026-01-01T00:05:00Z"));
    assert_eq!(quota().aged(&since("QuotaExceeded"), soon).level, Level::Degraded);
    assert_eq!(quota().aged(&since("QuotaExceeded"), late).level, Level::Stalled);
    assert_eq!(quota().aged(&since("ApiError"), late).level, Level::Degraded, "another before");
}

/// Otherwise a rollout would seem to make no progress, because its counts begin below those of the previous
/// template.
#[tokio::test(start_paused = true)]
async fn a_rollout_makes_progress_after_counts_of_an_older_generation() {
    use crate::memcached::Memcached;
    use crate::workload::fixtures::custom;
    let object: Memcached = custom(include_str!("../../../artifacts/examples/memcached.yaml"));
    let daemon_set = |status: serde_json::Value| -> crate::workload::DaemonSet {
        let uid = "00000000-0000-4000-8000-000000000001";
        let owner = serde_json::json!({"apiVersion": "mydomain.com/v1beta1", "kind": "GenericDaemon", "name": "a",
            "controller": true, "uid": uid});
        let meta = serde_json::json!({"name": "a", "namespace": "b", "generation": 2, "ownerReferences": [owner]});
        serde_json::from_value(serde_json::json!({"metadata": meta, "spec": {}, "status": status}))
            .unwrap()
    };
    let counts = |generation: i32, updated: i32| {
        serde_json::json!({"observedGeneration": generation, "desiredNumberScheduled": 9, "currentNumberScheduled": 9,
            "updatedNumberScheduled": updated, "numberReady": 8, "numberAvailable": 8})
    };
    let progress = Progress::default();
    let start = tokio::time::Instant::now();
    let idle = |status: serde_json::Value, second: u64| {
        let counts = <crate::workload::DaemonSetSpec as Workload>::progress(&daemon_set(status));
        progress.idle(&object, (2, true), counts, start + Duration::from_secs(second))
    };
    assert_eq!(idle(counts(1, 9), 0), Duration::ZERO);
    assert_eq!(idle(counts(1, 9), 20), Duration::from_secs(20), "the controller has not acted");
    assert_eq!(idle(counts(2, 0), 25), Duration::ZERO, "it has");
    assert_eq!(idle(counts(2, 1), 45), Duration::ZERO);
    assert_eq!(idle(counts(2, 1), 50), Duration::from_secs(5));
}

/// Two installations write the same objects with the same field manager, so no tool can distinguish them.
#[test]
fn a_contested_record_means_a_second_installation() {
    let key = crate::object::ObjectKey::new("shop", "cart");
    let name = Name { kind: crate::workload::Deployment::kind(), key };
    let of = |field: &str| contested(&name, Some(field));
    let applied = format!("metadata.annotations.{RECORD}applied");
    assert!(of(&applied).starts_with("Another installation of this operator"));
    assert!(of("spec.replicas").contains("--show-managed-fields"));
}
