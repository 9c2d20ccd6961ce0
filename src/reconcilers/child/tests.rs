//! Decisions about children and the comparison behind them.

mod in_the_way;

use super::*;
use crate::reconcilers::app::{self, App};
use crate::reconcilers::fixtures::{child, custom, uid, wire};
use crate::reconcilers::memcached::{self, Memcached};
use crate::reconcilers::service::ServiceSpec;
use crate::reconcilers::workload::DeploymentSpec;

const MEMCACHED: &str = include_str!("../../../artifacts/examples/memcached.yaml");
/// An App with a variable of each sort, and quantities that can be written otherwise.
const NGINX: &str = "
apiVersion: app.example.com/v1
kind: App
metadata:
  name: nginx-app
spec:
  replicas: 2
  image: nginx:1.16.1
  resources:
    requests:
      cpu: 50m
      memory: 64Mi
    limits:
      cpu: 500m
      memory: 128Mi
  envs:
  - name: LOG_LEVEL
    value: info
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  ports:
  - name: http
    port: 8080
    targetPort: 80
";

/// The App, its desired Deployment, and the Deployment as it would be after applying that.
fn nginx() -> (App, Made<DeploymentSpec>, Value) {
    let app: App = custom(NGINX);
    let desired = app::desired(&app).deployment;
    let there = wire(&app, &desired);
    (app, desired, there)
}

fn nginx_service() -> (App, Made<ServiceSpec>, Value) {
    let app: App = custom(NGINX);
    let desired = app::desired(&app).service.unwrap();
    let there = wire(&app, &desired);
    (app, desired, there)
}

#[test]
fn what_was_applied_needs_nothing() {
    let (app, desired, there) = nginx();
    assert_eq!(decide(&app.as_owner(), &desired, Some(&child(&there))), Decision::Nothing);
    let memcached: Memcached = custom(MEMCACHED);
    let children = memcached::desired(&memcached, &Text::new("memcached:1.6"));
    let there = child(&wire(&memcached, &children.service));
    assert_eq!(decide(&memcached.as_owner(), &children.service, Some(&there)), Decision::Nothing);
}

#[test]
fn what_is_not_there_is_created() {
    let (app, desired, _) = nginx();
    assert_eq!(decide(&app.as_owner(), &desired, None), Decision::Create);
}

#[test]
fn somebody_elses_object_is_never_touched() {
    let (app, desired, mut there) = nginx();
    there["metadata"]["ownerReferences"] = json!([]);
    assert_eq!(decide(&app.as_owner(), &desired, Some(&child(&there))), Decision::Taken);
    there["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached", "name": "nginx-app",
        "uid": uid(7), "controller": true,
    }]);
    assert_eq!(decide(&app.as_owner(), &desired, Some(&child(&there))), Decision::Taken);
    // Even one that is being deleted: we must not wait for it silently.
    there["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(decide(&app.as_owner(), &desired, Some(&child(&there))), Decision::Taken);
}

#[test]
fn the_child_of_a_former_namesake_is_waited_for() {
    let (app, desired, mut there) = nginx();
    there["metadata"]["ownerReferences"][0]["uid"] = json!(uid(7));
    assert_eq!(decide(&app.as_owner(), &desired, Some(&child(&there))), Decision::Wait);
}

#[test]
fn a_child_that_is_being_deleted_is_waited_for() {
    let (app, desired, mut there) = nginx();
    there["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    there["spec"]["replicas"] = json!(7);
    assert_eq!(decide(&app.as_owner(), &desired, Some(&child(&there))), Decision::Wait);
}

#[test]
fn a_child_with_another_selector_cannot_be_changed() {
    let (app, desired, mut there) = nginx();
    there["spec"]["selector"]["matchLabels"] = json!({ "app": "x" });
    let decision = decide(&app.as_owner(), &desired, Some(&child(&there)));
    assert_eq!(decision, Decision::Immutable("spec.selector"));
}

#[test]
fn a_changed_spec_is_applied_even_if_it_only_leaves_something_out() {
    let (app, _, there) = nginx();
    let mut changed = app.clone();
    changed.spec.envs = Box::default();
    let desired = app::desired(&changed).deployment;
    assert_eq!(desired.difference(&child::<DeploymentSpec>(&there).made()), None);
    assert_eq!(decide(&app.as_owner(), &desired, Some(&child(&there))), Decision::Apply);
}

#[test]
fn a_field_changed_by_hand_is_restored() {
    let container = "/spec/template/spec/containers/0";
    for (pointer, value, expected) in [
        ("/spec/replicas".to_owned(), json!(9), "spec.replicas"),
        ("/metadata/labels/app.kubernetes.io~1name".to_owned(), json!("x"), "metadata.labels"),
        (
            "/spec/template/metadata/labels/app.kubernetes.io~1version".to_owned(),
            json!("x"),
            "spec.template.metadata.labels",
        ),
        (format!("{container}/image"), json!("evil"), "spec.template.spec.containers.image"),
        (
            format!("{container}/imagePullPolicy"),
            json!("Always"),
            "spec.template.spec.containers.imagePullPolicy",
        ),
        (format!("{container}/env/0/value"), json!("x"), "spec.template.spec.containers.env"),
        (format!("{container}/env"), json!([]), "spec.template.spec.containers.env"),
        (
            format!("{container}/resources/limits/cpu"),
            json!("2"),
            "spec.template.spec.containers.resources",
        ),
        (
            format!("{container}/ports/0/containerPort"),
            json!(81),
            "spec.template.spec.containers.ports",
        ),
        (format!("{container}/name"), json!("other"), "spec.template.spec.containers"),
    ] {
        let (app, desired, mut there) = nginx();
        *there.pointer_mut(&pointer).unwrap() = value;
        let decision = decide(&app.as_owner(), &desired, Some(&child(&there)));
        assert_eq!(decision, Decision::Restore(expected), "{pointer}");
    }
}

/// The answer to applying the sample's Deployment while a policy pins images, and the record of it.
fn pinned() -> (App, Made<DeploymentSpec>, Value) {
    let (app, desired, mut there) = nginx();
    there["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx@sha256:0");
    let record = admission(&desired, &child(&there)).unwrap();
    assert_eq!(record["path"], "/metadata/annotations/workload-operator.example.com~1admitted");
    there["metadata"]["annotations"][ADMITTED] = record["value"].clone();
    (app, desired, there)
}

#[test]
fn an_admitted_value_is_left_alone_and_a_later_change_reverted() {
    let (app, desired, there) = pinned();
    let decide = |there: &Value| decide(&app.as_owner(), &desired, Some(&child(there)));
    assert_eq!(decide(&there), Decision::Nothing);
    assert_eq!(admission(&desired, &child(&there)), None);
    for (pointer, value) in [
        ("/spec/replicas", json!(9)),
        ("/spec/template/spec/containers/0/image", json!("nginx@sha256:1")),
        ("/spec/template/spec/containers/0/env/0/value", json!("x")),
        ("/spec/template/spec/containers/0/resources/limits/cpu", json!("2")),
        ("/metadata/labels/app.kubernetes.io~1name", json!("x")),
        ("/metadata/annotations/workload-operator.example.com~1admitted", json!("x")),
    ] {
        let mut there = there.clone();
        *there.pointer_mut(pointer).unwrap() = value;
        assert_eq!(decide(&there), Decision::Restore("spec"), "{pointer}");
    }
}

#[test]
fn what_is_injected_later_and_other_changes_leave_the_record_true() {
    let (mut app, desired, mut there) = pinned();
    let containers = &mut there["spec"]["template"]["spec"]["containers"];
    containers[0]["env"].as_array_mut().unwrap().insert(0, json!({ "name": "X", "value": "1" }));
    containers.as_array_mut().unwrap().insert(0, json!({ "name": "sidecar", "image": "proxy" }));
    assert_eq!(decide(&app.as_owner(), &desired, Some(&child(&there))), Decision::Nothing);
    app.spec.replicas = 5;
    let desired = app::desired(&app).deployment;
    assert_eq!(decide(&app.as_owner(), &desired, Some(&child(&there))), Decision::Apply);
    let applied = wire(&app, &desired)["metadata"]["annotations"][APPLIED].clone();
    there["metadata"]["annotations"][APPLIED] = applied;
    there["spec"]["replicas"] = json!(5);
    assert_eq!(admission(&desired, &child(&there)), None, "the same is admitted");
}

#[test]
fn the_record_goes_once_nothing_is_rewritten() {
    let (_, desired, mut there) = pinned();
    let image = json!(&*desired.spec.template.spec.containers[0].image);
    there["spec"]["template"]["spec"]["containers"][0]["image"] = image;
    let record = admission(&desired, &child(&there)).unwrap();
    assert_eq!(record["op"], "remove");
    // Whoever removes the mark of what was applied has not admitted it.
    there["metadata"]["annotations"][APPLIED] = json!("x");
    assert_eq!(admission(&desired, &child(&there)), None);
}

#[test]
fn security_removed_by_hand_is_restored() {
    let memcached: Memcached = custom(MEMCACHED);
    let desired = memcached::desired(&memcached, &Text::new("m")).deployment;
    let pod = "/spec/template/spec";
    for (parent, field) in [
        (pod.to_owned(), "securityContext"),
        (pod.to_owned(), "automountServiceAccountToken"),
        (format!("{pod}/securityContext"), "seccompProfile"),
        (format!("{pod}/containers/0"), "securityContext"),
        (format!("{pod}/containers/0/securityContext"), "capabilities"),
        (format!("{pod}/containers/0/securityContext"), "runAsUser"),
        (format!("{pod}/containers/0"), "command"),
        ("/spec".to_owned(), "strategy"),
    ] {
        let mut there = wire(&memcached, &desired);
        there.pointer_mut(&parent).unwrap().as_object_mut().unwrap().remove(field).unwrap();
        let decision = decide(&memcached.as_owner(), &desired, Some(&child(&there)));
        assert!(matches!(decision, Decision::Restore(_)), "{parent}/{field}: {decision:?}");
    }
}

#[test]
fn what_the_operator_does_not_set_is_left_alone() {
    let (app, desired, mut there) = nginx();
    let container = &mut there["spec"]["template"]["spec"]["containers"][0];
    container["terminationMessagePath"] = json!("/dev/termination-log");
    container["env"].as_array_mut().unwrap().push(json!({ "name": "INJECTED", "value": "1" }));
    container["env"][1]["valueFrom"]["fieldRef"]["apiVersion"] = json!("v1");
    container["resources"]["limits"]["example.com/injected"] = json!("1");
    there["metadata"]["annotations"]["autoscaling.example.com/x"] = json!("1");
    there["metadata"]["labels"]["team"] = json!("a");
    there["spec"]["template"]["metadata"]["annotations"] = json!({ "injected": "true" });
    there["spec"]["progressDeadlineSeconds"] = json!(600);
    let sidecar = json!({ "name": "sidecar", "image": "proxy" });
    there["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().insert(0, sidecar);
    assert_eq!(decide(&app.as_owner(), &desired, Some(&child(&there))), Decision::Nothing);
}

#[test]
fn quantities_that_the_server_wrote_otherwise_are_the_same() {
    let (app, desired, mut there) = nginx();
    there["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({
        "limits": { "cpu": "0.5", "memory": "131072Ki" }, "requests": { "cpu": "0.05", "memory": "67108864" },
    });
    assert_eq!(decide(&app.as_owner(), &desired, Some(&child(&there))), Decision::Nothing);
    let mut same = app;
    same.spec.resources.limits.0[0].1 = crate::object::Quantity::new("0.5");
    assert_eq!(app::desired(&same).deployment.hash(), desired.hash());
}

#[test]
fn the_order_of_variables_counts_only_where_one_refers_to_another() {
    let (app, desired, _) = nginx();
    let mut reordered = app.clone();
    reordered.spec.envs.reverse();
    assert_eq!(app::desired(&reordered).deployment.hash(), desired.hash());
    let mut referring = app.clone();
    referring.spec.envs[0].value = Text::new("$(POD_NAME)");
    let before = app::desired(&referring).deployment;
    let there = wire(&app, &before);
    referring.spec.envs.reverse();
    let after = app::desired(&referring).deployment;
    assert_ne!(after.hash(), before.hash());
    let there = child::<DeploymentSpec>(&there).made();
    assert_eq!(after.difference(&there), Some("spec.template.spec.containers.env"));
}

#[test]
fn a_services_address_type_and_node_ports_are_kept() {
    let (app, desired, mut there) = nginx_service();
    there["spec"]["clusterIP"] = json!("10.0.0.7");
    there["spec"]["type"] = json!("NodePort");
    there["spec"]["ports"][0]["nodePort"] = json!(30007);
    there["spec"]["sessionAffinity"] = json!("None");
    assert_eq!(decide(&app.as_owner(), &desired, Some(&child(&there))), Decision::Nothing);
    let sent = serde_json::to_value(desired.to_apply(app.key(), app.as_owner(), uid(1))).unwrap();
    assert_eq!(sent["spec"].get("clusterIP"), None);
    assert_eq!(sent["spec"].get("type"), None);
    assert_eq!(sent["spec"]["ports"][0].get("nodePort"), None);
}

#[test]
fn a_name_that_the_operator_did_not_give_a_port_is_left_alone() {
    let (app, mut desired, _) = nginx_service();
    for (given, expected) in [("", Decision::Nothing), ("http", Decision::Restore("spec.ports"))] {
        desired.spec.ports[0].name = Text::new(given);
        let mut there = wire(&app, &desired);
        there["spec"]["ports"][0]["name"] = json!("web");
        assert_eq!(decide(&app.as_owner(), &desired, Some(&child(&there))), expected);
    }
}

#[test]
fn children_of_the_same_spec_share_one_copy() {
    let named = |name: &str| {
        let memcached: Memcached = custom(&MEMCACHED.replace("memcached-sample", name));
        let desired = memcached::desired(&memcached, &Text::new("memcached:1.6")).deployment;
        (child::<DeploymentSpec>(&wire(&memcached, &desired)), desired)
    };
    let ((a, desired_a), (b, desired_b)) = (named("a"), named("b"));
    assert!(a.made.is_same_as(&b.made));
    assert_eq!((a.made(), b.made()), (desired_a, desired_b));
}

#[test]
fn only_an_update_carries_the_uid() {
    let (app, desired, _) = nginx();
    let sent =
        |uid| serde_json::to_value(desired.to_apply(app.key(), app.as_owner(), uid)).unwrap();
    assert_eq!(sent(Uid::NONE)["metadata"].get("uid"), None);
    assert_eq!(sent(uid(5))["metadata"]["uid"], json!(uid(5)));
    assert_eq!(sent(uid(5))["metadata"].get("resourceVersion"), None);
}

#[test]
fn the_record_of_what_was_applied_is_another_for_each_spec() {
    let (_, service, _) = nginx_service();
    let mut other = service.clone();
    other.spec.ports[0].port += 1;
    assert_ne!(other.hash(), service.hash());
}
