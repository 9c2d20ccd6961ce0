//! The pods of an App.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{App, Spec};
use crate::object::InternedStr;
use crate::workload::container::pull_policy;
use crate::workload::service::{ServicePort, TargetPort};
use crate::workload::{
    Capabilities, Container, ContainerPort, ContainerSecurity, PodSpec, Seccomp,
};

pub(super) fn pod(app: &App) -> PodSpec {
    let (volumes, volume_mounts) = volumes(&app.spec.volumes);
    let container = Container {
        name: app.meta.key.name().clone(),
        image: app.spec.image.clone(),
        image_pull_policy: pull_policy(&app.spec.image_pull_policy),
        command: app.spec.command.clone(),
        args: app.spec.args.clone(),
        ports: container_ports(&app.spec.ports),
        env: app.spec.envs.clone(),
        resources: app.spec.resources.clone(),
        readiness_probe: probe(app.spec.readiness_probe.as_deref()),
        liveness_probe: probe(app.spec.liveness_probe.as_deref()),
        startup_probe: probe(app.spec.startup_probe.as_deref()),
        volume_mounts,
        security_context: Some(Box::new(security(&app.spec))),
        ..Container::default()
    };
    PodSpec {
        containers: [container].into(),
        volumes,
        // Without an account of its own, it has nothing to say to the API server.
        automount_service_account_token: app.spec.service_account_name.is_empty().then_some(false),
        service_account_name: app.spec.service_account_name.clone(),
        ..PodSpec::default()
    }
}

/// A probe as the API server shows it: without a delay of 0.
fn probe(wanted: Option<&Value>) -> Option<Box<Value>> {
    let mut probe = wanted?.clone();
    if let Some(fields) = probe.as_object_mut() {
        fields.retain(|_, value| *value != json!(0));
    }
    Some(Box::new(probe))
}

/// The volumes of the pod, and where the container finds them.
fn volumes(all: &[Value]) -> (Box<[Value]>, Box<[Value]>) {
    const OF_THE_MOUNT: [&str; 2] = ["mountPath", "readOnly"];
    let parts = all.iter().filter_map(Value::as_object).map(|volume| {
        let is_mount = |field: &String| OF_THE_MOUNT.contains(&field.as_str());
        let (mut mount, source): (Map<_, _>, Map<_, _>) =
            volume.clone().into_iter().partition(|(field, _)| is_mount(field));
        // Absent where the API server shows it.
        mount.retain(|_, value| *value != json!(false));
        mount.extend(source.get("name").map(|name| ("name".to_owned(), name.clone())));
        (Value::Object(source), Value::Object(mount))
    });
    let (volumes, mounts): (Vec<_>, Vec<_>) = parts.unzip();
    (volumes.into(), mounts.into())
}

/// Security settings of every image. Pod Security `restricted` also asks for `runAsNonRoot` and for all
/// capabilities to be dropped. An image that begins as root, as nginx does, then does not start
/// (`chown("/var/cache/nginx/client_temp", 101) failed (1: Operation not permitted)`), and only
/// the image knows which it is. So a user says it by the profile `Restricted`.
fn security(spec: &Spec) -> ContainerSecurity {
    let restricted = spec.security_profile == "Restricted";
    ContainerSecurity {
        run_as_non_root: restricted.then_some(true),
        run_as_user: spec.run_as_user,
        allow_privilege_escalation: Some(false),
        capabilities: restricted.then(|| Capabilities {
            drop: [InternedStr::new("ALL")].into(),
            ..Capabilities::default()
        }),
        seccomp_profile: Some(Seccomp { kind: InternedStr::new("RuntimeDefault") }),
        ..ContainerSecurity::default()
    }
}

/// Ports on which the container listens, by number and protocol. A target that is a name becomes the name
/// of a container port with the number of the Service's port.
fn container_ports(ports: &[ServicePort]) -> Box<[ContainerPort]> {
    let mut by_number: BTreeMap<(i32, InternedStr), InternedStr> = BTreeMap::new();
    for port in ports {
        let (number, name) = match &port.target_port {
            Some(TargetPort::Number(number)) => (*number, InternedStr::default()),
            Some(TargetPort::Name(name)) => (port.port, name.clone()),
            None => (port.port, InternedStr::default()),
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
pub(super) fn protocol(port: &ServicePort) -> InternedStr {
    if port.protocol.is_empty() { InternedStr::new("TCP") } else { port.protocol.clone() }
}
