//! The programs in crates/machinery/examples/ other than foo.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use controller_machinery::client::Client;
use controller_machinery::controller::{Action, ReconcileError};
use controller_machinery::manager::{Context, Manager};
use controller_machinery::object::{self, Meta};
use controller_machinery::shutdown::Shutdown;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::audit::{Entry, operator_writes};
use crate::control_plane::ControlPlane;
use crate::operator_process::OperatorProcess;
use crate::world::{DEPLOYMENT, JOB, Kind, MAX_WAIT, ROLE_BINDING, SERVICE, World};

const WEBSITE: Kind = Kind::new("example.com", "v1", "Website", "websites");
const CONFIG_MAP: Kind = Kind::new("", "v1", "ConfigMap", "configmaps");
const AUTOSCALER: Kind =
    Kind::new("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");

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

/// A namespace for websites, in which the program's ServiceAccount has all permissions.
async fn world_of_websites(name: &str) -> World {
    let world = World::new(name, "baseline").await;
    tokio::task::spawn_blocking(|| {
        static SERVED: OnceLock<()> = OnceLock::new();
        SERVED.get_or_init(|| {
            let plane = ControlPlane::shared();
            plane.kubectl(&["apply", "--server-side", "-f", "artifacts/examples/website-crd.yaml"]);
            plane.kubectl(&["wait", "--for=condition=Established", "crd/websites.example.com"]);
        });
    })
    .await
    .unwrap();
    let binding = json!({
        "metadata": {"name": "website"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "workload-operator", "namespace": name}],
    });
    world.create(ROLE_BINDING, binding).await.unwrap();
    world
}

/// The theme and the website of artifacts/examples/website.yaml.
fn theme(css: &str) -> Value {
    json!({"metadata": {"name": "corporate"}, "data": {"css": css}})
}

fn website() -> Value {
    let text = std::fs::read_to_string("artifacts/examples/website.yaml").unwrap();
    serde_yaml_ng::from_str(&text).unwrap()
}

async fn start_websites(world: &World, directory: &Path) -> OperatorProcess {
    let directory = format!("--directory={}", directory.display());
    start(world, "website", "workload-operator", &[&directory]).await
}

const NAME: &str = "example-website";

#[tokio::test(flavor = "multi_thread")]
async fn a_website_follows_its_theme_without_needless_writes() {
    let world = world_of_websites("website-children").await;
    let directory = tempfile::tempdir().unwrap();
    let program = start_websites(&world, directory.path()).await;
    world.create(WEBSITE, website()).await.unwrap();
    let missing = ("False", "ErrNoTheme");
    let why = world.until_condition(WEBSITE, NAME, "Ready", missing).await;
    assert!(why.contains("\"corporate\""), "{why}");
    world.create(CONFIG_MAP, theme("a {}")).await.unwrap();
    world.until_condition(WEBSITE, NAME, "Ready", ("True", "Serving")).await;
    world.until(SERVICE, NAME, |service| service["spec"]["selector"]["website"] == NAME).await;
    world.until(AUTOSCALER, NAME, |scaler| scaler["spec"]["maxReplicas"] == 3).await;
    let announced = directory.path().join(format!("{NAME}.website-children"));
    assert!(std::fs::read_to_string(&announced).unwrap().contains("Hello"));

    // Its references change, and another client changes its owned objects.
    let css = |text: &'static str| move |page: &Value| page["data"]["style.css"] == text;
    world.patch(CONFIG_MAP, "corporate", json!({"data": {"css": "b {}"}})).await.unwrap();
    world.until(CONFIG_MAP, NAME, css("b {}")).await;
    world.patch(CONFIG_MAP, NAME, json!({"data": {"style.css": null}})).await.unwrap();
    world.until(CONFIG_MAP, NAME, css("b {}")).await;

    // An unwanted object is deleted, and a newly requested field is added.
    world.patch(WEBSITE, NAME, json!({"spec": {"maxReplicas": 1}})).await.unwrap();
    world.until_gone(AUTOSCALER, NAME).await;
    world.until(DEPLOYMENT, NAME, |deployment| deployment["spec"]["replicas"] == 1).await;

    // After a restart everything is in place, the status of this generation included.
    world.until_condition(WEBSITE, NAME, "Ready", ("True", "Serving")).await;
    drop(program);
    // Selected by time, because the API server logs a write after it becomes visible.
    let restarted = jiff::Timestamp::now();
    let _program = start_websites(&world, directory.path()).await;
    let mut other = website();
    other["metadata"]["name"] = json!("fence");
    world.create(WEBSITE, other).await.unwrap();
    world.until_condition(WEBSITE, "fence", "Ready", ("True", "Serving")).await;
    let writes = operator_writes(&world);
    let since = |write: &&Entry| write.received > restarted && write.name == NAME;
    let needless: Vec<_> = writes.iter().filter(since).collect();
    assert!(needless.is_empty(), "{needless:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_conditions_are_kept() {
    let world = world_of_websites("website-conditions").await;
    let directory = tempfile::tempdir().unwrap();
    let _program = start_websites(&world, directory.path()).await;
    world.create(CONFIG_MAP, theme("a {}")).await.unwrap();
    world.create(WEBSITE, website()).await.unwrap();
    world.until_condition(WEBSITE, NAME, "Ready", ("True", "Serving")).await;
    let audited = json!({"type": "Audited", "status": "True", "reason": "Fine",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let mut conditions = world.get(WEBSITE, NAME).await.unwrap()["status"]["conditions"].clone();
    conditions.as_array_mut().unwrap().push(audited.clone());
    let path = format!("{}/{NAME}/status", WEBSITE.path(&world.namespace));
    world.patch_at(&path, json!({"status": {"conditions": conditions}})).await.unwrap();
    world.delete(CONFIG_MAP, "corporate").await;
    world.until_condition(WEBSITE, NAME, "Ready", ("False", "ErrNoTheme")).await;
    let now = world.get(WEBSITE, NAME).await.unwrap();
    let conditions = now["status"]["conditions"].as_array().unwrap();
    assert!(conditions.contains(&audited), "{conditions:#?}");
    assert_eq!(conditions.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_website_is_deleted_only_after_its_announcement_is_removed() {
    let world = world_of_websites("website-finalizer").await;
    let directory = tempfile::tempdir().unwrap();
    let _program = start_websites(&world, directory.path()).await;
    world.create(CONFIG_MAP, theme("a {}")).await.unwrap();
    world.create(WEBSITE, website()).await.unwrap();
    world.until_condition(WEBSITE, NAME, "Ready", ("True", "Serving")).await;
    // A folder cannot be removed like a file.
    let announced = directory.path().join(format!("{NAME}.website-finalizer"));
    // A pending reconcile can write the file once more.
    while std::fs::create_dir(&announced).is_err() {
        let _ = std::fs::remove_file(&announced);
    }
    world.delete(WEBSITE, NAME).await;
    world.until_event(NAME, "ErrDirectory").await;
    let still = world.get(WEBSITE, NAME).await.unwrap();
    assert_eq!(still["metadata"]["finalizers"], json!(["example.com/website"]));
    std::fs::remove_dir(&announced).unwrap();
    world.until_gone(WEBSITE, NAME).await;
    world.until_gone(DEPLOYMENT, NAME).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_gets_a_pod_security_level_unless_it_has_one() {
    let world = World::new("pod-security", "privileged").await;
    let labels = json!({"pod-security-test": "yes"});
    let path = "/api/v1/namespaces/pod-security";
    world.patch_at(path, json!({"metadata": {"labels": labels}})).await.unwrap();
    let mut command = Command::new(program("pod_security").await);
    command.arg("pod-security-test=yes").env("KUBECONFIG", world.plane().kubeconfig());
    let program = OperatorProcess::of(command);
    program.logged("Ready to work").await;
    let none = json!({"metadata": {"name": "pod-security-none", "labels": labels}});
    world.post("/api/v1/namespaces", none).await.unwrap();
    let labelled = tokio::task::spawn_blocking(|| {
        let level = r"jsonpath={.metadata.labels.pod-security\.kubernetes\.io/enforce}=baseline";
        let wait = ["wait", "--timeout=300s", "--for", level, "namespace/pod-security-none"];
        ControlPlane::shared().try_kubectl(&wait)
    });
    labelled.await.unwrap().unwrap();
    let other = world.send(http::Method::GET, path, "application/json", Value::Null).await.unwrap();
    let level = &other["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
    assert_eq!(level, "privileged", "it said so itself");
    assert_eq!(program.terminate().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_kind_known_at_run_time_are_counted() {
    let world = World::new("any", "baseline").await;
    let start = async |kind: &str| {
        let mut command = Command::new(program("any").await);
        command.arg(kind).env("KUBECONFIG", world.plane().kubeconfig());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command.kill_on_drop(true).spawn().unwrap()
    };
    let mut child = start("apps/v1/Deployment").await;
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut counts = async |line: &str| {
        while lines.next_line().await.unwrap().expect("it goes on") != line {}
    };
    let deployment = |name: &str| {
        let labels = json!({"app": name});
        let container = json!({"name": "a", "image": "a"});
        json!({"metadata": {"name": name}, "spec": {"replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}})
    };
    let counted = async {
        world.create(DEPLOYMENT, deployment("one")).await.unwrap();
        counts("any 1").await;
        world.create(DEPLOYMENT, deployment("two")).await.unwrap();
        counts("any 2").await;
        world.delete(DEPLOYMENT, "one").await;
        counts("any 1").await;
    };
    tokio::time::timeout(MAX_WAIT, counted).await.unwrap();

    let unknown = start("apps/v1/Gadget").await.wait_with_output().await.unwrap();
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(said.contains("the API server serves no Gadget in apps/v1"), "{said}");
    assert_eq!(unknown.status.code(), Some(1));
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
    world.plane().kubectl(&["wait", "--for=condition=Established", "crd/tasks.example.com"]);
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

const POLICY: Kind = Kind::new("security.example.org", "v1alpha1", "Policy", "policies");

/// Returns the output of hack/new-controller.sh.
fn made() -> &'static Path {
    let folder = Path::new("target/template/contract/policy-operator");
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder.parent().unwrap()).unwrap();
    let mut script = std::process::Command::new("hack/new-controller.sh");
    script.arg(folder).args(["Policy", "security.example.org", "policies"]);
    assert!(script.status().unwrap().success());
    let mut cargo = std::process::Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked"]).current_dir(folder);
    // This folder contains most of its built dependencies.
    cargo.env("CARGO_TARGET_DIR", Path::new("target").canonicalize().unwrap());
    assert!(cargo.status().unwrap().success(), "it does not build");
    folder
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds a package: a minute"]
async fn a_controller_from_the_template_works_with_its_manifests() {
    let folder = tokio::task::spawn_blocking(made).await.unwrap();
    let world = World::new("policy-operator-system", "restricted").await;
    let file = |name: &str| folder.join(name).display().to_string();
    world.plane().kubectl(&["apply", "--server-side", "-k", &file("deploy")]);
    let kubeconfig = world.kubeconfig_of("policy-operator").await;
    let start = |arguments: &[&str]| {
        let mut command = Command::new("target/debug/policy-operator");
        command.env("KUBECONFIG", &kubeconfig).args(arguments);
        command.arg("--health-probe-bind-address=127.0.0.1:0");
        command.arg("--metrics-bind-address=127.0.0.1:0");
        OperatorProcess::of(command)
    };
    let program = start(&[]);
    program.logged("Ready to work").await;
    let users = World::new("policies", "baseline").await;
    world.plane().kubectl(&["apply", "--namespace=policies", "-f", &file("deploy/example.yaml")]);
    users.until_condition(POLICY, "example", "Ready", ("True", "Serving")).await;
    users.patch(POLICY, "example", json!({"spec": {"replicas": 3}})).await.unwrap();
    users.until(DEPLOYMENT, "example", |it| it["status"]["readyReplicas"] == 3).await;
    let refused =
        users.create(POLICY, json!({"metadata": {"name": "none"}, "spec": {"image": ""}}));
    assert!(refused.await.unwrap_err().contains("spec.image"));
    // For seconds after the CRD was created, the API server's check of owner references does not know the kind.
    let problems = program.lines().into_iter().filter(|it| {
        (it.contains("WARN") || it.contains("ERROR")) && !it.contains("cannot find RESTMapping")
    });
    assert_eq!(problems.collect::<Vec<_>>(), [""; 0]);
    let taken = json!({"metadata": {"name": "taken"}, "spec": users.get(DEPLOYMENT, "example").await.unwrap()["spec"]});
    users.create(DEPLOYMENT, taken).await.unwrap();
    users
        .create(POLICY, json!({"metadata": {"name": "taken"}, "spec": {"image": "web:1"}}))
        .await
        .unwrap();
    users.until_event("taken", "ErrResourceExists").await;
    assert_eq!(program.terminate().await, Some(0));
    let leader = start(&["--leader-elect", "--namespace=policy-operator-system"]);
    leader.logged("This process leads").await;
    assert_eq!(leader.terminate().await, Some(0));
}
