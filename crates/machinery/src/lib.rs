//! Kubernetes controllers in Rust, with the parts of client-go.
//!
//! ```text
//! API server ─▶ client ─▶ reflector ─▶ store ─▶ informer ─▶ controller::enqueue ─▶ workqueue
//!     ▲                                                                               │
//!     └─────────────────────── client ◀─ reconcilers ◀─ controller ◀──────────────────┘
//! ```
//!
//! The modules are listed in the order in which a change passes through them. The documentation of each module begins
//! with its guarantees. To write a controller, you need [`object`] (a view of your kind) and [`manager`]. Use the other
//! modules for cases that [`manager`] does not cover.

// docs.rs shows which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

/// Implements `Debug` for types whose fields say nothing to a reader: it prints the name.
macro_rules! opaque {
    ($type:ident $(<$($parameter:ident $(: $bound:path)?),+>)?) => {
        impl $(<$($parameter $(: $bound)?),+>)? std::fmt::Debug for $type $(<$($parameter),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($type)).finish_non_exhaustive()
            }
        }
    };
}

/// Gives an enum a list of its values, and a static word for each.
macro_rules! words {
    ($type:ident: $($value:ident),+) => {
        impl $type {
            /// All values.
            pub const ALL: &[$type] = &[$($type::$value),+];

            /// Returns the name of the value, used in metric labels and Events.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($type::$value => stringify!($value)),+
                }
            }
        }
    };
}

// The program, its time, objects, and shutdown.
pub mod identity;
pub mod clock;
pub mod object;
pub mod shutdown;
mod instruments;
// From the API server to a worker.
pub mod client;
pub mod store;
pub mod reflector;
pub mod informer;
pub mod workqueue;
pub mod controller;
// Outside that path.
pub mod events;
pub mod leader_election;
pub mod metrics;
// All modules, connected as controllers declare.
pub mod manager;
// An API server for tests.
#[cfg(any(test, feature = "testing"))]
pub mod testing;

/// The example of the README, compiled by `cargo test --doc`.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
