//! The children that a Memcached needs. Pure.

use super::view::{DEFAULT_PORT, Memcached};
use crate::object::{Labels, Text};
use crate::reconcilers::child::Made;
use crate::reconcilers::identity::{self, APP, Identity, MEMCACHED_CR};
use crate::reconcilers::quantity::Quantity;
use crate::reconcilers::service::{ServicePort, ServiceSpec, TargetPort};
use crate::reconcilers::workload::{
    Amount, Capabilities, Container, ContainerPort, ContainerSecurity, DeploymentSpec, PodMeta,
    PodSecurity, PodSpec, PodTemplate, Probe, Quantities, Resources, RollingUpdate, Seccomp,
    Selector, Strategy, TcpSocket,
};

/// The values of `app.kubernetes.io/name` and `app`, and the names of the container and its port.
const MEMCACHED: &str = "memcached";
/// Any non-root user will do; this is the one that people are used to.
const USER: i64 = 1001;

/// The children of a Memcached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Children {
    /// The instances.
    pub deployment: Made<DeploymentSpec>,
    /// How clients find them.
    pub service: Made<ServiceSpec>,
}

/// The children of `memcached` with this image.
pub fn desired(memcached: &Memcached, image: &Text) -> Children {
    let identity = identity(memcached, Some(image));
    let labels = identity.labels();
    let deployment = DeploymentSpec {
        replicas: memcached.spec.size,
        selector: Selector { match_labels: identity.selector() },
        // Never more pods than requested, not even during an update of the template.
        strategy: Some(Strategy {
            kind: Text::new("RollingUpdate"),
            rolling_update: Some(RollingUpdate {
                max_surge: Amount::Number(0),
                max_unavailable: Amount::Number(1),
            }),
        }),
        template: PodTemplate {
            metadata: PodMeta { labels: identity.pod_labels() },
            spec: pod(memcached.spec.container_port, image),
        },
        paused: false,
    };
    Children {
        deployment: Made { labels: labels.clone(), spec: deployment },
        service: Made { labels, spec: service(memcached) },
    }
}

/// The label that selects the pods.
pub(super) fn selector(memcached: &Memcached) -> Labels {
    identity(memcached, None).selector()
}

fn identity<'a>(memcached: &'a Memcached, image: Option<&'a Text>) -> Identity<'a> {
    let name = memcached.meta.key.name();
    // Memcached's users identify the pods by these two labels.
    let more = vec![(APP, MEMCACHED), (MEMCACHED_CR, name.as_str())];
    let image = image.map(Text::as_str);
    Identity { kind: MEMCACHED, label: identity::MEMCACHED, name, image, more }
}

/// A pod that Pod Security `restricted` admits.
fn pod(port: i32, image: &Text) -> PodSpec {
    let texts = |words: &[&str]| words.iter().map(|word| Text::new(word)).collect::<Vec<_>>();
    let mut command = texts(&["memcached", "-m=64", "-o", "modern", "-v"]);
    if port != DEFAULT_PORT {
        command.extend([Text::new("-p"), Text::from(port.to_string())]);
    }
    let container = Container {
        name: Text::new(MEMCACHED),
        image: image.clone(),
        image_pull_policy: Text::new("IfNotPresent"),
        command: command.into(),
        // memcached reads `-m=64` as `-m 0`, and 1.6 does not start with so little memory
        // ("Cannot set item size limit higher than 1/2 of memory max"). The last limit given
        // counts, which is this one; it is in the short form because 1.4 knows no other.
        args: texts(&["-m", "64"]).into(),
        ports: [ContainerPort {
            container_port: port,
            protocol: Text::new("TCP"),
            name: Text::new(MEMCACHED),
        }]
        .into(),
        resources: resources(),
        readiness_probe: Some(Box::new(Probe {
            tcp_socket: Some(TcpSocket { port: TargetPort::Name(Text::new(MEMCACHED)) }),
            ..Probe::default()
        })),
        security_context: Some(Box::new(ContainerSecurity {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: texts(&["ALL"]).into(),
                ..Capabilities::default()
            }),
            ..ContainerSecurity::default()
        })),
        ..Container::default()
    };
    PodSpec {
        containers: [container].into(),
        security_context: Some(PodSecurity {
            run_as_non_root: Some(true),
            seccomp_profile: Some(Seccomp { kind: Text::new("RuntimeDefault") }),
        }),
        // memcached does not talk to the API server.
        automount_service_account_token: Some(false),
        ..PodSpec::default()
    }
}

/// What an instance needs, measured with memcached 1.6.18 and `-m 64` on 64-bit Linux. Filled with
/// items of 10 bytes to 500 kB it takes 73 to 77 MiB: beside the items 4 MiB of hash table, a page
/// of 1 MiB per size class, and the program. A thousand connections take 2 MiB more. The request
/// covers both; the limit leaves room for answers that clients are slow to read. A request of a
/// client takes about 24 µs of processor time, so 100m are 4,000 a second. There is no limit for
/// the processor, which would only make clients wait.
fn resources() -> Resources {
    let amounts = |amounts: &[(&str, &str)]| {
        let amount = |(name, amount): &(&str, &str)| (Text::new(name), Quantity::new(amount));
        Quantities(amounts.iter().map(amount).collect())
    };
    Resources {
        limits: amounts(&[("memory", "128Mi")]),
        requests: amounts(&[("cpu", "100m"), ("memory", "96Mi")]),
    }
}

fn service(memcached: &Memcached) -> ServiceSpec {
    ServiceSpec {
        cluster_ip: Text::new("None"),
        selector: selector(memcached),
        ports: [ServicePort {
            port: memcached.spec.container_port,
            protocol: Text::new("TCP"),
            name: Text::new(MEMCACHED),
            target_port: Some(TargetPort::Name(Text::new(MEMCACHED))),
            ..ServicePort::default()
        }]
        .into(),
        ..ServiceSpec::default()
    }
}
