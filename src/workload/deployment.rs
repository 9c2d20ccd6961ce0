//! Deployments and their health. A Deployment is ready by the rules of kstatus (sigs.k8s.io/cli-utils,
//! pkg/kstatus), so Ready means what tools would report for the Deployment itself.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::child::{Child, ChildSpec};
use super::condition::{Status, Time};
use super::health::{Context, Health, Level, Workload};
use super::pod_state::Trouble;
use super::pod_template::{PodTemplate, Selector, unwanted_sources};
use super::reason::Reason;
use super::sentence::{counted, share};
use crate::object::{InternedStr, Kind, Labels};

/// An existing Deployment.
pub type Deployment = Child<DeploymentSpec>;

/// The part of a Deployment that the operator reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeploymentSpec {
    /// The number of pods.
    pub replicas: i32,
    /// Selector of the pods. Immutable.
    pub selector: Selector,
    /// Seconds for which a pod must be ready before it counts as available.
    pub min_ready_seconds: Option<i32>,
    /// Seconds without progress after which the Deployment controller reports a failure.
    pub progress_deadline_seconds: Option<i32>,
    /// The template of each pod.
    pub template: PodTemplate,
    /// True if a user has paused its rollouts.
    pub paused: bool,
}

/// The status that the Deployment controller reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeploymentStatus {
    /// The generation that the status refers to.
    pub observed_generation: i64,
    /// The number of pods.
    pub replicas: i32,
    /// Pods of the newest template.
    pub updated_replicas: i32,
    /// Ready pods.
    pub ready_replicas: i32,
    /// Pods that have been ready for `minReadySeconds`.
    pub available_replicas: i32,
    /// Missing pods.
    pub unavailable_replicas: i32,
    /// `Available`, `Progressing`, `ReplicaFailure`.
    pub conditions: Box<[ChildCondition]>,
}

/// A condition of an owned object.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildCondition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: InternedStr,
    /// True if it holds.
    pub status: Status,
    /// Reason, one word.
    #[serde(default)]
    pub reason: InternedStr,
    /// Message, a sentence.
    #[serde(default)]
    pub message: InternedStr,
    /// Time of the last change of `status`.
    #[serde(default)]
    pub last_transition_time: Option<Time>,
}

/// Number of old templates that are kept for inspection, each with all of the spec's environment. The operator
/// reverts `kubectl rollout undo`, so Kubernetes' 10 would be of no use.
pub const REVISIONS: i32 = 2;

/// Kubernetes' default of `progressDeadlineSeconds` (k8s.io/kubernetes/pkg/apis/apps/v1/defaults.go).
const DEADLINE: i64 = 600;

/// Reasons of a Deployment's condition Progressing while no rollout is running.
const NO_ROLLOUT: [&str; 2] = ["NewReplicaSetAvailable", "DeploymentPaused"];

/// Adds `progressDeadlineSeconds` to a desired spec, unless Kubernetes' default is enough.
pub(crate) fn with_deadline(mut spec: Value) -> Value {
    let read = DeploymentSpec::deserialize(&spec).unwrap_or_default();
    let recreates = spec["strategy"]["type"] == "Recreate";
    let seconds = longest_start(&read.template, read.min_ready_seconds, recreates);
    if seconds > DEADLINE {
        spec["progressDeadlineSeconds"] = json!(i32::try_from(seconds).unwrap_or(i32::MAX));
    }
    spec
}

/// Returns the seconds that a pod can take to start: 600 plus the time for startup and readiness probes,
/// `minReadySeconds` (Kubernetes requires a longer deadline than that) and, if it `replaces` another pod, the grace
/// period.
pub(crate) fn longest_start(template: &PodTemplate, ready: Option<i32>, replaces: bool) -> i64 {
    let ending = template.spec.termination_grace_period_seconds.filter(|_| replaces);
    let starting = i64::try_from(template.starting().as_secs()).unwrap_or(i64::MAX);
    let ready = ready.map_or(0, i64::from);
    DEADLINE.saturating_add(starting).saturating_add(ending.unwrap_or(0)).saturating_add(ready)
}

// === impl DeploymentSpec ===

impl ChildSpec for DeploymentSpec {
    const KIND: Kind = Kind::namespaced("apps", "v1", "Deployment", "deployments");
    type Status = DeploymentStatus;

    fn unwanted(wanted: &Value, stored: &Value) -> Vec<Value> {
        unwanted_sources(wanted, stored)
    }
}

impl Deployment {
    /// Returns whether the status refers to the newest generation.
    pub fn is_observed(&self) -> bool {
        self.status.observed_generation >= self.meta.generation
    }
}

impl DeploymentStatus {
    /// Returns the condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&ChildCondition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}

impl Workload for DeploymentSpec {
    fn health(child: &Deployment, context: &Context<'_>) -> Health {
        Health::of_deployment(child, context)
    }

    fn is_observed(child: &Deployment) -> bool {
        child.is_observed() || refusal(child).is_some()
    }

    fn progress(child: &Deployment) -> [i32; 4] {
        let status = &child.status;
        // The counts of an older generation do not measure the progress of this one.
        if !child.is_observed() {
            return [i32::MIN; 4];
        }
        // The deletion of old pods is progress, too.
        let old = status.replicas - status.updated_replicas;
        [status.updated_replicas, status.ready_replicas, status.available_replicas, -old]
    }

    fn selector(&self) -> &Labels {
        &self.selector.match_labels
    }
}

// === impl Health ===

impl Health {
    /// Returns the health of a Deployment that is as desired.
    pub fn of_deployment(deployment: &Deployment, context: &Context<'_>) -> Health {
        let status = &deployment.status;
        if let Some(refusal) = refusal(deployment) {
            let message = refusal.message.to_string();
            let trouble =
                Trouble { reason: Reason::ReplicaFailure, message, stalls_at_once: false };
            return context.health_of(trouble, false);
        }
        if !deployment.is_observed() {
            return Health::unobserved("Deployment", context);
        }
        let progressing = status.condition("Progressing");
        let rolling = status.updated_replicas < status.replicas
            || progressing.is_some_and(|c| !NO_ROLLOUT.contains(&&*c.reason));
        let completed = context.completed && !rolling;
        if let Some(late) = progressing.filter(|c| c.reason == "ProgressDeadlineExceeded") {
            let message = context.with_pod(&late.message);
            return Health::new(Level::Stalled, Reason::ProgressDeadlineExceeded, message);
        }
        let failure = status.condition("ReplicaFailure").filter(|c| c.status == Status::True);
        if let Some(failure) = failure {
            let (reason, message) = (Reason::ReplicaFailure, context.with_pod(&failure.message));
            let trouble = Trouble { reason, message, stalls_at_once: false };
            return context.health_of(trouble, completed);
        }
        let Some(missing) = missing(deployment, context.listed) else { return ready(deployment) };
        if deployment.spec.paused && waits_for_a_template(deployment, context.is_stuck()) {
            return Health::new(Level::Stalled, Reason::RolloutPaused, paused(deployment));
        }
        if let Some(error) = context.error(context.of_pods(), completed) {
            return context.health_of(error, completed);
        }
        if completed && waits_until_ready_for_long(deployment, context.listed) {
            return context.not_ready_for_long(&missing);
        }
        if completed && !is_short(deployment, context.listed) {
            return Health::rolling_out(missing);
        }
        context.incomplete(&missing, completed, longest_idle(deployment))
    }
}

/// Returns the condition by which the controller reports that a quota or a policy does not allow a ReplicaSet.
/// The controller writes it without observing the newest generation (k8s.io/kubernetes,
/// pkg/controller/deployment/sync.go, getNewReplicaSet).
fn refusal(deployment: &Deployment) -> Option<&ChildCondition> {
    let progressing = deployment.status.condition("Progressing");
    // The condition outlives a return to a template that already has a ReplicaSet.
    let is_former = deployment.is_observed() && deployment.status.updated_replicas > 0;
    progressing
        .filter(|_| !is_former)
        .filter(|c| c.status == Status::False && c.reason != "ProgressDeadlineExceeded")
}

/// Returns whether all pods are ready, and only `minReadySeconds` keeps some from being available.
fn waits_until_ready_for_long(deployment: &Deployment, listed: Option<usize>) -> bool {
    let (status, wanted) = (&deployment.status, deployment.spec.replicas);
    let listed = listed.is_none_or(|listed| usize::try_from(wanted).is_ok_and(|w| listed >= w));
    let all_are_ready = status.ready_replicas >= wanted
        && status.updated_replicas >= wanted
        && status.available_replicas < wanted;
    listed && all_are_ready && deployment.spec.min_ready_seconds.unwrap_or(0) > 0
}

/// Returns the longest time without progress.
fn longest_idle(deployment: &Deployment) -> Duration {
    let seconds = deployment.spec.progress_deadline_seconds.map_or(DEADLINE, i64::from);
    Duration::from_secs(seconds.unsigned_abs())
}

fn ready(deployment: &Deployment) -> Health {
    match deployment.spec.replicas {
        0 => Health::ready(Reason::ScaledToZero, "No replicas are desired"),
        1 => Health::ready(Reason::AllReplicasReady, "1 of 1 replica is ready"),
        replicas => {
            Health::ready(Reason::AllReplicasReady, format!("All {replicas} replicas are ready"))
        }
    }
}

fn paused(deployment: &Deployment) -> String {
    let name = deployment.meta.key.name();
    format!(
        "The rollout of Deployment {name} is paused. To resume it, run: kubectl rollout resume \
         deployment/{name}"
    )
}

/// Returns whether the Deployment waits for pods of its newest template, which a paused Deployment does not
/// create. It does create more pods of its current template.
fn waits_for_a_template(deployment: &Deployment, stuck: bool) -> bool {
    let status = &deployment.status;
    status.updated_replicas < status.replicas
        || stuck && status.updated_replicas < deployment.spec.replicas
}

/// Returns whether fewer pods serve than desired.
fn is_short(deployment: &Deployment, listed: Option<usize>) -> bool {
    let (status, wanted) = (&deployment.status, deployment.spec.replicas);
    let listed = listed.is_some_and(|listed| usize::try_from(wanted).is_ok_and(|w| listed < w));
    let fewest = [status.updated_replicas, status.ready_replicas, status.available_replicas];
    listed || fewest.iter().any(|count| *count < wanted)
}

/// Returns what keeps the Deployment from being complete, as text; `None` if nothing.
fn missing(deployment: &Deployment, listed: Option<usize>) -> Option<String> {
    let (status, wanted) = (&deployment.status, deployment.spec.replicas);
    let of = |n: i32, what: &str| Some(share(n, wanted, "replica", ["is", "are"], what));
    let remaining = |n: i32, what: &str| {
        let (one, more) = (format!("{what} replica remains"), format!("{what} replicas remain"));
        Some(counted(usize::try_from(n).unwrap_or(0), &one, &more))
    };
    let surplus = status.replicas - status.updated_replicas;
    if status.updated_replicas < wanted {
        of(status.updated_replicas, "up to date")
    } else if surplus > 0 {
        remaining(surplus, "old")
    } else if status.replicas > wanted {
        remaining(status.replicas - wanted, "surplus")
    } else if status.ready_replicas < wanted {
        of(status.ready_replicas, "ready")
    } else if status.available_replicas < wanted {
        of(status.available_replicas, "available")
    } else if status.unavailable_replicas > 0 {
        // This count follows the desired size of the ReplicaSets. No other count contains pods that are not
        // created yet and no longer desired.
        Some("Waiting for a replica that is no longer needed".to_owned())
    } else if status.condition("Progressing").is_some_and(|c| !NO_ROLLOUT.contains(&&*c.reason)) {
        Some("Waiting for the rollout to complete".to_owned())
    } else if status.condition("Available").is_none_or(|c| c.status != Status::True) {
        Some("Waiting for the Deployment to be available".to_owned())
    } else {
        // The listed pods are counted separately, because the Deployment's counts lag. Ready guarantees that
        // the status lists every pod, and that no surplus pod runs.
        let listed = listed.filter(|listed| usize::try_from(wanted).is_ok_and(|w| *listed != w));
        let listed = listed.map(|listed| i32::try_from(listed).unwrap_or(i32::MAX));
        listed.map(|listed| share(listed, wanted, "pod", ["exists", "exist"], "").trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::workload::evidence::{Answer, Evidence};

    fn deployment(wanted: i32, counts: [i32; 2]) -> Deployment {
        let [replicas, updated] = counts;
        serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "ns", "ownerReferences": [{
                "apiVersion": "app.example.com/v1", "kind": "App", "name": "a", "controller": true,
                "uid": "00000000-0000-4000-8000-000000000001",
            }]},
            "spec": {"replicas": wanted},
            "status": {"replicas": replicas, "updatedReplicas": updated},
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_can_start_until_the_deadline() {
        let stored = deployment(1, [1, 1]);
        let pod = json!({"metadata": {"name": "a-1", "namespace": "ns"}, "spec": {"nodeName": "n"},
            "status": {"phase": "Pending", "containerStatuses": [{"name": "a", "ready": false,
                "state": {"waiting": {"reason": "ContainerCreating"}}}]}});
        let pods = Answer::Found(vec![serde_json::from_value(pod).unwrap()].into());
        let health = |idle| {
            let evidence = Evidence { pods: pods.clone(), ..Evidence::default() };
            let idle = Duration::from_secs(idle);
            Health::of_deployment(&stored, &Context { idle, evidence, ..Context::default() })
        };
        let starting = health(599);
        assert_eq!(starting.level, Level::Progressing);
        assert_eq!(starting.message, "0 of 1 replica is ready; pod a-1 is starting on node n");
        let late = health(600);
        assert_eq!((late.level, late.reason), (Level::Degraded, Reason::ContainersNotReady));
    }

    #[test]
    fn the_deletion_of_old_pods_is_progress() {
        let old = |counts| DeploymentSpec::progress(&deployment(2, counts))[3];
        assert_eq!([old([3, 1]), old([2, 1]), old([2, 2])], [-2, -1, 0]);
    }

    #[test]
    fn a_paused_deployment_waits_for_its_newest_template_only() {
        let stored = deployment(2, [2, 2]);
        assert!(!waits_for_a_template(&stored, true) && !waits_for_a_template(&stored, false));
        assert!(waits_for_a_template(&deployment(2, [2, 1]), false));
    }
}
