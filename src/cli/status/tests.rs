//! Causes that `status` names, for fixtures.

// Fixtures read better with values in place.
#![allow(clippy::needless_pass_by_value)]

use serde_json::{Value, json};

use super::*;
use crate::workload::{DaemonSet, Deployment};

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

fn pod(status: Value) -> Evidence {
    let pod = json!({"metadata": {"name": "cart-1", "namespace": "shop"}, "status": status});
    let pods = Answer::Found([serde_json::from_value(pod).unwrap()].into());
    Evidence { pods, ..Evidence::default() }
}

fn rolling_out(evidence: Evidence) -> Facts {
    let metadata = owned_by("cache.example.com/v1alpha1", "Memcached");
    let status = json!({"observedGeneration": 1});
    let child = json!({"metadata": metadata, "spec": {"replicas": 1}, "status": status});
    let child: Deployment = serde_json::from_value(child).unwrap();
    let problem = problem(&child, evidence, None, Health::of_deployment);
    Facts { object: object("False", "RollingOut", "0 of 1"), problem, ..Facts::default() }
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
    assert!(found.message.contains("cart-1") && found.message.contains("exit code 3"), "{found:?}");
    assert!(found.next().contains("kubectl logs"));
    assert_eq!(diagnose(&rolling_out(Evidence::default())).cause, "RollingOut");
}

#[test]
fn a_refused_write_is_named_by_its_reason() {
    for reason in ["ErrResourceExists", "Forbidden", "QuotaExceeded", "ImageMissing", "Contested"] {
        let found = of(object("False", reason, "x"));
        assert_eq!((&*found.cause, &*found.message, found.ready), (reason, "x", false));
    }
}

#[test]
fn a_daemon_without_nodes_is_ready() {
    let status = json!({"observedGeneration": 1, "desiredNumberScheduled": 0});
    let metadata = owned_by("mydomain.com/v1beta1", "GenericDaemon");
    let set = json!({"metadata": metadata, "status": status});
    let set: DaemonSet = serde_json::from_value(set).unwrap();
    let evidence = Evidence { nodes: Answer::Found([].into()), ..Evidence::default() };
    let facts = Facts {
        object: object("True", "NoMatchingNodes", "No node has the label logs"),
        problem: problem(&set, evidence, None, Health::of_daemon_set),
        ..Facts::default()
    };
    let found = diagnose(&facts);
    assert_eq!((&*found.cause, found.ready), ("NoMatchingNodes", true));
}

#[test]
fn an_intended_state_is_named_before_its_consequences() {
    let mut paused = object("False", "RollingOut", "x");
    paused["metadata"]["annotations"] = json!({"workload-operator.example.com/paused": "true"});
    assert_eq!(of(paused.clone()).cause, "Paused");
    paused["metadata"]["deletionTimestamp"] = json!("2026-11-21T09:00:00Z");
    assert_eq!(of(paused).cause, "Deleting");
    let zero = of(object("True", "ScaledToZero", "x"));
    assert_eq!((&*zero.cause, zero.ready), ("ScaledToZero", true));
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
    let text = |error: Option<&str>| {
        let object = object("False", "RollingOut", "0 of 1");
        let facts = Facts { object, error: error.map(str::to_owned), ..Facts::default() };
        Report::new(KindName::Memcached, &key, &facts).as_text()
    };
    assert!(text(None).contains("It has no managed resources yet."));
    let forbidden = text(Some("deployments.apps \"cart\" is forbidden"));
    let line = "Cannot read its managed resources: deployments.apps \"cart\" is forbidden";
    assert!(forbidden.contains(line) && !forbidden.contains("no children"), "{forbidden}");
}

fn args(words: &str) -> StatusArgs {
    let words = ["x", "status"].into_iter().chain(words.split_whitespace());
    match crate::cli::parse_from(words).unwrap().command {
        Some(crate::cli::Command::Status(args)) => *args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn arguments_name_one_object_or_all_of_some_kinds() {
    let object = |words: &str, expected: Result<Object<'_>, &str>| {
        assert_eq!(args(words).object(), expected.map_err(str::to_owned), "{words}");
    };
    object("app shop", Ok(Object::One(KindName::App, "shop")));
    object("memcached.cache.example.com/cart", Ok(Object::One(KindName::Memcached, "cart")));
    object("gd -A", Ok(Object::All(vec![KindName::GenericDaemon])));
    object("", Ok(Object::All(KindName::value_variants().to_vec())));
    object("cart", Err("'cart' is not a kind: use memcached, app or genericdaemon"));
    object("mc/cart -A", Err("cart is in one namespace: use -n NAMESPACE instead of -A"));
}

#[test]
fn a_list_names_what_is_not_ready_and_what_cannot_be_read() {
    let mut bad = object("False", "CrashLoopBackOff", "two\nlines");
    bad["metadata"]["namespace"] = json!("shop");
    let good = object("True", "AllReplicasReady", "fine");
    assert!(Entry::of(Memcached::kind(), good).is_none());
    let mut list = List {
        namespace: None,
        objects: 3,
        not_ready: Entry::of(Memcached::kind(), bad).into_iter().collect(),
        errors: vec!["apps.app.example.com is forbidden".to_owned()],
    };
    let text = "Memcached shop/cart: CrashLoopBackOff: two lines\napps.app.example.com is forbidden\n\
                Ready: 2 of 3 in all namespaces\n";
    assert_eq!((list.as_text(false).as_str(), list.exit_code()), (text, ExitCode::from(1)));
    assert!(list.as_text(true).contains("kubectl logs"), "{}", list.as_text(true));
    assert_eq!(json!(list)["notReady"][0]["cause"], "CrashLoopBackOff");
    list.not_ready.clear();
    assert_eq!(list.exit_code(), ExitCode::from(2), "a part could not be read");
    list.errors.clear();
    list.namespace = Some("shop".to_owned());
    let text = "Ready: 3 of 3 in namespace shop (-A: in all namespaces)\n";
    assert_eq!((list.as_text(false).as_str(), list.exit_code()), (text, ExitCode::SUCCESS));
}
