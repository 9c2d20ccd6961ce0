//! CustomResourceDefinitions: pruning, defaults and validation by their schemas.

use serde_json::{Value, json};

/// A version of a custom resource.
pub(super) struct Crd {
    /// The path of its collection without a namespace.
    pub(super) resource: String,
    /// `openAPIV3Schema`.
    pub(super) schema: Value,
    /// True if the status has its own subresource.
    pub(super) has_status: bool,
    pub(super) is_namespaced: bool,
    pub(super) kind: String,
}

/// A refusal of a field, as in `details.causes`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cause {
    pub(super) field: String,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Fields that every object has; a schema does not apply to them.
const OUTER: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The type of `x-kubernetes-int-or-string`.
const INT_OR_TEXT: &str = "integer or string";

/// Fields of a schema that are not evaluated.
const NOT_EVALUATED: [&str; 9] = [
    "x-kubernetes-validations",
    "x-kubernetes-embedded-resource",
    "pattern",
    "format",
    "multipleOf",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
];

impl Crd {
    /// Reads a CustomResourceDefinition. It must serve one version only, because there is no conversion.
    pub(super) fn of(definition: &Value) -> Result<Crd, String> {
        let (kind, spec) = (&definition["kind"], &definition["spec"]);
        if kind != "CustomResourceDefinition" {
            return Err(format!(
                "only a CustomResourceDefinition can be given, not the kind {kind}"
            ));
        }
        let versions = spec["versions"].as_array().into_iter().flatten();
        let served: Vec<_> = versions.filter(|version| version["served"] != false).collect();
        let [version] = served[..] else {
            return Err(format!(
                "a CustomResourceDefinition with one served version can be given, this one has {}",
                served.len()
            ));
        };
        let text = |value: &Value, what: &str| match value.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(format!("the CustomResourceDefinition has no {what}")),
        };
        let group = text(&spec["group"], "spec.group")?;
        let plural = text(&spec["names"]["plural"], "spec.names.plural")?;
        let name = text(&version["name"], "name of its version")?;
        let mut schema = version["schema"]["openAPIV3Schema"].clone();
        if let Some(required) = schema["required"].as_array_mut() {
            required.retain(|name| !OUTER.iter().any(|outer| name == outer));
        }
        for field in NOT_EVALUATED.into_iter().filter(|field| has_field(&schema, field)) {
            tracing::warn!(
                "testing::Server does not evaluate {field} in the schema of {plural}.{group}"
            );
        }
        Ok(Crd {
            resource: format!("/apis/{group}/{name}/{plural}"),
            schema,
            has_status: version["subresources"]["status"].is_object(),
            is_namespaced: spec["scope"] != "Cluster",
            kind: text(&spec["names"]["kind"], "spec.names.kind")?,
        })
    }

    /// Drops the fields that the schema does not declare, and sets its defaults.
    pub(super) fn complete(&self, object: &mut Value) {
        let outer = take_outer(object);
        prune(&self.schema, object);
        set_defaults(&self.schema, object);
        put_back(object, outer);
    }

    /// Returns the violations of the schema.
    pub(super) fn refusals(&self, object: &Value) -> Vec<Cause> {
        let (mut content, mut causes) = (object.clone(), Vec::new());
        take_outer(&mut content);
        if object["kind"].as_str().is_some_and(|kind| kind != self.kind) {
            let message = format!("Invalid value: {}: must be {}", object["kind"], self.kind);
            return vec![Cause { field: "kind".to_owned(), reason: "FieldValueInvalid", message }];
        }
        check(&self.schema, &content, "", &mut causes);
        causes
    }

    /// Returns the reason why a configuration cannot be applied: a value of a wrong type, or an undeclared field.
    pub(super) fn mistyped(&self, config: &Value) -> Option<String> {
        let is_of_type = |cause: &Cause| {
            cause.reason == "FieldValueTypeInvalid" && !cause.message.ends_with(INT_OR_TEXT)
        };
        let cause = self.refusals(config).into_iter().find(is_of_type);
        let mistyped = cause.map(|cause| format!(".{}: {}", cause.field, cause.message));
        let undeclared = self.undeclared(config);
        mistyped.or(undeclared.map(|field| format!("{field}: field not declared in schema")))
    }

    fn undeclared(&self, config: &Value) -> Option<String> {
        fn walk(schema: &Value, value: &Value, path: &str) -> Option<String> {
            match value {
                Value::Object(map) => map.iter().find_map(|(name, value)| {
                    let path = format!("{path}.{name}");
                    if is_declared(schema, name) {
                        walk(below(schema, name), value, &path)
                    } else {
                        Some(path)
                    }
                }),
                Value::Array(items) => {
                    items.iter().find_map(|item| walk(&schema["items"], item, path))
                }
                _ => None,
            }
        }
        let mut content = config.clone();
        take_outer(&mut content);
        walk(&self.schema, &content, "")
    }
}

/// Removes and returns the fields that a schema does not apply to.
fn take_outer(object: &mut Value) -> Vec<(&'static str, Value)> {
    let Some(fields) = object.as_object_mut() else { return Vec::new() };
    OUTER.into_iter().filter_map(|name| Some((name, fields.remove(name)?))).collect()
}

fn put_back(object: &mut Value, outer: Vec<(&'static str, Value)>) {
    for (name, value) in outer {
        object[name] = value;
    }
}

/// Returns whether a schema, or one of its parts, has a keyword.
fn has_field(schema: &Value, keyword: &str) -> bool {
    let parts = schema["properties"].as_object().into_iter().flat_map(|parts| parts.values());
    let parts = parts.chain([&schema["items"], &schema["additionalProperties"]]);
    schema.is_object()
        && (schema.get(keyword).is_some() || parts.into_iter().any(|part| has_field(part, keyword)))
}

fn preserves(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

fn is_declared(schema: &Value, name: &str) -> bool {
    let free = &schema["additionalProperties"];
    schema.is_null()
        || preserves(schema)
        || schema["properties"].get(name).is_some()
        || free.is_object()
        || *free == true
}

/// Returns the schema of a field; null if there is none.
fn below<'a>(schema: &'a Value, name: &str) -> &'a Value {
    schema["properties"].get(name).unwrap_or(&schema["additionalProperties"])
}

fn prune(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|name, _| is_declared(schema, name));
            map.iter_mut().for_each(|(name, value)| prune(below(schema, name), value));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| prune(&schema["items"], item)),
        _ => {}
    }
}

fn set_defaults(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                if map.get(name).is_some_and(Value::is_null) && field["nullable"] != true {
                    map.remove(name);
                }
                if let Some(default) = field.get("default")
                    && !map.contains_key(name)
                {
                    map.insert(name.clone(), default.clone());
                }
            }
            map.iter_mut().for_each(|(name, value)| set_defaults(below(schema, name), value));
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|item| set_defaults(&schema["items"], item));
        }
        _ => {}
    }
}

/// Adds the violations of a value. Evaluates the keywords that structural schemas use most.
fn check(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let is_int_or_text = schema["x-kubernetes-int-or-string"] == true;
    let fits = match schema["type"].as_str() {
        _ if value.is_null() => schema["nullable"] == true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        _ if is_int_or_text => value.is_string() || value.is_i64(),
        _ => true,
    };
    let mut refuse = |reason: &'static str, message: String| {
        causes.push(Cause { field: path.to_owned(), reason, message });
    };
    if !fits {
        let expected = schema["type"].as_str().unwrap_or(INT_OR_TEXT);
        let message = format!("Invalid value: {}: must be of type {expected}", name_of(value));
        refuse("FieldValueTypeInvalid", message);
        return;
    }
    if let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.contains(value)) {
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        let message =
            format!("Unsupported value: {value}: supported values: {}", allowed.join(", "));
        refuse("FieldValueNotSupported", message);
    }
    let (keywords, size) = size(value);
    for (keyword, is_least) in keywords.into_iter().zip([true, false]) {
        let Some(bound) = schema[keyword].as_f64() else { continue };
        let is_exclusive = schema[format!("exclusive{}", keyword.replacen('m', "M", 1))] == true;
        let is_beyond = if is_least { size < bound } else { size > bound };
        if is_beyond || is_exclusive && size.total_cmp(&bound).is_eq() {
            let reason = match keyword {
                "maxLength" => "FieldValueTooLong",
                "maxItems" | "maxProperties" => "FieldValueTooMany",
                _ => "FieldValueInvalid",
            };
            refuse(reason, format!("Invalid value: {value}: {keyword} is {bound}"));
        }
    }
    check_parts(schema, value, path, causes);
}

fn check_parts(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    match value {
        Value::Object(map) => {
            let required = schema["required"].as_array().into_iter().flatten();
            for name in required.filter_map(Value::as_str).filter(|name| !map.contains_key(*name)) {
                let field = joined(path, name);
                let message = "Required value".to_owned();
                causes.push(Cause { field, reason: "FieldValueRequired", message });
            }
            for (name, value) in map {
                check(below(schema, name), value, &joined(path, name), causes);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                check(&schema["items"], item, &format!("{path}[{index}]"), causes);
            }
            let is_set = schema["x-kubernetes-list-type"] == "set";
            let keys = schema["x-kubernetes-list-map-keys"].as_array().filter(|_| !is_set);
            let key = |item: &Value| match keys {
                Some(keys) => {
                    keys.iter().filter_map(|key| item.get(key.as_str()?).cloned()).collect()
                }
                None => item.clone(),
            };
            for (index, item) in items.iter().enumerate().filter(|_| is_set || keys.is_some()) {
                if items[..index].iter().any(|before| key(before) == key(item)) {
                    let message = format!("Duplicate value: {}", key(item));
                    let field = format!("{path}[{index}]");
                    causes.push(Cause { field, reason: "FieldValueDuplicate", message });
                }
            }
        }
        _ => {}
    }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Returns the size that the bounds of a schema apply to, and their keywords.
fn size(value: &Value) -> ([&'static str; 2], f64) {
    let of = |len: usize| u32::try_from(len).map_or(f64::INFINITY, f64::from);
    match value {
        Value::String(text) => (["minLength", "maxLength"], of(text.chars().count())),
        Value::Array(items) => (["minItems", "maxItems"], of(items.len())),
        Value::Object(map) => (["minProperties", "maxProperties"], of(map.len())),
        other => (["minimum", "maximum"], other.as_f64().unwrap_or(f64::NAN)),
    }
}

/// Returns the name of a JSON type.
fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns the metav1.Status details of violations.
pub(super) fn details(causes: &[Cause]) -> Value {
    let cause = |cause: &Cause| json!({ "reason": cause.reason, "message": cause.message, "field": cause.field });
    json!({ "causes": causes.iter().map(cause).collect::<Vec<_>>() })
}
