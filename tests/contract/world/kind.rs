//! The kinds of object that tests use.

use kube::core::{ApiResource, GroupVersionKind};

/// A kind of object, as the tests name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(&'static str, &'static str, &'static str, &'static str);

pub const MEMCACHED: Kind = Kind("cache.example.com", "v1alpha1", "Memcached", "memcacheds");
pub const GENERIC_DAEMON: Kind = Kind("mydomain.com", "v1beta1", "GenericDaemon", "genericdaemons");
pub const APP: Kind = Kind("app.example.com", "v1", "App", "apps");
pub const FOO: Kind = Kind("samplecontroller.k8s.io", "v1alpha1", "Foo", "foos");
pub const DEPLOYMENT: Kind = Kind("apps", "v1", "Deployment", "deployments");
pub const DAEMON_SET: Kind = Kind("apps", "v1", "DaemonSet", "daemonsets");
pub const JOB: Kind = Kind("batch", "v1", "Job", "jobs");
pub const SERVICE: Kind = Kind("", "v1", "Service", "services");
pub const BUDGET: Kind = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
pub const POD: Kind = Kind("", "v1", "Pod", "pods");
pub const NODE: Kind = Kind("", "v1", "Node", "nodes");
pub const EVENT: Kind = Kind("events.k8s.io", "v1", "Event", "events");
pub const QUOTA: Kind = Kind("", "v1", "ResourceQuota", "resourcequotas");
pub const LEASE: Kind = Kind("coordination.k8s.io", "v1", "Lease", "leases");
pub const SERVICE_ACCOUNT: Kind = Kind("", "v1", "ServiceAccount", "serviceaccounts");
pub const ROLE: Kind = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles");
pub const ROLE_BINDING: Kind =
    Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings");

impl Kind {
    /// For kinds that few tests use: `Kind::new(GROUP, VERSION, KIND, PLURAL)`.
    pub const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Kind {
        Kind(group, version, kind, plural)
    }

    pub fn api_version(self) -> String {
        if self.0.is_empty() { self.1.to_owned() } else { format!("{}/{}", self.0, self.1) }
    }

    pub fn group(self) -> &'static str {
        self.0
    }

    pub fn name(self) -> &'static str {
        self.2
    }

    pub fn plural(self) -> &'static str {
        self.3
    }

    pub fn path(self, namespace: &str) -> String {
        let root = if self.0.is_empty() { "/api" } else { "/apis" };
        let scope =
            if self.3 == "nodes" { String::new() } else { format!("namespaces/{namespace}/") };
        format!("{root}/{}/{scope}{}", self.api_version(), self.3)
    }

    pub(super) fn resource(self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(self.0, self.1, self.2), self.3)
    }
}
