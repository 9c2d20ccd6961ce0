//! Decoding of children from the wire: a foreign object is skipped, not stored.

use serde_json::{Value, json};

use super::super::*;
use crate::workload::fixtures::uid;
use crate::workload::{Deployment, DeploymentSpec};

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
    child.spec.replicas == 2
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
        assert_eq!((child.status.replicas, child.spec.clone()), (0, DeploymentSpec::default()));
        assert_eq!((meta.labels.len(), meta.annotations.len()), (0, 0));
        assert_eq!((meta.finalizers.capacity(), meta.uid, meta.generation), (0, uid(1), 3));
        if owner["controller"] == true {
            assert_eq!(json!(meta.owner.as_ref().unwrap().kind), owner["kind"]);
        }
    }
}

#[test]
fn an_uncontrolled_object_with_our_record_and_labels_is_kept() {
    let mut object = deployment(&Value::Null);
    object["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    object["metadata"]["labels"] = json!({
        "app.kubernetes.io/managed-by": "workload-operator", "app.kubernetes.io/instance": "shop",
    });
    assert!(is_kept(&decoded(&object.to_string())));
    for (pointer, field, value) in [
        ("/metadata/labels", "app.kubernetes.io/managed-by", json!("Helm")),
        ("/metadata/labels", "app.kubernetes.io/instance", json!("another")),
        ("/metadata", "annotations", json!({})),
        ("/metadata", "ownerReferences", json!([owner("apps/v1", "ReplicaSet", "shop")])),
    ] {
        let mut other = object.clone();
        other.pointer_mut(pointer).unwrap()[field] = value;
        let other = decoded(&other.to_string());
        assert!(!is_kept(&other) && other.meta.labels.is_empty(), "{field}");
    }
}

#[test]
fn owned_objects_of_every_kind_and_version_are_kept() {
    for owner in [
        owner("app.example.com/v1", "App", "shop"),
        owner("app.example.com/v2", "App", "shop"),
        owner("cache.example.com/v1alpha1", "Memcached", "shop"),
        owner("mydomain.com/v1beta1", "GenericDaemon", "shop"),
    ] {
        let child = decoded(&deployment(&owner).to_string());
        assert!(is_kept(&child) && child.meta.is_controlled_by(uid(2)), "{owner}");
        assert_eq!((child.status.replicas, child.meta.labels.len()), (2, 1));
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
fn an_undecodable_object_is_an_error_only_if_owned() {
    let decode = |owner: &Value| {
        let mut object = deployment(owner);
        object["spec"]["replicas"] = json!("many");
        serde_json::from_str::<Deployment>(&object.to_string())
    };
    assert!(decode(&owner("apps/v1", "ReplicaSet", "shop")).is_ok());
    assert!(decode(&owner("app.example.com/v1", "App", "shop")).is_err());
}

#[test]
fn foreign_objects_keep_no_long_reference() {
    let long = "x".repeat(LONGEST + 1);
    let one = decoded(&deployment(&owner("apps/v1", &long, &long)).to_string());
    let kept = one.meta.owner.unwrap();
    assert_eq!((kept.kind.len(), kept.name.len()), (0, 0));
    let possible = "x".repeat(LONGEST);
    let longest = decoded(&deployment(&owner("apps/v1", &possible, "a")).to_string());
    assert_eq!(&*longest.meta.owner.unwrap().kind, possible);
}
