//! What is installed: P, the operator; M, its metrics; G and D003, GenericDaemons and who may create them.

use jiff::Timestamp;
use serde_json::Value;

use super::CheckArgs;
use super::{D003, Finding, G001, M001, P001, P002, P003};
use crate::client::{Client, Error, Scope};
use crate::generic_daemon::GenericDaemon;
use crate::object::{Kind, ObjectKey, Resource};

/// The name of the Deployment, its label and the Lease.
pub(super) const NAME: &str = "workload-operator";

const NAMESPACE: Kind = Kind::cluster_scoped("", "v1", "Namespace", "namespaces");
const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment", "deployments");
pub(super) const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");
const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases");

pub(super) async fn operator_findings(client: &Client, namespace: &str) -> Vec<Finding> {
    let key = ObjectKey::new(namespace, NAME);
    let lease = client.read(&LEASE, &key).await;
    let level = client.read(&NAMESPACE, &ObjectKey::new("", namespace)).await;
    vec![
        pods(client, &key).await.unwrap_or_else(|error| P001.unasked(&error)),
        fresh(lease, Timestamp::now()),
        security(level, namespace),
    ]
}

async fn pods(client: &Client, key: &ObjectKey) -> Result<Finding, Error> {
    let deployment = match client.read(&DEPLOYMENT, key).await {
        Ok(deployment) => deployment,
        Err(error) if error.is_not_found() => {
            return Ok(P001.skip(format!("not installed: there is no Deployment {key}")));
        }
        Err(error) => return Err(error),
    };
    let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    if wanted == 0 {
        return Ok(P001.fail(format!("Deployment {key} is scaled to 0")));
    }
    let scope = Scope {
        namespace: Some(key.namespace().clone()),
        labels: Some(format!("app.kubernetes.io/name={NAME}")),
        ..Scope::default()
    };
    let pods = client.read_all(&POD, &scope).await?;
    let ready = pods.iter().filter(|pod| is_ready(pod)).count() as u64;
    let detail = format!("{ready}/{wanted}");
    if ready >= wanted {
        return Ok(P001.ok(detail));
    }
    let states: Vec<String> = pods.iter().filter(|pod| !is_ready(pod)).map(state).collect();
    Ok(P001.fail(format!("{detail} {}", states.join(", ")).trim_end().to_owned()))
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// A pod's name, and what its container waits for, as `kubectl get pods` shows it.
fn state(pod: &Value) -> String {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
    let state = waiting.as_str().or(pod["status"]["phase"].as_str()).unwrap_or("Unknown");
    format!("{name}: {state}")
}

/// Compares the holder's renewTime with this machine's clock; if the two clocks differ, the age is
/// off by that much.
fn fresh(lease: Result<Value, Error>, now: Timestamp) -> Finding {
    let lease = match lease {
        Ok(lease) => lease,
        Err(error) if error.is_not_found() => {
            return P002.skip("there is no Lease: --leader-elect is off, or it never ran");
        }
        Err(error) => return P002.unasked(&error),
    };
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    if holder.is_empty() {
        return P002.fail("nobody holds it");
    }
    let renewed = lease["spec"]["renewTime"].as_str().and_then(|time| time.parse().ok());
    let Some(renewed): Option<Timestamp> = renewed else {
        return P002.fail(format!("{holder} has never renewed it"));
    };
    let age = now.duration_since(renewed).as_secs();
    let lasts = lease["spec"]["leaseDurationSeconds"].as_i64().unwrap_or(15);
    let detail = format!("{holder} renewed it {age} s ago");
    if age <= lasts { P002.ok(detail) } else { P002.fail(detail) }
}

fn security(namespace: Result<Value, Error>, name: &str) -> Finding {
    match namespace {
        Err(error) if error.is_not_found() => {
            P003.skip(format!("not installed: there is no namespace {name}"))
        }
        Err(error) => P003.unasked(&error),
        Ok(namespace) => {
            let level = &namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
            match level.as_str() {
                Some("restricted") => P003.ok("restricted"),
                Some(other) => P003.warn(other),
                None => P003.warn("nothing is enforced"),
            }
        }
    }
}

/// The Service of artifacts/default/service.yaml.
const SERVICE_NAME: &str = "workload-operator-metrics";

const SERVICE: Kind = Kind::namespaced("", "v1", "Service", "services");
const SLICE: Kind = Kind::namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");

pub(super) async fn metrics_finding(client: &Client, namespace: &str) -> Finding {
    found(client, namespace).await.unwrap_or_else(|error| M001.unasked(&error))
}

async fn found(client: &Client, namespace: &str) -> Result<Finding, Error> {
    let key = ObjectKey::new(namespace, SERVICE_NAME);
    match client.read(&SERVICE, &key).await {
        Ok(_) => {}
        Err(error) if error.is_not_found() => {
            return Ok(M001.skip(format!("not installed: there is no Service {key}")));
        }
        Err(error) => return Err(error),
    }
    let labelled = |name: &str, value: &str| Scope {
        namespace: Some(key.namespace().clone()),
        labels: Some(format!("{name}={value}")),
        ..Scope::default()
    };
    let pods = client.read_all(&POD, &labelled("app.kubernetes.io/name", NAME)).await?;
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let slices =
        client.read_all(&SLICE, &labelled("kubernetes.io/service-name", SERVICE_NAME)).await?;
    Ok(judge_metrics(ready, &slices))
}

/// If no pod is ready, another check reports it.
fn judge_metrics(ready: usize, slices: &[Value]) -> Finding {
    let named = |slice: &&Value| {
        let ports = slice["ports"].as_array();
        ports.into_iter().flatten().any(|port| port["name"] == "metrics")
    };
    let endpoints =
        slices.iter().filter(named).filter_map(|slice| slice["endpoints"].as_array()).flatten();
    // Absent means ready.
    let reachable = endpoints.filter(|one| one["conditions"]["ready"] != false).count();
    let detail = format!("it finds {reachable} of {ready} ready pods");
    match (ready, reachable) {
        (0, _) => M001.skip("no pod is ready"),
        (_, 0) => M001.fail(detail),
        (_, found) if found < ready => M001.warn(detail),
        _ => M001.ok(detail),
    }
}

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

pub(super) async fn daemon_findings(client: &Client, args: &CheckArgs) -> Vec<Finding> {
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
    Ok(judge_labels(&daemons, &nowhere))
}

fn judge_labels(daemons: &[Value], nowhere: &[&str]) -> Finding {
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
    use serde_json::json;

    use super::*;
    use crate::cli::check::Outcome;

    fn at(seconds: i64, holder: &str) -> Outcome {
        let lease = json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": 15,
            "renewTime": "2026-11-21T09:00:00.000000Z"}});
        let renewed: Timestamp = "2026-11-21T09:00:00Z".parse().unwrap();
        let now = renewed + jiff::SignedDuration::from_secs(seconds);
        fresh(Ok(lease), now).outcome
    }

    #[test]
    fn a_lease_is_fresh_for_as_long_as_it_lasts_and_while_somebody_holds_it() {
        assert_eq!(at(15, "me"), Outcome::Ok);
        assert_eq!(at(16, "me"), Outcome::Fail);
        assert_eq!(at(1, ""), Outcome::Fail);
    }

    #[test]
    fn only_ready_endpoints_with_the_port_count() {
        let slice = |port: &str, ready: &[Value]| {
            let endpoints = ready.iter().map(|ready| json!({"conditions": {"ready": ready}}));
            json!({"ports": [{"name": port}], "endpoints": endpoints.collect::<Vec<_>>()})
        };
        let (yes, no, untold) = (json!(true), json!(false), Value::Null);
        let outcome = |ready, slices: &[Value]| judge_metrics(ready, slices).outcome;
        assert_eq!(outcome(2, &[slice("metrics", &[yes.clone(), untold])]), Outcome::Ok);
        assert_eq!(outcome(2, &[slice("metrics", &[yes.clone(), no])]), Outcome::Warn);
        assert_eq!(outcome(1, &[slice("other", &[yes])]), Outcome::Fail);
        assert_eq!(outcome(1, &[json!({"ports": null, "endpoints": null})]), Outcome::Fail);
        assert_eq!(outcome(0, &[]), Outcome::Skip);
    }

    #[test]
    fn those_that_match_no_node_are_counted_and_a_few_are_named() {
        let daemon = |name: &str, label: &str| {
            json!({"metadata": {"namespace": "ns", "name": name},
            "spec": {"label": label}})
        };
        let mut all = vec![daemon("fine", "logs"), daemon("lost", "nowhere=1")];
        assert_eq!(
            judge_labels(&all, &["nowhere=1"]).detail,
            "1 of 2 match no node: ns/lost (nowhere=1)"
        );
        all.extend(["b", "c", "d"].map(|name| daemon(name, "nowhere=1")));
        let told = judge_labels(&all, &["nowhere=1"]).detail;
        assert!(told.starts_with("4 of 5") && told.ends_with("ns/c (nowhere=1), …"), "{told}");
        assert_eq!(judge_labels(&all, &[]).detail, "5");
    }
}
