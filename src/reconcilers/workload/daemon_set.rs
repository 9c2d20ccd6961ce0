//! DaemonSets.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::template::{PodTemplate, Selector};
use crate::object::Kind;
use crate::reconcilers::child::{Child, ChildSpec, Made, removal, renamed};
use crate::reconcilers::interned::Interner;
use crate::reconcilers::reason::Reason;

/// A DaemonSet that exists.
pub type DaemonSet = Child<DaemonSetSpec>;

/// What the operator sets in a DaemonSet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonSetSpec {
    /// Which pods are its own. Immutable.
    pub selector: Selector,
    /// What each pod is.
    pub template: PodTemplate,
}

/// What the DaemonSet controller says. Each number counts nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DaemonSetStatus {
    /// The generation that it speaks of.
    pub observed_generation: i64,
    /// Where the daemon belongs; none as long as nobody counted.
    pub desired_number_scheduled: Option<i32>,
    /// Of these, where it is.
    pub current_number_scheduled: i32,
    /// Of these, where it is of the newest template.
    pub updated_number_scheduled: i32,
    /// Where it belongs and is ready.
    pub number_ready: i32,
    /// Where it belongs and has been ready for long enough.
    pub number_available: i32,
}

// === impl DaemonSetSpec ===

impl ChildSpec for DaemonSetSpec {
    const KIND: Kind = Kind::namespaced("apps", "v1", "DaemonSet", "daemonsets");
    const REASONS: [Reason; 3] =
        [Reason::DaemonSetCreated, Reason::DaemonSetUpdated, Reason::DaemonSetRestored];
    type Status = DaemonSetStatus;

    fn interner() -> &'static Interner<Made<DaemonSetSpec>> {
        static INTERNER: Interner<Made<DaemonSetSpec>> = Interner::new();
        &INTERNER
    }

    fn difference(&self, there: &DaemonSetSpec) -> Option<&'static str> {
        self.template.difference(&there.template)
    }

    fn immutable_difference(&self, there: &DaemonSetSpec) -> Option<&'static str> {
        (self.selector != there.selector).then_some("spec.selector")
    }

    fn in_the_way(&self, there: &DaemonSetSpec) -> Vec<Value> {
        self.template.in_the_way(&there.template).iter().map(|path| removal(path)).collect()
    }

    fn renamed(mut self, from: &str, to: &str) -> DaemonSetSpec {
        self.selector.match_labels = renamed(&self.selector.match_labels, from, to);
        self.template = self.template.renamed(from, to);
        self
    }

    fn normalised(mut self) -> DaemonSetSpec {
        self.template = self.template.normalised();
        self
    }
}
