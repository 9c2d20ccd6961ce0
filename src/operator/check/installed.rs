//! P: the operator in the cluster.

use jiff::Timestamp;
use serde_json::Value;

use super::finding::{Finding, P001, P002, P003};
use crate::client::{Client, Error, Scope};
use crate::object::{Kind, ObjectKey};

/// The name of the Deployment, its label and the Lease.
pub(super) const NAME: &str = "workload-operator";

const NAMESPACE: Kind = Kind::cluster_scoped("", "v1", "Namespace", "namespaces");
const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment", "deployments");
pub(super) const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");
const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases");

pub(super) async fn findings(client: &Client, namespace: &str) -> Vec<Finding> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::check::finding::Outcome;
    use serde_json::json;

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
}
