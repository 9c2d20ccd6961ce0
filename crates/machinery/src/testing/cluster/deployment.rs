//! The controllers of Deployments and ReplicaSets (pkg/controller/deployment and replicaset in k8s.io/kubernetes).

use std::cmp::Reverse;

use serde_json::{Map, Value, json};

use super::{
    Object, PODS, REPLICA_SETS, Snapshot, Step, Sync, amount, condition, hash, reference, renewed,
};
use crate::testing::Id;

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";

/// A Deployment with its ReplicaSets.
struct Rollout<'a> {
    deployment: &'a Object,
    /// The ReplicaSet of the current template.
    new: Option<&'a Object>,
    old: Vec<&'a Object>,
    wanted: i64,
    surge: i64,
    unavailable: i64,
}

pub(super) fn sync(snapshot: &Snapshot, deployment: &Object, sync: &mut Sync) {
    // A real API server refuses a template without labels.
    let labels = deployment.at("/spec/template/metadata/labels").as_object();
    if deployment.is_deleting() || labels.is_none_or(Map::is_empty) {
        return;
    }
    let is_new = |set: &&Object| bare_template(set) == *deployment.at("/spec/template");
    let all = snapshot.owned_by(deployment, REPLICA_SETS);
    let (new, old): (Vec<_>, Vec<_>) = all.partition(is_new);
    let wanted = deployment.at("/spec/replicas").as_i64().unwrap_or(1).max(0);
    let limits = deployment.at("/spec/strategy/rollingUpdate");
    let surge = amount(&limits["maxSurge"], "25%", wanted, true);
    let unavailable = amount(&limits["maxUnavailable"], "25%", wanted, false);
    // If both are 0, no pod can be replaced (ResolveFenceposts).
    let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
    let new = new.first().copied();
    let rollout = Rollout { deployment, new, old, wanted, surge, unavailable };
    rollout.scale(snapshot, sync);
    rollout.forget(sync);
    rollout.report(snapshot, sync);
}

/// Returns the template of a ReplicaSet without the hash.
fn bare_template(set: &Object) -> Value {
    let mut template = set.at("/spec/template").clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove(HASH);
    }
    template
}

fn replicas(set: &Object) -> i64 {
    set.at("/spec/replicas").as_i64().unwrap_or(1)
}

impl<'a> Rollout<'a> {
    fn all(&self) -> impl Iterator<Item = &'a Object> {
        self.old.iter().copied().chain(self.new)
    }

    fn sum(&self, pointer: &str) -> i64 {
        self.all().map(|set| set.number(pointer)).sum()
    }

    fn is_paused(&self) -> bool {
        *self.deployment.at("/spec/paused") == true
    }

    fn scale(&self, snapshot: &Snapshot, sync: &mut Sync) {
        let recreates = self.deployment.text("/spec/strategy/type") == "Recreate";
        let current: i64 = self.all().map(replicas).sum();
        let of_old: i64 = self.old.iter().map(|set| replicas(set)).sum();
        if self.is_paused() {
            let mut active = self.all().filter(|set| replicas(set) > 0);
            let only = active.next().filter(|_| active.next().is_none());
            let newest = || self.new.or_else(|| self.all().max_by_key(|set| revision(set)));
            if let Some(set) = only.or_else(newest) {
                resize(set, replicas(set) + self.wanted - current, sync);
            }
            return;
        }
        if recreates && (of_old > 0 || self.old.iter().any(|set| has_pods(snapshot, set))) {
            self.old.iter().for_each(|set| resize(set, 0, sync));
            return;
        }
        let room = if recreates { self.wanted } else { self.wanted + self.surge - current };
        match self.new {
            None => self.create(room.clamp(0, self.wanted), sync),
            Some(new) if replicas(new) > self.wanted => resize(new, self.wanted, sync),
            Some(new) => {
                let size = replicas(new) + room.clamp(0, self.wanted - replicas(new));
                resize(new, size, sync);
                if size == replicas(new) {
                    self.scale_down_old(new, current, sync);
                }
            }
        }
    }

    /// Scales down the old ReplicaSets, unavailable pods first (reconcileOldReplicaSets).
    fn scale_down_old(&self, new: &Object, current: i64, sync: &mut Sync) {
        let fewest = self.wanted - self.unavailable;
        let missing_of_new = replicas(new) - new.number("/status/availableReplicas");
        let mut surplus = current - fewest - missing_of_new;
        let mut spare = self.sum("/status/availableReplicas") - fewest;
        for set in &self.old {
            let available = set.number("/status/availableReplicas").min(replicas(set));
            let broken = (replicas(set) - available).min(surplus).max(0);
            surplus -= broken;
            let working = available.min(spare).min(surplus).max(0);
            (spare, surplus) = (spare - working, surplus - working);
            resize(set, replicas(set) - broken - working, sync);
        }
    }

    fn create(&self, size: i64, sync: &mut Sync) {
        let deployment = self.deployment;
        let hash = hash(deployment.at("/spec/template"));
        let mut template = deployment.at("/spec/template").clone();
        template["metadata"]["labels"][HASH] = json!(hash);
        let mut selector = deployment.at("/spec/selector").clone();
        selector["matchLabels"][HASH] = json!(hash);
        let revision = self.all().map(revision).max().unwrap_or(0) + 1;
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "labels": template["metadata"]["labels"],
                "annotations": { REVISION: revision.to_string() },
                "ownerReferences": [reference(deployment, "Deployment")],
            },
            "spec": {
                "replicas": size, "selector": selector, "template": template,
                "minReadySeconds": deployment.number("/spec/minReadySeconds"),
            },
            "status": { "replicas": 0 },
        });
        let name = format!("{}-{hash}", deployment.id.name);
        sync.steps.push(Step::Create(Id::new(REPLICA_SETS, &deployment.id.namespace, name), set));
    }

    /// Deletes the oldest ReplicaSets beyond `revisionHistoryLimit`.
    fn forget(&self, sync: &mut Sync) {
        let limit = self.deployment.at("/spec/revisionHistoryLimit").as_u64().unwrap_or(10);
        let is_empty = |set: &&&Object| replicas(set) == 0 && set.number("/status/replicas") == 0;
        let mut empty: Vec<_> = self.old.iter().filter(is_empty).collect();
        empty.sort_by_key(|set| revision(set));
        let surplus = self.old.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        empty.into_iter().take(surplus).for_each(|set| sync.delete(set));
    }

    fn report(&self, snapshot: &Snapshot, sync: &mut Sync) {
        let before = self.deployment.at("/status");
        let available = self.sum("/status/availableReplicas");
        let updated = self.new.map_or(0, |new| new.number("/status/replicas"));
        let asked: i64 = self.all().map(replicas).sum();
        let mut status = counts(&[
            ("observedGeneration", self.deployment.number("/metadata/generation")),
            ("replicas", self.sum("/status/replicas")),
            ("updatedReplicas", updated),
            ("readyReplicas", self.sum("/status/readyReplicas")),
            ("availableReplicas", available),
            ("unavailableReplicas", (asked - available).max(0)),
        ]);
        let (reason, message, value) = if available >= self.wanted - self.unavailable {
            ("MinimumReplicasAvailable", "Deployment has minimum availability.", "True")
        } else {
            (
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
                "False",
            )
        };
        let is_available =
            json!({"type": "Available", "status": value, "reason": reason, "message": message});
        let mut conditions = vec![touched(before, is_available, &snapshot.now)];
        conditions.extend(self.progressing(snapshot, before, &status, sync));
        status["conditions"] = json!(conditions);
        sync.status(self.deployment, status);
    }

    /// Returns the condition Progressing (checkPausedConditions and syncRolloutStatus).
    fn progressing(
        &self,
        snapshot: &Snapshot,
        before: &Value,
        status: &Value,
        sync: &mut Sync,
    ) -> Option<Value> {
        let old = condition(before, "Progressing");
        let is = |reason: &str| old.is_some_and(|old| old["reason"] == reason);
        let made = |reason: &str, value: &str, message: &str| {
            let new = json!({"type": "Progressing", "status": value, "reason": reason, "message": message});
            Some(touched(before, new, &snapshot.now))
        };
        if self.is_paused() {
            let is_late = is("ProgressDeadlineExceeded");
            let paused = made("DeploymentPaused", "Unknown", "Deployment is paused");
            return if is_late { old.cloned() } else { paused };
        }
        if is("DeploymentPaused") {
            return made("DeploymentResumed", "Unknown", "Deployment is resumed");
        }
        let Some(new) = self.new else {
            return made("NewReplicaSetCreated", "True", "Created new replica set");
        };
        let of_new = format!("ReplicaSet {:?}", new.id.name);
        let is_done = is("NewReplicaSetAvailable");
        let names_it =
            old.is_some_and(|old| old["message"].as_str().is_some_and(|it| it.contains(&of_new)));
        // Only a new template restarts a finished rollout, not the deletion and creation of pods.
        if is_done && names_it && self.old.iter().all(|set| replicas(set) == 0) {
            return old.cloned();
        }
        let count = |of: &Value, what: &str| of[what].as_i64().unwrap_or(0);
        let is_wanted = |what: &&str| count(status, what) == self.wanted;
        if ["updatedReplicas", "replicas", "availableReplicas"].iter().all(is_wanted) {
            let message = format!("{of_new} has successfully progressed.");
            return made("NewReplicaSetAvailable", "True", &message);
        }
        let left = |of: &Value| count(of, "replicas") - count(of, "updatedReplicas");
        let moved = ["updatedReplicas", "readyReplicas", "availableReplicas"]
            .iter()
            .any(|what| count(status, what) > count(before, what))
            || left(status) < left(before);
        if moved || is_done || old.is_none() {
            let message = format!("{of_new} is progressing.");
            let mut moving = made("ReplicaSetUpdated", "True", &message)?;
            moving["lastUpdateTime"] = json!(snapshot.now);
            return Some(moving);
        }
        let deadline = self.deployment.at("/spec/progressDeadlineSeconds").as_i64().unwrap_or(600);
        let since = old.and_then(|old| old["lastUpdateTime"].as_str()).unwrap_or_default();
        let is_late = is("ProgressDeadlineExceeded");
        if is_late || !snapshot.is_past(since, deadline) {
            sync.waits |= !is_late;
            return old.cloned();
        }
        made("ProgressDeadlineExceeded", "False", &format!("{of_new} has timed out progressing."))
    }
}

/// Returns a condition of a Deployment, which has two times.
fn touched(before: &Value, new: Value, now: &str) -> Value {
    let kind = new["type"].as_str().unwrap_or_default().to_owned();
    let is_same =
        |old: &&Value| ["status", "reason", "message"].iter().all(|field| old[field] == new[field]);
    let updated = condition(before, &kind).filter(is_same).map(|old| old["lastUpdateTime"].clone());
    let mut new = renewed(before, new, now);
    new["lastUpdateTime"] = updated.unwrap_or_else(|| json!(now));
    new
}

/// Returns the counts that are not zero, as Kubernetes serializes them.
pub(super) fn counts(all: &[(&str, i64)]) -> Value {
    let some = all.iter().filter(|(_, count)| *count != 0);
    some.map(|(name, count)| ((*name).to_owned(), json!(count))).collect::<Map<_, _>>().into()
}

fn revision(set: &Object) -> u64 {
    set.value["metadata"]["annotations"][REVISION]
        .as_str()
        .and_then(|it| it.parse().ok())
        .unwrap_or(0)
}

/// Returns whether a pod has not ended (oldPodsRunning).
fn has_pods(snapshot: &Snapshot, set: &Object) -> bool {
    let has_ended = |pod: &Object| ["Failed", "Succeeded"].contains(&pod.text("/status/phase"));
    snapshot.owned_by(set, PODS).any(|pod| !has_ended(pod))
}

fn resize(set: &Object, size: i64, sync: &mut Sync) {
    let size = size.max(0);
    if replicas(set) != size {
        sync.steps.push(Step::Patch(set.id.clone(), json!({"spec": {"replicas": size}})));
    }
}

pub(super) fn sync_replica_set(snapshot: &Snapshot, set: &Object, sync: &mut Sync) {
    if set.is_deleting() {
        return;
    }
    let is_active = |pod: &&Object| {
        !pod.is_deleting() && !["Failed", "Succeeded"].contains(&pod.text("/status/phase"))
    };
    let mut pods: Vec<_> = snapshot.owned_by(set, PODS).filter(is_active).collect();
    let wanted = usize::try_from(replicas(set)).unwrap_or(0);
    for _ in pods.len()..wanted {
        sync.create_pod(set, "ReplicaSet", None, None);
    }
    // Deletes unavailable pods first, then the newest.
    pods.sort_by_key(|pod| {
        let created = pod.text("/metadata/creationTimestamp").to_owned();
        (!pod.text("/spec/nodeName").is_empty(), pod.is("Ready"), Reverse(created))
    });
    let (gone, kept) = pods.split_at(pods.len().saturating_sub(wanted));
    gone.iter().for_each(|pod| sync.delete(pod));

    let min_ready = set.number("/spec/minReadySeconds");
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let ready = kept.iter().filter(|pod| pod.is("Ready")).count();
    let available = kept.iter().filter(|pod| snapshot.is_available(pod, min_ready)).count();
    sync.waits |= available < ready;
    let mut status = counts(&[
        ("observedGeneration", set.number("/metadata/generation")),
        ("fullyLabeledReplicas", number(kept.len())),
        ("readyReplicas", number(ready)),
        ("availableReplicas", number(available)),
    ]);
    status["replicas"] = json!(kept.len());
    sync.status(set, status);
}
