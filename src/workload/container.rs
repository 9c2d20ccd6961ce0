//! Containers, their variables and resources.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::pod_template::has_another_part;
use crate::manager::Foreign;
use crate::object::{InternedStr, Quantity};

/// The one capability that amounts to all of them.
const ALL_RIGHTS: &str = "CAP_SYS_ADMIN";

/// A container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// Its key.
    pub name: InternedStr,
    /// The image that runs.
    pub image: InternedStr,
    /// Policy of pulling the image.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub image_pull_policy: InternedStr,
    /// The program and its arguments, in place of the image's. Compared as a whole, as in the API.
    #[serde(skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub command: Box<[InternedStr]>,
    /// The arguments after the command. Compared as a whole, as in the API.
    #[serde(skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub args: Box<[InternedStr]>,
    /// Ports, by number and protocol.
    #[serde(skip_serializing_if = "<[ContainerPort]>::is_empty")]
    pub ports: Box<[ContainerPort]>,
    /// Environment variables, by name.
    #[serde(skip_serializing_if = "<[EnvVar]>::is_empty")]
    pub env: Box<[EnvVar]>,
    /// The resources it may use.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// Condition under which it counts as ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness_probe: Option<Box<Value>>,
    /// Condition under which it is restarted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liveness_probe: Option<Box<Value>>,
    /// Condition under which it counts as started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_probe: Option<Box<Value>>,
    /// Mounts of volumes, by path.
    #[serde(skip_serializing_if = "<[Value]>::is_empty")]
    pub volume_mounts: Box<[Value]>,
    /// Its security context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_context: Option<Box<ContainerSecurity>>,
    /// Actions before it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Box<Value>>,
}

/// A port on which a container listens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerPort {
    /// The number.
    pub container_port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: InternedStr,
    /// A name that a Service may use.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: InternedStr,
}

/// The security context of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerSecurity {
    /// True if the kubelet refuses to run it as root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_non_root: Option<bool>,
    /// The user it runs as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<i64>,
    /// True if it may gain more rights than it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_privilege_escalation: Option<bool>,
    /// True if it has all rights of its node. Never set; see `conflicts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privileged: Option<bool>,
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
    pub kind: InternedStr,
}

/// Linux capabilities.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// Dropped capabilities.
    #[serde(skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub drop: Box<[InternedStr]>,
    /// Added capabilities. Never set; see `conflicts`.
    #[serde(skip_serializing_if = "<[InternedStr]>::is_empty")]
    pub add: Box<[InternedStr]>,
}

/// An environment variable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvVar {
    /// Its key.
    pub name: InternedStr,
    /// Its value, empty if it comes from elsewhere.
    pub value: InternedStr,
    /// Source of its value.
    pub value_from: Option<Box<ValueSource>>,
}

/// Source of the value of a variable; one of these is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ValueSource {
    /// A ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,
    /// A Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
    /// The pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<FieldRef>,
    /// The container's resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_field_ref: Option<ResourceRef>,
}

/// A key of a ConfigMap or Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyRef {
    /// The object's name.
    pub name: InternedStr,
    /// The key.
    pub key: InternedStr,
    /// True if a pod may start without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// A field of the pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FieldRef {
    /// The version of the API; the API server fills in `v1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<InternedStr>,
    /// The field's path.
    pub field_path: InternedStr,
}

/// A resource of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceRef {
    /// The container; this one if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_name: Option<InternedStr>,
    /// The unit; the API server fills in `0`, which means 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divisor: Option<Quantity>,
    /// The resource.
    pub resource: InternedStr,
}

/// Amounts by resource name, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Quantities(pub Box<[(InternedStr, Quantity)]>);

/// Limits and requests of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// The most that it may use.
    #[serde(skip_serializing_if = "Quantities::is_empty")]
    pub limits: Quantities,
    /// Amounts that are reserved for it.
    #[serde(skip_serializing_if = "Quantities::is_empty")]
    pub requests: Quantities,
}

// === impl Container ===

impl Container {
    /// JSON pointers, relative to the container, to what another manager set and the API server
    /// refuses beside what `self` sets. Last first in each list.
    pub(crate) fn conflicts(&self, there: &Container, foreign: Foreign<'_>) -> Vec<String> {
        let mut pointers = self.env_in_the_way(there);
        pointers.extend(self.ports_in_the_way(there));
        let below = |path: &str| format!("/resources{path}");
        let resources = self.resources.conflicts(&there.resources, &|path| foreign(&below(path)));
        pointers.extend(resources.iter().map(|path| below(path)));
        if let (Some(wanted), Some(there)) = (&self.security_context, &there.security_context) {
            let below = |path: String| format!("/securityContext{path}");
            pointers.extend(wanted.conflicts(there).into_iter().map(below));
        }
        pointers
    }

    /// Fields to be replaced as a whole, and their values: probes and what happens before the end, which have
    /// one handler, if another one is there.
    pub(crate) fn to_replace<'a>(
        &'a self,
        there: &'a Container,
    ) -> impl Iterator<Item = (&'static str, &'a Value)> {
        let stop =
            |lifecycle: &'a Option<Box<Value>>| lifecycle.as_deref().map(|all| &all["preStop"]);
        [
            ("/readinessProbe", self.readiness_probe.as_deref(), there.readiness_probe.as_deref()),
            ("/livenessProbe", self.liveness_probe.as_deref(), there.liveness_probe.as_deref()),
            ("/startupProbe", self.startup_probe.as_deref(), there.startup_probe.as_deref()),
            ("/lifecycle/preStop", stop(&self.lifecycle), stop(&there.lifecycle)),
        ]
        .into_iter()
        .filter_map(|(path, wanted, there)| {
            has_another_part(wanted?, there?).then_some((path, wanted?))
        })
    }

    /// Probes that are no longer wanted, whose handler is the operator's and of which others set a part: without
    /// the handler, the API server refuses what is left. What has the API server's default counts as its own.
    pub(crate) fn probes_without_handler<'a>(
        &'a self,
        there: &'a Container,
        foreign: Foreign<'a>,
    ) -> impl Iterator<Item = &'static str> {
        const HANDLERS: [&str; 4] = ["exec", "grpc", "httpGet", "tcpSocket"];
        // k8s.io/kubernetes/pkg/apis/core/v1/defaults.go, SetDefaults_Probe.
        const DEFAULTS: [(&str, i64); 4] = [
            ("timeoutSeconds", 1),
            ("periodSeconds", 10),
            ("successThreshold", 1),
            ("failureThreshold", 3),
        ];
        [
            ("/readinessProbe", &self.readiness_probe, &there.readiness_probe),
            ("/livenessProbe", &self.liveness_probe, &there.liveness_probe),
            ("/startupProbe", &self.startup_probe, &there.startup_probe),
        ]
        .into_iter()
        .filter_map(move |(path, wanted, there)| {
            let fields = there.as_deref()?.as_object().filter(|_| wanted.is_none())?;
            let is_foreign = |field: &str| foreign(&format!("{path}/{field}"));
            let is_default = |field: &str, value: &Value| {
                DEFAULTS.iter().any(|(known, default)| *known == field && *default == *value)
            };
            let mut rest = fields.iter().filter(|(field, _)| !HANDLERS.contains(&field.as_str()));
            let is_handled =
                HANDLERS.iter().any(|field| fields.contains_key(*field) && is_foreign(field));
            let has_more =
                rest.any(|(field, value)| !is_default(field, value) && is_foreign(field));
            (!is_handled && has_more).then_some(path)
        })
    }

    /// A variable has a value or a source, never both.
    fn env_in_the_way(&self, there: &Container) -> Vec<String> {
        let mut pointers = Vec::new();
        for (at, other) in there.env.iter().enumerate().rev() {
            let Some(wanted) = self.env.iter().find(|var| var.name == other.name) else { continue };
            match (&wanted.value_from, &other.value_from) {
                (None, Some(_)) => pointers.push(format!("/env/{at}/valueFrom")),
                (Some(_), None) if !other.value.is_empty() => {
                    pointers.push(format!("/env/{at}/value"));
                }
                (Some(wanted), Some(other)) if wanted.kinds() != other.kinds() => {
                    pointers.push(format!("/env/{at}/valueFrom"));
                }
                _ => {}
            }
        }
        pointers
    }

    /// No two ports may have the same name.
    fn ports_in_the_way(&self, there: &Container) -> Vec<String> {
        let mut pointers = Vec::new();
        for (at, other) in there.ports.iter().enumerate().rev() {
            let takes_name =
                |port: &ContainerPort| !port.name.is_empty() && port.name == other.name;
            if !self.ports.iter().any(|port| takes_name(port) && !port.is_same_port_as(other)) {
                continue;
            }
            match self.ports.iter().find(|port| port.is_same_port_as(other)) {
                None => pointers.push(format!("/ports/{at}")),
                Some(wanted) if wanted.name.is_empty() => {
                    pointers.push(format!("/ports/{at}/name"));
                }
                // It is given its own name.
                Some(_) => {}
            }
        }
        pointers
    }
}

// === impl ContainerPort ===

impl ContainerPort {
    fn is_same_port_as(&self, other: &ContainerPort) -> bool {
        (self.container_port, &self.protocol) == (other.container_port, &other.protocol)
    }
}

// === impl ContainerSecurity ===

impl ContainerSecurity {
    /// A container that may not gain rights may not have all of them either
    /// (k8s.io/kubernetes/pkg/apis/core/validation, ValidateSecurityContext).
    fn conflicts(&self, there: &ContainerSecurity) -> Vec<String> {
        let mut pointers = Vec::new();
        if self.allow_privilege_escalation == Some(false) {
            if there.privileged == Some(true) {
                pointers.push("/privileged".to_owned());
            }
            let added = there.capabilities.as_ref().map(|there| there.add.iter().enumerate().rev());
            let all = added.into_iter().flatten().filter(|(_, added)| *added == ALL_RIGHTS);
            pointers.extend(all.map(|(at, _)| format!("/capabilities/add/{at}")));
        }
        if Seccomp::is_in_the_way(self.seccomp_profile.clone(), there.seccomp_profile.clone()) {
            pointers.push("/seccompProfile".to_owned());
        }
        pointers
    }
}

// === impl Seccomp ===

impl Seccomp {
    /// Only `Localhost` has a path beside the type; applying another type would leave the path.
    pub(crate) fn is_in_the_way(wanted: Option<Seccomp>, there: Option<Seccomp>) -> bool {
        let is_local = |profile: Seccomp| profile.kind == "Localhost";
        wanted.is_some_and(|wanted| !is_local(wanted)) && there.is_some_and(is_local)
    }
}

// === impl EnvVar ===

impl Serialize for EnvVar {
    /// A value is sent even if it is empty, to overwrite what another manager may have put there.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("name", &self.name)?;
        match &self.value_from {
            Some(source) => map.serialize_entry("valueFrom", source)?,
            None => map.serialize_entry("value", &self.value)?,
        }
        map.end()
    }
}

// === impl ValueSource ===

impl ValueSource {
    /// Which kinds of sources are set: the API server refuses two, and an apply replaces one of the same
    /// kind.
    pub(crate) fn kinds(&self) -> [bool; 4] {
        [
            self.config_map_key_ref.is_some(),
            self.secret_key_ref.is_some(),
            self.field_ref.is_some(),
            self.resource_field_ref.is_some(),
        ]
    }
}

// === impl Resources ===

impl Resources {
    /// Returns whether neither limits nor requests are set.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.requests.is_empty()
    }

    /// JSON pointers, relative to the resources, to what another manager set and what conflicts
    /// with what `self` sets: a request above its limit, or for an extended resource without one.
    pub(crate) fn conflicts(&self, there: &Resources, foreign: Foreign<'_>) -> Vec<String> {
        let pointer = |list: &str, name: &str| format!("/{list}/{}", name.replace('/', "~1"));
        let mut pointers = Vec::new();
        for (name, request) in &there.requests.0 {
            // Without a wanted limit, a foreign one stays.
            let theirs = || there.limits.get(name).filter(|_| foreign(&pointer("limits", name)));
            let conflicts = match self.limits.get(name) {
                Some(limit) => !fits(name, request, limit),
                None => is_extended(name) && theirs().is_none(),
            };
            if self.requests.get(name).is_none() && conflicts {
                pointers.push(pointer("requests", name));
            }
        }
        for (name, limit) in &there.limits.0 {
            let request = self.requests.get(name);
            let conflicts = request.is_some_and(|request| !fits(name, request, limit));
            if self.limits.get(name).is_none() && conflicts {
                pointers.push(pointer("limits", name));
            }
        }
        pointers
    }
}

impl Quantities {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn get(&self, name: &str) -> Option<&Quantity> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, amount)| amount)
    }
}

/// Returns whether the API server accepts the two together. For an extended resource they must be
/// equal (k8s.io/kubernetes/pkg/apis/core/validation, ValidateContainerResourceRequirements).
fn fits(name: &str, request: &Quantity, limit: &Quantity) -> bool {
    request.is_same_as(limit) || !is_extended(name) && request.millis() < limit.millis()
}

/// Returns whether a resource cannot be overcommitted: a container that requests it has a limit,
/// too.
fn is_extended(name: &str) -> bool {
    name.contains('/')
}

impl Serialize for Quantities {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, amount)| (name, amount)))
    }
}

impl<'de> Deserialize<'de> for Quantities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantities, D::Error> {
        let map =
            Option::<std::collections::BTreeMap<InternedStr, Quantity>>::deserialize(deserializer)?;
        Ok(Quantities(map.unwrap_or_default().into_iter().collect()))
    }
}
