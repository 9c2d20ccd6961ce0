//! A test's namespace, its operator, and the verbs of an administrator.

mod kind;
mod verbs;
mod waiting;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

pub use self::kind::*;

use crate::control_plane::ControlPlane;
use crate::operator_process::OperatorProcess;

/// Maximum wait of a test by default. It is far longer than necessary, so that a busy machine fails no test.
/// The tests wait for events.
pub const MAX_WAIT: Duration = Duration::from_secs(300);

/// The image for memcached pods; kwok pulls nothing.
pub const MEMCACHED_IMAGE: &str = "memcached:1.6.26-alpine3.19";

/// The image for exporters.
pub const EXPORTER_IMAGE: &str = "memcached-exporter:0.16";

/// A namespace on a control plane, with a ServiceAccount for the operator.
pub struct World {
    plane: &'static ControlPlane,
    client: kube::Client,
    pub namespace: String,
    files: tempfile::TempDir,
    max_wait: Duration,
}

impl World {
    /// A namespace `name` that enforces Pod Security `restricted`, and an operator in it.
    pub async fn with_operator(name: &str) -> (World, OperatorProcess) {
        let world = World::new(name, "restricted").await;
        let operator = world.start_operator().await;
        (world, operator)
    }

    /// Like [`World::with_operator`], with another Pod Security level.
    pub async fn with_operator_at(name: &str, level: &str) -> (World, OperatorProcess) {
        let world = World::new(name, level).await;
        let operator = world.start_operator().await;
        (world, operator)
    }

    /// Creates a namespace with the operator's permissions in it, but no operator yet.
    pub async fn new(name: &str, pod_security: &str) -> World {
        let plane = tokio::task::spawn_blocking(ControlPlane::shared).await.expect("it starts");
        World::on(plane, name, pod_security).await
    }

    /// Like [`World::new`], on another control plane.
    pub async fn on(plane: &'static ControlPlane, name: &str, pod_security: &str) -> World {
        let client = plane.admin().await;
        let files = tempfile::tempdir().expect("a temporary folder");
        let world = World { plane, client, namespace: name.to_owned(), files, max_wait: MAX_WAIT };
        let labels = json!({"pod-security.kubernetes.io/enforce": pod_security});
        world
            .post("/api/v1/namespaces", json!({"metadata": {"name": name, "labels": labels}}))
            .await
            .expect("a new namespace");
        let account = json!({"metadata": {"name": "workload-operator"}});
        world
            .post(&format!("/api/v1/namespaces/{name}/serviceaccounts"), account)
            .await
            .expect("one");
        world.bind().await;
        world
    }

    /// Uses a namespace that the artifacts have created.
    pub async fn in_existing(plane: &'static ControlPlane, name: &str) -> World {
        let files = tempfile::tempdir().expect("a temporary folder");
        let client = plane.admin().await;
        World { plane, client, namespace: name.to_owned(), files, max_wait: MAX_WAIT }
    }

    /// Sets the maximum wait, for slow operations.
    pub fn patient(self, max_wait: Duration) -> World {
        World { max_wait, ..self }
    }

    /// Gives the operator's ServiceAccount the permissions of its ClusterRole in this namespace.
    pub async fn bind(&self) {
        let binding = json!({
            "metadata": {"name": "workload-operator"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "workload-operator"},
            "subjects": [{"kind": "ServiceAccount", "name": "workload-operator", "namespace": self.namespace}],
        });
        self.create(ROLE_BINDING, binding).await.expect("a binding");
    }

    /// Gives an account of a namespace the permissions of a role, a kind and a name, in this namespace.
    pub async fn grant(&self, (kind, role): (&str, &str), (namespace, account): (&str, &str)) {
        let binding = json!({
            "metadata": {"generateName": format!("{account}-")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        });
        self.create(ROLE_BINDING, binding).await.expect("a binding");
    }

    /// Starts the operator for this namespace under its ServiceAccount; returns when its informers
    /// are synced.
    pub async fn start_operator(&self) -> OperatorProcess {
        let exporter = ("MEMCACHED_EXPORTER_IMAGE", EXPORTER_IMAGE);
        let operator =
            self.start_operator_with(&[("MEMCACHED_IMAGE", MEMCACHED_IMAGE), exporter]).await;
        operator.logged("Ready to work").await;
        operator
    }

    /// Starts the operator with this environment; does not wait until it is ready.
    pub async fn start_operator_with(&self, environment: &[(&str, &str)]) -> OperatorProcess {
        let kubeconfig = self.operator_kubeconfig().await;
        OperatorProcess::start(&kubeconfig, &["--namespace", &self.namespace], environment)
    }

    /// Like [`World::start_operator`], with `server` as the API server's address. Does not wait.
    pub async fn start_operator_through(&self, server: &str) -> OperatorProcess {
        let kubeconfig = self.kubeconfig_through(server).await;
        let image = [("MEMCACHED_IMAGE", MEMCACHED_IMAGE)];
        OperatorProcess::start(&kubeconfig, &["--namespace", &self.namespace], &image)
    }

    /// Like [`World::operator_kubeconfig`], with `server` as the API server's address.
    pub async fn kubeconfig_through(&self, server: &str) -> PathBuf {
        self.kubeconfig_of_through("workload-operator", server).await
    }

    /// The same for another ServiceAccount.
    pub async fn kubeconfig_of_through(&self, account: &str, server: &str) -> PathBuf {
        let kubeconfig = self.kubeconfig_of(account).await;
        let text = std::fs::read_to_string(&kubeconfig).expect("a kubeconfig");
        let mut config: Value = serde_json::from_str(&text).expect("JSON");
        for cluster in config["clusters"].as_array_mut().expect("clusters") {
            cluster["cluster"]["server"] = json!(server);
        }
        std::fs::write(&kubeconfig, config.to_string()).expect("a file");
        kubeconfig
    }

    /// A kubeconfig with a token for the operator's ServiceAccount.
    pub async fn operator_kubeconfig(&self) -> PathBuf {
        self.kubeconfig_of("workload-operator").await
    }

    /// A kubeconfig with a token for this ServiceAccount in the namespace.
    pub async fn kubeconfig_of(&self, account: &str) -> PathBuf {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{account}/token", self.namespace);
        let request = json!({"spec": {"expirationSeconds": 3600}});
        let token = self.post(&path, request).await.expect("a token")["status"]["token"].clone();
        let admin = std::fs::read_to_string(self.plane.kubeconfig()).expect("a kubeconfig");
        let mut config: Value = serde_yaml_ng::from_str(&admin).expect("YAML");
        for user in config["users"].as_array_mut().expect("users") {
            user["user"] = json!({"token": token});
        }
        let file = self.files.path().join(format!("{account}.kubeconfig"));
        std::fs::write(&file, config.to_string()).expect("a file");
        file
    }

    /// The control plane that this world is on.
    pub fn plane(&self) -> &'static ControlPlane {
        self.plane
    }
}

/// The conditions of an object.
pub fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}

/// The message of the condition of this type.
pub fn condition_message(object: &Value, kind: &str) -> String {
    let found = conditions(object).find(|found| found["type"] == kind);
    found.and_then(|found| found["message"].as_str()).unwrap_or_default().to_owned()
}

/// Returns whether condition `condition` has `status` for the object's newest generation.
pub fn has_condition(object: &Value, condition: &str, status: &str) -> bool {
    conditions(object).any(|found| {
        found["type"] == condition
            && found["status"] == status
            && found["observedGeneration"] == object["metadata"]["generation"]
    })
}

/// Returns whether the object is Ready, for its newest generation.
pub fn is_ready(object: &Value) -> bool {
    has_condition(object, "Ready", "True")
}

/// A Memcached with this many nodes, to be created.
pub fn memcached(name: &str, size: i64) -> Value {
    json!({"metadata": {"name": name}, "spec": {"size": size}})
}
