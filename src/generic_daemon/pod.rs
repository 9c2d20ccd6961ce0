//! The pods of a GenericDaemon.

use super::{GenericDaemon, host_paths};
use crate::object::{InternedStr, Labels};
use crate::workload::container::pull_policy;
use crate::workload::{
    Affinity, Container, ContainerSecurity, MatchExpression, NodeAffinity, NodeSelector,
    NodeSelectorTerm, PodSecurity, PodSpec, Seccomp,
};

/// The container's name.
const DAEMON: &str = "daemon";

/// A pod without token or privilege escalation, and with the allowed directories of the node only. Which
/// user the image runs as is its own business: many daemons have to be root.
pub(super) fn pod(daemon: &GenericDaemon) -> PodSpec {
    let image = &daemon.spec.image;
    let (volumes, volume_mounts) = host_paths::volumes(&daemon.spec.host_paths);
    let container = Container {
        name: InternedStr::new(DAEMON),
        image: image.clone(),
        image_pull_policy: InternedStr::new(pull_policy(image)),
        command: daemon.spec.command.clone(),
        args: daemon.spec.args.clone(),
        env: daemon.spec.envs.clone(),
        resources: daemon.spec.resources.clone(),
        volume_mounts,
        security_context: Some(Box::new(ContainerSecurity {
            allow_privilege_escalation: Some(false),
            ..ContainerSecurity::default()
        })),
        ..Container::default()
    };
    let (node_selector, affinity) = nodes(daemon.spec.label.as_deref());
    PodSpec {
        containers: [container].into(),
        volumes,
        security_context: Some(PodSecurity {
            run_as_non_root: None,
            seccomp_profile: Some(Seccomp { kind: InternedStr::new("RuntimeDefault") }),
        }),
        automount_service_account_token: Some(false),
        node_selector,
        affinity,
        ..PodSpec::default()
    }
}

/// The nodes that have the label. `kubectl get daemonset` shows a node selector, so one is used
/// where it can express the label.
fn nodes(label: Option<&str>) -> (Labels, Option<Affinity>) {
    match label.map(|label| label.split_once('=').ok_or(label)) {
        None => (Labels::default(), None),
        Some(Ok(pair)) => ([pair].into_iter().collect(), None),
        Some(Err(key)) => {
            let exists = MatchExpression {
                key: InternedStr::new(key),
                operator: InternedStr::new("Exists"),
                values: Box::default(),
            };
            let term = NodeSelectorTerm { match_expressions: [exists].into() };
            let required = Some(NodeSelector { node_selector_terms: [term].into() });
            (Labels::default(), Some(Affinity { node_affinity: Some(NodeAffinity { required }) }))
        }
    }
}
