//! Decides what a custom resource needs, and writes that.
//!
//! Guarantees
//! - A pass that finds nothing to change writes nothing: no API write, no Event.
//! - All decisions are pure: `desired` builds the children of a custom resource, `status` its status. They
//!   use no clock and no I/O. Children are written by [`Context::ensure_with`](crate::manager::Context),
//!   the status by [`Context::patch_status`](crate::manager::Context): these compare, and have the
//!   guarantees about other owners' objects and other managers' fields.
//! - Nothing is created for a custom resource that is being deleted.
//! - Health is computed in one place, [`Health`], from the children and, while they are not ready, from
//!   evidence that is listed on demand. Ready is True only when the children have finished rolling out this
//!   generation, by the rules that tools apply to them. The status root and the conditions always refer
//!   to the same generation.
//! - A custom resource's view lives where it is used, since nothing else reads it. The types of the
//!   module `api` describe all that a person may write; a view has only what is read, in a tenth of the
//!   memory.
//!
//! Each kind is one file, read from top to bottom: the view, the children and the status (pure), then
//! reconcile. `operator::wiring` declares what each owns and watches.

mod reason;
mod condition;
mod identity;
mod interned;
mod child;
mod pod_state;
mod evidence;
pub mod diagnostics;
mod health;
mod custom;
mod error;
mod observer;
mod report;
pub mod workload;
mod service;
mod pod;
pub mod memcached;
pub mod generic_daemon;
pub mod app;
#[cfg(test)]
mod fixtures;

pub use child::{Applied, Child, ChildSpec, Made};
pub use condition::{Condition, Status, Time, Type, Wanted};
pub use custom::{Custom, PAUSED, Switches};
pub use diagnostics::{Ask, Diagnostics};
pub use error::{Diagnosis, diagnose};
pub use evidence::{Answer, Evidence, Nodes};
pub use health::{Context, Health, Level, Progress, Rollout, Workload, completed, reported};
pub use identity::MANAGER;
pub use interned::{Interned, Interner};
pub use observer::Observer;
pub use pod::{BY_MEMCACHED, Pod, PodLabels};
pub use pod_state::{NodeLabels, NodeState, PodState, Trouble};
pub use reason::{Action, Reason};
pub use report::refused;
pub use service::{Service, ServicePort, ServiceSpec, TargetPort, Unread};

use crate::object::Text;

/// What an administrator sets for all custom resources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The image of Memcached (environment variable `MEMCACHED_IMAGE`). If it is missing or empty,
    /// nothing is created for a Memcached.
    pub memcached_image: Option<Text>,
}
