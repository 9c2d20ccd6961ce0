//! The objects that are looked at.

use serde_json::Value;

use super::args::KindName;
use crate::client::{Client, Error, Scope};
use crate::object::{Kind, ObjectKey, Resource};
use crate::reconcilers::NOT_ENDED;
use crate::reconcilers::workload::{DaemonSet, Deployment};

const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");
const NODE: Kind = Kind::cluster_scoped("", "v1", "Node", "nodes");
/// In the core group: only there can Events be selected, in every supported version, by the fields
/// that identify their object.
const EVENT: Kind = Kind::namespaced("", "v1", "Event", "events");

/// A custom resource and what belongs to it, as JSON.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) object: Value,
    /// The Deployment or DaemonSet, if the object owns it.
    pub(super) child: Option<Value>,
    /// The child's pods that have not ended. An evicted pod keeps nothing from being ready: another
    /// one is made in its place.
    pub(super) pods: Vec<Value>,
    /// Warnings about a DaemonSet: unlike a Deployment's, its status does not say why its pods
    /// cannot be created.
    pub(super) warnings: Vec<String>,
    /// The nodes with a GenericDaemon's label; empty if nodes may not be read.
    pub(super) nodes: Vec<Value>,
}

pub(super) async fn gather(
    client: &Client,
    name: KindName,
    key: &ObjectKey,
) -> Result<Facts, Error> {
    let object = client.read(&name.kind(), key).await?;
    let daemon = name == KindName::GenericDaemon;
    let kind = if daemon { DaemonSet::KIND } else { Deployment::KIND };
    let child = optional(client.read(&kind, key).await)?;
    let child = child.filter(|child| is_owner(&object, child));
    let mut facts = Facts { object, child, ..Facts::default() };
    if let Some(child) = &facts.child {
        let pods = client.read_all(&POD, &pods_of(key, child)).await;
        facts.pods = optional(pods)?.unwrap_or_default();
    }
    if daemon {
        let fields = format!("involvedObject.kind=DaemonSet,involvedObject.name={}", key.name());
        let events = client.read_all(&EVENT, &scope(key, None, Some(fields))).await;
        facts.warnings = warnings(&optional(events)?.unwrap_or_default());
        let labels = facts.object["spec"]["label"].as_str().map(str::to_owned);
        let nodes = Scope { labels, ..Scope::default() };
        facts.nodes = optional(client.read_all(&NODE, &nodes).await)?.unwrap_or_default();
    }
    Ok(facts)
}

/// `None` for what does not exist or may not be read.
fn optional<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() || error.is_forbidden() => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_owner(object: &Value, child: &Value) -> bool {
    let owners = child["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| owner["uid"] == object["metadata"]["uid"])
}

fn pods_of(key: &ObjectKey, child: &Value) -> Scope {
    scope(key, Some(selector(child)), Some(NOT_ENDED.to_owned()))
}

fn selector(child: &Value) -> String {
    let labels = child["spec"]["selector"]["matchLabels"].as_object();
    let pairs = labels.into_iter().flatten();
    let pairs = pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    pairs.collect::<Vec<_>>().join(",")
}

fn scope(key: &ObjectKey, labels: Option<String>, fields: Option<String>) -> Scope {
    Scope { namespace: Some(key.namespace().clone()), labels, fields }
}

/// The messages of failed pod creations, newest first.
fn warnings(events: &[Value]) -> Vec<String> {
    let at = |event: &Value| {
        let times = [&event["lastTimestamp"], &event["eventTime"]];
        times.into_iter().find_map(Value::as_str).unwrap_or_default().to_owned()
    };
    let mut warnings: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "Warning").collect();
    warnings.sort_by_key(|event| std::cmp::Reverse(at(event)));
    warnings
        .into_iter()
        .filter(|event| event["reason"] == "FailedCreate")
        .filter_map(|event| event["message"].as_str().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_that_have_ended_are_not_asked_for() {
        let child = json!({"spec": {"selector": {"matchLabels": {"app": "memcached"}}}});
        let scope = pods_of(&ObjectKey::new("shop", "cart"), &child);
        assert_eq!(scope.labels.as_deref(), Some("app=memcached"));
        assert_eq!(scope.fields.as_deref(), Some(NOT_ENDED));
    }
}
