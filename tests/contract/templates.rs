//! Pod and Service templates, on a real API server: workloads as people run them, and what the API server refuses.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use workload_operator::object::list_keys;

use crate::audit::operator_writes;
use crate::world::{
    APP, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, Kind, MEMCACHED, MEMCACHED_IMAGE, SERVICE, World,
    has_condition,
};

const CHILDREN: [&str; 3] = ["deployments", "daemonsets", "services"];

/// The documents of a file.
fn documents(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    documents.map(|document| Value::deserialize(document).unwrap()).collect()
}

fn kind(object: &Value) -> Kind {
    let kinds = [APP, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, MEMCACHED, SERVICE];
    kinds.into_iter().find(|kind| object["kind"] == kind.name()).expect("a known kind")
}

/// Returns the path of a part of `wanted` that `found` lacks.
fn missing(path: &str, wanted: &Value, found: &Value) -> Option<String> {
    let field = path.rsplit('.').next().unwrap_or_default();
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().find_map(|(name, value)| {
            missing(&format!("{path}.{name}"), value, found.get(name).unwrap_or(&Value::Null))
        }),
        (Value::Array(wanted), Value::Array(found)) => {
            let keys = list_keys(field, |name| wanted.iter().any(|it| it.get(name).is_some()));
            let Some(keys) = keys else {
                let pairs = wanted.iter().zip(found);
                let is_other = wanted.len() != found.len();
                return is_other.then(|| path.to_owned()).or_else(|| {
                    pairs.into_iter().find_map(|(one, other)| missing(path, one, other))
                });
            };
            wanted.iter().find_map(|item| {
                let is_same = |other: &&Value| keys.iter().all(|key| item[*key] == other[*key]);
                match found.iter().find(is_same) {
                    Some(other) => missing(&format!("{path}[{}].", item[keys[0]]), item, other),
                    None => Some(format!("{path}[{}]", item[keys[0]])),
                }
            })
        }
        _ => (wanted != found).then(|| format!("{path}: {wanted}, not {found}")),
    }
}

/// Each file of tests/real has a custom resource, and the objects that Kubernetes users would write instead.
#[tokio::test(flavor = "multi_thread")]
async fn workloads_as_people_run_them_can_be_written() {
    let world = World::new("templates-real", "privileged").await;
    let _operator = world.start_operator().await;
    let mut files: Vec<_> = std::fs::read_dir("tests/real").unwrap().collect();
    files.sort_by_key(|file| file.as_ref().unwrap().path());
    for file in files {
        let path = file.unwrap().path();
        let mut documents = documents(&path).into_iter();
        let object = documents.next().expect("a custom resource");
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let custom = kind(&object);
        let created = world.create(custom, object).await;
        created.unwrap_or_else(|refusal| panic!("{}: {refusal}", path.display()));
        for wanted in documents {
            let made = world.until(kind(&wanted), &name, |_| true).await;
            let mut parts = ["spec", "metadata"].into_iter();
            let missing = parts.find_map(|part| missing(part, &wanted[part], &made[part]));
            assert_eq!(missing, None, "{}: {made:#}", path.display());
        }
        let until = |object: &Value| object["status"]["observedGeneration"] == 1;
        let object = world.until(custom, &name, until).await;
        assert!(!has_condition(&object, "Stalled", "True"), "{}: {object:#}", path.display());
    }
    let mut writes = std::collections::BTreeMap::<_, usize>::new();
    for write in operator_writes(&world) {
        if CHILDREN.contains(&write.resource.as_str()) {
            *writes.entry((write.resource, write.name)).or_default() += 1;
        }
    }
    assert!(writes.values().all(|number| *number == 1), "no second write: {writes:?}");
}

/// Specs that the schema accepts and Kubernetes does not, each with the cause.
fn refused() -> Vec<(Value, &'static str)> {
    let with = |pod: Value| json!({"podTemplate": {"spec": pod}});
    let source = json!({"fieldRef": {"fieldPath": "metadata.name"}});
    vec![
        (with(json!({"containers": [{"name": "proxy"}]})), "image: Required value"),
        (
            with(
                json!({"volumes": [{"name": "a", "configMap": {"name": "a"}, "emptyDir": {"medium": "Memory"}}]}),
            ),
            "more than 1 volume type",
        ),
        (with(json!({"restartPolicy": "Never"})), "Unsupported value"),
        (
            json!({"ports": [{"port": 80}, {"port": 80, "protocol": ""}]}),
            "duplicate entries for key",
        ),
        (
            json!({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}),
            "must be less than or equal to cpu limit",
        ),
        (json!({"resources": {"limits": {"gpu": 1}}}), "must be a standard resource"),
        (
            json!({"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}}),
            "may not be specified when strategy `type` is 'Recreate'",
        ),
        (
            json!({"readinessProbe": {"tcpSocket": {"port": 80}, "httpGet": {"port": 80}}}),
            "more than 1 handler type",
        ),
        (json!({"strategy": {"type": "recreate"}}), "Unsupported value"),
        (
            json!({"livenessProbe": {"tcpSocket": {"port": 80}, "initialDelaySeconds": -1}}),
            "must be greater than or equal to 0",
        ),
        (
            json!({"envs": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "", "key": ""}}}]}),
            "secretKeyRef.key: Required value",
        ),
        (
            json!({"ports": [{"name": "http", "port": 80}], "livenessProbe": {"tcpSocket": {"port": "http"}}}),
            "The port http of the livenessProbe is no name of a port of container shop (it has none)",
        ),
        (
            json!({"envs": [{"name": "A", "value": "a", "valueFrom": source}]}),
            "may not be specified when `value` is not empty",
        ),
    ]
}

/// What Kubernetes itself refuses in an owned object is reported with its cause, and heals with the next change.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_api_server_refuses_in_a_child_is_reported() {
    let world = World::new("templates-refused", "privileged").await;
    let _operator = world.start_operator().await;
    let object = json!({"metadata": {"name": "shop"}, "spec": {"image": "shop:1"}});
    world.create(APP, object).await.unwrap();
    world.until(DEPLOYMENT, "shop", |_| true).await;
    for (spec, cause) in refused() {
        world.patch(APP, "shop", json!({"spec": spec})).await.unwrap();
        let message = world.until_condition(APP, "shop", "Stalled", ("True", "Invalid")).await;
        assert!(message.contains(cause), "{message}");
        let without = spec.as_object().unwrap().keys().map(|field| (field.clone(), Value::Null));
        let without: Value = without.collect();
        world.patch(APP, "shop", json!({"spec": without})).await.unwrap();
        world.until(APP, "shop", |app| !has_condition(app, "Stalled", "True")).await;
    }
    for (pod, cause) in [
        (json!({"hostNetwrok": true}), "unknown field \"spec.podTemplate.spec.hostNetwrok\""),
        (json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "1x"}}}]}), "cpu"),
        (json!({"containers": [{"name": "a"}, {"name": "a"}]}), "Duplicate value"),
    ] {
        let object = json!({"apiVersion": APP.api_version(), "kind": "App",
            "metadata": {"name": "other"}, "spec": {"image": "a", "podTemplate": {"spec": pod}}});
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), object.to_string()).unwrap();
        let path = file.path().to_str().unwrap();
        let refused = world.kubectl(&["create", "--dry-run=server", "-f", path]).unwrap_err();
        assert!(refused.contains(cause), "{refused}");
    }
}

/// kubectl describes each field, and refuses a misspelt one before it sends anything.
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_knows_the_fields_of_templates() {
    let world = World::new("templates-kubectl", "privileged").await;
    for (kind, path, described) in [
        (APP, "podTemplate.spec.containers.livenessProbe.grpc", "port\t<integer>"),
        (GENERIC_DAEMON, "podTemplate.spec.affinity.nodeAffinity", "FIELDS:"),
        (MEMCACHED, "serviceTemplate.spec", "loadBalancerSourceRanges"),
        (APP, "envs.valueFrom.secretKeyRef", "key\t<string> -required-"),
    ] {
        let version = format!("--api-version={}", kind.api_version());
        let field = format!("{}.spec.{path}", kind.plural());
        let explained = world.kubectl(&["explain", &field, &version]).unwrap();
        assert!(explained.contains(described), "{path}: {explained}");
    }
    let object = json!({"apiVersion": APP.api_version(), "kind": "App", "metadata": {"name": "other"},
        "spec": {"image": "a", "readinessProbe": {"httpGet": {"port": 80, "pth": "/"}}}});
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), object.to_string()).unwrap();
    let refused = world.kubectl(&["create", "-f", file.path().to_str().unwrap()]).unwrap_err();
    assert!(refused.contains("unknown field \"spec.readinessProbe.httpGet.pth\""), "{refused}");
}

/// Without policies, nobody but the operator decides who can make a pod privileged.
#[tokio::test(flavor = "multi_thread")]
async fn templates_are_refused_unless_they_are_allowed() {
    let world = World::new("templates-not-allowed", "privileged").await;
    let settings = [("ALLOW_TEMPLATES", "false"), ("MEMCACHED_IMAGE", MEMCACHED_IMAGE)];
    let operator = world.start_operator_with(&settings).await;
    operator.logged("Ready to work").await;
    let template = json!({"spec": {"hostNetwork": true}});
    for (kind, spec) in [
        (APP, json!({"image": "a:1", "podTemplate": template})),
        (GENERIC_DAEMON, json!({"image": "a:1", "podTemplate": template})),
        (MEMCACHED, json!({"podTemplate": template})),
        (MEMCACHED, json!({"serviceTemplate": {"spec": {"type": "NodePort"}}})),
    ] {
        let name = format!("{}-{}", kind.name().to_lowercase(), spec.as_object().unwrap().len());
        let name = if spec["serviceTemplate"].is_null() { name } else { format!("{name}-service") };
        world.create(kind, json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
        world.until_condition(kind, &name, "Stalled", ("True", "TemplateNotAllowed")).await;
        for child in [DEPLOYMENT, DAEMON_SET, SERVICE] {
            assert_eq!(world.get(child, &name).await, None);
        }
    }
    let empty = json!({"image": "a:1", "podTemplate": {"spec": {"volumes": [], "affinity": {}}}});
    world.create(APP, json!({"metadata": {"name": "empty"}, "spec": empty})).await.unwrap();
    world.until(DEPLOYMENT, "empty", |_| true).await;
}
