//! Memcached: `cache.example.com/v1alpha1`.

use serde_json::{Value, json};

use crate::world::{
    APP, BUDGET, DEPLOYMENT, EVENT, MEMCACHED, POD, SERVICE, World, conditions, has_condition,
    is_ready, memcached,
};

fn is_available(object: &Value) -> bool {
    has_condition(object, "Available", "True")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_walk_through_size_2_then_3_then_refused_4_then_everything_gone() {
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
async fn an_untouched_memcached_is_honest_before_any_controller_ran() {
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
async fn nodes_are_the_sorted_names_of_its_pods() {
    let (world, _operator) = World::with_operator("nodes-sorted").await;
    world.create(MEMCACHED, memcached("cart", 3)).await.unwrap();
    let found = world
        .until(MEMCACHED, "cart", |m| {
            is_available(m) && m["status"]["nodes"].as_array().is_some_and(|n| n.len() == 3)
        })
        .await;
    let mut pods: Vec<Value> =
        world.list(POD).await.iter().map(|pod| pod["metadata"]["name"].clone()).collect();
    pods.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
    assert_eq!(found["status"]["nodes"], Value::Array(pods));
    assert_eq!(
        (&found["status"]["size"], &found["status"]["readyReplicas"]),
        (&json!(3), &json!(3))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_pod_is_no_node_and_with_another_in_its_place_it_is_ready_again() {
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
async fn kubectl_scale_works_through_the_scale_subresource() {
    let (world, _operator) = World::with_operator("kubectl-scale").await;
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    world.until(MEMCACHED, "cart", is_available).await;
    world.kubectl(&["scale", "memcached", "cart", "--replicas=3"]).unwrap();
    let scaled =
        world.until(MEMCACHED, "cart", |m| is_available(m) && m["status"]["size"] == 3).await;
    let selector = scaled["status"]["selector"].as_str().unwrap();
    let pods = world.kubectl(&["get", "pods", "-l", selector, "-o", "name"]).unwrap();
    assert_eq!(pods.lines().count(), 3, "an autoscaler finds the pods by {selector}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_runs_the_finalizer_and_says_so() {
    let (world, _operator) = World::with_operator("finalizer").await;
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    let found = world
        .until(MEMCACHED, "cart", |m| {
            is_available(m) && m["metadata"]["finalizers"] == json!(["cache.example.com/finalizer"])
        })
        .await;
    // A foreign finalizer holds the object, so that its last state can be read.
    world
        .patch(
            MEMCACHED,
            "cart",
            json!({"metadata": {"finalizers": ["cache.example.com/finalizer", "example.com/keep"],
                "resourceVersion": found["metadata"]["resourceVersion"]}}),
        )
        .await
        .or(world
            .patch(MEMCACHED, "cart", json!({"metadata": {"finalizers": ["cache.example.com/finalizer", "example.com/keep"]}}))
            .await)
        .unwrap();
    world.delete(MEMCACHED, "cart").await;
    let last = world
        .until(MEMCACHED, "cart", |m| m["metadata"]["finalizers"] == json!(["example.com/keep"]))
        .await;
    let degraded = conditions(&last).find(|c| c["type"] == "Degraded").unwrap();
    assert_eq!((&degraded["status"], &degraded["reason"]), (&json!("True"), &json!("Finalizing")));
    assert_eq!(
        degraded["message"],
        "Finalizer operations for custom resource cart name were successfully accomplished"
    );
    let event = world.until_event("cart", "Deleting").await;
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["note"], "Custom Resource cart is being deleted from the namespace finalizer");
    world.patch(MEMCACHED, "cart", json!({"metadata": {"finalizers": null}})).await.unwrap();
    world.until_gone(MEMCACHED, "cart").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_that_forbids_is_told_and_heals_when_it_is_raised() {
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
    world.patch(crate::world::QUOTA, "tight", raised).await.unwrap();
    world.until(MEMCACHED, "cart", is_available).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_memcacheds_in_a_namespace_share_no_pod() {
    let (world, _operator) = World::with_operator("two-of-them").await;
    for name in ["one", "two"] {
        world.create(MEMCACHED, memcached(name, 2)).await.unwrap();
    }
    for name in ["one", "two"] {
        let found = world
            .until(MEMCACHED, name, |m| {
                is_available(m) && m["status"]["nodes"].as_array().is_some_and(|n| n.len() == 2)
            })
            .await;
        for node in found["status"]["nodes"].as_array().unwrap() {
            assert!(node.as_str().unwrap().starts_with(&format!("{name}-")), "{node}");
        }
    }
    assert!(!world.list(EVENT).await.iter().any(|e| e["reason"] == "ErrResourceExists"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disruption_budget_comes_is_restored_and_goes_with_its_field() {
    let (world, _operator) = World::with_operator("budget").await;
    let mut memcached = memcached("cart", 2);
    memcached["spec"]["podDisruptionBudget"] = json!({"maxUnavailable": 1});
    world.create(MEMCACHED, memcached).await.unwrap();
    let budget = world.until(BUDGET, "cart", |_| true).await;
    let selector = json!({"cache.example.com/memcached": "cart"});
    assert_eq!(budget["spec"]["selector"]["matchLabels"], selector);
    // The eviction API reads it: one of two may go, and not the other before the first is back.
    world.until(BUDGET, "cart", |budget| budget["status"]["disruptionsAllowed"] == 1).await;

    // Both bounds at once are refused, so a bound that was set by hand goes.
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
