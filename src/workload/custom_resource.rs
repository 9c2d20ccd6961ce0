//! Parts of every custom resource: a status, and annotations by which users control the operator.
//!
//! A view serializes as its status, because only the status is compared.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::condition::Condition;
use super::labels;
use super::merge::set;
use crate::object::{InternedStr, Meta, MetadataFilter, Object, Resource};

/// Annotation: while it is `true`, the operator writes nothing but the status.
pub const PAUSED: &str = "workload-operator.example.com/paused";

/// A custom resource whose status the operator writes.
pub trait Custom: Resource + Object<MetadataFilter = Switches> + Serialize {
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

/// A field with a type of the Kubernetes API. It is held as JSON text: only the API server needs to understand it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Json(Option<InternedStr>);

/// Keeps the annotations that control the operator, and the labels that owned objects inherit.
#[derive(Debug, Clone, Copy)]
pub enum Switches {}

impl MetadataFilter for Switches {
    fn label(key: &str) -> bool {
        labels::is_inherited(key)
    }
    fn annotation(key: &str) -> bool {
        key == PAUSED
    }
}

// === impl Json ===

impl Json {
    /// Returns whether the field is left out.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Returns what is set in it: null if nothing is, because null, `{}`, `[]` and `""` mean absent.
    pub fn set(&self) -> Value {
        let parsed = self.0.as_ref().and_then(|text| serde_json::from_str(text).ok());
        parsed.and_then(|value: Value| set("", &value)).unwrap_or_default()
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.0.as_ref().and_then(|text| serde_json::from_str::<&RawValue>(text).ok());
        text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        let text = Option::<Box<RawValue>>::deserialize(deserializer)?;
        Ok(Json(text.map(|text| InternedStr::new(text.get()))))
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Json {
        Json(Some(InternedStr::from(value.to_string())))
    }
}

/// Reads a zero value as absent, because clients in Go and templates write it for a field that is not set.
pub(crate) fn unless_zero<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default + PartialEq,
{
    Ok(Option::<T>::deserialize(deserializer)?.filter(|value| *value != T::default()))
}

/// Returns whether a user has paused the object.
pub(crate) fn is_paused(meta: &Meta<Switches>) -> bool {
    meta.annotations.get(PAUSED).is_some_and(|value| value.eq_ignore_ascii_case("true"))
}
