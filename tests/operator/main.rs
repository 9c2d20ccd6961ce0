//! The operator's own decisions, on an API server in memory with simulated pods and virtual time.
//!
//! Neither Go nor a control plane is needed. The promises that depend on the real API server (CEL rules, defaults,
//! RBAC, quotas, kubectl) are tested in tests/contract.

// A test binary exports nothing; `pub` marks what a module offers to the others.
#![allow(unreachable_pub)]
// A test that meets something unexpected has failed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

#[path = "../contract/world/kind.rs"]
#[allow(dead_code)]
mod kind;
mod world;

mod samples;

mod edits;
mod children;
mod degraded;
mod diagnostics;
mod storms;
mod crashes;
