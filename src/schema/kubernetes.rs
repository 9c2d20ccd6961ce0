//! Schemas of the fields that have types of the Kubernetes API, made fit for a CustomResourceDefinition.
//!
//! Guarantees
//! - Every field of the Kubernetes version that the operator is built for is known. Of templates, `serviceAccount` (the
//!   older name of `serviceAccountName`) and `ephemeralContainers` (which no template can have) are left out,
//!   and of probes outside of templates `host`, by which the kubelet can be sent to any address.
//! - In templates, no field is required, except the keys of lists. Every other field can be null, as templates render
//!   empty values, and as a server-side apply stores an emptied object.
//! - Lists that Kubernetes merges by keys have these keys, so that several managers can add items, and none is there
//!   twice. The others belong to one manager.

use k8s_openapi::api::apps::v1::{DaemonSetUpdateStrategy, DeploymentStrategy};
use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, PodTemplateSpec, Probe, ResourceRequirements, ServiceSpec,
};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::object::list_keys;

/// The form of a quantity, such as `100m`, `1Gi` or `1e3`.
const QUANTITY: &str =
    "^[+-]?([0-9]+|[0-9]+[.][0-9]*|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$";

pub(crate) fn resources(_: &mut SchemaGenerator) -> Schema {
    whole("", of_kubernetes::<ResourceRequirements>())
}

pub(crate) fn env(_: &mut SchemaGenerator) -> Schema {
    whole("env", of_kubernetes::<Vec<EnvVar>>())
}

pub(crate) fn env_from(_: &mut SchemaGenerator) -> Schema {
    whole("", of_kubernetes::<Vec<EnvFromSource>>())
}

pub(crate) fn probe(_: &mut SchemaGenerator) -> Schema {
    let mut schema = of_kubernetes::<Probe>();
    for handler in ["httpGet", "tcpSocket"] {
        // The kubelet would connect to another host from the node's network.
        let fields = schema["properties"][handler]["properties"].as_object_mut();
        fields.into_iter().for_each(|fields| drop(fields.remove("host")));
    }
    whole("", schema)
}

pub(crate) fn strategy(_: &mut SchemaGenerator) -> Schema {
    whole("", of_kubernetes::<DeploymentStrategy>())
}

pub(crate) fn update_strategy(_: &mut SchemaGenerator) -> Schema {
    whole("", of_kubernetes::<DaemonSetUpdateStrategy>())
}

/// Returns the schema of a field that is not merged over another value.
fn whole(field: &str, mut schema: Value) -> Schema {
    fit(&mut schema, field, &[], false);
    Schema::try_from(schema).expect("an object is a schema")
}

/// Returns the schema of `podTemplate`.
pub(crate) fn pod_template(_: &mut SchemaGenerator) -> Schema {
    let mut schema = of_kubernetes::<PodTemplateSpec>();
    let fields = &mut schema["properties"];
    fields["metadata"] = metadata();
    let pod = &mut fields["spec"]["properties"];
    for field in ["serviceAccount", "ephemeralContainers"] {
        pod.as_object_mut().into_iter().for_each(|fields| drop(fields.remove(field)));
    }
    template(schema)
}

/// Returns the schema of `serviceTemplate`.
pub(crate) fn service_template(_: &mut SchemaGenerator) -> Schema {
    let fields = json!({ "metadata": metadata(), "spec": of_kubernetes::<ServiceSpec>() });
    template(json!({ "type": "object", "properties": fields }))
}

fn template(mut schema: Value) -> Schema {
    fit(&mut schema, "", &[], true);
    schema["nullable"] = json!(true);
    Schema::try_from(schema).expect("an object is a schema")
}

/// Returns the schema of a type of k8s-openapi, without references.
fn of_kubernetes<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::openapi3();
    settings.inline_subschemas = true;
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Returns the schema of metadata. Clients in Go send a null creationTimestamp.
fn metadata() -> Value {
    let texts = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let time = json!({ "type": "string", "format": "date-time" });
    let fields = json!({ "labels": texts, "annotations": texts, "creationTimestamp": time });
    json!({ "type": "object", "properties": fields })
}

/// Makes the schema of `field` fit. `keys` are those of the list whose item it is. A part of a template requires nothing.
fn fit(schema: &mut Value, field: &str, keys: &[&str], is_template: bool) {
    let Some(fields) = schema.as_object_mut() else { return };
    for left_out in ["$schema", "title", "description", "default"] {
        fields.remove(left_out);
    }
    if is_template {
        fields.remove("required");
    }
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, property) in properties.iter_mut() {
            fit(property, name, &[], is_template);
            if is_template && !keys.contains(&name.as_str()) {
                property["nullable"] = json!(true);
            }
        }
        if keys.contains(&"protocol") {
            properties["protocol"]["default"] = json!("TCP");
        }
    }
    if is_template && !keys.is_empty() {
        let required = keys.iter().filter(|key| **key != "protocol");
        fields.insert("required".to_owned(), json!(required.collect::<Vec<_>>()));
    }
    let is_amount = matches!(field, "divisor" | "sizeLimit" | "amount");
    if is_amount && fields.contains_key("x-kubernetes-int-or-string") {
        fields.insert("pattern".to_owned(), json!(QUANTITY));
    }
    if let Some(values) = fields.get_mut("additionalProperties") {
        fit(values, "amount", &[], is_template);
    }
    if let Some(items) = fields.get_mut("items") {
        let has = |name: &str| items["properties"].get(name).is_some();
        let keys = list_keys(field, has).unwrap_or_default();
        fit(items, "", keys, is_template);
        fields.extend(list_type(keys));
    }
}

fn list_type(keys: &[&str]) -> Map<String, Value> {
    let kind = if keys.is_empty() { "atomic" } else { "map" };
    let mut list = Map::from_iter([("x-kubernetes-list-type".to_owned(), json!(kind))]);
    if !keys.is_empty() {
        list.insert("x-kubernetes-list-map-keys".to_owned(), json!(keys));
    }
    list
}
