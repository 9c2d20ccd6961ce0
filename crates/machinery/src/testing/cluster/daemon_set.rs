//! The controller of DaemonSets (pkg/controller/daemon in k8s.io/kubernetes).

use serde_json::json;

use super::deployment::counts;
use super::{NODES, Object, PODS, Snapshot, Sync, amount, fits, hash, may_stay, target};

pub(super) fn sync(snapshot: &Snapshot, set: &Object, sync: &mut Sync) {
    if set.is_deleting() || !set.at("/spec/template").is_object() {
        return;
    }
    let hash = hash(set.at("/spec/template"));
    let pods: Vec<_> = snapshot.owned_by(set, PODS).collect();
    delete_lost(snapshot, &pods, sync);
    let on = |node: &Object| {
        let name = node.id.name.clone();
        pods.iter().copied().filter(move |pod| target(pod) == name)
    };
    let is_new =
        |pod: &Object| pod.value["metadata"]["labels"]["controller-revision-hash"] == *hash;
    let min_ready = set.number("/spec/minReadySeconds");
    let available = |pod: &Object| snapshot.is_available(pod, min_ready);
    let (mut wanted, mut current, mut misplaced) = (0, 0, 0);
    let (mut ready, mut updated, mut serving) = (0, 0, 0);
    let mut old = Vec::new();
    for node in snapshot.of_resource(NODES) {
        let mut there: Vec<_> = on(node).collect();
        let template = set.at("/spec/template/spec");
        if !fits(template, node, true) {
            misplaced += i64::from(!there.is_empty());
            if !may_stay(template, node) {
                there.iter().filter(|pod| !pod.is_deleting()).for_each(|pod| sync.delete(pod));
            }
            continue;
        }
        wanted += 1;
        if there.is_empty() {
            sync.create_pod(set, "DaemonSet", Some(&node.id.name), Some(&hash));
            continue;
        }
        current += 1;
        there.sort_by_key(|pod| pod.text("/metadata/creationTimestamp").to_owned());
        let Some(pod) = there.into_iter().find(|pod| !pod.is_deleting()) else { continue };
        ready += i64::from(pod.is("Ready"));
        updated += i64::from(is_new(pod));
        serving += i64::from(available(pod));
        sync.waits |= pod.is("Ready") && !available(pod);
        if !is_new(pod) {
            old.push(pod);
        }
    }
    let old: Vec<_> = old.into_iter().map(|pod| (pod, available(pod))).collect();
    replace(set, &old, wanted, wanted - serving, sync);
    let mut status = counts(&[
        ("observedGeneration", set.number("/metadata/generation")),
        ("updatedNumberScheduled", updated),
        ("numberAvailable", serving),
        ("numberUnavailable", wanted - serving),
    ]);
    // Kubernetes serializes these even if they are zero.
    for (name, count) in [
        ("currentNumberScheduled", current),
        ("desiredNumberScheduled", wanted),
        ("numberMisscheduled", misplaced),
        ("numberReady", ready),
    ] {
        status[name] = json!(count);
    }
    sync.status(set, status);
}

/// Deletes evicted pods, so that others replace them, and pods for nodes that were deleted.
fn delete_lost(snapshot: &Snapshot, pods: &[&Object], sync: &mut Sync) {
    let is_lost = |pod: &Object| {
        pod.text("/status/phase") == "Failed"
            || snapshot.of_resource(NODES).all(|node| node.id.name != target(pod))
    };
    let lost = pods.iter().filter(|pod| is_lost(pod) && !pod.is_deleting());
    lost.for_each(|pod| sync.delete(pod));
}

/// Deletes pods of an old template, as far as `maxUnavailable` permits. `old`: each pod, and true if it is available.
fn replace(set: &Object, old: &[(&Object, bool)], wanted: i64, missing: i64, sync: &mut Sync) {
    if set.text("/spec/updateStrategy/type") == "OnDelete" {
        return;
    }
    let limit = set.at("/spec/updateStrategy/rollingUpdate/maxUnavailable");
    let limit = if limit.is_null() { 1 } else { amount(limit, "0%", wanted, true) };
    let mut allowed = limit.max(1) - missing;
    for (pod, serves) in old {
        if !serves || allowed > 0 {
            sync.delete(pod);
            allowed -= i64::from(*serves);
        }
    }
}
