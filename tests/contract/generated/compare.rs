//! Equality of two objects.

use serde_json::{Map, Value, json};

/// Returns the relevant parts of an owned object: its spec and its labels. Leaves out fields that the API
/// server assigns or counts, unless `asked` requests them.
pub fn essence(child: &Value, asked: &Value) -> Value {
    let mut spec = child["spec"].clone();
    if let Some(map) = spec.as_object_mut() {
        if asked["spec"]["clusterIP"] != "None" {
            map.remove("clusterIP");
            map.remove("clusterIPs");
        }
        for port in map.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let same = |p: &&Value| p["port"] == port["port"] && p["protocol"] == port["protocol"];
            let asked = asked["spec"]["ports"].as_array().and_then(|all| all.iter().find(same));
            if asked.is_none_or(|asked| asked["nodePort"].is_null()) {
                port.as_object_mut().expect("a port").remove("nodePort");
            }
        }
    }
    canonical(&mut spec, "");
    json!({"spec": spec, "labels": child["metadata"]["labels"]})
}

/// Lists with keys sorted by key, quantities by value.
fn canonical(value: &mut Value, name: &str) {
    match value {
        Value::Array(items) => {
            items.iter_mut().for_each(|item| canonical(item, ""));
            match name {
                "ports" => items.sort_by_key(|port| {
                    let number = port["port"].as_i64().or(port["containerPort"].as_i64());
                    (number, port["protocol"].to_string())
                }),
                // The order matters only if one variable refers to another.
                "env" if !items.iter().any(|var| var["value"].to_string().contains("$(")) => {
                    items.sort_by_key(|var| var["name"].to_string());
                }
                _ => {}
            }
        }
        Value::Object(map) if name == "limits" || name == "requests" => {
            map.values_mut().for_each(|amount| *amount = json!(amount_of(amount)));
        }
        Value::Object(map) => {
            map.iter_mut().for_each(|(name, value)| canonical(value, name));
        }
        _ => {}
    }
}

fn amount_of(quantity: &Value) -> f64 {
    let text = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        other => panic!("the unit {other} of {text} is not known here"),
    };
    digits.parse::<f64>().expect("a number") * unit
}

/// Returns a status without parts that differ between objects or moments: times, generations, the names of
/// pods and ReplicaSets, and their order.
pub fn lasting(status: &Value) -> Value {
    let mut status = status.clone();
    let map = status.as_object_mut().expect("a status");
    map.remove("observedGeneration");
    if let Some(nodes) = map.get_mut("nodes") {
        *nodes = json!(nodes.as_array().map(Vec::len));
    }
    for condition in map.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let condition = condition.as_object_mut().expect("a condition");
        condition.remove("observedGeneration");
        condition.remove("lastTransitionTime");
        // The Deployment's own sentence: ReplicaSet "NAME" has successfully progressed.
        if let Some(message) = condition.get_mut("message") {
            let outside = message.as_str().unwrap_or_default().split('"').step_by(2);
            *message = json!(outside.collect::<Vec<_>>());
        }
    }
    status
}

/// Returns the differences between two values; empty if there are none.
pub fn differences(expected: &Value, found: &Value) -> Vec<String> {
    let mut all = Vec::new();
    differ_at(expected, found, "", &mut all);
    all
}

fn differ_at(expected: &Value, found: &Value, at: &str, all: &mut Vec<String>) {
    let none = Map::new();
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => {
            let (a, b) = (if a.is_empty() { &none } else { a }, b);
            for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
                let absent = Value::Null;
                let (x, y) = (a.get(name).unwrap_or(&absent), b.get(name).unwrap_or(&absent));
                differ_at(x, y, &format!("{at}.{name}"), all);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (number, (x, y)) in a.iter().zip(b).enumerate() {
                differ_at(x, y, &format!("{at}[{number}]"), all);
            }
        }
        (a, b) if a == b => {}
        (a, b) => all.push(format!("{at}: expected {a}, found {b}")),
    }
}
