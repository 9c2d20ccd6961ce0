//! The installation: P, the operator; D003 and D004, its policies.

use jiff::Timestamp;
use serde_json::Value;

use super::Target;
use super::{Check, D003, D004, Finding, P001, P002, P004};
use crate::cli::args::BindAddress;
use crate::cli::installation::{Found, Installation, NAME, Setting};
use crate::client::{Client, Error, Scope};
use crate::object::{Kind, ObjectKey};

pub(super) const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");
const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases");

pub(super) async fn operator_findings(target: &Target<'_>) -> Vec<Finding> {
    let (pods, own_pods) = match &target.found {
        // With --wait, a missing operator is a failure.
        Ok(Found::None(why)) if target.args.wait.is_some() => (P001.fail(why), None),
        Ok(Found::None(why)) => (P001.skip(why), None),
        Ok(Found::Several(why)) => (P001.fail(why), None),
        Err(error) => (P001.unasked(error), None),
        Ok(Found::One(installed)) => match pods(target, &installed.0).await {
            Err(error) => (P001.unasked(&error), None),
            Ok(found) => {
                let mut pods = judge_pods(&installed.0, &found);
                if let Some(served) = &target.namespaces {
                    let all = if served.is_empty() { "all namespaces" } else { "" };
                    pods.detail += &format!("; serves {all}{}", served.join(", "));
                }
                (pods, Some(found))
            }
        },
    };
    vec![pods, lease(target, own_pods.as_deref()).await, rivals(target).await]
}

async fn rivals(target: &Target<'_>) -> Finding {
    let rivals = match &target.found {
        Ok(Found::One(installed)) => installed.rivals(target.client).await,
        Ok(Found::None(why) | Found::Several(why)) => return P004.skip(why),
        Err(error) => return P004.unasked(error),
    };
    match rivals {
        Ok(None) => P004.skip("a Deployment does not show its namespaces or controllers"),
        Ok(Some(rivals)) if rivals.is_empty() => P004.ok(""),
        Ok(Some(rivals)) => P004.fail(rivals.join(", ")),
        Err(error) => P004.unasked(&error),
    }
}

async fn lease(target: &Target<'_>, pods: Option<&[Value]>) -> Finding {
    let Some(namespace) = lease_namespace(target) else {
        return P002
            .skip("the Deployment does not show its namespace; set --leader-elect-namespace");
    };
    let name = match target.installation().map(Installation::lease_name) {
        Some(None) => return P002.skip("the Deployment does not show the name of its Lease"),
        Some(Some(name)) => name,
        None => NAME.to_owned(),
    };
    let lease = match target.client.read(&LEASE, &ObjectKey::new(namespace, name)).await {
        Ok(_)
            if target.found.is_ok() && !target.installation().is_some_and(Installation::elects) =>
        {
            return P002.skip("no operator runs with --leader-elect");
        }
        Ok(lease) => lease,
        Err(error) if error.is_not_found() => {
            return P002.skip("no Lease exists: --leader-elect is off, or the operator never ran");
        }
        Err(error) => return P002.unasked(&error),
    };
    // The local clock can differ from the cluster's.
    let now = match target.client.server_time().await {
        Ok(now) => now.unwrap_or_else(Timestamp::now),
        Err(error) => return P002.unasked(&error),
    };
    fresh(&lease, pods, now)
}

/// Returns the namespace of the Lease; `None` if the Deployment does not show it.
pub(super) fn lease_namespace(target: &Target<'_>) -> Option<String> {
    if let Some(named) = &target.args.leader_elect_namespace {
        return Some(named.clone());
    }
    let set = |installed: &Installation| {
        installed.setting("leader-elect-namespace", "LEADER_ELECT_NAMESPACE")
    };
    match target.installation().map(set) {
        Some(Setting::Text(namespace)) => Some(namespace),
        Some(Setting::Elsewhere) => None,
        Some(Setting::Absent) | None => Some(target.operator_namespace().to_owned()),
    }
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns whether the API server authorizes the clients of /metrics; `None` if the Deployment does not show
/// it.
pub(super) fn asks_for_scrapers(installed: &Installation) -> Option<bool> {
    let address = match installed.setting("metrics-bind-address", "METRICS_BIND_ADDRESS") {
        Setting::Text(text) => Some(text.parse::<BindAddress>().ok()?.0),
        Setting::Absent => None,
        Setting::Elsewhere => return None,
    };
    if address == Some(None) {
        return Some(false);
    }
    match installed.setting("metrics-secure", "METRICS_SECURE") {
        Setting::Text(value) => return Some(value == "true"),
        Setting::Absent => {}
        Setting::Elsewhere => return None,
    }
    let certificate = installed.setting("metrics-certificate", "METRICS_CERTIFICATE");
    let is_local = address.flatten().is_none_or(|socket| socket.ip().is_loopback());
    Some(certificate != Setting::Absent || !is_local)
}

/// Returns the pods that the Deployment selects.
async fn pods(target: &Target<'_>, deployment: &Value) -> Result<Vec<Value>, Error> {
    let labels = deployment["spec"]["selector"]["matchLabels"].as_object();
    let pairs = labels.into_iter().flatten().map(|(key, value)| format!("{key}={}", word(value)));
    let namespace = Some(target.operator_namespace().into());
    let labels = Some(pairs.collect::<Vec<_>>().join(","));
    target.client.read_all(&POD, &Scope { namespace, labels, ..Scope::default() }).await
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

/// Returns why the Deployment's rollout has not completed, by the rules of `kubectl rollout status`
/// (k8s.io/kubectl/pkg/polymorphichelpers/rollout_status.go).
fn unfinished(deployment: &Value, wanted: u64) -> Option<String> {
    let status = &deployment["status"];
    let count = |field: &str| status[field].as_u64().unwrap_or(0);
    if count("observedGeneration") < deployment["metadata"]["generation"].as_u64().unwrap_or(0) {
        return Some("the latest change has not been processed".to_owned());
    }
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    if let Some(stuck) = conditions.find(|one| one["reason"] == "ProgressDeadlineExceeded") {
        return Some(format!("the rollout is stuck: {}", word(&stuck["message"])));
    }
    let (updated, all) = (count("updatedReplicas"), count("replicas"));
    if updated < wanted {
        return Some(format!("the rollout is in progress: {updated} of {wanted} pods are updated"));
    }
    (all > updated)
        .then(|| format!("the rollout is in progress: {} old pods remain", all - updated))
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Returns a pod's name and the reason why its container waits, as `kubectl get pods` shows it.
fn state(pod: &Value) -> String {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
    let state = waiting.as_str().or(pod["status"]["phase"].as_str()).unwrap_or("Unknown");
    format!("{name}: {state}")
}

/// Maximum time between two renewals by a leader with sensible settings, in seconds.
const RENEWED_WITHIN: i64 = 60;

/// Judges the Lease by its holder, which must be one of `pods` if they are known, and by the time of its
/// renewal.
fn fresh(lease: &Value, pods: Option<&[Value]>, now: Timestamp) -> Finding {
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    if holder.is_empty() {
        return P002.fail("no replica holds it");
    }
    let renewed = lease["spec"]["renewTime"].as_str().and_then(|time| time.parse().ok());
    let Some(renewed): Option<Timestamp> = renewed else {
        return P002.fail(format!("{holder} has never renewed it"));
    };
    let age = now.duration_since(renewed).as_secs();
    let lasts = lease["spec"]["leaseDurationSeconds"].as_i64().unwrap_or(15);
    let detail = format!("{holder} renewed it {age} s ago");
    let is_of = |pod: &Value| holder.starts_with(&word(&pod["metadata"]["name"]));
    if age > lasts {
        P002.fail(detail)
    // Without pods, another check fails.
    } else if pods.is_some_and(|pods| !pods.is_empty() && !pods.iter().any(is_of)) {
        P002.warn(format!(
            "{detail}, but is not a pod of the operator's Deployment; it expires after {lasts} s"
        ))
    } else if age > RENEWED_WITHIN {
        P002.warn(format!("{detail}; its duration is {lasts} s"))
    } else {
        P002.ok(detail)
    }
}

const POLICY: Kind = admission("ValidatingAdmissionPolicy", "validatingadmissionpolicies");
const BINDING: Kind =
    admission("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings");

const fn admission(kind: &'static str, plural: &'static str) -> Kind {
    let group = "admissionregistration.k8s.io";
    Kind::cluster_scoped(group, "v1", kind, plural)
}

/// Judges the policies, whose names begin with that of the installation. A policy without effect is a
/// failure.
pub(super) async fn policies(target: &Target<'_>) -> [Finding; 2] {
    let named = target.args.installation.operator_name.as_deref().unwrap_or(NAME);
    let (prefix, account) = match &target.found {
        Ok(Found::One(installed)) => (installed.name(), Some(installed.account())),
        Ok(Found::None(_)) => (named, None),
        Ok(Found::Several(why)) => return [D003.skip(why), D004.skip(why)],
        Err(error) => return [D003.unasked(error), D004.unasked(error)],
    };
    let is_of_olm = target.installation().is_some_and(Installation::is_of_olm);
    let judge = async |check: &'static Check, policies: &[&str]| {
        let mut faults = Vec::new();
        let mut hint = if is_of_olm { BESIDE_OLM } else { check.hint }.to_owned();
        for policy in policies {
            let account = account.as_deref().filter(|_| *policy == CHILDREN);
            let name = format!("{prefix}-{policy}");
            match fault_of(target.client, &name, account).await {
                Ok(None) => {}
                Ok(Some(Fault::Off(why))) => faults.push(why),
                Ok(Some(Fault::OtherAccount)) => {
                    let account = account.unwrap_or_default();
                    faults.push(format!(
                        "{} {name} applies to another account than {account}",
                        POLICY.kind
                    ));
                    hint = format!(
                        "in its `spec.matchConditions`, compare `request.userInfo.username` with \
                         `{account}`; an overlay with `namespace:` or `namePrefix:` needs the replacements \
                         of artifacts/overlays/renamed"
                    );
                }
                Err(error) => return check.unasked(&error),
            }
        }
        match (faults.is_empty(), account.is_some()) {
            (true, _) => check.ok(""),
            (false, true) => check.fail(faults.join("; ")).with_hint(hint),
            // Where no operator is installed, there is nothing to guard yet.
            (false, false) => check.warn(faults.join("; ")),
        }
    };
    [judge(&D003, &["generic-daemon"]).await, judge(&D004, &["app", "memcached", CHILDREN]).await]
}

/// The remedy where Operator Lifecycle Manager has installed the operator.
const BESIDE_OLM: &str = "OLM installs no admission policies: apply those of this version, with the operator's \
                          namespace (docs/INSTALL.md)";

/// The policy on the operator's own account, which it names.
const CHILDREN: &str = "children";

/// A fault by which a policy has no effect.
enum Fault {
    Off(String),
    OtherAccount,
}

async fn fault_of(
    client: &Client,
    name: &str,
    account: Option<&str>,
) -> Result<Option<Fault>, Error> {
    for kind in [POLICY, BINDING] {
        let found = match client.read(&kind, &ObjectKey::new("", name)).await {
            Ok(found) => found,
            Err(error) if error.is_not_found() => {
                return Ok(Some(Fault::Off(format!("there is no {} {name}", kind.kind))));
            }
            Err(error) => return Err(error),
        };
        if kind == BINDING && !denies(&found) {
            return Ok(Some(Fault::Off(format!("{} {name} does not deny", kind.kind))));
        }
        if kind == POLICY && account.is_some_and(|account| !names(&found, account)) {
            return Ok(Some(Fault::OtherAccount));
        }
    }
    Ok(None)
}

/// Returns whether a policy applies to this account.
fn names(policy: &Value, account: &str) -> bool {
    let conditions = policy["spec"]["matchConditions"].as_array().into_iter().flatten();
    let mut expressions = conditions.filter_map(|condition| condition["expression"].as_str());
    let quoted = [format!("'{account}'"), format!("'{account}:'")];
    expressions.any(|expression| quoted.iter().any(|quoted| expression.contains(quoted)))
}

fn denies(binding: &Value) -> bool {
    let actions = binding["spec"]["validationActions"].as_array();
    actions.into_iter().flatten().any(|action| action == "Deny")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::check::Outcome;
    use crate::cli::installation::tests::with;

    fn at(seconds: i64, holder: &str, lasts: i64) -> Outcome {
        let lease = json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": lasts,
            "renewTime": "2026-11-21T09:00:00.000000Z"}});
        let renewed: Timestamp = "2026-11-21T09:00:00Z".parse().unwrap();
        let now = renewed + jiff::SignedDuration::from_secs(seconds);
        let pods = [json!({"metadata": {"name": "o-1"}})];
        fresh(&lease, Some(&pods), now).outcome
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
    fn leader_election_follows_the_flags_of_the_deployment() {
        assert!(with(json!({"args": ["--leader-elect"]})).elects());
        assert!(with(json!({"env": [{"name": "LEADER_ELECT", "value": "true"}]})).elects());
        assert!(!with(json!({"args": ["--leader-elect=false"]})).elects());
    }

    #[test]
    fn scrapers_are_authorized_unless_the_deployment_disables_it() {
        let of = |container: Value| asks_for_scrapers(&with(container));
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
    fn a_stuck_upgrade_fails_although_old_pods_are_ready() {
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
    fn a_lease_is_fresh_while_a_pod_of_the_operator_renews_it() {
        assert_eq!(at(15, "o-1_a", 15), Outcome::Ok);
        assert_eq!(at(16, "o-1_a", 15), Outcome::Fail);
        assert_eq!(at(1, "", 15), Outcome::Fail);
        assert_eq!(at(61, "o-1_a", 86400), Outcome::Warn);
        assert_eq!(at(1, "nobody", 15), Outcome::Warn);
    }
}
