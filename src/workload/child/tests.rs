//! Differences of an owned object that a reconcile reverts, and those that it ignores.

mod foreign;

use super::*;
use crate::app::{self, App};
use crate::memcached::{self, Memcached};
use crate::workload::custom_resource::Custom;
use crate::workload::fixtures::{applied, child, custom, wire};
use crate::workload::services::ServiceSpec;
use crate::workload::{Deployment, DeploymentSpec};

const MEMCACHED: &str = include_str!("../../../artifacts/examples/memcached.yaml");
/// An App with an environment variable of each form, and quantities in several notations.
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

/// The App, its desired Deployment, and the Deployment after an apply.
fn nginx() -> (App, Desired<DeploymentSpec>, Value) {
    let app: App = custom(NGINX);
    let desired = app::desired(&app).deployment;
    let there = wire(&app, &desired);
    (app, desired, there)
}

fn nginx_service() -> (App, Desired<ServiceSpec>, Value) {
    let app: App = custom(NGINX);
    let desired = app::desired(&app).service.unwrap();
    let there = wire(&app, &desired);
    (app, desired, there)
}

/// Returns whether a reconcile writes nothing after `change` has modified the applied object.
async fn is_left<V: Custom, S: ChildSpec>(
    object: V,
    desired: &Desired<S>,
    change: impl Fn(&mut Value),
) -> bool {
    let (cx, mut there) = applied(object, desired).await;
    assert!(desired.is_ensured(&cx, &child(&there)).unwrap(), "as it was applied: {there:#}");
    change(&mut there);
    desired.is_ensured(&cx, &child(&there)).unwrap()
}

#[tokio::test]
async fn a_child_of_this_object_that_lost_its_owner_is_adopted() {
    for (label, is_adopted) in [("nginx-app", true), ("another", false)] {
        let (app, desired, _) = nginx();
        let (cx, mut there) = applied(app, &desired).await;
        there["metadata"]["ownerReferences"] = json!(null);
        there["metadata"]["resourceVersion"] = json!("21");
        there["metadata"]["labels"]["app.example.com/v1"] = json!(label);
        let there = cx.store::<Deployment>().unwrap().apply_read(child(&there));
        assert!(!desired.is_ensured(&cx, &there).unwrap(), "it has no owner yet");
        let ensured = desired.ensure(&cx).await;
        let is_taken = matches!(&ensured, Err(ReconcileError::NotOwned { .. }));
        // These errors show that the operator asked for the owner, which the scripted API server does not
        // know.
        let is_asked =
            matches!(&ensured, Err(ReconcileError::Terminating(_) | ReconcileError::Call { .. }));
        assert_eq!((is_asked, is_taken), (is_adopted, !is_adopted), "{ensured:?}");
    }
}

#[tokio::test]
async fn a_field_changed_by_hand_is_restored() {
    let container = "/spec/template/spec/containers/0";
    for (pointer, value) in [
        ("/spec/replicas".to_owned(), json!(9)),
        ("/metadata/labels/app.kubernetes.io~1name".to_owned(), json!("x")),
        ("/spec/template/metadata/labels/app.kubernetes.io~1version".to_owned(), json!("x")),
        (format!("{container}/image"), json!("evil")),
        (format!("{container}/imagePullPolicy"), json!("Always")),
        (format!("{container}/env/0/value"), json!("x")),
        (format!("{container}/env"), json!([])),
        (format!("{container}/resources/limits/cpu"), json!("2")),
        (format!("{container}/ports/0/containerPort"), json!(81)),
        (format!("{container}/name"), json!("other")),
    ] {
        let (app, desired, _) = nginx();
        let change = |there: &mut Value| *there.pointer_mut(&pointer).unwrap() = value.clone();
        assert!(!is_left(app, &desired, change).await, "{pointer}");
    }
}

#[tokio::test]
async fn security_removed_by_hand_is_restored() {
    let memcached: Memcached = custom(MEMCACHED);
    let desired = memcached::desired(&memcached, &memcached::Images::of("m")).deployment;
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
        let remove = |there: &mut Value| {
            there.pointer_mut(&parent).unwrap().as_object_mut().unwrap().remove(field).unwrap();
        };
        assert!(!is_left(memcached.clone(), &desired, remove).await, "{parent}/{field}");
    }
}

#[tokio::test]
async fn fields_of_other_managers_are_left_alone() {
    let (app, desired, _) = nginx();
    let add = |there: &mut Value| {
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
    };
    assert!(is_left(app, &desired, add).await);
}

#[tokio::test]
async fn quantities_in_another_notation_are_equal() {
    let (app, desired, _) = nginx();
    let otherwise = |there: &mut Value| {
        there["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({
            "limits": { "cpu": "0.5", "memory": "131072Ki" },
            "requests": { "cpu": "0.05", "memory": "67108864" },
        });
    };
    assert!(is_left(app.clone(), &desired, otherwise).await);
    let (cx, there) = applied(app.clone(), &desired).await;
    let mut same = app;
    let edited = |value: Value, edit: &dyn Fn(&mut Value)| {
        let mut value = value;
        edit(&mut value);
        value.into()
    };
    same.spec.resources =
        edited(same.spec.resources.set(), &|it| it["limits"]["cpu"] = json!("0.5"));
    same.spec.envs = edited(same.spec.envs.set(), &|it| it.as_array_mut().unwrap().reverse());
    assert!(app::desired(&same).deployment.is_ensured(&cx, &child(&there)).unwrap());
}

#[tokio::test]
async fn a_services_address_type_and_node_ports_are_kept() {
    let (app, desired, _) = nginx_service();
    let sent = desired.to_apply(app.key());
    assert_eq!(sent["spec"].get("clusterIP"), None);
    assert_eq!(sent["spec"].get("type"), None);
    assert_eq!(sent["spec"]["ports"][0].get("nodePort"), None);
    let assign = |there: &mut Value| {
        there["spec"]["clusterIP"] = json!("10.0.0.7");
        there["spec"]["type"] = json!("NodePort");
        there["spec"]["ports"][0]["nodePort"] = json!(30007);
        there["spec"]["sessionAffinity"] = json!("None");
    };
    assert!(is_left(app.clone(), &desired, assign).await);
    let select = |there: &mut Value| there["spec"]["selector"]["more"] = json!("x");
    assert!(!is_left(app, &desired, select).await, "it would select no pod");
}

#[tokio::test]
async fn a_port_name_of_another_manager_is_left_alone() {
    let (app, mut desired, _) = nginx_service();
    for (given, expected) in [("", true), ("http", false)] {
        desired.spec["ports"][0]["name"] = json!(Some(given).filter(|name| !name.is_empty()));
        let name = |there: &mut Value| there["spec"]["ports"][0]["name"] = json!("web");
        assert_eq!(is_left(app.clone(), &desired, name).await, expected);
    }
}

#[tokio::test]
async fn the_record_of_an_apply_has_the_key_of_earlier_releases() {
    let (app, desired, _) = nginx();
    let (_, there) = applied(app, &desired).await;
    let annotations = there["metadata"]["annotations"].as_object().unwrap();
    let keys: Vec<&String> = annotations.keys().collect();
    assert_eq!(keys, ["workload-operator.example.com/applied"]);
}
