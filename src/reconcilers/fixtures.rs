//! Objects for tests, by sentence.

use serde_json::{Value, json};

use super::applied;
use super::child::{Child, ChildSpec, Made};
use super::condition::{Condition, Status, Type};
use crate::object::{ObjectKey, Owner, Resource, Uid};

/// A UID that ends in `n`.
pub(super) fn uid(n: u8) -> Uid {
    format!("00000000-0000-4000-8000-0000000000{n:02x}").parse().unwrap()
}

/// A custom resource as the API server would give it, from a sample or any YAML.
pub(super) fn custom<V: Resource>(yaml: &str) -> V {
    let mut object: Value = serde_yaml_ng::from_str(yaml).unwrap();
    let meta = object["metadata"].as_object_mut().unwrap();
    for (key, value) in [
        ("namespace", json!("default")),
        ("uid", json!(uid(1))),
        ("resourceVersion", json!("10")),
        ("generation", json!(1)),
    ] {
        meta.entry(key).or_insert(value);
    }
    serde_json::from_value(object).unwrap()
}

/// A child as the API server sends it after exactly `made` was applied for `parent`.
pub(super) fn wire<S: ChildSpec, V: Resource>(parent: &V, made: &Made<S>) -> Value {
    wire_owned(parent.key(), parent.as_owner(), made)
}

pub(super) fn wire_owned<S: ChildSpec>(key: &ObjectKey, owner: Owner, made: &Made<S>) -> Value {
    let mut object = serde_json::to_value(made.to_apply(key, owner, uid(99))).unwrap();
    object["metadata"]["resourceVersion"] = json!("20");
    object["metadata"]["generation"] = json!(1);
    object
}

/// `object` as the store holds it.
pub(super) fn child<S: ChildSpec>(object: &Value) -> Child<S> {
    serde_json::from_value(object.clone()).unwrap()
}

/// The status of a Deployment with `n` replicas, all up to date and available.
pub(super) fn rolled_out(n: i32) -> Value {
    let condition = |kind: &str, reason: &str| {
        json!({ "type": kind, "status": "True", "reason": reason, "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    json!({
        "observedGeneration": 1, "replicas": n, "updatedReplicas": n, "readyReplicas": n,
        "availableReplicas": n,
        "conditions": [
            condition("Available", "MinimumReplicasAvailable"),
            condition("Progressing", "NewReplicaSetAvailable"),
        ],
    })
}

/// Status, reason and message of the condition of this type.
pub(super) fn condition(conditions: &[Condition], kind: Type) -> Option<(Status, &str, &str)> {
    let condition = conditions.iter().find(|condition| condition.is(kind))?;
    Some((condition.status, &condition.reason, &condition.message))
}

/// Compares a pod template with its golden file; `UPDATE_GOLDEN=1` writes the file instead. The
/// file also holds the template's hash, which stands for the `pod-template-hash` of its pods: a
/// release that changes it restarts them.
pub(super) fn assert_golden(file: &str, template: &Value) {
    let path = format!("{}/src/reconcilers/golden/{file}", env!("CARGO_MANIFEST_DIR"));
    let hash = applied::hash(template);
    let now = json!({ "hash": hash, "template": template });
    let text = format!("{}\n", serde_json::to_string_pretty(&now).unwrap());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let before: Value = serde_json::from_str(&kept).unwrap_or_default();
    assert!(
        kept == text,
        "The pod template in src/reconcilers/golden/{file} is another: it was {}, it is {hash}. Every \
         pod of this kind would be restarted by a release with this change, in all clusters at once.\n\
         - Not meant: take the change back. A new field must be left out where it says nothing new.\n\
         - Meant: say in CHANGELOG.md, under Changed, that the pods of this kind restart and why, and \
         write the file with UPDATE_GOLDEN=1 cargo test --lib reconcilers\n\
         It is now:\n{text}",
        before["hash"]
    );
}
