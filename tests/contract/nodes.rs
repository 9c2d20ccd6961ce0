//! Nodes that are lost, return, or are deleted: the status of a GenericDaemon.
//!
//! Kubernetes' own node lifecycle controller considers a node lost when its Lease has not been renewed for a
//! while. The test stops kwok, which acts as the kubelet of all nodes. For the remaining nodes, the test
//! renews the Leases.

use std::time::Duration;

use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::degraded::may_list_nodes;
use crate::servers::Server;
use crate::world::{
    DAEMON_SET, GENERIC_DAEMON, NODE, POD, World, condition_message, conditions, has_condition,
    is_ready,
};

/// Maximum silence of a node. kwok renews each Lease every ten seconds.
const GRACE: &str = "20s";

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

async fn until_ready_on(world: &World, nodes: i64) -> Value {
    let ready = |d: &Value| is_ready(d) && d["status"]["installed"] == nodes;
    world.until(GENERIC_DAEMON, "genericdaemon", ready).await
}

async fn until(world: &World, condition: &str, status: &str, reason: &str) -> String {
    let wanted = (status, reason);
    world.until_condition(GENERIC_DAEMON, "genericdaemon", condition, wanted).await
}

/// Makes the DaemonSet controller count its nodes. A taint that neither starts nor deletes a pod does not
/// trigger this (`syncNodeUpdate` in k8s.io/kubernetes, pkg/controller/daemon).
pub async fn count_again(world: &World) {
    for daemon_set in world.list(DAEMON_SET).await {
        let name = daemon_set["metadata"]["name"].as_str().unwrap();
        let now = jiff::Timestamp::now().to_string();
        let touched = json!({"metadata": {"annotations": {"example.com/touched": now}}});
        world.patch(DAEMON_SET, name, touched).await.unwrap();
    }
}

/// Waits until these nodes report again, and reports the daemon's pods on them as ready. kwok does that only
/// when a pod starts.
async fn returned(world: &World, nodes: &[&str]) {
    for node in nodes {
        let reports = |node: &Value| {
            node["spec"]["taints"].is_null()
                && conditions(node).any(|c| c["type"] == "Ready" && c["status"] == "True")
        };
        world.until(NODE, node, reports).await;
    }
    for pod in world.list(POD).await {
        if nodes.iter().any(|node| pod["spec"]["nodeName"] == *node) {
            let ready = |kind: &str| json!({"type": kind, "status": "True"});
            let conditions = ["Ready", "ContainersReady", "PodScheduled"].map(ready);
            let status = json!({"status": {"conditions": conditions}});
            let pod = pod["metadata"]["name"].as_str().unwrap();
            let path = format!("{}/{pod}/status", POD.path(&world.namespace));
            world.patch_at(&path, status).await.unwrap();
        }
    }
}

/// Renews the Leases of these nodes, as their kubelets would.
async fn renew(world: &World, nodes: &[&str]) {
    loop {
        for node in nodes {
            let now = jiff::Timestamp::now();
            let patch = json!({"spec": {"renewTime": format!("{now:.6}")}});
            // The API server can be busy. The next renewal follows soon.
            drop(world.patch_at(&format!("{LEASES}/{node}"), patch).await);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn a_lost_node_is_named_until_it_returns_or_is_deleted() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::private("lost-node")).await;
    // A controller that soon considers nodes lost.
    let mut controllers = Server::of(plane, "kube-controller-manager");
    let soon = [("--node-monitor-grace-period", GRACE.to_owned())];
    let mut changed = controllers.like("kube-controller-manager", &soon);
    controllers.kill().await;
    changed.start();
    let world = World::on(plane, "lost-node", "baseline").await.patient(Duration::from_secs(120));
    may_list_nodes(plane, "lost-node");
    plane.kubectl(&["label", "node", "node-2", "logs=true"]);
    let mut kwok = Server::of(world.plane(), "kwok");
    let _operator = world.start_operator().await;
    let spec = json!({"image": "a:1", "label": "logs"});
    let daemon = json!({"metadata": {"name": "genericdaemon"}, "spec": spec});
    world.create(GENERIC_DAEMON, daemon).await.unwrap();
    until_ready_on(&world, 3).await;
    // The kubelet of node-1 stops.
    kwok.kill().await;
    let kept = renew(&world, &["node-0", "node-2", "node-3"]);
    let message = tokio::select! {
        () = kept => unreachable!("it goes on"),
        message = async {
            until(&world, "Degraded", "True", "NodeNotReady").await;
            // With the taint, the daemon does not belong on the node.
            let tainted = |node: &Value| node["spec"]["taints"].to_string().contains("unreachable");
            world.until(NODE, "node-1", tainted).await;
            count_again(&world).await;
            let two = |d: &Value| d["status"]["desired"] == 2 && !is_ready(d);
            let daemon = world.until(GENERIC_DAEMON, "genericdaemon", two).await;
            assert!(has_condition(&daemon, "Available", "True"), "{daemon:#}");
            condition_message(&daemon, "Ready")
        } => message,
    };
    assert!(message.contains("node-1") && message.contains("does not report"), "{message}");
    // It returns.
    kwok.start();
    returned(&world, &["node-0", "node-1", "node-2"]).await;
    until_ready_on(&world, 3).await;
    // It stops again, with all others, and is deleted.
    kwok.kill().await;
    let message = until(&world, "Degraded", "True", "NodeNotReady").await;
    assert!(message.contains("do not report") || message.contains("does not report"), "{message}");
    for node in ["node-0", "node-1", "node-2"] {
        world
            .until(NODE, node, |node| node["spec"]["taints"].to_string().contains("unreachable"))
            .await;
    }
    count_again(&world).await;
    // The list of nodes that named the first of them is reused for a while.
    let none = |d: &Value| {
        d["status"]["desired"] == 0
            && !is_ready(d)
            && condition_message(d, "Ready").contains("3 nodes do not report")
    };
    world.until(GENERIC_DAEMON, "genericdaemon", none).await;
    world.plane().kubectl(&["delete", "node", "node-1", "--wait=false"]);
    kwok.start();
    returned(&world, &["node-0", "node-2"]).await;
    until_ready_on(&world, 2).await;
}
