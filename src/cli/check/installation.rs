//! The installation: P, the operator; M, its metrics; D003 and D004, its policies; G, GenericDaemons.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::CheckArgs;
use super::{Check, D003, D004, Finding, G001, M001, P001, P002, P003};
use crate::cli::args::BindAddress;
use crate::client::{Client, Error, Scope};
use crate::generic_daemon::{self, GenericDaemon};
use crate::object::{Kind, ObjectKey, Resource};

/// The name of the Deployment, its label and the Lease.
pub(super) const NAME: &str = "workload-operator";

const NAMESPACE: Kind = Kind::cluster_scoped("", "v1", "Namespace", "namespaces");
const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment", "deployments");
pub(super) const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");
const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases");

pub(super) async fn operator_findings(client: &Client, args: &CheckArgs) -> Vec<Finding> {
    let namespace = args.operator_namespace.as_str();
    let installed = match deployment(client, args).await {
        Ok(Found::One(deployment)) => Ok(deployment),
        // An operator that is waited for has to come.
        Ok(Found::None(why)) if args.wait.is_some() => {
            Err([P001.fail(why.clone()), M001.skip(why)])
        }
        Ok(Found::None(why)) => Err([P001.skip(why.clone()), M001.skip(why)]),
        Ok(Found::Several(why)) => Err([P001.fail(why.clone()), M001.skip(why)]),
        Err(error) => Err([P001.unasked(&error), M001.unasked(&error)]),
    };
    let elects = installed.as_ref().is_ok_and(elects);
    let of_lease = lease_namespace(args, installed.as_ref().ok());
    let [operator, metrics] = match installed {
        Err(findings) => findings,
        Ok(deployment) => match pods(client, &deployment, namespace).await {
            Err(error) => [P001.unasked(&error), M001.unasked(&error)],
            Ok(pods) => {
                let ready = pods.iter().filter(|pod| is_ready(pod)).count();
                let metrics = metrics(client, &deployment, namespace, ready).await;
                let metrics = metrics.unwrap_or_else(|error| M001.unasked(&error));
                [judge_pods(&deployment, &pods), metrics]
            }
        },
    };
    let lease = match of_lease {
        Some(of_lease) => {
            let lease = client.read(&LEASE, &ObjectKey::new(of_lease, NAME)).await;
            fresh(lease, elects, Timestamp::now())
        }
        None => {
            P002.skip("its namespace is set where this cannot see it: --leader-elect-namespace")
        }
    };
    let level = client.read(&NAMESPACE, &ObjectKey::new("", namespace)).await;
    vec![operator, lease, security(level, namespace), metrics]
}

/// The namespace of the Lease; `None` if a ConfigMap or the like says which.
fn lease_namespace(args: &CheckArgs, deployment: Option<&Value>) -> Option<String> {
    let set = |deployment| setting(deployment, "leader-elect-namespace", "LEADER_ELECT_NAMESPACE");
    match (&args.leader_elect_namespace, deployment.map(set)) {
        (Some(named), _) => Some(named.clone()),
        (None, Some(Setting::Text(namespace))) => Some(namespace),
        (None, Some(Setting::Elsewhere)) => None,
        (None, Some(Setting::Absent) | None) => Some(args.operator_namespace.clone()),
    }
}

/// The operator's Deployment.
pub(super) enum Found {
    One(Value),
    None(String),
    Several(String),
}

pub(super) async fn deployment(client: &Client, args: &CheckArgs) -> Result<Found, Error> {
    let namespace = args.operator_namespace.as_str();
    let key = ObjectKey::new(namespace, args.operator_name.as_deref().unwrap_or(NAME));
    match client.read(&DEPLOYMENT, &key).await {
        Ok(deployment) => return Ok(Found::One(deployment)),
        Err(error) if !error.is_not_found() => return Err(error),
        Err(_) => {}
    }
    let none = Found::None(format!("not installed: there is no Deployment {key}"));
    if args.operator_name.is_some() {
        return Ok(none);
    }
    let mut all = client.read_all(&DEPLOYMENT, &labelled(namespace, &own_label())).await?;
    let names: Vec<String> = all.iter().map(|one| word(&one["metadata"]["name"])).collect();
    Ok(match (all.pop(), names.len()) {
        (None, _) => none,
        (Some(one), 1) => Found::One(one),
        _ => Found::Several(format!("{}: choose one with --operator-name", names.join(", "))),
    })
}

/// The label of the Deployments that a Helm release makes, whatever their names.
fn own_label() -> String {
    format!("app.kubernetes.io/name={NAME}")
}

fn labelled(namespace: &str, labels: &str) -> Scope {
    Scope { namespace: Some(namespace.into()), labels: Some(labels.to_owned()), ..Scope::default() }
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A setting of the operator in its Deployment.
#[derive(Debug, PartialEq)]
enum Setting {
    Absent,
    Text(String),
    /// The value comes from elsewhere: another object, or another variable.
    Elsewhere,
}

/// Returns whether its replicas elect a leader.
fn elects(deployment: &Value) -> bool {
    match setting(deployment, "leader-elect", "LEADER_ELECT") {
        Setting::Text(value) => value == "true",
        Setting::Absent => false,
        // A Lease that nobody renews is worth a look.
        Setting::Elsewhere => true,
    }
}

/// Returns whether it asks the API server who reads /metrics; `None` if the Deployment does not show it.
pub(super) fn asks_for_scrapers(deployment: &Value) -> Option<bool> {
    let of = |flag: &str, variable: &str| setting(deployment, flag, variable);
    let address = match of("metrics-bind-address", "METRICS_BIND_ADDRESS") {
        Setting::Text(text) => Some(text.parse::<BindAddress>().ok()?.0),
        Setting::Absent => None,
        Setting::Elsewhere => return None,
    };
    if address == Some(None) {
        return Some(false);
    }
    match of("metrics-secure", "METRICS_SECURE") {
        Setting::Text(value) => return Some(value == "true"),
        Setting::Absent => {}
        Setting::Elsewhere => return None,
    }
    let is_certified = of("metrics-certificate", "METRICS_CERTIFICATE") != Setting::Absent;
    let is_local = address.flatten().is_none_or(|socket| socket.ip().is_loopback());
    Some(is_certified || !is_local)
}

/// A flag, or the variable in its place, of the Deployment's first container; `true` for a flag without a
/// value.
fn setting(deployment: &Value, flag: &str, variable: &str) -> Setting {
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let list = |field: &str| container[field].as_array().cloned().unwrap_or_default();
    let mut arguments: Vec<String> =
        list("command").iter().chain(&list("args")).map(word).collect();
    arguments.push(String::new());
    let by_flag = arguments.windows(2).rev().find_map(|pair| {
        match pair[0].strip_prefix("--")?.strip_prefix(flag)? {
            "" if pair[1].is_empty() || pair[1].starts_with('-') => Some("true".to_owned()),
            "" => Some(pair[1].clone()),
            value => value.strip_prefix('=').map(str::to_owned),
        }
    });
    let variables = list("env");
    let entry = variables.iter().find(|one| one["name"] == variable);
    match by_flag.or_else(|| entry.map(|entry| word(&entry["value"]))) {
        Some(text) if text.contains("$(") => Setting::Elsewhere,
        Some(text) if !text.is_empty() => Setting::Text(text),
        _ if entry.is_some_and(|entry| entry["valueFrom"].is_object()) => Setting::Elsewhere,
        None if !list("envFrom").is_empty() => Setting::Elsewhere,
        _ => Setting::Absent,
    }
}

/// The pods that the Deployment selects.
async fn pods(client: &Client, deployment: &Value, namespace: &str) -> Result<Vec<Value>, Error> {
    let labels = deployment["spec"]["selector"]["matchLabels"].as_object();
    let pairs = labels.into_iter().flatten().map(|(key, value)| format!("{key}={}", word(value)));
    let selector = pairs.collect::<Vec<_>>().join(",");
    client.read_all(&POD, &labelled(namespace, &selector)).await
}

fn judge_pods(deployment: &Value, pods: &[Value]) -> Finding {
    let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    if wanted == 0 {
        return P001
            .fail(format!("Deployment {} is scaled to 0", word(&deployment["metadata"]["name"])));
    }
    let ready = pods.iter().filter(|pod| is_ready(pod)).count() as u64;
    let states: Vec<String> = pods.iter().filter(|pod| !is_ready(pod)).map(state).collect();
    let detail = format!("{ready}/{wanted} {}", states.join(", ")).trim_end().to_owned();
    match unfinished(deployment, wanted) {
        Some(why) => P001.fail(format!("{why}; ready: {detail}")),
        None if ready >= wanted => P001.ok(format!("{ready}/{wanted}")),
        None => P001.fail(detail),
    }
}

/// Why the Deployment's rollout has not completed, by the rules of `kubectl rollout status`
/// (k8s.io/kubectl/pkg/polymorphichelpers/rollout_status.go).
fn unfinished(deployment: &Value, wanted: u64) -> Option<String> {
    let status = &deployment["status"];
    let count = |field: &str| status[field].as_u64().unwrap_or(0);
    if count("observedGeneration") < deployment["metadata"]["generation"].as_u64().unwrap_or(0) {
        return Some("the newest change has not been acted on".to_owned());
    }
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    if let Some(stuck) = conditions.find(|one| one["reason"] == "ProgressDeadlineExceeded") {
        return Some(format!("the rollout is stuck: {}", word(&stuck["message"])));
    }
    let (updated, all) = (count("updatedReplicas"), count("replicas"));
    if updated < wanted {
        return Some(format!("the rollout is under way: {updated} of {wanted} pods are updated"));
    }
    (all > updated)
        .then(|| format!("the rollout is under way: {} old pods are left", all - updated))
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
/// off by that much. A Lease that an election left which is now off says nothing.
fn fresh(lease: Result<Value, Error>, elects: bool, now: Timestamp) -> Finding {
    let lease = match lease {
        Ok(_) if !elects => return P002.skip("there is no operator with --leader-elect"),
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

const SERVICE: Kind = Kind::namespaced("", "v1", "Service", "services");
const SLICE: Kind = Kind::namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");

/// The Service of artifacts/default/service.yaml, or of the Helm release.
async fn metrics(
    client: &Client,
    deployment: &Value,
    namespace: &str,
    ready: usize,
) -> Result<Finding, Error> {
    let name = format!("{}-metrics", word(&deployment["metadata"]["name"]));
    let key = ObjectKey::new(namespace, name.as_str());
    match client.read(&SERVICE, &key).await {
        Ok(_) => {}
        Err(error) if error.is_not_found() => {
            return Ok(M001.skip(format!("not installed: there is no Service {key}")));
        }
        Err(error) => return Err(error),
    }
    let selector = format!("kubernetes.io/service-name={name}");
    let slices = client.read_all(&SLICE, &labelled(namespace, &selector)).await?;
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

/// Most objects that are named; the rest are only counted.
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
    let mut findings = Vec::from(policies(client, args).await);
    findings.push(matched(client, args).await.unwrap_or_else(|error| G001.unasked(&error)));
    findings
}

/// Judges the policies, whose names begin with that of the installation.
async fn policies(client: &Client, args: &CheckArgs) -> [Finding; 2] {
    let (installation, account) = match deployment(client, args).await {
        Ok(Found::One(deployment)) => {
            let account = &deployment["spec"]["template"]["spec"]["serviceAccountName"];
            let account = account.as_str().unwrap_or("default");
            let account = format!("system:serviceaccount:{}:{account}", args.operator_namespace);
            (word(&deployment["metadata"]["name"]), Some(account))
        }
        Ok(Found::None(_)) => (args.operator_name.clone().unwrap_or_else(|| NAME.to_owned()), None),
        Ok(Found::Several(why)) => return [D003.skip(why.clone()), D004.skip(why)],
        Err(error) => return [D003.unasked(&error), D004.unasked(&error)],
    };
    let judge = async |check: &'static Check, policies: &[&str]| {
        let mut faults = Vec::new();
        for policy in policies {
            let account = account.as_deref().filter(|_| *policy == CHILDREN);
            match fault_of(client, &format!("{installation}-{policy}"), account).await {
                Ok(fault) => faults.extend(fault),
                Err(error) => return check.unasked(&error),
            }
        }
        if faults.is_empty() { check.ok("") } else { check.warn(faults.join("; ")) }
    };
    [judge(&D003, &["generic-daemon"]).await, judge(&D004, &["app", "memcached", CHILDREN]).await]
}

/// The policy on the operator's own account, which it names.
const CHILDREN: &str = "children";

/// Returns why a policy guards nothing, or another account than it should.
async fn fault_of(
    client: &Client,
    name: &str,
    account: Option<&str>,
) -> Result<Option<String>, Error> {
    for kind in [POLICY, BINDING] {
        match client.read(&kind, &ObjectKey::new("", name)).await {
            Ok(found) if kind == BINDING && !denies(&found) => {
                return Ok(Some(format!("{} {name} does not deny", kind.kind)));
            }
            Ok(found)
                if kind == POLICY && account.is_some_and(|account| !names(&found, account)) =>
            {
                let account = account.unwrap_or_default();
                return Ok(Some(format!(
                    "{} {name} does not name the account {account}",
                    kind.kind
                )));
            }
            Ok(_) => {}
            Err(error) if error.is_not_found() => {
                return Ok(Some(format!("there is no {} {name}", kind.kind)));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Returns whether a policy is for this account.
fn names(policy: &Value, account: &str) -> bool {
    let conditions = policy["spec"]["matchConditions"].as_array().into_iter().flatten();
    let mut expressions = conditions.filter_map(|condition| condition["expression"].as_str());
    let quoted = format!("'{account}'");
    expressions.any(|expression| expression.contains(&quoted))
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
    let mut labels: Vec<String> = daemons.iter().map(label).collect();
    labels.sort_unstable();
    labels.dedup();
    let mut nowhere = Vec::new();
    for label in labels {
        let selector = Some(label.clone()).filter(|label| !label.is_empty());
        let scope = Scope { labels: selector, ..Scope::default() };
        if client.read_all(&NODE, &scope).await?.is_empty() {
            nowhere.push(label);
        }
    }
    Ok(judge_labels(&daemons, &nowhere))
}

fn judge_labels(daemons: &[Value], nowhere: &[String]) -> Finding {
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

/// The labels of its nodes, separated by commas; empty means every node.
fn label(daemon: &Value) -> String {
    let spec = generic_daemon::Spec::deserialize(&daemon["spec"]).ok();
    spec.and_then(|spec| spec.node_labels()).unwrap_or_default()
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
        fresh(Ok(lease), true, now).outcome
    }

    #[test]
    fn a_policy_for_another_account_guards_nothing() {
        let expression = "request.userInfo.username == 'system:serviceaccount:a:workload-operator'";
        let policy =
            json!({"spec": {"matchConditions": [{"name": "x", "expression": expression}]}});
        assert!(names(&policy, "system:serviceaccount:a:workload-operator"));
        assert!(!names(&policy, "system:serviceaccount:b:workload-operator"));
        assert!(!names(&policy, "system:serviceaccount:a:workload"));
    }

    #[test]
    fn a_lease_left_by_a_former_election_is_not_judged() {
        let old = json!({"spec": {"holderIdentity": "me", "renewTime": "2020-01-01T00:00:00Z"}});
        assert_eq!(fresh(Ok(old), false, Timestamp::now()).outcome, Outcome::Skip);
        let with = |field: &str, value: Value| {
            elects(&json!({"spec": {"template": {"spec": {"containers": [{field: value}]}}}}))
        };
        assert!(with("args", json!(["--leader-elect"])));
        assert!(with("env", json!([{"name": "LEADER_ELECT", "value": "true"}])));
        assert!(!with("args", json!(["--leader-elect=false"])));
    }

    #[test]
    fn scrapers_are_asked_for_unless_the_deployment_serves_anyone() {
        let of = |container: Value| {
            asks_for_scrapers(&json!({"spec": {"template": {"spec": {"containers": [container]}}}}))
        };
        let asks = |args: &[&str]| of(json!({ "args": args }));
        for args in [
            &["--metrics-bind-address=:8443"][..],
            &["--metrics-bind-address", ":8443", "--leader-elect"],
            &["--metrics-secure"],
            &["--metrics-secure", "--leader-elect"],
        ] {
            assert_eq!(asks(args), Some(true), "{args:?}");
        }
        for args in [
            &["--metrics-bind-address=:8443", "--metrics-secure=false"][..],
            &["--metrics-bind-address=:8443", "--metrics-secure", "false"],
            &["--metrics-bind-address=0", "--metrics-secure"],
            &["--metrics-bind-address=127.0.0.1:8080"],
            &[],
        ] {
            assert_eq!(asks(args), Some(false), "{args:?}");
        }
        assert_eq!(asks(&["--metrics-bind-address=$(POD_IP):8443"]), None);
        let elsewhere = json!({"name": "METRICS_SECURE", "valueFrom": {"configMapKeyRef": {}}});
        let command = ["workload-operator", "--metrics-bind-address=:8443"];
        assert_eq!(of(json!({"command": command, "env": [elsewhere]})), None);
        assert_eq!(of(json!({"envFrom": [{"configMapRef": {"name": "settings"}}]})), None);
    }

    #[test]
    fn an_upgrade_that_is_stuck_fails_although_the_old_pods_are_ready() {
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let judged = |status: Value| {
            let deployment = json!({"metadata": {"name": "o", "generation": 2}, "spec": {"replicas": 1},
                "status": status});
            judge_pods(&deployment, std::slice::from_ref(&ready))
        };
        let status = |observed: i64, updated: i64, all: i64| json!({"observedGeneration": observed, "updatedReplicas": updated, "replicas": all});
        assert_eq!(judged(status(2, 1, 1)).outcome, Outcome::Ok);
        for (observed, updated, all) in [(1, 1, 1), (2, 0, 1), (2, 1, 2)] {
            assert_eq!(judged(status(observed, updated, all)).outcome, Outcome::Fail);
        }
        let mut stuck = status(2, 1, 2);
        stuck["conditions"] =
            json!([{"reason": "ProgressDeadlineExceeded", "message": "too long"}]);
        assert!(judged(stuck).detail.starts_with("the rollout is stuck: too long; ready: 1/1"));
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
            "spec": {"image": "a", "label": label}})
        };
        let mut all = vec![daemon("fine", "logs"), daemon("lost", "nowhere=1")];
        assert_eq!(
            judge_labels(&all, &["nowhere=1".to_owned()]).detail,
            "1 of 2 match no node: ns/lost (nowhere=1)"
        );
        all.extend(["b", "c", "d"].map(|name| daemon(name, "nowhere=1")));
        let told = judge_labels(&all, &["nowhere=1".to_owned()]).detail;
        assert!(told.starts_with("4 of 5") && told.ends_with("ns/c (nowhere=1), …"), "{told}");
        assert_eq!(judge_labels(&all, &[]).detail, "5");
    }
}
