//! docs/API.md, generated from the schemas of the CRDs.

use std::fmt::Write as _;

use serde_json::Value;
use workload_operator::crds;

use crate::packages::is_or_becomes;

#[test]
fn the_api_reference_matches_the_schemas() {
    let mut text = String::from(
        "# API reference\n\n\
         `kubectl explain` shows the same texts. Every field can be changed at any time, within the \
         rules below each kind. A change either *restarts the pods*, at the pace of the kind's update \
         strategy, or is applied *in place*: no running pod is touched. A linked type is the one of \
         the Kubernetes API.\n",
    );
    for crd in crds::crds() {
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
        write!(text, "\n```yaml\n{}```\n", example(kind)).unwrap();
        for part in ["spec", "status"] {
            let mut rows = Vec::new();
            let schema = &schema["properties"][part];
            fields(schema, part, &mut rows);
            add_table(rows, &mut text);
        }
        let mut rules = Vec::new();
        messages(schema, &mut rules);
        add_rules(&rules, &mut text);
    }
    is_or_becomes("docs/API.md", &text);
}

/// Returns a custom resource with the fields that most people set.
fn example(kind: &str) -> &'static str {
    match kind {
        "App" => include_str!("../../artifacts/examples/nginx-app.yaml"),
        "GenericDaemon" => include_str!("../../artifacts/examples/syslog.yaml"),
        "Memcached" => include_str!("../../artifacts/examples/memcached.yaml"),
        _ => panic!("{kind} has no example"),
    }
}

/// Returns the type of a field that has one of the Kubernetes API, and the anchor of its documentation.
fn of_kubernetes(name: &str, field: &Value) -> Option<String> {
    let (text, anchor) = match name {
        "podTemplate" => ("[PodTemplateSpec]", "podtemplatespec-v1-core"),
        "serviceTemplate" => ("metadata and [ServiceSpec]", "servicespec-v1-core"),
        "envs" => ("list of [EnvVar]", "envvar-v1-core"),
        "envFrom" => ("list of [EnvFromSource]", "envfromsource-v1-core"),
        "resources" => ("[ResourceRequirements]", "resourcerequirements-v1-core"),
        "strategy" => ("[DeploymentStrategy]", "deploymentstrategy-v1-apps"),
        "updateStrategy" => ("[DaemonSetUpdateStrategy]", "daemonsetupdatestrategy-v1-apps"),
        "conditions" => ("list of [Condition]", "condition-v1-meta"),
        _ if name.ends_with("Probe") && field["type"] == "object" => ("[Probe]", "probe-v1-core"),
        _ => return None,
    };
    let page = "https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.37";
    Some(format!("{text}({page}/#{anchor})"))
}

/// Fields whose change touches no running pod. Every other change of a spec restarts the pods.
const IN_PLACE: [&str; 11] = [
    "spec.minReadySeconds",
    "spec.podDisruptionBudget",
    "spec.podDisruptionBudget.maxUnavailable",
    "spec.ports[].appProtocol",
    "spec.ports[].name",
    "spec.ports[].nodePort",
    "spec.replicas",
    "spec.serviceTemplate",
    "spec.size",
    "spec.strategy",
    "spec.updateStrategy",
];

/// Adds a table. Only a spec has the column of effects.
fn add_table(rows: Vec<Vec<String>>, text: &mut String) {
    let (title, line) = if rows[0].len() == 6 { (" a change |", "---|") } else { ("", "") };
    write!(
        text,
        "\n| field | type | default | allowed |{title} meaning |\n|---|---|---|---|{line}---|\n"
    )
    .unwrap();
    for row in rows {
        writeln!(text, "| {} |", row.join(" | ")).unwrap();
    }
}

fn add_rules(rules: &[String], text: &mut String) {
    if !rules.is_empty() {
        writeln!(text, "\nRules across fields:\n").unwrap();
    }
    for rule in rules {
        writeln!(text, "- {rule}").unwrap();
    }
}

/// Returns a row for each field below `schema`, which is at `path`. Only a spec has effects.
fn fields(schema: &Value, path: &str, rows: &mut Vec<Vec<String>>) {
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
        let own = of_kubernetes(name, field);
        let kind = own.clone().unwrap_or_else(|| type_of(field));
        let mut row = vec![format!("`{path}`"), kind, default, allowed(field)];
        if path.starts_with("spec.") {
            let is_in_place = IN_PLACE.contains(&path.as_str());
            row.push(if is_in_place { "in place" } else { "restarts the pods" }.to_owned());
        }
        row.push(meaning);
        rows.push(row);
        if own.is_none() {
            fields(field, &path, rows);
            fields(&field["items"], &format!("{path}[]"), rows);
        }
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

/// Returns the bounds of a field, and the messages of its own rules.
fn allowed(field: &Value) -> String {
    let mut all = Vec::new();
    if let Some(values) = field["enum"].as_array() {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        // In YAML, a number and its text are the same for a user.
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

/// Collects the messages of all rules at and below `schema`, once each.
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
