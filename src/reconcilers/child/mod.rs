//! The children of a custom resource, as they are and as they should be.

mod deviations;
mod wire;

use std::fmt::Debug;
use std::hash::Hash;

use serde::de::DeserializeOwned;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use super::applied::{self, ADMITTED, APPLIED};
use super::identity;
use super::interned::{Interned, Interner};
use super::reason::Reason;
use crate::object::{Keep, Kind, Labels, Meta, Object, ObjectKey, Owner, Resource, Text, Uid};

/// Stands for the object's own name in a [`Child`]'s labels and containers, so that the children
/// of all custom resources with the same spec share one copy. No name or label value can be this.
const OWN_NAME: &str = "\0";

/// An annotation that only a Service of type `LoadBalancer` may have.
pub(super) const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// The part of a child's `spec` that the operator sets and compares, or that can stand in the way
/// of that. Decoding it from the wire skips everything else.
pub trait ChildSpec:
    Clone + Debug + Default + Eq + Hash + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The kind of child.
    const KIND: Kind;

    /// The reasons of the Events that report a creation, a change, and a repair.
    const REASONS: [Reason; 3];

    /// The part of `status` that the operator reads.
    type Status: Clone + Debug + Default + DeserializeOwned + Send + Sync + 'static;

    /// The interner that shares equal values.
    fn interner() -> &'static Interner<Made<Self>>;

    /// The first field that `self` sets and `there` has differently. Lists with keys are compared
    /// by key, quantities by value; fields that `self` does not set are ignored.
    fn difference(&self, there: &Self) -> Option<&'static str>;

    /// The first such field that cannot be changed on an existing object.
    fn immutable_difference(&self, there: &Self) -> Option<&'static str>;

    /// JSON patch operations, last position first, that remove what `there` has and may not have
    /// beside what `self` sets, if it is `foreign` (see [`Foreign`]), so that applying would leave
    /// it, or be refused. The operations by themselves leave a valid object.
    fn in_the_way(&self, there: &Child<Self>, foreign: Foreign<'_>) -> Vec<Value>;

    /// Replaces `from` by `to` wherever the object's own name may occur.
    fn renamed(self, from: &str, to: &str) -> Self;

    /// Normalises the spec, so that two that mean the same are equal.
    fn normalised(self) -> Self {
        self
    }
}

/// Whether somebody else set what is at a JSON pointer into a child.
pub type Foreign<'a> = &'a dyn Fn(&str) -> bool;

/// Everything in a child that the operator sets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Made<S> {
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
    pub meta: Meta<Applied>,
    /// What the operator may have set, with [`OWN_NAME`] for the child's name. Empty if it is
    /// foreign.
    made: Interned<Made<S>>,
    /// Its status, as Kubernetes reports it.
    pub status: S::Status,
}

/// Keeps the labels that the operator sets, its records of what was applied and admitted, and what
/// can stand in the way.
#[derive(Debug, Clone, Copy)]
pub enum Applied {}

/// What is to be done about a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is as desired.
    Nothing,
    /// There is none.
    Create,
    /// It has to be applied: the desired state is not what was last applied.
    Apply,
    /// It has to be applied: somebody changed this field.
    Restore(&'static str),
    /// It is being deleted, or will be: it was made for an earlier custom resource of this name.
    Wait,
    /// Somebody else's object has the name.
    Taken,
    /// This field differs, and cannot be changed.
    Immutable(&'static str),
}

/// Decides from its arguments alone.
pub fn decide<S: ChildSpec>(
    owner: &Owner,
    desired: &Made<S>,
    there: Option<&Child<S>>,
) -> Decision {
    let Some(there) = there else { return Decision::Create };
    if !there.meta.is_controlled_by(owner.uid) {
        let of_a_namesake = there.meta.owner.as_ref().is_some_and(|other| {
            (&other.api_version, &other.kind, &other.name)
                == (&owner.api_version, &owner.kind, &owner.name)
        });
        return if of_a_namesake { Decision::Wait } else { Decision::Taken };
    }
    if there.meta.deleting {
        return Decision::Wait;
    }
    let hash = desired.hash();
    let desired = desired.clone().renamed(there.key().name(), OWN_NAME);
    if let Some(field) = desired.spec.immutable_difference(&there.made.spec) {
        return Decision::Immutable(field);
    }
    if there.meta.annotations.get(APPLIED).map(Text::as_str) != Some(&hash) {
        return Decision::Apply;
    }
    match desired.difference(&there.made) {
        None => Decision::Nothing,
        Some(field) => match there.meta.annotations.get(ADMITTED) {
            Some(admitted) if *admitted == *desired.deviations(&there.made) => Decision::Nothing,
            // It may be another field than the first that differs.
            Some(_) => Decision::Restore("spec"),
            None => Decision::Restore(field),
        },
    }
}

/// The JSON patch operation that makes the record of what was admitted ([`ADMITTED`]) true for
/// `there`, the answer to a write of `desired`. `None` if it is true.
pub(super) fn admission<S: ChildSpec>(desired: &Made<S>, there: &Child<S>) -> Option<Value> {
    let annotations = &there.meta.annotations;
    if annotations.get(APPLIED).map(Text::as_str) != Some(&desired.hash()) {
        return None;
    }
    let desired = desired.clone().renamed(there.key().name(), OWN_NAME);
    let differs = desired.difference(&there.made).is_some();
    let admitted = differs.then(|| desired.deviations(&there.made));
    let path = format!("/metadata/annotations/{}", ADMITTED.replace('/', "~1"));
    match (annotations.get(ADMITTED), admitted) {
        (Some(_), None) => Some(removal(&path)),
        (recorded, Some(admitted)) if recorded.is_none_or(|recorded| *recorded != *admitted) => {
            Some(json!({ "op": "add", "path": path, "value": admitted }))
        }
        _ => None,
    }
}

// === impl Made ===

impl<S: ChildSpec> Made<S> {
    /// What to send. With a UID, it applies only to the object that has it.
    pub fn to_apply(&self, key: &ObjectKey, owner: Owner, uid: Uid) -> impl Serialize + Sync {
        let mut meta = Meta::named(key.clone());
        meta.labels = self.labels.clone();
        meta.annotations = [(APPLIED, self.hash())].into_iter().collect();
        meta.owner = Some(owner);
        meta.uid = uid;
        Apply { meta, spec: self.spec.clone() }
    }

    /// The operations that clear the way in `there`; see [`ChildSpec::in_the_way`].
    pub fn in_the_way(&self, there: &Child<S>, foreign: Foreign<'_>) -> Vec<Value> {
        let desired = self.clone().renamed(there.key().name(), OWN_NAME);
        desired.spec.in_the_way(there, foreign)
    }

    fn hash(&self) -> String {
        applied::hash(&(&self.labels, self.spec.clone().normalised()))
    }

    fn difference(&self, there: &Made<S>) -> Option<&'static str> {
        if !self.labels.is_subset_of(&there.labels) {
            return Some("metadata.labels");
        }
        self.spec.difference(&there.spec)
    }

    /// The hash of all values in `there` that are not as `self` sets them. The same whatever else
    /// is there, and after a change of `self` that does not concern them.
    fn deviations(&self, there: &Made<S>) -> String {
        let json = |made: &Made<S>| json!({ "labels": made.labels, "spec": made.spec });
        applied::hash(&deviations::between(&json(self), &json(there)))
    }

    fn renamed(self, from: &str, to: &str) -> Made<S> {
        Made { labels: renamed(&self.labels, from, to), spec: self.spec.renamed(from, to) }
    }
}

/// The JSON patch operation that removes what is at `path`.
pub(super) fn removal(path: &str) -> Value {
    json!({ "op": "remove", "path": path })
}

/// `labels` with the value `from` replaced by `to`.
pub(super) fn renamed(labels: &Labels, from: &str, to: &str) -> Labels {
    let to = Text::new(to);
    let renamed = |value: &Text| if value == from { to.clone() } else { value.clone() };
    labels.iter().map(|(key, value)| (key.clone(), renamed(value))).collect()
}

/// An object to be applied.
#[derive(Debug)]
struct Apply<S> {
    meta: Meta<Applied>,
    spec: S,
}

impl<S: ChildSpec> Serialize for Apply<S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("apiVersion", &S::KIND.api_version())?;
        map.serialize_entry("kind", S::KIND.kind)?;
        map.serialize_entry("metadata", &self.meta)?;
        map.serialize_entry("spec", &self.spec)?;
        map.end()
    }
}

// === impl Child ===

impl<S: ChildSpec> Child<S> {
    /// Its spec, with [`OWN_NAME`] for the child's name.
    pub(super) fn spec(&self) -> &S {
        &self.made.spec
    }

    /// What the operator may have set, as it is on the wire.
    pub fn made(&self) -> Made<S> {
        Made::clone(&self.made).renamed(OWN_NAME, self.key().name())
    }
}

impl<S: ChildSpec> Object for Child<S> {
    type Keep = Applied;
    fn meta(&self) -> &Meta<Applied> {
        &self.meta
    }
}

impl<S: ChildSpec> Resource for Child<S> {
    const KIND: Kind = S::KIND;
}

impl Keep for Applied {
    fn label(key: &str) -> bool {
        identity::is_ours(key)
    }
    fn annotation(key: &str) -> bool {
        key == APPLIED || key == ADMITTED || key == SOURCE_RANGES
    }
}

#[cfg(test)]
mod tests;
