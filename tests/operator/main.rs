//! The operator's own decisions, on an API server in memory with simulated pods and virtual time.
//!
//! Neither Go nor a control plane is required. tests/contract tests the promises that depend on the real API
//! server (CEL rules, defaults, RBAC, quotas, kubectl).

// A test binary exports nothing; `pub` marks the interface of a module.
#![allow(unreachable_pub)]
// An unexpected result fails the test.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

/// As in the operator. Histories allocate all the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[path = "../contract/world/kind.rs"]
#[allow(dead_code)]
mod kind;
mod world;

mod samples;

mod edits;
mod histories;
mod idle;
mod children;
mod degraded;
mod diagnostics;
mod pace;
mod storms;
mod crashes;
