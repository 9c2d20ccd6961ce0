//! Owned objects that have lost their owner, in a restore from a backup or by an orphaning deletion.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::world::{
    APP, BUDGET, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, Kind, MEMCACHED, POD, SERVICE, World,
    is_ready,
};

/// A custom resource of each kind, and the kinds of its children.
fn one_of_each() -> [(Kind, &'static str, Value, &'static [Kind]); 3] {
    let budget = json!({"maxUnavailable": 1});
    let cart = json!({"size": 2, "podDisruptionBudget": budget});
    let shop = json!({"image": "shop:1", "replicas": 2, "ports": [{"port": 80}],
        "podDisruptionBudget": budget});
    let agent = json!({"image": "agent:1", "label": "logs"});
    [
        (MEMCACHED, "cart", cart, &[DEPLOYMENT, SERVICE, BUDGET]),
        (APP, "shop", shop, &[DEPLOYMENT, SERVICE, BUDGET]),
        (GENERIC_DAEMON, "agent", agent, &[DAEMON_SET]),
    ]
}

async fn created(world: &World) {
    for (kind, name, spec, _) in one_of_each() {
        world.create(kind, json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
    }
    for (kind, name, ..) in one_of_each() {
        world.until(kind, name, is_ready).await;
    }
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

async fn uids(world: &World, kind: Kind) -> BTreeSet<String> {
    world.list(kind).await.iter().map(uid).collect()
}

/// Returns the UIDs of all pods and of all objects that custom resources own.
async fn all_uids(world: &World) -> BTreeSet<String> {
    let mut all = uids(world, POD).await;
    for kind in [DEPLOYMENT, DAEMON_SET, SERVICE, BUDGET] {
        all.append(&mut uids(world, kind).await);
    }
    all
}

async fn controls_its_children(world: &World) {
    for (kind, name, _, children) in one_of_each() {
        let owner = uid(&world.until(kind, name, is_ready).await);
        for child in children {
            let there = world.get(*child, name).await.unwrap();
            let references = there["metadata"]["ownerReferences"].as_array().unwrap();
            assert_eq!(references.len(), 1, "{there:#}");
            assert_eq!(
                (&references[0]["uid"], &references[0]["controller"]),
                (&json!(owner), &json!(true))
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_are_adopted_by_the_recreated_custom_resource() {
    let (world, _operator) = World::with_operator_at("orphaned", "baseline").await;
    created(&world).await;
    let before = all_uids(&world).await;
    assert_eq!(before.len(), 6 + 3 + 2 + 2);
    for (kind, name, _, children) in one_of_each() {
        let what = format!("{}.{}/{name}", kind.plural(), kind.group());
        world.kubectl(&["delete", "--cascade=orphan", &what]).unwrap();
        for child in children {
            let there = world.get(*child, name).await.unwrap();
            assert!(there["metadata"]["ownerReferences"].is_null(), "{there:#}");
        }
    }
    created(&world).await;
    controls_its_children(&world).await;
    assert_eq!(all_uids(&world).await, before, "no pod was replaced");
    world.until_event("cart", "DeploymentAdopted").await;
    world.until_event("agent", "DaemonSetAdopted").await;
    // They are deleted with it as before.
    world.delete(APP, "shop").await;
    world.until_gone(DEPLOYMENT, "shop").await;
    world.until_gone(SERVICE, "shop").await;
}
