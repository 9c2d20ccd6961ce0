//! The parts that the three kinds share: their owned objects, the health of these, and the report of it.
//!
//! Guarantees
//! - The same types are decoded from the wire, compared with the desired state and sent. They contain only
//!   fields that the operator can set, and fields that conflict with those. An injected sidecar, a field that
//!   the API server fills in and another manager's annotation are neither compared nor sent.
//! - Owned objects are written by [`Context::ensure_with`](crate::manager::Context::ensure_with), the status by
//!   [`Context::patch_status`](crate::manager::Context::patch_status). Both compare before they write, and
//!   protect the objects of other owners and the fields of other managers.
//! - Health is computed in one place, [`Health`], from the owned objects and, while they are not ready, from
//!   evidence that is listed on demand. Ready is True only when the owned objects have finished rolling out
//!   this generation, by the rules that tools apply to them. The status root and the conditions always refer to
//!   the same generation.
//!
//! Each kind is one file next to this module. Its order is: the view, the owned objects and the status (pure),
//! then reconcile.

pub(crate) mod reason;
pub(crate) mod sentence;
pub(crate) mod condition;
pub(crate) mod custom_resource;
pub(crate) mod labels;
// Owned objects.
pub(crate) mod child;
pub(crate) mod merge;
pub(crate) mod pod_template;
pub(crate) mod deployment;
pub(crate) mod daemon_set;
pub(crate) mod services;
// Health.
pub(crate) mod pod;
pub(crate) mod pod_state;
pub(crate) mod evidence;
pub mod diagnostics;
pub(crate) mod health;
pub(crate) mod progress;
pub(crate) mod observer;
pub(crate) mod reconciliation;
#[cfg(test)]
pub(crate) mod fixtures;

pub use child::{Child, ChildSpec, Desired, Own};
pub use condition::{Condition, Status, Time, Type, Wanted};
pub use custom_resource::{Custom, Json, PAUSED, Switches};
pub use daemon_set::{DaemonSet, DaemonSetSpec, DaemonSetStatus, UpdateStrategy};
pub use deployment::{ChildCondition, Deployment, DeploymentSpec, DeploymentStatus, REVISIONS};
pub use diagnostics::{Ask, Diagnostics};
pub use evidence::{Answer, Evidence, Nodes};
pub use health::{Context, Health, Level, Rollout, Workload};
pub use labels::MANAGER;
pub use observer::Observer;
pub use pod::{BY_MEMCACHED, Pod, PodLabels};
pub use pod_state::{NodeState, PodState, Trouble};
pub use pod_template::{Container, PodSpec, PodTemplate, ProbeTimes, Selector};
pub use progress::{Progress, completed, reported};
pub use reason::{Action, Reason};
pub use reconciliation::{Found, refused};
pub use services::{
    Amount, BudgetSettings, BudgetSpec, PodDisruptionBudget, Service, ServicePort, ServiceSpec,
    TargetPort, Unread,
};

use crate::object::Kind;

/// The kind of [`Memcached`](crate::memcached::Memcached).
pub const MEMCACHED: Kind =
    Kind::namespaced("cache.example.com", "v1alpha1", "Memcached", "memcacheds");
/// The kind of [`GenericDaemon`](crate::generic_daemon::GenericDaemon).
pub const GENERIC_DAEMON: Kind =
    Kind::namespaced("mydomain.com", "v1beta1", "GenericDaemon", "genericdaemons");
/// The kind of [`App`](crate::app::App).
pub const APP: Kind = Kind::namespaced("app.example.com", "v1", "App", "apps");
/// The custom resources.
pub const KINDS: [Kind; 3] = [MEMCACHED, GENERIC_DAEMON, APP];
