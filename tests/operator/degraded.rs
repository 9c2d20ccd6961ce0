//! The status of workloads whose pods do not serve.

use std::time::Duration;

use controller_machinery::testing::condition;
use serde_json::{Value, json};

use crate::samples::{Sample, one_of_each};
use crate::world::{MEMCACHED, POD, World, has_condition, is_ready};

/// Fields of each status with the number of ready pods, in the order of the samples.
const READY: [&str; 3] = ["readyReplicas", "installed", "readyReplicas"];

/// Asserts that the object is degraded for `reason`, and that this is not called a rollout.
async fn degraded_after_a_rollout(world: &World, sample: &Sample, reason: &str) -> String {
    let Sample { kind, name, .. } = sample;
    let message = world.until_condition(*kind, name, "Ready", ("False", reason)).await;
    let object = world.get(*kind, name).unwrap();
    let of = |kind: &str| condition(&object, kind).cloned().unwrap_or_default();
    assert_eq!(
        (&of("Degraded")["status"], &of("Degraded")["reason"]),
        (&json!("True"), &json!(reason))
    );
    assert_eq!((of("Reconciling"), of("Stalled")), (Value::Null, Value::Null), "{object:#}");
    let complete = if *name == "shop" { "NewReplicaSetAvailable" } else { "RolloutComplete" };
    assert_eq!(of("Progressing")["reason"], complete, "{object:#}");
    message
}

#[tokio::test(start_paused = true)]
async fn pods_that_fail_after_their_rollout_are_degraded_and_named() {
    let world = World::new();
    let test = async {
        for sample in one_of_each() {
            world.create(sample.kind, sample.object.clone());
            world.until(sample.kind, sample.name, is_ready).await;
            world.pods_wait(sample.name, "ImagePullBackOff");
            let message = degraded_after_a_rollout(&world, &sample, "ImagePullFailed").await;
            assert!(message.contains(&format!("Pod {}-", sample.name)), "{message}");
            world.pods_wait(sample.name, "");
            world.until(sample.kind, sample.name, is_ready).await;
        }
        world.pods_wait("", "CrashLoopBackOff");
        for (sample, count) in one_of_each().into_iter().zip(READY) {
            degraded_after_a_rollout(&world, &sample, "CrashLoopBackOff").await;
            let is_down =
                |it: &Value| it["status"][count] == 0 && has_condition(it, "Available", "False");
            world.until(sample.kind, sample.name, is_down).await;
        }
        world.server.settled(Duration::from_secs(60)).await;
    };
    world.run(test).await;
    // Another process reports the same, and writes nothing.
    let before = world.server.writes().len();
    let test = async {
        world.server.settled(Duration::from_secs(60)).await;
        assert_eq!(world.server.writes().len(), before, "{:#?}", &world.server.writes()[before..]);
        world.pods_wait("", "");
        for sample in one_of_each() {
            world.until(sample.kind, sample.name, is_ready).await;
        }
    };
    world.run(test).await;
}

#[tokio::test(start_paused = true)]
async fn available_follows_the_pods_when_the_image_setting_is_removed() {
    let world = World::new();
    world.create(MEMCACHED, json!({"metadata": {"name": "cart"}, "spec": {"size": 2}}));
    world.run(world.until(MEMCACHED, "cart", is_ready)).await;
    let test = async {
        let missing = ("True", "ImageMissing");
        let message = world.until_condition(MEMCACHED, "cart", "Degraded", missing).await;
        assert!(message.starts_with("Unable to find MEMCACHED_IMAGE"), "{message}");
        let object = world.get(MEMCACHED, "cart").unwrap();
        let available = condition(&object, "Available").unwrap();
        let sentence = "Deployment for custom resource (cart) with 2 replicas created successfully";
        assert_eq!(
            (&available["status"], &available["message"]),
            (&json!("True"), &json!(sentence))
        );
        // The counts also change when a pod stops serving after the last write.
        world.pods_wait("cart", "CrashLoopBackOff");
        world.until(MEMCACHED, "cart", |cart| has_condition(cart, "Available", "False")).await;
    };
    world.run_with(&[], test).await;
}

#[tokio::test(start_paused = true)]
async fn the_counts_of_a_paused_object_follow_its_workload() {
    let world = World::new();
    let test = async {
        for (Sample { kind, name, object, .. }, count) in one_of_each().into_iter().zip(READY) {
            world.create(kind, object);
            let full = world.until(kind, name, is_ready).await["status"][count].clone();
            let paused = json!({"workload-operator.example.com/paused": "true"});
            world.patch(kind, name, json!({"metadata": {"annotations": paused}}));
            world.until_condition(kind, name, "Ready", ("False", "Paused")).await;
            let pods = world.list(POD).into_iter().map(|pod| pod["metadata"]["name"].clone());
            let mut pods = pods.filter(|pod| pod.as_str().unwrap().starts_with(name));
            world.pods_wait(pods.next().unwrap().as_str().unwrap(), "CrashLoopBackOff");
            let fewer = full.as_i64().unwrap() - 1;
            let object = world.until(kind, name, |it| it["status"][count] == fewer).await;
            assert_eq!(condition(&object, "Ready").unwrap()["reason"], "Paused");
            world.pods_wait(name, "");
            world.until(kind, name, |it| it["status"][count] == full).await;
        }
    };
    world.run(test).await;
}
