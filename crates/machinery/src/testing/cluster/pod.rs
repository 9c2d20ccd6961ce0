//! The scheduler and the kubelets.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::job::{has_ended, is_of_a_job};
use super::{NODES, Object, PODS, PodState, Snapshot, Step, Sync, fits, renewed, target};

/// Assigns each pod without a node to the suitable node with the fewest pods.
pub(super) fn schedule(snapshot: &Snapshot, sync: &mut Sync) {
    let mut loads: BTreeMap<&str, usize> =
        snapshot.of_resource(NODES).map(|node| (node.id.name.as_str(), 0)).collect();
    for pod in snapshot.of_resource(PODS).filter(|pod| !has_ended(pod)) {
        if let Some(load) = loads.get_mut(pod.text("/spec/nodeName")) {
            *load += 1;
        }
    }
    let waiting = |pod: &&Object| pod.text("/spec/nodeName").is_empty() && !pod.is_deleting();
    for pod in snapshot.of_resource(PODS).filter(waiting) {
        let candidates = snapshot.of_resource(NODES).filter(|node| {
            let room = node.at("/status/allocatable/pods").as_str().and_then(|it| it.parse().ok());
            let load = loads.get(node.id.name.as_str()).copied().unwrap_or_default();
            let is_possible = match target(pod) {
                "" => node.is("Ready") && fits(&pod.value["spec"], node, false),
                target => target == node.id.name && fits(&pod.value["spec"], node, true),
            };
            let has_room = room.is_none_or(|room: usize| load < room);
            is_possible && has_room && !node.is_deleting()
        });
        let least = candidates.min_by_key(|node| loads.get(node.id.name.as_str()));
        if let Some(node) = least {
            if let Some(load) = loads.get_mut(node.id.name.as_str()) {
                *load += 1;
            }
            let binding = json!({"spec": {"nodeName": node.id.name}});
            sync.steps.push(Step::Patch(pod.id.clone(), binding));
        } else {
            let nodes = snapshot.of_resource(NODES).count();
            let message = format!("0/{nodes} nodes are available: none has what the pod asks for.");
            let scheduled = json!({"type": "PodScheduled", "status": "False",
                "reason": "Unschedulable", "message": message});
            let scheduled = renewed(&pod.value["status"], scheduled, &snapshot.now);
            sync.status(pod, json!({"phase": "Pending", "conditions": [scheduled]}));
        }
    }
}

/// Updates each pod on a node to its state, and removes pods that terminate or whose node was deleted.
pub(super) fn run(
    snapshot: &Snapshot,
    states: &mut dyn FnMut(&Value) -> PodState,
    sync: &mut Sync,
) {
    for pod in snapshot.of_resource(PODS) {
        let name = pod.text("/spec/nodeName");
        if name.is_empty() {
            continue;
        }
        let node = snapshot.of_resource(NODES).find(|node| node.id.name == name);
        if node.is_none() || pod.is_deleting() {
            if pod.at("/metadata/finalizers").as_array().is_none_or(Vec::is_empty) {
                sync.steps.push(Step::Remove(pod.id.clone()));
            }
        } else if node.is_some_and(|node| node.is("Ready")) && !has_ended(pod) {
            let status = status(pod, &states(&pod.value), &snapshot.now);
            sync.status(pod, status);
        }
    }
}

fn status(pod: &Object, state: &PodState, now: &str) -> Value {
    let before = pod.at("/status");
    let started = before.get("startTime").cloned().unwrap_or_else(|| json!(now));
    let ends_by = is_of_a_job(pod).then_some(match state {
        // Only after a status that shows it running.
        PodState::Ready if before["phase"] == "Running" => Some("Succeeded"),
        PodState::Failed => Some("Failed"),
        _ => None,
    });
    let end = ends_by.flatten();
    let is_ready = *state == PodState::Ready && end.is_none();
    let containers: Vec<_> = pod.at("/spec/containers").as_array().into_iter().flatten().collect();
    let names: Vec<_> = containers.iter().filter_map(|it| it["name"].as_str()).collect();
    let condition = |kind: &str, holds: bool| {
        let mut condition = json!({"type": kind, "status": if holds { "True" } else { "False" }});
        if !holds {
            condition["reason"] = json!("ContainersNotReady");
            let names = names.join(" ");
            condition["message"] = json!(format!("containers with unready status: [{names}]"));
        }
        renewed(before, condition, now)
    };
    let waiting = match state {
        PodState::Waiting { reason, message } => {
            Some(json!({"reason": reason, "message": message}))
        }
        PodState::Ready | PodState::Unready | PodState::Failed => None,
    };
    let of_container = |container: &&Value| {
        let state = match &waiting {
            Some(waiting) => json!({"waiting": waiting}),
            None if end.is_some() => {
                let (code, reason) =
                    if end == Some("Failed") { (1, "Error") } else { (0, "Completed") };
                json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": started,
                    "finishedAt": now}})
            }
            None => json!({"running": {"startedAt": started}}),
        };
        json!({"name": container["name"], "image": container["image"], "ready": is_ready,
            "restartCount": 0, "started": waiting.is_none() && end.is_none(), "state": state})
    };
    json!({
        "phase": end.unwrap_or(if waiting.is_some() { "Pending" } else { "Running" }),
        "startTime": started,
        "conditions": [
            condition("PodReadyToStartContainers", true),
            condition("Initialized", true),
            condition("Ready", is_ready),
            condition("ContainersReady", is_ready),
            condition("PodScheduled", true),
        ],
        "containerStatuses": containers.iter().map(of_container).collect::<Vec<_>>(),
    })
}
