//! Foo: `samplecontroller.k8s.io/v1alpha1`, the example program.

use std::sync::OnceLock;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::audit::{Entry, operator_writes};
use crate::control_plane::ControlPlane;
use crate::examples;
use crate::operator_process::OperatorProcess;
use crate::world::{DEPLOYMENT, FOO, ROLE_BINDING, World};

/// A namespace for Foos, in which the program's ServiceAccount has all permissions.
async fn world(name: &str) -> World {
    let world = World::new(name, "baseline").await;
    prepare(&world, "workload-operator").await;
    world
}

/// Makes the API server serve Foos, and gives this ServiceAccount all permissions in the namespace.
pub async fn prepare(world: &World, account: &str) {
    tokio::task::spawn_blocking(serve_foos).await.unwrap();
    let binding = json!({
        "metadata": {"name": "foo"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": world.namespace}],
    });
    world.create(ROLE_BINDING, binding).await.unwrap();
}

/// Once for all tests.
fn serve_foos() {
    static SERVED: OnceLock<()> = OnceLock::new();
    SERVED.get_or_init(|| {
        let plane = ControlPlane::shared();
        plane.kubectl(&["apply", "--server-side", "-f", "artifacts/examples/foo-crd.yaml"]);
        plane.until_established("foos.samplecontroller.k8s.io");
    });
}

/// Starts the program for this namespace, with the kubeconfig as a flag; returns when it is ready
/// to work.
async fn start(world: &World) -> OperatorProcess {
    start_as(world, "workload-operator").await
}

/// Like [`start`], as this ServiceAccount.
pub async fn start_as(world: &World, account: &str) -> OperatorProcess {
    examples::start(world, "foo", account, &["--workers=3"]).await
}

/// Like [`start`], for the program that assembles its parts manually.
async fn start_sample_controller(world: &World) -> OperatorProcess {
    examples::start(world, "sample_controller", "workload-operator", &["--workers=3"]).await
}

#[tokio::test]
async fn a_failed_start_is_explained_in_a_sentence() {
    for (name, who) in [("foo", "foo"), ("sample_controller", "Error")] {
        let mut command = Command::new(examples::program(name).await);
        let ended = command.args(["--kubeconfig", "/no/such/file"]).output().await.unwrap();
        let said = String::from_utf8(ended.stderr).expect("it is text");
        let sentence = format!("{who}: the kubeconfig /no/such/file cannot be used: ");
        assert!(!ended.status.success() && said.starts_with(&sentence), "{said}");
    }
}

fn foo(name: &str, deployment: &str, replicas: i32) -> Value {
    let spec = json!({"deploymentName": deployment, "replicas": replicas});
    json!({"metadata": {"name": name}, "spec": spec})
}

/// The Deployment that Kubernetes' own sample-controller creates for this Foo.
fn sample_controllers(foo: &Value) -> Value {
    let labels = json!({"app": "nginx", "controller": foo["metadata"]["name"]});
    json!({
        "metadata": {
            "name": foo["spec"]["deploymentName"],
            "ownerReferences": [{
                "apiVersion": "samplecontroller.k8s.io/v1alpha1",
                "kind": "Foo",
                "name": foo["metadata"]["name"],
                "uid": foo["metadata"]["uid"],
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "replicas": foo["spec"]["replicas"],
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
            },
        },
    })
}

fn available(foo: &Value) -> &Value {
    &foo["status"]["availableReplicas"]
}

/// Waits until a Foo created now has been processed, and so has everything that was queued before it.
async fn fence(world: &World) {
    world.create(FOO, foo("fence", "fence", 1)).await.unwrap();
    world.until(FOO, "fence", |foo| available(foo) == 1).await;
}

/// The program's writes, except those for the fence.
fn writes_of(world: &World, resource: &str) -> Vec<Entry> {
    let mut writes = operator_writes(world);
    writes.retain(|write| write.resource == resource && write.name != "fence");
    writes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foo_gets_the_deployment_of_sample_controller() {
    let world = world("foo-deployment").await;
    let _program = start(&world).await;
    let sample = std::fs::read_to_string("artifacts/examples/foo.yaml").unwrap();
    let sample: Value = serde_yaml_ng::from_str(&sample).unwrap();
    world.create(FOO, sample).await.unwrap();
    let foo = world.until(FOO, "example-foo", |foo| available(foo) == 1).await;
    let mine = world.get(DEPLOYMENT, "example-foo").await.unwrap();
    // sample-controller's Deployment as the API server stores it, defaults included.
    world.delete(DEPLOYMENT, "example-foo").await;
    let mut theirs = sample_controllers(&foo);
    theirs["metadata"]["name"] = json!("theirs");
    let theirs = world.create(DEPLOYMENT, theirs).await.unwrap();
    assert_eq!(mine["spec"], theirs["spec"]);
    assert_eq!(mine["metadata"]["labels"], Value::Null);
    assert_eq!(mine["metadata"]["ownerReferences"], theirs["metadata"]["ownerReferences"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deployment_of_sample_controller_is_adopted_unchanged() {
    let world = world("foo-taken-over").await;
    let foo = world.create(FOO, foo("one", "one", 2)).await.unwrap();
    world.create(DEPLOYMENT, sample_controllers(&foo)).await.unwrap();
    let _program = start_sample_controller(&world).await;
    world.until(FOO, "one", |foo| available(foo) == 2).await;
    fence(&world).await;
    assert!(writes_of(&world, "deployments").iter().all(|write| write.name != "one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manager_applies_an_adopted_deployment_once() {
    let world = world("foo-adopted").await;
    let foo = world.create(FOO, foo("one", "one", 2)).await.unwrap();
    let before = world.create(DEPLOYMENT, sample_controllers(&foo)).await.unwrap();
    let _program = start(&world).await;
    world.until(FOO, "one", |foo| available(foo) == 2).await;
    fence(&world).await;
    let writes = writes_of(&world, "deployments");
    assert_eq!(writes.iter().filter(|write| write.name == "one").count(), 1, "{writes:#?}");
    let after = world.get(DEPLOYMENT, "one").await.unwrap();
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_deployment_name_is_reported_and_not_retried() {
    let world = world("foo-unnamed").await;
    let program = start(&world).await;
    world.create(FOO, foo("one", "", 1)).await.unwrap();
    let event = world.until_event("one", "ErrUnnamed").await;
    assert!(event["note"].as_str().unwrap().contains("spec.deploymentName is empty"), "{event}");
    fence(&world).await;
    let failures =
        program.lines().iter().filter(|line| line.contains("spec.deploymentName is empty")).count();
    assert_eq!(failures, 1, "{:#?}", program.lines());
    // Once it has a name, it is a Foo like any other.
    world.patch(FOO, "one", json!({"spec": {"deploymentName": "one"}})).await.unwrap();
    world.until(FOO, "one", |foo| available(foo) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_must_be_one_to_ten() {
    let world = world("foo-bounds").await;
    for wrong in [0, 11] {
        let refused = world.create(FOO, foo("one", "one", wrong)).await.unwrap_err();
        assert!(refused.contains("spec.replicas"), "{refused}");
    }
    for (name, right) in [("least", 1), ("most", 10)] {
        world.create(FOO, foo(name, name, right)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_flag_the_variable_kubeconfig_names_the_file() {
    let world = world("foo-kubeconfig").await;
    let kubeconfig = world.operator_kubeconfig().await;
    let mut command = Command::new(examples::program("foo").await);
    command.args(["--namespace", &world.namespace]).env("KUBECONFIG", kubeconfig);
    let program = OperatorProcess::of(command);
    program.logged("Ready to work").await;
    assert_eq!(program.terminate().await, Some(0), "SIGTERM is an orderly end");
}
