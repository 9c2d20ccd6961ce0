//! Promises of the operator to a namespace while the objects of another are slow.

use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::operator_process::OperatorProcess;
use crate::world::{APP, DEPLOYMENT, ROLE_BINDING, World};

/// Objects of the slow namespace and of the other.
const OBJECTS: (usize, usize) = (100, 40);
/// Passes at a time: the operator's default.
const WORKERS: usize = 4;
/// The most slow Deployments that are made meanwhile: those under way, then two in each 10 s. In turns
/// by key there were one for each of the others.
const MOST: usize = 8;

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// Makes the API server wait 10 s with each new Deployment of this namespace, for a webhook that accepts
/// connections and never answers. Returns their number so far.
async fn slow_down(world: &World) -> watch::Receiver<usize> {
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
    let webhook = json!({"name": "slow.example.com", "rules": [rule], "failurePolicy": "Ignore",
        "timeoutSeconds": 10, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("https://127.0.0.1:{port}/x")},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}}});
    let name = json!({"name": world.namespace});
    world.post(WEBHOOKS, json!({"metadata": name, "webhooks": [webhook]})).await.unwrap();
    calls
}

/// Creates Deployments, on trial, until the API server has noticed its webhook.
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
async fn a_namespace_with_a_slow_webhook_leaves_half_of_the_workers_to_others() {
    let (slow, other) = (
        World::new("slow-tenant", "baseline").await,
        World::new("beside-slow-tenant", "baseline").await,
    );
    let binding = json!({
        "metadata": {"name": "operator-elsewhere"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "workload-operator"},
        "subjects": [{"kind": "ServiceAccount", "name": "workload-operator", "namespace": slow.namespace}],
    });
    other.create(ROLE_BINDING, binding).await.unwrap();
    let mut calls = slow_down(&slow).await;
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
    let path = format!("{WEBHOOKS}/{}", slow.namespace);
    slow.send(Method::DELETE, &path, "application/json", Value::Null).await.unwrap();
}
