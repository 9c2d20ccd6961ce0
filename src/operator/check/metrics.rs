//! M: whether Prometheus finds the operator.

use serde_json::Value;

use super::finding::{Finding, M001};
use super::installed::{NAME, POD, is_ready};
use crate::client::{Client, Error, Scope};
use crate::object::{Kind, ObjectKey};

/// The Service of artifacts/default/service.yaml.
const SERVICE_NAME: &str = "workload-operator-metrics";

const SERVICE: Kind = Kind::namespaced("", "v1", "Service", "services");
const SLICE: Kind = Kind::namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");

pub(super) async fn finding(client: &Client, namespace: &str) -> Finding {
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
    Ok(judged(ready, &slices))
}

/// If no pod is ready, another check reports it.
fn judged(ready: usize, slices: &[Value]) -> Finding {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::check::finding::Outcome;
    use serde_json::json;

    #[test]
    fn only_ready_endpoints_with_the_port_count() {
        let slice = |port: &str, ready: &[Value]| {
            let endpoints = ready.iter().map(|ready| json!({"conditions": {"ready": ready}}));
            json!({"ports": [{"name": port}], "endpoints": endpoints.collect::<Vec<_>>()})
        };
        let (yes, no, untold) = (json!(true), json!(false), Value::Null);
        let outcome = |ready, slices: &[Value]| judged(ready, slices).outcome;
        assert_eq!(outcome(2, &[slice("metrics", &[yes.clone(), untold])]), Outcome::Ok);
        assert_eq!(outcome(2, &[slice("metrics", &[yes.clone(), no])]), Outcome::Warn);
        assert_eq!(outcome(1, &[slice("other", &[yes])]), Outcome::Fail);
        assert_eq!(outcome(1, &[json!({"ports": null, "endpoints": null})]), Outcome::Fail);
        assert_eq!(outcome(0, &[]), Outcome::Skip);
    }
}
