//! Dependencies of the operator are removed and restored: a kind, and Kubernetes' own controllers.

use serde_json::{Value, json};

use crate::audit::Audit;
use crate::control_plane::ControlPlane;
use crate::servers::Server;
use crate::world::{DAEMON_SET, GENERIC_DAEMON, MEMCACHED, World, is_ready, memcached};

const CRD: &str = "genericdaemons.mydomain.com";

fn logs() -> Value {
    json!({"metadata": {"name": "logs"}, "spec": {"image": "a:1", "label": "logs"}})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn a_removed_and_restored_crd_needs_no_restart() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::private("kind-removed")).await;
    let world = World::on(plane, "kind-removed", "baseline").await;
    let audit = Audit::from_now(&world);
    let mut operator = world.start_operator().await;
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    world.create(GENERIC_DAEMON, logs()).await.unwrap();
    world.until(MEMCACHED, "cart", is_ready).await;
    world.until(GENERIC_DAEMON, "logs", is_ready).await;

    // With a kind, Kubernetes deletes its objects and, later, the objects that they own.
    plane.kubectl(&["delete", "crd", CRD]);
    world.patch(MEMCACHED, "cart", json!({"spec": {"size": 2}})).await.unwrap();
    world.until(MEMCACHED, "cart", |m| is_ready(m) && m["status"]["size"] == 2).await;

    plane.kubectl(&["apply", "--server-side", "-f", "artifacts/crds/"]);
    plane.until_established(CRD);
    world.create(GENERIC_DAEMON, logs()).await.unwrap();
    world.until(GENERIC_DAEMON, "logs", is_ready).await;
    operator.assert_alive();
    let writes = audit.writes(&world);
    let deletes: Vec<_> =
        writes.iter().filter(|write| write.by_operator && write.verb == "delete").collect();
    assert!(deletes.is_empty(), "that a kind is gone deletes nothing: {deletes:#?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "has a control plane of its own: cargo test --test contract -- --ignored"]
async fn the_operator_waits_until_a_previous_owned_object_is_deleted() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::private("no-controllers")).await;
    let world = World::on(plane, "no-controllers", "baseline").await;
    let audit = Audit::from_now(&world);
    let mut operator = world.start_operator().await;
    world.create(GENERIC_DAEMON, logs()).await.unwrap();
    world.until(GENERIC_DAEMON, "logs", is_ready).await;
    let former = world.get(DAEMON_SET, "logs").await.unwrap();

    let mut controllers = Server::of(plane, "kube-controller-manager");
    controllers.kill().await;
    world.delete(GENERIC_DAEMON, "logs").await;
    world.until_gone(GENERIC_DAEMON, "logs").await;
    let new = world.create(GENERIC_DAEMON, logs()).await.unwrap();
    let told = world.until(GENERIC_DAEMON, "logs", |d| d["status"]["conditions"].is_array()).await;
    assert!(!is_ready(&told), "{told:#}");
    let meanwhile = world.get(DAEMON_SET, "logs").await.unwrap();
    for field in ["uid", "ownerReferences", "generation", "deletionTimestamp"] {
        assert_eq!(meanwhile["metadata"][field], former["metadata"][field], "{field}");
    }

    controllers.start();
    world.until(GENERIC_DAEMON, "logs", is_ready).await;
    let now = world.get(DAEMON_SET, "logs").await.unwrap();
    assert_ne!(now["metadata"]["uid"], former["metadata"]["uid"]);
    assert_eq!(now["metadata"]["ownerReferences"][0]["uid"], new["metadata"]["uid"]);
    operator.assert_alive();
    let writes = audit.writes(&world);
    let made = writes.iter().filter(|w| w.resource == "daemonsets" && w.code == 201).count();
    assert_eq!(made, 2, "one for each of the two: {writes:#?}");
}
