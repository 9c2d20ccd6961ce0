//! The CustomResourceDefinitions, generated from the specs and statuses of the kinds.
//!
//! Guarantees
//! - [`crds`] is the only source of `artifacts/crds/`: the files are generated from these types, and a test
//!   regenerates and compares them.
//! - The operator's own fields are bounded, and CEL rules of a bounded cost refuse values that it cannot carry out,
//!   with a message that states the allowed ones. Names are included: a Memcached and an App have the name of their
//!   Service, so it must be a DNS label.
//! - Fields of the Kubernetes API have its types. What only its validation refuses is reported as `Invalid`.
//! - An object that no controller has seen shows this: `status` defaults to observedGeneration -1 and
//!   Ready=Unknown, so no tool reports it as healthy.
//! - `null` means the same as absent. Only fields of templates are nullable.
//! - An object or map can be emptied by a server-side apply: each optional one is atomic. Of others, the API server
//!   makes null when their last field is removed (kubernetes/kubernetes#135841), which it then refuses.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::app::spec::App;
use crate::generic_daemon::spec::GenericDaemon;
use crate::memcached::spec::Memcached;

/// Fields with Kubernetes' own schemas.
const TEMPLATES: [&str; 2] = ["podTemplate", "serviceTemplate"];

/// Returns the CustomResourceDefinitions, by name.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![App::crd(), GenericDaemon::crd(), Memcached::crd()];
    crds.iter_mut().for_each(finish);
    crds
}

/// Completes the derived definitions: adds the defaults of the status and removes nullable fields. (The API
/// server treats a null in a field that is not nullable as absent.)
fn finish(crd: &mut CustomResourceDefinition) {
    let kind = crd.spec.names.kind.clone();
    for version in &mut crd.spec.versions {
        let schema = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut());
        let schema = schema.expect("the derive gives every version a schema");
        forbid_null(schema);
        let properties = schema.properties.as_mut().expect("the root has properties");
        own_as_a_whole(properties.get_mut("spec").expect("every kind has a spec"));
        let status = properties.get_mut("status").expect("every kind has a status");
        status.default = Some(JSON(untouched(&kind)));
    }
}

/// Returns the status of an object that no controller has seen.
fn untouched(kind: &str) -> Value {
    let condition = |name: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": name, "status": status, "reason": reason, "message": message,
            "observedGeneration": -1, "lastTransitionTime": "1970-01-01T00:00:00Z",
        })
    };
    let waiting = "Waiting for the controller";
    let mut conditions = vec![
        condition("Ready", "Unknown", "Pending", waiting),
        condition("Reconciling", "True", "Pending", waiting),
    ];
    if kind == "Memcached" {
        conditions.push(condition(
            "Available",
            "Unknown",
            "Reconciling",
            "Starting reconciliation",
        ));
    }
    json!({ "observedGeneration": -1, "conditions": conditions })
}

/// Makes the optional objects and maps below `schema` atomic, so that their manager owns them as a whole.
fn own_as_a_whole(schema: &mut JSONSchemaProps) {
    let required = schema.required.clone().unwrap_or_default();
    for (name, property) in schema.properties.iter_mut().flatten() {
        if TEMPLATES.contains(&name.as_str()) {
            continue;
        }
        if property.type_.as_deref() == Some("object") && !required.contains(name) {
            property.x_kubernetes_map_type = Some("atomic".to_owned());
        }
        own_as_a_whole(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        own_as_a_whole(items);
    }
}

fn forbid_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for (name, property) in schema.properties.iter_mut().flatten() {
        if !TEMPLATES.contains(&name.as_str()) {
            forbid_null(property);
        }
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        forbid_null(items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crds_are_those_of_the_kinds() {
        let mut kinds =
            crate::workload::KINDS.map(|kind| (kind.resource(), kind.version, kind.kind));
        kinds.sort_unstable_by_key(|(.., kind)| *kind);
        let crds = crds();
        let names = crds.iter().map(|crd| {
            let name = crd.metadata.name.clone().unwrap_or_default();
            (name, crd.spec.versions[0].name.as_str(), crd.spec.names.kind.as_str())
        });
        assert_eq!(names.collect::<Vec<_>>(), kinds);
    }
}
