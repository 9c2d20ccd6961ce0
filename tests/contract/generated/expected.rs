//! The meaning of a spec, defined a second time and independently of the operator: the owned objects as a
//! user would write them, and the status.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use workload_operator::object::Quantity;

use super::values::IMAGES;
use crate::world::{
    APP, BUDGET, DAEMON_SET, DEPLOYMENT, EXPORTER_IMAGE, FOO, GENERIC_DAEMON, Kind,
    MEMCACHED_IMAGE, SERVICE,
};

/// The expected state.
pub struct Expected {
    /// Children by kind; `None` means that there must be none.
    pub children: Vec<(Kind, Option<Value>)>,
    /// The numeric fields of the status.
    pub counts: Vec<(&'static str, i64)>,
}

/// For a custom resource of this kind, name and spec (with defaults filled in); `nodes` are the
/// labels of all nodes.
pub fn expected(kind: Kind, name: &str, spec: &Value, nodes: &[Value]) -> Expected {
    let spec = &without_zeros(spec);
    match kind {
        APP => app(name, spec),
        GENERIC_DAEMON => generic_daemon(name, spec, nodes),
        FOO => foo(name, spec),
        _ => memcached(name, spec),
    }
}

/// A spec without the fields whose zero value means that they are absent.
fn without_zeros(spec: &Value) -> Value {
    const ABSENT_IF_ZERO: &[&str] = &[
        "containerPort",
        "maxConnections",
        "threads",
        "maxUnavailable",
        "minReadySeconds",
        "targetPort",
        "nodePort",
        "initialDelaySeconds",
        "periodSeconds",
        "timeoutSeconds",
        "failureThreshold",
    ];
    const TEXTS: &[&str] = &["value", "labels", "annotations", "nodeSelector"];
    let is_absent = |field: &str, value: &Value| {
        (*value == "" && field != "value") || (*value == 0 && ABSENT_IF_ZERO.contains(&field))
    };
    match spec {
        Value::Object(fields) => {
            // A pace of 0 is one.
            let is_pace = fields.contains_key("maxSurge");
            let set = fields.iter().filter(|(field, value)| is_pace || !is_absent(field, value));
            let set = set.map(|(field, value)| {
                let is_text = TEXTS.contains(&field.as_str());
                (field.clone(), if is_text { value.clone() } else { without_zeros(value) })
            });
            set.collect()
        }
        Value::Array(items) => items.iter().map(without_zeros).collect(),
        other => other.clone(),
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
    let program = if kind == "memcached" { kind } else { name };
    json!({
        "app.kubernetes.io/name": program,
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

/// The memory of a Memcached in MiB, and the arguments that its spec stands for.
fn arguments(spec: &Value) -> (i64, Vec<String>) {
    let memory: i64 =
        spec["memory"].as_str().unwrap_or("64Mi").trim_end_matches("Mi").parse().unwrap();
    let mut arguments = vec!["-m".to_owned(), memory.to_string()];
    for (field, option) in [("maxConnections", "-c"), ("threads", "-t")] {
        if !spec[field].is_null() {
            arguments.extend([option.to_owned(), spec[field].to_string()]);
        }
    }
    if let Some(size) = spec["maxItemSize"].as_str() {
        arguments.extend(["-I".to_owned(), size.replace("Mi", "m")]);
    }
    let options = spec["options"].as_array().into_iter().flatten();
    let options: Vec<_> = options.map(|option| option.as_str().unwrap()).collect();
    if !options.is_empty() {
        arguments.extend(["-o".to_owned(), options.join(",")]);
    }
    (memory, arguments)
}

/// The PodDisruptionBudget, if the spec asks for one.
fn budget(labels: &Value, deployment: &Value, spec: &Value) -> Option<Value> {
    let most = &spec["podDisruptionBudget"]["maxUnavailable"];
    let budget = json!({"selector": deployment["selector"], "maxUnavailable": most,
        "unhealthyPodEvictionPolicy": "AlwaysAllow"});
    (!most.is_null()).then(|| object(labels, &budget))
}

/// Sets `minReadySeconds` and the deadline of a Deployment: Kubernetes' 600 s plus the time for startup, for
/// `minReadySeconds` and, with Recreate, for the termination of old pods.
fn with_pace(deployment: &mut Value, spec: &Value) {
    let number = |value: &Value, absent: i64| value.as_i64().unwrap_or(absent);
    if let Some(seconds) = spec["minReadySeconds"].as_i64() {
        deployment["minReadySeconds"] = json!(seconds);
    }
    let mut seconds = 600 + number(&spec["minReadySeconds"], 0);
    let startup = &spec["startupProbe"];
    if !startup.is_null() {
        let failing =
            number(&startup["periodSeconds"], 10) * number(&startup["failureThreshold"], 3);
        seconds += number(&startup["initialDelaySeconds"], 0) + failing;
    }
    seconds += number(&spec["readinessProbe"]["initialDelaySeconds"], 0);
    if spec["strategy"]["type"] == "Recreate" {
        seconds += number(&spec["podTemplate"]["spec"]["terminationGracePeriodSeconds"], 0);
    }
    deployment["progressDeadlineSeconds"] = json!(seconds);
}

/// The security context of a container with the profile of the spec.
fn restrict(security: &mut Value, spec: &Value) {
    if spec["securityProfile"] == "Restricted" {
        security["runAsNonRoot"] = json!(true);
        security["capabilities"] = json!({"drop": ["ALL"]});
    }
}

/// Sets the fields of a container that the spec has.
fn with_fields(container: &mut Value, spec: &Value) {
    const FIELDS: [&str; 8] = [
        "command",
        "args",
        "envs",
        "envFrom",
        "resources",
        "readinessProbe",
        "livenessProbe",
        "startupProbe",
    ];
    for field in FIELDS.into_iter().filter(|field| !spec[*field].is_null()) {
        container[if field == "envs" { "env" } else { field }] = spec[field].clone();
    }
}

/// A pod template with that of the spec over it.
fn with_template(mut template: Value, spec: &Value) -> Value {
    template["spec"]["enableServiceLinks"] = json!(false);
    // Always sent.
    for field in ["serviceAccount", "serviceAccountName"] {
        template["spec"][field] = json!("default");
    }
    for part in ["metadata", "spec"] {
        for (field, value) in spec["podTemplate"][part].as_object().into_iter().flatten() {
            let there = &mut template[part][field.as_str()];
            match value {
                Value::Object(map) => {
                    map.iter().for_each(|(key, value)| there[key.as_str()] = value.clone());
                }
                value => *there = value.clone(),
            }
        }
    }
    template
}

fn object(labels: &Value, spec: &Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": spec})
}

/// The resources of a Memcached's pod that has this memory in MiB.
fn memcached_resources(spec: &Value, memory: i64) -> Value {
    // Two for a thousand connections beyond memcached's own 1024.
    let beyond = spec["maxConnections"].as_f64().map_or(0.0, |most| (most - 1024.0).max(0.0));
    let more = (beyond * 2.0 / 1000.0).ceil() as i64;
    let needed = json!(format!("{}Mi", (memory as f64 * 1.2).ceil() as i64 + 64 + more));
    with_defaults(&spec["resources"], "100m", &needed, &needed)
}

/// Returns the resources of a spec, with defaults for missing ones, so that no request is above its limit.
fn with_defaults(own: &Value, cpu: &str, request: &Value, limit: &Value) -> Value {
    let amount = |value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Quantity::new(&text).millis().unwrap()
    };
    let mut all = own.as_object().map_or_else(|| json!({}), |own| json!(own));
    let or = |given: &Value, default: &Value| {
        if given.is_null() { default.clone() } else { given.clone() }
    };
    let asked = or(&all["requests"]["memory"], limit);
    let most = if amount(&asked) > amount(limit) { &asked } else { limit };
    all["limits"]["memory"] = or(&all["limits"]["memory"], most);
    let most = all["limits"]["memory"].clone();
    let least = if amount(&most) < amount(request) { &most } else { request };
    all["requests"]["memory"] = or(&all["requests"]["memory"], least);
    let (cpu, most) = (json!(cpu), or(&all["limits"]["cpu"], &json!(cpu)));
    let least = if amount(&most) < amount(&cpu) { &most } else { &cpu };
    all["requests"]["cpu"] = or(&all["requests"]["cpu"], least);
    // Access to a missing field has created it as null.
    for kind in ["limits", "requests"] {
        all[kind].as_object_mut().unwrap().retain(|_, amount| !amount.is_null());
    }
    all
}

/// The container of a Memcached's exporter.
fn exporter(spec: &Value, port: &Value) -> Value {
    let resources = with_defaults(&spec["resources"], "10m", &json!("32Mi"), &json!("64Mi"));
    json!({
        "name": "metrics", "image": spec["image"].as_str().unwrap_or(EXPORTER_IMAGE),
        "imagePullPolicy": "IfNotPresent",
        "args": [format!("--memcached.address=localhost:{port}")],
        "ports": [{"name": "metrics", "containerPort": 9150}],
        "resources": resources,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 65534, "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
    })
}

fn memcached(name: &str, spec: &Value) -> Expected {
    let image = spec["image"].as_str().unwrap_or(MEMCACHED_IMAGE);
    let mut labels = labels("memcached", name, image);
    labels["app"] = json!("memcached");
    labels["memcached_cr"] = json!(name);
    let size = spec["size"].as_i64().unwrap();
    let port = &json!(spec["containerPort"].as_i64().unwrap_or(11211));
    let mut command =
        vec![json!("memcached"), json!("-m=64"), json!("-o"), json!("modern"), json!("-v")];
    if *port != 11211 {
        command.extend([json!("-p"), json!(port.to_string())]);
    }
    let (memory, arguments) = arguments(spec);
    let resources = memcached_resources(spec, memory);
    let probe = match spec["readinessProbe"].as_str() {
        Some("None") => Value::Null,
        _ => json!({"tcpSocket": {"port": "memcached"}}),
    };
    let mut pod = json!({
        "automountServiceAccountToken": false,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": "memcached", "image": image, "imagePullPolicy": "IfNotPresent",
            "command": command, "args": arguments,
            "ports": [{"name": "memcached", "containerPort": port}],
            "resources": resources,
            "readinessProbe": probe,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 1001, "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            },
        }],
    });
    if !spec["exporter"].is_null() {
        pod["containers"].as_array_mut().unwrap().push(exporter(&spec["exporter"], port));
    }
    let mut deployment = json!({
        "replicas": size,
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": selector("memcached", name)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "template": with_template(json!({"metadata": {"labels": of_pods(&labels)}, "spec": pod}), spec),
    });
    with_pace(&mut deployment, spec);
    let service = json!({
        "clusterIP": "None",
        "selector": selector("memcached", name),
        "ports": [{"name": "memcached", "port": port, "targetPort": "memcached"}],
    });
    let children = vec![
        (DEPLOYMENT, Some(object(&labels, &deployment))),
        (SERVICE, Some(object(&labels, &service))),
        (BUDGET, budget(&labels, &deployment, spec)),
    ];
    Expected { children, counts: vec![("size", size), ("readyReplicas", size)] }
}

fn generic_daemon(name: &str, spec: &Value, nodes: &[Value]) -> Expected {
    let image = spec["image"].as_str().unwrap();
    let labels = labels("generic-daemon", name, image);
    let mut pod = json!({
        "automountServiceAccountToken": false,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": "daemon", "image": image,
            "imagePullPolicy": "IfNotPresent",
            "securityContext": {"allowPrivilegeEscalation": false},
        }],
    });
    restrict(&mut pod["containers"][0]["securityContext"], spec);
    let mut belongs: Box<dyn Fn(&Value) -> bool> = Box::new(|_| true);
    with_fields(&mut pod["containers"][0], spec);
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
    let chosen = &spec["podTemplate"]["spec"]["nodeSelector"];
    let is_chosen = |labels: &Value| {
        chosen.as_object().into_iter().flatten().all(|(key, value)| labels[key] == *value)
    };
    let count = nodes.iter().filter(|labels| belongs(labels) && is_chosen(labels)).count() as i64;
    let mut set = json!({
        "selector": {"matchLabels": selector("generic-daemon", name)},
        "revisionHistoryLimit": 2,
        "template": with_template(json!({"metadata": {"labels": of_pods(&labels)}, "spec": pod}), spec),
    });
    if !spec["minReadySeconds"].is_null() {
        set["minReadySeconds"] = spec["minReadySeconds"].clone();
    }
    if !spec["updateStrategy"].is_null() {
        set["updateStrategy"] = spec["updateStrategy"].clone();
    }
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
        "securityContext": {
            "allowPrivilegeEscalation": false, "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    with_fields(&mut container, spec);
    restrict(&mut container["securityContext"], spec);
    let pod = json!({"containers": [container], "automountServiceAccountToken": false});
    let mut deployment = json!({
        "replicas": replicas,
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": selector("app", name)},
        "template": with_template(
            json!({"metadata": {"labels": of_pods(&labels)}, "spec": pod}), spec),
    });
    with_pace(&mut deployment, spec);
    if !spec["strategy"].is_null() {
        deployment["strategy"] = spec["strategy"].clone();
    }
    let outside = ports.iter().any(|port| !port["nodePort"].is_null());
    let service = json!({
        "type": if outside { "NodePort" } else { "ClusterIP" },
        "selector": selector("app", name),
        "ports": service_ports(ports),
    });
    let service = (!ports.is_empty()).then(|| object(&labels, &service));
    let budget = budget(&labels, &deployment, spec);
    let children = vec![
        (DEPLOYMENT, Some(object(&labels, &deployment))),
        (SERVICE, service),
        (BUDGET, budget),
    ];
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
            let protocol = protocol(&port).to_lowercase();
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

fn protocol(port: &Value) -> &str {
    port["protocol"].as_str().unwrap_or("TCP")
}

fn container_ports(ports: &[Value]) -> Vec<Value> {
    let mut names = Vec::<(&str, &Value)>::new();
    let mut all = BTreeMap::<(i64, &str), Option<&str>>::new();
    for port in ports {
        let key = |number: &Value| (number.as_i64().unwrap(), protocol(port));
        match &port["targetPort"] {
            Value::String(name) => names.push((name, port)),
            Value::Number(_) => drop(all.entry(key(&port["targetPort"])).or_default()),
            _ => drop(all.entry(key(&port["port"])).or_default()),
        }
    }
    for (name, port) in names {
        let key = (port["port"].as_i64().unwrap(), protocol(port));
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
