//! Decoding of children from the wire: a foreign object is skipped, not stored.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::{Child, ChildSpec, Desired, OWN_NAME, Own};
use crate::object::{InternedStr, Kind, Labels, Meta, Owner, Uid};
use crate::workload::KINDS;

/// The longest group, version, kind or name of an object that can exist, in bytes: `group/version`
/// of a DNS subdomain and a DNS label. Anyone may write anything into an owner reference.
const LONGEST: usize = 253 + 1 + 63;

impl<'de, S: ChildSpec> Deserialize<'de> for Child<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Child<S>, D::Error> {
        deserializer.deserialize_map(ChildVisitor(PhantomData))
    }
}

#[derive(serde::Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Field {
    Metadata,
    Spec,
    Status,
    #[serde(other)]
    Other,
}

struct ChildVisitor<S>(PhantomData<fn() -> S>);

impl<'de, S: ChildSpec> Visitor<'de> for ChildVisitor<S> {
    type Value = Child<S>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {}", S::KIND.kind)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Child<S>, A::Error> {
        let (mut meta, mut spec, mut status) = (None::<Meta<Own>>, None::<S>, None);
        while let Some(field) = map.next_key()? {
            // The API server sends the metadata first. What comes before it is decoded, and dropped
            // in the end.
            let foreign = meta.as_ref().is_some_and(is_foreign);
            match field {
                Field::Metadata => meta = Some(map.next_value()?),
                Field::Spec if !foreign => spec = Some(map.next_value()?),
                Field::Status if !foreign => status = map.next_value::<Option<S::Status>>()?,
                Field::Spec | Field::Status | Field::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let mut meta = meta.ok_or_else(|| A::Error::missing_field("metadata"))?;
        if is_foreign(&meta) {
            let meta = reduced(meta);
            let made =
                S::interner().intern(Desired { labels: Labels::default(), spec: S::default() });
            return Ok(Child { meta, made, status: S::Status::default() });
        }
        let made =
            Desired { labels: std::mem::take(&mut meta.labels), spec: spec.unwrap_or_default() };
        let made = S::interner().intern(made.renamed(meta.key.name(), OWN_NAME));
        Ok(Child { meta, made, status: status.unwrap_or_default() })
    }
}

/// Returns whether no custom resource controls the object, or one that cannot be its parent: a
/// child has its parent's name.
fn is_foreign(meta: &Meta<Own>) -> bool {
    let is_parent = |owner: &Owner| {
        let group = owner.api_version.split_once('/').map(|(group, _)| group);
        let of_kind = |kind: &Kind| (group, &*owner.kind) == (Some(kind.group), kind.kind);
        owner.name == *meta.key.name() && KINDS.iter().any(of_kind)
    };
    !meta.owner.as_ref().is_some_and(is_parent)
}

/// All that is kept of a foreign object's metadata. Its owner is not one that controls a child.
fn reduced(meta: Meta<Own>) -> Meta<Own> {
    let possible =
        |text: InternedStr| if text.len() > LONGEST { InternedStr::default() } else { text };
    let owner = meta.owner.map(|owner| Owner {
        api_version: possible(owner.api_version),
        kind: possible(owner.kind),
        name: possible(owner.name),
        uid: Uid::NONE,
    });
    let mut kept = Meta::named(meta.key);
    kept.owner = owner;
    kept.deleting = meta.deleting;
    (kept.uid, kept.version, kept.generation) = (meta.uid, meta.version, meta.generation);
    kept
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::workload::Deployment;
    use crate::workload::fixtures::uid;

    /// A Deployment `shop` with this owner and something in every part that the operator keeps.
    fn deployment(owner: &Value) -> Value {
        json!({
            "metadata": {
                "name": "shop", "namespace": "ns", "uid": uid(1), "resourceVersion": "7",
                "generation": 3, "labels": {"app.kubernetes.io/name": "a"}, "finalizers": ["a/b"],
                "annotations": {"workload-operator.example.com/applied": "x"},
                "ownerReferences": [owner],
            },
            "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}},
            "status": {"replicas": 2},
        })
    }

    fn owner(api_version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid(2),
               "controller": true})
    }

    fn decoded(text: &str) -> Deployment {
        serde_json::from_str(text).unwrap()
    }

    fn is_kept(child: &Deployment) -> bool {
        child.spec().replicas == 2
    }

    #[test]
    fn foreign_objects_keep_key_identity_and_owner() {
        for owner in [
            owner("apps/v1", "ReplicaSet", "shop"),
            owner("other.example.com/v1", "App", "shop"),
            owner("v1", "App", "shop"),
            owner("app.example.com/v1", "Memcached", "shop"),
            owner("app.example.com/v1", "App", "another"),
            json!({"apiVersion": "app.example.com/v1", "kind": "App", "name": "shop", "uid": uid(2)}),
        ] {
            let child = decoded(&deployment(&owner).to_string());
            let meta = &child.meta;
            assert!(!is_kept(&child) && !meta.is_controlled_by(uid(2)), "{owner}");
            assert_eq!((child.status.replicas, child.made().labels.len()), (0, 0));
            assert_eq!((meta.labels.len(), meta.annotations.len()), (0, 0));
            assert_eq!((meta.finalizers.capacity(), meta.uid, meta.generation), (0, uid(1), 3));
            if owner["controller"] == true {
                assert_eq!(json!(meta.owner.as_ref().unwrap().kind), owner["kind"]);
            }
        }
    }

    #[test]
    fn children_of_every_kind_and_version_are_kept_whole() {
        for owner in [
            owner("app.example.com/v1", "App", "shop"),
            owner("app.example.com/v2", "App", "shop"),
            owner("cache.example.com/v1alpha1", "Memcached", "shop"),
            owner("mydomain.com/v1beta1", "GenericDaemon", "shop"),
        ] {
            let child = decoded(&deployment(&owner).to_string());
            assert!(is_kept(&child) && child.meta.is_controlled_by(uid(2)), "{owner}");
            assert_eq!((child.status.replicas, child.made().labels.len()), (2, 1));
            assert_eq!((child.meta.annotations.len(), child.meta.finalizers.len()), (1, 1));
        }
    }

    #[test]
    fn the_order_of_fields_on_the_wire_does_not_matter() {
        for (owner, kept) in [
            (owner("app.example.com/v1", "App", "shop"), true),
            (owner("apps/v1", "ReplicaSet", "shop"), false),
        ] {
            let object = deployment(&owner);
            let part = |name: &str| format!(r#""{name}":{}"#, object[name]);
            let text = format!("{{{},{},{}}}", part("status"), part("spec"), part("metadata"));
            assert_eq!(is_kept(&decoded(&text)), kept);
        }
    }

    #[test]
    fn an_object_that_does_not_fit_is_only_an_error_if_it_is_ours() {
        let decode = |owner: &Value| {
            let mut object = deployment(owner);
            object["spec"]["replicas"] = json!("many");
            serde_json::from_str::<Deployment>(&object.to_string())
        };
        assert!(decode(&owner("apps/v1", "ReplicaSet", "shop")).is_ok());
        assert!(decode(&owner("app.example.com/v1", "App", "shop")).is_err());
    }

    #[test]
    fn foreign_objects_share_one_empty_spec_and_no_long_reference() {
        let long = "x".repeat(LONGEST + 1);
        let one = decoded(&deployment(&owner("apps/v1", &long, &long)).to_string());
        let other = decoded(&deployment(&owner("apps/v1", "ReplicaSet", "a")).to_string());
        assert!(Arc::ptr_eq(&one.made, &other.made));
        let kept = one.meta.owner.unwrap();
        assert_eq!((kept.kind.len(), kept.name.len()), (0, 0));
        let possible = "x".repeat(LONGEST);
        let longest = decoded(&deployment(&owner("apps/v1", &possible, "a")).to_string());
        assert_eq!(&*longest.meta.owner.unwrap().kind, possible);
    }
}
