//! Others who write what the operator writes.

use serde_json::{Value, json};

use crate::audit::writes_to;
use crate::world::{APP, DEPLOYMENT, MEMCACHED, World, has_condition, is_ready};

#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_scales_a_memcached_by_its_scale_subresource_and_nobody_reverses_it() {
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
    // The scale that an autoscaler reads to find and count the pods.
    let get = (http::Method::GET, "application/json", Value::Null);
    let scale = world.send(get.0, &path, get.1, get.2).await.unwrap();
    assert_eq!(scale["status"]["replicas"], 1);
    assert_eq!(scale["status"]["selector"], "cache.example.com/memcached=cart");
}

/// The maximum number of writes to one object in a minute while somebody undoes each one.
const MOST_A_MINUTE: usize = 12;

#[tokio::test(flavor = "multi_thread")]
async fn in_a_fight_over_a_field_the_operator_writes_seldom_and_says_so() {
    let (world, _operator) = World::with_operator_at("fight", "baseline").await;
    let object = json!({"metadata": {"name": "shop"}, "spec": {"image": "shop:1", "replicas": 1}});
    world.create(APP, object).await.unwrap();
    world.until(APP, "shop", is_ready).await;
    let before = ours(&world);
    // Somebody who immediately undoes whatever the operator does, until that is reported.
    let fight = async {
        loop {
            let restored = |d: &Value| d["spec"]["replicas"] != 2;
            world.until(DEPLOYMENT, "shop", restored).await;
            world.patch(DEPLOYMENT, "shop", json!({"spec": {"replicas": 2}})).await.unwrap();
        }
    };
    let told = world.until(APP, "shop", |app| {
        has_condition(app, "Degraded", "True")
            && crate::world::conditions(app).any(|c| c["reason"] == "Contested")
    });
    let told = tokio::select! {
        _ = fight => panic!("the other never gives up"),
        told = told => told,
    };
    assert!(!is_ready(&told));
    let writes = ours(&world) - before;
    assert!(writes <= MOST_A_MINUTE, "{writes} writes until it was told");
}

fn ours(world: &World) -> usize {
    writes_to(world, "deployments", "shop").iter().filter(|write| write.by_operator).count()
}
