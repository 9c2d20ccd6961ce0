//! The validity of metadata, as the API server checks it for every kind (k8s.io/apimachinery, ValidateObjectMeta).

use serde_json::Value;

use super::crd::Cause;
use crate::manager::wiring::{is_dns_name, is_word};

/// Returns what is invalid in the metadata of an object.
pub(super) fn refusals(object: &Value) -> Vec<Cause> {
    let meta = &object["metadata"];
    let mut causes = Vec::new();
    let mut refuse = |field: &str, reason: &'static str, message: String| {
        causes.push(Cause { field: format!("metadata.{field}"), reason, message });
    };
    for (key, value) in meta["labels"].as_object().into_iter().flatten() {
        if !is_qualified(key) {
            refuse(
                "labels",
                "FieldValueInvalid",
                format!("Invalid value: {key:?}: name part must be valid"),
            );
        }
        let value = value.as_str().unwrap_or_default();
        if !value.is_empty() && !is_word(value) {
            let why = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                       and must be no more than 63 bytes";
            refuse("labels", "FieldValueInvalid", format!("Invalid value: {value:?}: {why}"));
        }
    }
    for key in meta["annotations"].as_object().into_iter().flat_map(|map| map.keys()) {
        if !is_qualified(&key.to_lowercase()) {
            refuse(
                "annotations",
                "FieldValueInvalid",
                format!("Invalid value: {key:?}: name part must be valid"),
            );
        }
    }
    for name in meta["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !is_qualified(name) {
            refuse(
                "finalizers",
                "FieldValueInvalid",
                format!("Invalid value: {name:?}: name part must be valid"),
            );
        }
    }
    for (at, owner) in meta["ownerReferences"].as_array().into_iter().flatten().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().is_none_or(str::is_empty) {
                let path = format!("ownerReferences[{at}].{field}");
                refuse(
                    &path,
                    "FieldValueInvalid",
                    format!("Invalid value: \"\": {field} must not be empty"),
                );
            }
        }
    }
    causes
}

/// Returns whether this is a word, or a DNS name, a slash and a word.
fn is_qualified(name: &str) -> bool {
    match name.split_once('/') {
        Some((prefix, word)) => is_dns_name(prefix) && is_word(word),
        None => is_word(name),
    }
}
