//! Promises of the operator when the connection to the API server fails.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::audit::Audit;
use crate::black_hole::Wire;
use crate::operator_process::OperatorProcess;
use crate::proxy::{Fault, Proxy};
use crate::world::{
    APP, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, Kind, MEMCACHED, SERVICE, World, is_ready,
    memcached,
};

/// A world, and an operator in it that reaches the API server through a proxy.
async fn proxied(name: &str) -> (World, Proxy, OperatorProcess) {
    let world = World::new(name, "restricted").await;
    let proxy = Proxy::start(world.plane()).await;
    let operator = world.start_operator_through(&proxy.url()).await;
    operator.logged("Ready to work").await;
    (world, proxy, operator)
}

/// Counts the creations of objects of this resource.
fn creates(audit: &Audit, world: &World, resource: &str) -> usize {
    let writes = audit.writes(world).into_iter();
    writes.filter(|write| write.resource == resource && write.code == 201).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_connection_is_replaced() {
    let world = World::new("black-hole", "restricted").await;
    let wire = Wire::to(world.plane().address()).await;
    let mut operator = world.start_operator_through(&wire.url()).await;
    operator.logged("Ready to work").await;
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    world.until(MEMCACHED, "cart", is_ready).await;
    let before = world.get(DEPLOYMENT, "cart").await.unwrap()["metadata"]["uid"].clone();
    wire.swallow();
    let swallowed = Instant::now();
    world.delete(DEPLOYMENT, "cart").await;
    world.until(DEPLOYMENT, "cart", |child| child["metadata"]["uid"] != before).await;
    let took = swallowed.elapsed();
    println!("a dead connection was found, and what it hid made good, after {took:?}");
    // Keepalive starts after 15 s without a packet. A faster detection had another cause.
    assert!(took > Duration::from_secs(10), "the fault was not there: {took:?}");
    operator.assert_alive();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_with_a_lost_response_is_not_repeated() {
    let (world, proxy, mut operator) = proxied("answer-lost").await;
    let audit = Audit::from_now(&world);
    let objects = ["deployments/cart", "services/cart", "memcacheds/cart/status"];
    for object in objects {
        proxy.inject(Fault::LoseAnswer, 1, move |call| call.is_write() && call.object == object);
    }
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    world.until(MEMCACHED, "cart", is_ready).await;
    for resource in [DEPLOYMENT, SERVICE] {
        assert_eq!(creates(&audit, &world, resource.plural()), 1, "{resource:?}");
    }
    let calls = proxy.calls();
    for object in objects {
        let first = calls.iter().find(|call| call.is_write() && call.object == object);
        assert!(first.is_some_and(|call| call.answer.is_none()), "{object}: the fault was met");
    }
    operator.assert_alive();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_object_is_recreated_for_an_owner_that_was_deleted_unseen() {
    let spec = json!({"image": "a:1", "label": "logs"});
    tokio::join!(
        deleted_unseen("unseen-daemon", GENERIC_DAEMON, spec, DAEMON_SET, "Background", 404),
        deleted_unseen("unseen-app", APP, json!({"image": "a:1"}), DEPLOYMENT, "Background", 404),
        // The finalizer keeps the object, but not its owned objects in a foreground deletion.
        deleted_unseen(
            "unseen-memcached",
            MEMCACHED,
            json!({"size": 1}),
            DEPLOYMENT,
            "Foreground",
            409
        ),
    );
}

/// The owner is deleted, and then the garbage collector deletes its object. The operator sees only the second
/// deletion.
async fn deleted_unseen(
    name: &str,
    kind: Kind,
    spec: Value,
    child: Kind,
    policy: &str,
    answer: u16,
) {
    let world = World::new(name, "baseline").await;
    let proxy = Proxy::start(world.plane()).await;
    let mut operator = world.start_operator_through(&proxy.url()).await;
    let audit = Audit::from_now(&world);
    world.create(kind, json!({"metadata": {"name": "it"}, "spec": spec})).await.unwrap();
    world.until(kind, "it", is_ready).await;
    proxy.hold(kind.plural());
    world.delete_with(kind, "it", policy).await;
    let question = format!("{}/it/status", kind.plural());
    proxy.until(1, |call| call.object == question && call.answer == Some(answer)).await;
    proxy.cut(kind.plural());
    world.until_gone(kind, "it").await;
    world.until_gone(child, "it").await;
    assert_eq!(creates(&audit, &world, child.plural()), 1, "{name}");
    operator.assert_alive();
}

/// Incomplete data is ignored: the operator does not act on a partial cache, and does not accept an invalid
/// response.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_truncated_and_slow_responses_are_handled() {
    let world = World::new("broken-answers", "baseline").await;
    let audit = Audit::from_now(&world);
    let proxy = Proxy::start(world.plane()).await;
    let operator = world.start_operator_through(&proxy.url()).await;
    for name in ["one", "two"] {
        world.create(MEMCACHED, memcached(name, 1)).await.unwrap();
        world.until(MEMCACHED, name, is_ready).await;
    }
    operator.kill().await;
    let first = |resource: &'static str, fault| {
        proxy.inject(fault, 1, move |call| call.lists && call.object == resource);
    };
    // A response that breaks off in the first object, a response that no API server sends, a malformed event,
    // and a response in pieces of 7 bytes.
    first("memcacheds", Fault::CutAfter(300));
    first("deployments", Fault::Says("<html>Bad Gateway</html>\n"));
    first(
        "services",
        Fault::Says("{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":7}}}\n{{"),
    );
    first("pods", Fault::Drip(7, Duration::from_millis(1)));
    let writes = |object: &'static str, fault| {
        proxy.inject(fault, 1, move |call| call.is_write() && call.object == object);
    };
    writes("deployments/three", Fault::CutAfter(100));
    writes("services/three", Fault::Says("{\"kind\":\"Service\""));
    world.create(MEMCACHED, memcached("three", 1)).await.unwrap();
    let mut operator = world.start_operator_through(&proxy.url()).await;
    world.until(MEMCACHED, "three", is_ready).await;
    world.patch(MEMCACHED, "one", json!({"spec": {"size": 2}})).await.unwrap();
    world.until(MEMCACHED, "one", |m| is_ready(m) && m["status"]["size"] == 2).await;
    let calls = proxy.count(|call| call.object == "services/three");
    assert!(calls > 1, "what was never done is done again");
    for child in ["deployments", "services"] {
        assert_eq!(creates(&audit, &world, child), 3, "one for each");
    }
    let removed = audit.writes(&world).into_iter().filter(|w| w.by_operator && w.verb == "delete");
    assert_eq!(removed.count(), 0);
    operator.assert_alive();
    let log = operator.lines();
    assert!(!log.iter().any(|line| line.contains("panicked")), "{log:#?}");
}
