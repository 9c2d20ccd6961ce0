//! The types of fields, as far as server-side apply depends on them.
//!
//! Guarantees
//! - A kind with a CustomResourceDefinition has the types of its schema, such as `x-kubernetes-list-type`.
//! - The built-in kinds have the types of Kubernetes' OpenAPI document, by the names of their most common fields.
//! - For other fields, lists are atomic and maps are not, as for fields that a schema does not declare.

use serde_json::Value;

use crate::object::list_keys;

/// The type of one field.
#[derive(Clone, Copy)]
pub(super) enum Type<'a> {
    /// A node of the schema of a CustomResourceDefinition.
    Declared(&'a Value),
    /// A field of a built-in type: its own name, and that of the enclosing field.
    BuiltIn { name: &'a str, within: &'a str },
    /// A field that no schema declares.
    Unknown,
}

/// The keys that identify the items of a list.
pub(super) enum Items<'a> {
    /// None: the list has one owner.
    Atomic,
    /// Their values.
    Set,
    /// These fields, each with its default.
    Keys(Vec<(&'a str, Option<Value>)>),
}

/// End of the groups of built-in kinds, if they have a dot.
const BUILT_IN: &str = ".k8s.io";

/// Fields of built-in types that are maps with any keys.
const FREE_MAPS: [&str; 15] = [
    "allocatable",
    "annotations",
    "binaryData",
    "capacity",
    "data",
    "defaultRequest",
    "hard",
    "labels",
    "limits",
    "overhead",
    "parameters",
    "requests",
    "stringData",
    "used",
    "volumeAttributes",
];

/// Fields of built-in types that are atomic maps.
const ATOMIC_MAPS: [&str; 25] = [
    "claimRef",
    "configMapKeyRef",
    "dataSource",
    "fieldRef",
    "fileKeyRef",
    "imagePullSecrets", // Its items.
    "involvedObject",
    "labelSelector",
    "namespaceSelector",
    "nodeSelector",
    "objectSelector",
    "ownerReferences", // Its items.
    "podSelector",
    "preference",
    "regarding",
    "related",
    "required",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "resourceFieldRef",
    "roleRef",
    "scaleTargetRef",
    "scopeSelector",
    "secretKeyRef",
    "secrets", // Its items.
    "selector",
];

impl<'a> Type<'a> {
    /// Returns the type of the objects of a resource. `schema` comes from its CustomResourceDefinition.
    pub(super) fn of(resource: &str, schema: Option<&'a Value>) -> Type<'a> {
        if let Some(schema) = schema {
            return Type::Declared(schema);
        }
        let group = resource.strip_prefix("/apis/").and_then(|rest| rest.split('/').next());
        let is_built_in =
            group.is_none_or(|group| !group.contains('.') || group.ends_with(BUILT_IN));
        if is_built_in { Type::BuiltIn { name: "", within: "" } } else { Type::Unknown }
    }

    /// Returns the type of a field.
    pub(super) fn field<'b>(self, name: &'b str, is_root: bool) -> Type<'b>
    where
        'a: 'b,
    {
        match self {
            _ if is_root && name == "metadata" => Type::BuiltIn { name, within: "" },
            Type::Declared(schema) => {
                let free = Some(&schema["additionalProperties"]).filter(|free| free.is_object());
                let field = schema["properties"].get(name).or(free);
                field.map_or(Type::Unknown, Type::Declared)
            }
            Type::BuiltIn { name: within, .. } => Type::BuiltIn { name, within },
            Type::Unknown => Type::Unknown,
        }
    }

    /// Returns whether it declares a field of this name. The keys of a map are not declared.
    pub(super) fn declares(self, name: &str, is_root: bool) -> bool {
        match self {
            _ if is_root && ["apiVersion", "kind", "metadata"].contains(&name) => true,
            Type::Declared(schema) => schema["properties"].get(name).is_some(),
            Type::BuiltIn { name: within, .. } => !FREE_MAPS.contains(&within),
            Type::Unknown => false,
        }
    }

    /// Returns the type of a list's items.
    pub(super) fn item(self) -> Type<'a> {
        match self {
            Type::Declared(schema) => Type::Declared(&schema["items"]),
            other => other,
        }
    }

    pub(super) fn is_atomic_map(self) -> bool {
        match self {
            Type::Declared(schema) => schema["x-kubernetes-map-type"] == "atomic",
            Type::BuiltIn { name, within } => {
                ATOMIC_MAPS.contains(&name)
                    || name.ends_with("SecretRef")
                    || name == "secretRef" && within != "envFrom"
            }
            Type::Unknown => false,
        }
    }

    pub(super) fn items(self) -> Items<'a> {
        match self {
            Type::Declared(schema) => match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => Items::Set,
                Some("map") => {
                    let keys = schema["x-kubernetes-list-map-keys"].as_array();
                    let keys = keys.into_iter().flatten().filter_map(Value::as_str);
                    let default =
                        |key: &str| schema["items"]["properties"][key].get("default").cloned();
                    Items::Keys(keys.map(|key| (key, default(key))).collect())
                }
                _ => Items::Atomic,
            },
            Type::BuiltIn { name, within } => built_in(name, within),
            Type::Unknown => Items::Atomic,
        }
    }
}

/// Returns the keys of the items of a list in a built-in kind.
fn built_in(name: &str, within: &str) -> Items<'static> {
    let keys: &[&'static str] = match (within, name) {
        ("metadata", "finalizers") | (_, "podCIDRs") => return Items::Set,
        (_, "ownerReferences") => &["uid"],
        ("status", "conditions" | "addresses") => &["type"],
        (
            _,
            "ephemeralContainers"
            | "matchConditions"
            | "resourceClaims"
            | "schedulingGates"
            | "webhooks",
        ) => &["name"],
        ("", "secrets") | ("resources", "claims") => &["name"],
        (_, "podIPs") => &["ip"],
        // Of a ServiceAccount, and of a rule of a NetworkPolicy.
        ("", "imagePullSecrets") | ("ingress" | "egress", "ports") => return Items::Atomic,
        _ => match list_keys(name, |field| field == "containerPort" && within != "spec") {
            Some(keys) => keys,
            None => return Items::Atomic,
        },
    };
    let default = |key: &str| (key == "protocol").then(|| Value::from("TCP"));
    Items::Keys(keys.iter().map(|&key| (key, default(key))).collect())
}
