//! Promises of the operator when the connection to the API server fails.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::audit::Audit;
use crate::black_hole::Wire;
use crate::operator_process::OperatorProcess;
use crate::proxy::{Fault, Proxy};
use crate::world::{
    APP, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, Kind, MEMCACHED, MEMCACHED_IMAGE, SERVICE, World,
    is_ready, memcached,
};

/// Resources that reconciling a Memcached reads.
const WATCHED: [&str; 4] = ["memcacheds", "deployments", "services", "pods"];

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

/// Counts the operator's lists of this resource.
fn lists(proxy: &Proxy, resource: &str) -> usize {
    proxy.count(|call| call.lists && call.object == resource)
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
async fn failed_requests_are_retried_until_the_api_server_recovers() {
    let (world, proxy, mut operator) = proxied("errors").await;
    let audit = Audit::from_now(&world);
    world.create(MEMCACHED, memcached("old", 1)).await.unwrap();
    world.until(MEMCACHED, "old", is_ready).await;
    proxy.inject(Fault::Answer(500, None), 3, |_| true);
    proxy.inject(Fault::Answer(503, None), usize::MAX, |_| true);
    WATCHED.iter().for_each(|resource| proxy.cut(resource));
    let so_far = proxy.calls().len();
    world.create(MEMCACHED, memcached("new", 1)).await.unwrap();
    world.delete(DEPLOYMENT, "old").await;
    world.until_gone(DEPLOYMENT, "old").await;
    proxy.until(6, |call| call.answer == Some(503)).await;
    assert!(proxy.calls().len() < so_far + 60, "it asks with pauses");
    proxy.heal();
    let healed = Instant::now();
    world.until(MEMCACHED, "new", is_ready).await;
    world.until(DEPLOYMENT, "old", |_| true).await;
    world.until(MEMCACHED, "old", is_ready).await;
    println!("errors for a while: made good {:?} after the end of it", healed.elapsed());
    assert_eq!(creates(&audit, &world, "deployments"), 3);
    operator.assert_alive();
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_delays_only_the_affected_object() {
    let (world, proxy, _operator) = proxied("retry-after").await;
    let wanted = Duration::from_secs(4);
    let retry_after = Fault::Answer(429, Some(4));
    proxy.inject(retry_after, 1, |call| call.verb == "patch" && call.object == "deployments/cart");
    proxy.inject(retry_after, 1, |call| call.verb == "watch" && call.object == "pods");
    proxy.cut("pods");
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    proxy.until(1, |call| call.object == "deployments/cart" && call.answer == Some(429)).await;
    world.create(MEMCACHED, memcached("other", 1)).await.unwrap();
    world.until(MEMCACHED, "cart", is_ready).await;
    let calls = proxy.calls();
    let at = |verb, object, from| {
        let call = calls.iter().filter(|call| call.verb == verb && call.object == object).nth(from);
        call.unwrap_or_else(|| panic!("no such call in {calls:#?}")).at
    };
    let (first, second) = (at("patch", "deployments/cart", 0), at("patch", "deployments/cart", 1));
    assert!(second - first >= wanted, "a write came again after {:?}", second - first);
    assert!(at("patch", "deployments/other", 0) < second, "another object waited");
    let refused = calls.iter().position(|call| call.verb == "watch" && call.answer == Some(429));
    let refused = refused.expect("the watch was refused, too");
    let next = calls[refused + 1..].iter().find(|call| call.object == "pods");
    let pause = next.expect("it came again").at - calls[refused].at;
    assert!(pause >= wanted, "a watch came again after {pause:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_deleted_during_an_expired_watch_is_restored() {
    tokio::join!(
        restored_after("expired-in-stream", Fault::Expired),
        restored_after("expired-at-once", Fault::Answer(410, None)),
    );
}

/// The watch breaks, the owned object is deleted meanwhile, and the resumed watch gets `fault`.
async fn restored_after(name: &str, fault: Fault) {
    let (world, proxy, mut operator) = proxied(name).await;
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    world.until(MEMCACHED, "cart", is_ready).await;
    let uid = world.get(DEPLOYMENT, "cart").await.unwrap()["metadata"]["uid"].clone();
    proxy.hold("deployments");
    world.delete(DEPLOYMENT, "cart").await;
    world.until_gone(DEPLOYMENT, "cart").await;
    proxy.inject(fault, 1, |call| call.verb == "watch" && call.object == "deployments");
    let before = lists(&proxy, "deployments");
    proxy.cut("deployments");
    world.until(DEPLOYMENT, "cart", |child| child["metadata"]["uid"] != uid).await;
    world.until(MEMCACHED, "cart", is_ready).await;
    assert_eq!(lists(&proxy, "deployments") - before, 1, "one list, and no more");
    operator.assert_alive();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_watch_resumes_without_a_list() {
    let (world, proxy, _operator) = proxied("cut").await;
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    world.until(MEMCACHED, "cart", is_ready).await;
    let listed = WATCHED.map(|resource| lists(&proxy, resource));
    for size in [2, 1] {
        WATCHED.iter().for_each(|resource| proxy.hold(resource));
        world.patch(MEMCACHED, "cart", json!({"spec": {"size": size}})).await.unwrap();
        WATCHED.iter().for_each(|resource| proxy.cut(resource));
        world.until(MEMCACHED, "cart", |m| is_ready(m) && m["status"]["size"] == size).await;
    }
    assert_eq!(WATCHED.map(|resource| lists(&proxy, resource)), listed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_a_response_ends_at_its_deadline() {
    let world = World::new("slow", "restricted").await;
    let proxy = Proxy::start(world.plane()).await;
    let file = world.kubeconfig_through(&proxy.url()).await;
    let environment = [("MEMCACHED_IMAGE", MEMCACHED_IMAGE), ("WRITE_DEADLINE", "10s")];
    let operator = OperatorProcess::start(&file, &["--namespace", &world.namespace], &environment);
    operator.logged("Ready to work").await;
    let audit = Audit::from_now(&world);
    // Longer than the test waits: only the deadline can end it.
    let beyond = Duration::from_secs(600);
    proxy.inject(Fault::Delay(beyond), 1, |call| {
        call.verb == "patch" && call.object == "deployments/cart"
    });
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    proxy.until(1, |call| call.object == "deployments/cart").await;
    world.create(MEMCACHED, memcached("other", 1)).await.unwrap();
    world.until(MEMCACHED, "other", is_ready).await;
    assert!(world.get(DEPLOYMENT, "cart").await.is_none(), "the slow call is still under way");
    world.until(MEMCACHED, "cart", is_ready).await;
    assert_eq!(creates(&audit, &world, "deployments"), 2);
}

/// A busy API server queues a request, and reads a complete list before it sends the first byte. A list that
/// times out loses its place in the queue and its TLS connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_queued_list_has_a_longer_deadline_than_a_call() {
    let world = World::new("queued", "restricted").await;
    let proxy = Proxy::start(world.plane()).await;
    // A server without streaming lists.
    proxy.inject(Fault::Answer(400, None), usize::MAX, |call| call.verb == "watch" && call.lists);
    proxy.inject(Fault::Delay(Duration::from_secs(3)), usize::MAX, |call| call.verb == "list");
    let file = world.kubeconfig_through(&proxy.url()).await;
    let environment = [("MEMCACHED_IMAGE", MEMCACHED_IMAGE), ("API_DEADLINE", "1s")];
    let operator = OperatorProcess::start(&file, &["--namespace", &world.namespace], &environment);
    operator.logged("Ready to work").await;
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    world.until(MEMCACHED, "cart", is_ready).await;
    for resource in WATCHED {
        let lists = |call: &crate::proxy::Call| call.verb == "list" && call.object == resource;
        assert_eq!(proxy.count(lists), 1, "{resource}: {:#?}", proxy.calls());
    }
}

/// A proxy that ends every watch, or buffers a response until it is complete, can forward lists.
#[tokio::test(flavor = "multi_thread")]
async fn without_working_watches_the_operator_lists_periodically() {
    let ends_at_once = Fault::Says("");
    let is_held_back = Fault::Delay(Duration::from_secs(3));
    tokio::join!(
        works_without_watches("ended", ends_at_once),
        works_without_watches("held-back", is_held_back)
    );
}

async fn works_without_watches(name: &str, fault: Fault) {
    let world = World::new(name, "restricted").await;
    let proxy = Proxy::start(world.plane()).await;
    proxy.inject(fault, usize::MAX, |call| call.verb == "watch");
    let file = world.kubeconfig_through(&proxy.url()).await;
    let environment = [("MEMCACHED_IMAGE", MEMCACHED_IMAGE), ("API_DEADLINE", "1s")];
    let operator = OperatorProcess::start(&file, &["--namespace", &world.namespace], &environment);
    operator.logged("Ready to work").await;
    operator.logged("cannot list or watch memcacheds").await;
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    world.until(DEPLOYMENT, "cart", |_| true).await;
    world.until(MEMCACHED, "cart", is_ready).await;
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
