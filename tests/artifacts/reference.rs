//! docs/API.md, generated from the schemas of the CRDs. The effect of a field is found by changing it in an
//! object that has every field.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use workload_operator::{app, crds, generic_daemon, memcached};

use crate::packages::is_or_becomes;

#[test]
fn the_api_reference_matches_the_schemas() {
    let mut text = String::from(
        "# API reference\n\n\
         Written by hack/update-codegen.sh from the CustomResourceDefinitions; `kubectl explain` shows \
         the same. Every field can be changed at any time, within the rules below each kind. A change \
         either *restarts the pods*, at the pace of the kind's update strategy, or is applied *in \
         place*: no running pod is touched. A linked type is the one of the Kubernetes API.\n",
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
            let effects = (part == "spec").then(|| Effects::of(kind, schema));
            fields(schema, part, effects.as_ref(), &mut rows);
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

/// The templates, and the effect of a change. They take precedence over all other fields.
const TEMPLATES: [(&str, &str); 2] =
    [("podTemplate", "restarts the pods"), ("serviceTemplate", "in place")];

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
fn fields(schema: &Value, path: &str, effects: Option<&Effects>, rows: &mut Vec<Vec<String>>) {
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
        row.extend(effects.map(|effects| effects.of_change(&path, field).to_owned()));
        row.push(meaning);
        rows.push(row);
        if own.is_none() {
            fields(field, &path, effects, rows);
            fields(&field["items"], &format!("{path}[]"), effects, rows);
        }
    }
}

/// The effects of changes to an object of a kind.
struct Effects {
    kind: String,
    /// A spec in which every field has a value.
    full: Value,
}

impl Effects {
    fn of(kind: &str, schema: &Value) -> Effects {
        let mut full = sample(schema, 0);
        for template in TEMPLATES {
            full.as_object_mut().unwrap().remove(template.0);
        }
        Effects { kind: kind.to_owned(), full }
    }

    /// Returns the effect of another value of the field at `path`, which starts with `spec.`.
    fn of_change(&self, path: &str, field: &Value) -> &'static str {
        if let Some((_, effect)) = TEMPLATES.iter().find(|it| path.ends_with(it.0)) {
            return effect;
        }
        let mut changed = self.full.clone();
        let pointer = path.trim_start_matches("spec").replace("[]", "/0").replace('.', "/");
        let place = changed.pointer_mut(&pointer).expect("the sample has every field");
        let other = sample(field, 1);
        if *place == other {
            // A field with only one allowed value can be left out.
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            changed.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
        } else {
            *place = other;
        }
        // If another field takes precedence, the effect is determined without that field.
        let (before, after) = match without_the_alternative(&pointer) {
            Some((list, other)) => {
                let without = |spec: &Value| {
                    let mut spec = spec.clone();
                    spec.pointer_mut(list).unwrap().as_object_mut().unwrap().remove(other);
                    spec
                };
                (without(&self.full), without(&changed))
            }
            None => (self.full.clone(), changed),
        };
        let (before, after) = (self.children(&before), self.children(&after));
        match (before.0 == after.0, before.1 == after.1) {
            (false, _) => "restarts the pods",
            (true, false) => "in place",
            (true, true) => panic!("{} {path}: a change has no effect", self.kind),
        }
    }

    /// Returns the pods' template, and all owned objects.
    fn children(&self, spec: &Value) -> (Value, String) {
        let object = json!({
            "metadata": {"name": "name", "namespace": "ns", "uid": "0b5a2fd4-7b8e-4f5c-9a11-000000000001"},
            "spec": spec,
        });
        match self.kind.as_str() {
            "App" => {
                let children = app::desired(&serde_json::from_value(object).unwrap());
                let template = children.deployment.spec["template"].clone();
                (template, format!("{children:?}"))
            }
            "Memcached" => {
                let object: memcached::Memcached = serde_json::from_value(object).unwrap();
                let settings = memcached::Settings::default();
                let images = memcached::Images::chosen(&object.spec, &settings).unwrap();
                let children = memcached::desired(&object, &images);
                let template = children.deployment.spec["template"].clone();
                (template, format!("{children:?}"))
            }
            "GenericDaemon" => {
                let child = generic_daemon::desired(&serde_json::from_value(object).unwrap());
                (child.spec["template"].clone(), format!("{child:?}"))
            }
            kind => panic!("no children of {kind} are known here"),
        }
    }
}

/// Returns the field that takes precedence over the one at `pointer`, and the object that contains it.
fn without_the_alternative(pointer: &str) -> Option<(&str, &'static str)> {
    (pointer == "/ports/0/port").then_some(("/ports/0", "targetPort"))
}

/// Returns a value of `schema` with every field, different for each `variant`, 0 or 1.
fn sample(schema: &Value, variant: usize) -> Value {
    if let Some(values) = schema["enum"].as_array() {
        return values[variant.min(values.len() - 1)].clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return json!(variant + 1);
    }
    match word(&schema["type"]) {
        "boolean" => json!(variant == 0),
        "integer" => json!(schema["minimum"].as_i64().unwrap_or_default() + 1 + variant as i64),
        "array" => json!([sample(&schema["items"], variant)]),
        "object" if !schema["additionalProperties"].is_null() => {
            json!({"key": sample(&schema["additionalProperties"], variant)})
        }
        "object" => {
            let properties = schema["properties"].as_object().into_iter().flatten();
            let all = properties.map(|(name, field)| (name.clone(), sample(field, variant)));
            Value::Object(all.collect::<Map<_, _>>())
        }
        _ if word(&schema["pattern"]).contains("Mi") => json!(["64Mi", "128Mi"][variant]),
        _ => json!(["a", "b"][variant]),
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
