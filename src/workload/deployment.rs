//! Deployments.

use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::pod_template::{PodTemplate, Selector};
use crate::manager::Foreign;
use crate::object::{InternedStr, Interner, Kind};
use crate::workload::child::{Child, ChildSpec, Desired, renamed};
use crate::workload::condition::{Status, Time};

/// An existing Deployment.
pub type Deployment = Child<DeploymentSpec>;

/// The part of a Deployment that the operator sets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeploymentSpec {
    /// The number of pods.
    pub replicas: i32,
    /// Selects its pods. Immutable.
    pub selector: Selector,
    /// Move from one template to the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Seconds for which a pod must be ready before it counts as available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ready_seconds: Option<i32>,
    /// Seconds without progress after which its controller reports a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline_seconds: Option<i32>,
    /// The template of each pod.
    pub template: PodTemplate,
    /// True if a person has paused its rollouts. Read, and never set.
    #[serde(skip_serializing)]
    pub paused: bool,
}

/// Move of a Deployment from one template to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Strategy {
    /// `RollingUpdate` or `Recreate`.
    #[serde(rename = "type", skip_serializing_if = "str::is_empty")]
    pub kind: InternedStr,
    /// The pace of a rolling update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
}

/// The pace of a rolling update. Numbers or percentages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RollingUpdate {
    /// The number of pods that there may be above the number wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<Amount>,
    /// The number of pods that may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<Amount>,
}

/// A number or a percentage.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    /// A number of pods.
    Number(i32),
    /// A percentage of the pods.
    Percentage(InternedStr),
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
    /// Pods that have been ready for long enough.
    pub available_replicas: i32,
    /// Missing pods.
    pub unavailable_replicas: i32,
    /// `Available`, `Progressing`, `ReplicaFailure`.
    pub conditions: Box<[ChildCondition]>,
}

/// A condition of a child.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: InternedStr,
    /// True if it holds.
    pub status: Status,
    /// Why, in one word.
    #[serde(default)]
    pub reason: InternedStr,
    /// Why, in a sentence.
    #[serde(default)]
    pub message: InternedStr,
    /// Since when.
    #[serde(default)]
    pub last_transition_time: Option<Time>,
}

/// Kubernetes' default of `progressDeadlineSeconds` (k8s.io/kubernetes/pkg/apis/apps/v1/defaults.go).
const DEADLINE: i32 = 600;

/// The deadline of a rollout in which each pod must be ready for so long. Kubernetes refuses one that is not
/// longer than that.
pub(crate) fn deadline(min_ready_seconds: Option<i32>) -> Option<i32> {
    let seconds = min_ready_seconds.filter(|seconds| *seconds > 0)?;
    Some(seconds.saturating_add(DEADLINE))
}

// === impl DeploymentSpec ===

impl ChildSpec for DeploymentSpec {
    const KIND: Kind = Kind::namespaced("apps", "v1", "Deployment", "deployments");
    const IMMUTABLE: &'static [&'static str] = &["spec.selector"];
    type Status = DeploymentStatus;

    fn interner() -> &'static Interner<Arc<Desired<DeploymentSpec>>> {
        static INTERNER: LazyLock<Interner<Arc<Desired<DeploymentSpec>>>> =
            LazyLock::new(Interner::new);
        &INTERNER
    }

    fn conflicts(&self, there: &Deployment, foreign: Foreign<'_>) -> Vec<Value> {
        let mut operations = self.template.conflicts(&there.spec().template, foreign);
        // The API server fills the pace in, again where it is removed, and refuses it beside Recreate.
        let recreates = self.strategy.as_ref().is_some_and(|wanted| wanted.kind == "Recreate");
        let has_pace = |strategy: &Strategy| strategy.rolling_update.is_some();
        if recreates && there.spec().strategy.as_ref().is_some_and(has_pace) {
            let recreate = json!({ "type": "Recreate" });
            operations
                .push(json!({ "op": "replace", "path": "/spec/strategy", "value": recreate }));
        }
        operations
    }

    fn renamed(mut self, from: &str, to: &str) -> DeploymentSpec {
        self.selector.match_labels = renamed(&self.selector.match_labels, from, to);
        self.template = self.template.renamed(from, to);
        self
    }
}

impl Deployment {
    /// Returns whether its status refers to its newest generation.
    pub fn is_observed(&self) -> bool {
        self.status.observed_generation >= self.meta.generation
    }
}

impl DeploymentStatus {
    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&ChildCondition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}
