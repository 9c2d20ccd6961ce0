//! DaemonSets and their health.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::child::{Child, ChildSpec};
use super::deployment::longest_start;
use super::diagnostics::Ask;
use super::evidence::{Answer, Nodes};
use super::health::{Context, Health, Level, Workload};
use super::pod_state::Trouble;
use super::pod_template::{PodTemplate, Selector, unwanted_sources};
use super::progress::Progress;
use super::reason::Reason;
use super::sentence::{counted, join, share};
use crate::object::{InternedStr, Kind, Labels};

/// An existing DaemonSet.
pub type DaemonSet = Child<DaemonSetSpec>;

/// The part of a DaemonSet that the operator reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DaemonSetSpec {
    /// Selector of the pods. Immutable.
    pub selector: Selector,
    /// Replacement of old pods by those of a new template.
    pub update_strategy: Option<UpdateStrategy>,
    /// Seconds for which a pod must be ready before it counts as available.
    pub min_ready_seconds: Option<i32>,
    /// The template of each pod.
    pub template: PodTemplate,
}

/// Replacement of old pods by those of a new template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UpdateStrategy {
    /// `RollingUpdate` or `OnDelete`.
    #[serde(rename = "type")]
    pub kind: InternedStr,
}

/// The status that the DaemonSet controller reports. Each number counts nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DaemonSetStatus {
    /// The generation that the status refers to.
    pub observed_generation: i64,
    /// Nodes where the daemon belongs; `None` until the controller has counted them.
    pub desired_number_scheduled: Option<i32>,
    /// Of these, nodes that run the daemon.
    pub current_number_scheduled: i32,
    /// Of these, nodes that run a pod of the newest template.
    pub updated_number_scheduled: i32,
    /// Nodes that run the daemon although it does not belong there. This includes lost nodes, because no daemon
    /// tolerates `node.kubernetes.io/unreachable:NoSchedule`.
    pub number_misscheduled: i32,
    /// Nodes where the daemon belongs and is ready.
    pub number_ready: i32,
    /// Nodes where the daemon belongs and has been ready for `minReadySeconds`.
    pub number_available: i32,
}

// === impl DaemonSet ===

impl DaemonSet {
    /// Returns whether the status refers to the newest generation.
    pub fn is_observed(&self) -> bool {
        self.status.observed_generation >= self.meta.generation
    }
}

// === impl DaemonSetSpec ===

impl ChildSpec for DaemonSetSpec {
    const KIND: Kind = Kind::namespaced("apps", "v1", "DaemonSet", "daemonsets");
    type Status = DaemonSetStatus;

    /// Removes node requirements of other managers if none are desired, because the daemon belongs on every
    /// node that its spec selects.
    fn unwanted(wanted: &Value, stored: &Value) -> Vec<Value> {
        const SELECTOR: &str = "/template/spec/nodeSelector";
        const AFFINITY: &str =
            "/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
        let is_there = |spec: &Value, path: &str| {
            spec.pointer(path).is_some_and(|value| !value.is_null() && *value != json!({}))
        };
        let mut operations = unwanted_sources(wanted, stored);
        for path in [SELECTOR, AFFINITY] {
            let at = format!("/spec{path}");
            if !is_there(wanted, path) && is_there(stored, path) {
                operations.push(json!({ "op": "remove", "path": at }));
            }
        }
        operations
    }
}

impl Workload for DaemonSetSpec {
    fn health(child: &DaemonSet, context: &Context<'_>) -> Health {
        Health::of_daemon_set(child, context)
    }

    fn is_observed(child: &DaemonSet) -> bool {
        child.is_observed() && child.status.desired_number_scheduled.is_some()
    }

    fn progress(child: &DaemonSet) -> [i32; 4] {
        let status = &child.status;
        // The counts of an older generation do not measure the progress of this one.
        if !<DaemonSetSpec as Workload>::is_observed(child) {
            return [i32::MIN; 4];
        }
        [
            status.current_number_scheduled,
            status.updated_number_scheduled,
            status.number_available,
            status.number_ready,
        ]
    }

    fn selector(&self) -> &Labels {
        &self.selector.match_labels
    }

    fn ask(child: &DaemonSet) -> Ask {
        let status = &child.status;
        match status.desired_number_scheduled {
            Some(0) => Ask::Nodes,
            Some(desired) if missing(child, desired).is_none() => Ask::Nodes,
            Some(desired) if status.current_number_scheduled < desired => Ask::PodsAndEvents,
            _ => Ask::Pods,
        }
    }

    fn misscheduled(child: &DaemonSet) -> usize {
        usize::try_from(child.status.number_misscheduled).unwrap_or(0)
    }

    fn is_to_be_explained(child: &DaemonSet) -> bool {
        child.status.desired_number_scheduled == Some(0)
            || child.status.number_misscheduled > 0
            || is_tolerable(child)
    }
}

// === impl Health ===

impl Health {
    /// Returns the health of a DaemonSet that is as desired.
    pub fn of_daemon_set(daemon_set: &DaemonSet, context: &Context<'_>) -> Health {
        let status = &daemon_set.status;
        let desired = match status.desired_number_scheduled {
            Some(desired) if daemon_set.is_observed() => desired,
            _ => return Health::unobserved("DaemonSet", context),
        };
        if desired == 0 {
            return no_nodes(daemon_set, context);
        }
        let Some(missing) = missing(daemon_set, desired) else {
            let health = complete(daemon_set, desired, context);
            let old = desired - status.updated_number_scheduled;
            if is_on_delete(daemon_set) && old > 0 && health.level == Level::Ready {
                let message = format!("{}; {old}{FORMER}", without_former(&health.message));
                return Health { message, ..health };
            }
            return health;
        };
        // Daemons of an older template remain and will be replaced.
        let rolling = !is_on_delete(daemon_set)
            && status.updated_number_scheduled < status.current_number_scheduled;
        let completed = context.completed && !rolling;
        // Applies to a new generation, too, once only these few nodes are missing.
        if !rolling && is_tolerable(daemon_set) && (completed || context.is_stuck()) {
            return almost_complete(daemon_set, desired, &missing, context);
        }
        let lacks_pods = status.current_number_scheduled < desired;
        let refused = if lacks_pods { context.of_events() } else { None };
        if let Some(error) = context.error(refused.or_else(|| context.of_pods()), completed) {
            return context.health_of(error, completed);
        }
        if completed && waits_until_ready_for_long(daemon_set, desired) {
            return context.not_ready_for_long(&missing);
        }
        let known = context.known().map(|known| known.reason);
        // A node has joined, and the number of ready nodes has not risen.
        if known == Some(Reason::ReplicasUnavailable)
            && status.number_ready < context.desired_before
        {
            let reason = Reason::ReplicasUnavailable;
            let trouble = Trouble { reason, message: missing, stalls_at_once: false };
            return context.health_of(trouble, completed);
        }
        // During a rolling update, a pod is missing for a moment on each node.
        let is_missing = lacks_pods && !rolling;
        let limit = if is_missing { Progress::IDLE_MAX } else { longest_idle(daemon_set) };
        context.incomplete(&missing, completed, limit)
    }
}

/// Returns whether pods of an older template run until a user deletes them.
fn is_on_delete(daemon_set: &DaemonSet) -> bool {
    daemon_set.spec.update_strategy.as_ref().is_some_and(|strategy| strategy.kind == "OnDelete")
}

/// Returns the longest time of a rollout without progress: as for a Deployment, because Kubernetes has no deadline
/// for a DaemonSet. Each new pod replaces one.
fn longest_idle(daemon_set: &DaemonSet) -> Duration {
    let spec = &daemon_set.spec;
    let seconds = longest_start(&spec.template, spec.min_ready_seconds, true);
    Duration::from_secs(seconds.unsigned_abs())
}

/// Returns whether all pods are ready, and only `minReadySeconds` keeps some from being available.
fn waits_until_ready_for_long(daemon_set: &DaemonSet, desired: i32) -> bool {
    let status = &daemon_set.status;
    let all_are_ready = status.number_ready >= desired
        && status.number_available < desired
        && (is_on_delete(daemon_set) || status.updated_number_scheduled >= desired);
    all_are_ready && daemon_set.spec.min_ready_seconds.unwrap_or(0) > 0
}

/// Returns what keeps the DaemonSet from being complete, as text; `None` if nothing.
fn missing(daemon_set: &DaemonSet, desired: i32) -> Option<String> {
    let status = &daemon_set.status;
    let updated = status.updated_number_scheduled;
    let counts = [
        (status.current_number_scheduled, "the daemon"),
        // With OnDelete, new pods are created when a user deletes the old ones.
        (if is_on_delete(daemon_set) { desired } else { updated }, "an up-to-date daemon"),
        (status.number_available, "an available daemon"),
        (status.number_ready, "a ready daemon"),
    ];
    let (count, what) = counts.into_iter().find(|(count, _)| *count < desired)?;
    Some(share(count, desired, "node", ["runs", "run"], what))
}

/// Text after the number of pods that run until a user deletes them.
const FORMER: &str = " run the previous template until you delete them";

/// Returns the message without [`FORMER`] and its number.
fn without_former(message: &str) -> &str {
    let before = message.find(FORMER).and_then(|end| message[..end].rfind("; "));
    before.map_or(message, |at| &message[..at])
}

/// Minimum number of nodes for a tolerance of one in a hundred: of 5,000 nodes, one is always lost or not
/// ready.
const MANY: i32 = 100;

/// Returns how many of `nodes` can be lost or not ready.
fn tolerated(nodes: i32) -> i32 {
    if nodes >= MANY { nodes / 100 } else { 0 }
}

/// Returns whether the daemon is ready on all but a tolerated few nodes. Those that run it although it does not
/// belong there count as missing, because they can be lost.
pub(crate) fn is_tolerable(daemon_set: &DaemonSet) -> bool {
    let status = &daemon_set.status;
    let desired = status.desired_number_scheduled.unwrap_or(0);
    let fewest = [
        status.current_number_scheduled,
        if is_on_delete(daemon_set) { desired } else { status.updated_number_scheduled },
        status.number_available,
        status.number_ready,
    ];
    let missing = desired - fewest.into_iter().min().unwrap_or(0);
    let lost = status.number_misscheduled;
    missing > 0 && missing.saturating_add(lost) <= tolerated(desired.saturating_add(lost))
}

/// Returns the health of a daemon that is ready on all but a few of many nodes.
fn almost_complete(
    daemon_set: &DaemonSet,
    desired: i32,
    missing: &str,
    context: &Context<'_>,
) -> Health {
    let ready = daemon_set.status.number_available.min(daemon_set.status.number_ready);
    let first = format!("The daemon is ready on {ready} of {desired} desired nodes");
    if matches!(context.evidence.pods, Answer::NotAsked | Answer::Failed)
        && let Some(known) = context.previous.as_ref()
        && known.reason == Reason::MostNodesReady
        && known.message.starts_with(&first)
    {
        return known.clone();
    }
    let message = match context.evidence.unready_on() {
        Some(nodes) => format!("{first}; not on {nodes}"),
        None => format!("{first}; {missing}"),
    };
    Health::ready(Reason::MostNodesReady, message)
}

/// Returns the health of a daemon that is ready on all desired nodes. Kubernetes does not count lost
/// and tainted nodes as desired; pods left there are `misscheduled`.
fn complete(daemon_set: &DaemonSet, desired: i32, context: &Context<'_>) -> Health {
    let misscheduled = daemon_set.status.number_misscheduled;
    let message = match desired {
        1 => "The daemon is ready on the only desired node".to_owned(),
        desired => format!("The daemon is ready on all {desired} desired nodes"),
    };
    let ready = |message| Health::ready(Reason::AllNodesReady, message);
    let trouble = |reason, message| {
        context.health_of(Trouble { reason, message, stalls_at_once: false }, true)
    };
    let not_reporting = |what: String, lost: i32| {
        if lost <= tolerated(desired.saturating_add(lost)) {
            let message = format!("The daemon is ready on {desired} desired nodes");
            return Health::ready(Reason::MostNodesReady, join(&message, &what));
        }
        let count = usize::try_from(desired).unwrap_or(0);
        let others = counted(count, "other node", "other nodes");
        trouble(Reason::NodeNotReady, format!("{what}; the daemon is ready on {others}"))
    };
    match &context.evidence.nodes {
        Answer::Found(_) => {
            let nodes = nodes(daemon_set, context);
            match (nodes.lost(), nodes.tainted()) {
                // The daemon never ran on the node, or the node has returned since the list.
                (Some(lost), _) if misscheduled == 0 => ready(join(&message, &lost)),
                (Some(lost), _) => {
                    not_reporting(lost, i32::try_from(nodes.lost_count()).unwrap_or(i32::MAX))
                }
                (None, Some(tainted)) => ready(format!("{message}; {tainted}")),
                (None, None) => ready(message),
            }
        }
        Answer::NotPermitted if misscheduled == 0 => ready(message),
        Answer::NotPermitted => match context.of_pods() {
            Some(of_pods) if of_pods.reason == Reason::NodeNotReady => {
                if misscheduled <= tolerated(desired.saturating_add(misscheduled)) {
                    not_reporting(of_pods.message, misscheduled)
                } else {
                    trouble(of_pods.reason, of_pods.message)
                }
            }
            _ => {
                let count = usize::try_from(misscheduled).unwrap_or(0);
                let others = counted(count, "more node runs it", "more nodes run it");
                ready(format!(
                    "{message}; {others}, possibly despite a taint: the operator cannot list nodes"
                ))
            }
        },
        Answer::NotAsked | Answer::Failed if misscheduled == 0 => known_of_nodes(context, message),
        Answer::NotAsked | Answer::Failed => {
            let reasons = [Reason::NodeNotReady, Reason::MostNodesReady, Reason::AllNodesReady];
            kept(context, &reasons, &message)
        }
    }
}

/// Returns the health of a daemon that is ready where Kubernetes wants it, with the known facts about its other
/// nodes.
fn known_of_nodes(context: &Context<'_>, message: String) -> Health {
    let known = context.previous.as_ref().filter(|known| {
        let is_of_nodes = context.label.is_some() && known.reason == Reason::AllNodesReady;
        is_of_nodes && known.message.starts_with(&message)
    });
    match known {
        Some(known) => {
            Health { message: without_former(&known.message).to_owned(), ..known.clone() }
        }
        None => Health::ready(Reason::AllNodesReady, message),
    }
}

/// Returns the listed nodes where the daemon belongs.
fn nodes<'a>(daemon_set: &'a DaemonSet, context: &'a Context<'_>) -> Nodes<'a> {
    let tolerations = &daemon_set.spec.template.spec.tolerations;
    context.evidence.nodes(context.label, tolerations).expect("they were found")
}

/// Returns the health of a daemon that belongs on no node: no node has its label, or each is lost or tainted.
fn no_nodes(daemon_set: &DaemonSet, context: &Context<'_>) -> Health {
    let trouble = |reason, message| {
        context.health_of(Trouble { reason, message, stalls_at_once: false }, context.completed)
    };
    let none = || match context.label {
        None => "There is no node where the daemon can run".to_owned(),
        Some(label) => format!("No node has the label {label}"),
    };
    match &context.evidence.nodes {
        Answer::Found(_) => {
            let nodes = nodes(daemon_set, context);
            match (nodes.lost(), nodes.tainted()) {
                _ if nodes.is_empty() => {
                    Health::ready(Reason::NoMatchingNodes, format!("{}{}", none(), hint(context)))
                }
                (Some(lost), Some(tainted)) => {
                    trouble(Reason::NodeNotReady, format!("{lost}; {tainted}"))
                }
                (Some(lost), None) => trouble(Reason::NodeNotReady, lost),
                (None, Some(tainted)) if nodes.open() == 0 => {
                    trouble(Reason::NodesTainted, tainted)
                }
                _ if context.is_late(Progress::IDLE_MAX) => {
                    let message = "There are nodes that can run the daemon, but the DaemonSet \
                                   controller reports 0 desired pods";
                    trouble(Reason::ProgressDeadlineExceeded, message.to_owned())
                }
                _ => Health::rolling_out("Waiting for the DaemonSet controller to count the nodes"),
            }
        }
        Answer::NotPermitted => no_nodes_listed(daemon_set, context, &none()),
        Answer::NotAsked | Answer::Failed => {
            let reasons = [
                Reason::NodeNotReady,
                Reason::NodesTainted,
                Reason::NoMatchingNodes,
                Reason::ProgressDeadlineExceeded,
            ];
            kept(context, &reasons, "No node should run the daemon")
        }
    }
}

/// Like [`no_nodes`], from the pods and the counts, if the operator has no permission to list nodes.
fn no_nodes_listed(daemon_set: &DaemonSet, context: &Context<'_>, none: &str) -> Health {
    let trouble = |reason, message| {
        context.health_of(Trouble { reason, message, stalls_at_once: false }, context.completed)
    };
    let of_pods = context.of_pods().filter(|one| one.reason == Reason::NodeNotReady);
    let misscheduled = daemon_set.status.number_misscheduled;
    match (of_pods, misscheduled) {
        (Some(lost), _) => trouble(lost.reason, lost.message),
        (None, 0) => Health::ready(
            Reason::NoMatchingNodes,
            format!(
                "{none}, or taints keep the daemon out of all of them: the operator cannot list nodes"
            ),
        ),
        _ if !context.is_stuck() => {
            Health::rolling_out("Waiting for the daemon's pods to terminate")
        }
        _ => {
            let count = usize::try_from(misscheduled).unwrap_or(0);
            let message = format!(
                "{}, although the daemon does not belong there: unreachable or tainted nodes (the operator cannot \
                 list nodes)",
                counted(count, "node still runs a pod", "nodes still run a pod")
            );
            trouble(Reason::ReplicasUnavailable, message)
        }
    }
}

fn hint(context: &Context<'_>) -> String {
    let Some(label) = context.label else { return String::new() };
    let example = |label: &str| {
        if label.contains('=') { label.to_owned() } else { format!("{label}=true") }
    };
    let all = || label.split(',');
    // A key alone adds nothing to the same key with a value.
    let says_more = |label: &str| {
        let is_same_key = |other: &str| other.split_once('=').is_some_and(|(key, _)| key == label);
        !all().any(is_same_key)
    };
    let examples: Vec<String> = all().filter(|label| says_more(label)).map(example).collect();
    format!(". To add it, run: kubectl label node NODE {}", examples.join(" "))
}

/// Returns the health while the nodes cannot be listed: the reported health, if it is of this generation and
/// the counts allow its reason; otherwise a health that is not better.
fn kept(context: &Context<'_>, reasons: &[Reason], message: &str) -> Health {
    match context.previous.as_ref().filter(|previous| reasons.contains(&previous.reason)) {
        Some(previous) => previous.clone(),
        None => Health::rolling_out(format!(
            "{message}; the operator cannot list the nodes at the moment"
        )),
    }
}
