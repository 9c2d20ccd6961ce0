//! What the API server checks: CEL rules, and the parts of the schemas that no derive can say.
//!
//! Messages say what is allowed, with fields in back-quotes and literals in single quotes.

use kube::core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// RFC 1123 subdomain, as the API server has it (k8s.io/apimachinery/pkg/util/validation).
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
/// The name part of a label key, and a label value that is not empty.
const QUALIFIED: &str = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?";

// === names ===

/// The object's name is also that of `bearers`, which must be DNS labels. A Service's must not
/// begin with a digit on every server (RFC 1035).
pub(super) fn dns_label_name(bearers: &str) -> Rule {
    Rule::new("size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message(
        format!(
            "`metadata.name` must be at most 63 characters long, consist of lower-case letters, \
             digits and '-', begin with a letter and end with a letter or digit, because {bearers} \
             of the same name must"
        )
        .as_str(),
    )
}

/// The DaemonSet controller names a ControllerRevision after the DaemonSet, `-` and up to 10
/// characters; an object's name has at most 253.
pub(super) fn daemon_name() -> Rule {
    Rule::new("size(self.metadata.name) <= 242").message(
        "`metadata.name` must be at most 242 characters long, because the DaemonSet's revisions \
         have it with 11 characters more",
    )
}

pub(super) fn object_name() -> Rule {
    rule(
        format!("self.matches('^{SUBDOMAIN}$')"),
        "`name` must be the name of an object: lower-case letters, digits, '-' and '.'",
    )
}

pub(super) fn config_key() -> Rule {
    rule(
        "self.matches('^[-._a-zA-Z0-9]+$') && self != '.' && !self.startsWith('..')".to_owned(),
        "`key` must consist of letters, digits, '-', '_' and '.', and not be '.' or begin with '..'",
    )
}

// === images and labels ===

pub(super) fn image() -> Rule {
    rule(
        "self.matches('^[!-~]+$')".to_owned(),
        "`image` must be the name of an image, not empty and without white space, for example \
         'nginx:1.27'",
    )
}

pub(super) fn node_label() -> Rule {
    rule(
        format!("self.matches('^({SUBDOMAIN}/)?{QUALIFIED}(=({QUALIFIED})?)?$')"),
        "`label` must be a node label: 'key' or 'key=value', where key and value have at most 63 \
         letters, digits, '-', '_' and '.' and begin and end with a letter or digit; the key may \
         have a DNS name and '/' before it; leave `label` out for every node",
    )
}

/// The part before the '/' is a DNS name, which has at most 253 characters.
pub(super) fn prefix_of(field: &str) -> Rule {
    rule(
        "!self.contains('/') || self.indexOf('/') <= 253".to_owned(),
        &format!("`{field}` must have at most 253 characters before the '/'"),
    )
}

// === environment ===

/// What every API server takes: since 1.32 they take any printable ASCII but '=', before that only
/// this (k8s.io/apimachinery/pkg/util/validation, IsEnvVarName).
pub(super) fn env_name() -> Rule {
    rule(
        "self.matches('^[-._a-zA-Z][-._a-zA-Z0-9]*$') && self != '.' && !self.startsWith('..')"
            .to_owned(),
        "`name` must consist of letters, digits, '-', '_' and '.', not begin with a digit, and not \
         be '.' or begin with '..', for example 'LOG_LEVEL'",
    )
}

pub(super) fn one_value() -> Rule {
    rule(
        "!has(self.valueFrom) || !has(self.value) || self.value == ''".to_owned(),
        "an environment variable must have either `value` or `valueFrom`",
    )
}

pub(super) fn one_source() -> Rule {
    rule(
        "[has(self.configMapKeyRef), has(self.secretKeyRef), has(self.fieldRef), \
         has(self.resourceFieldRef)].filter(x, x).size() == 1"
            .to_owned(),
        "`valueFrom` must have one of `configMapKeyRef`, `secretKeyRef`, `fieldRef` and \
         `resourceFieldRef`",
    )
}

/// The fields that a pod may learn in its environment (k8s.io/kubernetes/pkg/apis/core/validation,
/// validEnvDownwardAPIFieldPathExpressions).
pub(super) fn field_path() -> Rule {
    rule(
        format!(
            "self in ['metadata.name', 'metadata.namespace', 'metadata.uid', 'spec.nodeName', \
             'spec.serviceAccountName', 'status.hostIP', 'status.hostIPs', 'status.podIP', \
             'status.podIPs'] || \
             self.matches(\"^metadata[.](labels|annotations)\\\\['({SUBDOMAIN}/)?{QUALIFIED}'\\\\]$\")"
        ),
        "`fieldPath` must be one of 'metadata.name', 'metadata.namespace', 'metadata.uid', \
         'spec.nodeName', 'spec.serviceAccountName', 'status.hostIP', 'status.hostIPs', \
         'status.podIP', 'status.podIPs', or metadata.labels['KEY'] or metadata.annotations['KEY']",
    )
}

/// As [`prefix_of`], behind the quote.
pub(super) fn field_path_prefix() -> Rule {
    rule(
        "!self.contains('/') || self.indexOf('/') - self.indexOf('[') <= 255".to_owned(),
        "`fieldPath` must have a KEY with at most 253 characters before the '/'",
    )
}

pub(super) fn resource_field() -> Rule {
    rule(
        "self.matches('^(limits|requests)[.](cpu|memory|ephemeral-storage)$')".to_owned(),
        "`resource` must be 'limits.' or 'requests.' followed by 'cpu', 'memory' or \
         'ephemeral-storage'",
    )
}

pub(super) fn divisor() -> Rule {
    rule(
        "!has(self.divisor) || (self.resource.endsWith('.cpu') ? string(self.divisor) in ['0', '1', '1m'] : \
         string(self.divisor) in ['0', '1', '1k', '1M', '1G', '1T', '1P', '1E', '1Ki', '1Mi', '1Gi', '1Ti', '1Pi', '1Ei'])"
            .to_owned(),
        "`divisor` must be '1' or '1m' for cpu, and '1' or one unit such as '1M' or '1Mi' for the \
         others",
    )
}

pub(super) fn field_api_version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "description": "Always 'v1'.", "type": "string", "enum": ["v1"] })
}

// === resources ===

/// Amounts by resource name. No `hugepages-…`: they need volumes, which an App has not.
pub(super) fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": quantity_schema(),
        "x-kubernetes-validations": [
            {
                "rule": format!(
                    "self.all(k, k in ['cpu', 'memory', 'ephemeral-storage'] || \
                     (size(k) <= 200 && k.matches('^{SUBDOMAIN}/{QUALIFIED}$') && !k.contains('kubernetes.io/')))"
                ),
                "message": "a resource must be 'cpu', 'memory', 'ephemeral-storage', or an extended \
                    resource such as 'example.com/gpu'",
            },
            {
                "rule": "self.all(k, isQuantity(string(self[k])) && !quantity(string(self[k])).isLessThan(quantity('0')))",
                "message": "an amount must be a quantity that is greater than or equal to 0, for \
                    example '500m' or '64Mi'",
            },
        ],
    })
}

pub(super) fn quantity(_: &mut SchemaGenerator) -> Schema {
    let mut schema = quantity_schema();
    schema["description"] = json!("The unit in which it is told.");
    Schema::try_from(schema).expect("an object is a schema")
}

fn quantity_schema() -> Value {
    json!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "maxLength": 64,
    })
}

pub(super) fn requests_within_limits() -> Rule {
    rule(
        "!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) || \
         (isQuantity(string(self.requests[k])) && isQuantity(string(self.limits[k])) && \
         quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0))"
            .to_owned(),
        "each of `requests` must be less than or equal to the same of `limits`",
    )
}

/// Extended resources are counted: whole, and not shared (no overcommitment).
pub(super) fn whole_resources() -> Rule {
    rule(
        "(!has(self.limits) || self.limits.all(k, !k.contains('/') || \
         (isQuantity(string(self.limits[k])) && quantity(string(self.limits[k])).isInteger()))) && \
         (!has(self.requests) || self.requests.all(k, !k.contains('/') || \
         (has(self.limits) && k in self.limits && isQuantity(string(self.requests[k])) && \
         isQuantity(string(self.limits[k])) && \
         quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) == 0)))"
            .to_owned(),
        "an extended resource must be a whole number in `limits`, and the same in `requests` if \
         there at all",
    )
}

// === ports ===

pub(super) fn protocol(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "The transport.",
        "type": "string",
        "enum": ["TCP", "UDP", "SCTP"],
    })
}

/// A number, or an IANA_SVC_NAME (k8s.io/apimachinery/pkg/util/validation, IsValidPortName).
pub(super) fn target_port(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "The port on which the container listens: a number, or a name for it; the \
            port itself if absent.",
        "x-kubernetes-int-or-string": true,
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "maxLength": 15,
        "x-kubernetes-validations": [{
            "rule": "type(self) == int ? (int(self) >= 1 && int(self) <= 65535) : \
                (string(self).matches('^[a-z0-9]+(-[a-z0-9]+)*$') && string(self).matches('[a-z]'))",
            "message": "`targetPort` must be a number from 1 to 65535, or a name of at most 15 \
                lower-case letters, digits and single '-' between them, with at least one letter",
        }],
    })
}

pub(super) fn service_port_name() -> Rule {
    rule(
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')".to_owned(),
        "`name` must consist of lower-case letters, digits and '-', and begin and end with a letter \
         or digit",
    )
}

pub(super) fn app_protocol() -> Rule {
    rule(
        format!("self.matches('^({SUBDOMAIN}/)?{QUALIFIED}$')"),
        "`appProtocol` must be a name such as 'http' or 'kubernetes.io/h2c'",
    )
}

pub(super) fn port_names() -> Rule {
    rule(
        "self.all(p, !has(p.name) || self.exists_one(q, has(q.name) && q.name == p.name)) && \
         self.all(p, !has(p.nodePort) || self.exists_one(q, has(q.nodePort) && \
         q.nodePort == p.nodePort && q.protocol == p.protocol))"
            .to_owned(),
        "each of `ports` must have a `name` and a `nodePort` of its own, where it has one",
    )
}

/// The container's port has the name, and a name belongs to one port.
pub(super) fn target_port_names() -> Rule {
    rule(
        "self.all(p, !has(p.targetPort) || type(p.targetPort) == int || self.all(q, \
         !has(q.targetPort) || q.targetPort != p.targetPort || q.protocol == p.protocol))"
            .to_owned(),
        "`ports` with the same name as `targetPort` must have the same `protocol`",
    )
}

fn rule(rule: String, message: &str) -> Rule {
    Rule::new(rule).message(message)
}
