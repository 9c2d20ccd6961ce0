//! A Kubernetes operator for Memcached, GenericDaemon and App.
//!
//! ```text
//! API server ─▶ client ─▶ reflector ─▶ store ─▶ informer ─▶ controller::enqueue ─▶ workqueue
//!     ▲                                                                               │
//!     └────────────────── client ◀─ memcached, app, … ◀─ controller ◀─────────────────┘
//! ```
//!
//! Code that does not depend on a kind is in the library `controller-machinery` (crates/machinery). This
//! crate re-exports its modules, so that the operator's code names them like its own.

// `KubeSchema` generates types of the same visibility, which other crates cannot reach.
#![allow(unreachable_pub)]

pub use controller_machinery::{
    client, clock, controller, events, identity, informer, leader_election, manager, metrics,
    object, reflector, shutdown, store, view, workqueue,
};

// The operator's own modules.
pub mod schema;
pub mod workload;
pub mod memcached;
pub mod generic_daemon;
pub mod app;
pub mod crds;
pub mod cli;
pub mod operator;
