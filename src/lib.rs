//! A Kubernetes operator for Memcached, GenericDaemon and App.
//!
//! ```text
//! API server ─▶ client ─▶ reflector ─▶ store ─▶ informer ─▶ controller::enqueue ─▶ workqueue
//!     ▲                                                                               │
//!     └────────────────── client ◀─ memcached, app, … ◀─ controller ◀─────────────────┘
//! ```
//!
//! Code that is tied to no kind is the library `controller-machinery` (crates/machinery). Its modules
//! stand here too, so that the operator names them like its own.

// `KubeSchema` makes types of the same visibility, which nobody can reach.
#![allow(unreachable_pub)]

pub use controller_machinery::{
    client, clock, controller, events, identity, informer, leader_election, manager, metrics,
    object, reflector, shutdown, store, view, workqueue,
};

// This operator itself.
pub mod schema;
pub mod workload;
pub mod memcached;
pub mod generic_daemon;
pub mod app;
pub mod crds;
pub mod cli;
pub mod operator;
