//! The work queue of the operator, built under a model checker.
#[cfg(any(loom, shuttle))]
#[path = "../../../../crates/machinery/src/workqueue/mod.rs"]
pub mod workqueue;
