//! Promises of the operator while others overdo it: change an object without end, write to its
//! child without end, kill the operator again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::audit::{Entry, operator_writes};
use crate::world::{DEPLOYMENT, MEMCACHED, World, is_ready, memcached};

/// For how long it is killed again and again, in seconds, unless KILL_SECONDS says otherwise.
const KILLED_FOR: u64 = 10;
/// The minimum number of changes in a storm.
const CHANGES: i64 = 100;
/// On a busy machine a write may not be answered in time and is then repeated.
const REPEATED: i64 = 2;

/// Counts the operator's writes to this Deployment so far.
fn written(world: &World, name: &str) -> usize {
    let it = |write: &&Entry| write.resource == "deployments" && write.name == name;
    operator_writes(world).iter().filter(it).count()
}

/// Returns the number of changes to the spec of this Deployment so far.
async fn generation(world: &World, name: &str) -> i64 {
    let deployment = world.get(DEPLOYMENT, name).await.expect("a child");
    deployment["metadata"]["generation"].as_i64().expect("Kubernetes counts")
}

/// Calls `change` with 0, 1, 2 … until `done` is done, and at least [`CHANGES`] times; returns how
/// often.
async fn storm<C, D>(mut change: impl FnMut(i64) -> C, done: D) -> i64
where
    C: Future<Output = Result<Value, String>>,
    D: Future<Output = ()>,
{
    let mut changes = 0;
    tokio::pin!(done);
    let mut is_done = false;
    while !is_done || changes < CHANGES {
        tokio::select! {
            () = &mut done, if !is_done => is_done = true,
            changed = change(changes) => {
                changed.expect("it is changed");
                changes += 1;
            }
        }
    }
    changes
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_never_stops_changing_keeps_no_other_waiting_and_costs_a_write_a_change_at_most()
 {
    let (world, mut operator) = World::with_operator("storm-of-changes").await;
    world.create(MEMCACHED, memcached("hot", 1)).await.unwrap();
    world.until(MEMCACHED, "hot", is_ready).await;
    let before = (written(&world, "hot"), generation(&world, "hot").await);
    let other = async {
        world.create(MEMCACHED, memcached("cold", 1)).await.unwrap();
        world.until(MEMCACHED, "cold", is_ready).await;
    };
    let size = |change: i64| json!({"spec": {"size": change % 3}});
    let changes = storm(|change| world.patch(MEMCACHED, "hot", size(change)), other).await;
    world.patch(MEMCACHED, "hot", json!({"spec": {"size": 3}})).await.unwrap();
    let all = |m: &Value| is_ready(m) && m["status"]["nodes"].as_array().map(Vec::len) == Some(3);
    world.until(MEMCACHED, "hot", all).await;
    let writes = (written(&world, "hot") - before.0) as i64;
    println!("{changes} changes, {writes} writes to the Deployment");
    assert!(writes <= changes + 1, "{writes} writes for {changes} changes");
    let changed = generation(&world, "hot").await - before.1;
    assert!(writes <= changed + REPEATED, "{writes} writes, of which {changed} changed something");
    operator.assert_alive();
}

/// The operator's own field counts, not anybody's version: a read, change and write back
/// would be refused (409) whenever another manager was faster, which not every change meets.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_somebody_else_never_stops_writing_to_is_changed_all_the_same_and_once() {
    const SIZES: [i64; 8] = [2, 1, 3, 1, 2, 3, 1, 2];
    let (world, mut operator) = World::with_operator("storm-on-a-child").await;
    world.create(MEMCACHED, memcached("it", 1)).await.unwrap();
    world.until(MEMCACHED, "it", is_ready).await;
    let before = written(&world, "it");
    let scaled = async {
        for size in SIZES {
            world.patch(MEMCACHED, "it", json!({"spec": {"size": size}})).await.unwrap();
            world.until(DEPLOYMENT, "it", |d| d["spec"]["replicas"] == size).await;
        }
    };
    let note = |change: i64| json!({"metadata": {"annotations": {"peer": change.to_string()}}});
    let changes = storm(|change| world.patch(DEPLOYMENT, "it", note(change)), scaled).await;
    // Kubernetes' own controller writes the status with a version, so it may have to wait until
    // now.
    world.until(DEPLOYMENT, "it", |d| d["status"]["availableReplicas"] == 2).await;
    world.until(MEMCACHED, "it", is_ready).await;
    let writes = written(&world, "it") - before;
    assert_eq!(writes, SIZES.len(), "beside {changes} of somebody else");
    operator.assert_alive();
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_at_work_it_loses_nothing_and_makes_nothing_twice() {
    let world = World::new("storm-of-kills", "restricted").await;
    let seconds = std::env::var("KILL_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(KILLED_FOR));
    // Every Deployment that ever existed, by UID: a call that the kill interrupted may not be in
    // the log.
    let made: Arc<Mutex<BTreeMap<String, BTreeSet<String>>>> = Arc::default();
    let look = made.clone();
    let watching = tokio::spawn(world.for_each_change(DEPLOYMENT, move |deployment| {
        let field = |name: &str| deployment["metadata"][name].as_str().unwrap_or("").to_owned();
        look.lock().entry(field("name")).or_default().insert(field("uid"));
    }));
    let mut rng = fastrand::Rng::with_seed(7);
    let (mut kills, mut names) = (0, Vec::new());
    while Instant::now() < end {
        let image = [("MEMCACHED_IMAGE", crate::world::MEMCACHED_IMAGE)];
        let operator = world.start_operator_with(&image).await;
        for _ in 0..3 {
            let name = format!("it-{}", names.len());
            world.create(MEMCACHED, memcached(&name, 1)).await.unwrap();
            names.push(name);
        }
        let another = &names[rng.usize(..names.len())];
        let size = json!({"spec": {"size": rng.i64(1..3)}});
        world.patch(MEMCACHED, another, size).await.unwrap();
        // The point is to try different moments for the kill.
        tokio::time::sleep(Duration::from_millis(rng.u64(0..1500))).await;
        operator.kill().await;
        kills += 1;
    }
    let mut operator = world.start_operator().await;
    for name in &names {
        world.until(MEMCACHED, name, is_ready).await;
    }
    for name in &names {
        let made = made.lock();
        assert_eq!(made.get(name).map(BTreeSet::len), Some(1), "{name} after {kills} kills");
    }
    println!("{kills} kills, {} objects: each child created once", names.len());
    operator.assert_alive();
    watching.abort();
}
