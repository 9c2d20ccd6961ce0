//! Containers.

use serde::{Deserialize, Serialize};

use super::env::EnvVar;
use super::is_set;
use super::resources::Resources;
use crate::object::Text;

/// A container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// Its key.
    pub name: Text,
    /// What runs.
    pub image: Text,
    /// When the image is pulled.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub image_pull_policy: Text,
    /// The program and its arguments, instead of the image's. Whole, as the API has it.
    #[serde(skip_serializing_if = "<[Text]>::is_empty")]
    pub command: Box<[Text]>,
    /// What follows the command. Whole, as the API has it.
    #[serde(skip_serializing_if = "<[Text]>::is_empty")]
    pub args: Box<[Text]>,
    /// Ports, by number and protocol.
    #[serde(skip_serializing_if = "<[ContainerPort]>::is_empty")]
    pub ports: Box<[ContainerPort]>,
    /// Environment variables, by name.
    #[serde(skip_serializing_if = "<[EnvVar]>::is_empty")]
    pub env: Box<[EnvVar]>,
    /// What it may use.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// Its security.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_context: Option<Box<ContainerSecurity>>,
}

/// A port on which a container listens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerPort {
    /// The number.
    pub container_port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Text,
    /// A name that a Service may use.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: Text,
}

/// Security of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerSecurity {
    /// Whether the kubelet refuses to run it as root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_non_root: Option<bool>,
    /// As whom it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<i64>,
    /// Whether it may gain more rights than it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_privilege_escalation: Option<bool>,
    /// Linux capabilities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Capabilities>,
    /// Which system calls are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp_profile: Option<Seccomp>,
}

/// A seccomp profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Seccomp {
    /// `RuntimeDefault`, or another that somebody set.
    #[serde(rename = "type", default)]
    pub kind: Text,
}

/// Linux capabilities.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// Given up.
    #[serde(skip_serializing_if = "<[Text]>::is_empty")]
    pub drop: Box<[Text]>,
}

// === impl Container ===

impl Container {
    pub(super) fn difference(&self, there: &Container) -> Option<&'static str> {
        if self.image != there.image {
            return Some("spec.template.spec.containers.image");
        }
        if !self.image_pull_policy.is_empty() && self.image_pull_policy != there.image_pull_policy {
            return Some("spec.template.spec.containers.imagePullPolicy");
        }
        if !self.command.is_empty() && self.command != there.command {
            return Some("spec.template.spec.containers.command");
        }
        if !self.args.is_empty() && self.args != there.args {
            return Some("spec.template.spec.containers.args");
        }
        if !self.ports.iter().all(|port| there.ports.iter().any(|p| port.is_covered_by(p))) {
            return Some("spec.template.spec.containers.ports");
        }
        if !self.env_is_covered_by(there) {
            return Some("spec.template.spec.containers.env");
        }
        if !self.resources.are_covered_by(&there.resources) {
            return Some("spec.template.spec.containers.resources");
        }
        let wanted = self.security_context.as_deref();
        if !wanted.is_none_or(|wanted| wanted.is_covered_by(there.security_context.as_deref())) {
            return Some("spec.template.spec.containers.securityContext");
        }
        None
    }

    /// By name. Their order counts where one refers to another: only an earlier one can be.
    fn env_is_covered_by(&self, there: &Container) -> bool {
        let position = |var: &EnvVar| there.env.iter().position(|other| other.name == var.name);
        let Some(positions) = self.env.iter().map(position).collect::<Option<Vec<_>>>() else {
            return false;
        };
        let covered =
            self.env.iter().zip(&positions).all(|(var, at)| var.is_covered_by(&there.env[*at]));
        covered && (!self.env_is_ordered() || positions.is_sorted())
    }

    fn env_is_ordered(&self) -> bool {
        self.env.iter().any(|var| var.value.contains("$("))
    }

    /// A variable with both a value and a source is refused by the API server.
    pub(super) fn in_the_way(&self, there: &Container, root: &str) -> Vec<String> {
        let mut pointers = Vec::new();
        for (at, other) in there.env.iter().enumerate().rev() {
            let Some(wanted) = self.env.iter().find(|var| var.name == other.name) else { continue };
            match (&wanted.value_from, &other.value_from) {
                (None, Some(_)) => pointers.push(format!("{root}/env/{at}/valueFrom")),
                (Some(_), None) if !other.value.is_empty() => {
                    pointers.push(format!("{root}/env/{at}/value"));
                }
                (Some(wanted), Some(other)) if !wanted.is_covered_by(other) => {
                    pointers.push(format!("{root}/env/{at}/valueFrom"));
                }
                _ => {}
            }
        }
        pointers
    }

    pub(super) fn normalise(&mut self) {
        self.ports
            .sort_by(|a, b| (a.container_port, &a.protocol).cmp(&(b.container_port, &b.protocol)));
        if !self.env_is_ordered() {
            self.env.sort_by(|a, b| a.name.cmp(&b.name));
        }
        self.resources.normalise();
    }
}

// === impl ContainerPort ===

impl ContainerPort {
    fn is_covered_by(&self, there: &ContainerPort) -> bool {
        self.container_port == there.container_port
            && self.protocol == there.protocol
            && (self.name.is_empty() || self.name == there.name)
    }
}

// === impl ContainerSecurity ===

impl ContainerSecurity {
    fn is_covered_by(&self, there: Option<&ContainerSecurity>) -> bool {
        let default = ContainerSecurity::default();
        let there = there.unwrap_or(&default);
        is_set(&self.run_as_non_root, &there.run_as_non_root)
            && is_set(&self.run_as_user, &there.run_as_user)
            && is_set(&self.allow_privilege_escalation, &there.allow_privilege_escalation)
            && is_set(&self.seccomp_profile, &there.seccomp_profile)
            && self.capabilities.as_ref().is_none_or(|wanted| {
                there.capabilities.as_ref().is_some_and(|c| wanted.drop == c.drop)
            })
    }
}
