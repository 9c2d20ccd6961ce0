//! Other clients that constantly change an object, write to its owned object, or revert the operator's
//! changes.

use std::time::Duration;

use controller_machinery::testing::{LATENCY, condition};
use serde_json::{Value, json};

use crate::edits::writes;
use crate::world::{APP, DEPLOYMENT, MEMCACHED, World, has_condition, is_ready};

const QUIET: Duration = Duration::from_secs(60);
const CHANGES: i64 = 100;

#[tokio::test(start_paused = true)]
async fn a_constantly_changing_object_delays_no_other_object() {
    let world = World::new();
    let test = async {
        world.create(MEMCACHED, json!({"metadata": {"name": "hot"}, "spec": {"size": 1}}));
        world.until(MEMCACHED, "hot", is_ready).await;
        let before = writes(&world, DEPLOYMENT) as i64;
        world.create(MEMCACHED, json!({"metadata": {"name": "cold"}, "spec": {"size": 1}}));
        for change in 0..CHANGES {
            world.patch(MEMCACHED, "hot", json!({"spec": {"size": change % 3}}));
            tokio::time::sleep(LATENCY * 4).await;
        }
        assert!(is_ready(&world.get(MEMCACHED, "cold").unwrap()), "it waited for the other");
        world.patch(MEMCACHED, "hot", json!({"spec": {"size": 3}}));
        world.server.settled(QUIET).await;
        assert_eq!(world.get(MEMCACHED, "hot").unwrap()["status"]["readyReplicas"], 3);
        let writes = writes(&world, DEPLOYMENT) as i64 - before - 1;
        assert!(writes <= CHANGES + 1, "{writes} writes for {CHANGES} changes");
    };
    world.run(test).await;
}

/// The operator compares only its own field, not the version: a write of a version read before would be
/// refused (409) whenever another manager was faster.
#[tokio::test(start_paused = true)]
async fn constant_foreign_writes_cause_one_write_for_each_edit() {
    const SIZES: [i64; 8] = [2, 1, 3, 1, 2, 3, 1, 2];
    let world = World::new();
    let test = async {
        world.create(MEMCACHED, json!({"metadata": {"name": "it"}, "spec": {"size": 1}}));
        world.until(MEMCACHED, "it", is_ready).await;
        let before = writes(&world, DEPLOYMENT);
        for (edit, size) in SIZES.iter().enumerate() {
            world.patch(MEMCACHED, "it", json!({"spec": {"size": size}}));
            let mut notes = 0;
            // The writes continue after that.
            while notes < 20 || world.get(DEPLOYMENT, "it").unwrap()["spec"]["replicas"] != *size {
                let annotations = json!({"peer": format!("{edit}-{notes}")});
                world.patch(DEPLOYMENT, "it", json!({"metadata": {"annotations": annotations}}));
                tokio::time::sleep(LATENCY / 2).await;
                notes += 1;
            }
            assert!(notes <= 200, "an edit waits a second at most");
        }
        world.server.settled(QUIET).await;
        assert_eq!(writes(&world, DEPLOYMENT) - before, SIZES.len());
    };
    world.run(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_contested_field_is_written_rarely_and_reported() {
    /// Maximum number of writes to one object in a minute while another client reverts each one.
    const MOST_A_MINUTE: usize = 12;
    let world = World::new();
    let test = async {
        let spec = json!({"image": "shop:1", "replicas": 1});
        world.create(APP, json!({"metadata": {"name": "shop"}, "spec": spec}));
        world.until(APP, "shop", is_ready).await;
        let before = writes(&world, DEPLOYMENT);
        let fight = async {
            loop {
                world.until(DEPLOYMENT, "shop", |it| it["spec"]["replicas"] != 2).await;
                world.patch(DEPLOYMENT, "shop", json!({"spec": {"replicas": 2}}));
            }
        };
        let is_told = |app: &Value| {
            has_condition(app, "Degraded", "True")
                && condition(app, "Degraded").unwrap()["reason"] == "Contested"
        };
        let told = tokio::select! {
            _ = fight => panic!("the other never gives up"),
            told = world.until(APP, "shop", is_told) => told,
        };
        assert!(!is_ready(&told));
        let writes = writes(&world, DEPLOYMENT) - before;
        assert!(writes <= MOST_A_MINUTE, "{writes} writes until it was told");
        // No other client writes any more.
        world.until(APP, "shop", is_ready).await;
    };
    world.run(test).await;
}
