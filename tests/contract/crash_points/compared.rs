//! Criteria by which two runs are compared.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::steps::Step;
use super::workloads::{NAME, Workload};
use crate::audit::{Audit, Entry};
use crate::world::World;

/// The annotation in which the operator records what it has applied.
const APPLIED: &str = "workload-operator.example.com/applied";

/// Counts creations and deletions by `verb resource`. In the end nothing is left.
pub(super) fn made(world: &World, workload: &Workload, audit: &Audit) -> BTreeMap<String, usize> {
    let writes = audit.writes(world);
    let kinds = [&[workload.kind], workload.children].concat();
    let counted = kinds.iter().flat_map(|kind| {
        let of_kind = writes.iter().filter(|write| write.resource == kind.plural());
        let (created, deleted) = created_and_deleted(of_kind);
        [("create", created), ("delete", deleted)].map(|(verb, n)| (verb, kind.plural(), n))
    });
    let some = counted.filter(|(_, _, count)| *count > 0);
    some.map(|(verb, resource, count)| (format!("{verb} {resource}"), count)).collect()
}

/// Returns the numbers of created and of deleted objects of a kind; none of them is left.
///
/// If the operator is killed while other calls of its own are under way, the API server has no
/// client to answer and logs 504, whether or not they were carried out. Such a create counts if
/// otherwise one more object was deleted than created, and such a delete if one more was created.
fn created_and_deleted<'a>(writes: impl Iterator<Item = &'a Entry>) -> (usize, usize) {
    let (mut created, mut deleted) = (0_usize, 0_usize);
    let (mut perhaps_created, mut perhaps_deleted) = (0, 0);
    for write in writes {
        match (write.verb.as_str(), write.code) {
            // A server-side apply that creates is a patch answered with 201.
            (_, 201) => created += 1,
            ("delete", 200) => deleted += 1,
            ("delete", 504) => perhaps_deleted += 1,
            ("create" | "patch", 504) if write.subresource.is_empty() => perhaps_created += 1,
            _ => {}
        }
    }
    let (unseen_creates, unseen_deletes) =
        (deleted.saturating_sub(created), created.saturating_sub(deleted));
    (created + unseen_creates.min(perhaps_created), deleted + unseen_deletes.min(perhaps_deleted))
}

/// The custom resource, its children and the number of pods, without what differs in every run.
pub(super) async fn end_state(world: &World, workload: &Workload) -> Value {
    let mut state = Vec::new();
    for kind in [&[workload.kind], workload.children].concat() {
        for mut object in world.list(kind).await {
            // A Service `kubernetes` or the like is not ours; everything that is ours has this
            // name.
            assert_eq!(object["metadata"]["name"], NAME, "only what the workload makes");
            if kind.plural() != workload.kind.plural() {
                // Kubernetes' own business, and reflected in the custom resource's status.
                object["status"] = Value::Null;
                if workload.steps.iter().any(|step| matches!(step, Step::Flap(..))) {
                    // A move back and forth with its owner depends on timing.
                    object["metadata"]["generation"] = json!("*");
                }
            }
            mask(&mut object);
            state.push(object);
        }
    }
    let text = Value::from(state).to_string().replace(&world.namespace, "NAMESPACE");
    serde_json::from_str(&text).expect("it was JSON")
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| name != "managedFields");
            for (name, field) in fields {
                match name.as_str() {
                    "uid" | "resourceVersion" | "clusterIP" | "clusterIPs" => *field = json!("*"),
                    // Kubernetes' own count of the templates it has seen.
                    "deployment.kubernetes.io/revision"
                    | "deprecated.daemonset.template.generation" => *field = json!("*"),
                    // A hash of the spec, which may contain the namespace.
                    APPLIED => *field = json!("*"),
                    name if name.ends_with("Time") || name.ends_with("Timestamp") => {
                        *field = json!("*");
                    }
                    "message" => mask_replica_set(field),
                    // The names of pods, which Kubernetes generates.
                    "nodes" => *field = json!(field.as_array().map(Vec::len)),
                    _ => mask(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        _ => {}
    }
}

/// "ReplicaSet "it-59b98cc8bb" has …": Kubernetes chooses another name while the ReplicaSet of a
/// deleted Deployment still has this one.
fn mask_replica_set(message: &mut Value) {
    const BEFORE: &str = "ReplicaSet \"it-";
    let Some((before, after)) = message.as_str().and_then(|text| text.split_once(BEFORE)) else {
        return;
    };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    *message = json!(format!("{before}{BEFORE}*{rest}"));
}

#[test]
fn of_a_replica_set_that_is_named_in_a_message_only_the_hash_is_masked() {
    let masked = |text: &str| {
        let mut condition = json!({"message": text});
        mask(&mut condition);
        condition["message"].as_str().map(str::to_owned)
    };
    let progressed = masked("ReplicaSet \"it-59b98cc8bb\" has successfully progressed.");
    assert_eq!(progressed.as_deref(), Some("ReplicaSet \"it-*\" has successfully progressed."));
    let other = masked("ReplicaSet \"it-6f84f9566c\" is progressing.");
    assert_eq!(other.as_deref(), Some("ReplicaSet \"it-*\" is progressing."));
    assert_eq!(masked("All 1 replicas are ready").as_deref(), Some("All 1 replicas are ready"));
}

#[test]
fn a_write_that_was_answered_to_nobody_counts_if_what_it_made_was_there() {
    let write = |verb: &str, code: i64| {
        let line = json!({
            "requestReceivedTimestamp": "2026-01-01T00:00:00Z",
            "stageTimestamp": "2026-01-01T00:00:00Z",
            "user": {"username": "it"},
            "verb": verb,
            "requestURI": "/api/v1/namespaces/a/services",
            "objectRef": {"resource": "services", "name": NAME},
            "responseStatus": {"code": code},
        });
        Entry::parse(line.to_string().as_bytes(), "it").expect("an entry")
    };
    let count = |writes: &[(&str, i64)]| {
        let writes: Vec<Entry> = writes.iter().map(|(verb, code)| write(verb, *code)).collect();
        created_and_deleted(writes.iter())
    };
    assert_eq!(count(&[("patch", 201), ("delete", 200)]), (1, 1));
    assert_eq!(count(&[("patch", 504), ("delete", 200)]), (1, 1), "it was carried out");
    assert_eq!(count(&[("patch", 504), ("patch", 201), ("delete", 200)]), (1, 1), "it was not");
    assert_eq!(count(&[("patch", 201), ("delete", 504)]), (1, 1), "it was carried out");
    assert_eq!(count(&[("patch", 409), ("delete", 200)]), (0, 1), "a refusal makes nothing");
    let twice = [("patch", 504), ("patch", 201), ("delete", 200), ("delete", 200)];
    assert_eq!(count(&twice), (2, 2), "one too many is still seen");
}
