//! The status of workloads whose pods do not serve.
//!
//! Quotas, Pod Security, taints, the scheduler and `kubectl rollout pause` decide. The other states of pods are
//! in src/workload/health/tests/table.rs and tests/operator/degraded.rs.

use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::world::{
    APP, DEPLOYMENT, GENERIC_DAEMON, MEMCACHED, NODE, World, conditions, has_condition, is_ready,
    memcached,
};

#[tokio::test(flavor = "multi_thread")]
async fn refused_pods_are_reported_with_the_controllers_message() {
    let (world, _operator) = World::with_operator("degraded-refused").await;
    // Its pods run as the user that the image names, which `restricted` does not allow.
    let daemon =
        json!({"metadata": {"name": "insecure"}, "spec": {"image": "a:1", "label": "logs"}});
    world.create(GENERIC_DAEMON, daemon).await.unwrap();
    let message = world
        .until_condition(GENERIC_DAEMON, "insecure", "Degraded", ("True", "ReplicaFailure"))
        .await;
    assert!(message.contains("violates PodSecurity"), "{message}");
    // It can resolve itself. After five minutes, it is Stalled.
    let object = world.get(GENERIC_DAEMON, "insecure").await.unwrap();
    assert!(!has_condition(&object, "Stalled", "True"), "{object:#}");

    world.forbid("none", "pods").await;
    world.create(MEMCACHED, memcached("refused", 1)).await.unwrap();
    let message =
        world.until_condition(MEMCACHED, "refused", "Degraded", ("True", "ReplicaFailure")).await;
    assert!(message.contains("exceeded quota: none"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unschedulable_pod_is_reported_with_the_schedulers_message() {
    let (world, _operator) = World::with_operator_at("degraded-large", "baseline").await;
    let spec = json!({"image": "a:1", "resources": {"requests": {"cpu": "100k"}}});
    world.create(APP, json!({"metadata": {"name": "large"}, "spec": spec})).await.unwrap();
    let message =
        world.until_condition(APP, "large", "Degraded", ("True", "PodsUnschedulable")).await;
    assert!(message.contains("Pod large-") && message.contains("Insufficient cpu"), "{message}");
    let object = world.get(APP, "large").await.unwrap();
    assert!(has_condition(&object, "Reconciling", "True"), "the rollout goes on: {object:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_paused_by_kubectl_is_reported_while_changes_wait() {
    let (world, _operator) = World::with_operator_at("degraded-held", "baseline").await;
    let app = json!({"metadata": {"name": "shop"}, "spec": {"image": "a:1", "replicas": 2}});
    world.create(APP, app).await.unwrap();
    world.until(APP, "shop", is_ready).await;
    world.kubectl(&["rollout", "pause", "deployment/shop"]).unwrap();
    world
        .until(DEPLOYMENT, "shop", |d| conditions(d).any(|c| c["reason"] == "DeploymentPaused"))
        .await;
    world.until(APP, "shop", is_ready).await;
    world.patch(APP, "shop", json!({"spec": {"image": "a:2"}})).await.unwrap();
    let message = world.until_condition(APP, "shop", "Ready", ("False", "RolloutPaused")).await;
    assert!(message.contains("kubectl rollout resume deployment/shop"), "{message}");
    let object = world.get(APP, "shop").await.unwrap();
    assert_eq!(object["status"]["updatedReplicas"], 0, "{object:#}");
    world.kubectl(&["rollout", "resume", "deployment/shop"]).unwrap();
    world.until(APP, "shop", |shop| is_ready(shop) && shop["status"]["updatedReplicas"] == 2).await;
}

/// Allows the operator to list nodes, as in an installation for the whole cluster.
pub fn may_list_nodes(plane: &ControlPlane, namespace: &str) {
    let account = format!("--serviceaccount={namespace}:workload-operator");
    plane.kubectl(&["create", "clusterrole", "nodes", "--verb=list", "--resource=nodes"]);
    plane.kubectl(&["create", "clusterrolebinding", "nodes", "--clusterrole=nodes", &account]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tainted_nodes_are_not_reported_as_unlabelled() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::private("taints")).await;
    let world = World::on(plane, "taints", "baseline").await;
    may_list_nodes(plane, "taints");
    let all = world.list(NODE).await.len();
    plane.kubectl(&["taint", "nodes", "--all", "dedicated=db:NoSchedule"]);
    let _operator = world.start_operator().await;
    let daemon = |name: &str, label: Value| json!({"metadata": {"name": name}, "spec": {"image": "a:1", "label": label}});
    world.create(GENERIC_DAEMON, daemon("logs", json!("logs"))).await.unwrap();
    world.create(GENERIC_DAEMON, daemon("everywhere", Value::Null)).await.unwrap();
    world.create(GENERIC_DAEMON, daemon("nowhere", json!("no-node-has-this"))).await.unwrap();
    let tainted = ("False", "NodesTainted");
    let message = world.until_condition(GENERIC_DAEMON, "logs", "Ready", tainted).await;
    let sentence =
        "2 nodes have the label, but their taint dedicated=db:NoSchedule keeps the daemon out";
    assert_eq!(message, sentence);
    world.until_condition(GENERIC_DAEMON, "logs", "Degraded", ("True", "NodesTainted")).await;
    let message = world.until_condition(GENERIC_DAEMON, "everywhere", "Ready", tainted).await;
    assert!(message.starts_with(&format!("There are {all} nodes, but their taint")), "{message}");
    world.until_condition(GENERIC_DAEMON, "nowhere", "Ready", ("True", "NoMatchingNodes")).await;
    plane.kubectl(&["taint", "nodes", "--all", "dedicated-"]);
    for name in ["logs", "everywhere"] {
        world.until(GENERIC_DAEMON, name, is_ready).await;
    }
}
