//! GenericDaemon: a DaemonSet with its name.
//!
//! Nodes are not watched: the DaemonSet controller follows their labels, and its status shows the result. Nodes
//! are listed occasionally: to distinguish a missing label from a taint while the status shows no node, and to
//! name labelled nodes that a taint excludes.

pub(crate) mod spec;
mod pod;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::controller::{Action, ReconcileError};
use crate::manager::Context;
use crate::object::{InternedStr, Meta};
use crate::workload::child::Desired;
use crate::workload::condition::{self, Time, Type, Wanted, merge};
use crate::workload::custom_resource::{Custom, Switches, custom, is_paused};
use crate::workload::daemon_set::is_tolerable;
use crate::workload::health::{self, Health, Level};
use crate::workload::labels::{GENERIC_DAEMON, Identity};
use crate::workload::observer::Observer;
use crate::workload::pod_template::{object, refusal};
use crate::workload::reason::Reason;
use crate::workload::reconciliation::{Found, Reconciliation};
use crate::workload::{DaemonSet, DaemonSetSpec, REVISIONS};

pub use spec::{Spec, Status};

// === View ===

/// A GenericDaemon.
#[derive(Debug, Clone, Deserialize)]
pub struct GenericDaemon {
    /// Metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta<Switches>,
    /// The desired state.
    pub spec: Spec,
    /// The status last written.
    #[serde(default)]
    pub status: Status,
}

impl Spec {
    /// Returns the labels of the nodes where the daemon belongs, separated by commas; `None` if it belongs on
    /// every node.
    pub fn node_labels(&self) -> Option<String> {
        let own = self.label.iter().map(InternedStr::to_string);
        let key = self.label.as_ref().and_then(|label| label.split_once('=')).map(|(key, _)| key);
        let template = self.pod_template.set();
        let selector = template["spec"]["nodeSelector"].as_object().into_iter().flatten();
        // A `label` with a value overrides the selector of the same key; without one, both apply.
        let selector = selector.filter(|(other, _)| Some(other.as_str()) != key);
        let selector =
            selector.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
        let all: Vec<String> = own.chain(selector).collect();
        (!all.is_empty()).then(|| all.join(","))
    }
}

crate::view!(GenericDaemon { meta: Meta<Switches> }: crate::workload::GENERIC_DAEMON);
custom!(GenericDaemon);

// === Children ===

/// Returns the DaemonSet of `daemon`.
pub fn desired(daemon: &GenericDaemon) -> Desired<DaemonSetSpec> {
    let identity = Identity {
        kind: "generic-daemon",
        program: daemon.meta.key.name(),
        label: GENERIC_DAEMON,
        name: daemon.meta.key.name(),
        image: Some(&daemon.spec.image),
        more: Vec::new(),
        inherited: &daemon.meta.labels,
    };
    let spec = object([
        ("selector", json!({ "matchLabels": identity.selector() })),
        ("updateStrategy", update_strategy(&daemon.spec)),
        ("minReadySeconds", json!(daemon.spec.min_ready_seconds.filter(|seconds| *seconds > 0))),
        ("revisionHistoryLimit", json!(REVISIONS)),
        ("template", pod::template(&identity, &daemon.spec)),
    ]);
    Desired::new(identity.labels(), spec)
}

/// Returns how pods of a new template replace the old ones; null leaves it to Kubernetes. A type is sent with anything
/// else, so that another client's does not stay.
fn update_strategy(spec: &Spec) -> Value {
    let mut strategy = spec.update_strategy.set();
    if let Some(fields) = strategy.as_object_mut() {
        fields.entry("type").or_insert(json!("RollingUpdate"));
    }
    strategy
}

// === Status ===

/// Returns the status to store.
pub fn status(daemon: &GenericDaemon, found: &Found<'_, DaemonSetSpec>, now: Time) -> Status {
    let generation = daemon.meta.generation;
    let health = &found.health;
    let (desired, installed) = match found.workload {
        Some(daemon_set) if found.is_as_desired && daemon_set.is_observed() => counts(daemon_set),
        Some(daemon_set) if daemon_set.is_observed() && is_for_its_nodes(daemon, daemon_set) => {
            (counts(daemon_set).0, 0)
        }
        // Its counts can refer to another label.
        Some(_) if daemon.is_observed() => (daemon.status.desired, 0),
        _ => (0, 0),
    };
    let mut wanted = health.summary();
    wanted.push(available(found.workload, health));
    wanted.push(health.progressing());
    wanted.push(health.degraded());
    Status {
        observed_generation: generation,
        desired,
        installed,
        conditions: merge(&daemon.status.conditions, wanted, generation, now),
    }
}

/// Returns whether node selector, affinity and tolerations are up to date.
fn is_for_its_nodes(daemon: &GenericDaemon, there: &DaemonSet) -> bool {
    let (wanted, there) = (desired(daemon).spec, there.to_value());
    let is_same =
        |field: &str| wanted["template"]["spec"][field] == there["template"]["spec"][field];
    ["nodeSelector", "affinity", "tolerations"].into_iter().all(is_same)
}

/// Returns the number of nodes where the daemon belongs, and of those where it is up to date and ready.
///
/// Kubernetes counts nodes that are up to date and nodes that are ready, but not those that are both. Of `n`
/// nodes with the daemon, at least `updated + ready - n` are both. The number is exact while an update replaces
/// ready pods one by one, and never too high.
fn counts(daemon_set: &DaemonSet) -> (i32, i32) {
    let status = &daemon_set.status;
    let desired = status.desired_number_scheduled.unwrap_or(0);
    let both = status.updated_number_scheduled.saturating_add(status.number_ready);
    (desired, both.saturating_sub(status.current_number_scheduled).clamp(0, desired.max(0)))
}

/// Returns the condition Available: whether the daemon serves on every node where it belongs, from any
/// template.
fn available(daemon_set: Option<&DaemonSet>, health: &Health) -> Wanted {
    let is = |status, message| Type::Available.is(status, Reason::Reconciling, message);
    let Some(daemon_set) = daemon_set else {
        return is(condition::Status::False, health.message.clone());
    };
    let desired = match daemon_set.status.desired_number_scheduled {
        Some(desired) if daemon_set.is_observed() => desired,
        _ => {
            let message = "Waiting for the DaemonSet controller".to_owned();
            return is(condition::Status::Unknown, message);
        }
    };
    let serving = daemon_set.status.number_available;
    let is_ready = health.level == Level::Ready;
    let all = is_ready || serving >= desired && desired > 0;
    let status = if all { condition::Status::True } else { condition::Status::False };
    is(status, format!("The daemon is available on {serving} of {desired} nodes"))
}

// === Reconcile ===

/// Reconciles a GenericDaemon: applies its DaemonSet and writes its status. The garbage collector deletes the
/// DaemonSet of a GenericDaemon that is being deleted.
///
/// # Errors
/// If the DaemonSet or the status cannot be written.
pub async fn reconcile(
    daemon: Arc<GenericDaemon>,
    cx: Context<GenericDaemon>,
    allow_templates: bool,
    observer: Observer,
) -> Result<Action, ReconcileError> {
    let desired = desired(&daemon);
    let label = daemon.spec.node_labels();
    let mut run = Reconciliation::new(&cx, &observer)?;
    let health = if is_paused(&daemon.meta) {
        run.compare(&desired)?;
        run.observe_paused(known(&daemon, run.workload(), label.as_deref())).await
    } else if let Some(refusal) = refusal(allow_templates, &[&daemon.spec.pod_template]) {
        run.compare(&desired)?;
        refusal
    } else {
        run.apply(&desired).await?;
        run.observe(known(&daemon, run.workload(), label.as_deref())).await
    };
    let status = status(&daemon, &run.found(&health), Time::now());
    if differs_in_counts(&daemon.status, &status)
        && let Some(wait) = observer.wait_to_count(&*daemon)
    {
        run.requeue(Action::RequeueAfter(wait));
        return Ok(run.skip_report());
    }
    run.report(&status, &health).await
}

/// Returns whether two statuses of a rollout differ only in counts. There is one such status for each node.
fn differs_in_counts(one: &Status, other: &Status) -> bool {
    let essence = |status: &Status| {
        let conditions = status.conditions.iter();
        let of = conditions.map(|c| (c.kind.clone(), c.status, c.reason.clone()));
        (status.observed_generation, of.collect::<Vec<_>>())
    };
    let goes_on = |status: &Status| {
        let mut conditions = status.conditions.iter();
        conditions.any(|c| c.is(Type::Ready) && c.reason == Reason::RollingOut.as_str())
    };
    one != other && goes_on(other) && essence(one) == essence(other)
}

/// Returns what its status and spec add to the health of its DaemonSet.
fn known<'a>(
    daemon: &GenericDaemon,
    daemon_set: Option<&DaemonSet>,
    label: Option<&'a str>,
) -> health::Context<'a> {
    let Some(daemon_set) = daemon_set else { return health::Context::default() };
    let desired = daemon_set.status.desired_number_scheduled.unwrap_or(0);
    health::Context {
        label,
        desired_before: daemon.status.desired,
        grown: desired > daemon.status.desired && !is_tolerable(daemon_set),
        nodes: desired.unsigned_abs(),
        ..health::Context::default()
    }
}

#[cfg(test)]
mod tests;
