//! Services and PodDisruptionBudgets: their ports and bounds, and what can conflict with them.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::child::{Child, ChildSpec};
use crate::object::{InternedStr, Kind, Labels};
use crate::schema;

/// An existing Service.
pub type Service = Child<ServiceSpec>;

/// The part of a Service that the operator reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServiceSpec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    #[serde(rename = "type")]
    pub kind: InternedStr,
}

/// A port of the Service.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[schemars(!default)]
pub struct ServicePort {
    /// The port that clients use. Without a number as `targetPort`, it is also the port of the container.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Transport protocol: 'TCP' (the default), 'UDP' or 'SCTP'.
    #[serde(default = "tcp")]
    #[schemars(extend("enum" = ["TCP", "UDP", "SCTP", ""]))]
    pub protocol: InternedStr,
    /// Name of the port. With several ports, each port without a name gets a generated name.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub name: InternedStr,
    /// Port of the container: a number, or a name. A name stands for the number of `port`, so for `port: 80` and a
    /// program that listens on 8080, write `targetPort: 8080`. Defaults to `port`.
    #[serde(default, deserialize_with = "target_port", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::target_port")]
    pub target_port: Option<TargetPort>,
    /// Port on every node. Defaults to none. It changes the type of the Service to NodePort, unless another client has
    /// set the type LoadBalancer.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 65535))]
    pub node_port: i32,
    /// Application protocol, for example 'kubernetes.io/h2c'.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub app_protocol: InternedStr,
}

/// A container's port, by number or name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TargetPort {
    /// The number.
    Number(i32),
    /// The name of the container's port.
    Name(InternedStr),
}

/// The status of a Service, which is not read.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub struct Unread {}

// === impl ServiceSpec ===

impl ChildSpec for ServiceSpec {
    const KIND: Kind = Kind::namespaced("", "v1", "Service", "services");
    type Status = Unread;

    /// Removes unwanted ports. If no other port remains, a desired port replaces the first one, because only
    /// a headless Service can have no ports.
    fn unwanted(wanted: &Value, stored: &Value) -> Vec<Value> {
        let ports = |spec: &Value| spec["ports"].as_array().cloned().unwrap_or_default();
        let (wanted, stored) = (ports(wanted), ports(stored));
        let path = |at: usize| format!("/spec/ports/{at}");
        let is_wanted = |port: &Value| {
            wanted.iter().any(|p| p["port"] == port["port"] && p["protocol"] == port["protocol"])
        };
        let goes = |(_, port): &(usize, &Value)| !is_wanted(port);
        let going: Vec<_> = stored.iter().enumerate().rev().filter(goes).collect();
        let none_is_left = going.len() == stored.len();
        let cleared = going.into_iter().map(|(at, port)| {
            match wanted.first().filter(|_| none_is_left && at == 0) {
                // The API server decides by the name which node port to keep. Without the target port, it would lead
                // elsewhere until the apply.
                Some(wanted) => {
                    let mut value = wanted.clone();
                    value["name"] = port["name"].clone();
                    json!({ "op": "replace", "path": path(at), "value": value })
                }
                None => json!({ "op": "remove", "path": path(at) }),
            }
        });
        cleared.collect()
    }
}

fn tcp() -> InternedStr {
    InternedStr::new("TCP")
}

/// `serde` requires a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// Reads 0 and an empty name as absent: Kubernetes and clients in Go write them for an unset port.
fn target_port<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<TargetPort>, D::Error> {
    let port = Option::<TargetPort>::deserialize(deserializer)?;
    Ok(port.filter(|port| match port {
        TargetPort::Number(number) => *number != 0,
        TargetPort::Name(name) => !name.is_empty(),
    }))
}

// === PodDisruptionBudgets ===

/// An existing PodDisruptionBudget.
pub type PodDisruptionBudget = Child<BudgetSpec>;

/// Bound on the pods that a drain of nodes takes away at a time.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetSettings {
    /// Number (at least 1) or percentage of pods that can be unavailable. Without it, there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::amount_of_a_budget")]
    pub max_unavailable: Option<Amount>,
}

/// A number or a percentage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    /// A number of pods.
    Number(i32),
    /// A percentage of the pods.
    Percentage(InternedStr),
}

impl Amount {
    /// Returns whether the amount is zero.
    pub fn is_zero(&self) -> bool {
        match self {
            Amount::Number(number) => *number == 0,
            Amount::Percentage(share) => share == "0%",
        }
    }
}

/// A PodDisruptionBudget's spec, of which the operator reads nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct BudgetSpec {}

impl ChildSpec for BudgetSpec {
    const KIND: Kind =
        Kind::namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
    type Status = Unread;

    /// Removes the other bound, because the API server refuses both. Its error names only the whole spec.
    fn unwanted(_: &Value, stored: &Value) -> Vec<Value> {
        const PATH: &str = "/spec/minAvailable";
        let is_unwanted = !stored["minAvailable"].is_null();
        is_unwanted.then(|| json!({ "op": "remove", "path": PATH })).into_iter().collect()
    }
}

impl BudgetSettings {
    /// Returns the budget of the pods that `selector` selects, if there is a limit.
    pub(crate) fn desired(&self, selector: &Labels) -> Option<Value> {
        let max_unavailable = self.max_unavailable.as_ref().filter(|amount| !amount.is_zero())?;
        Some(json!({
            "selector": { "matchLabels": selector },
            "maxUnavailable": max_unavailable,
            // A pod that is not ready blocks no drain.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        }))
    }
}
