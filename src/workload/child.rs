//! Children of a custom resource: the stored object, and the desired state.

use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::{
    Deserialize, DeserializeOwned, Deserializer, Error, IgnoredAny, MapAccess, Visitor,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::KINDS;
use super::custom_resource::Json;
use super::labels::{self, union};
use super::merge::merge;
use crate::controller::ReconcileError;
use crate::manager::{Context, EnsureOptions};
use crate::object::{
    InternedStr, Kind, Labels, Meta, MetadataFilter, Object, ObjectKey, Owner, Resource, Uid,
};

/// The longest group, version, kind or name of an object that can exist, in bytes: `group/version`
/// of a DNS subdomain and a DNS label. Users can write any text into an owner reference.
const LONGEST: usize = 253 + 1 + 63;

/// The part of a child's `spec` that the operator reads, apart from the comparison with the desired state.
pub trait ChildSpec: Clone + Debug + Default + DeserializeOwned + Send + Sync + 'static {
    /// The kind of child.
    const KIND: Kind;

    /// The part of `status` that the operator reads.
    type Status: Clone + Debug + Default + DeserializeOwned + Send + Sync + 'static;

    /// Returns JSON patch operations, the last position of a list first, that remove what is unwanted beside the desired
    /// spec in the stored one, although the API server accepts it.
    fn unwanted(_wanted: &Value, _stored: &Value) -> Vec<Value> {
        Vec::new()
    }
}

/// The prefix of the operator's own annotations.
const OWN_ANNOTATIONS: &str = "workload-operator.example.com/";

/// Annotations that Kubernetes and kubectl write on each child.
const OF_OTHERS: [&str; 3] = [
    "deployment.kubernetes.io/revision",
    "deprecated.daemonset.template.generation",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// Desired state of a child, whose `spec` has a part `S` that the operator reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired<S> {
    /// The labels of the child itself.
    pub labels: Labels,
    /// The annotations of the child itself.
    pub annotations: Labels,
    /// Its spec.
    pub spec: Value,
    read: PhantomData<fn() -> S>,
}

/// A stored child. Its spec is compared as JSON, in every field that is desired.
///
/// An object is foreign if no custom resource of its name controls it. A former child without a controller is not
/// foreign. Of a foreign object, only the key, identity and owner are kept, however large it is.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(bound(serialize = ""))]
pub struct Child<S: ChildSpec> {
    /// Metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta<Own>,
    /// Its spec as the API server sent it; `None` if it is foreign.
    #[serde(rename = "spec", skip_serializing_if = "Option::is_none")]
    pub json: Option<Box<RawValue>>,
    /// The part of its spec that the operator reads. Empty if it is foreign.
    #[serde(skip)]
    pub spec: S,
    /// Its status, as Kubernetes reports it.
    #[serde(skip)]
    pub status: S::Status,
}

/// Keeps the operator's own metadata: its labels, and its records of applied and admitted states.
#[derive(Debug, Clone, Copy)]
pub enum Own {}

// === impl Desired ===

impl<S: ChildSpec> Desired<S> {
    /// Returns a child with these labels and this spec.
    pub fn new(labels: Labels, spec: Value) -> Desired<S> {
        Desired { labels, annotations: Labels::default(), spec, read: PhantomData }
    }

    /// Merges a template over the child, except its own labels and the fields `own` of its spec.
    #[must_use]
    pub fn with_template(mut self, template: &Json, own: &[&str]) -> Desired<S> {
        let over = template.set();
        if over.is_null() {
            return self;
        }
        let labels =
            |field: &str| Labels::deserialize(&over["metadata"][field]).unwrap_or_default();
        self.labels = union(&labels("labels"), &self.labels);
        let annotations = labels("annotations");
        let foreign = annotations.iter().filter(|(key, _)| {
            !key.starts_with(OWN_ANNOTATIONS) && !OF_OTHERS.contains(&key.as_str())
        });
        self.annotations = foreign.map(|(key, value)| (key.clone(), value.clone())).collect();
        let generated = self.spec.clone();
        if let Some(over) = over["spec"].as_object() {
            merge("", &mut self.spec, Value::Object(over.clone()));
        }
        own.iter().for_each(|field| self.spec[*field] = generated[*field].clone());
        self
    }

    /// Applies the child of the object that `cx` reconciles, unless it is as desired. Returns the child.
    ///
    /// # Errors
    /// Those of [`Context::ensure_with`].
    pub async fn ensure<V: Resource>(
        &self,
        cx: &Context<V>,
    ) -> Result<Arc<Child<S>>, ReconcileError> {
        let unwanted = |stored: &Child<S>| S::unwanted(&self.spec, &stored.to_value());
        let is_known = |there: &Child<S>| labels::are_of_same(&there.meta.labels, &self.labels);
        let options = EnsureOptions::default().unwanted(&unwanted);
        cx.ensure_with(self.to_apply(cx.key()), options.adopt(&is_known)).await
    }

    /// Returns whether a child is as desired.
    ///
    /// # Errors
    /// Those of [`Context::is_ensured`].
    pub fn is_ensured<V: Resource>(
        &self,
        cx: &Context<V>,
        child: &Child<S>,
    ) -> Result<bool, ReconcileError> {
        let unwanted = |stored: &Child<S>| S::unwanted(&self.spec, &stored.to_value());
        let options = EnsureOptions::default().unwanted(&unwanted);
        cx.is_ensured(self.to_apply(cx.key()), options, child)
    }

    /// Returns the object to apply for the custom resource under `key`.
    pub fn to_apply(&self, key: &ObjectKey) -> Value {
        let mut metadata = json!({ "name": key.name(), "labels": self.labels });
        if !self.annotations.is_empty() {
            metadata["annotations"] = json!(self.annotations);
        }
        json!({ "metadata": metadata, "spec": self.spec })
    }
}

// === impl Child ===

impl<S: ChildSpec> Child<S> {
    /// Returns its spec; null if it is foreign.
    pub fn to_value(&self) -> Value {
        let read = |json: &RawValue| serde_json::from_str(json.get()).unwrap_or_default();
        self.json.as_deref().map(read).unwrap_or_default()
    }
}

impl<S: ChildSpec> Object for Child<S> {
    type MetadataFilter = Own;
    fn meta(&self) -> &Meta<Own> {
        &self.meta
    }
}

impl<S: ChildSpec> Resource for Child<S> {
    fn kind() -> Kind {
        S::KIND
    }
}

impl<'de, S: ChildSpec> Deserialize<'de> for Child<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Child<S>, D::Error> {
        deserializer.deserialize_map(ChildVisitor(PhantomData))
    }
}

struct ChildVisitor<S>(PhantomData<fn() -> S>);

#[derive(serde::Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Field {
    Metadata,
    Spec,
    Status,
    #[serde(other)]
    Other,
}

impl<'de, S: ChildSpec> Visitor<'de> for ChildVisitor<S> {
    type Value = Child<S>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {}", S::KIND.kind)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Child<S>, A::Error> {
        let (mut meta, mut json, mut status) = (None::<Meta<Own>>, None::<Box<RawValue>>, None);
        while let Some(field) = map.next_key()? {
            // The API server sends the metadata first. Fields before it are decoded and dropped at the end.
            let foreign = meta.as_ref().is_some_and(is_foreign);
            match field {
                Field::Metadata => meta = Some(map.next_value()?),
                Field::Spec if !foreign => json = map.next_value()?,
                Field::Status if !foreign => status = map.next_value::<Option<S::Status>>()?,
                Field::Spec | Field::Status | Field::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let meta = meta.ok_or_else(|| A::Error::missing_field("metadata"))?;
        if is_foreign(&meta) {
            let meta = reduced(meta);
            return Ok(Child {
                meta,
                json: None,
                spec: S::default(),
                status: S::Status::default(),
            });
        }
        let spec = json.as_deref().map(|json| serde_json::from_str(json.get())).transpose();
        let spec = spec.map_err(A::Error::custom)?.unwrap_or_default();
        Ok(Child { meta, json, spec, status: status.unwrap_or_default() })
    }
}

/// Returns whether no custom resource of the object's name controls it. A child that has lost its owner, for example
/// in a restore from a backup, is not foreign.
fn is_foreign(meta: &Meta<Own>) -> bool {
    let is_parent = |owner: &Owner| {
        owner.name == *meta.key.name() && KINDS.iter().any(|kind| owner.is_of(kind))
    };
    match &meta.owner {
        Some(owner) => !is_parent(owner),
        None => {
            meta.annotations.get(Own::APPLIED).is_none()
                || !labels::are_of_child(&meta.labels, meta.key.name())
        }
    }
}

/// Reduces a foreign object's metadata to the parts that are kept. Its owner gets no UID, so it controls no child.
fn reduced(meta: Meta<Own>) -> Meta<Own> {
    let possible =
        |text: InternedStr| if text.len() > LONGEST { InternedStr::default() } else { text };
    let owner = meta.owner.map(|owner| {
        Box::new(Owner {
            api_version: possible(owner.api_version),
            kind: possible(owner.kind),
            name: possible(owner.name),
            uid: Uid::NONE,
            block_owner_deletion: false,
        })
    });
    let mut kept = Meta::named(meta.key);
    kept.owner = owner;
    kept.is_terminating = meta.is_terminating;
    (kept.uid, kept.version, kept.generation) = (meta.uid, meta.version, meta.generation);
    kept
}

// === impl Own ===

impl MetadataFilter for Own {
    const APPLIED: &'static str = "workload-operator.example.com/applied";
    const ADMITTED: &'static str = "workload-operator.example.com/admitted";

    fn label(_: &str) -> bool {
        true
    }
    fn annotation(key: &str) -> bool {
        !OF_OTHERS.contains(&key)
    }
}

#[cfg(test)]
mod tests;
