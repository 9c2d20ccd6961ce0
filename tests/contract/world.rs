//! A test's namespace, its operator, and the verbs of an administrator.

use std::path::PathBuf;
use std::time::Duration;

use futures::TryStreamExt;
use http::{Method, Request};
use kube::api::{Api, DynamicObject, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::operator_process::OperatorProcess;

/// How long a test waits for anything, unless it says otherwise. Far longer than it takes, so that
/// a busy machine fails no test; the waiting itself is by events.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// How often a failed list is retried.
const LISTS: usize = 3;

/// The image for memcached pods; kwok pulls nothing.
pub const MEMCACHED_IMAGE: &str = "memcached:1.6.26-alpine3.19";

/// A kind of object, as the tests name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(&'static str, &'static str, &'static str, &'static str);

pub const MEMCACHED: Kind = Kind("cache.example.com", "v1alpha1", "Memcached", "memcacheds");
pub const GENERIC_DAEMON: Kind = Kind("mydomain.com", "v1beta1", "GenericDaemon", "genericdaemons");
pub const APP: Kind = Kind("app.example.com", "v1", "App", "apps");
pub const FOO: Kind = Kind("samplecontroller.k8s.io", "v1alpha1", "Foo", "foos");
pub const DEPLOYMENT: Kind = Kind("apps", "v1", "Deployment", "deployments");
pub const DAEMON_SET: Kind = Kind("apps", "v1", "DaemonSet", "daemonsets");
pub const SERVICE: Kind = Kind("", "v1", "Service", "services");
pub const POD: Kind = Kind("", "v1", "Pod", "pods");
pub const NODE: Kind = Kind("", "v1", "Node", "nodes");
pub const EVENT: Kind = Kind("events.k8s.io", "v1", "Event", "events");
pub const QUOTA: Kind = Kind("", "v1", "ResourceQuota", "resourcequotas");
pub const LEASE: Kind = Kind("coordination.k8s.io", "v1", "Lease", "leases");
pub const SERVICE_ACCOUNT: Kind = Kind("", "v1", "ServiceAccount", "serviceaccounts");
pub const ROLE: Kind = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles");
pub const ROLE_BINDING: Kind =
    Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings");

/// A namespace on a control plane, with a ServiceAccount for the operator.
pub struct World {
    plane: &'static ControlPlane,
    client: kube::Client,
    pub namespace: String,
    files: tempfile::TempDir,
    patience: Duration,
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

    /// A namespace with the operator's rights in it, but no operator yet.
    pub async fn new(name: &str, pod_security: &str) -> World {
        let plane = tokio::task::spawn_blocking(ControlPlane::shared).await.expect("it starts");
        World::on(plane, name, pod_security).await
    }

    /// Like [`World::new`], on another control plane.
    pub async fn on(plane: &'static ControlPlane, name: &str, pod_security: &str) -> World {
        let client = plane.admin().await;
        let files = tempfile::tempdir().expect("a temporary folder");
        let world = World { plane, client, namespace: name.to_owned(), files, patience: PATIENCE };
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

    /// A namespace that the artifacts have created.
    pub async fn in_existing(plane: &'static ControlPlane, name: &str) -> World {
        let files = tempfile::tempdir().expect("a temporary folder");
        let client = plane.admin().await;
        World { plane, client, namespace: name.to_owned(), files, patience: PATIENCE }
    }

    /// With this patience, for what takes others long.
    pub fn patient(self, patience: Duration) -> World {
        World { patience, ..self }
    }

    /// Gives the operator's ServiceAccount its ClusterRole's rights in this namespace.
    pub async fn bind(&self) {
        let binding = json!({
            "metadata": {"name": "workload-operator"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "workload-operator"},
            "subjects": [{"kind": "ServiceAccount", "name": "workload-operator", "namespace": self.namespace}],
        });
        self.create(ROLE_BINDING, binding).await.expect("a binding");
    }

    /// Starts the operator for this namespace under its ServiceAccount; returns when its informers
    /// are synced.
    pub async fn start_operator(&self) -> OperatorProcess {
        let operator = self.start_operator_with(&[("MEMCACHED_IMAGE", MEMCACHED_IMAGE)]).await;
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
        let kubeconfig = self.operator_kubeconfig().await;
        let text = std::fs::read_to_string(&kubeconfig).expect("a kubeconfig");
        let mut config: Value = serde_json::from_str(&text).expect("JSON");
        for cluster in config["clusters"].as_array_mut().expect("clusters") {
            cluster["cluster"]["server"] = json!(server);
        }
        std::fs::write(&kubeconfig, config.to_string()).expect("a file");
        let image = [("MEMCACHED_IMAGE", MEMCACHED_IMAGE)];
        OperatorProcess::start(&kubeconfig, &["--namespace", &self.namespace], &image)
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

    // === What an administrator does ===

    /// Creates an object in this namespace; `Err` is the API server's message.
    pub async fn create(&self, kind: Kind, mut object: Value) -> Result<Value, String> {
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.2);
        self.post(&kind.path(&self.namespace), object).await
    }

    /// Merge-patches an object; `Err` is the API server's message.
    pub async fn patch(&self, kind: Kind, name: &str, patch: Value) -> Result<Value, String> {
        self.patch_at(&format!("{}/{name}", kind.path(&self.namespace)), patch).await
    }

    /// Merge-patches a subresource.
    pub async fn patch_at(&self, path: &str, patch: Value) -> Result<Value, String> {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch).await
    }

    /// Reads an object; `None` if it does not exist.
    pub async fn get(&self, kind: Kind, name: &str) -> Option<Value> {
        let path = format!("{}/{name}", kind.path(&self.namespace));
        self.send(Method::GET, &path, "application/json", Value::Null).await.ok()
    }

    /// All objects of a kind in this namespace.
    pub async fn list(&self, kind: Kind) -> Vec<Value> {
        self.items(&kind.path(&self.namespace)).await
    }

    /// The objects of a kind in this namespace that have `labels` (`a=b,c=d`).
    pub async fn list_with(&self, kind: Kind, labels: &str) -> Vec<Value> {
        self.items(&format!("{}?labelSelector={labels}", kind.path(&self.namespace))).await
    }

    /// The items listed at `path`. A starved API server occasionally breaks off an answer, and
    /// asking again does no harm.
    async fn items(&self, path: &str) -> Vec<Value> {
        let ask = || self.send(Method::GET, path, "application/json", Value::Null);
        let mut list = ask().await;
        for _ in 0..LISTS {
            if list.is_err() {
                list = ask().await;
            }
        }
        list.expect("a list")["items"].as_array().expect("items").clone()
    }

    /// Replaces an object's whole spec; `Err` is the API server's message.
    pub async fn replace_spec(
        &self,
        kind: Kind,
        name: &str,
        spec: &Value,
    ) -> Result<Value, String> {
        let path = format!("{}/{name}", kind.path(&self.namespace));
        let operations = json!([{"op": "replace", "path": "/spec", "value": spec}]);
        self.send(Method::PATCH, &path, "application/json-patch+json", operations).await
    }

    /// What the API server would make of an object, without creating it.
    pub async fn dry_run(&self, kind: Kind, mut object: Value) -> Result<Value, String> {
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.2);
        self.post(&format!("{}?dryRun=All", kind.path(&self.namespace)), object).await
    }

    /// Sets a quota of zero for `resource`, named as the API server counts it; returns when
    /// Kubernetes has noticed it.
    pub async fn forbid(&self, quota: &str, resource: &str) {
        let none = json!({"metadata": {"name": quota}, "spec": {"hard": {resource: "0"}}});
        self.create(QUOTA, none).await.expect("a new quota");
        self.until(QUOTA, quota, |quota| quota["status"]["hard"][resource] == "0").await;
    }

    /// Deletes an object in the background, as kubectl does by default, without waiting.
    pub async fn delete(&self, kind: Kind, name: &str) {
        self.delete_with(kind, name, "Background").await;
    }

    /// Like [`World::delete`], with another propagation policy.
    pub async fn delete_with(&self, kind: Kind, name: &str, policy: &str) {
        let path = format!("{}/{name}", kind.path(&self.namespace));
        let options = json!({"propagationPolicy": policy});
        self.send(Method::DELETE, &path, "application/json", options).await.expect("deleted");
    }

    /// Runs kubectl in this namespace as the administrator.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut all = vec!["-n", &self.namespace];
        all.extend(arguments);
        self.plane.try_kubectl(&all)
    }

    /// The control plane that this world is on.
    pub fn plane(&self) -> &'static ControlPlane {
        self.plane
    }

    // === What a test waits for ===

    /// Waits until the object exists and satisfies `wanted`; returns it.
    pub async fn until(&self, kind: Kind, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let object = self.watch(kind, name, |object| object.is_some_and(&wanted)).await;
        object.expect("only an object that is there can be as wanted")
    }

    /// Does to a pod of a Memcached what the kubelet does if its node is short of memory: the pod
    /// stays, Failed, for people to read. Returns the Memcached, Ready again with another pod that
    /// runs in its place.
    pub async fn evict_a_pod(&self, memcached: &str) -> Value {
        let nodes = |m: &Value| m["status"]["nodes"].as_array().cloned().unwrap_or_default();
        let before = nodes(&self.until(MEMCACHED, memcached, is_ready).await);
        let evicted = before[0].as_str().expect("a name");
        let path = format!("{}/{evicted}/status", POD.path(&self.namespace));
        let status = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
        self.patch_at(&path, status).await.expect("a test may");
        // The Deployment tells later than the pods that one was missing.
        let is_replaced = |m: &Value| nodes(m).len() == before.len() && nodes(m) != before;
        let after = self.until(MEMCACHED, memcached, |m| is_ready(m) && is_replaced(m)).await;
        for pod in nodes(&after) {
            let is_running = |pod: &Value| pod["status"]["phase"] == "Running";
            self.until(POD, pod.as_str().expect("a name"), is_running).await;
        }
        after
    }

    /// Waits until there is no object of that name.
    pub async fn until_gone(&self, kind: Kind, name: &str) {
        self.watch(kind, name, |object| object.is_none()).await;
    }

    /// Waits until condition `condition` of the object is `status` with `reason` for its newest
    /// generation, and returns the condition's message.
    pub async fn until_condition(
        &self,
        kind: Kind,
        name: &str,
        condition: &str,
        (status, reason): (&str, &str),
    ) -> String {
        let found = |object: &Value| {
            let generation = &object["metadata"]["generation"];
            conditions(object)
                .find(|found| {
                    found["type"] == condition
                        && found["status"] == status
                        && found["reason"] == reason
                        && &found["observedGeneration"] == generation
                })
                .map(|found| found["message"].as_str().unwrap_or_default().to_owned())
        };
        let object = self.until(kind, name, |object| found(object).is_some()).await;
        found(&object).expect("it was just found")
    }

    /// Waits for an Event with this reason about the named object; returns it.
    pub async fn until_event(&self, regarding: &str, reason: &str) -> Value {
        self.until_any_event(|event| {
            event["regarding"]["name"] == regarding && event["reason"] == reason
        })
        .await
    }

    /// Waits for an Event that satisfies `wanted`.
    pub async fn until_any_event(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut events = Watcher::open(&self.client, EVENT, &self.namespace, None);
        let mut others = Vec::new();
        let seen = async {
            loop {
                if let Change::Is(event) = events.next().await {
                    if wanted(&event) {
                        return event;
                    }
                    others.push(format!("{} {}", event["reason"], event["note"]));
                }
            }
        };
        let outcome = tokio::time::timeout(self.patience, seen).await;
        outcome.unwrap_or_else(|_| panic!("no such Event in {:?}, but {others:?}", self.patience))
    }

    /// Calls `look` with every object of a kind in this namespace, and again on each change.
    pub fn for_each_change(
        &self,
        kind: Kind,
        mut look: impl FnMut(Value) + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        self.each_change(kind, move |seen| {
            if let Seen::Is(object) = seen {
                look(object);
            }
        })
    }

    /// Like [`World::for_each_change`], but also reports when the watch is opened: from then on
    /// nothing is missed until it is opened again.
    pub fn each_change(
        &self,
        kind: Kind,
        mut look: impl FnMut(Seen) + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let mut changes = Watcher::open(&self.client, kind, &self.namespace, None);
        async move {
            loop {
                match changes.next().await {
                    Change::Is(object) => look(Seen::Is(object)),
                    Change::Reopened => look(Seen::Opened),
                    Change::Gone => {}
                }
            }
        }
    }

    async fn watch(
        &self,
        kind: Kind,
        name: &str,
        wanted: impl Fn(Option<&Value>) -> bool,
    ) -> Option<Value> {
        let mut last = self.get(kind, name).await;
        let mut changes = Watcher::open(&self.client, kind, &self.namespace, Some(name));
        let seen = async {
            while !wanted(last.as_ref()) {
                last = match changes.next().await {
                    // The watch may begin with an older state: the API server's cache lags behind.
                    Change::Is(object) if version(&object) < last.as_ref().map_or(0, version) => {
                        continue;
                    }
                    Change::Is(object) => Some(object),
                    Change::Gone => None,
                    // A watch that ended says nothing about what has happened since.
                    Change::Reopened => self.get(kind, name).await,
                };
            }
        };
        let outcome = tokio::time::timeout(self.patience, seen).await;
        if outcome.is_err() {
            let patience = self.patience;
            panic!("{} {name} was not as wanted in {patience:?}; it is {last:#?}", kind.2);
        }
        last
    }

    // === The wire ===

    pub async fn post(&self, path: &str, body: Value) -> Result<Value, String> {
        self.send(Method::POST, path, "application/json", body).await
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Value,
    ) -> Result<Value, String> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}{separator}fieldManager=administrator"))
            .header("Content-Type", content_type)
            .body(body)
            .expect("a request");
        self.client.request(request).await.map_err(|error| match error {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        })
    }
}

/// Versions of one resource are increasing numbers.
fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.and_then(|version| version.parse().ok()).expect("an object has a version")
}

/// The conditions of an object.
pub fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}

/// Whether condition `condition` has `status` for the object's newest generation.
pub fn has_condition(object: &Value, condition: &str, status: &str) -> bool {
    conditions(object).any(|found| {
        found["type"] == condition
            && found["status"] == status
            && found["observedGeneration"] == object["metadata"]["generation"]
    })
}

/// Whether the object is Ready, for its newest generation.
pub fn is_ready(object: &Value) -> bool {
    has_condition(object, "Ready", "True")
}

/// A Memcached with this many nodes, to be created.
pub fn memcached(name: &str, size: i64) -> Value {
    json!({"metadata": {"name": name}, "spec": {"size": size}})
}

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

    fn resource(self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(self.0, self.1, self.2), self.3)
    }
}

// === Watching ===

/// What a watch of a whole kind reports.
pub enum Seen {
    Opened,
    Is(Value),
}

enum Change {
    Is(Value),
    Gone,
    Reopened,
}

type Stream = std::pin::Pin<
    Box<dyn futures::Stream<Item = Result<WatchEvent<DynamicObject>, kube::Error>> + Send>,
>;

struct Watcher {
    api: Api<DynamicObject>,
    parameters: WatchParams,
    stream: Option<Stream>,
}

impl Watcher {
    fn open(client: &kube::Client, kind: Kind, namespace: &str, name: Option<&str>) -> Watcher {
        let resource = kind.resource();
        let api = if kind.3 == "nodes" {
            Api::all_with(client.clone(), &resource)
        } else {
            Api::namespaced_with(client.clone(), namespace, &resource)
        };
        let mut parameters = WatchParams::default();
        if let Some(name) = name {
            parameters = parameters.fields(&format!("metadata.name={name}"));
        }
        Watcher { api, parameters, stream: None }
    }

    async fn next(&mut self) -> Change {
        loop {
            let Some(stream) = &mut self.stream else {
                // Version 0: what the API server has, as ADDED, then the changes.
                let stream = self.api.watch(&self.parameters, "0").await.expect("a watch");
                self.stream = Some(Box::pin(stream));
                return Change::Reopened;
            };
            match stream.try_next().await {
                Ok(Some(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    return Change::Is(serde_json::to_value(object).expect("JSON"));
                }
                Ok(Some(WatchEvent::Deleted(_))) => return Change::Gone,
                Ok(Some(WatchEvent::Bookmark(_))) => {}
                Ok(Some(WatchEvent::Error(_)) | None) | Err(_) => self.stream = None,
            }
        }
    }
}
