//! The children that an App needs. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::view::App;
use crate::object::{Labels, Text};
use crate::reconcilers::child::Made;
use crate::reconcilers::identity::{APP_V1, Identity};
use crate::reconcilers::service::{ServicePort, ServiceSpec, TargetPort};
use crate::reconcilers::workload::{
    Container, ContainerPort, ContainerSecurity, DeploymentSpec, PodMeta, PodSpec, PodTemplate,
    Seccomp, Selector,
};

/// The children of an App.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Children {
    /// Runs its pods.
    pub deployment: Made<DeploymentSpec>,
    /// How they are reached; `None` without ports.
    pub service: Option<Made<ServiceSpec>>,
}

/// The children of `app`.
pub fn desired(app: &App) -> Children {
    let identity = identity(app);
    let (labels, selector) = (identity.labels(), identity.selector());
    let container = Container {
        name: app.meta.key.name().clone(),
        image: app.spec.image.clone(),
        image_pull_policy: Text::new("IfNotPresent"),
        ports: container_ports(&app.spec.ports),
        env: app.spec.envs.clone(),
        resources: app.spec.resources.clone(),
        security_context: Some(Box::new(security())),
        ..Container::default()
    };
    let deployment = DeploymentSpec {
        replicas: app.spec.replicas,
        selector: Selector { match_labels: selector.clone() },
        strategy: None,
        template: PodTemplate {
            metadata: PodMeta { labels: identity.pod_labels() },
            spec: PodSpec { containers: [container].into(), ..PodSpec::default() },
        },
        paused: false,
    };
    let service = (!app.spec.ports.is_empty()).then(|| Made {
        labels: labels.clone(),
        spec: ServiceSpec {
            // Somebody may set another type by hand, and that is kept; but a node port that the App
            // requests needs this type.
            kind: Text::new(if app.spec.ports.iter().any(|p| p.node_port != 0) {
                "NodePort"
            } else {
                ""
            }),
            selector,
            ports: service_ports(&app.spec.ports),
            ..ServiceSpec::default()
        },
    });
    Children { deployment: Made { labels, spec: deployment }, service }
}

/// The label that selects the pods.
pub(super) fn selector(app: &App) -> Labels {
    identity(app).selector()
}

fn identity(app: &App) -> Identity<'_> {
    let (name, image) = (app.meta.key.name(), Some(app.spec.image.as_str()));
    Identity { kind: "app", label: APP_V1, name, image, more: Vec::new() }
}

/// What every image runs with. Pod Security `restricted` also asks for `runAsNonRoot` and for all
/// capabilities to be dropped. An image that begins as root, as nginx does, then does not start
/// (`chown("/var/cache/nginx/client_temp", 101) failed (1: Operation not permitted)`), and only
/// the image knows which it is.
fn security() -> ContainerSecurity {
    ContainerSecurity {
        allow_privilege_escalation: Some(false),
        seccomp_profile: Some(Seccomp { kind: Text::new("RuntimeDefault") }),
        ..ContainerSecurity::default()
    }
}

/// The ports as the API wants them: with their protocol and, if there are several, a name.
fn service_ports(ports: &[ServicePort]) -> Box<[ServicePort]> {
    let taken: BTreeSet<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let named = ports.iter().map(|port| {
        let mut port = ServicePort { protocol: protocol(port), ..port.clone() };
        if ports.len() > 1 && port.name.is_empty() {
            port.name = free_name(&port, &taken);
        }
        port
    });
    named.collect()
}

/// `tcp-8080` or, if another port was given that name, `tcp-8080-2`, and so on. No two ports have
/// the same number and protocol, so no two get the same name, whatever the order of the ports.
fn free_name(port: &ServicePort, taken: &BTreeSet<&str>) -> Text {
    let name = format!("{}-{}", port.protocol.to_lowercase(), port.port);
    let candidates = std::iter::once(name.clone()).chain((2..).map(|n| format!("{name}-{n}")));
    let free = candidates.into_iter().find(|name| !taken.contains(name.as_str())).map(Text::from);
    free.expect("of infinitely many names one is not taken")
}

/// Where the container listens, by number and protocol. A target that is a name becomes the name
/// of a container port with the number of the Service's port; if several ports have that target,
/// with the lowest number.
fn container_ports(ports: &[ServicePort]) -> Box<[ContainerPort]> {
    let mut by_number: BTreeMap<(i32, Text), Text> = BTreeMap::new();
    let mut named = BTreeSet::new();
    let mut sorted: Vec<_> = ports.iter().collect();
    sorted.sort_by_key(|port| (port.port, protocol(port)));
    for port in sorted {
        let (number, name) = match &port.target_port {
            Some(TargetPort::Number(number)) => (*number, Text::default()),
            Some(TargetPort::Name(name)) if !named.insert(name.clone()) => continue,
            Some(TargetPort::Name(name)) => (port.port, name.clone()),
            None => (port.port, Text::default()),
        };
        let known = by_number.entry((number, protocol(port))).or_default();
        if !name.is_empty() {
            *known = name;
        }
    }
    let ports = by_number.into_iter();
    ports
        .map(|((container_port, protocol), name)| ContainerPort { container_port, protocol, name })
        .collect()
}

/// The port's protocol, or the default of the schema if it has none.
fn protocol(port: &ServicePort) -> Text {
    if port.protocol.is_empty() { Text::new("TCP") } else { port.protocol.clone() }
}
