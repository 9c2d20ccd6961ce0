//! Object metadata.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use thin_vec::ThinVec;

use super::Kind;
use super::labels::Kept;
use super::{InternedStr, Labels, ObjectKey, ResourceVersion, Uid, visit_text};

/// Selects the labels and annotations that a view keeps. The others are skipped while parsing. The two annotations
/// that `Context::ensure` writes are always kept.
pub trait MetadataFilter: Clone + 'static {
    /// Annotation with the hash of the state that `Context::ensure` applied.
    const APPLIED: &'static str = "controller-machinery/applied";
    /// Annotation with the changes that admission made to the applied state.
    const ADMITTED: &'static str = "controller-machinery/admitted";

    /// Returns whether the label under `key` is kept.
    fn label(key: &str) -> bool;
    /// Returns whether the annotation under `key` is kept.
    fn annotation(key: &str) -> bool;
}

/// Keeps no label and no annotation of other programs.
#[derive(Debug, Clone, Copy)]
pub enum NoMetadata {}

/// Keeps every label and annotation.
#[derive(Debug, Clone, Copy)]
pub enum AllMetadata {}

/// The controller of an object: the entry of `ownerReferences` with `controller: true` (metav1.GetControllerOf).
/// Other owners are skipped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// `group/version` of the owner.
    pub api_version: InternedStr,
    /// Kind of the owner.
    pub kind: InternedStr,
    /// Name of the owner, in the object's own namespace or cluster-scoped.
    pub name: InternedStr,
    /// UID of the owner. The same name with another UID is another object. [`Uid::NONE`], which no object has, if the
    /// UID is not a UUID: users write these references, and the API server only requires a non-empty field
    /// (`validateOwnerReference`).
    pub uid: Uid,
    /// True if a foreground deletion of the owner waits for this object.
    pub block_owner_deletion: bool,
}

/// `metadata`, reduced to what controllers use.
///
/// A stored object has a UID and a version. A new one has neither, and they are omitted when it is sent. If set,
/// they are preconditions of the write.
#[derive(Clone)]
pub struct Meta<K = NoMetadata> {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID; [`Uid::NONE`] for an object not yet created.
    pub uid: Uid,
    /// Version; [`ResourceVersion::UNKNOWN`] for an object not yet created.
    pub version: ResourceVersion,
    /// Number of changes of the spec; 0 if the API server does not count them.
    pub generation: i64,
    /// True if `deletionTimestamp` is set.
    pub is_terminating: bool,
    pub(super) created: Seconds,
    pub(super) deleted: Seconds,
    /// The controller, if there is one. Boxed, because custom resources have none.
    pub owner: Option<Box<Owner>>,
    /// True unless one manager applied all fields in `managedFields` (apart from subresources). A field of a shared
    /// object can remain when it is no longer applied, because another manager also owns it.
    pub is_co_owned: bool,
    /// The labels that `K` keeps.
    pub labels: Labels,
    /// The annotations that `K` keeps, and the two that `Context::ensure` writes.
    pub annotations: Labels,
    /// All finalizers, in order.
    pub finalizers: ThinVec<InternedStr>,
    keep: PhantomData<fn() -> K>,
}

// === impl MetadataFilter ===

impl MetadataFilter for NoMetadata {
    fn label(_: &str) -> bool {
        false
    }
    fn annotation(_: &str) -> bool {
        false
    }
}

impl MetadataFilter for AllMetadata {
    fn label(_: &str) -> bool {
        true
    }
    fn annotation(_: &str) -> bool {
        true
    }
}

// === impl Meta ===

impl<K> Meta<K> {
    /// Returns the metadata of a new object.
    pub fn named(key: ObjectKey) -> Meta<K> {
        Meta {
            key,
            uid: Uid::NONE,
            version: ResourceVersion::UNKNOWN,
            generation: 0,
            is_terminating: false,
            created: Seconds::default(),
            deleted: Seconds::default(),
            owner: None,
            is_co_owned: true,
            labels: Labels::default(),
            annotations: Labels::default(),
            finalizers: ThinVec::new(),
            keep: PhantomData,
        }
    }

    /// Returns the creation time. `None` for an object not yet created, and for a time that is not in RFC 3339 format.
    pub fn created(&self) -> Option<Timestamp> {
        self.created.timestamp()
    }

    /// Returns the time at which an object that is being deleted ends its grace period (`deletionTimestamp`).
    pub fn deletion(&self) -> Option<Timestamp> {
        self.deleted.timestamp()
    }

    /// Returns whether the object with this UID controls this one. False for [`Uid::NONE`].
    pub fn is_controlled_by(&self, uid: Uid) -> bool {
        uid.is_some() && self.owner.as_ref().is_some_and(|owner| owner.uid == uid)
    }
}

impl<K> Default for Meta<K> {
    fn default() -> Meta<K> {
        Meta::named(ObjectKey::default())
    }
}

impl<K> fmt::Debug for Meta<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meta")
            .field("key", &self.key)
            .field("uid", &self.uid)
            .field("version", &self.version)
            .field("generation", &self.generation)
            .field("is_terminating", &self.is_terminating)
            .finish_non_exhaustive()
    }
}

impl<K> Serialize for Meta<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", self.key.name())?;
        if !self.key.namespace().is_empty() {
            map.serialize_entry("namespace", self.key.namespace())?;
        }
        if self.uid.is_some() {
            map.serialize_entry("uid", &self.uid)?;
        }
        if self.version.is_known() {
            map.serialize_entry("resourceVersion", &self.version)?;
        }
        if !self.labels.is_empty() {
            map.serialize_entry("labels", &self.labels)?;
        }
        if !self.annotations.is_empty() {
            map.serialize_entry("annotations", &self.annotations)?;
        }
        if let Some(owner) = self.owner.as_deref() {
            map.serialize_entry("ownerReferences", &[owner])?;
        }
        if !self.finalizers.is_empty() {
            map.serialize_entry("finalizers", &self.finalizers)?;
        }
        map.end()
    }
}

impl<'de, K: MetadataFilter> Deserialize<'de> for Meta<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Meta<K>, D::Error> {
        deserializer.deserialize_map(MetaVisitor(PhantomData))
    }
}

#[derive(serde::Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Field {
    Name,
    Namespace,
    Uid,
    ResourceVersion,
    Generation,
    CreationTimestamp,
    DeletionTimestamp,
    OwnerReferences,
    Labels,
    Annotations,
    Finalizers,
    ManagedFields,
    #[serde(other)]
    Other,
}

struct MetaVisitor<K>(PhantomData<fn() -> K>);

impl<'de, K: MetadataFilter> Visitor<'de> for MetaVisitor<K> {
    type Value = Meta<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("object metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Meta<K>, A::Error> {
        let (mut name, mut namespace) = (None, None);
        let mut meta = Meta::default();
        while let Some(field) = map.next_key()? {
            match field {
                Field::Name => name = Some(map.next_value::<InternedStr>()?),
                Field::Namespace => namespace = Some(map.next_value::<InternedStr>()?),
                Field::Uid => meta.uid = map.next_value()?,
                Field::ResourceVersion => meta.version = map.next_value()?,
                Field::Generation => meta.generation = map.next_value()?,
                Field::CreationTimestamp => {
                    meta.created = map.next_value::<Option<_>>()?.unwrap_or_default();
                }
                Field::DeletionTimestamp => {
                    let deleted = map.next_value::<Option<Seconds>>()?;
                    meta.is_terminating = deleted.is_some();
                    meta.deleted = deleted.unwrap_or_default();
                }
                Field::OwnerReferences => {
                    let all = map.next_value::<Option<Vec<Reference<'_>>>>()?.unwrap_or_default();
                    let controller = all.into_iter().find(|one| one.controller == Some(true));
                    meta.owner = controller.map(|one| Box::new(one.into_owner()));
                }
                Field::ManagedFields => {
                    let all = map.next_value::<Option<Vec<Manager<'_>>>>()?.unwrap_or_default();
                    meta.is_co_owned = is_shared(&all);
                }
                Field::Labels => meta.labels = map.next_value_seed(Kept(K::label))?,
                Field::Annotations => {
                    let kept =
                        |key: &str| K::annotation(key) || [K::APPLIED, K::ADMITTED].contains(&key);
                    meta.annotations = map.next_value_seed(Kept(kept))?;
                }
                Field::Finalizers => {
                    meta.finalizers = map.next_value::<Option<_>>()?.unwrap_or_default();
                    meta.finalizers.shrink_to_fit();
                }
                Field::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        // The name is empty for the metadata of a pod template or a list.
        meta.key = ObjectKey::new(namespace.unwrap_or_default(), name.unwrap_or_default());
        Ok(meta)
    }
}

/// A time from the API server, in whole seconds since 1970, in four bytes; 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Seconds(u32);

impl Seconds {
    fn timestamp(self) -> Option<Timestamp> {
        Timestamp::from_second(self.0.into()).ok().filter(|_| self.0 > 0)
    }
}

impl From<Timestamp> for Seconds {
    /// Converts a time. A time before 1970 or after 2106 becomes the nearest representable time.
    fn from(time: Timestamp) -> Seconds {
        Seconds(u32::try_from(time.as_second().max(1)).unwrap_or(u32::MAX))
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Seconds, D::Error> {
        // Aggregated API servers can send other formats.
        let seconds =
            |text: &str| Ok(text.parse::<Timestamp>().map(Seconds::from).unwrap_or_default());
        visit_text(deserializer, "a time", seconds)
    }
}

// === impl Owner ===

impl Owner {
    /// Returns whether it is an object of this kind, in any version.
    pub fn is_of(&self, kind: &Kind) -> bool {
        let group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        (group, &*self.kind) == (kind.group, kind.kind)
    }
}

impl Serialize for Owner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(6))?;
        map.serialize_entry("apiVersion", &self.api_version)?;
        map.serialize_entry("kind", &self.kind)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("uid", &self.uid)?;
        // Same as metav1.NewControllerRef.
        map.serialize_entry("controller", &true)?;
        map.serialize_entry("blockOwnerDeletion", &self.block_owner_deletion)?;
        map.end()
    }
}

/// An entry of `ownerReferences`.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference<'a> {
    api_version: InternedStr,
    kind: InternedStr,
    name: InternedStr,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

impl Reference<'_> {
    fn into_owner(self) -> Owner {
        Owner {
            api_version: self.api_version,
            kind: self.kind,
            name: self.name,
            uid: self.uid.parse().unwrap_or(Uid::NONE),
            block_owner_deletion: self.block_owner_deletion == Some(true),
        }
    }
}

/// An entry of `managedFields`. Its field set is skipped.
#[derive(serde::Deserialize)]
struct Manager<'a> {
    #[serde(borrow, default)]
    operation: Cow<'a, str>,
    #[serde(borrow, default)]
    subresource: Cow<'a, str>,
}

fn is_shared(managers: &[Manager<'_>]) -> bool {
    let mut of_object = managers.iter().filter(|it| it.subresource.is_empty());
    let first = of_object.next();
    of_object.next().is_some() || first.is_none_or(|it| it.operation != "Apply")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"{
        "name": "web", "namespace": "shop", "uid": "01234567-89ab-cdef-0123-456789abcdef",
        "resourceVersion": "42", "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": "web", "tier": "x"}, "annotations": null,
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "11111111-1111-1111-1111-111111111111"},
            {"apiVersion": "g/v1", "kind": "App", "name": "web", "uid": "22222222-2222-2222-2222-222222222222",
             "controller": true, "blockOwnerDeletion": true}],
        "managedFields": [{"manager": "x", "fieldsV1": {"f:spec": {}}}], "finalizers": ["a/b"]}"#;

    #[test]
    fn metadata_is_reduced_to_what_controllers_use() {
        let meta: Meta<AllMetadata> = serde_json::from_str(FULL).unwrap();
        assert_eq!(meta.key, ObjectKey::new("shop", "web"));
        assert_eq!(meta.version, ResourceVersion::new(42));
        assert_eq!((meta.generation, meta.is_terminating), (3, false));
        assert_eq!(meta.created().unwrap().to_string(), "2026-01-01T00:00:00Z");
        assert_eq!(meta.deletion(), None);
        assert_eq!(meta.labels.len(), 2);
        assert_eq!(meta.owner.as_ref().unwrap().kind, "App", "only the controller is kept");
        assert_eq!(&*meta.finalizers, [InternedStr::new("a/b")]);
        assert_eq!(meta.finalizers.capacity(), 1, "no room that nothing will ever be put into");
    }

    #[test]
    fn an_object_is_shared_unless_one_apply_owns_every_field() {
        let shared = |managed: &str| {
            let meta: Meta =
                serde_json::from_str(&format!("{{\"managedFields\":{managed}}}")).unwrap();
            meta.is_co_owned
        };
        let apply = r#"{"manager":"a","operation":"Apply","fieldsV1":{"f:spec":{}}}"#;
        let status = r#"{"manager":"b","operation":"Update","subresource":"status"}"#;
        let update = r#"{"manager":"c","operation":"Update"}"#;
        assert!(!shared(&format!("[{apply},{status}]")));
        assert!(shared(&format!("[{apply},{update}]")));
        assert!(shared(&format!("[{apply},{apply}]")));
        assert!(shared("[]") && shared("null"), "nobody knows who set what");
    }

    #[test]
    fn a_view_keeps_only_the_labels_that_its_type_selects() {
        let meta: Meta<NoMetadata> = serde_json::from_str(FULL).unwrap();
        assert!(meta.labels.is_empty());
    }

    #[test]
    fn a_new_object_is_sent_without_uid_and_version() {
        let meta: Meta = Meta::named(ObjectKey::new("ns", "a"));
        assert_eq!(serde_json::to_string(&meta).unwrap(), r#"{"name":"a","namespace":"ns"}"#);
    }

    /// A user may write anything there; the API server only requires that it is not empty.
    #[test]
    fn an_owner_with_an_invalid_uid_matches_no_object() {
        let some = "11111111-1111-1111-1111-111111111111";
        let controller = "22222222-2222-2222-2222-222222222222";
        let meta: Meta = serde_json::from_str(&FULL.replace(some, "x")).unwrap();
        assert!(meta.is_controlled_by(controller.parse().unwrap()));
        let meta: Meta = serde_json::from_str(&FULL.replace(controller, "x")).unwrap();
        assert_eq!(meta.owner.as_ref().unwrap().name, "web", "it is not free");
        assert_eq!(meta.owner.as_ref().unwrap().uid, Uid::NONE);
        assert!(!meta.is_controlled_by(controller.parse().unwrap()));
        assert!(!meta.is_controlled_by(Uid::NONE), "not even what was never created");
    }

    #[test]
    fn a_deletion_timestamp_of_null_is_none() {
        let meta: Meta = serde_json::from_str(r#"{"name":"a","deletionTimestamp":null}"#).unwrap();
        assert!(!meta.is_terminating);
        let meta: Meta =
            serde_json::from_str(r#"{"name":"a","deletionTimestamp":"2026-01-01T00:00:00Z"}"#)
                .unwrap();
        assert!(meta.is_terminating && meta.deletion().is_some());
        let meta: Meta = serde_json::from_str(r#"{"name":"a","deletionTimestamp":"t"}"#).unwrap();
        assert!(meta.is_terminating && meta.deletion().is_none(), "a time of another form");
    }
}
