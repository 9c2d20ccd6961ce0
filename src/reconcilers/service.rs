//! Services: the part that the operator sets.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::child::{Child, ChildSpec, Made, removal, renamed};
use super::interned::Interner;
use super::reason::Reason;
use crate::object::{Kind, Labels, Text};

/// An existing Service.
pub type Service = Child<ServiceSpec>;

/// What the operator sets in a Service. It has exactly these ports. clusterIP (unless `None`) and
/// nodePorts (unless requested) are left to Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    /// `NodePort`, or empty to leave it as it is.
    #[serde(rename = "type", skip_serializing_if = "str::is_empty")]
    pub kind: Text,
    /// `None` for a headless Service, or empty to leave it as it is. Immutable. Of an existing
    /// Service only `None` is kept.
    #[serde(
        rename = "clusterIP",
        skip_serializing_if = "str::is_empty",
        deserialize_with = "headless"
    )]
    pub cluster_ip: Text,
    /// Labels of the pods it routes to.
    pub selector: Labels,
    /// Ports, by number and protocol.
    pub ports: Box<[ServicePort]>,
}

/// A port of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServicePort {
    /// The number that clients use.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Text,
    /// Its name, needed if there are several ports; empty to leave it as it is.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: Text,
    /// Where the container listens; if absent, the API server fills in `port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_port: Option<TargetPort>,
    /// The port on every node; 0 to leave it as it is.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_port: i32,
    /// The application protocol.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub app_protocol: Text,
}

/// A container's port, by number or name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TargetPort {
    /// The number.
    Number(i32),
    /// The name of the container's port.
    Name(Text),
}

/// A Service's status, of which nothing is read.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub struct Unread {}

// === impl ServiceSpec ===

impl ChildSpec for ServiceSpec {
    const KIND: Kind = Kind::namespaced("", "v1", "Service", "services");
    const REASONS: [Reason; 3] =
        [Reason::ServiceCreated, Reason::ServiceUpdated, Reason::ServiceRestored];
    type Status = Unread;

    fn interner() -> &'static Interner<Made<ServiceSpec>> {
        static INTERNER: Interner<Made<ServiceSpec>> = Interner::new();
        &INTERNER
    }

    fn difference(&self, there: &ServiceSpec) -> Option<&'static str> {
        if !self.kind.is_empty() && self.kind != there.kind {
            return Some("spec.type");
        }
        if self.selector != there.selector {
            return Some("spec.selector");
        }
        let covered = |port: &ServicePort| there.ports.iter().any(|p| port.is_covered_by(p));
        if self.ports.len() != there.ports.len() || !self.ports.iter().all(covered) {
            return Some("spec.ports");
        }
        None
    }

    fn immutable_difference(&self, there: &ServiceSpec) -> Option<&'static str> {
        (!self.cluster_ip.is_empty() && self.cluster_ip != there.cluster_ip)
            .then_some("spec.clusterIP")
    }

    /// Ports that are not wanted. If none is, the first is replaced by a wanted one, since only a
    /// headless Service may have no ports.
    fn in_the_way(&self, there: &ServiceSpec) -> Vec<Value> {
        let wanted = |port: &ServicePort| {
            self.ports.iter().any(|p| (p.port, &p.protocol) == (port.port, &port.protocol))
        };
        let none_is_left = !there.ports.iter().any(wanted);
        let foreign = there.ports.iter().enumerate().rev().filter(|(_, port)| !wanted(port));
        let cleared = foreign.map(|(at, port)| {
            let path = format!("/spec/ports/{at}");
            match self.ports.first().filter(|_| none_is_left && at == 0) {
                Some(wanted) => {
                    json!({ "op": "replace", "path": path, "value": wanted.in_place_of(port) })
                }
                None => removal(&path),
            }
        });
        cleared.collect()
    }

    fn renamed(mut self, from: &str, to: &str) -> ServiceSpec {
        self.selector = renamed(&self.selector, from, to);
        self
    }

    fn normalised(mut self) -> ServiceSpec {
        self.ports.sort_by(|a, b| (a.port, &a.protocol).cmp(&(b.port, &b.protocol)));
        self
    }
}

// === impl ServicePort ===

impl ServicePort {
    /// Its key only: the rest is applied, so that it is removed once it is no longer applied. The
    /// name is the other port's, which tells the API server which node port to keep.
    fn in_place_of(&self, other: &ServicePort) -> ServicePort {
        let (protocol, name) = (self.protocol.clone(), other.name.clone());
        ServicePort { port: self.port, protocol, name, ..ServicePort::default() }
    }

    fn is_covered_by(&self, there: &ServicePort) -> bool {
        (self.port, &self.protocol) == (there.port, &there.protocol)
            && (self.name.is_empty() || self.name == there.name)
            && (self.target_port.is_none() || self.target_port == there.target_port)
            && (self.node_port == 0 || self.node_port == there.node_port)
            && (self.app_protocol.is_empty() || self.app_protocol == there.app_protocol)
    }
}

/// `serde` passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// An assigned address does not matter, and would differ for each Service.
fn headless<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
    let address = Option::<Text>::deserialize(deserializer)?.unwrap_or_default();
    Ok(if address == "None" { address } else { Text::default() })
}
