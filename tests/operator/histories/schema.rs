//! Specs generated from a CustomResourceDefinition's OpenAPI schema: valid and invalid ones.

use std::collections::BTreeMap;

use fastrand::Rng;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::values;
use crate::world::Kind;

/// The maximum length of a generated list: enough for all pairs to meet.
const LIST: usize = 4;

/// The schema of `spec`, without `serviceTemplate`, which templates.rs tests.
pub fn of_spec(kind: Kind) -> Value {
    let mut spec = version(kind)["schema"]["openAPIV3Schema"]["properties"]["spec"].clone();
    if let Some(fields) = spec["properties"].as_object_mut() {
        fields.remove("serviceTemplate");
    }
    spec
}

/// The served version of a kind, from its CRD.
pub fn version(kind: Kind) -> &'static Value {
    static PARSED: Mutex<BTreeMap<&str, &Value>> = Mutex::new(BTreeMap::new());
    let parse = || -> &Value {
        let file = format!("artifacts/crds/{}_{}.yaml", kind.group(), kind.plural());
        let text = std::fs::read_to_string(&file).expect("a CRD file");
        let mut crd: Value = serde_yaml_ng::from_str(&text).expect("YAML");
        Box::leak(Box::new(crd["spec"]["versions"][0].take()))
    };
    PARSED.lock().entry(kind.plural()).or_insert_with(parse)
}

/// A value that the schema and the rules allow.
pub fn valid(schema: &Value, path: &str, rng: &mut Rng) -> Value {
    if let Some(value) = values::by_path(path, schema["type"] == "string", rng) {
        return value;
    }
    if let Some(choices) = schema["enum"].as_array() {
        return rng.choice(choices).expect("an enum has values").clone();
    }
    match schema["type"].as_str().expect("a type, or a value by path") {
        "object" => object(schema, path, rng),
        "array" => list(schema, path, rng),
        "boolean" => json!(rng.bool()),
        "integer" => integer(schema, rng),
        other => panic!("values.rs has to say what a {other} at {path} may be"),
    }
}

fn object(schema: &Value, path: &str, rng: &mut Rng) -> Value {
    let mut made = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if is_required(schema, name) || rng.u8(..3) > 0 {
            made.insert(name.clone(), valid(property, &format!("{path}.{name}"), rng));
        }
    }
    values::mend(path, &mut made);
    Value::Object(made)
}

fn list(schema: &Value, path: &str, rng: &mut Rng) -> Value {
    let most = schema["maxItems"].as_u64().map_or(LIST, |most| LIST.min(most as usize));
    let made = (0..rng.usize(..=most)).map(|_| valid(&schema["items"], &format!("{path}[]"), rng));
    let mut made: Vec<Value> = made.collect();
    values::mend_list(schema, path, &mut made);
    Value::Array(made)
}

/// Returns an integer, at a bound half of the time. Without an upper bound, it is small, because the pods are
/// real.
fn integer(schema: &Value, rng: &mut Rng) -> Value {
    let least = schema["minimum"].as_i64().expect("integers are bounded from below");
    let most = schema["maximum"].as_i64().unwrap_or(least + 4);
    json!(match rng.u8(..4) {
        0 => least,
        1 => most,
        _ => rng.i64(least..=most),
    })
}

fn is_required(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name))
}

/// `spec` with one property changed, removed or added, or with a list longer, shorter or different.
pub fn edited(schema: &Value, spec: &Value, rng: &mut Rng) -> Value {
    let mut spec = spec.clone();
    let properties = schema["properties"].as_object().expect("properties");
    let name = rng.choice(properties.keys()).expect("one").clone();
    let property = &properties[&name];
    let map = spec.as_object_mut().expect("an object");
    match map.get_mut(&name) {
        Some(_) if !is_required(schema, &name) && rng.u8(..5) == 0 => {
            map.remove(&name);
        }
        Some(Value::Array(items)) if rng.bool() => {
            if !items.is_empty() && rng.bool() {
                items.remove(rng.usize(..items.len()));
            } else {
                let path = format!("spec.{name}[]");
                items.push(valid(&property["items"], &path, rng));
                values::mend_list(property, &format!("spec.{name}"), items);
            }
        }
        _ => {
            map.insert(name.clone(), valid(property, &format!("spec.{name}"), rng));
        }
    }
    values::mend("spec", map);
    spec
}

/// `spec` with every default filled in.
pub fn defaulted(schema: &Value, spec: &Value) -> Value {
    match spec {
        Value::Array(items) => items.iter().map(|item| defaulted(&schema["items"], item)).collect(),
        Value::Object(map) => {
            let mut map = map.clone();
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                match map.get_mut(name) {
                    Some(value) => *value = defaulted(property, value),
                    None if !property["default"].is_null() => {
                        map.insert(name.clone(), property["default"].clone());
                    }
                    None => {}
                }
            }
            Value::Object(map)
        }
        other => other.clone(),
    }
}

/// Returns `spec` with a part that the API server must refuse, and a description of it.
pub fn bad(schema: &Value, spec: &Value, rng: &mut Rng) -> (Value, String) {
    let mut ways = Vec::new();
    break_at(schema, spec, "/spec", true, &mut ways);
    let (pointer, value, what) = ways.swap_remove(rng.usize(..ways.len()));
    let mut root = json!({ "spec": spec });
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer has a slash");
    let parent = root.pointer_mut(parent).expect("it was found there");
    match (parent, value) {
        (Value::Object(map), Some(value)) => drop(map.insert(name.to_owned(), value)),
        (Value::Object(map), None) => drop(map.remove(name)),
        (Value::Array(items), value) => {
            items[name.parse::<usize>().expect("an index")] = value.unwrap_or(Value::Null);
        }
        _ => panic!("nothing is inside {pointer}"),
    }
    (root["spec"].take(), format!("{what} at {pointer}"))
}

/// A way to make it invalid: the path, the value (`None` removes it), and a description.
type Way = (String, Option<Value>, &'static str);

fn break_at(schema: &Value, at: &Value, pointer: &str, required: bool, ways: &mut Vec<Way>) {
    let mut way = |value: Value, what| ways.push((pointer.to_owned(), Some(value), what));
    if let Some(least) = schema["minimum"].as_i64() {
        way(json!(least - 1), "below its bound");
    }
    if let Some(most) = schema["maximum"].as_i64() {
        way(json!(most + 1), "above its bound");
    }
    if let Some(longest) = schema["maxLength"].as_u64().filter(|longest| *longest < 1000) {
        way(json!("x".repeat(longest as usize + 1)), "too long");
    }
    if !schema["enum"].is_null() {
        way(json!("other"), "not one of the choices");
    }
    match schema["type"].as_str() {
        Some("integer") => way(json!("7"), "text for a number"),
        Some("string") => way(json!(7), "a number for text"),
        Some("array") => way(json!({}), "an object for a list"),
        Some("boolean") => way(json!("true"), "text for a truth"),
        Some("object") => way(json!([]), "a list for an object"),
        _ => way(json!({}), "an object for a number or text"),
    }
    if required && pointer != "/spec" {
        way(Value::Null, "null");
        ways.push((pointer.to_owned(), None, "missing"));
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let required = is_required(schema, name);
        if required || !at[name].is_null() {
            break_at(property, &at[name], &format!("{pointer}/{name}"), required, ways);
        }
    }
    for (index, item) in at.as_array().into_iter().flatten().enumerate() {
        break_at(&schema["items"], item, &format!("{pointer}/{index}"), false, ways);
    }
}
