//! Environment variables.

use serde::{Deserialize, Serialize};

use crate::object::{Quantity, Text};

/// An environment variable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvVar {
    /// Its key.
    pub name: Text,
    /// Its value, empty if it comes from elsewhere.
    pub value: Text,
    /// Where its value comes from.
    pub value_from: Option<Box<ValueSource>>,
}

/// Where the value of a variable comes from; one of these is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ValueSource {
    /// A ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,
    /// A Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
    /// The pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<FieldRef>,
    /// The container's resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_field_ref: Option<ResourceRef>,
}

/// A key of a ConfigMap or Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyRef {
    /// The object's name.
    pub name: Text,
    /// The key.
    pub key: Text,
    /// True if a pod may start without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// A field of the pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FieldRef {
    /// The version of the API; the API server fills in `v1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<Text>,
    /// The field's path.
    pub field_path: Text,
}

/// A resource of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceRef {
    /// The container; this one if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_name: Option<Text>,
    /// The unit; the API server fills in `0`, which means 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divisor: Option<Quantity>,
    /// The resource.
    pub resource: Text,
}

// === impl EnvVar ===

impl Serialize for EnvVar {
    /// A value is sent even if it is empty, to overwrite what somebody else may have put there.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("name", &self.name)?;
        match &self.value_from {
            Some(source) => map.serialize_entry("valueFrom", source)?,
            None => map.serialize_entry("value", &self.value)?,
        }
        map.end()
    }
}

// === impl ValueSource ===

impl ValueSource {
    /// Which kinds of sources are set: the API server refuses two, and an apply replaces one of the same
    /// kind.
    pub(super) fn kinds(&self) -> [bool; 4] {
        [
            self.config_map_key_ref.is_some(),
            self.secret_key_ref.is_some(),
            self.field_ref.is_some(),
            self.resource_field_ref.is_some(),
        ]
    }
}
