//! Promises of the running operator: its permissions, restarts and idle state.

use serde_json::{Value, json};

use crate::audit::{Audit, Entry, operator_writes};
use crate::control_plane::ControlPlane;
use crate::operator_process::OperatorProcess;
use crate::world::{
    DEPLOYMENT, GENERIC_DAEMON, LEASE, MEMCACHED, MEMCACHED_IMAGE, ROLE_BINDING, World, is_ready,
    memcached,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_and_restarted_operator_converges() {
    let world = World::new("killed", "restricted").await;
    // Kills it at every stage of an object's life that is visible from outside.
    type Stage = fn(&Value) -> bool;
    let stages: [Stage; 4] = [
        |m| !m["metadata"]["finalizers"].is_null(),
        |m| m["status"]["observedGeneration"] == 1,
        |m| m["status"]["nodes"].as_array().is_some_and(|n| !n.is_empty()),
        is_ready,
    ];
    for (number, stage) in stages.iter().enumerate() {
        let name = format!("cart-{number}");
        let operator = world.start_operator().await;
        world.create(MEMCACHED, memcached(&name, 2)).await.unwrap();
        world.until(MEMCACHED, &name, stage).await;
        operator.kill().await;
        world.patch(MEMCACHED, &name, json!({"spec": {"size": 1}})).await.unwrap();
    }
    let _operator = world.start_operator().await;
    for number in 0..stages.len() {
        let name = format!("cart-{number}");
        world.until(MEMCACHED, &name, |m| is_ready(m) && m["status"]["size"] == 1).await;
    }
    for number in 0..stages.len() {
        let name = format!("cart-{number}");
        // The API server logs no success for a request whose client is gone, so there can be none.
        let created = |w: &&Entry| w.resource == "deployments" && w.name == name && w.code == 201;
        let creates = operator_writes(&world).iter().filter(created).count();
        assert!(creates <= 1, "the Deployment of {name} was created {creates} times");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_permissions_are_logged_and_later_grants_take_effect() {
    let world = World::new("no-permissions", "baseline").await;
    world.delete(ROLE_BINDING, "workload-operator").await;
    world.until_gone(ROLE_BINDING, "workload-operator").await;
    let mut operator = world.start_operator_with(&[("MEMCACHED_IMAGE", MEMCACHED_IMAGE)]).await;
    let line = operator.logged("cannot list or watch memcacheds.cache.example.com").await;
    assert!(line.contains(": forbidden; update the installation"), "it says what to do: {line}");
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    operator.assert_alive();
    world.bind().await;
    world.until(MEMCACHED, "cart", is_ready).await;
    operator.assert_alive();
}

#[tokio::test(flavor = "multi_thread")]
async fn its_own_service_account_suffices_for_everything() {
    let (world, _operator) = World::with_operator_at("own-account", "baseline").await;
    world.create(MEMCACHED, memcached("one", 2)).await.unwrap();
    let daemon = json!({"metadata": {"name": "one"}, "spec": {"image": "a:1", "label": "logs"}});
    world.create(GENERIC_DAEMON, daemon).await.unwrap();
    world.until(MEMCACHED, "one", is_ready).await;
    world.until(GENERIC_DAEMON, "one", is_ready).await;
    world.patch(MEMCACHED, "one", json!({"spec": {"size": 1}})).await.unwrap();
    world.until(MEMCACHED, "one", is_ready).await;
    for kind in [MEMCACHED, GENERIC_DAEMON] {
        world.delete(kind, "one").await;
        world.until_gone(kind, "one").await;
    }
    // Nodes are not namespaced: it asks for permission to list them.
    let forbidden =
        |entry: &Entry| entry.by_operator && entry.code == 403 && entry.resource != "nodes";
    let forbidden = Audit::from_start().of(&world, &world.namespace, forbidden);
    assert!(forbidden.is_empty(), "{forbidden:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_namespace_flag_it_serves_all_namespaces() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::private("all-namespaces")).await;
    let one = World::on(plane, "one", "restricted").await;
    let two = World::on(plane, "two", "restricted").await;
    for world in [&one, &two] {
        world.delete(ROLE_BINDING, "workload-operator").await;
    }
    // A namespace that enforces Pod Security `restricted` admits its own pod.
    plane.kubectl(&["apply", "-k", "artifacts/default"]);
    let system = World::in_existing(plane, "workload-operator-system").await;
    system.until(DEPLOYMENT, "workload-operator", |d| d["status"]["availableReplicas"] == 1).await;
    let kubeconfig = system.operator_kubeconfig().await;
    // For the Operator Lifecycle Manager, an empty value means all namespaces.
    let environment = [("MEMCACHED_IMAGE", MEMCACHED_IMAGE), ("WATCH_NAMESPACE", "")];
    let operator = OperatorProcess::start(&kubeconfig, &["--leader-elect"], &environment);
    operator.logged("namespaces=all").await;
    operator.logged("Ready to work").await;
    for world in [&one, &two] {
        world.create(MEMCACHED, memcached("cart", 2)).await.unwrap();
    }
    for world in [&one, &two] {
        world.until(MEMCACHED, "cart", is_ready).await;
    }
    assert_eq!(operator.terminate().await, Some(0));
    let lease = system.get(LEASE, "workload-operator").await.unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "", "the lease is given up at the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_memcached_image_is_logged_at_startup() {
    let world = World::new("no-image-log", "restricted").await;
    let operator = world.start_operator_with(&[]).await;
    let line = operator.logged("MEMCACHED_IMAGE is not set").await;
    assert!(line.contains("WARN") && line.contains("set it to an image"), "{line}");
    let line = operator.logged("Starting").await;
    assert!(line.contains(&format!("namespaces={}", world.namespace)), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_the_operator_with_exit_code_0() {
    let (world, operator) = World::with_operator("terminated").await;
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    world.until(MEMCACHED, "cart", is_ready).await;
    assert_eq!(operator.terminate().await, Some(0));
}
