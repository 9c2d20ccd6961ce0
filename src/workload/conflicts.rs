//! Fields of others that cannot stay beside what the operator sets: the API server would refuse the apply, or
//! keep a value that contradicts it.
//!
//! Guarantees
//! - Pure: from what is wanted, what is there, and who set what (see [`Foreign`]).
//! - Only fields of others and defaults of the API server are removed: what the operator applied itself, and
//!   applies no more, goes with the apply. What has one form only (a volume, a probe, a strategy) is replaced as a
//!   whole, whoever set it.
//! - The operations by themselves leave a valid object, and each names the place as it is when its turn comes.
//! - Each rule names the function of Kubernetes that has it, or says what an apply would leave.

use serde::Deserialize;
use serde_json::{Value, json};

use super::child::{Child, ChildSpec};
use super::container::{
    Container, ContainerPort, ContainerSecurity, Resources, Seccomp, ValueSource,
};
use super::daemon_set::{DaemonSet, DaemonSetSpec};
use super::deployment::{Amount, Deployment, DeploymentSpec, RollingUpdate};
use super::pod_template::{PodSpec, PodTemplate};
use super::services::{BudgetSpec, PodDisruptionBudget};
use super::services::{Service, ServicePort, ServiceSpec};
use crate::manager::Foreign;
use crate::object::{InternedStr, Quantity};

/// A spec that knows what may not stay beside it.
pub trait Conflicts: Sized {
    /// JSON patch operations, last position first, that remove what `there` has and may not have
    /// beside what `self` sets, if it is `foreign` (see [`Foreign`]), so that applying would leave
    /// it, or be refused. The operations by themselves leave a valid object.
    fn conflicts(&self, there: &Child<Self>, foreign: Foreign<'_>) -> Vec<Value>
    where
        Self: ChildSpec;
}

// === Deployment and DaemonSet ===

impl Conflicts for DeploymentSpec {
    fn conflicts(&self, there: &Deployment, foreign: Foreign<'_>) -> Vec<Value> {
        let mut operations = self.template.conflicts(&there.spec.template, foreign);
        let (Some(wanted), Some(there)) = (&self.strategy, &there.spec.strategy) else {
            return operations;
        };
        // The API server fills the pace in, again where it is removed, and refuses it beside Recreate.
        if wanted.kind == "Recreate" && there.rolling_update.is_some() {
            let recreate = json!({ "type": "Recreate" });
            operations.push(replacement("/spec/strategy", &recreate));
        } else if let (Some(wanted), Some(there)) = (&wanted.rolling_update, &there.rolling_update)
            && wanted.cannot_move_beside(there)
        {
            operations.push(replacement("/spec/strategy/rollingUpdate", &json!(wanted)));
        }
        operations
    }
}

impl RollingUpdate {
    /// The API server refuses a pace of which both bounds are 0 (ValidateRollingUpdateDeployment in
    /// k8s.io/kubernetes, pkg/apis/apps/validation): one is wanted, and somebody has set the other.
    fn cannot_move_beside(&self, there: &RollingUpdate) -> bool {
        let is_zero = |amount: &Option<Amount>| amount.as_ref().is_some_and(Amount::is_zero);
        let hinders = |wanted: &Option<Amount>, other: &Option<Amount>, there: &Option<Amount>| {
            is_zero(wanted) && other.is_none() && is_zero(there)
        };
        hinders(&self.max_surge, &self.max_unavailable, &there.max_unavailable)
            || hinders(&self.max_unavailable, &self.max_surge, &there.max_surge)
    }
}

impl Conflicts for DaemonSetSpec {
    fn conflicts(&self, there: &DaemonSet, foreign: Foreign<'_>) -> Vec<Value> {
        let mut operations = self.template.conflicts(&there.spec.template, foreign);
        operations.extend(self.nodes_left_out(there, foreign));
        let pace = |spec: &DaemonSetSpec| {
            let strategy = spec.update_strategy.as_deref();
            strategy.and_then(|it| RollingUpdate::deserialize(it.get("rollingUpdate")?).ok())
        };
        // The API server refuses both bounds beside each other (ValidateRollingUpdateDaemonSet in
        // k8s.io/kubernetes, pkg/apis/apps/validation), and fills in a surge of 0.
        if let (Some(wanted), Some(there)) = (pace(self), pace(&there.spec))
            && there.max_surge.is_some_and(|surge| !surge.is_zero())
        {
            operations.push(replacement("/spec/updateStrategy/rollingUpdate", &json!(wanted)));
        }
        operations
    }
}

impl DaemonSetSpec {
    /// Requirements on nodes where none are wanted: the daemon belongs on every node that its spec means.
    fn nodes_left_out(
        &self,
        there: &DaemonSet,
        foreign: Foreign<'_>,
    ) -> impl Iterator<Item = Value> {
        const SELECTOR: &str = "/spec/template/spec/nodeSelector";
        const AFFINITY: &str = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
        let (wanted, there) = (&self.template.spec, &there.spec.template.spec);
        let required = |pod: &PodSpec| {
            let affinity =
                pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
            affinity.is_some_and(|affinity| affinity.required.is_some())
        };
        let selects = wanted.node_selector.is_empty() && !there.node_selector.is_empty();
        let requires = !required(wanted) && required(there);
        let all = [(SELECTOR, selects), (AFFINITY, requires)];
        all.into_iter()
            .filter(|(path, is_left)| *is_left && foreign(path))
            .map(|(path, _)| removal(path))
    }
}

impl PodTemplate {
    /// JSON patch operations that clear the way, last position first in each list.
    pub(crate) fn conflicts(&self, there: &PodTemplate, foreign: Foreign<'_>) -> Vec<Value> {
        const POD: &str = "/spec/template/spec";
        let (mut pointers, mut operations) = (Vec::new(), Vec::new());
        for wanted in &self.spec.volumes {
            let at = there.spec.volumes.iter().position(|other| other["name"] == wanted["name"]);
            if let Some(at) = at.filter(|at| has_another_part(wanted, &there.spec.volumes[*at])) {
                operations.push(replacement(&format!("{POD}/volumes/{at}"), wanted));
            }
        }
        for container in &self.spec.containers {
            let at = there.spec.containers.iter().position(|c| c.name == container.name);
            if let Some(at) = at {
                let pointer = |path: &str| format!("{POD}/containers/{at}{path}");
                let is_foreign = |path: &str| foreign(&pointer(path));
                let there = &there.spec.containers[at];
                let paths = container.conflicts(there, &is_foreign);
                pointers.extend(paths.iter().map(|path| pointer(path)));
                let probes = container.probes_without_handler(there, &is_foreign);
                operations.extend(probes.map(|path| removal(&pointer(path))));
                operations.extend(
                    container
                        .to_replace(there)
                        .map(|(path, value)| replacement(&pointer(path), value)),
                );
            }
        }
        let profile = |pod: &PodSpec| pod.security_context.clone()?.seccomp_profile;
        if Seccomp::is_in_the_way(profile(&self.spec), profile(&there.spec)) {
            pointers.push(format!("{POD}/securityContext/seccompProfile"));
        }
        operations.extend(pointers.iter().filter(|at| foreign(at)).map(|at| removal(at)));
        operations.extend(self.containers_without_image(there, foreign));
        operations
    }

    /// Containers that are no longer wanted, whose image is the operator's and of which others set a part: without
    /// the image, the API server refuses what is left. Last, so that other places stay as they are.
    fn containers_without_image(
        &self,
        there: &PodTemplate,
        foreign: Foreign<'_>,
    ) -> impl Iterator<Item = Value> {
        let is_wanted = |name: &InternedStr| self.spec.containers.iter().any(|c| c.name == *name);
        there.spec.containers.iter().enumerate().rev().filter_map(move |(at, container)| {
            let pointer = format!("/spec/template/spec/containers/{at}");
            let loses_image = !is_wanted(&container.name) && !foreign(&format!("{pointer}/image"));
            loses_image.then(|| removal(&pointer))
        })
    }
}

// === Containers ===

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

impl ContainerPort {
    fn is_same_port_as(&self, other: &ContainerPort) -> bool {
        (self.container_port, &self.protocol) == (other.container_port, &other.protocol)
    }
}

/// The one capability that amounts to all of them.
const ALL_RIGHTS: &str = "CAP_SYS_ADMIN";

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

impl Seccomp {
    /// Only `Localhost` has a path beside the type; applying another type would leave the path.
    pub(crate) fn is_in_the_way(wanted: Option<Seccomp>, there: Option<Seccomp>) -> bool {
        let is_local = |profile: Seccomp| profile.kind == "Localhost";
        wanted.is_some_and(|wanted| !is_local(wanted)) && there.is_some_and(is_local)
    }
}

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

// === Resources ===

impl Resources {
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

// === Service ===

impl Conflicts for ServiceSpec {
    fn conflicts(&self, there: &Service, foreign: Foreign<'_>) -> Vec<Value> {
        self.ports_in_the_way(&there.spec, foreign)
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
}

impl ServicePort {
    /// Its key only: the rest is applied, so that it is removed once it is no longer applied. The
    /// name is the other port's, which tells the API server which node port to keep.
    fn in_place_of(&self, other: &ServicePort) -> ServicePort {
        let (protocol, name) = (self.protocol.clone(), other.name.clone());
        ServicePort { port: self.port, protocol, name, ..ServicePort::default() }
    }
}

// === PodDisruptionBudget ===

impl Conflicts for BudgetSpec {
    /// The API server refuses both bounds at once (k8s.io/kubernetes/pkg/apis/policy/validation).
    fn conflicts(&self, there: &PodDisruptionBudget, foreign: Foreign<'_>) -> Vec<Value> {
        const OTHER: &str = "/spec/minAvailable";
        let both = there.spec.min_available.is_some() && foreign(OTHER);
        both.then(|| removal(OTHER)).into_iter().collect()
    }
}

// === Operations ===

/// Returns whether an object of which one part may be set, such as a volume's source, has another part than the
/// wanted one. The API server refuses two, and fills in a default where the only one is removed: so the
/// whole is replaced.
pub(crate) fn has_another_part(wanted: &Value, there: &Value) -> bool {
    let parts = there.as_object().into_iter().flatten();
    parts.filter(|(_, value)| value.is_object()).any(|(part, _)| wanted[part].is_null())
}

/// The JSON patch operation that replaces what is at `path`.
fn replacement(path: &str, value: &Value) -> Value {
    json!({ "op": "replace", "path": path, "value": value })
}

/// The JSON patch operation that removes what is at `path`.
pub(crate) fn removal(path: &str) -> Value {
    json!({ "op": "remove", "path": path })
}
