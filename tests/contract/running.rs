//! Promises of the running operator: its permissions, its namespaces and its settings.

use crate::control_plane::ControlPlane;
use crate::operator_process::OperatorProcess;
use crate::world::{
    DEPLOYMENT, LEASE, MEMCACHED, MEMCACHED_IMAGE, ROLE_BINDING, World, is_ready, memcached,
};

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
