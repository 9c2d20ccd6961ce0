//! The programs in crates/machinery/examples/ other than foo.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use controller_machinery::client::Client;
use controller_machinery::controller::{Action, ReconcileError};
use controller_machinery::manager::{Context, Manager};
use controller_machinery::object::{self, Meta};
use controller_machinery::shutdown::Shutdown;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::operator_process::OperatorProcess;
use crate::world::{JOB, Kind, World};

const CONFIG_MAP: Kind = Kind::new("", "v1", "ConfigMap", "configmaps");

/// Returns the binary of crates/machinery/examples/NAME.rs. `cargo test` has built it, unless it runs a
/// single test binary.
pub async fn program(name: &str) -> PathBuf {
    let folder = tokio::task::spawn_blocking(built).await.unwrap();
    folder.join(name)
}

fn built() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let binary = Path::new(env!("CARGO_BIN_EXE_workload-operator"));
        let mut cargo = std::process::Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "--examples"]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "the examples do not build");
        binary.parent().unwrap().join("examples")
    })
}

/// Starts a program for this namespace, as this ServiceAccount, with the kubeconfig as a flag;
/// returns when it is ready to work.
pub async fn start(
    world: &World,
    name: &str,
    account: &str,
    arguments: &[&str],
) -> OperatorProcess {
    let mut command = Command::new(program(name).await);
    command.arg("--kubeconfig").arg(world.kubeconfig_of(account).await);
    command.arg("--namespace").arg(&world.namespace).args(arguments).env_remove("KUBECONFIG");
    let program = OperatorProcess::of(command);
    program.logged("Ready to work").await;
    program
}

const TASK: Kind = Kind::new("example.com", "v1", "Task", "tasks");

#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_derived_types_runs_its_job_once() {
    let world = World::new("tasks", "baseline").await;
    let kubeconfig = world.plane().kubeconfig();
    let typed = program("typed").await;
    let mut command = Command::new(&typed);
    command.env("KUBECONFIG", kubeconfig);
    let program = OperatorProcess::of(command);
    // It waits for its kind, and continues without a restart.
    program.logged("not served").await;
    let printed = Command::new(&typed).arg("crd").output().await.unwrap();
    let definition: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    world.post(definitions, definition).await.unwrap();
    program.logged("Ready to work").await;

    let spec = json!({"image": "batch:1", "command": ["run"]});
    let task = json!({"metadata": {"name": "once"}, "spec": &spec});
    world.plane().until_established("tasks.example.com");
    world.create(TASK, task).await.unwrap();
    // On these nodes, the pod of a Job terminates on its own.
    world.until_condition(TASK, "once", "Complete", ("True", "Complete")).await;
    let job = world.get(JOB, "once").await.unwrap();
    assert_eq!(job["metadata"]["ownerReferences"][0]["kind"], "Task");
    world.delete(JOB, "once").await;
    world.until_gone(JOB, "once").await;
    world.patch(TASK, "once", json!({"metadata": {"labels": {"again": "no"}}})).await.unwrap();
    let second = json!({"metadata": {"name": "second"}, "spec": spec});
    world.create(TASK, second).await.unwrap();
    world.until_condition(TASK, "second", "Complete", ("True", "Complete")).await;
    assert!(world.get(JOB, "once").await.is_none(), "it ran once");
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_a_config_map_follow_it_and_are_deleted_with_it() {
    let (source, first, second) = (
        World::new("copies", "baseline").await,
        World::new("copies-first", "baseline").await,
        World::new("copies-second", "baseline").await,
    );
    let mut command = Command::new(program("replicate").await);
    command.env("KUBECONFIG", source.plane().kubeconfig());
    let program = OperatorProcess::of(command);
    program.logged("Ready to work").await;
    let theirs = json!({"metadata": {"name": "motd"}, "data": {"text": "theirs"}});
    second.create(CONFIG_MAP, theirs).await.unwrap();
    let metadata = json!({"name": "motd", "annotations": {"example.com/copy-to": "copies-first, copies-second"}});
    let motd = json!({"metadata": metadata, "data": {"text": "hello"}});
    source.create(CONFIG_MAP, motd).await.unwrap();
    let says = |text: &'static str| move |it: &Value| it["data"]["text"] == text;
    first.until(CONFIG_MAP, "motd", says("hello")).await;
    let event = source.until_event("motd", "ErrResourceExists").await;
    let note = "ConfigMap copies-second/motd already exists and is not managed by ConfigMap";
    assert_eq!(event["note"], note);
    second.delete(CONFIG_MAP, "motd").await;
    second.until(CONFIG_MAP, "motd", says("hello")).await;

    first.patch(CONFIG_MAP, "motd", json!({"data": {"text": "by hand"}})).await.unwrap();
    first.until(CONFIG_MAP, "motd", says("hello")).await;
    source.patch(CONFIG_MAP, "motd", json!({"data": {"text": "bye"}})).await.unwrap();
    first.until(CONFIG_MAP, "motd", says("bye")).await;
    second.until(CONFIG_MAP, "motd", says("bye")).await;
    let only = json!({"metadata": {"annotations": {"example.com/copy-to": "copies-first"}}});
    source.patch(CONFIG_MAP, "motd", only).await.unwrap();
    second.until_gone(CONFIG_MAP, "motd").await;
    source.delete(CONFIG_MAP, "motd").await;
    source.until_gone(CONFIG_MAP, "motd").await;
    first.until_gone(CONFIG_MAP, "motd").await;
    assert_eq!(program.terminate().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_kube_carries_a_manager() {
    #[derive(Debug, serde::Deserialize, serde::Serialize)]
    struct ConfigMap {
        metadata: Meta,
    }
    controller_machinery::view!(ConfigMap: object::Kind::namespaced("", "v1", "ConfigMap", "configmaps"));
    let world = World::new("over-kube", "baseline").await;
    let client = world.plane().admin().await;
    let over = |options| {
        let client = client.clone();
        let service = tower::service_fn(move |request: http::Request<bytes::Bytes>| {
            let client = client.clone();
            async move { client.send(request.map(kube::client::Body::from)).await }
        });
        Client::from_service(service, options)
    };
    let manager = Manager::new("over-kube").namespaces([world.namespace.clone()]);
    let copy = |map: Arc<ConfigMap>, cx: Context<ConfigMap>| async move {
        if map.metadata.key.name() == "first" {
            let copy = json!({"metadata": {"name": "copy"}, "data": {"of": "first"}});
            cx.ensure::<ConfigMap>(copy).await?;
        }
        Ok::<_, ReconcileError>(Action::Done)
    };
    let manager = manager.controller::<ConfigMap>().owns::<ConfigMap>().reconcile(copy);
    let program = manager.program(over).await.unwrap();
    let shutdown = Shutdown::manual();
    let running = tokio::spawn(program.run(shutdown.clone()));
    world.create(CONFIG_MAP, json!({"metadata": {"name": "first"}})).await.unwrap();
    world.until(CONFIG_MAP, "copy", |it| it["data"]["of"] == "first").await;
    shutdown.request();
    running.await.unwrap().unwrap();
}
