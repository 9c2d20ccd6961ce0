//! Namespaces that are deleted together with the operator in them.

use serde_json::{Value, json};

use crate::world::{MEMCACHED, POD, World, is_ready, memcached};

/// A pod that delays the deletion of a namespace, because pods are deleted first.
const HELD: &str = "held";

/// Creates a Memcached `cart` and begins to delete its namespace. The deletion waits for a pod, as it would
/// for the operator's.
async fn going(world: &World) {
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    world.until(MEMCACHED, "cart", is_ready).await;
    let container = json!({"name": "c", "image": "a:1"});
    let held = json!({
        "metadata": {"name": HELD, "finalizers": ["example.com/hold"]},
        "spec": {"nodeSelector": {"no-node": "has-this"}, "containers": [container]},
    });
    world.create(POD, held).await.unwrap();
    world.kubectl(&["delete", "namespace", &world.namespace, "--wait=false"]).unwrap();
    let deleted = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    world.until(POD, HELD, deleted).await;
    let cart = world.get(MEMCACHED, "cart").await.unwrap();
    assert!(cart["metadata"]["deletionTimestamp"].is_null(), "pods go first: {cart}");
}

/// Lets the pod terminate, and waits until the namespace is deleted.
async fn gone(world: &World) {
    let free = json!({"metadata": {"finalizers": null}});
    world.patch(POD, HELD, free).await.unwrap();
    let namespace = format!("namespace/{}", world.namespace);
    world.kubectl(&["wait", "--for=delete", &namespace, "--timeout=120s"]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_contains_the_operator_can_be_deleted() {
    let (world, operator) = World::with_operator_at("shared-namespace", "baseline").await;
    going(&world).await;
    assert_eq!(operator.terminate().await, Some(0));
    let cart = world.get(MEMCACHED, "cart").await.unwrap();
    assert!(cart["metadata"]["finalizers"].is_null(), "{cart}");
    gone(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_operator_keeps_finalizers_if_its_namespace_remains() {
    let (world, operator) = World::with_operator_at("kept-namespace", "baseline").await;
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    world.until(MEMCACHED, "cart", is_ready).await;
    assert_eq!(operator.terminate().await, Some(0));
    let cart = world.get(MEMCACHED, "cart").await.unwrap();
    assert_eq!(cart["metadata"]["finalizers"], json!(["cache.example.com/finalizer"]));
}
