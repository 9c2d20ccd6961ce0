//! The administrator's new image reaches a bounded number of Memcacheds at a time.

use std::time::Duration;

use controller_machinery::testing::{PodState, condition};
use serde_json::{Value, json};

use crate::world::{DEPLOYMENT, MEMCACHED, World, is_ready};

const NEW: &str = "memcached:new";
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const AT_A_TIME: usize = 2;

fn has_new_image(deployment: &Value) -> bool {
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] == NEW
}

fn is_complete(deployment: &Value) -> bool {
    let (spec, status) = (&deployment["spec"], &deployment["status"]);
    let counts = ["replicas", "updatedReplicas", "availableReplicas"];
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && counts.iter().all(|count| status[count] == spec["replicas"])
}

#[tokio::test(start_paused = true)]
async fn a_new_image_rolls_out_to_a_bounded_number_at_a_time() {
    let world = World::new();
    let test = async {
        for name in NAMES {
            world.create(MEMCACHED, json!({"metadata": {"name": name}, "spec": {"size": 1}}));
            world.until(MEMCACHED, name, is_ready).await;
        }
    };
    world.run(test).await;

    let (mut most, mut order) = (0, Vec::new());
    let test = async {
        // With the new image, no pod starts, so two wait for their pods, and six for their turn.
        world.cluster.pods_are(|pod| match pod["spec"]["containers"][0]["image"] == NEW {
            true => PodState::Unready,
            false => PodState::Ready,
        });
        let waits = "1 of 1 replica is ready; image memcached:new waits: at most 2 Memcacheds change at a time, now shop/";
        let is_waiting = |memcached: &Value| {
            let ready = condition(memcached, "Ready").cloned().unwrap_or_default();
            is_ready(memcached) && ready["message"].as_str().unwrap().starts_with(waits)
        };
        world.until(MEMCACHED, "h", is_waiting).await;
        world.server.settled(Duration::from_secs(5)).await;
        let new = |world: &World| -> Vec<String> {
            let all = world.list(DEPLOYMENT).into_iter().filter(|one| has_new_image(one));
            all.map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(new(&world), ["a", "b"]);
        // The rest of the spec of a waiting Memcached applies at once.
        world.patch(MEMCACHED, "h", json!({"spec": {"size": 2}}));
        let grown = world.until(DEPLOYMENT, "h", |one| one["spec"]["replicas"] == 2).await;
        assert!(!has_new_image(&grown), "{grown:#}");

        world.pods_wait("", "");
        while order.len() < NAMES.len() || new(&world).len() < NAMES.len() {
            let all = world.list(DEPLOYMENT);
            let changing = all.iter().filter(|one| has_new_image(one) && !is_complete(one)).count();
            most = most.max(changing);
            order.extend(
                new(&world).into_iter().filter(|name| !order.contains(name)).collect::<Vec<_>>(),
            );
            tokio::time::sleep(controller_machinery::testing::LATENCY).await;
        }
        for name in NAMES {
            world.until(DEPLOYMENT, name, |one| has_new_image(one) && is_complete(one)).await;
        }
    };
    world.run_with(&["--memcached-image=memcached:new", "--max-image-rollouts=2"], test).await;
    assert!((1..=AT_A_TIME).contains(&most), "{most} at a time");
    // A granted turn counts even before it is used.
    for (at, name) in order.iter().enumerate() {
        let passed_over = order[at..].iter().filter(|later| *later < name).count();
        assert!(passed_over < AT_A_TIME, "{name} in {order:?}");
    }
}
