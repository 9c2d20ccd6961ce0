//! Fields of containers: environment variables, resources and security.

use kube::KubeSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::object::{InternedStr, Quantity};
use crate::schema;

/// An environment variable.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[schemars(!default)]
#[x_kube(validation = (
    "!has(self.valueFrom) || !has(self.value) || self.value == ''",
    "an environment variable must have either `value` or `valueFrom`",
))]
pub struct EnvVar {
    /// Name of the variable: letters, digits, '-', '_' and '.'. It cannot begin with a digit.
    #[schemars(length(max = 256))]
    // Every API server accepts this form. Servers before 1.32 accept no other; later ones accept any
    // printable ASCII but '=' (k8s.io/apimachinery/pkg/util/validation, IsEnvVarName).
    #[x_kube(validation = (
        "self.matches('^[-._a-zA-Z][-._a-zA-Z0-9]*$') && self != '.' && !self.startsWith('..')",
        "`name` must consist of letters, digits, '-', '_' and '.', not begin with a digit, and not be '.' or \
         begin with '..', for example 'LOG_LEVEL'",
    ))]
    pub name: InternedStr,
    /// Value of the variable. $(NAME) is replaced by the value of an earlier variable.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    #[schemars(length(max = 65536))]
    pub value: InternedStr,
    /// Source of the value. Cannot be combined with `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<Box<ValueSource>>,
}

/// Source of a value: one of these.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[schemars(!default)]
#[x_kube(validation = (
    "[has(self.configMapKeyRef), has(self.secretKeyRef), has(self.fieldRef), \
     has(self.resourceFieldRef)].filter(x, x).size() == 1",
    "`valueFrom` must have one of `configMapKeyRef`, `secretKeyRef`, `fieldRef` and `resourceFieldRef`",
))]
pub struct ValueSource {
    /// Key of a ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,
    /// Key of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
    /// Field of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<FieldRef>,
    /// Resource limit or request of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_field_ref: Option<ResourceRef>,
}

/// A key of a ConfigMap or a Secret.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[schemars(!default)]
pub struct KeyRef {
    /// Name of the object.
    #[schemars(length(max = 253))]
    #[x_kube(validation = schema::object_name())]
    pub name: InternedStr,
    /// Key to select.
    #[schemars(length(max = 253))]
    #[x_kube(validation = (
        "self.matches('^[-._a-zA-Z0-9]+$') && self != '.' && !self.startsWith('..')",
        "`key` must consist of letters, digits, '-', '_' and '.', and not be '.' or begin with '..'",
    ))]
    pub key: InternedStr,
    /// If true, a pod can start without it.
    #[serde(default, deserialize_with = "unless_zero", skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// Field of the pod.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[schemars(!default)]
pub struct FieldRef {
    /// API version of the field path. Always 'v1'.
    #[serde(default, deserialize_with = "unless_zero", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["v1", ""]))]
    pub api_version: Option<InternedStr>,
    /// Path of the field, for example 'metadata.name'.
    #[schemars(length(max = 512))]
    #[x_kube(validation = schema::field_path())]
    // Like [`prefix_of`], for the part after the quote.
    #[x_kube(validation = (
        "!self.contains('/') || self.indexOf('/') - self.indexOf('[') <= 255",
        "`fieldPath` must have a KEY with at most 253 characters before the '/'",
    ))]
    pub field_path: InternedStr,
}

/// Resource limit or request of the container.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[schemars(!default)]
// The schema lists all divisors; this rule checks which of them fit the resource.
#[x_kube(validation = (
    "!has(self.divisor) || (self.resource.endsWith('.cpu') ? type(self.divisor) == int || self.divisor in \
     [dyn(''), dyn('0'), dyn('1'), dyn('1m')] : self.divisor != '1m')",
    "`divisor` must be '1' or '1m' for cpu, and '1' or one unit such as '1M' or '1Mi' for the others",
))]
pub struct ResourceRef {
    /// Name of the container. Defaults to the container that has the variable.
    #[serde(default, deserialize_with = "unless_zero", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub container_name: Option<InternedStr>,
    /// Unit of the value.
    #[serde(default, deserialize_with = "divisor", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::divisor_of_a_resource")]
    pub divisor: Option<Quantity>,
    /// Name of the resource, for example 'limits.cpu'.
    #[schemars(length(max = 253))]
    #[x_kube(validation = (
        "self.matches('^(limits|requests)[.](cpu|memory|ephemeral-storage)$')",
        "`resource` must be 'limits.' or 'requests.' followed by 'cpu', 'memory' or 'ephemeral-storage'",
    ))]
    pub resource: InternedStr,
}

/// Amounts by resource name, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quantities(pub Box<[(InternedStr, Quantity)]>);

/// Compute resources of a container.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[schemars(!default)]
#[x_kube(validation = schema::request_within_limit("cpu"), validation = schema::request_within_limit("memory"), validation = schema::request_within_limit("ephemeral-storage"), validation = schema::extended_limits(), validation = schema::extended_requests())]
pub struct Resources {
    /// Maximum amounts, by resource name.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub limits: Quantities,
    /// Reserved amounts, by resource name. Default to the limits.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub requests: Quantities,
}

// === impl EnvVar ===

impl Serialize for EnvVar {
    /// Sends a value even if it is empty, to overwrite that of another manager.
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

// === impl Resources ===

impl Resources {
    /// Returns whether neither limits nor requests are set.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.requests.is_empty()
    }
}

impl Quantities {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the amount of a resource.
    pub(crate) fn get(&self, name: &str) -> Option<&Quantity> {
        self.0.iter().find(|(resource, _)| resource.as_str() == name).map(|(_, amount)| amount)
    }

    /// Sets the amount of a resource that has none.
    pub(crate) fn set_default(&mut self, name: &str, amount: Quantity) {
        if self.get(name).is_none() {
            let mut all = std::mem::take(&mut self.0).into_vec();
            all.push((InternedStr::new(name), amount));
            all.sort_unstable_by(|one, other| one.0.as_str().cmp(other.0.as_str()));
            self.0 = all.into();
        }
    }
}

impl Serialize for Quantities {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, amount)| (name, amount)))
    }
}

impl<'de> Deserialize<'de> for Quantities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantities, D::Error> {
        let map =
            Option::<std::collections::BTreeMap<InternedStr, Quantity>>::deserialize(deserializer)?;
        Ok(Quantities(map.unwrap_or_default().into_iter().collect()))
    }
}

/// Reads a zero value as absent, because clients in Go and templates write it for a field that is not set.
pub(crate) fn unless_zero<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default + PartialEq,
{
    Ok(Option::<T>::deserialize(deserializer)?.filter(|value| *value != T::default()))
}

/// Reads a quantity like [`unless_zero`]. `0` is kept, because the API server shows it.
fn divisor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Quantity>, D::Error> {
    Ok(Option::<Quantity>::deserialize(deserializer)?.filter(|unit| unit.millis().is_some()))
}

/// Returns the security context of a user's image. Pod Security `restricted` also requires `runAsNonRoot` and
/// no capabilities. An image that begins as root, as nginx does, then does not start
/// (`chown("/var/cache/nginx/client_temp", 101) failed (1: Operation not permitted)`). Only the user knows the
/// needs of the image and can choose the profile `Restricted`.
pub(crate) fn security(profile: &str, run_as_user: Option<i64>) -> Value {
    let mut context = json!({ "allowPrivilegeEscalation": false });
    if profile == "Restricted" {
        context["runAsNonRoot"] = json!(true);
        context["capabilities"] = json!({ "drop": ["ALL"] });
    }
    if let Some(user) = run_as_user {
        context["runAsUser"] = json!(user);
    }
    context
}

/// Returns the policy in the spec, or `IfNotPresent`, whatever the image's tag is.
pub(crate) fn pull_policy(named: &str) -> &str {
    if named.is_empty() { "IfNotPresent" } else { named }
}
