//! A child with everything in it, also who set what.

use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error};
use serde_json::{Value, json};

use crate::object::{Kind, Meta, Object, Resource};
use crate::reconcilers::child::ChildSpec;
use crate::reconcilers::identity::MANAGER;

/// A child with everything in it, also who set what (`metadata.managedFields`). Much larger than a
/// [`Child`](crate::reconcilers::Child), so it is read only when a change was refused.
#[derive(Debug)]
pub(super) struct Whole<S> {
    meta: Meta,
    object: Value,
    kind: PhantomData<fn() -> S>,
}

// === impl Whole ===

impl<S> Whole<S> {
    /// Returns whether our last apply set what is at this JSON pointer. If so, it is not in the
    /// way: the next apply that leaves it out removes it.
    pub(super) fn was_applied(&self, pointer: &str) -> bool {
        let by_apply = |entry: &&Value| is_ours(entry, "Apply");
        let applied = self.entries().filter(by_apply).map(|entry| &entry["fieldsV1"]);
        applied.into_iter().any(|fields| holds(fields, &self.object, pointer))
    }

    /// JSON patch operations, last position first, that leave the fields we set by anything but an
    /// apply to the apply. It would not remove them otherwise, as they have a second owner.
    pub(super) fn disowning(&self) -> Vec<Value> {
        let entries: Vec<_> = self.entries().enumerate().collect();
        let by_patch = entries.iter().rev().filter(|(_, entry)| is_ours(entry, "Update"));
        let path = |at: &usize| format!("/metadata/managedFields/{at}");
        by_patch.map(|(at, _)| json!({ "op": "remove", "path": path(at) })).collect()
    }

    fn entries(&self) -> impl Iterator<Item = &Value> {
        self.object["metadata"]["managedFields"].as_array().into_iter().flatten()
    }
}

/// Returns whether these are the fields that we set in this way. Subresources are written by
/// others.
fn is_ours(entry: &Value, operation: &str) -> bool {
    entry["manager"] == MANAGER
        && entry["operation"] == operation
        && entry["subresource"].as_str().is_none_or(str::is_empty)
}

/// Returns whether `fields` (`fieldsV1`) has what is at a JSON pointer into `object`.
fn holds(mut fields: &Value, mut object: &Value, pointer: &str) -> bool {
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let below;
        (below, object) = match object {
            Value::Array(items) => {
                let item = step.parse().ok().and_then(|at: usize| items.get(at));
                let Some(item) = item else { return false };
                (of_item(fields, item), item)
            }
            _ => (fields.get(format!("f:{step}")), &object[&step]),
        };
        match below {
            Some(below) => fields = below,
            // A list or map without parts of its own is set as a whole.
            None => return fields.as_object().is_some_and(serde_json::Map::is_empty),
        }
    }
    true
}

/// The part of a list's fields that is about `item`, by its keys or, in a set, by its value.
fn of_item<'a>(fields: &'a Value, item: &Value) -> Option<&'a Value> {
    let is_of_it = |name: &str| match name.split_once(':') {
        Some(("k", keys)) => serde_json::from_str::<Value>(keys).is_ok_and(|keys| {
            keys.as_object().is_some_and(|keys| keys.iter().all(|(key, value)| item[key] == *value))
        }),
        Some(("v", value)) => serde_json::from_str::<Value>(value).is_ok_and(|v| v == *item),
        _ => false,
    };
    fields.as_object()?.iter().find(|(name, _)| is_of_it(name)).map(|(_, below)| below)
}

impl<S: ChildSpec> Object for Whole<S> {
    type Keep = crate::object::Nothing;
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl<S: ChildSpec> Resource for Whole<S> {
    const KIND: Kind = S::KIND;
}

impl<'de, S: ChildSpec> Deserialize<'de> for Whole<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Whole<S>, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let meta = Meta::deserialize(&object["metadata"]).map_err(D::Error::custom)?;
        Ok(Whole { meta, object, kind: PhantomData })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcilers::service::ServiceSpec;

    fn whole(managed: &Value) -> Whole<ServiceSpec> {
        serde_json::from_value(json!({
            "metadata": {
                "name": "shop", "namespace": "ns", "resourceVersion": "7", "managedFields": managed,
                "annotations": { "a.b/c": "1" },
            },
            "spec": {
                "ports": [
                    { "port": 80, "protocol": "TCP", "name": "web" },
                    { "port": 80, "protocol": "UDP", "name": "dns" },
                ],
                "ranges": ["10.0.0.0/8"],
            },
        }))
        .unwrap()
    }

    fn entry(operation: &str, fields: &Value) -> Value {
        json!({ "manager": MANAGER, "operation": operation, "fieldsV1": fields })
    }

    #[test]
    fn what_was_applied_is_known_by_its_place_by_its_keys_and_as_a_whole() {
        let keys = r#"k:{"port":80,"protocol":"UDP"}"#;
        let spec = json!({ "f:ports": { keys: { ".": {}, "f:port": {} } }, "f:ranges": {} });
        let fields =
            json!({ "f:metadata": { "f:annotations": { "f:a.b/c": {} } }, "f:spec": spec });
        let whole = whole(&json!([entry("Apply", &fields)]));
        let applied = [
            "/metadata/annotations/a.b~1c",
            "/spec/ports/1",
            "/spec/ports/1/port",
            "/spec/ranges",
            "/spec/ranges/0",
        ];
        assert!(applied.iter().all(|pointer| whole.was_applied(pointer)));
        let others = ["/metadata/annotations/x", "/spec/ports/0", "/spec/ports/1/name", "/spec/x"];
        assert_eq!(others.map(|pointer| whole.was_applied(pointer)), [false; 4]);
    }

    #[test]
    fn only_our_own_apply_counts_and_what_we_patched_is_left_to_it() {
        let ports = json!({ "f:spec": { "f:ports": {} } });
        let mut theirs = entry("Apply", &ports);
        theirs["manager"] = json!("kubectl");
        let mut status = entry("Apply", &ports);
        status["subresource"] = json!("status");
        let all = json!([entry("Update", &ports), theirs, status, entry("Update", &ports)]);
        let whole = whole(&all);
        assert!(!whole.was_applied("/spec/ports"));
        let path = |at| json!({ "op": "remove", "path": format!("/metadata/managedFields/{at}") });
        assert_eq!(whole.disowning(), [path(3), path(0)]);
    }
}
