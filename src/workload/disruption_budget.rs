//! PodDisruptionBudgets: how many pods a drain may take away at a time.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::child::{Child, ChildSpec};
use super::deployment::Amount;
use super::pod_template::Selector;
use super::service::Unread;
use crate::object::{InternedStr, Kind};
use crate::schema;

/// An existing PodDisruptionBudget.
pub type PodDisruptionBudget = Child<BudgetSpec>;

/// Bound on the pods that a drain of nodes takes away at a time.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetSettings {
    /// The pods that may be missing, at least 1, or a percentage.
    #[schemars(schema_with = "schema::amount_of_a_budget")]
    pub max_unavailable: Amount,
}

/// The part of a PodDisruptionBudget that the operator sets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BudgetSpec {
    /// Selects the pods.
    pub selector: Selector,
    /// The pods that a drain may take away at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<Amount>,
    /// `AlwaysAllow`: a pod that does not work holds up no drain.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub unhealthy_pod_eviction_policy: InternedStr,
    /// The pods that a drain has to leave. Never set; see `conflicts`.
    #[serde(skip_serializing)]
    pub min_available: Option<Amount>,
}

impl ChildSpec for BudgetSpec {
    const KIND: Kind =
        Kind::namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
    const IMMUTABLE: &'static [&'static str] = &[];
    type Status = Unread;
}

impl BudgetSettings {
    /// The budget of the pods that `selector` selects.
    pub(crate) fn desired(&self, selector: Selector) -> BudgetSpec {
        let max_unavailable = Some(self.max_unavailable.clone());
        let unhealthy_pod_eviction_policy = InternedStr::new("AlwaysAllow");
        BudgetSpec { selector, max_unavailable, unhealthy_pod_eviction_policy, min_available: None }
    }
}
