//! Promises of the operator to its namespace and to others while an admission webhook is slow.

use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::audit::{Audit, Entry};
use crate::operator_process::OperatorProcess;
use crate::world::{APP, DEPLOYMENT, World, has_condition, is_ready};

/// Objects of the slow namespace and of the other.
const OBJECTS: (usize, usize) = (100, 40);
/// Concurrent reconciles: the operator's default.
const WORKERS: usize = 4;
/// Maximum number of slow Deployments created meanwhile: those in progress, then two in each 10 s. With a
/// round robin by key, there would be one for each of the others.
const MOST: usize = 8;

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// Makes the API server wait for this many webhooks, 10 s for each, before a new Deployment of this
/// namespace. They accept connections and never respond. Returns the number of connections so far.
async fn slow_down(world: &World, webhooks: usize) -> watch::Receiver<usize> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (accepted, calls) = watch::channel(0);
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            open.push(connection);
            accepted.send_replace(open.len());
        }
    });
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"],
        "operations": ["CREATE"]});
    let webhook = |number: usize| {
        json!({"name": format!("slow-{number}.example.com"), "rules": [rule],
        "failurePolicy": "Ignore", "timeoutSeconds": 10, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("https://127.0.0.1:{port}/x")},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}}})
    };
    let name = json!({"name": world.namespace});
    let webhooks: Vec<Value> = (0..webhooks).map(webhook).collect();
    world.post(WEBHOOKS, json!({"metadata": name, "webhooks": webhooks})).await.unwrap();
    calls
}

/// Creates Deployments, as dry runs, until the API server has noticed its webhook.
async fn noticed(world: &World, calls: &mut watch::Receiver<usize>) {
    let pod = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "c:1"}]}});
    let deployment = json!({"metadata": {"name": "trial"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": pod}});
    let trials = async {
        loop {
            world.dry_run(DEPLOYMENT, deployment.clone()).await.unwrap();
        }
    };
    tokio::select! {
        noticed = calls.wait_for(|calls| *calls > 0) => drop(noticed.unwrap()),
        () = trials => {}
    }
}

/// Creates this many Apps at once; returns their names.
async fn create_apps(world: &World, number: usize) -> Vec<String> {
    let names: Vec<String> = (0..number).map(|number| format!("it-{number}")).collect();
    let spec = json!({"image": "shop:1", "replicas": 0});
    let app = |name: &String| json!({"metadata": {"name": name}, "spec": &spec});
    let created = join_all(names.iter().map(|name| world.create(APP, app(name)))).await;
    created.into_iter().for_each(|created| drop(created.unwrap()));
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_webhook_occupies_at_most_half_of_the_workers() {
    let (slow, other) = (
        World::new("slow-tenant", "baseline").await,
        World::new("beside-slow-tenant", "baseline").await,
    );
    let account = (slow.namespace.as_str(), "workload-operator");
    other.grant(("ClusterRole", "workload-operator"), account).await;
    let mut calls = slow_down(&slow, 1).await;
    noticed(&slow, &mut calls).await;
    let namespaces = format!("--namespace={},{}", slow.namespace, other.namespace);
    let kubeconfig = slow.operator_kubeconfig().await;
    let mut operator = OperatorProcess::start(&kubeconfig, &[&namespaces], &[]);
    operator.logged("Ready to work").await;

    let trials = *calls.borrow();
    create_apps(&slow, OBJECTS.0).await;
    calls.wait_for(|calls| *calls >= trials + WORKERS).await.unwrap();
    let (before, began) = (slow.list(DEPLOYMENT).await.len(), Instant::now());
    for name in create_apps(&other, OBJECTS.1).await {
        other.until(DEPLOYMENT, &name, |_| true).await;
    }
    let made = slow.list(DEPLOYMENT).await.len() - before;
    println!("{} Deployments in {:?}, and {made} slow ones", OBJECTS.1, began.elapsed());
    assert!(made <= MOST, "{made} slow ones were made meanwhile");
    operator.assert_alive();
    speed_up(&slow).await;
}

/// Removes the webhook.
async fn speed_up(world: &World) {
    let path = format!("{WEBHOOKS}/{}", world.namespace);
    world.send(Method::DELETE, &path, "application/json", Value::Null).await.unwrap();
}

/// The API server stops waiting for a webhook, and writes nothing, if the client cancels the request.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_survives_webhooks_that_take_30_s() {
    let world = World::new("hanging-webhook", "baseline").await;
    let mut calls = slow_down(&world, 3).await;
    noticed(&world, &mut calls).await;
    let operator = world.start_operator().await;
    operator.logged("Ready to work").await;
    let audit = Audit::from_now(&world);
    let app =
        json!({"metadata": {"name": "parcels"}, "spec": {"image": "parcels:1", "replicas": 1}});
    world.create(APP, app).await.unwrap();
    world.until(APP, "parcels", is_ready).await;
    let creates = |entry: &Entry| entry.by_operator && entry.resource == "deployments";
    assert_eq!(audit.of(&world, &world.namespace, creates).len(), 1, "at the first try");
    speed_up(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_without_a_response_is_reported_with_a_hint() {
    let world = World::new("silent-webhook", "baseline").await;
    let mut calls = slow_down(&world, 1).await;
    noticed(&world, &mut calls).await;
    let kubeconfig = world.operator_kubeconfig().await;
    let arguments = ["--namespace", &world.namespace, "--write-deadline=1s"];
    let _operator = OperatorProcess::start(&kubeconfig, &arguments, &[]);
    let app =
        json!({"metadata": {"name": "parcels"}, "spec": {"image": "parcels:1", "replicas": 1}});
    world.create(APP, app).await.unwrap();
    world.until(APP, "parcels", |app| has_condition(app, "Degraded", "True")).await;
    let app = world.get(APP, "parcels").await.unwrap();
    let conditions = app["status"]["conditions"].to_string();
    assert!(conditions.contains("ApiError"), "{conditions}");
    assert!(conditions.contains("kubectl get mutatingwebhookconfigurations"), "{conditions}");
    speed_up(&world).await;
    world.until(APP, "parcels", is_ready).await;
}
