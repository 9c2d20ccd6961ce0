//! Equality of objects whose notation, names or times differ.

use serde_json::{Value, json};

/// Returns the merge patch that makes `new` of `old`.
pub fn merge_patch(old: &Value, new: &Value) -> Value {
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else {
        return new.clone();
    };
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    let removed = removed.map(|name| (name.clone(), Value::Null));
    let kept = after.iter().map(|(name, value)| {
        (
            name.clone(),
            before.get(name).map_or_else(|| value.clone(), |old| merge_patch(old, value)),
        )
    });
    removed.chain(kept).collect()
}

/// Lists with keys sorted by key, quantities by value.
pub fn canonical(value: &mut Value, name: &str) {
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
        Value::Object(map) => map.iter_mut().for_each(|(name, value)| canonical(value, name)),
        _ => {}
    }
}

pub fn amount_of(quantity: &Value) -> f64 {
    let text = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let units = [("", 0), ("m", -3), ("k", 3), ("M", 6), ("G", 9)];
    let decimal = units.iter().find(|(unit, _)| *unit == &text[digits.len()..]);
    let binary = ["Ki", "Mi", "Gi"].iter().position(|unit| *unit == &text[digits.len()..]);
    let unit = match (decimal, binary) {
        (Some((_, power)), _) => 10_f64.powi(*power),
        (_, Some(at)) => 1024_f64.powi(at as i32 + 1),
        _ => panic!("the unit of {text} is not known here"),
    };
    digits.parse::<f64>().expect("a number") * unit
}

/// Returns a status without parts that differ between objects or moments.
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
