//! Simplified versions of Kubernetes' own controllers, which create the pods of Deployments, DaemonSets and Jobs.
//!
//! Guarantees
//! - A Deployment gets a ReplicaSet per template, and rolls out according to `maxSurge` and `maxUnavailable`, or by
//!   Recreate. Its status has the counts, and the conditions Available and Progressing, with `progressDeadlineSeconds`.
//! - A DaemonSet gets a pod on each eligible node, and replaces pods of an old template according to `maxUnavailable`.
//! - A Job gets pods until enough of them have succeeded, or more than `backoffLimit` have failed. It is deleted after
//!   `ttlSecondsAfterFinished`. A pod of a Job succeeds as soon as it has been ready.
//! - A pod is scheduled to a node that its `nodeSelector`, required node affinity and tolerations permit, and that has
//!   fewer pods than `status.allocatable.pods`. Then it gets the state that [`Cluster::pods_are`] sets.
//! - When a namespace is deleted, its objects are deleted first. When an owner is deleted, its objects are deleted,
//!   too.
//! - Each controller acts on the state of [`LATENCY`] ago, so a controller under test sees intermediate states, such as
//!   a new `observedGeneration` with old counts.
//!
//! Differences from the real controllers:
//! - While several ReplicaSets have pods, scaling changes only the newest one, instead of all in proportion.
//! - `maxSurge` of a DaemonSet is not supported.
//! - The scheduler ignores pod affinity, `Gt`, `Lt` and resources, and `matchFields` except for those of DaemonSets.
//!   NoExecute evicts only pods of DaemonSets.
//! - A pod terminates at once, whatever its grace period. It has no IP, and its containers never restart by themselves.
//!   The status that a test writes is overwritten. A pod in a crash loop is Pending and has no exit code.
//! - A Job starts pods again at once and counts only pods that still exist. Indexes, deadlines, policies and a missing
//!   `completions` are not supported, nor are restarts in place (`restartPolicy: OnFailure`). There are no CronJobs.
//! - An object without a controller is adopted by `matchLabels` only, and nothing is released.
//! - There are no Events, no quotas (so no `ReplicaFailure`), no defaults, no Endpoints, and no revision on the
//!   Deployment itself. Pods on a node that does not report are not evicted.
//! - The writes of these controllers bypass [`Server::admit`], [`Server::intercept`] and faults, and are not included
//!   in [`Server::requests`].

mod daemon_set;
mod deployment;
mod job;
mod pod;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::deletion::{finalizers, mark_or_remove};
use super::history::Id;
use super::managers::Writer;
use super::server::{Server, State};

/// Time between a change and the reaction of a controller.
pub const LATENCY: Duration = Duration::from_millis(10);

/// Interval of checks while an object waits for a time, such as `minReadySeconds`.
const TICK: Duration = Duration::from_secs(1);

const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/replicasets";
const DAEMON_SETS: &str = "/apis/apps/v1/daemonsets";
const JOBS: &str = "/apis/batch/v1/jobs";
const PODS: &str = "/api/v1/pods";
const NODES: &str = "/api/v1/nodes";
const NAMESPACES: &str = "/api/v1/namespaces";

/// The resources that the controllers look at.
const LOOKED_AT: [&str; 7] =
    [DEPLOYMENTS, REPLICA_SETS, DAEMON_SETS, JOBS, PODS, NODES, NAMESPACES];

/// State of a pod on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PodState {
    /// It runs and is ready. A pod of a Job then succeeds.
    Ready,
    /// It runs, but its readiness probe fails. A pod of a Job is still working.
    Unready,
    /// Its containers have terminated with an error. Only for a pod of a Job; others restart and are
    /// [`PodState::Unready`].
    Failed,
    /// Its containers are waiting, for a reason such as `ImagePullBackOff` or `CrashLoopBackOff`.
    Waiting {
        /// The reason in one word.
        reason: String,
        /// The reason in a sentence.
        message: String,
    },
}

type States = Arc<Mutex<dyn FnMut(&Value) -> PodState + Send>>;

/// The running controllers. They stop when this is dropped.
pub struct Cluster {
    server: Server,
    states: Arc<Mutex<States>>,
    stopped: Arc<AtomicBool>,
    task: AbortHandle,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Cluster {
    /// Starts the controllers on a server with this number of nodes: `node-1`, `node-2` and so on. All pods become
    /// ready.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(server: &Server, nodes: usize) -> Cluster {
        server.collect_garbage();
        for number in 1..=nodes {
            let ready = json!([{"type": "Ready", "status": "True"}]);
            // As the kubelet sets them.
            let labels = json!({"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": format!("node-{number}")});
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"labels": labels},
                "status": {"conditions": ready}});
            server.put(&Id::new(NODES, "", format!("node-{number}")), node);
        }
        let ready: States = Arc::new(Mutex::new(|_: &Value| PodState::Ready));
        let states = Arc::new(Mutex::new(ready));
        let stopped = Arc::new(AtomicBool::new(false));
        let running = run(server.clone(), states.clone(), stopped.clone());
        let task = tokio::spawn(running).abort_handle();
        Cluster { server: server.clone(), states, stopped, task }
    }

    /// Sets whether the controllers, the scheduler and the kubelets are stopped, as in an outage. The garbage collector goes
    /// on.
    pub fn set_stopped(&self, stopped: bool) {
        self.stopped.store(stopped, Ordering::Relaxed);
        self.server.change(|_| {});
    }

    /// Sets the function that returns the state of each pod on a node. `state` must not use the server or the cluster. It
    /// is called when an object that the controllers look at has changed; if its answers change otherwise, set it again.
    pub fn pods_are(&self, state: impl FnMut(&Value) -> PodState + Send + 'static) {
        *self.states.lock() = Arc::new(Mutex::new(state));
        self.server.change(|_| {});
    }
}

async fn run(server: Server, states: Arc<Mutex<States>>, stopped: Arc<AtomicBool>) {
    let (mut waits, mut version, mut last) = (false, 0, Instant::now());
    let mut former = None;
    loop {
        tokio::time::sleep(LATENCY).await;
        let mut seen = server.seen();
        let states = states.lock().clone();
        server.change_if(|state| {
            // With a Lease, something else changes all the time.
            let is_new = former.as_ref().is_none_or(|former| !Arc::ptr_eq(former, &states));
            let is_due = waits && last.elapsed() >= TICK;
            if stopped.load(Ordering::Relaxed) {
                return false;
            }
            let has_changed = state.history.has_changed(version, &LOOKED_AT);
            version = state.history.version;
            if !is_new && !is_due && !has_changed {
                return false;
            }
            (former, last) = (Some(states.clone()), Instant::now());
            let snapshot = Snapshot::of(state);
            let mut sync = Sync { steps: Vec::new(), waits: false, names: state.names };
            for (owners, kind, resource) in [
                (DEPLOYMENTS, "Deployment", REPLICA_SETS),
                (REPLICA_SETS, "ReplicaSet", PODS),
                (DAEMON_SETS, "DaemonSet", PODS),
            ] {
                adopt(&snapshot, owners, kind, resource, &mut sync);
            }
            // The owners count what they have adopted.
            if !sync.steps.is_empty() {
                sync.steps.into_iter().for_each(|step| state.take(step));
                return true;
            }
            for deployment in snapshot.of_resource(DEPLOYMENTS) {
                deployment::sync(&snapshot, deployment, &mut sync);
            }
            for replica_set in snapshot.of_resource(REPLICA_SETS) {
                deployment::sync_replica_set(&snapshot, replica_set, &mut sync);
            }
            for daemon_set in snapshot.of_resource(DAEMON_SETS) {
                daemon_set::sync(&snapshot, daemon_set, &mut sync);
            }
            for job in snapshot.of_resource(JOBS) {
                job::sync(&snapshot, job, &mut sync);
            }
            pod::schedule(&snapshot, &mut sync);
            pod::run(&snapshot, &mut *states.lock(), &mut sync);
            end_namespaces(state, &snapshot, &mut sync);
            (waits, state.names) = (sync.waits, sync.names);
            let before = state.history.version;
            sync.steps.into_iter().for_each(|step| state.take(step));
            state.history.version != before
        });
        tokio::select! {
            biased;
            () = server.changed_since(&mut seen) => {}
            () = tokio::time::sleep(TICK), if waits => {}
        }
    }
}

/// Makes the objects without a controller that match a selector those of its owner (ClaimReplicaSets and ClaimPods).
fn adopt(snapshot: &Snapshot, owners: &str, kind: &str, resource: &str, sync: &mut Sync) {
    let is_orphan = |object: &&Object| {
        let all = object.at("/metadata/ownerReferences").as_array().into_iter().flatten();
        !object.is_deleting() && !all.into_iter().any(|it| it["controller"] == true)
    };
    for orphan in snapshot.of_resource(resource).filter(is_orphan) {
        let labels = orphan.at("/metadata/labels");
        let selects = |owner: &&Object| {
            let wanted = owner.at("/spec/selector/matchLabels").as_object();
            !owner.is_deleting()
                && owner.id.namespace == orphan.id.namespace
                && wanted.is_some_and(|wanted| {
                    !wanted.is_empty() && wanted.iter().all(|(key, value)| labels[key] == *value)
                })
        };
        if let Some(owner) = snapshot.of_resource(owners).find(selects) {
            let others = orphan.at("/metadata/ownerReferences").as_array().cloned();
            let all = [others.unwrap_or_default(), vec![reference(owner, kind)]].concat();
            let patch = json!({"metadata": {"ownerReferences": all}});
            sync.steps.push(Step::Patch(orphan.id.clone(), patch));
        }
    }
}

/// Deletes the objects in namespaces that are being deleted, and completes the deletion of empty ones.
fn end_namespaces(state: &State, snapshot: &Snapshot, sync: &mut Sync) {
    let ending = snapshot.of_resource(NAMESPACES).filter(|namespace| namespace.is_deleting());
    for namespace in ending {
        let inside: Vec<_> =
            state.history.all().filter(|(id, _)| id.namespace == namespace.id.name).collect();
        let is_held = !finalizers(&namespace.value).is_empty();
        match inside.is_empty() {
            true if is_held => {
                let done = json!({"spec": {"finalizers": null}});
                sync.steps.push(Step::Patch(namespace.id.clone(), done));
            }
            true => sync.steps.push(Step::Remove(namespace.id.clone())),
            false => {}
        }
        let left = inside.into_iter().filter(|(_, o)| o["metadata"]["deletionTimestamp"].is_null());
        sync.waits = true;
        sync.steps.extend(left.map(|(id, _)| Step::Delete(id.clone())));
    }
}

// === What a controller sees, and what it does ===

/// A past state of an object.
struct Object {
    id: Id,
    value: Arc<Value>,
}

impl Object {
    fn at(&self, pointer: &str) -> &Value {
        self.value.pointer(pointer).unwrap_or(&Value::Null)
    }

    fn number(&self, pointer: &str) -> i64 {
        self.at(pointer).as_i64().unwrap_or(0)
    }

    fn text(&self, pointer: &str) -> &str {
        self.at(pointer).as_str().unwrap_or_default()
    }

    fn is_deleting(&self) -> bool {
        self.at("/metadata/deletionTimestamp").is_string()
    }

    /// Returns whether a condition of its status is True.
    fn is(&self, kind: &str) -> bool {
        condition(&self.value["status"], kind)
            .is_some_and(|condition| condition["status"] == "True")
    }

    /// Returns whether `owner` is its controller.
    fn is_of(&self, owner: &Object) -> bool {
        let owners = self.at("/metadata/ownerReferences").as_array().into_iter().flatten();
        let uid = owner.at("/metadata/uid");
        owners.into_iter().any(|it| it["controller"] == true && it["uid"] == *uid)
    }
}

/// The state of all objects at one time, by resource.
struct Snapshot {
    objects: BTreeMap<String, Vec<Object>>,
    now: String,
}

impl Snapshot {
    fn of(state: &State) -> Snapshot {
        let mut objects = BTreeMap::<String, Vec<Object>>::new();
        for (id, value) in state.history.all() {
            if LOOKED_AT.contains(&id.resource.as_str()) {
                let object = Object { id: id.clone(), value: value.clone() };
                objects.entry(id.resource.clone()).or_default().push(object);
            }
        }
        Snapshot { objects, now: state.now() }
    }

    fn of_resource(&self, resource: &str) -> impl Iterator<Item = &Object> {
        self.objects.get(resource).into_iter().flatten()
    }

    fn owned_by<'a>(
        &'a self,
        owner: &'a Object,
        resource: &str,
    ) -> impl Iterator<Item = &'a Object> {
        self.of_resource(resource).filter(|object| object.is_of(owner))
    }

    /// Returns whether this time is at least that many seconds ago.
    fn is_past(&self, time: &str, seconds: i64) -> bool {
        let parsed = |text: &str| text.parse::<Timestamp>().map(Timestamp::as_second).ok();
        match (parsed(time), parsed(&self.now)) {
            (Some(then), Some(now)) => now - then >= seconds,
            _ => true,
        }
    }

    /// Returns whether a pod has been ready for this number of seconds.
    fn is_available(&self, pod: &Object, min_ready_seconds: i64) -> bool {
        let ready = condition(&pod.value["status"], "Ready");
        ready.is_some_and(|ready| {
            let since = ready["lastTransitionTime"].as_str().unwrap_or_default();
            ready["status"] == "True" && self.is_past(since, min_ready_seconds)
        })
    }
}

/// The decisions of the controllers in one sync.
struct Sync {
    steps: Vec<Step>,
    /// True if a controller waits for a time.
    waits: bool,
    /// Number of names given so far.
    names: u32,
}

/// One write of a controller.
enum Step {
    Create(Id, Value),
    Patch(Id, Value),
    Status(Id, Value),
    Delete(Id),
    Remove(Id),
}

impl Sync {
    /// Replaces the status, if it changes.
    fn status(&mut self, object: &Object, status: Value) {
        if object.value["status"] != status {
            self.steps.push(Step::Status(object.id.clone(), status));
        }
    }

    /// Creates a pod of a template, with five letters after the owner's name.
    fn create_pod(&mut self, owner: &Object, kind: &str, node: Option<&str>, hash: Option<&str>) {
        self.names += 1;
        let name = format!("{}-{}", owner.id.name, letters(u64::from(self.names), 5));
        let template = owner.at("/spec/template");
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
            "metadata": {
                "labels": template["metadata"]["labels"],
                "annotations": template["metadata"]["annotations"],
                "ownerReferences": [reference(owner, kind)],
            },
            "status": { "phase": "Pending" },
        });
        if let Some(meta) = pod["metadata"].as_object_mut() {
            meta.retain(|_, value| !value.is_null());
        }
        if let Some(node) = node {
            // It replaces the terms of the template, which this node matches (ReplaceDaemonSetPodNodeNameNodeAffinity).
            let name = json!({"key": "metadata.name", "operator": "In", "values": [node]});
            pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": [{"matchFields": [name]}]});
        }
        if let Some(hash) = hash {
            pod["metadata"]["labels"]["controller-revision-hash"] = json!(hash);
        }
        self.steps.push(Step::Create(Id::new(PODS, &owner.id.namespace, name), pod));
    }

    fn delete(&mut self, object: &Object) {
        self.steps.push(Step::Delete(object.id.clone()));
    }
}

impl State {
    fn take(&mut self, step: Step) {
        let writer = |id: &Id, is_status: bool| Writer {
            operation: "Update",
            name: match id.resource.as_str() {
                PODS if is_status => "kubelet",
                PODS => "kube-scheduler",
                _ => "kube-controller-manager",
            }
            .to_owned(),
            subresource: if is_status { "status" } else { "" }.to_owned(),
        };
        let old = |state: &State, id: &Id| state.history.now(id);
        match step {
            Step::Create(id, object) if old(self, &id).is_none() => {
                let mut by = writer(&id, false);
                "kube-controller-manager".clone_into(&mut by.name);
                self.store(&id, object, by);
            }
            Step::Create(..) => {}
            Step::Patch(id, patch) => {
                if let Some(old) = old(self, &id) {
                    let mut new = (*old).clone();
                    json_patch::merge(&mut new, &patch);
                    if new != *old {
                        self.store(&id, new, writer(&id, false));
                    }
                }
            }
            Step::Status(id, status) => {
                if let Some(old) = old(self, &id) {
                    let mut new = (*old).clone();
                    new["status"] = status;
                    self.store(&id, new, writer(&id, true));
                }
            }
            Step::Delete(id) => {
                if let Some(old) = old(self, &id) {
                    mark_or_remove(self, &id, &old, None);
                }
            }
            Step::Remove(id) => drop(self.history.remove(&id)),
        }
    }
}

/// Returns the owner reference of a controller's objects.
fn reference(owner: &Object, kind: &str) -> Value {
    json!({
        "apiVersion": owner.id.api_version(), "kind": kind, "name": owner.id.name,
        "uid": owner.at("/metadata/uid"), "controller": true, "blockOwnerDeletion": true,
    })
}

// === Conditions ===

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Returns a condition that replaces that of the old status. Keeps its times if nothing else changes.
fn renewed(old: &Value, new: Value, now: &str) -> Value {
    let mut new = new;
    let before = new["type"].as_str().and_then(|kind| condition(old, kind));
    let is_kept = before.is_some_and(|before| before["status"] == new["status"]);
    let since = before.map(|before| before["lastTransitionTime"].clone()).filter(|_| is_kept);
    new["lastTransitionTime"] = since.unwrap_or_else(|| json!(now));
    new
}

// === Names, selectors, taints ===

/// Returns a random part of a name as Kubernetes generates it (rand.SafeEncodeString): without vowels.
fn letters(mut number: u64, count: usize) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let base = LETTERS.len() as u64;
    let mut text = Vec::new();
    for _ in 0..count {
        text.push(LETTERS[usize::try_from(number % base).unwrap_or(0)]);
        number /= base;
    }
    text.reverse();
    String::from_utf8(text).unwrap_or_default()
}

/// Returns the hash of a template (FNV-1a), which is the same in every run.
fn hash(template: &Value) -> String {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    letters(template.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, mix), 10)
}

/// Returns whether a pod can be scheduled to a node, by its `nodeSelector`, its required node affinity and its
/// tolerations.
fn fits(pod: &Value, node: &Object, is_daemon: bool) -> bool {
    let open = node.at("/spec/unschedulable") != true || is_daemon;
    open && is_selected(pod, node)
        && taints(node)
            .filter(|taint| taint["effect"] != "PreferNoSchedule")
            .all(|taint| is_daemon && is_tolerated_by_daemons(taint) || is_tolerated(pod, taint))
}

/// Returns the node for which a DaemonSet's pod was created.
fn target(pod: &Object) -> &str {
    let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    pod.text(&format!("{required}/nodeSelectorTerms/0/matchFields/0/values/0"))
}

/// Returns whether a DaemonSet's pod stays on its node. Of the taints, only NoExecute evicts it.
fn may_stay(pod: &Value, node: &Object) -> bool {
    is_selected(pod, node)
        && taints(node)
            .filter(|taint| taint["effect"] == "NoExecute")
            .all(|taint| is_tolerated_by_daemons(taint) || is_tolerated(pod, taint))
}

fn taints(node: &Object) -> impl Iterator<Item = &Value> {
    node.at("/spec/taints").as_array().into_iter().flatten()
}

/// Returns whether a pod's node selector and required node affinity match a node.
fn is_selected(pod: &Value, node: &Object) -> bool {
    let labels = node.at("/metadata/labels");
    let mut selected = pod["nodeSelector"].as_object().into_iter().flatten();
    let required = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let terms = pod.pointer(required).map(|required| &required["nodeSelectorTerms"]);
    selected.all(|(key, value)| labels[key] == *value)
        && terms.and_then(Value::as_array).is_none_or(|terms| {
            terms.iter().any(|term| {
                let mut all = term["matchExpressions"].as_array().into_iter().flatten();
                all.all(|expression| matches(expression, labels))
            })
        })
}

/// Returns whether labels match an expression of a node selector.
fn matches(expression: &Value, labels: &Value) -> bool {
    let label = expression["key"].as_str().and_then(|key| labels.get(key));
    let values = expression["values"].as_array();
    let is_listed = label.is_some_and(|label| values.is_some_and(|all| all.contains(label)));
    match expression["operator"].as_str() {
        Some("In") => is_listed,
        Some("NotIn") => !is_listed,
        Some("Exists") => label.is_some(),
        Some("DoesNotExist") => label.is_none(),
        _ => false,
    }
}

/// Returns whether every pod of a DaemonSet tolerates a taint (AddOrUpdateDaemonPodTolerations).
fn is_tolerated_by_daemons(taint: &Value) -> bool {
    let key = taint["key"].as_str().and_then(|key| key.strip_prefix("node.kubernetes.io/"));
    match taint["effect"].as_str() {
        Some("NoExecute") => matches!(key, Some("not-ready" | "unreachable")),
        _ => matches!(
            key,
            Some("disk-pressure" | "memory-pressure" | "pid-pressure" | "unschedulable")
        ),
    }
}

fn is_tolerated(pod: &Value, taint: &Value) -> bool {
    let tolerations = pod["tolerations"].as_array().into_iter().flatten();
    tolerations.into_iter().any(|toleration| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let exists = toleration["operator"] == "Exists";
        let (key, effect) = (text(&toleration["key"]), text(&toleration["effect"]));
        (effect.is_empty() || taint["effect"] == effect)
            && (taint["key"] == key || key.is_empty() && exists)
            && (exists || text(&toleration["value"]) == text(&taint["value"]))
    })
}

/// Parses a number of pods, given as a number or as a percentage of `of`.
fn amount(value: &Value, default: &str, of: i64, rounds_up: bool) -> i64 {
    let share = match value {
        Value::Number(number) => return number.as_i64().unwrap_or(0),
        Value::String(share) => share.as_str(),
        _ => default,
    };
    let percent: i64 = share.trim_end_matches('%').parse().unwrap_or(0);
    if rounds_up { (of * percent + 99) / 100 } else { of * percent / 100 }
}
