//! `plan` predicts the operator's writes, and writes nothing.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::admission::{Policy, inject};
use crate::audit::operator_writes;
use crate::proxy::{Call, Fault, Proxy};
use crate::world::{
    APP, BUDGET, DAEMON_SET, DEPLOYMENT, EVENT, GENERIC_DAEMON, MEMCACHED, MEMCACHED_IMAGE,
};
use crate::world::{SERVICE, World, is_ready, memcached};

/// The plan for the world's namespace, and its exit code.
pub fn plan(world: &World, kubeconfig: &Path, image: &str, arguments: &[&str]) -> (Value, i32) {
    let output = Command::new(env!("CARGO_BIN_EXE_workload-operator"))
        .args(["plan", "-o", "json", "--namespace", &world.namespace, "--memcached-image", image])
        .args(arguments)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let plan = serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    (plan, output.status.code().unwrap())
}

/// The objects that would change, with what would happen to them.
fn effects(plan: &Value) -> Vec<String> {
    let changes = plan["changes"].as_array().unwrap().iter();
    let words = |change: &Value, field: &str| change[field].as_str().unwrap().to_owned();
    changes
        .map(|change| format!("{} {}", words(change, "effect"), words(change, "object")))
        .collect()
}

async fn create_one_of_each(world: &World) {
    world.create(MEMCACHED, memcached("cache", 2)).await.unwrap();
    let web =
        json!({"metadata": {"name": "web"}, "spec": {"image": "nginx:1", "ports": [{"port": 80}]}});
    world.create(APP, web).await.unwrap();
    let agent =
        json!({"metadata": {"name": "agent"}, "spec": {"image": "agent:1", "label": "logs"}});
    world.create(GENERIC_DAEMON, agent).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_writes_nothing_and_predicts_the_writes() {
    let world = World::new("plan", "baseline").await;
    let kubeconfig = world.operator_kubeconfig().await;
    create_one_of_each(&world).await;

    let (first, code) = plan(&world, &kubeconfig, MEMCACHED_IMAGE, &[]);
    assert_eq!(code, 1, "{first:#}");
    let names = [
        "change Memcached",
        "create DaemonSet",
        "create Deployment",
        "create Deployment",
        "create Service",
        "create Service",
    ];
    let owners = ["cache", "agent", "cache", "web", "cache", "web"];
    let expected: Vec<String> =
        names.iter().zip(owners).map(|(what, name)| format!("{what} plan/{name}")).collect();
    let mut found = effects(&first);
    found.sort();
    assert_eq!(found, expected, "{first:#}");
    for kind in [DEPLOYMENT, DAEMON_SET, SERVICE] {
        assert_eq!(world.list(kind).await.len(), 0, "{}", kind.name());
    }
    let writes = operator_writes(&world);
    assert!(writes.len() >= 9, "6 and three statuses: {writes:?}");
    assert!(writes.iter().all(|write| write.is_dry_run), "{writes:?}");
    assert_eq!(world.list(EVENT).await.len(), 0);

    let operator = world.start_operator().await;
    for (kind, name) in [(MEMCACHED, "cache"), (APP, "web")] {
        world.until(kind, name, is_ready).await;
    }
    world.until(DAEMON_SET, "agent", |child| child["status"]["observedGeneration"] == 1).await;
    let (second, code) = plan(&world, &kubeconfig, MEMCACHED_IMAGE, &[]);
    assert_eq!((effects(&second), code), (Vec::new(), 0), "{second:#}");

    let (third, code) = plan(&world, &kubeconfig, "memcached:new", &[]);
    // The label `app.kubernetes.io/version` of the Service follows the image.
    assert_eq!(
        (effects(&third), code),
        (["Deployment", "Service"].map(|kind| format!("change {kind} plan/cache")).to_vec(), 1)
    );
    assert_eq!(third["summary"]["restart"], 1);
    let change = &third["changes"][0];
    assert_eq!(change["restarts"], true);
    let image = "spec.template.spec.containers[memcached].image";
    let field = change["fields"].as_array().unwrap().iter().find(|field| field["path"] == image);
    assert_eq!(
        field.unwrap(),
        &json!({"path": image, "before": MEMCACHED_IMAGE, "after": "memcached:new"})
    );
    assert_eq!(operator.terminate().await, Some(0));
    let operator = world.start_operator_with(&[("MEMCACHED_IMAGE", "memcached:new")]).await;
    world
        .until(DEPLOYMENT, "cache", |child| {
            child["spec"]["template"]["spec"]["containers"][0]["image"] == "memcached:new"
        })
        .await;
    let (fourth, code) = plan(&world, &kubeconfig, "memcached:new", &[]);
    assert_eq!((effects(&fourth), code), (Vec::new(), 0), "{fourth:#}");
    operator.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_plan_fails_and_names_the_gaps() {
    let world = World::new("plan-refused", "baseline").await;
    create_one_of_each(&world).await;
    world.forbid("none", "services").await;
    let kubeconfig = world.operator_kubeconfig().await;
    let (refused, code) = plan(&world, &kubeconfig, MEMCACHED_IMAGE, &[]);
    assert_eq!(code, 2, "{refused:#}");
    let problems = refused["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 2, "{refused:#}");
    for (problem, name) in problems.iter().zip(["cache", "web"]) {
        let problem = problem.as_str().unwrap();
        let write = format!("/services/{name}: ");
        assert!(problem.contains(&write) && problem.contains("exceeded quota"), "{problem}");
    }
    assert!(effects(&refused).contains(&"create Deployment plan-refused/web".to_owned()));

    let account = json!({"metadata": {"name": "nobody"}});
    let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", world.namespace);
    world.post(&accounts, account).await.unwrap();
    let wrong = Command::new(env!("CARGO_BIN_EXE_workload-operator"))
        .args(["plan", "--timeout", "5"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2), "1 would say that something changes");
    let nobody = world.kubeconfig_of("nobody").await;
    let (nothing, code) = plan(&world, &nobody, MEMCACHED_IMAGE, &[]);
    let problems = nothing["problems"].as_array().unwrap();
    let left_out = |problem: &Value| problem.as_str().unwrap().contains("are left out: ");
    assert_eq!((problems.len(), code), (3, 2), "{nothing:#}");
    assert!(problems.iter().all(left_out), "{nothing:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_honors_retry_after() {
    let world = World::new("plan-later", "baseline").await;
    create_one_of_each(&world).await;
    let (proxy, file) = through_a_proxy(&world).await;
    let lists_apps = |call: &Call| call.verb == "list" && call.object.starts_with("apps");
    let writes_status = |call: &Call| call.verb == "patch" && call.object.ends_with("/status");
    proxy.inject(Fault::Answer(429, Some(1)), 2, lists_apps);
    proxy.inject(Fault::Answer(503, None), 1, writes_status);
    let (plan, code) = plan(&world, file.path(), MEMCACHED_IMAGE, &[]);
    assert_eq!((plan["summary"]["reconciled"].as_u64(), code), (Some(3), 1), "{plan:#}");
    assert_eq!(proxy.count(|call| lists_apps(call) && call.answer == Some(429)), 2);
    assert_eq!(proxy.count(|call| writes_status(call) && call.answer == Some(503)), 1);
}

/// The world's API server through a proxy, and a kubeconfig for it.
async fn through_a_proxy(world: &World) -> (Proxy, tempfile::NamedTempFile) {
    let proxy = Proxy::start(world.plane()).await;
    let text = std::fs::read_to_string(world.operator_kubeconfig().await).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["clusters"][0]["cluster"]["server"] = json!(proxy.url());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), config.to_string()).unwrap();
    (proxy, file)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_times_out_names_the_missing_objects() {
    let world = World::new("plan-late", "baseline").await;
    create_one_of_each(&world).await;
    let (proxy, file) = through_a_proxy(&world).await;
    let creates = |call: &Call| call.verb == "patch" && call.object == "deployments/web";
    proxy.inject(Fault::Answer(503, None), usize::MAX, creates);
    let (late, code) = plan(&world, file.path(), MEMCACHED_IMAGE, &["--timeout", "5s"]);
    let missing = "1 of app were not reconciled within 5s, among them plan-late/web: ";
    let problems = late["problems"].as_array().unwrap();
    let names_the_app = |problem: &Value| problem.as_str().unwrap().starts_with(missing);
    assert!(problems.iter().any(names_the_app), "{late:#}");
    // A machine that is busy may not get to the other two in five seconds.
    assert_eq!(late["summary"]["reconciled"].as_u64(), Some(3 - problems.len() as u64), "{late:#}");
    assert_eq!(code, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_ignores_an_object_that_is_deleted_meanwhile() {
    let world = Arc::new(World::new("plan-deleted", "baseline").await);
    create_one_of_each(&world).await;
    let (proxy, file) = through_a_proxy(&world).await;
    let creates = |call: &Call| call.verb == "patch" && call.object == "deployments/web";
    proxy.inject(Fault::Answer(503, None), usize::MAX, creates);
    let beside = world.clone();
    let planned = tokio::task::spawn_blocking(move || {
        plan(&beside, file.path(), MEMCACHED_IMAGE, &["--timeout", "2m"])
    });
    proxy.until(1, |call| creates(call) && call.answer == Some(503)).await;
    // No event shows the controller that the App is deleted.
    proxy.hold("apps");
    world.delete(APP, "web").await;
    let (plan, code) = planned.await.unwrap();
    assert_eq!((plan["summary"]["reconciled"].as_u64(), code), (Some(2), 1), "{plan:#}");
    assert_eq!(plan["problems"], json!([]), "{plan:#}");
}

/// Each of these cases differs from a plain apply.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_predicts_deletions_conflicts_and_missing_settings() {
    let (world, operator) = World::with_operator_at("plan-ways", "baseline").await;
    create_one_of_each(&world).await;
    let budget = |budget: Value| json!({"spec": {"podDisruptionBudget": budget}});
    world.patch(APP, "web", budget(json!({"maxUnavailable": 1}))).await.unwrap();
    world.until(BUDGET, "web", |_| true).await;
    for (kind, name) in [(MEMCACHED, "cache"), (APP, "web")] {
        world.until(kind, name, is_ready).await;
    }
    assert_eq!(operator.terminate().await, Some(0));
    world.patch(APP, "web", budget(Value::Null)).await.unwrap();
    // A request above the new limit: the apply is refused until the request is removed.
    let by_hand = json!([{"op": "add", "path": "/spec/template/spec/containers/0/resources",
        "value": {"requests": {"cpu": "2"}}}]);
    let by_hand = by_hand.to_string();
    world.kubectl(&["patch", "deployment", "web", "--type=json", "-p", &by_hand]).unwrap();
    let limits = json!({"spec": {"resources": {"limits": {"cpu": "1"}}}});
    world.patch(APP, "web", limits).await.unwrap();
    world
        .create(SERVICE, json!({"metadata": {"name": "taken"}, "spec": {"ports": [{"port": 1}]}}))
        .await
        .unwrap();
    world.create(MEMCACHED, memcached("taken", 1)).await.unwrap();
    let mut exported = memcached("exported", 1);
    exported["spec"]["exporter"] = json!({});
    world.create(MEMCACHED, exported).await.unwrap();

    let kubeconfig = world.operator_kubeconfig().await;
    let (plan, code) = plan(&world, &kubeconfig, MEMCACHED_IMAGE, &[]);
    let effects = effects(&plan);
    for expected in ["delete PodDisruptionBudget plan-ways/web", "change Deployment plan-ways/web"]
    {
        assert!(effects.contains(&expected.to_owned()), "{plan:#}");
    }
    assert!(world.get(BUDGET, "web").await.is_some());
    let problems = plan["problems"].as_array().unwrap();
    let told: Vec<&str> = problems.iter().map(|problem| problem.as_str().unwrap()).collect();
    assert_eq!((told.len(), code), (2, 2), "{plan:#}");
    assert!(
        told[0].contains("plan-ways/exported: ImageMissing: Unable to find MEMCACHED_EXPORTER")
    );
    assert!(told[1].contains("plan-ways/taken: ErrResourceExists"), "{plan:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_ignores_a_running_operator_and_injected_sidecars() {
    let (world, operator) = World::with_operator_at("plan-busy", "baseline").await;
    let world = Arc::new(world);
    let _policy = Policy::mutate(&world, json!([inject()])).await;
    let has_sidecar =
        |child: &Value| child["spec"]["template"]["spec"]["containers"][1]["name"] == "proxy";
    let app = |name: &str| json!({"metadata": {"name": name}, "spec": {"image": "nginx:1"}});
    for n in 0..20 {
        world.create(APP, app(&format!("quiet-{n}"))).await.unwrap();
    }
    world.create(APP, app("busy")).await.unwrap();
    for n in 0..20 {
        let child = world.until(DEPLOYMENT, &format!("quiet-{n}"), has_sidecar).await;
        assert_eq!(child["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 2);
    }
    let changing = tokio::spawn({
        let world = world.clone();
        async move {
            for n in 1.. {
                let change = json!({"spec": {"replicas": n % 3, "envs": [{"name": "N", "value": n.to_string()}]}});
                world.patch(APP, "busy", change).await.unwrap();
            }
        }
    });
    let kubeconfig = world.operator_kubeconfig().await;
    for image in [MEMCACHED_IMAGE, "memcached:new"] {
        let (beside, kubeconfig) = (world.clone(), kubeconfig.clone());
        let planned = tokio::task::spawn_blocking(move || plan(&beside, &kubeconfig, image, &[]));
        let (plan, code) = planned.await.unwrap();
        let others = effects(&plan).into_iter().filter(|effect| !effect.ends_with("/busy"));
        assert_eq!(others.collect::<Vec<_>>(), Vec::<String>::new(), "{plan:#}");
        assert!(plan["problems"] == json!([]) && [0, 1].contains(&code), "{plan:#}");
        assert!(plan["summary"]["reconciled"].as_u64() >= Some(21), "{plan:#}");
    }
    assert!(!changing.is_finished(), "{:?}", changing.await);
    changing.abort();
    operator.kill().await;
}
