//! Services: the part that the operator sets, and what can conflict with that.

use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::child::{Child, ChildSpec, Desired, SOURCE_RANGES, removal, renamed};
use crate::manager::Foreign;
use crate::object::{InternedStr, Interner, Kind, Labels};

/// Paths of the ranges that only a load balancer has, as a field and in their older form.
const RANGES_FIELD: &str = "/spec/loadBalancerSourceRanges";
const RANGES_ANNOTATION: &str =
    "/metadata/annotations/service.beta.kubernetes.io~1load-balancer-source-ranges";

/// An existing Service.
pub type Service = Child<ServiceSpec>;

/// The part of a Service that the operator sets. It has exactly these ports. clusterIP (unless
/// `None`) and nodePorts (unless requested) are left to Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    /// `NodePort`, or empty to leave it as it is.
    #[serde(rename = "type", skip_serializing_if = "str::is_empty")]
    pub kind: InternedStr,
    /// `None` for a headless Service, or empty to leave it as it is. Immutable. Of an existing
    /// Service only `None` is kept.
    #[serde(
        rename = "clusterIP",
        skip_serializing_if = "str::is_empty",
        deserialize_with = "headless"
    )]
    pub cluster_ip: InternedStr,
    /// Labels of the pods it routes to.
    pub selector: Labels,
    /// Ports, by number and protocol.
    pub ports: Box<[ServicePort]>,
    /// Clients that may use the load balancer. Never set; see `conflicts`.
    #[serde(skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub load_balancer_source_ranges: Box<[InternedStr]>,
}

/// A port of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServicePort {
    /// The number that clients use.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: InternedStr,
    /// Its name, needed if there are several ports; empty to leave it as it is.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: InternedStr,
    /// Port that the container listens on; if absent, the API server fills in `port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_port: Option<TargetPort>,
    /// The port on every node; 0 to leave it as it is.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_port: i32,
    /// The application protocol.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub app_protocol: InternedStr,
}

/// A container's port, by number or name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TargetPort {
    /// The number.
    Number(i32),
    /// The name of the container's port.
    Name(InternedStr),
}

/// A Service's status, of which nothing is read.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub struct Unread {}

// === impl ServiceSpec ===

impl ChildSpec for ServiceSpec {
    const KIND: Kind = Kind::namespaced("", "v1", "Service", "services");
    const IMMUTABLE: &'static [&'static str] = &["spec.clusterIP"];
    type Status = Unread;

    fn interner() -> &'static Interner<Arc<Desired<ServiceSpec>>> {
        static INTERNER: LazyLock<Interner<Arc<Desired<ServiceSpec>>>> =
            LazyLock::new(Interner::new);
        &INTERNER
    }

    fn conflicts(&self, there: &Service, foreign: Foreign<'_>) -> Vec<Value> {
        let mut operations = self.ports_in_the_way(there.spec(), foreign);
        operations.extend(self.ranges_in_the_way(there).filter(|path| foreign(path)).map(removal));
        operations
    }

    fn renamed(mut self, from: &str, to: &str) -> ServiceSpec {
        self.selector = renamed(&self.selector, from, to);
        self
    }
}

impl ServiceSpec {
    /// Ports that are not wanted. If no other is there, the first is replaced by a wanted one, since
    /// only a headless Service may have no ports.
    fn ports_in_the_way(&self, there: &ServiceSpec, foreign: Foreign<'_>) -> Vec<Value> {
        let path = |at: usize| format!("/spec/ports/{at}");
        let wanted = |port: &ServicePort| {
            self.ports.iter().any(|p| (p.port, &p.protocol) == (port.port, &port.protocol))
        };
        let goes = |(at, port): &(usize, &ServicePort)| !wanted(port) && foreign(&path(*at));
        let going: Vec<_> = there.ports.iter().enumerate().rev().filter(goes).collect();
        let none_is_left = going.len() == there.ports.len();
        let cleared = going.into_iter().map(|(at, port)| {
            match self.ports.first().filter(|_| none_is_left && at == 0) {
                Some(wanted) => {
                    json!({ "op": "replace", "path": path(at), "value": wanted.in_place_of(port) })
                }
                None => removal(&path(at)),
            }
        });
        cleared.collect()
    }

    /// JSON pointers to what only a Service of type `LoadBalancer` may have
    /// (k8s.io/kubernetes/pkg/apis/core/validation, ValidateService).
    fn ranges_in_the_way(&self, there: &Service) -> impl Iterator<Item = &'static str> {
        let refused = !self.kind.is_empty() && self.kind != "LoadBalancer";
        let field = !there.spec().load_balancer_source_ranges.is_empty();
        let annotation = there.meta.annotations.get(SOURCE_RANGES).is_some();
        let pointers = [(field, RANGES_FIELD), (annotation, RANGES_ANNOTATION)];
        pointers.into_iter().filter(move |(there, _)| refused && *there).map(|(_, at)| at)
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
}

/// `serde` passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// An assigned address does not matter, and would differ for each Service.
fn headless<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<InternedStr, D::Error> {
    let address = Option::<InternedStr>::deserialize(deserializer)?.unwrap_or_default();
    Ok(if address == "None" { address } else { InternedStr::default() })
}
