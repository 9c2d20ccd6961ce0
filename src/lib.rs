//! A Kubernetes operator, and the controller machinery under it.
//!
//! ```text
//! API server ─▶ client ─▶ reflector ─▶ store ─▶ informer ─▶ controller::enqueue ─▶ workqueue
//!     ▲                                                                               │
//!     └────────────────────── client ◀─ reconcilers ◀─ controller ◀───────────────────┘
//! ```
//!
//! The rooms, in the order in which one change travels; each opens with what it guarantees. To
//! write a controller of your own you need [`object`] (a view of your kind), [`informer`],
//! [`controller`] and [`client`]; nothing in them knows a kind.

// What every object has; the end of the process.
pub mod object;
pub mod shutdown;
// From the API server to a worker.
pub mod client;
pub mod store;
pub mod reflector;
pub mod informer;
pub mod workqueue;
pub mod controller;
// Beside the flow.
pub mod events;
pub mod leader_election;
pub mod metrics;
#[cfg(feature = "otel")]
pub mod traces;
// This operator.
pub mod api;
pub mod reconcilers;
pub mod operator;
