//! Memcached: `cache.example.com/v1alpha1`.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::control_plane::ControlPlane;
use crate::world::{
    APP, BUDGET, DEPLOYMENT, MAX_WAIT, MEMCACHED, POD, QUOTA, SERVICE, World, condition_message,
    conditions, has_condition, is_ready, memcached,
};

fn is_available(object: &Value) -> bool {
    has_condition(object, "Available", "True")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memcached_is_created_scaled_bounded_and_deleted() {
    let (world, _operator) = World::with_operator("walk-through").await;
    let sample = std::fs::read_to_string("artifacts/examples/memcached.yaml").unwrap();
    let sample: Value = serde_yaml_ng::from_str(&sample).unwrap();
    assert_eq!(sample["spec"]["size"], 2, "the sample asks for two");
    world.create(MEMCACHED, sample).await.unwrap();

    let two = world.until(MEMCACHED, "memcached-sample", is_available).await;
    assert_eq!(two["status"]["nodes"].as_array().map(Vec::len), Some(2));
    assert_eq!(world.list(POD).await.len(), 2);

    let patch = r#"{"spec":{"size":3}}"#;
    let patched =
        world.kubectl(&["patch", "memcached", "memcached-sample", "-p", patch, "--type=merge"]);
    assert!(patched.is_ok(), "{patched:?}");
    let three = world
        .until(MEMCACHED, "memcached-sample", |m| is_available(m) && m["status"]["size"] == 3)
        .await;
    assert_eq!(three["status"]["nodes"].as_array().map(Vec::len), Some(3));

    for size in [4, -1] {
        let refused = world
            .patch(MEMCACHED, "memcached-sample", json!({"spec": {"size": size}}))
            .await
            .expect_err("the API server refuses a size out of bounds");
        assert!(refused.contains("spec.size") && refused.contains("should be"), "{refused}");
    }

    world.delete(MEMCACHED, "memcached-sample").await;
    world.until_gone(MEMCACHED, "memcached-sample").await;
    world.until_gone(DEPLOYMENT, "memcached-sample").await;
    world.until_gone(SERVICE, "memcached-sample").await;
    for pod in world.list(POD).await {
        world.until_gone(POD, pod["metadata"]["name"].as_str().unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memcached_that_no_controller_has_seen_is_not_ready() {
    let world = World::new("untouched", "restricted").await;
    let created = world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    assert_eq!(created["status"]["observedGeneration"], -1);
    let of = |kind: &str| conditions(&created).find(|c| c["type"] == kind).cloned().unwrap();
    assert_eq!(
        (&of("Ready")["status"], &of("Ready")["reason"]),
        (&json!("Unknown"), &json!("Pending"))
    );
    let available = of("Available");
    assert_eq!(
        (&available["status"], &available["reason"]),
        (&json!("Unknown"), &json!("Reconciling"))
    );
    assert_eq!(available["message"], "Starting reconciliation");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_pod_is_removed_from_the_nodes_and_replaced() {
    let (world, _operator) = World::with_operator("evicted").await;
    world.create(MEMCACHED, memcached("cart", 3)).await.unwrap();
    let after = world.evict_a_pod("cart").await;
    let pods = world.list(POD).await;
    assert_eq!(pods.len(), 4, "the evicted one is still there");
    let mut live: Vec<Value> = pods
        .iter()
        .filter(|pod| pod["status"]["phase"] != "Failed")
        .map(|pod| pod["metadata"]["name"].clone())
        .collect();
    live.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
    assert_eq!(after["status"]["nodes"], Value::Array(live));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_reported_and_recovers() {
    let world = World::new("quota", "restricted").await;
    world.forbid("tight", "count/deployments.apps").await;
    let _operator = world.start_operator().await;
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    let told = world
        .until(MEMCACHED, "cart", |m| {
            has_condition(m, "Degraded", "True") && has_condition(m, "Available", "False")
        })
        .await;
    let available = conditions(&told).find(|c| c["type"] == "Available").unwrap();
    let message = available["message"].as_str().unwrap();
    assert!(
        message.starts_with("Failed to create Deployment for the custom resource (cart): ("),
        "{message}"
    );
    assert!(message.contains("quota"), "{message}");
    let raised = json!({"spec": {"hard": {"count/deployments.apps": "5"}}});
    world.patch(QUOTA, "tight", raised).await.unwrap();
    world.until(MEMCACHED, "cart", is_available).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_whose_usage_is_not_counted_yet_stalls_nothing() {
    // The controller that counts would do so at once.
    let plane = ControlPlane::of_this_test(|| ControlPlane::api_server_alone("new-quota")).await;
    let world = World::on(plane, "new-quota", "baseline").await;
    let hard = json!({"count/deployments.apps": "5"});
    let quota = json!({"metadata": {"name": "new"}, "spec": {"hard": hard}});
    world.create(QUOTA, quota).await.unwrap();
    let status = format!("{}/new/status", QUOTA.path(&world.namespace));
    world.patch_at(&status, json!({"status": {"hard": hard}})).await.unwrap();
    // Admission has its own cache, and nothing announces its changes.
    let container = json!({"name": "probe", "image": "probe"});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let probe = json!({"metadata": {"name": "probe"}, "spec": spec});
    let deadline = Instant::now() + MAX_WAIT;
    while world.dry_run(DEPLOYMENT, probe.clone()).await.is_ok() {
        assert!(Instant::now() < deadline, "admission does not see the quota");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let _operator = world.start_operator().await;
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    let told = world.until(MEMCACHED, "cart", |m| has_condition(m, "Degraded", "True")).await;
    let message = condition_message(&told, "Degraded");
    assert!(message.contains("status unknown for quota: new"), "{message}");
    assert!(!has_condition(&told, "Stalled", "True"), "{told}");
    let used = json!({"status": {"used": {"count/deployments.apps": "0"}}});
    world.patch_at(&status, used).await.unwrap();
    world.until(DEPLOYMENT, "cart", |_| true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disruption_budget_is_created_restored_and_deleted() {
    let (world, _operator) = World::with_operator("budget").await;
    let mut memcached = memcached("cart", 2);
    memcached["spec"]["podDisruptionBudget"] = json!({"maxUnavailable": 1});
    world.create(MEMCACHED, memcached).await.unwrap();
    let budget = world.until(BUDGET, "cart", |_| true).await;
    let selector = json!({"cache.example.com/memcached": "cart"});
    assert_eq!(budget["spec"]["selector"]["matchLabels"], selector);
    // The eviction API reads it: one of two pods can be evicted, and the other only after the first has been
    // replaced.
    world.until(BUDGET, "cart", |budget| budget["status"]["disruptionsAllowed"] == 1).await;

    // Both bounds together are refused, so a manual bound is removed.
    let by_hand = json!([{"op": "remove", "path": "/spec/maxUnavailable"},
        {"op": "add", "path": "/spec/minAvailable", "value": 2}]);
    let by_hand = by_hand.to_string();
    world.kubectl(&["patch", "pdb", "cart", "--type=json", "-p", &by_hand]).unwrap();
    let restored = |budget: &Value| {
        budget["spec"]["maxUnavailable"] == 1 && budget["spec"]["minAvailable"].is_null()
    };
    world.until(BUDGET, "cart", restored).await;
    world.delete(BUDGET, "cart").await;
    world.until(BUDGET, "cart", restored).await;

    world.patch(MEMCACHED, "cart", json!({"spec": {"podDisruptionBudget": null}})).await.unwrap();
    world.until_gone(BUDGET, "cart").await;
    world.until(MEMCACHED, "cart", is_ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_samples_for_production_become_ready() {
    let (world, _operator) = World::with_operator("production").await;
    for (file, kind, name) in
        [("memcached-production", MEMCACHED, "sessions"), ("app-production", APP, "shop")]
    {
        world.kubectl(&["apply", "-f", &format!("artifacts/examples/{file}.yaml")]).unwrap();
        world.until(kind, name, is_ready).await;
        world.until(BUDGET, name, |budget| budget["status"]["disruptionsAllowed"] == 1).await;
    }
    let deployment = world.get(DEPLOYMENT, "sessions").await.unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let spread = &pod["topologySpreadConstraints"][0];
    let selector = json!({"matchLabels": {"cache.example.com/memcached": "sessions"}});
    assert_eq!(spread["labelSelector"], selector);
    assert_eq!(pod["containers"][0]["resources"]["limits"]["memory"], "1300Mi");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scale_subresource_scales_a_memcached_permanently() {
    let (world, _operator) = World::with_operator("autoscaled").await;
    let object = json!({"metadata": {"name": "cart"}, "spec": {"size": 1}});
    world.create(MEMCACHED, object).await.unwrap();
    world.until(MEMCACHED, "cart", is_ready).await;
    let path = format!("{}/cart/scale", MEMCACHED.path(&world.namespace));
    for size in [3, 2, 0, 1] {
        let scaled = world.patch_at(&path, json!({"spec": {"replicas": size}})).await.unwrap();
        // Zero is omitted.
        assert_eq!(scaled["spec"]["replicas"].as_i64().unwrap_or(0), size);
        let ready = world.until(MEMCACHED, "cart", is_ready).await;
        assert_eq!(
            (&ready["spec"]["size"], &ready["status"]["size"]),
            (&json!(size), &json!(size))
        );
        let deployment = world.get(DEPLOYMENT, "cart").await.unwrap();
        assert_eq!(deployment["spec"]["replicas"], size);
    }
    let refused = world.patch_at(&path, json!({"spec": {"replicas": 4}})).await.unwrap_err();
    assert!(refused.contains("spec.size"), "{refused}");
    // An autoscaler reads the scale subresource to find and count the pods.
    let get = (http::Method::GET, "application/json", Value::Null);
    let scale = world.send(get.0, &path, get.1, get.2).await.unwrap();
    assert_eq!(scale["status"]["replicas"], 1);
    assert_eq!(scale["status"]["selector"], "cache.example.com/memcached=cart");
}
