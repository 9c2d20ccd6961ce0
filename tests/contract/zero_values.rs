//! A zero value of an optional field means the same as an unset field, as for Kubernetes' own kinds, because
//! Go clients and templates write it.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use workload_operator::memcached::Images;
use workload_operator::{app, crds, generic_daemon, memcached};

use crate::world::{APP, GENERIC_DAEMON, Kind, MEMCACHED, World};

/// Fields whose zero value is a separate setting.
const SETTINGS: &[&str] = &["spec.replicas", "spec.size"];

/// Fields with types of the Kubernetes API, which are sent as they are. templates.rs tests the templates.
const OF_KUBERNETES: &[&str] = &[
    "envs",
    "envFrom",
    "resources",
    "strategy",
    "updateStrategy",
    "readinessProbe",
    "livenessProbe",
    "startupProbe",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_zero_value_of_an_optional_field_means_unset() {
    let world = World::new("zero-values", "privileged").await;
    for kind in [MEMCACHED, GENERIC_DAEMON, APP] {
        let mut schema = schema(kind);
        let fields_of_spec = schema["properties"]["spec"]["properties"].as_object_mut().unwrap();
        fields_of_spec.retain(|field, _| !field.ends_with("Template"));
        let mut all = BTreeSet::new();
        optional(&schema["properties"]["spec"], "spec", &mut all);
        let mut tried = BTreeSet::new();
        for spec in full_specs(kind) {
            let object = json!({"metadata": {"name": "zero"}, "spec": spec});
            for (field, pointer) in fields(&schema["properties"]["spec"], "spec", &object["spec"]) {
                let is_next = all.contains(&field) && !tried.contains(&field);
                if is_next && means_absence(&world, kind, &object, &field, &pointer).await {
                    tried.insert(field);
                }
            }
        }
        let settings: BTreeSet<String> = SETTINGS.iter().map(|field| (*field).to_owned()).collect();
        let missed: Vec<_> = all.difference(&tried).filter(|f| !settings.contains(*f)).collect();
        assert!(missed.is_empty(), "no full spec of {kind:?} has {missed:?}");
    }
}

/// Sets the field to its zero value, and compares the owned objects with those without the field. Returns
/// false if this object requires the field.
async fn means_absence(
    world: &World,
    kind: Kind,
    object: &Value,
    field: &str,
    pointer: &str,
) -> bool {
    let with = |value: Option<Value>| {
        let mut object = object.clone();
        let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
        let parent = object.pointer_mut(parent).expect("the full spec has it");
        let parent = parent.as_object_mut().expect("fields are of objects");
        match value {
            Some(value) => parent.insert(name.to_owned(), value),
            None => parent.remove(name),
        };
        object
    };
    let zero = match object.pointer(pointer).expect("the full spec has it") {
        Value::String(_) => json!(""),
        Value::Bool(_) => json!(false),
        Value::Number(_) => json!(0),
        Value::Array(_) => json!([]),
        _ => json!({}),
    };
    let Ok(without) = world.dry_run(kind, with(None)).await else { return false };
    let accepted = world.dry_run(kind, with(Some(zero.clone()))).await;
    let accepted = accepted.unwrap_or_else(|refusal| panic!("{field}: {zero}: {refusal}"));
    assert_eq!(children(kind, without), children(kind, accepted), "{field}: {zero}");
    true
}

/// Returns the owned objects that the operator creates for an object.
fn children(kind: Kind, object: Value) -> String {
    match kind {
        APP => format!("{:#?}", app::desired(&serde_json::from_value(object).unwrap())),
        GENERIC_DAEMON => {
            format!("{:#?}", generic_daemon::desired(&serde_json::from_value(object).unwrap()))
        }
        _ => {
            let memcached: memcached::Memcached = serde_json::from_value(object).unwrap();
            let settings = memcached::Settings {
                memcached_image: Some("memcached:1".into()),
                exporter_image: Some("exporter:1".into()),
                ..memcached::Settings::default()
            };
            let images = Images::chosen(&memcached.spec, &settings).unwrap();
            format!("{:#?}", memcached::desired(&memcached, &images))
        }
    }
}

fn schema(kind: Kind) -> Value {
    let crds = crds::crds();
    let crd = crds.iter().find(|crd| crd.spec.names.kind == kind.name()).expect("it has a CRD");
    let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref();
    serde_json::to_value(schema.unwrap()).unwrap()
}

/// Collects the optional fields that have a zero value: strings, numbers, lists, maps, and objects of Kubernetes.
/// Another object with fields has none in Go, where it is a pointer.
fn optional(schema: &Value, path: &str, all: &mut BTreeSet<String>) {
    let required = schema["required"].as_array();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let is_required = required.is_some_and(|names| names.iter().any(|other| other == name));
        let is_of_kubernetes = OF_KUBERNETES.contains(&name.as_str());
        let is_struct = field["properties"].is_object() && !is_of_kubernetes;
        if !is_required && !is_struct && !SETTINGS.contains(&path.as_str()) {
            all.insert(path.clone());
        }
        if is_of_kubernetes {
            continue;
        }
        optional(field, &path, all);
        optional(&field["items"], &format!("{path}[]"), all);
    }
}

/// The fields of a value with the JSON pointers to them.
fn fields(schema: &Value, path: &str, value: &Value) -> Vec<(String, String)> {
    fn collect(path: &str, pointer: &str, value: &Value, all: &mut Vec<(String, String)>) {
        for (name, value) in value.as_object().into_iter().flatten() {
            let (path, pointer) = (format!("{path}.{name}"), format!("{pointer}/{name}"));
            all.push((path.clone(), pointer.clone()));
            collect(&path, &pointer, value, all);
        }
        for (index, value) in value.as_array().into_iter().flatten().enumerate() {
            collect(&format!("{path}[]"), &format!("{pointer}/{index}"), value, all);
        }
    }
    assert!(schema["properties"].is_object());
    let mut all = Vec::new();
    collect(path, &format!("/{path}"), value, &mut all);
    all
}

/// Specs that together have every optional field.
fn full_specs(kind: Kind) -> Vec<Value> {
    let resources = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    let probe = json!({"httpGet": {"port": 80}});
    let of_both = json!({
        "image": "a", "resources": resources, "envs": [{"name": "A"}],
        "envFrom": [{"secretRef": {"name": "a"}}], "command": ["a"], "args": ["b"],
        "readinessProbe": probe, "livenessProbe": probe, "startupProbe": probe,
        "securityProfile": "Restricted", "minReadySeconds": 5,
    });
    let and = |more: Value| {
        let mut all = of_both.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    match kind {
        APP => vec![
            and(json!({
                "ports": [{"port": 80, "protocol": "UDP", "name": "web", "targetPort": 8080, "nodePort": 30100,
                    "appProtocol": "http"}],
                "strategy": {"type": "Recreate"}, "podDisruptionBudget": {"maxUnavailable": 1},
            })),
            json!({"image": "a", "ports": [{"port": 80, "targetPort": "web"}]}),
        ],
        GENERIC_DAEMON => {
            vec![and(json!({"label": "logs", "updateStrategy": {"type": "OnDelete"}}))]
        }
        _ => vec![json!({
            "containerPort": 11212, "image": "a", "memory": "128Mi", "maxConnections": 2000, "threads": 2,
            "maxItemSize": "2Mi", "options": ["idle_timeout=600"], "resources": resources,
            "exporter": {"image": "b", "resources": resources}, "readinessProbe": "None", "minReadySeconds": 5,
            "podDisruptionBudget": {"maxUnavailable": 1},
        })],
    }
}
