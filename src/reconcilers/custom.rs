//! What every custom resource has: switches that a person can set on it.

use super::condition::{Condition, Type};
use super::reason::Reason;
use crate::object::{Keep, Meta};

/// If set to `true`, nothing is written for the object until the annotation is removed.
pub const PAUSED: &str = "workload-operator.example.com/paused";

/// Keeps the annotations that are switches.
#[derive(Debug, Clone, Copy)]
pub enum Switches {}

impl Keep for Switches {
    fn label(_: &str) -> bool {
        false
    }
    fn annotation(key: &str) -> bool {
        key == PAUSED
    }
}

/// Whether a person has stopped all writes for the object.
pub(super) fn is_paused(meta: &Meta<Switches>) -> bool {
    meta.annotations.get(PAUSED).is_some_and(|value| value == "true")
}

/// Whether the status already says, for this generation, that the object is paused. Then nothing
/// more is written: the status stays as it was when the pause began.
pub(super) fn is_told(
    meta: &Meta<Switches>,
    observed_generation: i64,
    conditions: &[Condition],
) -> bool {
    let paused = |c: &Condition| c.is(Type::Ready) && c.reason == Reason::Paused.as_str();
    observed_generation == meta.generation && conditions.iter().any(paused)
}
