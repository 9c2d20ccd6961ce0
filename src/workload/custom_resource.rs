//! Parts of every custom resource: a status, and annotations by which users control the operator.
//!
//! A view serializes as its status, because only the status is compared.

use serde::Serialize;

use super::condition::Condition;
use super::labels;
use crate::object::{Keep, Meta, Object, Resource};

/// Annotation: while it is `true`, the operator writes nothing but the status.
pub const PAUSED: &str = "workload-operator.example.com/paused";

/// A custom resource whose status the operator writes.
pub trait Custom: Resource + Object<Keep = Switches> + Serialize {
    /// Returns the generation that the status refers to.
    fn observed_generation(&self) -> i64;

    /// Returns the conditions of the status.
    fn conditions(&self) -> &[Condition];

    /// Returns whether the status refers to the current spec.
    fn is_observed(&self) -> bool {
        self.observed_generation() == self.meta().generation
    }
}

/// Implements [`Custom`] for a view with a field `status` of the type `Status` in its module.
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

/// Keeps the annotations that control the operator, and the labels that owned objects inherit.
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

/// Returns whether a user has paused the object.
pub(crate) fn is_paused(meta: &Meta<Switches>) -> bool {
    meta.annotations.get(PAUSED).is_some_and(|value| value.eq_ignore_ascii_case("true"))
}
