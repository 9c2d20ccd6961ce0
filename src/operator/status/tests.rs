//! A fixture for each cause.

use serde_json::{Value, json};

use super::{Cause, Diagnosis, diagnose};
use crate::operator::status::facts::Facts;

/// An object of generation 1 that the operator has seen, with this Ready condition.
fn object(status: &str, reason: &str, message: &str) -> Value {
    json!({
        "metadata": {"name": "cart", "generation": 1, "uid": "u"},
        "spec": {"size": 3},
        "status": {"observedGeneration": 1, "conditions": [
            {"type": "Ready", "status": status, "reason": reason, "message": message}]},
    })
}

fn rolling_out() -> Facts {
    let child = json!({"status": {"conditions": []}});
    Facts {
        object: object("False", "RollingOut", "0 of 3"),
        child: Some(child),
        ..Facts::default()
    }
}

fn waiting(reason: &str) -> Value {
    json!({"status": {"phase": "Pending", "containerStatuses": [{
        "image": "memcached:typo", "restartCount": 7,
        "state": {"waiting": {"reason": reason, "message": "not found"}},
        "lastState": {"terminated": {"exitCode": 3}}}]}})
}

fn unschedulable(message: &str) -> Value {
    json!({"status": {"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]}})
}

fn with_pods(pods: Vec<Value>) -> Diagnosis {
    diagnose(&Facts { pods, ..rolling_out() })
}

fn with_failure(message: &str) -> Cause {
    let mut facts = rolling_out();
    facts.child = Some(json!({"status": {"conditions": [
        {"type": "ReplicaFailure", "status": "True", "message": message}]}}));
    diagnose(&facts).cause
}

fn of(object: Value) -> Cause {
    diagnose(&Facts { object, ..Facts::default() }).cause
}

#[test]
fn what_somebody_contests_is_not_to_be_waited_for() {
    let found = of(object("False", "Contested", "Somebody keeps changing spec.ports"));
    assert_eq!(found, Cause::Contested);
    assert!(found.next().contains("--show-managed-fields"));
}

#[test]
fn a_bad_image_is_named_with_how_many_pods_it_stops() {
    let found = with_pods(vec![waiting("ImagePullBackOff"), waiting("ErrImagePull"), json!({})]);
    assert_eq!(found.cause, Cause::BadImage);
    assert!(found.detail.starts_with("2 of 3 pods: ImagePullBackOff memcached:typo"), "{found:?}");
}

#[test]
fn a_crash_loop_tells_the_exit_code() {
    let found = with_pods(vec![waiting("CrashLoopBackOff")]);
    assert_eq!(found.cause, Cause::CrashLoop);
    assert!(found.detail.contains("restarted 7 times") && found.detail.ends_with("code 3"));
}

#[test]
fn a_taint_is_told_from_other_reasons_why_no_node_is_found() {
    let taint = "0/4 nodes are available: 4 node(s) had untolerated taint {a: b}.";
    assert_eq!(with_pods(vec![unschedulable(taint)]).cause, Cause::Taint);
    let cpu = "0/4 nodes are available: 4 Insufficient cpu.";
    assert_eq!(with_pods(vec![unschedulable(cpu)]).cause, Cause::Unschedulable);
}

#[test]
fn what_keeps_pods_from_being_made_is_read_from_kubernetes_words() {
    let quota = "pods \"cart-1\" is forbidden: exceeded quota: small, requested: pods=1";
    assert_eq!(with_failure(quota), Cause::Quota);
    let level = "pods \"cart-1\" is forbidden: violates PodSecurity \"restricted:latest\": x";
    assert_eq!(with_failure(level), Cause::PodSecurity);
    let admission = "pods \"cart-1\" is forbidden: error looking up service account";
    assert_eq!(with_failure(admission), Cause::Forbidden);
}

#[test]
fn a_daemon_set_tells_it_by_its_events_while_it_is_short_of_pods() {
    let mut facts = rolling_out();
    let warning = "Error creating: pods is forbidden: violates PodSecurity \"restricted:latest\"";
    facts.warnings = vec![warning.to_owned()];
    facts.child = Some(json!({"status": {"desiredNumberScheduled": 2}}));
    assert_eq!(diagnose(&facts).cause, Cause::PodSecurity);
    facts.child =
        Some(json!({"status": {"desiredNumberScheduled": 2, "currentNumberScheduled": 2}}));
    assert_eq!(diagnose(&facts).cause, Cause::RollingOut, "an old Event says nothing of now");
}

#[test]
fn no_node_with_the_label_is_told_from_nodes_that_are_tainted() {
    let object = object("True", "NoMatchingNodes", "No node has the label logs");
    let mut facts = Facts { object, ..Facts::default() };
    assert_eq!(diagnose(&facts).cause, Cause::NoMatchingNode);
    facts.nodes = vec![json!({"metadata": {"name": "n"}, "spec": {"taints":
        [{"key": "a", "value": "b", "effect": "NoSchedule"}]}})];
    let found = diagnose(&facts);
    assert_eq!(found, Cause::Taint.because("n has the taint a=b:NoSchedule"));
    facts.nodes[0]["spec"]["taints"] = json!([{"key": "a", "effect": "NoExecute"}]);
    let found = diagnose(&facts);
    assert_eq!(found, Cause::Taint.because("n has the taint a:NoExecute"), "as kubectl writes it");
}

#[test]
fn what_the_operator_could_not_write_is_told_by_its_reason() {
    let told = |reason| of(object("False", reason, "x"));
    assert_eq!(told("ErrResourceExists"), Cause::ForeignObject);
    assert_eq!(told("Forbidden"), Cause::Forbidden);
    assert_eq!(told("QuotaExceeded"), Cause::Quota);
    assert_eq!(told("ImageMissing"), Cause::Refused);
}

#[test]
fn a_deadline_is_the_cause_only_if_no_pod_says_why() {
    let late = object("False", "ProgressDeadlineExceeded", "it is late");
    assert_eq!(of(late.clone()), Cause::Deadline);
    let facts = Facts { object: late, pods: vec![waiting("ErrImagePull")], ..rolling_out() };
    assert_eq!(diagnose(&facts).cause, Cause::BadImage);
}

#[test]
fn what_a_person_wanted_comes_before_what_follows_from_it() {
    let mut paused = object("False", "RollingOut", "x");
    paused["metadata"]["annotations"] = json!({"workload-operator.example.com/paused": "true"});
    assert_eq!(of(paused.clone()), Cause::Paused);
    paused["metadata"]["deletionTimestamp"] = json!("2026-11-21T09:00:00Z");
    assert_eq!(of(paused), Cause::Deleting);
    let mut zero = object("True", "ScaledToZero", "x");
    zero["spec"] = json!({"replicas": 0});
    assert_eq!(of(zero), Cause::ScaledToZero);
    let mut changed = object("True", "AllReplicasReady", "x");
    assert_eq!(of(changed.clone()), Cause::Ready);
    changed["metadata"]["generation"] = json!(2);
    assert_eq!(of(changed), Cause::Unseen);
}
