//! 7. Decide what a custom resource needs, and write that.
//!
//! Guarantees
//! - A pass that finds nothing to change writes nothing: no API write, no Event.
//! - What is decided is decided purely: `desired` makes children out of a custom resource,
//!   [`decide`] says what to do about each, `status` what to say. No clock, no I/O; the shell in
//!   each `mod.rs` reads stores, and [`Hands`] carry out.
//! - A child that exists and is not controlled by this very custom resource (by UID) is never
//!   touched. Nothing is created for a custom resource that is being deleted.
//! - Every write is safe to repeat and harmless when it comes late: a create makes nothing over
//!   what is there, a change and a delete mean the one object (UID) they were decided for.
//! - Only fields that the operator sets are compared, sent and restored; what it no longer sets
//!   it takes back, as a hash of what was applied is kept on the child.
//! - Ready is True only when the children have finished rolling out this generation, by the rules
//!   that tools apply to them; root and conditions always speak of the same generation.
//! - A custom resource's view is where it is used, in its reconciler's `view.rs`, as nobody else
//!   reads it: the types of the `api` room say all that a person may write, a view only what is
//!   read, in a tenth of the memory.
//!
//! Each kind's room has the same files: `mod` (the shell, and what it has to be wired to), `view`,
//! `desired` and `status` (pure).

mod reason;
mod condition;
mod identity;
mod quantity;
mod interned;
mod applied;
mod child;
mod situation;
mod custom;
mod error;
mod hands;
pub mod workload;
mod service;
mod pod;
pub mod memcached;
pub mod generic_daemon;
pub mod app;
#[cfg(test)]
mod fixtures;

pub use applied::APPLIED;
pub use child::{Applied, Child, ChildSpec, Decision, Made, decide};
pub use condition::{Condition, Status, Time, Type, Wanted};
pub use custom::{PAUSED, Switches};
pub use error::{Diagnosis, Error, diagnose};
pub use hands::{Hands, Outcome, Parent};
pub use identity::MANAGER;
pub use interned::{Interned, Interner};
pub use pod::{BY_MEMCACHED, Pod, PodLabels};
pub use quantity::Quantity;
pub use reason::{Action, Reason};
pub use service::{Service, ServicePort, ServiceSpec, TargetPort, Unread};
pub use situation::Situation;

use crate::object::Text;

/// What an administrator sets for all custom resources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The image of Memcached (environment variable `MEMCACHED_IMAGE`). Without it no Memcached is
    /// made; empty is none.
    pub memcached_image: Option<Text>,
}
