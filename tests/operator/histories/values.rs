//! Values that the schema leaves open: strings with a meaning, and values that depend on each other.

use std::collections::BTreeSet;

use fastrand::Rng;
use serde_json::{Map, Value, json};

const IMAGES: &[&str] = &[
    "nginx",
    "nginx:1.27",
    "nginx:1.27.1-alpine",
    "registry.example.com:5000/team/shop:v2",
    "shop@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "shop:v3@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
];

/// Node selectors in every form that a GenericDaemon accepts, including some that match no node.
const LABELS: &[&str] = &[
    "logs",
    "logs=true",
    "logs=",
    "disk",
    "disk=ssd",
    "disk=floppy",
    "kubernetes.io/os=linux",
    "example.com/nobody",
];

/// Settings of memcached's -o, in each form that the schema accepts.
pub const MEMCACHED_OPTIONS: &[&str] = &[
    "maxconns_fast",
    "no_maxconns_fast",
    "slab_reassign",
    "no_slab_reassign",
    "lru_crawler",
    "no_lru_crawler",
    "lru_maintainer",
    "no_lru_maintainer",
    "inline_ascii_resp",
    "no_inline_ascii_resp",
    "modern",
    "no_modern",
    "no_hashexpand",
    "no_slab_automove",
    "no_chunked_items",
    "track_sizes",
    "slab_automove",
    "slab_automove=0",
    "slab_automove=2",
    "hash_algorithm=jenkins",
    "hash_algorithm=xxh3",
    "hashpower=16",
    "hashpower=20",
    "slab_automove_ratio=0.8",
    "slab_automove_window=30",
    "lru_crawler_tocrawl=10",
    "idle_timeout=0",
    "idle_timeout=600",
    "hot_max_factor=0.2",
    "warm_max_factor=2.0",
    "hot_lru_pct=2",
    "hot_lru_pct=40",
    "warm_lru_pct=40",
    "tail_repair_time=10",
    "lru_crawler_sleep=0",
    "lru_crawler_sleep=999999",
    "watcher_logbuf_size=64",
    "worker_logbuf_size=64",
    "worker_logbuf_size=9999",
    "read_buf_mem_limit=10",
];

/// Returns a value that depends on the path.
pub fn by_path(path: &str, is_a_word: bool, rng: &mut Rng) -> Option<Value> {
    let one_of = |texts: &[&str], rng: &mut Rng| Some(json!(rng.choice(texts).expect("some")));
    match path {
        "spec.image" => one_of(IMAGES, rng),
        "spec.label" => one_of(LABELS, rng),
        "spec.resources" => Some(resources(rng)),
        "spec.podTemplate" => Some(json!({"spec": pod(rng), "metadata": metadata(rng)})),
        "spec.command[]" | "spec.args[]" => one_of(&["run", "--verbose", "$(A)", ""], rng),
        "spec.envs" => Some(variables(rng)),
        "spec.envs[]" => Some(json!({"name": "MORE", "value": "1"})),
        "spec.envFrom[]" => Some(json!({"secretRef": {"name": "mine", "optional": true}})),
        "spec.envFrom" => {
            Some(json!([{"prefix": "P_", "configMapRef": {"name": "settings", "optional": true}}]))
        }
        "spec.maxConnections" => {
            Some(json!(*rng.choice(&[0, 512, 1025, 2048, 65536]).expect("some")))
        }
        "spec.strategy" => Some(strategy(rng)),
        // Otherwise, pods that are not deleted would remain unchanged.
        "spec.updateStrategy" => Some(json!({"rollingUpdate": {"maxUnavailable": "50%"}})),
        "spec.minReadySeconds" => Some(json!(rng.i64(0..2))),
        "spec.podDisruptionBudget.maxUnavailable" => {
            Some(rng.choice([json!(1), json!(2), json!("50%")]).expect("some"))
        }
        "spec.memory" => one_of(&["64Mi", "100Mi", "256Mi"], rng),
        "spec.exporter.image" => one_of(&["exporter:1", "mine:2"], rng),
        "spec.exporter.resources" => Some(resources(rng)),
        "spec.maxItemSize" => one_of(&["1Mi", "8Mi", "32Mi"], rng),
        "spec.options[]" => one_of(MEMCACHED_OPTIONS, rng),
        "spec.ports[].port" => {
            Some(json!(*rng.choice(&[1, 53, 80, 443, 8080, 65535]).expect("some")))
        }
        "spec.ports[].name" => {
            one_of(&["web", "tls", "admin", "tcp-80", "tcp-443", "8080", "a"], rng)
        }
        "spec.ports[].targetPort" => Some(match rng.u8(..3) {
            0 => json!(*rng.choice(&["web", "tls", "admin", "1a"]).expect("some")),
            _ => json!(*rng.choice(&[1, 80, 443, 8080, 8443, 65535]).expect("some")),
        }),
        "spec.ports[].nodePort" => Some(json!(rng.choice([30000, 0, 0, 0]).expect("some"))),
        "spec.ports[].appProtocol" => {
            one_of(&["http", "kubernetes.io/h2c", "example.com/x_y"], rng)
        }
        // Of a Memcached, it is a word.
        _ if path.ends_with("Probe") && !is_a_word => Some(probe(rng)),
        _ => None,
    }
}

/// The same amounts in several notations, so that edits include that case.
fn resources(rng: &mut Rng) -> Value {
    rng.choice([
        json!({}),
        json!({"limits": {"cpu": "1", "memory": "512Mi"}}),
        json!({"limits": {"cpu": "1000m", "memory": "0.5Gi"}}),
        json!({"limits": {"cpu": 1, "memory": 536_870_912}}),
        json!({"limits": {"cpu": "1"}, "requests": {"cpu": "250m", "memory": "64Mi"}}),
        json!({"requests": {"cpu": "0.25", "memory": "64M"}}),
        json!({"limits": {"ephemeral-storage": "1G"}, "requests": {"ephemeral-storage": "0"}}),
        json!({"requests": {"memory": "1500k"}}),
    ])
    .expect("some")
}

fn probe(rng: &mut Rng) -> Value {
    rng.choice([
        json!({"tcpSocket": {"port": 80}}),
        json!({"httpGet": {"port": 8080}}),
        json!({"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTPS"}, "periodSeconds": 5}),
        json!({"tcpSocket": {"port": 80}, "failureThreshold": 30, "initialDelaySeconds": 1}),
    ])
    .expect("some")
}

fn strategy(rng: &mut Rng) -> Value {
    rng.choice([
        json!({}),
        json!({"type": "Recreate"}),
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}),
        json!({"rollingUpdate": {"maxUnavailable": "50%"}}),
    ])
    .expect("some")
}

/// Parts of templates that the nodes of every run can satisfy.
fn pod(rng: &mut Rng) -> Value {
    rng.choice([
        json!({}),
        json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "priorityClassName": "system-cluster-critical"}),
        json!({"tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b",
            "effect": "NoExecute", "tolerationSeconds": 60}], "imagePullSecrets": [{"name": "registry"}]}),
        json!({"terminationGracePeriodSeconds": 60, "enableServiceLinks": true}),
    ])
    .expect("some")
}

fn metadata(rng: &mut Rng) -> Value {
    rng.choice([
        json!({}),
        json!({"labels": {"team": "a"}, "annotations": {"example.com/scrape": "true"}}),
        json!({"labels": {"team": "b", "example.com/tier": ""}}),
    ])
    .expect("some")
}

/// Environment variables: each name once.
fn variables(rng: &mut Rng) -> Value {
    let mut names = vec!["A", "B", "C", "LOG_LEVEL", "x.y-z", "_9"];
    rng.shuffle(&mut names);
    names.truncate(rng.usize(..4));
    let variable = |name: &str| match rng.u8(..3) {
        0 => json!({"name": name, "valueFrom": source(rng)}),
        1 => json!({"name": name}),
        _ => {
            let value = rng.choice(["", "1", "info", "$(A)", "$$(A)", "ü \" \n"]).expect("some");
            json!({"name": name, "value": value})
        }
    };
    names.into_iter().map(variable).collect()
}

fn source(rng: &mut Rng) -> Value {
    rng.choice([
        json!({"fieldRef": {"fieldPath": "metadata.name"}}),
        json!({"fieldRef": {"fieldPath": "spec.nodeName", "apiVersion": "v1"}}),
        json!({"fieldRef": {"fieldPath": "metadata.labels['app.kubernetes.io/name']"}}),
        json!({"resourceFieldRef": {"resource": "limits.cpu"}}),
        json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}),
        json!({"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}),
        json!({"configMapKeyRef": {"name": "settings", "key": "a.b", "optional": true}}),
        json!({"secretKeyRef": {"name": "secrets.of.mine", "key": "_k"}}),
    ])
    .expect("some")
}

/// Removes from an object what must not occur together.
pub fn mend(path: &str, object: &mut Map<String, Value>) {
    // Most Services have no node port.
    if path == "spec.ports[]" && object.get("nodePort").is_some_and(|port| *port == 0) {
        object.remove("nodePort");
    }
}

/// Removes from a list what must not occur together.
pub fn mend_list(schema: &Value, path: &str, items: &mut Vec<Value>) {
    if let Some(keys) = schema["x-kubernetes-list-map-keys"].as_array() {
        let key = |item: &Value| {
            let field = |name: &Value| {
                let name = name.as_str().unwrap_or_default();
                let default = &schema["items"]["properties"][name]["default"];
                let is_absent = item[name].is_null() || item[name] == "";
                if is_absent { default.to_string() } else { item[name].to_string() }
            };
            keys.iter().map(field).collect::<Vec<_>>()
        };
        let mut seen = BTreeSet::new();
        items.retain(|item| seen.insert(key(item)));
    }
    if schema["x-kubernetes-list-type"] == "set" {
        let mut seen = BTreeSet::new();
        items.retain(|item| seen.insert(item.to_string()));
    }
    if path != "spec.ports" {
        return;
    }
    let (mut names, mut targets) = (BTreeSet::new(), BTreeSet::new());
    let mut node_ports = BTreeSet::new();
    for port in items {
        let port = port.as_object_mut().expect("an object");
        let text = |name: &str| port.get(name).map(|value| value.to_string());
        let (name, node_port) = (text("name"), text("nodePort"));
        let target = text("targetPort").filter(|target| target.starts_with('"'));
        if target.is_some_and(|target| !targets.insert(target)) {
            port.remove("targetPort");
        }
        if name.is_some_and(|name| !names.insert(name)) {
            port.remove("name");
        }
        if node_port.is_some_and(|node_port| !node_ports.insert(node_port)) {
            port.remove("nodePort");
        }
    }
}
