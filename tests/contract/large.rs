//! Objects as large as etcd accepts: requests of 1.5 MiB (`--max-request-bytes`).

use std::time::Duration;

use serde_json::{Value, json};

use crate::audit::{Entry, logged, refused_writes};
use crate::control_plane::ControlPlane;
use crate::operator_process::OperatorProcess;
use crate::world::{APP, DEPLOYMENT, World, is_ready};

/// Length of a value.
const VALUE: usize = 128 << 10;
/// Number of pauses that are waited for. They begin at 5 ms and double, so the last is 2.5 s.
const TRIES: usize = 10;

/// An App with this many bytes of environment.
fn app(name: &str, bytes: usize) -> Value {
    let sizes = (0..bytes.div_ceil(VALUE)).map(|number| VALUE.min(bytes - number * VALUE));
    let envs = sizes
        .enumerate()
        .map(|(number, size)| json!({"name": format!("E{number}"), "value": "x".repeat(size)}));
    let envs: Vec<Value> = envs.collect();
    json!({"metadata": {"name": name}, "spec": {"image": "a:1", "replicas": 1, "envs": envs}})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn large_objects_work_up_to_the_limit_of_etcd() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::private("large")).await;
    let world = World::on(plane, "large", "baseline").await;
    let mut operator = world.start_operator().await;
    world.create(APP, app("large", 1_250_000)).await.unwrap();
    world.until(APP, "large", is_ready).await;
    world.patch(APP, "large", json!({"spec": {"image": "a:2"}})).await.unwrap();
    let image = |d: &Value| d["spec"]["template"]["spec"]["containers"][0]["image"] == "a:2";
    world.until(DEPLOYMENT, "large", image).await;
    world.until(APP, "large", |app| is_ready(app) && app["metadata"]["generation"] == 2).await;
    operator.assert_alive();
    what_etcd_does_not_take_is_tried_with_growing_pauses(&world, &mut operator).await;
}

/// The object is foreign, but is received like any other: 1.45 MB as stored, 8.7 MB as JSON, because Go
/// writes six bytes for a `<`.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_deployment_with_huge_json_delays_no_reconcile() {
    let world = World::new("wide", "baseline").await;
    let labels = json!({"app": "wide"});
    let container = json!({"name": "c", "image": "a:1", "args": ["<".repeat(1_450_000)]});
    let spec = json!({
        "replicas": 0,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    });
    let wide = json!({"metadata": {"name": "wide"}, "spec": spec});
    world.create(DEPLOYMENT, wide).await.unwrap();
    // It is listed,
    let mut operator = world.start_operator().await;
    // and it comes over the watch.
    world.patch(DEPLOYMENT, "wide", json!({"metadata": {"labels": labels}})).await.unwrap();
    world.create(APP, app("beside", 0)).await.unwrap();
    world.until(APP, "beside", is_ready).await;
    world.delete(DEPLOYMENT, "beside").await;
    world.until(DEPLOYMENT, "beside", |_| true).await;
    operator.assert_alive();
}

/// The owned object is larger than the App itself, and so is the App with a status. A smaller App recovers.
async fn what_etcd_does_not_take_is_tried_with_growing_pauses(
    world: &World,
    operator: &mut OperatorProcess,
) {
    let mut bytes = 3 << 19;
    while let Err(why) = world.create(APP, app("edge", bytes)).await {
        assert!(why.contains("too large"), "{why}");
        bytes -= 256;
    }
    let refused = || Some(refused_writes(world, "edge"));
    let tries = logged(|| refused().filter(|tries| passes(tries) > TRIES)).await;
    // It cannot be stored anywhere else.
    let said = operator.lines().iter().any(|line| line.contains("request is too large"));
    assert!(said, "the log says why: {:#?}", operator.lines());
    world.create(APP, app("other", 0)).await.unwrap();
    world.until(APP, "other", is_ready).await;
    world.patch(APP, "edge", json!({"spec": {"envs": []}})).await.unwrap();
    world.until(APP, "edge", is_ready).await;
    operator.assert_alive();
    // The pause between two reconciles. A busy machine can only extend it.
    let pauses: Vec<Duration> = tries
        .windows(2)
        .filter(|two| two[1].resource == "deployments")
        .map(|two| two[1].received.duration_since(two[0].done))
        .map(|pause| Duration::try_from(pause).unwrap_or_default())
        .collect();
    println!("{bytes} bytes of environment; pauses {pauses:.2?}");
    let last = pauses[TRIES - 1];
    assert!(last > Duration::from_millis(1_200), "its pauses do not grow: {pauses:?}");
}

/// Counts reconciles. Each begins with the Deployment.
fn passes(tries: &[Entry]) -> usize {
    tries.iter().filter(|one| one.resource == "deployments").count()
}
