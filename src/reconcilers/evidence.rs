//! Evidence of what keeps a workload from serving: its pods, its Events, and the nodes.
//!
//! Nothing of it is watched. It is listed when a workload does not serve as wanted, never for one
//! that is healthy. The status and the command `status` read the same.
//!
//! Messages hold nothing that changes while the cause stays the same: no counts of restarts, no
//! times. Otherwise each look would write a status.

use serde::Deserialize;

use super::child::Child;
use super::condition::{Status, Time};
use super::health::Workload;
use super::identity::selector_text;
use super::reason::Reason;
use super::workload::ChildCondition;
use crate::client::{Client, Error, Page, Scope};
use crate::object::{Kind, Meta, Nothing, Object, ObjectKey, Resource, Text};

/// The most pods that are looked at, and nodes per page.
const PAGE: u32 = 500;

/// What keeps a workload from serving.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Its pods, by name; those that have ended, too.
    pub pods: Vec<PodState>,
    /// Why a DaemonSet's pods cannot be created. A Deployment has a condition for that.
    pub refusal: Option<String>,
    /// The nodes where a daemon belongs; `None` if they may not be listed.
    pub nodes: Option<Vec<NodeState>>,
}

/// A cause, in a word and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// In one word.
    pub reason: Reason,
    /// In a sentence.
    pub message: String,
}

/// What of a pod shows whether it serves.
#[derive(Debug, Clone, Deserialize)]
pub struct PodState {
    #[serde(rename = "metadata")]
    meta: Meta<Nothing>,
    #[serde(default)]
    spec: PodPlace,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodPlace {
    node_name: Option<Text>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    phase: Text,
    reason: Text,
    conditions: Vec<ChildCondition>,
    init_container_statuses: Vec<ContainerStatus>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerStatus {
    name: Text,
    image: Text,
    ready: bool,
    state: ContainerState,
    last_state: ContainerState,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<Waiting>,
    terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: Text,
    message: Text,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Terminated {
    reason: Text,
    exit_code: i32,
}

/// What of a node shows whether a daemon can run there.
#[derive(Debug, Clone, Deserialize)]
pub struct NodeState {
    #[serde(rename = "metadata")]
    meta: Meta<Nothing>,
    #[serde(default)]
    spec: NodeSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    taints: Vec<Taint>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Taint {
    key: Text,
    value: Text,
    effect: Text,
}

/// An Event of the core group: only there can Events be selected, in every supported version, by
/// the fields that identify their object.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventState {
    #[serde(rename = "metadata")]
    meta: Meta<Nothing>,
    #[serde(default)]
    message: Text,
    #[serde(default)]
    last_timestamp: Option<Time>,
    #[serde(default)]
    event_time: Option<Time>,
}

crate::view!(PodState { meta: Meta<Nothing> }: Kind::namespaced("", "v1", "Pod", "pods"));
crate::view!(NodeState { meta: Meta<Nothing> }: Kind::cluster_scoped("", "v1", "Node", "nodes"));
crate::view!(EventState { meta: Meta<Nothing> }: Kind::namespaced("", "v1", "Event", "events"));

// === Listing ===

impl Evidence {
    /// Lists what may show why `child` does not serve; `label` is that of the nodes where a daemon
    /// belongs. What may not be read is left out.
    ///
    /// # Errors
    /// All else that can go wrong with a call.
    pub async fn gather<S: Workload>(
        client: &Client,
        child: &Child<S>,
        label: Option<&str>,
    ) -> Result<Evidence, Error> {
        let mut evidence = Evidence::default();
        if S::is_nowhere(child) {
            evidence.nodes = permitted(nodes(client, label).await)?;
            return Ok(evidence);
        }
        let selector = selector_text(child.made().spec.selector());
        let listed = permitted(pods(client, child.key().namespace(), selector).await)?;
        evidence.pods = listed.unwrap_or_default();
        if S::lacks_pods(child) {
            evidence.refusal = permitted(refusal::<S>(client, child.key()).await)?.flatten();
        }
        Ok(evidence)
    }
}

/// `None` for what may not be read. A namespaced installation may not list nodes.
fn permitted<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_forbidden() || error.is_not_found() => {
            tracing::debug!(%error, "What may show why pods do not serve cannot be read");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The pods that `selector` selects, by name.
async fn pods(client: &Client, namespace: &Text, selector: String) -> Result<Vec<PodState>, Error> {
    let scope = Scope { namespace: Some(namespace.clone()), labels: Some(selector), fields: None };
    let mut pods: Vec<PodState> = list(client, &scope, false).await?;
    pods.sort_by(|a, b| a.name().cmp(b.name()));
    Ok(pods)
}

/// The newest reason why a pod of the child could not be created, if its Events have one.
async fn refusal<S: Workload>(client: &Client, key: &ObjectKey) -> Result<Option<String>, Error> {
    let (kind, name) = (S::KIND.kind, key.name());
    let fields = format!(
        "involvedObject.kind={kind},involvedObject.name={name},type=Warning,reason=FailedCreate"
    );
    let namespace = Some(key.namespace().clone());
    let scope = Scope { namespace, labels: None, fields: Some(fields) };
    let events: Vec<EventState> = list(client, &scope, false).await?;
    let newest = events.into_iter().max_by_key(|event| event.last_timestamp.max(event.event_time));
    Ok(newest.map(|event| without_made_up_names(&event.message, name)))
}

/// The nodes with this label, or all.
async fn nodes(client: &Client, label: Option<&str>) -> Result<Vec<NodeState>, Error> {
    let scope = Scope { labels: label.map(str::to_owned), ..Scope::default() };
    list(client, &scope, true).await
}

/// The objects of the first page, or of `all` pages. One that cannot be decoded is left out.
async fn list<V: Resource>(client: &Client, scope: &Scope, all: bool) -> Result<Vec<V>, Error> {
    let mut page = Page { limit: Some(PAGE), ..Page::default() };
    let mut found = Vec::new();
    loop {
        let end = client.list(scope, &page, |object: Result<V, _>| found.extend(object)).await?;
        match end.continue_token {
            Some(token) if all => page.continue_token = Some(token),
            _ => return Ok(found),
        }
    }
}

/// The message without the endings of pods' names, which are others each time: of `"agent-x7k2p"`
/// it leaves `"agent-"`.
fn without_made_up_names(message: &str, name: &str) -> String {
    let start = format!("\"{name}-");
    let mut parts = message.split(start.as_str());
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(&start);
        text.push_str(part.find('"').map_or(part, |end| &part[end..]));
    }
    text
}

// === impl Evidence ===

impl Evidence {
    /// What keeps pods from serving: the cause that most of them share, with the first pod, by
    /// name, that has it. The pod that `previous`, the last message, names stays: while one waits
    /// to crash again, another one runs for a moment.
    pub fn of_pods(&self, previous: Option<&str>) -> Option<Trouble> {
        let found: Vec<(&PodState, Trouble)> =
            self.pods.iter().filter_map(|pod| Some((pod, pod.trouble()?))).collect();
        let count = |reason| found.iter().filter(|(_, trouble)| trouble.reason == reason).count();
        // Of the same number, the first by name.
        let commonest =
            found.iter().rev().max_by_key(|(_, trouble)| count(trouble.reason)).map(|(_, t)| t);
        let Some(reason) = commonest.map(|trouble| trouble.reason) else { return self.evicted() };
        let named = |pod: &PodState| {
            previous.is_some_and(|message| message.starts_with(&format!("Pod {} ", pod.name())))
        };
        let mut of_reason = found.iter().filter(|(_, trouble)| trouble.reason == reason);
        let again = of_reason.clone().find(|(pod, _)| named(pod));
        again.or_else(|| of_reason.next()).map(|(_, trouble)| trouble.clone())
    }

    /// A pod that was evicted, for which another one, which does not serve yet, was made. Pods that
    /// were evicted before that are left for people to look at.
    fn evicted(&self) -> Option<Trouble> {
        let made = |pod: &&PodState| !pod.has_ended() && !pod.is_ready();
        let earliest = self.pods.iter().filter(made).filter_map(PodState::scheduled).min()?;
        let evicted = self.pods.iter().find(|pod| {
            pod.status.phase == "Failed"
                && pod.status.reason == "Evicted"
                && pod.not_ready_since().is_some_and(|at| at.plus(120) >= earliest)
        })?;
        let message = format!("Pod {} was evicted; another one is to replace it", evicted.name());
        Some(Trouble { reason: Reason::PodsEvicted, message })
    }

    /// How a taint keeps the daemon from every node where it belongs, if that is so.
    pub fn tainted(&self, label: Option<&str>) -> Option<String> {
        let nodes = self.nodes.as_ref().filter(|nodes| !nodes.is_empty())?;
        let mut taints: Vec<String> = nodes.iter().map(NodeState::taint).collect::<Option<_>>()?;
        taints.sort_unstable();
        taints.dedup();
        let (one, many) = (nodes.len() == 1, taints.len() > 1);
        let more = if taints.len() > 3 { ", …" } else { "" };
        let named = format!("{}{more}", taints[..taints.len().min(3)].join(", "));
        let taints = if many { "taints" } else { "taint" };
        let keep = if many { "keep" } else { "keeps" };
        let (node, its) = if one { ("node", "its") } else { ("nodes", "their") };
        Some(match label {
            Some(_) => {
                let has = if one { "has" } else { "have" };
                let count = nodes.len();
                format!(
                    "{count} {node} {has} the label, but {its} {taints} {named} {keep} the daemon out"
                )
            }
            None => format!(
                "There {} {} {node}, but {its} {taints} {named} {keep} the daemon out",
                if one { "is" } else { "are" },
                nodes.len()
            ),
        })
    }
}

// === impl PodState ===

impl PodState {
    /// Its name.
    pub fn name(&self) -> &str {
        self.meta.key.name()
    }

    /// The node that it was put on.
    pub fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref()
    }

    /// Whether it has ended: such a pod stays for people to look at, and counts as no replica.
    pub fn has_ended(&self) -> bool {
        ["Failed", "Succeeded"].contains(&&*self.status.phase)
    }

    /// Its state, much as `kubectl get pods` shows it.
    pub fn state(&self) -> String {
        if self.is_ready() {
            return "Ready".to_owned();
        }
        match self.trouble() {
            Some(trouble) => format!("{}: {}", trouble.reason.as_str(), trouble.message),
            None if self.status.phase.is_empty() => "Unknown".to_owned(),
            None => self.status.phase.to_string(),
        }
    }

    fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|ready| ready.status == Status::True)
    }

    fn condition(&self, kind: &str) -> Option<&ChildCondition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }

    fn scheduled(&self) -> Option<Time> {
        self.condition("PodScheduled")?.last_transition_time
    }

    fn not_ready_since(&self) -> Option<Time> {
        self.condition("Ready").filter(|ready| ready.status == Status::False)?.last_transition_time
    }

    /// What keeps it from serving. `None` if it serves, has ended, or nothing is wrong.
    pub fn trouble(&self) -> Option<Trouble> {
        if self.has_ended() || self.meta.deleting && self.status.reason != "NodeLost" {
            return None;
        }
        let status = &self.status;
        let mut containers =
            status.init_container_statuses.iter().chain(&status.container_statuses);
        containers
            .find_map(|container| container.trouble())
            .or_else(|| self.unscheduled())
            .or_else(|| self.on_a_lost_node())
            .map(|(reason, what)| Trouble {
                reason,
                message: format!("Pod {} {what}", self.name()),
            })
    }

    fn unscheduled(&self) -> Option<(Reason, String)> {
        let scheduled = self.condition("PodScheduled").filter(|c| c.status == Status::False)?;
        let what = format!("cannot be scheduled: {}", scheduled.message);
        Some((Reason::PodsUnschedulable, what))
    }

    /// Its containers are ready, and yet the pod is not: the node does not report any more
    /// (k8s.io/kubernetes/pkg/controller/nodelifecycle).
    fn on_a_lost_node(&self) -> Option<(Reason, String)> {
        let lost = self.status.reason == "NodeLost";
        let marked = self.condition("Ready").is_some_and(|ready| {
            ready.status == Status::False && ready.reason != "ReadinessGatesNotReady"
        });
        let containers = &self.status.container_statuses;
        let serve = !containers.is_empty() && containers.iter().all(|container| container.ready);
        (lost || marked && serve).then(|| {
            let node = self.node().unwrap_or_default();
            (Reason::NodeNotReady, format!("is on node {node}, which does not report"))
        })
    }
}

// === impl ContainerStatus ===

impl ContainerStatus {
    fn trouble(&self) -> Option<(Reason, String)> {
        let (name, image) = (&self.name, &self.image);
        let waiting = self.state.waiting.as_ref();
        let reason = match waiting.map_or("", |waiting| &*waiting.reason) {
            "InvalidImageName" => {
                let what = format!("cannot pull image {image}: that is no image's name");
                return Some((Reason::ImagePullFailed, what));
            }
            "ErrImagePull"
            | "ImagePullBackOff"
            | "ErrImageNeverPull"
            | "RegistryUnavailable"
            | "ImageInspectError" => {
                return Some((Reason::ImagePullFailed, format!("cannot pull image {image}")));
            }
            reason => reason,
        };
        let message = waiting.map_or("", |waiting| &*waiting.message);
        match reason {
            "CreateContainerConfigError"
            | "CreateContainerError"
            | "RunContainerError"
            | "StartError" => {
                let what = format!("cannot start container {name}: {message}");
                return Some((Reason::ContainerFailed, what));
            }
            _ => {}
        }
        let now = self.state.terminated.as_ref();
        let ended = now.filter(|ended| ended.exit_code != 0 || !self.ready);
        let ended = match (reason, ended) {
            ("CrashLoopBackOff", _) => self.last_state.terminated.as_ref().or(ended),
            (_, Some(ended)) if ended.exit_code != 0 => Some(ended),
            _ => return None,
        };
        let how = ended.map_or_else(String::new, |ended| {
            let reason = Some(&ended.reason).filter(|r| !r.is_empty() && **r != "Error");
            let reason = reason.map_or_else(String::new, |reason| format!(", {reason}"));
            format!(" (exit code {}{reason})", ended.exit_code)
        });
        Some((Reason::CrashLoopBackOff, format!("crashes: container {name}{how}")))
    }
}

// === impl NodeState ===

impl NodeState {
    /// A taint that keeps daemons out, as kubectl writes it. The DaemonSet controller has daemons
    /// tolerate Kubernetes' own taints of nodes that are not well.
    fn taint(&self) -> Option<String> {
        let keeps_out = |taint: &&Taint| {
            taint.effect != "PreferNoSchedule" && !taint.key.starts_with("node.kubernetes.io/")
        };
        let taint = self.spec.taints.iter().find(keeps_out)?;
        let equals = if taint.value.is_empty() { "" } else { "=" };
        Some(format!("{}{equals}{}:{}", taint.key, taint.value, taint.effect))
    }
}
