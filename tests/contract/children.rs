//! `Context::ensure` on a real API server, where no example of the library goes: children outside of what
//! is watched, and those that admission or another program changes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use workload_operator::controller::{Action, Problem};
use workload_operator::manager::{Applied, Context, Manager};
use workload_operator::object::{Kind, Meta};
use workload_operator::shutdown::Shutdown;

use crate::audit::{Audit, Entry, logged};
use crate::world::{ROLE, SERVICE_ACCOUNT, World};

/// An owner.
#[derive(Debug, Serialize, Deserialize)]
struct Account {
    metadata: Meta,
}

/// A child.
#[derive(Debug, Serialize, Deserialize)]
struct Role {
    metadata: Meta<Applied>,
    #[serde(default)]
    rules: Value,
}

workload_operator::view!(Account: Kind::namespaced("", "v1", "ServiceAccount", "serviceaccounts"));
workload_operator::view!(Role { metadata: Meta<Applied> }: Kind::namespaced("rbac.authorization.k8s.io", "v1", "Role", "roles"));

/// Returns every owner's child with these labels. The controller watches those with `app=role`.
fn child(labels: &Value) -> Value {
    let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
    json!({"metadata": {"name": "child", "labels": labels}, "rules": [rule]})
}

/// A controller that gives the account `owner` a child. It ends when the returned handle is dropped.
fn start(world: &World, labels: Value) -> tokio::task::JoinSet<()> {
    let manager = Manager::new("children")
        .kubeconfig(Some(world.plane().kubeconfig().to_owned()))
        .namespaces([world.namespace.as_str()])
        .controller::<Account>()
        .informer::<Account>(|builder| builder.fields("metadata.name=owner"))
        .publish_writes()
        .owns::<Role>()
        .informer::<Role>(|builder| builder.labels("app=role"))
        .reconcile(move |_: Arc<Account>, cx: Context<Account>| {
            let labels = labels.clone();
            async move {
                cx.ensure::<Role>(child(&labels)).await?;
                Ok::<_, Problem>(Action::Done)
            }
        });
    let mut running = tokio::task::JoinSet::new();
    running.spawn(async move {
        manager.run_until(Shutdown::manual()).await.expect("it runs");
    });
    running
}

async fn account(world: &World) -> Value {
    world.create(SERVICE_ACCOUNT, json!({"metadata": {"name": "owner"}})).await.unwrap()
}

/// Writes to the child so far.
fn writes(world: &World) -> Vec<Entry> {
    let ours =
        |entry: &Entry| entry.is_write() && entry.resource == "roles" && entry.name == "child";
    Audit::whole().of(world, &world.namespace, ours)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_is_not_watched_is_reported_and_not_applied_in_a_loop() {
    let world = World::new("unwatched-child", "baseline").await;
    let owner = account(&world).await;
    let mut existing = child(&json!({}));
    existing["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ServiceAccount",
        "name": "owner", "uid": owner["metadata"]["uid"], "controller": true}]);
    world.create(ROLE, existing).await.unwrap();
    let _running = start(&world, json!({}));
    let event = world.until_event("owner", "ErrNotWatched").await;
    let note = event["note"].as_str().unwrap_or_default();
    assert!(note.contains("Role \"child\" exists") && note.contains("labels"), "{note}");
    // It is tried again, after a pause: this loop could write 500 times a second.
    let retried = || writes(&world).into_iter().nth(5);
    logged(retried).await;
    assert!(writes(&world).len() < 20, "{:#?}", writes(&world));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_label_by_which_a_child_is_watched_is_restored() {
    let world = World::new("relabelled-child", "baseline").await;
    account(&world).await;
    let labels = json!({"app": "role"});
    let _running = start(&world, labels.clone());
    world.until(ROLE, "child", |role| role["metadata"]["labels"]["app"] == "role").await;
    world.until_event("owner", "RoleCreated").await;
    for removed in [json!({"app": null}), json!({"app": "other"})] {
        world.patch(ROLE, "child", json!({"metadata": {"labels": removed}})).await.unwrap();
        world.until(ROLE, "child", |role| role["metadata"]["labels"]["app"] == "role").await;
    }
    world.patch(ROLE, "child", json!({"rules": []})).await.unwrap();
    world.until(ROLE, "child", |role| role["rules"] == child(&labels)["rules"]).await;
    let event = world.until_event("owner", "RoleRestored").await;
    assert_eq!(event["note"], "Restored rules of Role child, which was changed");
}

/// A kind without the subresource `status`, in no namespace.
#[derive(Debug, Serialize, Deserialize)]
struct Plain {
    metadata: Meta,
    #[serde(default)]
    status: Value,
}

workload_operator::view!(Plain: Kind::cluster_scoped("children.example.com", "v1", "Plain", "plains"));

/// Adds the kind Plain, and the object `one`.
async fn a_plain_object(world: &World) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "plains", "kind": "Plain"});
    let definition = json!({"metadata": {"name": "plains.children.example.com"}, "spec": {
        "group": "children.example.com", "names": names, "scope": "Cluster", "versions": [version]}});
    world
        .post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        .await
        .unwrap();
    world.plane().kubectl(&[
        "wait",
        "--for=condition=Established",
        "crd/plains.children.example.com",
    ]);
    let one = json!({"apiVersion": "children.example.com/v1", "kind": "Plain", "metadata": {"name": "one"}});
    world.post("/apis/children.example.com/v1/plains", one).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_api_server_cannot_find_is_named_to_a_person() {
    let world = World::new("not-found", "baseline").await;
    a_plain_object(&world).await;
    let (sender, mut problems) = tokio::sync::mpsc::unbounded_channel();
    let manager = Manager::new("children")
        .kubeconfig(Some(world.plane().kubeconfig().to_owned()))
        .controller::<Plain>()
        .owns::<Role>()
        .informer::<Role>(|builder| builder.labels("app=plain"))
        .reconcile(move |_: Arc<Plain>, cx: Context<Plain>| {
            let sender = sender.clone();
            async move {
                let role = json!({"metadata": {"name": "child", "namespace": "nowhere"}});
                let child = cx.ensure::<Role>(role).await.unwrap_err();
                let status = cx.patch_status(json!({"pods": 1})).await.unwrap_err();
                let _ = sender.send([child, status].map(|problem| problem.reason()));
                Ok::<_, Problem>(Action::Done)
            }
        });
    let stop = Shutdown::manual();
    let running = tokio::spawn(manager.run_until(stop.clone()));
    assert_eq!(
        problems.recv().await,
        Some([Some("ErrNoNamespace"), Some("ErrNoStatusSubresource")])
    );
    stop.request();
    running.await.unwrap().unwrap();
    world.plane().kubectl(&["delete", "crd/plains.children.example.com"]);
}
