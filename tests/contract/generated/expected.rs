//! What a spec means, written down a second time and independently of the operator: the children as
//! a person would write them by hand, and the status.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::values::IMAGES;
use crate::world::{
    APP, DAEMON_SET, DEPLOYMENT, FOO, GENERIC_DAEMON, Kind, MEMCACHED_IMAGE, SERVICE,
};

/// What should exist.
pub struct Expected {
    /// Children by kind; `None` means that there must be none.
    pub children: Vec<(Kind, Option<Value>)>,
    /// The numeric fields of the status.
    pub counts: Vec<(&'static str, i64)>,
}

/// For a custom resource of this kind, name and spec (with defaults filled in); `nodes` are the
/// labels of all nodes.
pub fn expected(kind: Kind, name: &str, spec: &Value, nodes: &[Value]) -> Expected {
    match kind {
        APP => app(name, spec),
        GENERIC_DAEMON => generic_daemon(name, spec, nodes),
        FOO => foo(name, spec),
        _ => memcached(name, spec),
    }
}

fn labels(kind: &str, name: &str, image: &str) -> Value {
    let mut labels = usual_labels(kind, name, image);
    labels[own_label(kind)] = json!(name);
    labels
}

/// Pods lack the label by which the Service of a Helm release would select them, too.
fn of_pods(labels: &Value) -> Value {
    let mut labels = labels.clone();
    labels.as_object_mut().unwrap().remove("app.kubernetes.io/instance");
    labels
}

/// The label that only a kind's own pods have.
fn own_label(kind: &str) -> &'static str {
    match kind {
        "memcached" => "cache.example.com/memcached",
        "generic-daemon" => "mydomain.com/genericdaemon",
        _ => "app.example.com/v1",
    }
}

fn usual_labels(kind: &str, name: &str, image: &str) -> Value {
    let of_image = IMAGES.iter().find(|(known, _)| *known == image).map(|(_, version)| *version);
    json!({
        "app.kubernetes.io/name": kind,
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/version": of_image.unwrap_or("1.6.26-alpine3.19"),
        "app.kubernetes.io/part-of": "workload-operator",
        "app.kubernetes.io/managed-by": "workload-operator",
        "app.kubernetes.io/created-by": format!("{kind}-controller"),
    })
}

fn selector(kind: &str, name: &str) -> Value {
    json!({own_label(kind): name})
}

/// A pod template with the settings of `spec.pod`.
fn with_settings(mut template: Value, spec: &Value) -> Value {
    let settings = &spec["pod"];
    let mut add = |part: &str, field: &str, value: &Value| {
        for (key, value) in value.as_object().into_iter().flatten() {
            template[part][field][key.as_str()] = value.clone();
        }
    };
    add("metadata", "labels", &settings["labels"]);
    add("metadata", "annotations", &settings["annotations"]);
    add("spec", "nodeSelector", &settings["nodeSelector"]);
    for field in
        ["tolerations", "priorityClassName", "imagePullSecrets", "terminationGracePeriodSeconds"]
    {
        if !settings[field].is_null() {
            template["spec"][field] = settings[field].clone();
        }
    }
    if !settings["preStopSleepSeconds"].is_null() {
        let sleep = json!({"seconds": settings["preStopSleepSeconds"]});
        template["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": sleep}});
    }
    template
}

fn object(labels: &Value, spec: &Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": spec})
}

fn memcached(name: &str, spec: &Value) -> Expected {
    let mut labels = labels("memcached", name, MEMCACHED_IMAGE);
    labels["app"] = json!("memcached");
    labels["memcached_cr"] = json!(name);
    let (size, port) = (spec["size"].as_i64().unwrap(), &spec["containerPort"]);
    let mut command =
        vec![json!("memcached"), json!("-m=64"), json!("-o"), json!("modern"), json!("-v")];
    if port != 11211 {
        command.extend([json!("-p"), json!(port.to_string())]);
    }
    let pod = json!({
        "automountServiceAccountToken": false,
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": "memcached", "image": MEMCACHED_IMAGE, "imagePullPolicy": "IfNotPresent",
            "command": command, "args": ["-m", "64"],
            "ports": [{"name": "memcached", "containerPort": port}],
            "resources": {
                "requests": {"cpu": "100m", "memory": "96Mi"}, "limits": {"memory": "128Mi"},
            },
            "readinessProbe": {"tcpSocket": {"port": "memcached"}},
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 1001, "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
            },
        }],
    });
    let deployment = json!({
        "replicas": size,
        "selector": {"matchLabels": selector("memcached", name)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "template": with_settings(json!({"metadata": {"labels": of_pods(&labels)}, "spec": pod}), spec),
    });
    let service = json!({
        "clusterIP": "None",
        "selector": selector("memcached", name),
        "ports": [{"name": "memcached", "port": port, "targetPort": "memcached"}],
    });
    let children = vec![
        (DEPLOYMENT, Some(object(&labels, &deployment))),
        (SERVICE, Some(object(&labels, &service))),
    ];
    Expected { children, counts: vec![("size", size), ("readyReplicas", size)] }
}

fn generic_daemon(name: &str, spec: &Value, nodes: &[Value]) -> Expected {
    let image = spec["image"].as_str().unwrap();
    let labels = labels("generic-daemon", name, image);
    let latest = IMAGES
        .iter()
        .any(|(known, version)| *known == image && *version == "latest" && !known.contains('@'));
    let mut pod = json!({
        "automountServiceAccountToken": false,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": "daemon", "image": image,
            "imagePullPolicy": if latest { "Always" } else { "IfNotPresent" },
            "securityContext": {"allowPrivilegeEscalation": false},
        }],
    });
    let mut belongs: Box<dyn Fn(&Value) -> bool> = Box::new(|_| true);
    match spec["label"].as_str().map(|label| label.split_once('=').ok_or(label)) {
        None => {}
        Some(Ok((key, value))) => {
            pod["nodeSelector"] = json!({ key: value });
            belongs = Box::new(move |labels| labels[key] == value);
        }
        Some(Err(key)) => {
            let exists = json!([{"matchExpressions": [{"key": key, "operator": "Exists"}]}]);
            pod["affinity"] = json!({"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": exists}}});
            belongs = Box::new(move |labels| labels[key].is_string());
        }
    }
    let chosen = &spec["pod"]["nodeSelector"];
    let is_chosen = |labels: &Value| {
        chosen.as_object().into_iter().flatten().all(|(key, value)| labels[key] == *value)
    };
    let count = nodes.iter().filter(|labels| belongs(labels) && is_chosen(labels)).count() as i64;
    let set = json!({
        "selector": {"matchLabels": selector("generic-daemon", name)},
        "template": with_settings(json!({"metadata": {"labels": of_pods(&labels)}, "spec": pod}), spec),
    });
    let children = vec![(DAEMON_SET, Some(object(&labels, &set)))];
    Expected { children, counts: vec![("desired", count), ("installed", count)] }
}

fn app(name: &str, spec: &Value) -> Expected {
    let labels = labels("app", name, spec["image"].as_str().unwrap());
    let replicas = spec["replicas"].as_i64().unwrap();
    let no_ports = Vec::new();
    let ports = spec["ports"].as_array().unwrap_or(&no_ports);
    let mut container = json!({
        "name": name, "image": spec["image"], "imagePullPolicy": "IfNotPresent",
        "ports": container_ports(ports),
        "env": spec["envs"],
        "securityContext": {
            "allowPrivilegeEscalation": false, "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    if !spec["resources"].is_null() {
        container["resources"] = spec["resources"].clone();
    }
    let deployment = json!({
        "replicas": replicas,
        "selector": {"matchLabels": selector("app", name)},
        "template": with_settings(
            json!({"metadata": {"labels": of_pods(&labels)}, "spec": {"containers": [container]}}), spec),
    });
    let outside = ports.iter().any(|port| !port["nodePort"].is_null());
    let service = json!({
        "type": if outside { "NodePort" } else { "ClusterIP" },
        "selector": selector("app", name),
        "ports": service_ports(ports),
    });
    let service = (!ports.is_empty()).then(|| object(&labels, &service));
    let children = vec![(DEPLOYMENT, Some(object(&labels, &deployment))), (SERVICE, service)];
    let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
    let mut counts: Vec<_> = counts.into_iter().map(|field| (field, replicas)).collect();
    counts.push(("unavailableReplicas", 0));
    Expected { children, counts }
}

/// As Kubernetes' own sample-controller creates it.
fn foo(name: &str, spec: &Value) -> Expected {
    let labels = json!({"app": "nginx", "controller": name});
    let deployment = json!({
        "replicas": spec["replicas"],
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
        },
    });
    let children = vec![(DEPLOYMENT, Some(object(&Value::Null, &deployment)))];
    let replicas = spec["replicas"].as_i64().unwrap();
    Expected { children, counts: vec![("availableReplicas", replicas)] }
}

/// If there are several, each one without a name is named after its protocol and number.
fn service_ports(ports: &[Value]) -> Vec<Value> {
    let taken: BTreeSet<&str> = ports.iter().filter_map(|port| port["name"].as_str()).collect();
    let named = ports.iter().map(|port| {
        let mut port = port.clone();
        if ports.len() > 1 && port["name"].is_null() {
            let protocol = port["protocol"].as_str().unwrap().to_lowercase();
            let plain = format!("{protocol}-{}", port["port"]);
            let mut name = plain.clone();
            let mut number = 2;
            while taken.contains(name.as_str()) {
                name = format!("{plain}-{number}");
                number += 1;
            }
            port["name"] = json!(name);
        }
        port
    });
    named.collect()
}

fn container_ports(ports: &[Value]) -> Vec<Value> {
    let mut names = BTreeMap::<&str, &Value>::new();
    let mut all = BTreeMap::<(i64, &str), Option<&str>>::new();
    for port in ports {
        let key = |number: &Value| (number.as_i64().unwrap(), port["protocol"].as_str().unwrap());
        match &port["targetPort"] {
            Value::String(name) => {
                let lowest = names.entry(name).or_insert(port);
                if port["port"].as_i64() < lowest["port"].as_i64() {
                    *lowest = port;
                }
            }
            Value::Number(_) => drop(all.entry(key(&port["targetPort"])).or_default()),
            _ => drop(all.entry(key(&port["port"])).or_default()),
        }
    }
    for (name, port) in names {
        let key = (port["port"].as_i64().unwrap(), port["protocol"].as_str().unwrap());
        all.insert(key, Some(name));
    }
    let port = |((number, protocol), name): ((i64, &str), Option<&str>)| {
        let mut port = Map::from_iter([
            ("containerPort".to_owned(), json!(number)),
            ("protocol".to_owned(), json!(protocol)),
        ]);
        port.extend(name.map(|name| ("name".to_owned(), json!(name))));
        Value::Object(port)
    };
    all.into_iter().map(port).collect()
}
