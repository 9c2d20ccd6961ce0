//! Lists of pods, Events and nodes that explain a status: what it says while they fail or hang, and
//! how many there are.
//!
//! An App's pods are listed for nothing else.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::control_plane::ControlPlane;
use crate::degraded::{condition, pods_of, report};
use crate::proxy::{Call, Fault, Proxy};
use crate::world::{APP, GENERIC_DAEMON, MEMCACHED, NODE, POD, World, is_ready, memcached};

fn lists_pods(call: &Call) -> bool {
    call.verb == "list" && call.object == "pods"
}

fn app(name: &str, replicas: i64) -> Value {
    json!({"metadata": {"name": name}, "spec": {"image": "a:1", "replicas": replicas}})
}

async fn is(world: &World, name: &str, reason: &str) -> String {
    world.until_condition(APP, name, "Degraded", ("True", reason)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_list_of_pods_keeps_what_the_status_says() {
    let world = World::new("failed-list", "baseline").await;
    let proxy = Proxy::start(world.plane()).await;
    let _operator = world.start_operator_through(&proxy.url()).await;
    world.create(APP, app("app", 2)).await.unwrap();
    world.until(APP, "app", is_ready).await;
    let pods = pods_of(&world, APP).await;
    report(&world, &pods[0], "CrashLoopBackOff").await;
    is(&world, "app", "CrashLoopBackOff").await;
    let before = world.get(APP, "app").await.unwrap();
    proxy.inject(Fault::Answer(500, None), usize::MAX, lists_pods);
    let failed = |call: &Call| lists_pods(call) && call.answer == Some(500);
    // The answer is used for half a minute; then the second pod's change asks again.
    proxy.until(1, failed).await;
    report(&world, &pods[1], "CrashLoopBackOff").await;
    let none = |app: &Value| app["status"]["readyReplicas"] == 0;
    let after = world.until(APP, "app", none).await;
    for kind in ["Ready", "Degraded", "Stalled", "Reconciling"] {
        assert_eq!(condition(&after, kind), condition(&before, kind), "{after:#}");
    }
    // A new operator, which has listed nothing yet, keeps it as well.
    let _other = world.start_operator_through(&proxy.url()).await;
    proxy.until(3, failed).await;
    let after = world.get(APP, "app").await.unwrap();
    assert_eq!(condition(&after, "Ready"), condition(&before, "Ready"), "{after:#}");
    proxy.heal();
    for pod in &pods {
        report(&world, pod, "").await;
    }
    world.until(APP, "app", is_ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_that_hang_hold_up_neither_the_status_nor_other_objects() {
    let world = World::new("hanging-list", "baseline").await;
    let proxy = Proxy::start(world.plane()).await;
    let _operator = world.start_operator_through(&proxy.url()).await;
    let names = ["a", "b", "c", "d", "e", "f"];
    for name in names {
        world.create(APP, app(name, 1)).await.unwrap();
    }
    for name in names {
        world.until(APP, name, is_ready).await;
    }
    proxy.inject(Fault::Delay(Duration::from_secs(3_600)), usize::MAX, lists_pods);
    for pod in world.list(POD).await {
        report(&world, &pod, "CrashLoopBackOff").await;
    }
    for name in names {
        is(&world, name, "ReplicasUnavailable").await;
    }
    // More objects than a controller has workers wait for lists.
    world.create(APP, app("well", 1)).await.unwrap();
    world.until(APP, "well", is_ready).await;
    proxy.heal();
    for name in names {
        is(&world, name, "CrashLoopBackOff").await;
    }
}

/// `DIAGNOSED_OBJECTS=500` measures what docs/SIZING.md says. Each event of a Memcached's pods
/// reconciles it.
#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_lists_depends_neither_on_events_nor_on_objects() {
    let count = std::env::var("DIAGNOSED_OBJECTS").map_or(40, |count| count.parse().unwrap());
    let world = World::new("many-lists", "baseline").await;
    let proxy = Proxy::start(world.plane()).await;
    let _operator = world.start_operator_through(&proxy.url()).await;
    let name = |n: usize| format!("cart-{n}");
    for n in 0..count {
        world.create(MEMCACHED, memcached(&name(n), 1)).await.unwrap();
    }
    for n in 0..count {
        world.until(MEMCACHED, &name(n), is_ready).await;
    }
    let pods = world.list(POD).await;
    let (before, began) = (proxy.count(lists_pods), Instant::now());
    for _ in 0..3 {
        for pod in &pods {
            report(&world, pod, "CrashLoopBackOff").await;
        }
    }
    for n in 0..count {
        let crashes = ("True", "CrashLoopBackOff");
        world.until_condition(MEMCACHED, &name(n), "Degraded", crashes).await;
    }
    let took = began.elapsed().as_secs_f64();
    let lists = proxy.count(lists_pods) - before;
    let selector = format!("cache.example.com/memcached={}", name(0));
    let bytes = serde_json::to_vec(&world.list_with(POD, &selector).await).unwrap().len();
    println!(
        "{count} objects, {} events of pods: {lists} lists in {took:.1} s, {:.1} a second, of {bytes} bytes each",
        3 * pods.len(),
        lists as f64 / took,
    );
    assert!(lists >= count, "{lists} lists");
    assert!(lists as f64 <= 20.0 + 10.0 * took, "{lists} lists in {took:.1} s");
    // One for each object, and again for each half minute.
    let rounds = 1 + (took / 30.0) as usize;
    assert!(lists <= count * rounds + count / 4, "{lists} lists in {took:.1} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_list_of_nodes_does_not_make_a_daemon_ready() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::private("failed-nodes")).await;
    let world = World::on(plane, "failed-nodes", "baseline").await;
    crate::degraded::may_list_nodes(plane, "failed-nodes");
    let proxy = Proxy::start(plane).await;
    let lists_nodes = |call: &Call| call.verb == "list" && call.object == "nodes";
    proxy.inject(Fault::Answer(500, None), usize::MAX, lists_nodes);
    let _operator = world.start_operator_through(&proxy.url()).await;
    let daemon = json!({"metadata": {"name": "logs"}, "spec": {"image": "a:1", "label": "logs"}});
    world.create(GENERIC_DAEMON, daemon).await.unwrap();
    world.until(GENERIC_DAEMON, "logs", is_ready).await;
    let node = |taints: Value| json!({"spec": {"taints": taints}});
    for name in ["node-0", "node-1"] {
        let taint = json!([{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]);
        world.patch(NODE, name, node(taint)).await.unwrap();
    }
    crate::nodes::count_again(&world).await;
    let unknown = ("False", "RollingOut");
    let message = world.until_condition(GENERIC_DAEMON, "logs", "Ready", unknown).await;
    assert!(message.contains("the nodes cannot be listed"), "{message}");
    proxy.heal();
    let tainted = ("True", "NodesTainted");
    world.until_condition(GENERIC_DAEMON, "logs", "Degraded", tainted).await;
    let before = world.get(GENERIC_DAEMON, "logs").await.unwrap();
    proxy.inject(Fault::Answer(500, None), usize::MAX, lists_nodes);
    let failed = proxy.count(|call| lists_nodes(call) && call.answer == Some(500));
    proxy.until(failed + 2, |call| lists_nodes(call) && call.answer == Some(500)).await;
    let after = world.get(GENERIC_DAEMON, "logs").await.unwrap();
    assert_eq!(after["status"], before["status"]);
    proxy.heal();
    for name in ["node-0", "node-1"] {
        world.patch(NODE, name, node(Value::Null)).await.unwrap();
    }
    crate::nodes::count_again(&world).await;
    world.until(GENERIC_DAEMON, "logs", is_ready).await;
}
