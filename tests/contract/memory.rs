//! The memory that foreign objects take.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::limits::setting;
use crate::operator_process::OperatorProcess;
use crate::world::{APP, DEPLOYMENT, MEMCACHED_IMAGE, World, is_ready};

/// Number of foreign Deployments, unless FOREIGN_DEPLOYMENTS overrides it.
const FOREIGN: u64 = 200;
/// Bytes of environment in each of them, unless FOREIGN_BYTES overrides it. etcd accepts 1.5 MiB. All of them
/// together would exceed the operator's limit of 256 MiB.
const BYTES: u64 = 1_200_000;
/// Maximum growth of the operator by all of them, in KiB: buffers for one object at a time, of which the
/// allocator keeps some for each thread, and a few hundred bytes for each object.
const ALLOWED: u64 = 40 << 10;

/// A foreign Deployment. It is paused, so that no ReplicaSet duplicates its size.
fn foreign(number: u64, bytes: usize) -> Value {
    let labels = json!({"app": "foreign"});
    // All are different, so that nothing is shared.
    let value = format!("{number:08}").repeat(bytes / 8);
    let container = json!({"name": "c", "image": "a:1", "env": [{"name": "E", "value": value}]});
    json!({
        "metadata": {"name": format!("foreign-{number}"), "labels": labels},
        "spec": {
            "replicas": 0, "paused": true, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    })
}

/// The memory of a process in KiB: now (`VmRSS`), and the most it ever had (`VmHWM`).
fn memory(operator: &OperatorProcess) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", operator.pid()));
    let status = status.expect("it runs");
    let fields: HashMap<&str, &str> =
        status.lines().filter_map(|line| line.split_once(':')).collect();
    let kib = |name: &str| fields[name].trim().trim_end_matches(" kB").parse().expect("a number");
    (kib("VmRSS"), kib("VmHWM"))
}

/// Waits until the operator has handled all earlier events, which arrive in order.
async fn fence(world: &World, name: &str) {
    let spec = json!({"image": "a:1", "replicas": 0});
    world.create(APP, json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
    world.until(APP, name, is_ready).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn large_foreign_deployments_take_no_memory() {
    let world = World::new("foreign-memory", "baseline").await;
    let environment = [("MEMCACHED_IMAGE", MEMCACHED_IMAGE)];
    let operator = world.start_operator_with(&environment).await;
    operator.logged("Ready to work").await;
    fence(&world, "before").await;
    let alone = memory(&operator);
    let foreigners = setting("FOREIGN_DEPLOYMENTS").unwrap_or(FOREIGN);
    let bytes = setting("FOREIGN_BYTES").unwrap_or(BYTES) as usize;
    for number in 0..foreigners {
        world.create(DEPLOYMENT, foreign(number, bytes)).await.unwrap();
    }
    fence(&world, "watched").await;
    let watched = memory(&operator);
    operator.kill().await;
    let operator = world.start_operator_with(&environment).await;
    operator.logged("Ready to work").await;
    fence(&world, "listed").await;
    let listed = memory(&operator);
    operator.kill().await;
    println!(
        "{foreigners} Deployments of {bytes} bytes: (now, at most) in KiB {alone:?} without them, \
         {watched:?} after they came over the watch, {listed:?} after a restart"
    );
    // Otherwise they would slow down every list of the other tests.
    for number in 0..foreigners {
        world.delete(DEPLOYMENT, &format!("foreign-{number}")).await;
    }
    for (now, most) in [watched, listed] {
        assert!(most < alone.1 + ALLOWED, "{now} KiB, at most {most} KiB, {} alone", alone.1);
    }
}
