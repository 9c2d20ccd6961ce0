//! Parts of every custom resource: a status, and switches that a user can set on it.
//!
//! A view of one serializes as its status, all of it that is compared.

use serde::Serialize;

use super::condition::Condition;
use super::labels;
use crate::object::{Keep, Meta, Object, Resource};

/// If set to `true`, nothing is written for the object until the annotation is removed.
pub const PAUSED: &str = "workload-operator.example.com/paused";

/// A custom resource, whose status the operator writes.
pub trait Custom: Resource + Object<Keep = Switches> + Serialize {
    /// The generation that the status refers to.
    fn observed_generation(&self) -> i64;

    /// The conditions in the status.
    fn conditions(&self) -> &[Condition];

    /// Returns whether the status is of the spec as it is now.
    fn is_observed(&self) -> bool {
        self.observed_generation() == self.meta().generation
    }
}

/// Implements [`Custom`] for a view with a field `status`, whose type is the `Status` beside it.
macro_rules! custom {
    ($view:ident) => {
        impl serde::Serialize for $view {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map([("status", &self.status)])
            }
        }

        impl $crate::workload::custom_resource::Custom for $view {
            fn observed_generation(&self) -> i64 {
                self.status.observed_generation
            }

            fn conditions(&self) -> &[$crate::workload::condition::Condition] {
                &self.status.conditions
            }
        }
    };
}
pub(crate) use custom;

/// Keeps the annotations that are switches, and the labels that children inherit.
#[derive(Debug, Clone, Copy)]
pub enum Switches {}

impl Keep for Switches {
    fn label(key: &str) -> bool {
        labels::is_inherited(key)
    }
    fn annotation(key: &str) -> bool {
        key == PAUSED
    }
}

/// Returns whether a person has stopped all writes for the object.
pub(crate) fn is_paused(meta: &Meta<Switches>) -> bool {
    meta.annotations.get(PAUSED).is_some_and(|value| value == "true")
}
