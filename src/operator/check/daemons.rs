//! GenericDaemons: who may create them, and whether they run anywhere.

use serde_json::Value;

use super::args::CheckArgs;
use super::finding::{D003, Finding, G001};
use crate::client::{Client, Error, Scope};
use crate::object::{Kind, ObjectKey, Resource};
use crate::reconcilers::generic_daemon::GenericDaemon;

/// From artifacts/policy/generic-daemon.yaml.
const POLICY_NAME: &str = "workload-operator-generic-daemon";
/// How many are named; the rest are only counted.
const NAMED: usize = 3;

const POLICY: Kind = admission("ValidatingAdmissionPolicy", "validatingadmissionpolicies");
const BINDING: Kind =
    admission("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings");
const NODE: Kind = Kind::cluster_scoped("", "v1", "Node", "nodes");

const fn admission(kind: &'static str, plural: &'static str) -> Kind {
    let group = "admissionregistration.k8s.io";
    Kind::cluster_scoped(group, "v1", kind, plural)
}

pub(super) async fn findings(client: &Client, args: &CheckArgs) -> Vec<Finding> {
    vec![
        guarded(client).await.unwrap_or_else(|error| D003.unasked(&error)),
        matched(client, args).await.unwrap_or_else(|error| G001.unasked(&error)),
    ]
}

async fn guarded(client: &Client) -> Result<Finding, Error> {
    let key = ObjectKey::new("", POLICY_NAME);
    for kind in [POLICY, BINDING] {
        match client.read(&kind, &key).await {
            Ok(found) if kind == BINDING && !denies(&found) => {
                return Ok(D003.warn(format!("{} {POLICY_NAME} does not deny", kind.kind)));
            }
            Ok(_) => {}
            Err(error) if error.is_not_found() => {
                return Ok(D003.warn(format!("there is no {} {POLICY_NAME}", kind.kind)));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(D003.ok(""))
}

fn denies(binding: &Value) -> bool {
    let actions = binding["spec"]["validationActions"].as_array();
    actions.into_iter().flatten().any(|action| action == "Deny")
}

async fn matched(client: &Client, args: &CheckArgs) -> Result<Finding, Error> {
    let everywhere = [None];
    let some: Vec<_> = args.namespaces.iter().map(|name| Some(name.as_str().into())).collect();
    let mut daemons = Vec::new();
    for namespace in if some.is_empty() { &everywhere[..] } else { &some[..] } {
        let scope = Scope { namespace: namespace.clone(), ..Scope::default() };
        match client.read_all(&GenericDaemon::KIND, &scope).await {
            Ok(found) => daemons.extend(found),
            // Another check reports that.
            Err(error) if error.is_not_found() => return Ok(G001.skip("there is no such kind")),
            Err(error) => return Err(error),
        }
    }
    let mut labels: Vec<&str> = daemons.iter().map(label).collect();
    labels.sort_unstable();
    labels.dedup();
    let mut nowhere = Vec::new();
    for label in labels {
        let selector = Some(label.to_owned()).filter(|label| !label.is_empty());
        let scope = Scope { labels: selector, ..Scope::default() };
        if client.read_all(&NODE, &scope).await?.is_empty() {
            nowhere.push(label);
        }
    }
    Ok(judged(&daemons, &nowhere))
}

fn judged(daemons: &[Value], nowhere: &[&str]) -> Finding {
    let lost: Vec<&Value> = daemons.iter().filter(|one| nowhere.contains(&label(one))).collect();
    if lost.is_empty() {
        return G001.ok(daemons.len().to_string());
    }
    let name = |daemon: &&&Value| {
        let meta = &daemon["metadata"];
        let word = |field: &str| meta[field].as_str().unwrap_or_default();
        format!("{}/{} ({})", word("namespace"), word("name"), label(daemon))
    };
    let names: Vec<String> = lost.iter().take(NAMED).map(|one| name(&one)).collect();
    let more = if lost.len() > NAMED { ", …" } else { "" };
    let (count, all) = (lost.len(), daemons.len());
    G001.warn(format!("{count} of {all} match no node: {}{more}", names.join(", ")))
}

/// Empty means every node.
fn label(daemon: &Value) -> &str {
    daemon["spec"]["label"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn those_that_match_no_node_are_counted_and_a_few_are_named() {
        let daemon = |name: &str, label: &str| {
            json!({"metadata": {"namespace": "ns", "name": name},
            "spec": {"label": label}})
        };
        let mut all = vec![daemon("fine", "logs"), daemon("lost", "nowhere=1")];
        assert_eq!(
            judged(&all, &["nowhere=1"]).detail,
            "1 of 2 match no node: ns/lost (nowhere=1)"
        );
        all.extend(["b", "c", "d"].map(|name| daemon(name, "nowhere=1")));
        let told = judged(&all, &["nowhere=1"]).detail;
        assert!(told.starts_with("4 of 5") && told.ends_with("ns/c (nowhere=1), …"), "{told}");
        assert_eq!(judged(&all, &[]).detail, "5");
    }
}
