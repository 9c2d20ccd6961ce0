//! DaemonSets.

use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pod_template::{PodTemplate, Selector};
use crate::manager::Foreign;
use crate::object::{Interner, Kind};
use crate::workload::child::{Child, ChildSpec, Desired, renamed};

/// An existing DaemonSet.
pub type DaemonSet = Child<DaemonSetSpec>;

/// The part of a DaemonSet that the operator sets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DaemonSetSpec {
    /// Selects its pods. Immutable.
    pub selector: Selector,
    /// Move from one template to the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<Box<Value>>,
    /// Seconds for which a pod must be ready before it counts as available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ready_seconds: Option<i32>,
    /// The template of each pod.
    pub template: PodTemplate,
}

/// The status that the DaemonSet controller reports. Each number counts nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DaemonSetStatus {
    /// The generation that the status refers to.
    pub observed_generation: i64,
    /// Nodes where the daemon belongs; `None` until the controller has counted.
    pub desired_number_scheduled: Option<i32>,
    /// Of these, nodes that have it.
    pub current_number_scheduled: i32,
    /// Of these, nodes that have it from the newest template.
    pub updated_number_scheduled: i32,
    /// Nodes that have it although it does not belong there: also those that are lost, since no
    /// daemon tolerates `node.kubernetes.io/unreachable:NoSchedule`.
    pub number_misscheduled: i32,
    /// Nodes where it belongs and is ready.
    pub number_ready: i32,
    /// Nodes where it belongs and has been ready for long enough.
    pub number_available: i32,
}

// === impl DaemonSet ===

impl DaemonSet {
    /// Returns whether its status refers to its newest generation.
    pub fn is_observed(&self) -> bool {
        self.status.observed_generation >= self.meta.generation
    }
}

// === impl DaemonSetSpec ===

impl ChildSpec for DaemonSetSpec {
    const KIND: Kind = Kind::namespaced("apps", "v1", "DaemonSet", "daemonsets");
    const IMMUTABLE: &'static [&'static str] = &["spec.selector"];
    type Status = DaemonSetStatus;

    fn interner() -> &'static Interner<Arc<Desired<DaemonSetSpec>>> {
        static INTERNER: LazyLock<Interner<Arc<Desired<DaemonSetSpec>>>> =
            LazyLock::new(Interner::new);
        &INTERNER
    }

    fn conflicts(&self, there: &DaemonSet, foreign: Foreign<'_>) -> Vec<Value> {
        self.template.conflicts(&there.spec().template, foreign)
    }

    fn renamed(mut self, from: &str, to: &str) -> DaemonSetSpec {
        self.selector.match_labels = renamed(&self.selector.match_labels, from, to);
        self.template = self.template.renamed(from, to);
        self
    }
}
