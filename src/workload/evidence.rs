//! Evidence of why a workload is not ready: the results of diagnostic lists of its pods, its Events and the
//! nodes, and the conclusions from them. Pure.
//!
//! Guarantees
//! - A failed list does not count as empty: its readers keep the last known cause ([`Evidence::of_pods`]).
//! - The same evidence yields the same message, so a repeated list writes no status.

use std::sync::Arc;

use serde_json::Value;

use super::condition::Time;
use super::pod_state::{NodeState, PodState, Trouble};
use super::reason::Reason;

/// Maximum time from the eviction of a pod to the scheduling of its replacement, in seconds. The replacement is
/// created at once, but the scheduler can take a while.
const REPLACED_WITHIN: i64 = 120;

/// Maximum difference between the clocks of two nodes, in seconds.
const SKEW: i64 = 10;

/// Maximum time from the scheduling of a never-ready pod to its first report of that, in seconds.
const FIRST_REPORT: i64 = 60;

/// Maximum number of node names in a message.
const NAMED: usize = 3;

/// The result of a diagnostic list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Answer<T> {
    /// The workload needs no such list.
    #[default]
    NotAsked,
    /// The evidence.
    Found(T),
    /// The operator has no permission to list the objects.
    NotPermitted,
    /// The list failed, took too long, or was postponed to limit the rate of lists.
    Failed,
}

/// The results of the diagnostic lists of one workload.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Pods that are not ready or are being deleted, by name. Evicted pods are included if no other problem is
    /// found.
    pub pods: Answer<Arc<[PodState]>>,
    /// The reason why a DaemonSet's pods cannot be created, if its Events report it. A Deployment reports it
    /// in a condition.
    pub refusal: Answer<Option<String>>,
    /// Nodes with a daemon's labels, including those where it cannot run.
    pub nodes: Answer<Arc<[NodeState]>>,
    /// Number of listed pods or nodes, including those that show nothing.
    pub listed: u32,
    /// Time of the list of pods.
    pub at: Option<Time>,
}

/// Nodes with a daemon's label.
#[derive(Debug)]
pub struct Nodes<'a> {
    label: Option<&'a str>,
    tolerations: &'a [Value],
    all: &'a [NodeState],
}

// === impl Answer ===

impl<T> Answer<T> {
    /// Returns the evidence, if there is any.
    pub fn found(&self) -> Option<&T> {
        match self {
            Answer::Found(found) => Some(found),
            _ => None,
        }
    }
}

// === impl Evidence ===

impl Evidence {
    /// Returns whether a list failed.
    pub fn has_failed(&self) -> bool {
        matches!(self.pods, Answer::Failed)
            || matches!(self.refusal, Answer::Failed)
            || matches!(self.nodes, Answer::Failed)
    }

    /// Returns the error that most pods share, with the first pod by name that has it. The pod in `previous`, the
    /// last message, takes precedence. A pod that hangs in termination counts only if there is no other error, and
    /// an eviction only after that.
    pub fn of_pods(&self, previous: Option<&str>) -> Option<Trouble> {
        let pods = self.pods.found()?;
        let hangs = |pod: &PodState| pod.hangs(self.at?);
        // Next to a pod that starts, it is not the cause.
        let is_cause = || !pods.iter().any(|pod| pod.starting().is_some());
        most_common(pods, PodState::trouble, previous)
            .or_else(|| most_common(pods, hangs, previous).filter(|_| is_cause()))
            .or_else(|| evicted(pods))
    }

    /// Returns whether a starting pod has not been ready for a while. True if no pod starts.
    pub fn has_lasting_pods(&self) -> bool {
        let (Some(pods), Some(now)) = (self.pods.found(), self.at) else { return true };
        let mut starting = pods.iter().filter(|pod| pod.starting().is_some()).peekable();
        starting.peek().is_none() || starting.any(|pod| pod.lasts(now))
    }

    /// Returns what a pod lacks that is starting, or was ready and is no longer.
    pub fn of_starting_pods(&self, previous: Option<&str>) -> Option<Trouble> {
        most_common(self.pods.found()?, PodState::starting, previous)
    }

    /// Returns why pods cannot start that have tried for a while. Such a cause counts even during progress.
    pub fn of_lasting_pods(&self, previous: Option<&str>) -> Option<Trouble> {
        let (pods, now) = (self.pods.found()?, self.at?);
        let lasting = |pod: &PodState| pod.trouble().filter(|_| pod.lasts(now));
        most_common(pods, lasting, previous)
    }

    /// Returns the names of nodes with pods that are not ready.
    pub fn unready_on(&self) -> Option<String> {
        let pods = self.pods.found()?.iter().filter(|pod| !pod.has_ended() && !pod.is_ready());
        let mut nodes: Vec<&str> = pods.filter_map(PodState::node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        (!nodes.is_empty()).then(|| some(&nodes))
    }

    /// Returns whether the listed nodes show why this number of nodes should not run the daemon. A node can have
    /// changed since.
    pub fn explains(&self, misscheduled: usize) -> bool {
        let is_closed = |node: &&NodeState| node.is_lost() || node.taint(&[]).is_some();
        let closed = |nodes: &Arc<[NodeState]>| nodes.iter().filter(is_closed).count();
        self.nodes.found().is_none_or(|nodes| closed(nodes) >= misscheduled)
    }

    /// Returns the nodes where a daemon with this label and these tolerations belongs, if they could be listed.
    pub fn nodes<'a>(
        &'a self,
        label: Option<&'a str>,
        tolerations: &'a [Value],
    ) -> Option<Nodes<'a>> {
        Some(Nodes { label, tolerations, all: self.nodes.found()? })
    }
}

fn most_common(
    pods: &[PodState],
    cause: impl Fn(&PodState) -> Option<Trouble>,
    previous: Option<&str>,
) -> Option<Trouble> {
    let found: Vec<(&PodState, Trouble)> =
        pods.iter().filter_map(|pod| Some((pod, cause(pod)?))).collect();
    let count = |reason| found.iter().filter(|(_, trouble)| trouble.reason == reason).count();
    // Of equally common causes, the first by name.
    let reason = found.iter().rev().max_by_key(|(_, t)| count(t.reason)).map(|(_, t)| t.reason)?;
    let named = |pod: &PodState| {
        previous.is_some_and(|message| message.contains(&format!("od {} ", pod.name())))
    };
    let mut of_reason = found.iter().filter(|(_, trouble)| trouble.reason == reason);
    let again = of_reason.clone().find(|(pod, _)| named(pod));
    again.or_else(|| of_reason.next()).map(|(_, trouble)| trouble.clone())
}

/// Returns a pod that was evicted shortly before its replacement was scheduled, if that was never ready. Pods
/// that were evicted at another time remain for inspection only.
fn evicted(pods: &[PodState]) -> Option<Trouble> {
    let replacements = pods.iter().filter(|pod| !pod.has_ended() && !pod.is_ready());
    let starting: Vec<Time> = replacements
        .filter_map(|pod| {
            let scheduled = pod.scheduled()?;
            let never_ready =
                pod.not_ready_since().is_none_or(|at| at <= scheduled.plus(FIRST_REPORT));
            never_ready.then_some(scheduled)
        })
        .collect();
    let evicted = pods.iter().find(|pod| {
        pod.evicted().is_some_and(|at| {
            let replaced = |by: &Time| at <= by.plus(SKEW) && *by <= at.plus(REPLACED_WITHIN);
            starting.iter().any(replaced)
        })
    })?;
    let (name, end) = (evicted.name(), evicted.end());
    let message = format!("Pod {name} {end}; its replacement is not ready");
    Some(Trouble { reason: Reason::PodsEvicted, message, stalls_at_once: false })
}

// === impl Nodes ===

impl Nodes<'_> {
    /// Returns whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the number of nodes that report and have no taint that the daemon does not tolerate.
    pub fn open(&self) -> usize {
        let is_open = |node: &&NodeState| !node.is_lost() && node.taint(self.tolerations).is_none();
        self.all.iter().filter(is_open).count()
    }

    /// Returns the number of nodes that do not report.
    pub fn lost_count(&self) -> usize {
        self.all.iter().filter(|node| node.is_lost()).count()
    }

    /// Returns a sentence that names the nodes that do not report.
    pub fn lost(&self) -> Option<String> {
        let lost: Vec<&str> =
            self.all.iter().filter(|node| node.is_lost()).map(NodeState::name).collect();
        match &lost[..] {
            [] => None,
            [one] => Some(format!("Node {one} does not report")),
            more => Some(format!("{} nodes do not report: {}", more.len(), some(more))),
        }
    }

    /// Returns a sentence about the nodes that report and have a taint that the daemon does not tolerate, if
    /// there are any.
    pub fn tainted(&self) -> Option<String> {
        let reporting = self.all.iter().filter(|node| !node.is_lost());
        let kept: Vec<(&str, String)> = reporting
            .filter_map(|node| Some((node.name(), node.taint(self.tolerations)?)))
            .collect();
        let mut taints: Vec<&str> = kept.iter().map(|(_, taint)| taint.as_str()).collect();
        taints.sort_unstable();
        taints.dedup();
        let (count, several) = (kept.len(), taints.len() > 1);
        let (taint, keep) = if several { ("taints", "keep") } else { ("taint", "keeps") };
        let (taints, out) = (some(&taints), format!("{keep} the daemon out"));
        match (count, self.label) {
            (0, _) => None,
            (1, _) if self.all.len() > 1 => {
                Some(format!("{taint} {taints} of node {} {out}", kept[0].0))
            }
            (_, _) if count < self.all.len() => {
                let names: Vec<&str> = kept.iter().map(|(name, _)| *name).collect();
                Some(format!("{taint} {taints} of nodes {} {out}", some(&names)))
            }
            (1, Some(_)) => Some(format!("1 node has the label, but its {taint} {taints} {out}")),
            (n, Some(_)) => {
                Some(format!("{n} nodes have the label, but their {taint} {taints} {out}"))
            }
            (1, None) => Some(format!("There is 1 node, but its {taint} {taints} {out}")),
            (n, None) => Some(format!("There are {n} nodes, but their {taint} {taints} {out}")),
        }
    }
}

/// Returns the first few words.
fn some(words: &[&str]) -> String {
    let more = if words.len() > NAMED { ", …" } else { "" };
    format!("{}{more}", words[..words.len().min(NAMED)].join(", "))
}

#[cfg(test)]
mod tests {
    // Fixtures read better with values in place.
    #![allow(clippy::needless_pass_by_value)]

    use serde_json::json;

    use super::*;

    fn pod(name: &str, status: Value) -> PodState {
        let pod = json!({"metadata": {"name": name, "namespace": "n"}, "status": status});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn at_most_three_names_are_shown() {
        assert_eq!(some(&["a", "b", "c"]), "a, b, c");
        assert_eq!(some(&["a", "b", "c", "d"]), "a, b, c, …");
    }

    fn condition(kind: &str, status: &str, at: &str) -> Value {
        json!({"type": kind, "status": status, "lastTransitionTime": format!("2026-01-{at}:00Z")})
    }

    fn cause(pods: &[PodState]) -> Option<Reason> {
        let pods = Answer::Found(pods.to_vec().into());
        Evidence { pods, ..Evidence::default() }.of_pods(None).map(|trouble| trouble.reason)
    }

    fn evicted(at: &str) -> PodState {
        let conditions = [condition("Ready", "False", at)];
        pod("a", json!({"phase": "Failed", "reason": "Evicted", "conditions": conditions}))
    }

    fn starting(scheduled: &str, unready: &str) -> PodState {
        let conditions =
            [condition("PodScheduled", "True", scheduled), condition("Ready", "False", unready)];
        pod("b", json!({"phase": "Running", "conditions": conditions}))
    }

    #[test]
    fn an_eviction_explains_only_its_replacement_pod() {
        let (then, later, days_later) = ("01T10:00", "01T10:01", "05T10:00");
        let replaced = [evicted(then), starting(later, later)];
        assert_eq!(cause(&replaced), Some(Reason::PodsEvicted));
        let of_days_ago = [evicted(then), starting(days_later, days_later)];
        assert_eq!(cause(&of_days_ago), None);
        let was_ready_since = [evicted(then), starting(later, days_later)];
        assert_eq!(cause(&was_ready_since), None);
    }

    #[test]
    fn a_failed_list_explains_nothing() {
        assert_eq!(Evidence::failed().of_pods(None), None);
        assert!(Evidence::failed().has_failed() && !Evidence::default().has_failed());
    }

    fn nodes(taints: &[(&str, &str)]) -> Evidence {
        let node = |(n, (key, effect)): (usize, &(&str, &str))| {
            let taints = json!([{"key": key, "effect": effect}]);
            let name = format!("node-{n}");
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"taints": taints}}))
                .unwrap()
        };
        let nodes: Vec<NodeState> = taints.iter().enumerate().map(node).collect();
        Evidence { nodes: Answer::Found(nodes.into()), ..Evidence::default() }
    }

    #[test]
    fn taints_match_tolerations_by_key_and_effect() {
        for (taint, open, lost) in [
            (("node.kubernetes.io/disk-pressure", "NoSchedule"), 1, false),
            (("node.kubernetes.io/disk-pressure", "NoExecute"), 0, false),
            (("node.kubernetes.io/unschedulable", "NoSchedule"), 1, false),
            (("node.kubernetes.io/out-of-service", "NoExecute"), 0, false),
            (("node.kubernetes.io/network-unavailable", "NoSchedule"), 0, false),
            (("node.kubernetes.io/unreachable", "NoSchedule"), 0, true),
            (("node.kubernetes.io/not-ready", "NoSchedule"), 0, true),
            (("dedicated", "PreferNoSchedule"), 1, false),
            (("node.cilium.io/agent-not-ready", "NoSchedule"), 0, false),
        ] {
            let evidence = nodes(&[taint]);
            let found = evidence.nodes(Some("disk=ssd"), &[]).unwrap();
            assert_eq!((found.open(), found.lost().is_some()), (open, lost), "{taint:?}");
            assert_eq!(found.tainted().is_some(), open == 0 && !lost, "{taint:?}");
        }
    }

    #[test]
    fn a_tolerated_taint_excludes_no_node() {
        let evidence = nodes(&[("dedicated", "NoSchedule")]);
        for (toleration, open) in [
            (json!({"operator": "Exists"}), 1),
            (json!({"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}), 1),
            (json!({"key": "dedicated"}), 1),
            (json!({"key": "dedicated", "value": "logs"}), 0),
            (json!({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}), 0),
            (json!({"key": "gpu", "operator": "Exists"}), 0),
        ] {
            let tolerations = [toleration];
            let found = evidence.nodes(None, &tolerations).unwrap();
            assert_eq!(
                (found.open(), found.tainted().is_none()),
                (open, open == 1),
                "{tolerations:?}"
            );
        }
    }
}
