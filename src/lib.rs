//! A Kubernetes operator, and the controller machinery under it.
//!
//! ```text
//! API server ─▶ client ─▶ reflector ─▶ store ─▶ informer ─▶ controller::enqueue ─▶ workqueue
//!     ▲                                                                               │
//!     └────────────────────── client ◀─ reconcilers ◀─ controller ◀───────────────────┘
//! ```
//!
//! The modules ("rooms"), in the order in which a change travels; each begins with its guarantees.
//! To write your own controller you need [`object`] (a view of your kind), [`informer`],
//! [`controller`] and [`client`]; nothing in them is tied to a kind.

// What every object has; the process: how it ends, how it is scheduled.
pub mod object;
pub mod shutdown;
pub mod scheduling;
// From the API server to a worker.
pub mod client;
pub mod store;
pub mod reflector;
pub mod informer;
pub mod workqueue;
pub mod controller;
// Alongside the flow.
pub mod events;
pub mod leader_election;
pub mod metrics;
#[cfg(feature = "otel")]
pub mod traces;
// This operator itself.
pub mod api;
pub mod reconcilers;
pub mod operator;
