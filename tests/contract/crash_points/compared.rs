//! What two runs are compared by.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::steps::Step;
use super::workloads::{NAME, Workload};
use crate::audit::Audit;
use crate::world::World;

/// The annotation by which the operator knows what it has applied.
const APPLIED: &str = "workload-operator.example.com/applied";

/// What was created and deleted: `verb resource` and how often.
pub(super) fn made(world: &World, workload: &Workload, audit: &Audit) -> BTreeMap<String, usize> {
    let mut made = BTreeMap::new();
    let ours = |resource: &str| {
        resource == workload.kind.plural()
            || workload.children.iter().any(|c| c.plural() == resource)
    };
    for write in audit.writes(world) {
        let what = match (write.verb.as_str(), write.code) {
            // A server-side apply that creates is a patch that answers 201.
            (_, 201) => "create",
            ("delete", 200) => "delete",
            _ => continue,
        };
        if ours(&write.resource) {
            *made.entry(format!("{what} {}", write.resource)).or_default() += 1;
        }
    }
    made
}

/// The custom resource, its children and the number of pods, without what no two runs share.
pub(super) async fn end_state(world: &World, workload: &Workload) -> Value {
    let mut state = Vec::new();
    for kind in [&[workload.kind], workload.children].concat() {
        for mut object in world.list(kind).await {
            // A Service `kubernetes` or the like is not ours; all that is ours is called so.
            assert_eq!(object["metadata"]["name"], NAME, "only what the workload makes");
            if kind.plural() != workload.kind.plural() {
                // Kubernetes' own business, and told by the custom resource's status.
                object["status"] = Value::Null;
                if workload.steps.iter().any(|step| matches!(step, Step::Flap(..))) {
                    // Whether it went there and back with its owner depends on the pace.
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
                    // Kubernetes' own count of the templates that it has seen.
                    "deployment.kubernetes.io/revision"
                    | "deprecated.daemonset.template.generation" => *field = json!("*"),
                    // A hash of the spec, in which the namespace may be named.
                    APPLIED => *field = json!("*"),
                    name if name.ends_with("Time") || name.ends_with("Timestamp") => {
                        *field = json!("*");
                    }
                    // The names of pods, which Kubernetes makes up.
                    "nodes" => *field = json!(field.as_array().map(Vec::len)),
                    _ => mask(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        _ => {}
    }
}
