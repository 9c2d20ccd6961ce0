//! The children of a custom resource, as they are and as they should be.

mod wire;

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use super::conflicts::{Conflicts, SOURCE_RANGES};
use super::labels;
use crate::controller::Problem;
use crate::manager::{Context, EnsureOptions, Foreign};
use crate::object::{InternedStr, Interner, Keep, Kind, Labels, Meta, Object, ObjectKey, Resource};

/// Stands for the object's own name in a [`Child`]'s labels and containers, so that the children
/// of all custom resources with the same spec share one copy. No name or label value can be this.
const OWN_NAME: &str = "\0";

/// The part of a child's `spec` that the operator sets and compares, or that can conflict
/// with that. Decoding it from the wire skips everything else.
pub trait ChildSpec:
    Clone
    + Conflicts
    + Debug
    + Default
    + Eq
    + Hash
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// The kind of child.
    const KIND: Kind;

    /// The fields that cannot be changed on an existing object.
    const IMMUTABLE: &'static [&'static str];

    /// The part of `status` that the operator reads.
    type Status: Clone + Debug + Default + DeserializeOwned + Send + Sync + 'static;

    /// The interner that shares equal values.
    fn interner() -> &'static Interner<Arc<Desired<Self>>>;

    /// Replaces `from` by `to` wherever the object's own name may occur.
    fn renamed(self, from: &str, to: &str) -> Self;
}

/// Everything in a child that the operator sets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Desired<S> {
    /// The labels of the child itself.
    pub labels: Labels,
    /// Its spec.
    pub spec: S,
}

/// An existing child: the parts that the operator reads.
///
/// An object that no custom resource of its name controls is foreign. All that is kept of it is its
/// key, identity and owner, however large it is.
#[derive(Debug, Clone)]
pub struct Child<S: ChildSpec> {
    /// Metadata; its labels are in `made`.
    pub meta: Meta<Own>,
    /// Fields that the operator may have set, with [`OWN_NAME`] for the child's name. Empty if it is
    /// foreign.
    made: Arc<Desired<S>>,
    /// Its status, as Kubernetes reports it.
    pub status: S::Status,
}

/// Keeps of the metadata what is the operator's own: its labels, its records of what was applied and admitted; and what
/// can conflict.
#[derive(Debug, Clone, Copy)]
pub enum Own {}

// === impl Made ===

impl<S: ChildSpec> Desired<S> {
    /// Has the child of the object that `cx` reconciles be like this, and returns it.
    ///
    /// # Errors
    /// Those of [`Context::ensure_with`].
    pub async fn ensure<V: Resource>(&self, cx: &Context<V>) -> Result<Arc<Child<S>>, Problem> {
        let conflicts = |there: &Child<S>, foreign: Foreign<'_>| self.conflicts(there, foreign);
        cx.ensure_with(self.to_apply(cx.key()), Self::options(&conflicts)).await
    }

    /// Returns whether a child is like this.
    ///
    /// # Errors
    /// Those of [`Context::is_ensured`].
    pub fn is_ensured<V: Resource>(
        &self,
        cx: &Context<V>,
        child: &Child<S>,
    ) -> Result<bool, Problem> {
        let conflicts = |there: &Child<S>, foreign: Foreign<'_>| self.conflicts(there, foreign);
        cx.is_ensured(self.to_apply(cx.key()), Self::options(&conflicts), child)
    }

    fn options<'a>(
        conflicts: &'a (dyn Fn(&Child<S>, Foreign<'_>) -> Vec<Value> + Send + Sync),
    ) -> EnsureOptions<'a, Child<S>> {
        EnsureOptions::default().immutable(S::IMMUTABLE).conflicts(conflicts)
    }

    /// The object to apply for the custom resource under `key`.
    pub fn to_apply(&self, key: &ObjectKey) -> Value {
        json!({ "metadata": { "name": key.name(), "labels": self.labels }, "spec": self.spec })
    }

    /// The operations that clear the way in `there`; see [`ChildSpec::conflicts`].
    fn conflicts(&self, there: &Child<S>, foreign: Foreign<'_>) -> Vec<Value> {
        let desired = self.clone().renamed(there.key().name(), OWN_NAME);
        desired.spec.conflicts(there, foreign)
    }

    fn renamed(self, from: &str, to: &str) -> Desired<S> {
        Desired { labels: renamed(&self.labels, from, to), spec: self.spec.renamed(from, to) }
    }
}

/// `labels` with the value `from` replaced by `to`.
pub(crate) fn renamed(labels: &Labels, from: &str, to: &str) -> Labels {
    let to = InternedStr::new(to);
    let renamed = |value: &InternedStr| if value == from { to.clone() } else { value.clone() };
    labels.iter().map(|(key, value)| (key.clone(), renamed(value))).collect()
}

// === impl Child ===

impl<S: ChildSpec> Child<S> {
    /// Its spec, with [`OWN_NAME`] for the child's name.
    pub(crate) fn spec(&self) -> &S {
        &self.made.spec
    }

    /// Fields that the operator may have set, as they are on the wire.
    pub fn made(&self) -> Desired<S> {
        Desired::clone(&self.made).renamed(OWN_NAME, self.key().name())
    }
}

impl<S: ChildSpec> Serialize for Child<S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        let Desired { labels, spec } = self.made();
        let mut meta = self.meta.clone();
        meta.labels = labels;
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("metadata", &meta)?;
        map.serialize_entry("spec", &spec)?;
        map.end()
    }
}

impl<S: ChildSpec> Object for Child<S> {
    type Keep = Own;
    fn meta(&self) -> &Meta<Own> {
        &self.meta
    }
}

impl<S: ChildSpec> Resource for Child<S> {
    const KIND: Kind = S::KIND;
}

impl Keep for Own {
    const APPLIED: &'static str = "workload-operator.example.com/applied";
    const ADMITTED: &'static str = "workload-operator.example.com/admitted";

    fn label(key: &str) -> bool {
        labels::is_ours(key)
    }
    fn annotation(key: &str) -> bool {
        [Own::APPLIED, Own::ADMITTED, SOURCE_RANGES].contains(&key)
    }
}

#[cfg(test)]
mod tests;
