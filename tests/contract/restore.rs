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
        "envs": [{"name": "KEPT", "value": "1"}, {"name": "GONE", "value": "1"}],
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

/// Returns the object that a restore by Velero creates.
fn restored(object: &Value) -> Value {
    let from = &object["metadata"];
    let mut metadata = json!({"name": from["name"]});
    for field in ["labels", "annotations"] {
        if from[field].is_object() {
            metadata[field] = from[field].clone();
        }
    }
    let mut spec = object["spec"].clone();
    let is_assigned = spec["clusterIP"].as_str().is_some_and(|address| address != "None");
    if is_assigned {
        for field in ["clusterIP", "clusterIPs"] {
            spec.as_object_mut().unwrap().remove(field);
        }
    }
    json!({"metadata": metadata, "spec": spec})
}

/// Backs up the objects that the custom resources own, and deletes everything.
async fn backed_up(world: &World) -> Vec<(Kind, Value)> {
    let mut backup = Vec::new();
    for (kind, name, _, children) in one_of_each() {
        for child in children {
            backup.push((*child, restored(&world.get(*child, name).await.unwrap())));
        }
        world.delete(kind, name).await;
        world.until_gone(kind, name).await;
        for child in children {
            world.until_gone(*child, name).await;
        }
    }
    backup
}

#[tokio::test(flavor = "multi_thread")]
async fn owned_objects_restored_before_their_owner_are_adopted() {
    let (world, _operator) = World::with_operator_at("restored", "baseline").await;
    created(&world).await;
    let backup = backed_up(&world).await;
    for (child, object) in backup {
        world.create(child, object).await.unwrap();
    }
    for (name, available) in [("cart", 2), ("shop", 2)] {
        let is_available = |d: &Value| d["status"]["availableReplicas"] == available;
        world.until(DEPLOYMENT, name, is_available).await;
    }
    world.until(DAEMON_SET, "agent", |d| d["status"]["numberReady"] == 2).await;
    let pods = |all: Vec<Value>| -> BTreeSet<String> {
        let is_there = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
        all.iter().filter(is_there).map(uid).collect()
    };
    let (before, children) = (pods(world.list(POD).await), uids(&world, DEPLOYMENT).await);
    created(&world).await;
    controls_its_children(&world).await;
    assert_eq!(pods(world.list(POD).await), before, "no pod was replaced");
    assert_eq!(uids(&world, DEPLOYMENT).await, children);
    // Unwanted fields are removed, although the restore has set them, too.
    let kept = json!([{"name": "KEPT", "value": "1"}]);
    world.patch(APP, "shop", json!({"spec": {"envs": kept}})).await.unwrap();
    has_only(&world, "shop", &kept).await;
}

async fn has_only(world: &World, name: &str, envs: &Value) {
    let of = |d: &Value| d["spec"]["template"]["spec"]["containers"][0]["env"].clone();
    world.until(DEPLOYMENT, name, |d| of(d) == *envs).await;
    world.until(APP, name, is_ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_restored_object_is_adopted_and_updated() {
    let (world, _operator) = World::with_operator_at("restored-older", "baseline").await;
    created(&world).await;
    for (child, object) in backed_up(&world).await {
        world.create(child, object).await.unwrap();
    }
    let kept = json!([{"name": "KEPT", "value": "1"}]);
    let spec = json!({"image": "shop:2", "replicas": 1, "envs": kept,
        "ports": [{"port": 81, "nodePort": 30084}]});
    world.create(APP, json!({"metadata": {"name": "shop"}, "spec": spec})).await.unwrap();
    has_only(&world, "shop", &kept).await;
    let service = world.get(SERVICE, "shop").await.unwrap();
    let ports = service["spec"]["ports"].as_array().unwrap();
    assert_eq!((ports.len(), &ports[0]["port"]), (1, &json!(81)), "{service:#}");
}
