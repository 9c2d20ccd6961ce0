//! What happened in a history, one line for each version of an object, for a person to read.

use std::fmt::Write as _;

use controller_machinery::testing::Version;
use serde_json::Value;

/// Returns the lines of these versions, without those of Leases, Events and ReplicaSets.
pub fn timeline(versions: &[Version]) -> String {
    let mut text = String::new();
    for (at, version) in versions.iter().enumerate() {
        let kind = version.id.resource.rsplit('/').next().unwrap_or_default();
        if ["leases", "events", "replicasets"].contains(&kind) {
            continue;
        }
        let before = versions[..at].iter().rev().find(|it| it.id == version.id);
        let before = before.and_then(|it| it.object.as_deref()).unwrap_or(&Value::Null);
        let what = match &version.object {
            None => "deleted".to_owned(),
            Some(_) if kind == "pods" => continue,
            Some(object) => changes(before, object, kind),
        };
        let (namespace, name) = (&version.id.namespace, &version.id.name);
        let _ = writeln!(
            text,
            "{:>10.3} s  {kind} {namespace}/{name}: {what}",
            version.at.as_secs_f64()
        );
    }
    text
}

/// Returns the fields that have changed, with their new values.
fn changes(before: &Value, after: &Value, kind: &str) -> String {
    if before.is_null() {
        return format!("created, {} {}", after["metadata"]["uid"], after["spec"]);
    }
    let mut all = Vec::new();
    differences("", before, after, &mut all);
    if kind != "deployments" && kind != "daemonsets" {
        return all.join(", ");
    }
    all.retain(|it| !it.contains("lastUpdateTime"));
    all.join(", ")
}

fn differences(path: &str, before: &Value, after: &Value, into: &mut Vec<String>) {
    if before == after || path.ends_with("/managedFields") || path.ends_with("/resourceVersion") {
        return;
    }
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
                differences(&format!("{path}/{name}"), &before[name], &after[name], into);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (at, (old, new)) in old.iter().zip(new).enumerate() {
                let name = new["type"].as_str().map_or_else(|| at.to_string(), str::to_owned);
                differences(&format!("{path}/{name}"), old, new, into);
            }
        }
        _ => into.push(format!("{path} = {after}")),
    }
}
