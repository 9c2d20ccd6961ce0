//! The DaemonSet that a GenericDaemon needs. Pure.

use super::view::GenericDaemon;
use crate::object::{Labels, Text};
use crate::reconcilers::child::Made;
use crate::reconcilers::identity::{GENERIC_DAEMON, Identity};
use crate::reconcilers::workload::{
    Affinity, Container, ContainerSecurity, DaemonSetSpec, MatchExpression, NodeAffinity,
    NodeSelector, NodeSelectorTerm, PodMeta, PodSecurity, PodSpec, PodTemplate, Seccomp, Selector,
};

/// The container's name.
const DAEMON: &str = "daemon";

/// The DaemonSet of `daemon`.
pub fn desired(daemon: &GenericDaemon) -> Made<DaemonSetSpec> {
    let identity = Identity {
        kind: "generic-daemon",
        label: GENERIC_DAEMON,
        name: daemon.meta.key.name(),
        image: Some(&daemon.spec.image),
        more: Vec::new(),
    };
    let labels = identity.labels();
    let spec = DaemonSetSpec {
        selector: Selector { match_labels: identity.selector() },
        template: PodTemplate {
            metadata: PodMeta { labels: identity.pod_labels() },
            spec: pod(daemon),
        },
    };
    Made { labels, spec }
}

/// A pod without token, host access or privilege escalation. Which user the image runs as is its
/// own business: many daemons have to be root.
fn pod(daemon: &GenericDaemon) -> PodSpec {
    let image = &daemon.spec.image;
    let container = Container {
        name: Text::new(DAEMON),
        image: image.clone(),
        image_pull_policy: Text::new(pull_policy(image)),
        security_context: Some(Box::new(ContainerSecurity {
            allow_privilege_escalation: Some(false),
            ..ContainerSecurity::default()
        })),
        ..Container::default()
    };
    let (node_selector, affinity) = nodes(daemon.spec.label.as_deref());
    PodSpec {
        containers: [container].into(),
        security_context: Some(PodSecurity {
            run_as_non_root: None,
            seccomp_profile: Some(Seccomp { kind: Text::new("RuntimeDefault") }),
        }),
        automount_service_account_token: Some(false),
        node_selector,
        affinity,
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
                key: Text::new(key),
                operator: Text::new("Exists"),
                values: Box::default(),
            };
            let term = NodeSelectorTerm { match_expressions: [exists].into() };
            let required = Some(NodeSelector { node_selector_terms: [term].into() });
            (Labels::default(), Some(Affinity { node_affinity: Some(NodeAffinity { required }) }))
        }
    }
}

/// The policy that Kubernetes itself would fill in for this image. It does so only at creation, so
/// if left out the policy would forever be that of the first image.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, false), |(name, _)| (name, true));
    let tag = name.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
    if digest || tag.is_some_and(|tag| tag != "latest") { "IfNotPresent" } else { "Always" }
}
