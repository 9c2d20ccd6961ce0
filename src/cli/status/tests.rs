//! Causes that `status` names, for fixtures.

// Fixtures read better with values in place.
#![allow(clippy::needless_pass_by_value)]

use serde_json::{Value, json};

use super::*;

/// A custom resource with this condition Ready.
fn object(status: &str, reason: &str, message: &str) -> Value {
    json!({
        "metadata": {"name": "cart", "generation": 1, "uid": "u"},
        "spec": {"size": 3},
        "status": {"observedGeneration": 1, "conditions": [
            {"type": "Ready", "status": status, "reason": reason, "message": message}]},
    })
}

/// The metadata of an owned object. Nothing else is read of an object with another owner.
fn owned_by(api_version: &str, kind: &str) -> Value {
    let uid = "11111111-1111-4111-8111-111111111111";
    json!({"name": "cart", "namespace": "shop", "generation": 1, "ownerReferences": [
        {"apiVersion": api_version, "kind": kind, "name": "cart", "uid": uid, "controller": true}]})
}

fn deployment(status: Value) -> Workloads {
    let metadata = owned_by("cache.example.com/v1alpha1", "Memcached");
    let deployment = json!({"metadata": metadata, "spec": {"replicas": 1}, "status": status});
    Workloads::Deployment(serde_json::from_value(deployment).unwrap())
}

fn pod(status: Value) -> Evidence {
    let pod = json!({"metadata": {"name": "cart-1", "namespace": "shop"}, "status": status});
    let pods = Answer::Found([serde_json::from_value(pod).unwrap()].into());
    Evidence { pods, ..Evidence::default() }
}

fn rolling_out(evidence: Evidence) -> Facts {
    Facts {
        object: object("False", "RollingOut", "0 of 1"),
        child: Some(deployment(json!({"observedGeneration": 1}))),
        evidence,
        ..Facts::default()
    }
}

fn waiting(reason: &str) -> Value {
    json!({"phase": "Pending", "containerStatuses": [{
        "name": "memcached", "image": "memcached:typo",
        "state": {"waiting": {"reason": reason, "message": "not found"}},
        "lastState": {"terminated": {"exitCode": 3}}}]})
}

fn of(object: Value) -> Diagnosis {
    diagnose(&Facts { object, ..Facts::default() })
}

#[test]
fn a_pods_problem_is_named_before_the_waiting_rollout() {
    let found = diagnose(&rolling_out(pod(waiting("CrashLoopBackOff"))));
    assert_eq!(found.cause, "CrashLoopBackOff");
    assert!(found.detail.contains("cart-1") && found.detail.contains("exit code 3"), "{found:?}");
    assert!(found.next().contains("kubectl logs"));
    assert_eq!(diagnose(&rolling_out(Evidence::default())).cause, "RollingOut");
}

#[test]
fn a_refused_write_is_named_by_its_reason() {
    for reason in ["ErrResourceExists", "Forbidden", "QuotaExceeded", "ImageMissing", "Contested"] {
        let found = of(object("False", reason, "x"));
        assert_eq!((&*found.cause, &*found.detail, found.is_fine), (reason, "x", false));
    }
}

#[test]
fn a_daemon_without_nodes_is_ready() {
    let status = json!({"observedGeneration": 1, "desiredNumberScheduled": 0});
    let metadata = owned_by("mydomain.com/v1beta1", "GenericDaemon");
    let set = json!({"metadata": metadata, "status": status});
    let facts = Facts {
        object: object("True", "NoMatchingNodes", "No node has the label logs"),
        child: Some(Workloads::DaemonSet(serde_json::from_value(set).unwrap())),
        evidence: Evidence { nodes: Answer::Found([].into()), ..Evidence::default() },
        ..Facts::default()
    };
    let found = diagnose(&facts);
    assert_eq!((&*found.cause, found.is_fine), ("NoMatchingNodes", true));
}

#[test]
fn an_intended_state_is_named_before_its_consequences() {
    let mut paused = object("False", "RollingOut", "x");
    paused["metadata"]["annotations"] = json!({"workload-operator.example.com/paused": "true"});
    assert_eq!(of(paused.clone()).cause, "Paused");
    paused["metadata"]["deletionTimestamp"] = json!("2026-11-21T09:00:00Z");
    assert_eq!(of(paused).cause, "Deleting");
    let zero = of(object("True", "ScaledToZero", "x"));
    assert_eq!((&*zero.cause, zero.is_fine), ("ScaledToZero", true));
    let mut changed = object("True", "AllReplicasReady", "x");
    assert_eq!(of(changed.clone()).cause, "AllReplicasReady");
    changed["metadata"]["generation"] = json!(2);
    let unseen = of(changed);
    assert_eq!(unseen.cause, "Pending");
    assert!(unseen.next().starts_with("Run `workload-operator check`"));
}

#[test]
fn unreadable_owned_objects_are_not_reported_as_missing() {
    let key = ObjectKey::new("shop", "cart");
    let text = |unreadable: Option<&str>| {
        let unreadable = unreadable.map(str::to_owned);
        let object = object("False", "RollingOut", "0 of 1");
        let facts = Facts { object, unreadable, ..Facts::default() };
        as_text(KindName::Memcached, &key, &facts, &diagnose(&facts))
    };
    assert!(text(None).contains("It has no managed resources yet."));
    let forbidden = text(Some("deployments.apps \"cart\" is forbidden"));
    let line = "Cannot read its managed resources: deployments.apps \"cart\" is forbidden";
    assert!(forbidden.contains(line) && !forbidden.contains("no children"), "{forbidden}");
}
