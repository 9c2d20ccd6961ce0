//! docs/API.md, from the schemas of the CRDs.

use std::fmt::Write as _;

use serde_json::Value;
use workload_operator::api;

use crate::packages::is_or_becomes;

#[test]
fn the_reference_of_the_kinds_is_what_the_schemas_say() {
    let mut text = String::from(
        "# API reference\n\n\
         Written by hack/update-codegen.sh from the CustomResourceDefinitions; `kubectl explain` shows \
         the same. Every field can be changed at any time unless it says that it is immutable.\n",
    );
    for crd in api::crds() {
        let crd = serde_json::to_value(&crd).unwrap();
        let (spec, version) = (&crd["spec"], &crd["spec"]["versions"][0]);
        let schema = &version["schema"]["openAPIV3Schema"];
        let kind = spec["names"]["kind"].as_str().unwrap();
        let api_version = format!("{}/{}", word(&spec["group"]), word(&version["name"]));
        let short = word(&spec["names"]["shortNames"][0]);
        let also =
            if short.is_empty() { String::new() } else { format!(", `kubectl get {short}`") };
        write!(
            text,
            "\n## {kind}\n\n{} (`apiVersion: {api_version}`{also})\n",
            word(&schema["description"])
        )
        .unwrap();
        for part in ["spec", "status"] {
            let mut rows = String::new();
            fields(&schema["properties"][part], part, &mut rows);
            write!(
                text,
                "\n| field | type | default | allowed | meaning |\n|---|---|---|---|---|\n{rows}"
            )
            .unwrap();
        }
        let mut rules = Vec::new();
        messages(schema, &mut rules);
        if !rules.is_empty() {
            writeln!(text, "\nRules across fields:\n").unwrap();
        }
        for rule in rules {
            writeln!(text, "- {rule}").unwrap();
        }
    }
    is_or_becomes("docs/API.md", &text);
}

/// A row for each field below `schema`, which is at `path`.
fn fields(schema: &Value, path: &str, rows: &mut String) {
    let required = |name: &str| {
        schema["required"].as_array().is_some_and(|all| all.iter().any(|other| other == name))
    };
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let default = match &field["default"] {
            Value::Null if required(name) => "required".to_owned(),
            Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
            default => format!("`{default}`"),
        };
        let meaning = word(&field["description"]).replace('|', "\\|").replace('\n', " ");
        let row = [format!("`{path}`"), type_of(field), default, allowed(field), meaning];
        writeln!(rows, "| {} |", row.join(" | ")).unwrap();
        fields(field, &path, rows);
        fields(&field["items"], &format!("{path}[]"), rows);
    }
}

fn type_of(field: &Value) -> String {
    if field["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    match word(&field["type"]) {
        "array" => format!("list of {}", type_of(&field["items"])),
        "object" if !field["additionalProperties"].is_null() => {
            format!("map of {}", type_of(&field["additionalProperties"]))
        }
        other => other.to_owned(),
    }
}

/// The bounds of a field, and the messages of its own rules.
fn allowed(field: &Value) -> String {
    let mut all = Vec::new();
    if let Some(values) = field["enum"].as_array() {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        // A number and its text are the same to who writes YAML.
        let mut told: Vec<String> = Vec::new();
        for value in values.iter().map(|value| format!("`{}`", text(value))) {
            if !told.contains(&value) {
                told.push(value);
            }
        }
        all.push(told.join(", "));
    }
    for (least, most, unit) in [
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
        ("minProperties", "maxProperties", " keys"),
    ] {
        let bound = |name: &str| field[name].as_f64();
        match (bound(least), bound(most)) {
            (Some(least), Some(most)) => all.push(format!("{least} to {most}{unit}")),
            (None, Some(most)) => all.push(format!("at most {most}{unit}")),
            (Some(least), None) => all.push(format!("at least {least}{unit}")),
            (None, None) => {}
        }
    }
    if let Some(pattern) = field["pattern"].as_str() {
        all.push(format!("`{}`", pattern.replace('|', "\\|")));
    }
    all.join("; ")
}

/// The messages of all rules at and below `schema`, once each.
fn messages(schema: &Value, all: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            for rule in
                map.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten()
            {
                let message = word(&rule["message"]).to_owned();
                if !message.is_empty() && !all.contains(&message) {
                    all.push(message);
                }
            }
            map.values().for_each(|value| messages(value, all));
        }
        Value::Array(items) => items.iter().for_each(|value| messages(value, all)),
        _ => {}
    }
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
