//! Types of k8s-openapi and of kube's derive as views.

use std::any::TypeId;
use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Deref;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};

use super::resource::leak;
use super::{
    AllMetadata, InternedStr, Kind, Labels, Meta, Object, ObjectKey, Owner, Resource,
    ResourceVersion, Uid,
};

/// A complete object as a view: a type of k8s-openapi, or a struct with kube's `#[derive(CustomResource)]`.
///
/// It dereferences to the object: `deployment.spec`, `deployment.metadata.labels`. `managedFields` are omitted. A view
/// of only the fields that a controller reads takes less memory: see [`view!`](crate::view).
///
/// ```
/// use controller_machinery::object::{Resource, Typed};
/// use k8s_openapi::api::apps::v1::Deployment;
///
/// assert_eq!(Typed::<Deployment>::kind().resource(), "deployments.apps");
/// ```
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Typed<T> {
    #[serde(skip)]
    meta: Meta<AllMetadata>,
    object: T,
}

// === impl Typed ===

impl<T> Deref for Typed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object
    }
}

impl<'de, T> Deserialize<'de> for Typed<T>
where
    T: kube::Resource<DynamicType = ()> + Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Typed<T>, D::Error> {
        let mut object = T::deserialize(deserializer)?;
        let meta = reduced(object.meta())
            .map_err(|why| D::Error::custom(format!("metadata.uid: {why}")))?;
        object.meta_mut().managed_fields = None;
        Ok(Typed { meta, object })
    }
}

impl<T> Object for Typed<T>
where
    T: kube::Resource + Debug + Send + Sync + 'static,
{
    type MetadataFilter = AllMetadata;
    const IS_WHOLE: bool = true;

    fn meta(&self) -> &Meta<AllMetadata> {
        &self.meta
    }
}

impl<T> Resource for Typed<T>
where
    T: kube::Resource<DynamicType = (), Scope: 'static>
        + DeserializeOwned
        + Debug
        + Send
        + Sync
        + 'static,
{
    fn kind() -> Kind {
        Kind::of::<T>()
    }
}

impl Kind {
    /// Returns the kind of a type of k8s-openapi or of kube's derive:
    /// `view!(Replicas: Kind::of::<Deployment>())`.
    ///
    /// # Panics
    /// If `T` is a subresource, such as k8s-openapi's `Scale`.
    pub fn of<T: kube::Resource<DynamicType = (), Scope: 'static>>() -> Kind {
        let scope = TypeId::of::<T::Scope>();
        let namespaced = scope == TypeId::of::<NamespaceResourceScope>();
        let kind = name(T::kind(&()));
        assert!(
            namespaced || scope == TypeId::of::<ClusterResourceScope>(),
            "{kind} is neither namespaced nor cluster-scoped"
        );
        let (group, version, plural) = (T::group(&()), T::version(&()), T::plural(&()));
        Kind { group: name(group), version: name(version), kind, plural: name(plural), namespaced }
    }
}

/// Returns a name that is never freed. The types of k8s-openapi and kube's derive have constants.
fn name(name: Cow<'static, str>) -> &'static str {
    match name {
        Cow::Borrowed(constant) => constant,
        Cow::Owned(name) => leak(&name),
    }
}

/// Reduces metadata.
fn reduced(meta: &ObjectMeta) -> Result<Meta<AllMetadata>, super::ParseUidError> {
    let text = |text: &Option<String>| InternedStr::new(text.as_deref().unwrap_or_default());
    let mut reduced = Meta::named(ObjectKey::new(text(&meta.namespace), text(&meta.name)));
    if let Some(uid) = &meta.uid {
        reduced.uid = uid.parse()?;
    }
    reduced.version = ResourceVersion::parse(meta.resource_version.as_deref().unwrap_or_default());
    reduced.generation = meta.generation.unwrap_or_default();
    reduced.is_terminating = meta.deletion_timestamp.is_some();
    let seconds = |time: &Option<Time>| time.as_ref().map(|it| it.0.into()).unwrap_or_default();
    (reduced.created, reduced.deleted) =
        (seconds(&meta.creation_timestamp), seconds(&meta.deletion_timestamp));
    let mut owners = meta.owner_references.iter().flatten();
    if let Some(owner) = owners.find(|owner| owner.controller == Some(true)) {
        reduced.owner = Some(Box::new(owner_of(owner)));
    }
    let managed = meta.managed_fields.iter().flatten().filter(|entry| entry.subresource.is_none());
    let mut is_apply = managed.map(|entry| entry.operation.as_deref() == Some("Apply"));
    reduced.is_co_owned = (is_apply.next(), is_apply.next()) != (Some(true), None);
    let labels = |map: &Option<std::collections::BTreeMap<String, String>>| -> Labels {
        map.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    };
    (reduced.labels, reduced.annotations) = (labels(&meta.labels), labels(&meta.annotations));
    reduced.finalizers =
        meta.finalizers.iter().flatten().map(|name| name.as_str().into()).collect();
    Ok(reduced)
}

fn owner_of(owner: &OwnerReference) -> Owner {
    Owner {
        api_version: owner.api_version.as_str().into(),
        kind: owner.kind.as_str().into(),
        name: owner.name.as_str().into(),
        uid: owner.uid.parse().unwrap_or(Uid::NONE),
        block_owner_deletion: owner.block_owner_deletion == Some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    #[test]
    fn a_typed_object_and_a_view_have_equal_metadata() {
        #[derive(Debug, Deserialize)]
        struct View {
            metadata: Meta<AllMetadata>,
        }
        let uid = "01234567-89ab-cdef-0123-456789abcdef";
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {
            "name": "web", "namespace": "shop", "uid": uid, "resourceVersion": "42", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
            "labels": {"app": "web", "tier": "x"}, "annotations": {"note": "y"}, "finalizers": ["a/b"],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid},
                {"apiVersion": "g/v1", "kind": "App", "name": "web", "uid": uid, "controller": true}],
            "managedFields": [{"manager": "x", "operation": "Apply", "fieldsV1": {"f:spec": {}}},
                {"manager": "y", "operation": "Update", "subresource": "status"}]},
            "spec": {"replicas": 2, "selector": {}, "template": {}}});
        let typed: Typed<Deployment> = serde_json::from_value(object.clone()).unwrap();
        let View { metadata } = serde_json::from_value(object).unwrap();
        let all = |meta: &Meta<AllMetadata>| {
            let flags = (meta.is_terminating, meta.is_co_owned, meta.generation);
            let flags = (flags, meta.created(), meta.deletion());
            (format!("{meta:?}"), json!(meta), flags)
        };
        assert_eq!(all(&typed.meta), all(&metadata));
        assert_eq!(typed.spec.replicas, Some(2));
        assert!(typed.metadata.managed_fields.is_none(), "nobody reads them");
        assert_eq!(json!(typed)["kind"], "Deployment");
    }

    #[test]
    fn a_typed_object_has_the_kind_of_its_type() {
        let deployment = Kind::namespaced("apps", "v1", "Deployment", "deployments");
        assert_eq!(Typed::<Deployment>::kind(), deployment);
        assert_eq!(Typed::<Node>::kind(), Kind::cluster_scoped("", "v1", "Node", "nodes"));
    }

    #[test]
    fn the_error_for_an_invalid_uid_names_the_field() {
        let object = json!({"metadata": {"name": "web", "uid": "7"}});
        let why = serde_json::from_value::<Typed<Node>>(object).unwrap_err().to_string();
        assert!(why.contains("metadata.uid: a UID must be a UUID"), "{why}");
    }
}
