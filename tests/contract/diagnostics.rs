//! The number of lists of pods that explain a status. tests/operator/diagnostics.rs tests the status while
//! they fail.

use tokio::time::Instant;

use crate::degraded::report;
use crate::proxy::{Call, Proxy};
use crate::world::{MEMCACHED, POD, World, is_ready, memcached};

fn lists_pods(call: &Call) -> bool {
    call.verb == "list" && call.object == "pods"
}

/// `DIAGNOSED_OBJECTS=500` measures the figures of docs/SIZING.md. Each event of a Memcached's pods
/// reconciles it.
#[tokio::test(flavor = "multi_thread")]
async fn the_rate_of_lists_does_not_depend_on_events_or_objects() {
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
