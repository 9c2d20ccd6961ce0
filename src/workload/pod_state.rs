//! The state of a pod or a node that shows why a workload is not ready. Pure.
//!
//! Messages contain nothing that changes while the cause stays the same, such as numbers of restarts or times.
//! Otherwise each list would write a status.

use serde::Deserialize;
use serde_json::Value;

use super::ChildCondition;
use super::condition::{Status, Time};
use super::reason::Reason;
use crate::object::{InternedStr, Kind, Meta, NoMetadata};

/// Time in seconds after which a pod that does not start or end is no longer just starting or ending.
const WHILE: i64 = 30;

/// Maximum time in seconds from the end of a container until its pod is reported as not ready.
const SKEW: i64 = 10;

/// Taints that every daemon tolerates, because the DaemonSet controller adds the tolerations, by key and effect
/// (`AddOrUpdateDaemonPodTolerations` in k8s.io/kubernetes, pkg/controller/daemon/util). It adds
/// `network-unavailable` only for pods on the host's network, and a GenericDaemon has none.
const TOLERATED: [(&str, &str); 6] = [
    (NOT_READY, "NoExecute"),
    (UNREACHABLE, "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// Taints of a node that the node lifecycle controller considers lost: its condition Ready is False or Unknown
/// (k8s.io/api/core/v1, well_known_taints.go).
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// A problem: its reason and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Reason, one word.
    pub reason: Reason,
    /// Message, a sentence.
    pub message: String,
    /// True if it is clear from the start that manual action is required.
    pub stalls_at_once: bool,
}

/// The part of a pod that shows whether it is ready.
#[derive(Debug, Clone, Deserialize)]
pub struct PodState {
    #[serde(rename = "metadata")]
    meta: Meta<NoMetadata>,
    #[serde(default)]
    spec: PodPlace,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodPlace {
    node_name: Option<InternedStr>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    phase: InternedStr,
    reason: InternedStr,
    conditions: Vec<ChildCondition>,
    init_container_statuses: Vec<ContainerStatus>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerStatus {
    name: InternedStr,
    image: InternedStr,
    ready: bool,
    state: ContainerState,
    last_state: ContainerState,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<Waiting>,
    running: Option<Running>,
    terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: InternedStr,
    message: InternedStr,
}

#[derive(Debug, Clone, Deserialize)]
struct Running {}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Terminated {
    reason: InternedStr,
    exit_code: i32,
    finished_at: Option<Time>,
}

/// The part of a node that shows whether a daemon can run there. Parsing skips its images and labels, which are
/// most of a node.
#[derive(Debug, Clone, Deserialize)]
pub struct NodeState {
    #[serde(rename = "metadata")]
    meta: Meta<NoMetadata>,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    taints: Vec<Taint>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    conditions: Vec<NodeCondition>,
}

#[derive(Debug, Clone, Deserialize)]
struct NodeCondition {
    #[serde(rename = "type")]
    kind: InternedStr,
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Taint {
    key: InternedStr,
    value: InternedStr,
    effect: InternedStr,
}

crate::view!(PodState { meta: Meta<NoMetadata> }: Kind::namespaced("", "v1", "Pod", "pods"));
crate::view!(NodeState { meta: Meta<NoMetadata> }: Kind::cluster_scoped("", "v1", "Node", "nodes"));

// === impl PodState ===

impl PodState {
    /// Returns the name.
    pub fn name(&self) -> &str {
        self.meta.key.name()
    }

    /// Returns the node that the pod was scheduled to.
    pub fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref()
    }

    /// Returns the time of its creation.
    pub(crate) fn created(&self) -> Option<Time> {
        self.meta.created().map(|created| Time::new(created.as_second()))
    }

    /// Returns whether the pod has ended. Such a pod remains for inspection and does not count as a replica.
    pub fn has_ended(&self) -> bool {
        ["Failed", "Succeeded"].contains(&&*self.status.phase)
    }

    /// Returns whether the pod is ready.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|ready| ready.status == Status::True)
    }

    /// Returns whether the pod is being deleted.
    pub(crate) fn is_terminating(&self) -> bool {
        self.meta.is_terminating
    }

    /// Returns the state at `now`, much as `kubectl get pods` shows it.
    pub fn state(&self, now: Time) -> String {
        let trouble = self.trouble().or_else(|| self.hangs(now));
        match trouble.or_else(|| self.starting()) {
            None if self.meta.is_terminating => "Terminating".to_owned(),
            None if self.is_ready() => "Ready".to_owned(),
            Some(trouble) => format!("{}: {}", trouble.reason.as_str(), trouble.message),
            None if self.status.phase.is_empty() => "Unknown".to_owned(),
            None => self.status.phase.to_string(),
        }
    }

    fn condition(&self, kind: &str) -> Option<&ChildCondition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }

    pub(crate) fn scheduled(&self) -> Option<Time> {
        self.condition("PodScheduled")?.last_transition_time
    }

    pub(crate) fn not_ready_since(&self) -> Option<Time> {
        self.condition("Ready").filter(|ready| ready.status == Status::False)?.last_transition_time
    }

    /// Returns when the pod was given up, if it was: evicted, ended by a shutdown of its node, or not admitted
    /// by the node (k8s.io/kubernetes, pkg/kubelet: eviction, nodeshutdown and lifecycle/predicate.go).
    pub(crate) fn evicted(&self) -> Option<Time> {
        const GIVEN_UP: [&str; 6] = [
            "Evicted",
            "Terminated",
            "NodeShutdown",
            "UnexpectedAdmissionError",
            "NodeAffinity",
            "Preempting",
        ];
        let reason = &*self.status.reason;
        let is_disrupted =
            self.condition("DisruptionTarget").is_some_and(|target| target.status == Status::True);
        let is = GIVEN_UP.contains(&reason) || reason.starts_with("OutOf") || is_disrupted;
        if is && self.status.phase == "Failed" { self.not_ready_since() } else { None }
    }

    /// Returns how a pod that was given up ended, as text.
    pub(crate) fn end(&self) -> String {
        match &*self.status.reason {
            "Evicted" => "was evicted".to_owned(),
            "" => "was terminated".to_owned(),
            reason => format!("was terminated ({reason})"),
        }
    }

    /// Returns whether the pod has not been ready for 30 s at `now`, so that it is not just starting.
    pub(crate) fn lasts(&self, now: Time) -> bool {
        let since = self.not_ready_since().max(self.scheduled());
        since.is_some_and(|since| since.plus(WHILE) <= now)
    }

    /// Returns the error that keeps the pod from being ready. `None` if it is ready, has ended, is being deleted,
    /// or is only starting.
    pub fn trouble(&self) -> Option<Trouble> {
        if self.has_ended() {
            return None;
        }
        if self.meta.is_terminating {
            return self.on_a_lost_node().map(|trouble| self.named(trouble));
        }
        let status = &self.status;
        let mut containers =
            status.init_container_statuses.iter().chain(&status.container_statuses);
        let since = self.not_ready_since();
        containers
            .find_map(|container| container.trouble(since))
            .or_else(|| self.unscheduled())
            .or_else(|| self.on_a_lost_node())
            .map(|trouble| self.named(trouble))
    }

    /// Returns what a pod without an error still lacks: its volumes, its containers, a readiness probe that
    /// passes, or a readiness gate. `None` if it is ready, has ended, is being deleted, or shows an error.
    pub(crate) fn starting(&self) -> Option<Trouble> {
        if self.has_ended()
            || self.meta.is_terminating
            || self.is_ready()
            || self.trouble().is_some()
        {
            return None;
        }
        let status = &self.status;
        let unready = |c: &&ContainerStatus| c.state.running.is_some() && !c.ready;
        let gates =
            self.condition("Ready").filter(|ready| ready.reason == "ReadinessGatesNotReady");
        let message = if let Some(gates) = gates {
            format!("is running, but its readiness gates are not met: {}", gates.message)
        } else if let Some(container) = status.container_statuses.iter().find(unready) {
            format!("is running, but its container {} is not ready", container.name)
        } else if let Some(container) = status.init_container_statuses.iter().find(unready) {
            // The other containers start when an init container has ended, or a sidecar has started.
            match status.container_statuses.iter().any(|c| c.state.running.is_some()) {
                true => format!("is running, but its container {} is not ready", container.name),
                false => format!("is still running its init container {}", container.name),
            }
        } else if self.waits_for_its_sandbox() {
            "is waiting for its volumes or network".to_owned()
        } else {
            format!("is starting on node {}", self.node()?)
        };
        Some(self.named(trouble(Reason::ContainersNotReady, message)))
    }

    /// Returns the problem of a pod that still exists at `now`, half a minute after its grace period.
    pub(crate) fn hangs(&self, now: Time) -> Option<Trouble> {
        let (ends, node) = (self.meta.deletion()?, self.node().unwrap_or_default());
        let is_over = Time::new(ends.as_second()).plus(WHILE) <= now;
        let message = format!("is still terminating on node {node}, past its grace period");
        is_over.then(|| self.named(trouble(Reason::PodsTerminating, message)))
    }

    /// Returns whether the pod is on a node, and its volumes and network are not set up yet (KEP-3085).
    fn waits_for_its_sandbox(&self) -> bool {
        let is = |kind: &str, status| self.condition(kind).is_some_and(|c| c.status == status);
        is("PodScheduled", Status::True) && is("PodReadyToStartContainers", Status::False)
    }

    fn named(&self, what: Trouble) -> Trouble {
        let Trouble { reason, message, stalls_at_once } = what;
        Trouble { reason, message: format!("Pod {} {message}", self.name()), stalls_at_once }
    }

    fn unscheduled(&self) -> Option<Trouble> {
        let scheduled = self.condition("PodScheduled").filter(|c| c.status == Status::False)?;
        let message = format!("cannot be scheduled: {}", scheduled.message);
        Some(trouble(Reason::PodsUnschedulable, message))
    }

    /// Reports a lost node. The node lifecycle controller only sets Ready to False (`MarkPodsNotReady` in
    /// k8s.io/kubernetes, pkg/controller/util/node). The containers still seem ready, and the condition has
    /// none of the kubelet's reasons.
    fn on_a_lost_node(&self) -> Option<Trouble> {
        const OF_THE_KUBELET: [&str; 2] = ["ContainersNotReady", "ReadinessGatesNotReady"];
        let lost = self.status.reason == "NodeLost";
        let marked = self.condition("Ready").is_some_and(|ready| {
            ready.status == Status::False && !OF_THE_KUBELET.contains(&&*ready.reason)
        });
        let containers = &self.status.container_statuses;
        let ready = !containers.is_empty() && containers.iter().all(|container| container.ready);
        (lost || marked && ready).then(|| {
            let node = self.node().unwrap_or_default();
            let what = if self.meta.is_terminating { "is still terminating" } else { "is" };
            trouble(Reason::NodeNotReady, format!("{what} on node {node}, which does not report"))
        })
    }
}

fn trouble(reason: Reason, message: String) -> Trouble {
    Trouble { reason, message, stalls_at_once: false }
}

// === impl ContainerStatus ===

impl ContainerStatus {
    /// Returns the error of a container in a pod that has not been ready since `since`.
    fn trouble(&self, since: Option<Time>) -> Option<Trouble> {
        self.waits().or_else(|| self.crashes(since))
    }

    /// Reports a container that cannot start. Most causes resolve themselves: a registry or a resolver that is
    /// down, a node without space, a Secret that another controller has yet to create.
    fn waits(&self) -> Option<Trouble> {
        let (name, image) = (&self.name, &self.image);
        let waiting = self.state.waiting.as_ref()?;
        let pull = |what: &str| {
            trouble(Reason::ImagePullFailed, format!("cannot pull image {image}{what}"))
        };
        let found = match &*waiting.reason {
            "InvalidImageName" => pull(": the image name is invalid"),
            "ErrImageNeverPull" => {
                pull(": its pull policy is Never, and the node does not have it")
            }
            "ErrImagePull" | "ImagePullBackOff" | "RegistryUnavailable" | "ImageInspectError" => {
                pull(why_not_pulled(&waiting.message))
            }
            "CreateContainerConfigError"
            | "CreateContainerError"
            | "RunContainerError"
            | "StartError" => {
                let message = format!("cannot start container {name}: {}", waiting.message);
                trouble(Reason::ContainerFailed, message)
            }
            "" | "ContainerCreating" | "PodInitializing" | "CrashLoopBackOff" => return None,
            // Runtimes have further reasons, such as SignatureValidationFailed.
            other => {
                let colon = if waiting.message.is_empty() { "" } else { ": " };
                let message =
                    format!("cannot start container {name}: {other}{colon}{}", waiting.message);
                trouble(Reason::ContainerFailed, message)
            }
        };
        let stalls_at_once = match &*waiting.reason {
            "InvalidImageName" | "ErrImageNeverPull" => true,
            "CreateContainerConfigError" => !names_what_may_come(&waiting.message),
            _ => false,
        };
        Some(Trouble { stalls_at_once, ..found })
    }

    fn crashes(&self, since: Option<Time>) -> Option<Trouble> {
        let reason = self.state.waiting.as_ref().map_or("", |waiting| &*waiting.reason);
        let now = self.state.terminated.as_ref();
        let before = self.last_state.terminated.as_ref();
        // It runs again, and its pod has not been ready since the crash.
        let is_recent = |ended: &&Terminated| {
            let not_ready = since.zip(ended.finished_at);
            not_ready.is_some_and(|(since, ended)| since <= ended.plus(SKEW))
        };
        let again = before.filter(|ended| !self.ready && ended.exit_code != 0).filter(is_recent);
        let ended = match (reason, now) {
            ("CrashLoopBackOff", _) => before.or(now),
            (_, Some(ended)) if ended.exit_code != 0 => Some(ended),
            _ => Some(again?),
        };
        let how = ended.map_or_else(String::new, |ended| {
            let reason = Some(&ended.reason).filter(|r| !r.is_empty() && **r != "Error");
            let reason = reason.map_or_else(String::new, |reason| format!(", {reason}"));
            format!(" (exit code {}{reason})", ended.exit_code)
        });
        let message = format!("crashes: container {}{how}", self.name);
        Some(trouble(Reason::CrashLoopBackOff, message))
    }
}

/// Returns the cause in the message of a failed pull (containerd and CRI-O). Only the cause is stable: the message
/// also has times and addresses.
fn why_not_pulled(message: &str) -> &'static str {
    const CAUSES: [(&str, &[&str]); 5] = [
        (
            ": it does not exist for the node's architecture",
            &["no match for platform", "no matching manifest", "choosing image instance"],
        ),
        (
            ": the registry limits the rate of pulls",
            &["toomanyrequests", "429 Too Many", "rate limit"],
        ),
        (
            ": access is denied, or the repository does not exist",
            &[
                "unauthorized",
                "denied",
                "authorization failed",
                "authentication required",
                "403 Forbidden",
            ],
        ),
        (": the registry does not have it", &["not found", "manifest unknown", "does not exist"]),
        (
            ": the registry does not respond",
            &["no such host", "dial tcp", "timeout", "connection refused", "deadline exceeded"],
        ),
    ];
    let named = |words: &[&str]| words.iter().any(|word| message.contains(word));
    CAUSES.iter().find(|(_, words)| named(words)).map_or("", |(cause, _)| cause)
}

/// Returns whether a message is about a Secret or a ConfigMap that can still be created or reach the node
/// (k8s.io/kubernetes, pkg/kubelet/kubelet_pods.go; k8s.io/apimachinery, NewNotFound).
fn names_what_may_come(message: &str) -> bool {
    ["\" not found", "couldn't find key ", "failed to sync "].iter().any(|it| message.contains(it))
}

// === impl NodeState ===

impl NodeState {
    /// Returns the name.
    pub fn name(&self) -> &str {
        self.meta.key.name()
    }

    /// Returns whether the node does not report, or reports that it is not ready.
    pub fn is_lost(&self) -> bool {
        let unready = |c: &NodeCondition| c.kind == "Ready" && c.status != Status::True;
        let is_of_lost = |taint: &Taint| [NOT_READY, UNREACHABLE].contains(&&*taint.key);
        self.status.conditions.iter().any(unready) || self.spec.taints.iter().any(is_of_lost)
    }

    /// Returns a taint that a daemon with these tolerations does not tolerate, in the form of kubectl.
    pub fn taint(&self, tolerations: &[Value]) -> Option<String> {
        let keeps_out = |taint: &&Taint| {
            taint.effect != "PreferNoSchedule"
                && ![NOT_READY, UNREACHABLE].contains(&&*taint.key)
                && !TOLERATED.contains(&(&*taint.key, &*taint.effect))
                && !tolerations.iter().any(|toleration| taint.is_tolerated(toleration))
        };
        let taint = self.spec.taints.iter().find(keeps_out)?;
        let equals = if taint.value.is_empty() { "" } else { "=" };
        Some(format!("{}{equals}{}:{}", taint.key, taint.value, taint.effect))
    }
}

impl Taint {
    /// Follows ToleratesTaint in k8s.io/api/core/v1/toleration.go.
    fn is_tolerated(&self, toleration: &Value) -> bool {
        let text = |field: &str| toleration[field].as_str().unwrap_or_default();
        let (key, effect, exists) = (text("key"), text("effect"), text("operator") == "Exists");
        (effect.is_empty() || self.effect == *effect)
            && (self.key == *key || key.is_empty() && exists)
            && (exists || self.value == *text("value"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failed_container_is_named_before_its_restart() {
        let ended = |code: i32| {
            let pod = json!({"metadata": {"name": "a", "namespace": "b"}, "status": {
                "phase": "Running",
                "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": code}}}]}});
            let pod: PodState = serde_json::from_value(pod).unwrap();
            pod.trouble().map(|trouble| (trouble.reason, trouble.message))
        };
        let (reason, message) = ended(3).expect("it failed");
        assert_eq!(reason, Reason::CrashLoopBackOff);
        assert!(message.contains("crashes: container c (exit code 3)"), "{message}");
        assert_eq!(ended(0), None, "it is done");
    }

    fn pod(status: &Value) -> PodState {
        serde_json::from_value(
            json!({"metadata": {"name": "a", "namespace": "b"}, "status": status}),
        )
        .unwrap()
    }

    #[test]
    fn an_unknown_waiting_reason_is_reported_unchanged() {
        let waiting = |reason: &str| {
            let state = json!({"waiting": {"reason": reason, "message": "no valid signature"}});
            let status =
                json!({"phase": "Pending", "containerStatuses": [{"name": "c", "state": state}]});
            pod(&status).trouble().map(|trouble| (trouble.reason, trouble.message))
        };
        let what = "Pod a cannot start container c: SignatureValidationFailed: no valid signature";
        let expected = (Reason::ContainerFailed, what.to_owned());
        assert_eq!(waiting("SignatureValidationFailed"), Some(expected));
        assert_eq!(["ContainerCreating", "PodInitializing"].map(waiting), [None, None]);
    }

    #[test]
    fn a_pod_terminating_on_a_lost_node_is_named() {
        let status = json!({"phase": "Running", "containerStatuses": [{"name": "c", "ready": true}],
            "conditions": [{"type": "Ready", "status": "False", "reason": "NodeNotReady"}]});
        let mut object = json!({"metadata": {"name": "a", "namespace": "b",
            "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"nodeName": "n"}, "status": status});
        let lost: PodState = serde_json::from_value(object.clone()).unwrap();
        let message = "Pod a is still terminating on node n, which does not report";
        assert_eq!(lost.trouble().map(|t| t.message).as_deref(), Some(message));
        object["status"]["conditions"][0]["status"] = json!("True");
        let ending: PodState = serde_json::from_value(object).unwrap();
        assert_eq!(ending.trouble(), None);
        let hangs = |seconds| {
            let ends: Time = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
            ending.hangs(ends.plus(seconds)).map(|trouble| trouble.message)
        };
        assert_eq!(hangs(29), None);
        let message = "Pod a is still terminating on node n, past its grace period";
        assert_eq!(hangs(30).as_deref(), Some(message));
    }

    #[test]
    fn a_container_that_runs_again_after_a_crash_still_crashes() {
        let again = |ended: &str| {
            let crash = json!({"exitCode": 3, "finishedAt": format!("2026-01-01T00:{ended}:00Z")});
            let container = json!({"name": "c", "ready": false, "state": {"running": {}},
                "lastState": {"terminated": crash}});
            let ready = json!({"type": "Ready", "status": "False", "reason": "ContainersNotReady",
                "lastTransitionTime": "2026-01-01T00:10:00Z"});
            pod(&json!({"phase": "Running", "containerStatuses": [container], "conditions": [ready]}))
                .trouble()
                .map(|trouble| trouble.reason)
        };
        assert_eq!(again("10"), Some(Reason::CrashLoopBackOff));
        assert_eq!(again("05"), None, "it has been ready since");
    }

    #[test]
    fn the_cause_of_a_failed_pull_is_named() {
        for (message, cause) in [
            (
                "code = NotFound desc = failed to resolve \"r/nginx:typo\": r/nginx:typo: not found",
                "does not have it",
            ),
            (
                "Back-off pulling image \"x\": ErrImagePull: failed to authorize: 401 Unauthorized: unauthorized",
                "denied",
            ),
            (
                "pull access denied, repository does not exist or may require authorization",
                "denied",
            ),
            ("toomanyrequests: You have reached your pull rate limit", "limits the rate"),
            ("no match for platform in manifest: not found", "architecture"),
            ("dial tcp: lookup registry.invalid: no such host", "does not respond"),
        ] {
            assert!(why_not_pulled(message).contains(cause), "{message}");
        }
        assert_eq!(why_not_pulled("Back-off pulling image \"x\""), "");
    }

    #[test]
    fn a_pod_terminated_or_rejected_by_its_node_counts_as_evicted() {
        let ended = |reason: &str, target: &str| {
            let at = "2026-01-01T00:00:00Z";
            let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": at});
            let status = json!({"phase": "Failed", "reason": reason,
                "conditions": [condition("Ready", "False"), condition("DisruptionTarget", target)]});
            let pod = pod(&status);
            pod.evicted().map(|_| pod.end())
        };
        assert_eq!(ended("Evicted", "False").as_deref(), Some("was evicted"));
        for reason in ["Terminated", "OutOfcpu", "UnexpectedAdmissionError", "NodeAffinity"] {
            assert_eq!(ended(reason, "False"), Some(format!("was terminated ({reason})")));
        }
        assert_eq!(ended("", "True").as_deref(), Some("was terminated"));
        assert_eq!(ended("Error", "False"), None, "its own doing");
    }

    #[test]
    fn a_missing_secret_does_not_stall_at_once() {
        let stalls = |message: &str| {
            let waiting = json!({"reason": "CreateContainerConfigError", "message": message});
            let pod = json!({"metadata": {"name": "a", "namespace": "b"}, "status": {
                "phase": "Pending",
                "containerStatuses": [{"name": "c", "state": {"waiting": waiting}}]}});
            let pod: PodState = serde_json::from_value(pod).unwrap();
            pod.trouble().unwrap().stalls_at_once
        };
        assert!(!stalls("secret \"db\" not found"));
        assert!(!stalls("couldn't find key password in Secret ns/db"));
        assert!(!stalls("failed to sync configmap cache: timed out waiting for the condition"));
        assert!(stalls("container has runAsNonRoot and image will run as root (pod: ...)"));
    }

    #[test]
    fn a_pod_without_its_volumes_is_named() {
        let pod = |ready_to_start: &str| -> PodState {
            let condition = |kind: &str, status: &str| {
                json!({"type": kind, "status": status,
                "reason": if kind == "Ready" { "ContainersNotReady" } else { "" }})
            };
            let waiting = json!({"waiting": {"reason": "ContainerCreating"}});
            serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "b"},
                "spec": {"nodeName": "n"},
                "status": {"phase": "Pending",
                    "containerStatuses": [{"name": "c", "state": waiting}],
                    "conditions": [condition("PodScheduled", "True"), condition("Ready", "False"),
                        condition("PodReadyToStartContainers", ready_to_start)]}}))
            .unwrap()
        };
        let lacks =
            |pod: PodState| pod.starting().map(|trouble| trouble.message).unwrap_or_default();
        assert_eq!(lacks(pod("False")), "Pod a is waiting for its volumes or network");
        assert_eq!(lacks(pod("True")), "Pod a is starting on node n", "an image is pulled");
    }

    #[test]
    fn a_running_init_container_is_not_called_unready() {
        let init = json!({"name": "init", "ready": false, "state": {"running": {}}});
        let pod = pod(&json!({"phase": "Pending", "initContainerStatuses": [init]}));
        let lacks = pod.starting().map(|trouble| trouble.message);
        assert_eq!(lacks.as_deref(), Some("Pod a is still running its init container init"));
    }
}
