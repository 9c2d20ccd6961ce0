//! `testing::Server`, against which the cache is tested, behaves like the real API server.
//!
//! The same random requests go to both: creates, updates, merge and JSON patches, applies by two
//! managers, deletes and their preconditions, finalizers, the status subresource, what the schema
//! refuses, reads of missing objects, lists with every combination of limit, continue,
//! resourceVersion, resourceVersionMatch and selectors, watches from everywhere in the history,
//! streaming lists. Status codes, reasons, bodies and the frames of
//! watches must be the same, except for what each server chooses itself: UIDs, and versions as long
//! as their order is the same.
//!
//! A seed determines a script. `MODEL_SEED` is the first (default 0), `MODEL_SEEDS` the number of
//! consecutive ones; see docs/TESTING.md.

mod script;
mod side;
mod stream;
mod trace;

use std::sync::OnceLock;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use workload_operator::client::{
    self, Client, Deletion, Options, Patch, Preconditions, PropagationPolicy,
};
use workload_operator::controller::ErrorClass;
use workload_operator::object::{Kind, Meta, ObjectKey, Resource, ResourceVersion};

use script::{Query, Request, Version, script};
use side::Side;
use trace::{Entry, first_difference};

use crate::control_plane::ControlPlane;
use crate::etcd;
use crate::world::MAX_WAIT;
use controller_machinery::testing::Server;

/// Objects that both servers store: the kind of tests/cache.
const THINGS: &str = "/apis/test.example.com/v1";
/// One is a prefix of the other, and so are the names, because this affects the order of lists.
const NAMESPACES: [&str; 2] = ["model", "model-x"];
const NAMES: [&str; 3] = ["a", "a-b", "b"];

/// Objects that end a script, with their labels. Each watch sees at least one of them.
const FENCES: [(&str, &str); 3] = [
    ("fence", "{}"),
    ("fence-red", r#"{"color": "red"}"#),
    ("fence-blue", r#"{"color": "blue", "value": "0"}"#),
];

/// Number of scripts by default: as many as fit into half a minute.
const SEEDS: u64 = 20;

/// A control plane without controllers: only the API server is compared, and no other client triggers a
/// compaction.
async fn plane() -> &'static ControlPlane {
    static PLANE: OnceLock<ControlPlane> = OnceLock::new();
    static ONE_AT_A_TIME: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
    let start = || PLANE.get_or_init(|| ControlPlane::api_server_alone("model"));
    let plane = tokio::task::spawn_blocking(start).await.expect("it starts");
    ONE_AT_A_TIME.get_or_init(|| prepare(plane)).await;
    plane
}

async fn prepare(plane: &'static ControlPlane) {
    plane.kubectl(&["apply", "-f", "tests/contract/model_server/crd.yaml"]);
    plane.until_established("things.test.example.com");
    for namespace in NAMESPACES {
        plane.kubectl(&["create", "namespace", namespace]);
    }
}

/// The model with the same CustomResourceDefinition.
fn model(seed: u64) -> Server {
    let server = Server::new(seed);
    server.crd(include_str!("model_server/crd.yaml")).expect("it is one");
    server
}

/// Serializes the tests, which write to the same namespaces.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn the_model_responds_like_the_real_api_server() {
    let var = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let first: u64 = var("MODEL_SEED").unwrap_or(0);
    let plane = plane().await;
    let _alone = ALONE.lock().await;
    let mut differences = 0;
    for seed in first..first + var("MODEL_SEEDS").unwrap_or(SEEDS) {
        let requests = script(seed);
        let mut real = Side::real(plane).await;
        let mut model = Side::model(model(seed));
        let traces = (play(&mut real, &requests).await, play(&mut model, &requests).await);
        real.clear().await;
        if let Some(difference) = first_difference(&traces.0, &traces.1) {
            differences += 1;
            println!(
                "{difference}\nMODEL_SEED={seed} MODEL_SEEDS=1 cargo test --test contract \
                 model_server repeats it"
            );
        }
    }
    assert_eq!(differences, 0, "scripts went otherwise on the model: see above");
}

/// Sends all requests one after another, then waits until each watch has shown everything.
async fn play(side: &mut Side, requests: &[Request]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for request in requests {
        entries.push(side.perform(request).await);
    }
    fence(side, &mut entries).await;
    entries
}

/// Creates the last objects in each namespace, one for each selector, and waits until the watches have shown them.
async fn fence(side: &mut Side, entries: &mut Vec<Entry>) {
    for namespace in NAMESPACES {
        for (name, labels) in FENCES {
            let mut request = Request::create(namespace, name, json!({"value": 0}));
            request.body["metadata"]["labels"] = serde_json::from_str(labels).expect("JSON");
            let entry = side.perform(&request).await;
            assert_eq!(entry.code, 201, "{entry:?}");
            entries.push(entry);
        }
    }
    for entry in entries {
        entry.finish(MAX_WAIT).await;
    }
}

/// A list is read page by page, and all old versions are compacted before it continues.
#[tokio::test(flavor = "multi_thread")]
async fn the_model_reports_compacted_versions_like_the_real_server() {
    let plane = plane().await;
    let _alone = ALONE.lock().await;
    let (mut real, mut model) = (Side::real(plane).await, Side::model(model(1)));
    let mut traces = (Vec::new(), Vec::new());
    for (side, entries) in [(&mut real, &mut traces.0), (&mut model, &mut traces.1)] {
        for (namespace, name) in [("model", "a"), ("model", "b"), ("model-x", "a")] {
            entries.push(side.perform(&Request::create(namespace, name, json!({}))).await);
        }
        entries.push(side.perform(&Request::list(None, vec![("limit", Query::text("1"))])).await);
        entries.push(side.perform(&Request::create("model-x", "b", json!({}))).await);
    }
    etcd::compact(plane).await;
    // The API server notices it within 15 s.
    tokio::time::timeout(MAX_WAIT, async {
        while real.perform(&exact(3)).await.code != 410 {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    })
    .await
    .expect("a compacted version is gone");
    model.compact_history();
    for (side, entries) in [(&mut real, &mut traces.0), (&mut model, &mut traces.1)] {
        for request in after_compaction() {
            entries.push(side.perform(&request).await);
        }
    }
    real.clear().await;
    assert_eq!(first_difference(&traces.0, &traces.1), None);
}

/// The list exactly as it was at the version of a response.
fn exact(answer: usize) -> Request {
    let at = ("resourceVersion", Query::Version(Version::At(answer)));
    Request::list(None, vec![at, ("resourceVersionMatch", Query::text("Exact"))])
}

/// Requests after a compaction: exact lists and pages from before; the token of a refusal, which continues
/// with the current state; a list that can be newer; a watch from before all remembered events.
fn after_compaction() -> Vec<Request> {
    let rest = |token| Request::list(None, vec![("continue", Query::Token(token))]);
    let watch = |query| Request::list(None, query).watched();
    vec![
        exact(0),
        exact(3),
        rest(0),
        rest(1),
        Request::list(None, vec![("resourceVersion", Query::Version(Version::At(3)))]),
        watch(vec![("resourceVersion", Query::text("1"))]),
        Request::get("model", "a"),
        Request::get("model", "none"),
    ]
}

/// Returns whether a value is null, that is, there is no body.
fn absent(value: &Value) -> bool {
    value.is_null()
}

/// For some kinds, the API server responds with the deleted object, for others with a Status.
#[tokio::test(flavor = "multi_thread")]
async fn a_delete_reports_for_every_kind_whether_the_object_remains() {
    let config = client::config(Some(plane().await.kubeconfig()), None).await.unwrap();
    let real = Client::new(config, Options::default()).await.unwrap();
    let model = Client::from_service(Server::new(1), Options::default());
    for server in [real, model] {
        assert_eq!(deleted::<Service>(&server, "gone", json!(null)).await, Deletion::Deleted);
        assert_eq!(deleted::<ConfigMap>(&server, "gone", json!(null)).await, Deletion::Deleted);
        let kept = json!(["example.com/kept"]);
        assert_eq!(deleted::<Service>(&server, "kept", kept.clone()).await, Deletion::Terminating);
        assert_eq!(deleted::<ConfigMap>(&server, "kept", kept).await, Deletion::Terminating);
    }
}

#[derive(Debug, serde::Deserialize)]
struct Service {
    metadata: Meta,
}
workload_operator::view!(Service: Kind::namespaced("", "v1", "Service", "services"));

#[derive(Debug, serde::Deserialize)]
struct ConfigMap {
    metadata: Meta,
}
workload_operator::view!(ConfigMap: Kind::namespaced("", "v1", "ConfigMap", "configmaps"));

/// Creates such an object, deletes it, and returns the client's result of the deletion.
async fn deleted<V: Resource>(client: &Client, name: &str, finalizers: Value) -> Deletion {
    let key = ObjectKey::new(NAMESPACES[0], name);
    let mut body = json!({
        "apiVersion": V::kind().api_version(),
        "kind": V::kind().kind,
        "metadata": {"name": name, "finalizers": finalizers},
    });
    if V::kind().kind == "Service" {
        body["spec"] = json!({"ports": [{"port": 80}]});
    }
    let made = client.create::<V>(&key, &body).await.unwrap();
    let only = Preconditions { uid: made.uid(), version: ResourceVersion::UNKNOWN };
    let deletion = client.delete::<V>(&key, only, PropagationPolicy::Background).await.unwrap();
    if deletion == Deletion::Terminating {
        let free = json!({"metadata": {"finalizers": null}});
        client.patch::<V>(&key, &Patch::Merge(&free)).await.unwrap();
    }
    deletion
}

#[derive(Debug, serde::Deserialize)]
struct Backup {
    metadata: Meta,
}
workload_operator::view!(Backup: Kind::namespaced("nobody.example.com", "v1", "Backup", "backups"));

/// A child whose CustomResourceDefinition is missing must not be retried like a conflict.
#[tokio::test(flavor = "multi_thread")]
async fn an_unserved_kind_is_distinguished_from_a_missing_object() {
    let config = client::config(Some(plane().await.kubeconfig()), None).await.unwrap();
    let real = Client::new(config, Options::default()).await.unwrap();
    let key = ObjectKey::new(NAMESPACES[0], "none");
    let body = json!({"apiVersion": "nobody.example.com/v1", "kind": "Backup",
        "metadata": {"name": "none"}});
    for result in [
        real.create::<Backup>(&key, &body).await,
        real.patch::<Backup>(&key, &Patch::Apply(&body)).await,
        real.patch::<Backup>(&key, &Patch::Merge(&json!({}))).await,
    ] {
        let error = result.unwrap_err();
        assert_eq!(ErrorClass::of(&error), ErrorClass::NotServed, "{error:?}");
        assert!(error.to_string().contains("backups.nobody.example.com"), "{error}");
    }
    for missing in [
        real.get::<ConfigMap>(&key).await,
        real.patch::<ConfigMap>(&key, &Patch::Merge(&json!({}))).await,
    ] {
        let error = missing.unwrap_err();
        assert_eq!(ErrorClass::of(&error), ErrorClass::Conflict, "{error:?}");
    }
}

/// A controller that passes its tests on the model must not be refused by a kube-apiserver.
#[tokio::test(flavor = "multi_thread")]
async fn unusual_requests_get_the_same_code() {
    let _alone = ALONE.lock().await;
    let (real, model) = (Side::real(plane().await).await, Side::model(model(1)));
    let things = format!("{THINGS}/namespaces/model/things");
    let core = |resource: &str| format!("/api/v1/namespaces/model/{resource}");
    let thing = |metadata: Value| json!({"apiVersion": "test.example.com/v1", "kind": "Thing", "metadata": metadata});
    let built_in = |kind: &str| {
        let spec = match kind {
            "Service" => json!({"spec": {"ports": [{"port": 80}]}}),
            _ => json!({}),
        };
        let mut body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "unusual"}});
        body.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        body
    };
    let without_uid = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": ""}]);
    let invalid = [
        json!({"name": "a", "labels": {"a": "b".repeat(64)}}),
        json!({"name": "a", "labels": {"a": "b c"}}),
        json!({"name": "a", "labels": {"a/b/c": "d"}}),
        json!({"name": "a", "annotations": {"a b": "c"}}),
        json!({"name": "a", "finalizers": ["a b"]}),
        json!({"name": "a", "ownerReferences": without_uid}),
    ];
    let mut requests: Vec<_> = invalid
        .into_iter()
        .map(|metadata| (Method::POST, things.clone(), thing(metadata)))
        .collect();
    requests.push((Method::PUT, core("configmaps/unusual"), built_in("ConfigMap")));
    requests.push((Method::POST, core("configmaps"), built_in("ConfigMap")));
    requests.push((Method::PUT, core("configmaps/unusual"), built_in("ConfigMap")));
    requests.push((Method::PUT, core("services/unusual"), built_in("Service")));
    requests.push((Method::POST, core("configmaps"), built_in("ConfigMop")));
    requests.push((Method::DELETE, core("configmaps/unusual"), json!({})));
    requests.push((Method::DELETE, core("services/unusual"), json!({})));
    for (method, path, body) in requests {
        let code = real.code(&method, &path, &body).await;
        assert_eq!(model.code(&method, &path, &body).await, code, "{method} {path} {body}");
    }
}

/// Defaults have no owner, so the model does not need to know them.
#[tokio::test(flavor = "multi_thread")]
async fn an_apply_of_built_in_kinds_gives_the_same_owners() {
    let plane = plane().await;
    let (real, model) = (Side::real(plane).await, Side::model(Server::new(1)));
    for (resource, configs) in built_in() {
        for (manager, config) in ["one", "other", "one"].into_iter().zip(configs) {
            let name = config["metadata"]["name"].as_str().expect("a name").to_owned();
            let path = format!("{resource}/{name}?fieldManager={manager}&force=true");
            let owners = async |side: &Side| {
                let applied = side.apply(&path, &config).await;
                let mut owners = applied["metadata"]["managedFields"].clone();
                let entries = owners.as_array_mut().unwrap_or_else(|| panic!("{path}: {applied}"));
                entries.iter_mut().for_each(|entry| drop(entry["time"].take()));
                entries.sort_by_key(ToString::to_string);
                owners
            };
            assert_eq!(owners(&model).await, owners(&real).await, "{path}");
        }
    }
}

/// Configurations of a Deployment, a Service and a PodDisruptionBudget, each applied by one manager, then by another,
/// then with fewer fields by the first.
fn built_in() -> [(&'static str, [Value; 3]); 3] {
    let object = |kind: &str, version: &str, spec: Value| {
        json!({ "apiVersion": version, "kind": kind, "spec": spec,
            "metadata": { "name": "owned", "labels": { "a": "b" }, "annotations": { "c": "d" } } })
    };
    let deployment = |pod: Value| {
        let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": pod });
        let selector = json!({ "matchLabels": { "a": "b" } });
        let spec = json!({ "replicas": 0, "selector": selector, "template": template });
        object("Deployment", "apps/v1", spec)
    };
    let service =
        |ports: Value| object("Service", "v1", json!({ "ports": ports, "selector": { "a": "b" } }));
    let budget = |spec: Value| object("PodDisruptionBudget", "policy/v1", spec);
    [
        ("/apis/apps/v1/namespaces/model/deployments", pods().map(deployment)),
        (
            "/api/v1/namespaces/model/services",
            [
                service(json!([{ "port": 80, "name": "a" }, { "port": 81, "name": "b" }])),
                service(json!([{ "port": 80, "name": "a", "protocol": "TCP" }])),
                service(json!([{ "port": 81, "name": "b", "targetPort": "x" }])),
            ],
        ),
        (
            "/apis/policy/v1/namespaces/model/poddisruptionbudgets",
            [
                budget(json!({ "maxUnavailable": 1, "selector": { "matchLabels": { "a": "b" } } })),
                budget(json!({ "maxUnavailable": 1, "selector": { "matchLabels": { "c": "d" } } })),
                budget(json!({ "selector": { "matchLabels": { "a": "b" } } })),
            ],
        ),
    ]
}

/// Specs of pods with lists and maps of all types.
fn pods() -> [Value; 3] {
    let whole = json!({
        "containers": [{ "name": "main", "image": "a", "command": ["a", "b"],
            "env": [{ "name": "A", "value": "1" },
                { "name": "B", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }],
            "ports": [{ "containerPort": 80, "name": "http" }],
            "resources": { "requests": { "cpu": "1" }, "limits": { "memory": "1Gi" } },
            "securityContext": { "capabilities": { "drop": ["ALL"] } },
            "readinessProbe": { "httpGet": { "path": "/", "port": 80 } },
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }],
        "nodeSelector": { "a": "b" }, "imagePullSecrets": [{ "name": "pull" }],
        "volumes": [{ "name": "data", "emptyDir": {} }], "tolerations": [{ "operator": "Exists" }],
        "hostAliases": [{ "ip": "10.0.0.1", "hostnames": ["a"] }],
        "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchFields": [
                { "key": "metadata.name", "operator": "In", "values": ["a"] }] }] } } },
        "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": { "matchLabels": { "a": "b" } } }],
    });
    let other = json!({
        "containers": [{ "name": "main", "image": "b", "command": ["c"],
            "env": [{ "name": "A", "value": "1" }, { "name": "C", "value": "3" }],
            "ports": [{ "containerPort": 80, "protocol": "TCP", "name": "web" }],
            "resources": { "limits": { "memory": "1Gi", "cpu": "2" } } }],
        "nodeSelector": { "c": "d" }, "volumes": [{ "name": "more", "emptyDir": {} }],
    });
    [whole, other, json!({ "containers": [{ "name": "main", "image": "a" }] })]
}
