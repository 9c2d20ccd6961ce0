//! D: how the API server judges objects.

use serde_json::{Value, json};

use super::args::CheckArgs;
use super::finding::{D001, D002, Finding};
use super::rights::{Right, may};
use crate::client::Client;
use crate::object::{Kind, Resource};
use crate::reconcilers::app::App;
use crate::reconcilers::generic_daemon::GenericDaemon;
use crate::reconcilers::memcached::Memcached;

/// The name of the objects, which are never created.
const NAME: &str = "workload-operator-check";

/// A kind, a valid spec and an invalid one.
fn specs() -> [(Kind, Value, Value); 3] {
    [
        (Memcached::KIND, json!({"size": 1}), json!({"size": -1})),
        (
            GenericDaemon::KIND,
            json!({"image": "example.com/agent:1", "label": "logs"}),
            json!({"image": "example.com/agent:1", "label": "not a label"}),
        ),
        (
            App::KIND,
            json!({"replicas": 1, "image": "example.com/app:1"}),
            json!({"replicas": -1, "image": "example.com/app:1"}),
        ),
    ]
}

pub(super) async fn findings(client: &Client, args: &CheckArgs) -> Vec<Finding> {
    let namespace = args.namespaces.first().map_or("default", String::as_str);
    let (mut refused, mut accepted, mut tried) = (Vec::new(), Vec::new(), Vec::new());
    for (kind, valid, invalid) in specs() {
        let right = Right { group: kind.group, resource: kind.plural, verbs: &["create"] };
        // What the account may not create says nothing about what is valid. Neither does a missing
        // kind, which C001 reports.
        if !matches!(may(client, namespace, &right, "create").await, Ok(true)) {
            continue;
        }
        let object = |spec: Value| {
            json!({"apiVersion": kind.api_version(), "kind": kind.kind,
                "metadata": {"name": NAME}, "spec": spec})
        };
        match client.try_create(&kind, namespace, &object(valid)).await {
            Ok(_) => {}
            Err(error) if error.is_not_found() => continue,
            Err(error) => refused.push(format!("{}: {error}", kind.plural)),
        }
        tried.push(kind.plural);
        if client.try_create(&kind, namespace, &object(invalid)).await.is_ok() {
            accepted.push(kind.plural);
        }
    }
    if tried.is_empty() {
        let why = format!("this account may create none of them in {namespace}");
        return vec![D001.skip(why.clone()), D002.skip(why)];
    }
    vec![
        if refused.is_empty() { D001.ok(tried.join(", ")) } else { D001.fail(refused.join("; ")) },
        if accepted.is_empty() {
            D002.ok("")
        } else {
            D002.fail(format!("accepted: {}", accepted.join(", ")))
        },
    ]
}
