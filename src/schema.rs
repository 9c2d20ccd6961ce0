//! CEL rules that several fields share or that are computed, and the parts of the schemas that no derive can express.
//!
//! Messages state what is allowed, with fields in back-quotes and literals in single quotes.
//!
//! A zero value of an optional field ('', 0 where 0 has no meaning, an empty list or map) is accepted and means the
//! same as leaving it out, because clients in Go and templates write it.
//!
//! An API server refuses a CRD whose rules could cost too much. It estimates the cost of a rule from the bounds in the
//! schema, times the number of places where the rule applies. Each rule and each CRD must cost at most half of the
//! budget on the oldest supported server (tests/contract/versions.rs). Older servers, such as 1.33, assume 3 MiB for an
//! int-or-string, whatever its `maxLength`: every function that reads one costs 314,573 of the 10,000,000 that a rule
//! can cost, and `string()` as much again. So the schema checks such fields in lists, and rules check few of them
//! elsewhere.

pub mod parts;

use kube::core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// RFC 1123 subdomain, as the API server has it (k8s.io/apimachinery/pkg/util/validation).
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
/// The name part of a label key, and a label value that is not empty.
const QUALIFIED: &str = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?";

/// `observedGeneration` while no controller has seen the object.
pub(crate) fn unseen() -> i64 {
    -1
}

// === names ===

/// The object's name is also that of `bearers`, which must be DNS labels. A Service's must not
/// begin with a digit on every server (RFC 1035).
pub(crate) fn dns_label_name(bearers: &str) -> Rule {
    Rule::new("size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message(
        format!(
            "`metadata.name` must be at most 63 characters long, consist of lower-case letters, \
             digits and '-', begin with a letter and end with a letter or digit, because {bearers} \
             of the same name must"
        )
        .as_str(),
    )
}

pub(crate) fn object_name() -> Rule {
    rule(
        format!("self.matches('^{SUBDOMAIN}$')"),
        "`name` must be the name of an object: lower-case letters, digits, '-' and '.'",
    )
}

// === images and labels ===

pub(crate) fn image() -> Rule {
    rule(
        "self.matches('^[!-~]+$')".to_owned(),
        "`image` must be the name of an image, not empty and without white space, for example \
         'nginx:1.27'",
    )
}

/// An image in place of the administrator's.
pub(crate) fn own_image() -> Rule {
    rule(
        "self.matches('^[!-~]*$')".to_owned(),
        "`image` must be the name of an image, without white space, for example 'memcached:1.6'; leave it out for the \
         administrator's",
    )
}

pub(crate) fn node_label() -> Rule {
    rule(
        format!("self.matches('^(({SUBDOMAIN}/)?{QUALIFIED}(=({QUALIFIED})?)?)?$')"),
        "`label` must be a node label: 'key' or 'key=value', where key and value have at most 63 \
         letters, digits, '-', '_' and '.' and begin and end with a letter or digit; the key may \
         have a DNS name and '/' before it; leave `label` out for every node",
    )
}

/// The part before the '/' is a DNS name, which has at most 253 characters.
pub(crate) fn prefix_of(field: &str) -> Rule {
    rule(
        "!self.contains('/') || self.indexOf('/') <= 253".to_owned(),
        &format!("`{field}` must have at most 253 characters before the '/'"),
    )
}

// === environment ===

/// Most characters of the values of all variables together. Kubernetes keeps an App several
/// times: as last applied, in its Deployment, and in each of ten ReplicaSets.
pub(crate) const MOST_CHARACTERS: u32 = 65536;

pub(crate) fn sum_of_values() -> Rule {
    rule(
        format!("self.map(e, has(e.value) ? size(e.value) : 0).sum() <= {MOST_CHARACTERS}"),
        &format!(
            "`envs` must have values of at most {MOST_CHARACTERS} characters in all; keep more in a \
             ConfigMap and refer to it with `valueFrom`"
        ),
    )
}

/// The fields that a pod may learn in its environment (k8s.io/kubernetes/pkg/apis/core/validation,
/// validEnvDownwardAPIFieldPathExpressions).
pub(crate) fn field_path() -> Rule {
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

pub(crate) fn divisor_of_a_resource(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "The unit in which it is told.",
        "x-kubernetes-int-or-string": true,
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "enum": [0, 1, "", "0", "1", "1m", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi",
            "1Ti", "1Pi", "1Ei"],
    })
}

// === pods ===

/// The form of a label value.
const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

/// The form of keys is left to the API server's check of the pod template: rules take the keys of a map for as
/// long as a request.
pub(crate) fn pod_labels(_: &mut SchemaGenerator) -> Schema {
    labels(
        "Labels of the pods, beside the operator's own. A change restarts the pods.",
        32,
        &json!([{
            "rule": "self.all(k, !(k in ['app.kubernetes.io/name', 'app.kubernetes.io/instance', \
                'app.kubernetes.io/version', 'app.kubernetes.io/part-of', 'app.kubernetes.io/managed-by', \
                'app.kubernetes.io/created-by', 'cache.example.com/memcached', 'mydomain.com/genericdaemon', \
                'app.example.com/v1']))",
            "message": "`labels` must not have the operator's own labels: 'app.kubernetes.io/' with 'name', 'instance', \
                'version', 'part-of', 'managed-by' or 'created-by', and the label by which the operator selects pods",
        }]),
    )
}

pub(crate) fn pod_annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "Annotations of the pods. A change restarts the pods.",
        "type": "object",
        "maxProperties": 32,
        // With the keys, less than the 256 KiB of k8s.io/apimachinery, TotalAnnotationSizeLimitB.
        "additionalProperties": { "type": "string", "maxLength": 7680 },
        "x-kubernetes-validations": [
            {
                "rule": "!('kubectl.kubernetes.io/restartedAt' in self)",
                "message": "`annotations` must not have 'kubectl.kubernetes.io/restartedAt': kubectl rollout \
                    restart sets it",
            },
            {
                "rule": "self.all(k, size(bytes(self[k])) <= 7680)",
                "message": "each of `annotations` must have at most 7680 bytes",
            },
        ],
    })
}

pub(crate) fn node_selector(_: &mut SchemaGenerator) -> Schema {
    labels("Labels that a node must have to get a pod.", 16, &json!(null))
}

fn labels(description: &str, most: u32, rules: &Value) -> Schema {
    let mut schema = json_schema!({
        "description": description,
        "type": "object",
        "maxProperties": most,
        "additionalProperties": { "type": "string", "maxLength": 63, "pattern": LABEL_VALUE },
    });
    if !rules.is_null() {
        schema.insert("x-kubernetes-validations".to_owned(), rules.clone());
    }
    schema
}

pub(crate) fn topology_key() -> Rule {
    rule(
        format!("self.matches('^({SUBDOMAIN}/)?{QUALIFIED}$')"),
        "`topologyKey` must be the key of a label, for example 'topology.kubernetes.io/zone'",
    )
}

pub(crate) fn taint_key() -> Rule {
    rule(
        format!("self.matches('^(({SUBDOMAIN}/)?{QUALIFIED})?$')"),
        "`key` must be the key of a taint, for example 'example.com/gpu'",
    )
}

pub(crate) fn name_in(field: &str) -> Rule {
    rule(
        format!("self.matches('^{SUBDOMAIN}$')"),
        &format!(
            "`{field}` must be the name of an object: lower-case letters, digits, '-' and '.'"
        ),
    )
}

/// As [`name_in`], of an optional field.
pub(crate) fn optional_name_in(field: &str) -> Rule {
    rule(
        format!("self.matches('^({SUBDOMAIN})?$')"),
        &format!(
            "`{field}` must be the name of an object: lower-case letters, digits, '-' and '.'"
        ),
    )
}

pub(crate) fn when_unsatisfiable(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "'DoNotSchedule' leaves a pod pending, 'ScheduleAnyway' prefers the other nodes.",
        "type": "string",
        "enum": ["DoNotSchedule", "ScheduleAnyway"],
    })
}

// === resources ===

/// Amounts by resource name. No `hugepages-…`: they need volumes, which an App has not. That the
/// name of an extended resource is well-formed is left to the API server's check of the Deployment:
/// rules take the keys of a map for as long as a request.
pub(crate) fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": MOST_RESOURCES,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "maxLength": 64,
        },
        "x-kubernetes-validations": [
            {
                "rule": "self.all(k, k in ['cpu', 'memory', 'ephemeral-storage'] || \
                    (k.contains('/') && !k.contains('kubernetes.io/') && !k.startsWith('requests.')))",
                "message": "a resource must be 'cpu', 'memory', 'ephemeral-storage', or an extended \
                    resource such as 'example.com/gpu'",
            },
            {
                "rule": "self.all(k, type(self[k]) == int ? int(self[k]) >= 0 : \
                    isQuantity(self[k]) && !quantity(self[k]).isLessThan(quantity('0')))",
                "message": "an amount must be a quantity that is greater than or equal to 0, for \
                    example '500m' or '64Mi'",
            },
        ],
    })
}

/// Three of Kubernetes' own, and four extended ones.
const MOST_RESOURCES: u64 = 7;

/// Of one resource, so that the rule stays within its budget.
pub(crate) fn request_within_limit(resource: &str) -> Rule {
    let (request, limit) =
        (format!("self.requests['{resource}']"), format!("self.limits['{resource}']"));
    let is_quantity = |value: &str| format!("(type({value}) == int || isQuantity({value}))");
    rule(
        format!(
            "!has(self.requests) || !has(self.limits) || !('{resource}' in self.requests) || \
             !('{resource}' in self.limits) || !{} || !{} || \
             quantity(string({request})).compareTo(quantity(string({limit}))) <= 0",
            is_quantity(&request),
            is_quantity(&limit),
        ),
        &format!(
            "each of `requests` must be less than or equal to the same of `limits`: `{resource}` is not"
        ),
    )
}

/// Extended resources are counted: whole,
pub(crate) fn whole_resources() -> Rule {
    let limit = "self.limits[k]";
    rule(
        format!(
            "!has(self.limits) || self.limits.all(k, !k.contains('/') || type({limit}) == int || \
             !isQuantity({limit}) || quantity({limit}).isInteger())"
        ),
        "an extended resource must be a whole number in `limits`",
    )
}

/// and not shared (no overcommitment). What is not a quantity has a rule of its own.
pub(crate) fn extended_requests() -> Rule {
    let (request, limit) = ("self.requests[k]", "self.limits[k]");
    let number = |value: &str, other: &str| {
        format!("(type({value}) == int && {other} in [dyn(string(int({value})))])")
    };
    rule(
        format!(
            "!has(self.requests) || self.requests.all(k, !k.contains('/') || (has(self.limits) && k in self.limits && \
             ({request} in [{limit}] || {} || {} || (type({request}) == string && type({limit}) == string && \
             quantity({request}).compareTo(quantity({limit})) == 0))))",
            number(request, limit),
            number(limit, request),
        ),
        "an extended resource in `requests` must be in `limits` too, with the same number",
    )
}

// === containers ===

/// The kubelet never runs a probe of a port that the container does not have. Only a `targetPort` names one.
/// (`==` of what may be a number or a text has no bounded cost.)
pub(crate) fn probes_a_named_port(probe: &str) -> Rule {
    let of = |handler: &str| {
        let port = format!("self.{probe}.{handler}.port");
        format!(
            "(!has(self.{probe}.{handler}) || type({port}) == int || \
             self.ports.exists(p, has(p.targetPort) && p.targetPort in [{port}]))"
        )
    };
    rule(
        format!("!has(self.{probe}) || ({} && {})", of("httpGet"), of("tcpSocket")),
        &format!(
            "the port of `{probe}` must be a number, or the name that is the `targetPort` of one of `ports`"
        ),
    )
}

pub(crate) fn probe_port(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "The port: a number from 1 to 65535, or the name that is the `targetPort` of one of `ports`.",
        "x-kubernetes-int-or-string": true,
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "minimum": 1,
        "maximum": 65535,
        "maxLength": 15,
        "pattern": PORT_NAME,
    })
}

pub(crate) fn mount_path() -> Rule {
    rule(
        "self.startsWith('/') && self != '/' && !self.contains(':')".to_owned(),
        "`mountPath` must begin with '/', be longer than that, and not contain ':'",
    )
}

pub(crate) fn no_root_if_restricted() -> Rule {
    rule(
        "!has(self.securityProfile) || self.securityProfile == '' || !has(self.runAsUser) || self.runAsUser > 0"
            .to_owned(),
        "`runAsUser` must be greater than 0 if `securityProfile` is 'Restricted'",
    )
}

/// A node has one value of a label.
pub(crate) fn label_and_selector() -> Rule {
    let (key, value) = ("self.label.split('=')[0]", "self.label.split('=')[1]");
    rule(
        format!(
            "!has(self.label) || !self.label.contains('=') || !has(self.pod) || !has(self.pod.nodeSelector) || \
             !({key} in self.pod.nodeSelector) || self.pod.nodeSelector[{key}] == {value}"
        ),
        "`pod.nodeSelector` must not have the key of `label` with another value",
    )
}

pub(crate) fn amount(_: &mut SchemaGenerator) -> Schema {
    amount_of("A number of pods, or a percentage such as '25%'.", (0, 0))
}

pub(crate) fn amount_of_a_budget(_: &mut SchemaGenerator) -> Schema {
    amount_of("The pods that may be missing, at least 1, or a percentage such as '25%'.", (1, 1))
}

pub(crate) fn amount_of_nodes(_: &mut SchemaGenerator) -> Schema {
    amount_of(
        "Nodes whose pod may be missing during a rolling update, a number or a percentage such as '10%'; 1 if \
         absent.",
        // 0 means absent, but 0% does not.
        (0, 1),
    )
}

fn amount_of(description: &str, (least, least_share): (u32, u32)) -> Schema {
    json_schema!({
        "description": description,
        "x-kubernetes-int-or-string": true,
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "minimum": least,
        "maximum": i32::MAX,
        "maxLength": 4,
        "pattern": if least_share == 0 { "^(100|[1-9]?[0-9])%$" } else { "^(100|[1-9][0-9]?)%$" },
    })
}

// === memcached ===

/// The memory for items, or memcached's default.
const MEMORY: &str = "quantity(has(self.memory) && self.memory != '' ? self.memory : '64Mi')";

/// The formula of the default limit (`memory_needed`), without what more than 1,024 connections need.
pub(crate) fn memory_limit() -> Rule {
    let limit = "self.resources.limits['memory']";
    rule(
        format!(
            "!has(self.resources) || !has(self.resources.limits) || !('memory' in self.resources.limits) || \
             !(type({limit}) == int || isQuantity({limit})) || quantity(string({limit})).asApproximateFloat() >= \
             1.2 * {MEMORY}.asApproximateFloat() + 67108864.0"
        ),
        "`resources` must have a memory limit of at least 1.2 times `memory` (64Mi if absent) and 64Mi",
    )
}

pub(crate) fn item_size() -> Rule {
    rule(
        format!(
            "!has(self.maxItemSize) || self.maxItemSize == '' || \
             quantity(self.maxItemSize).add(quantity(self.maxItemSize)).compareTo({MEMORY}) <= 0"
        ),
        "`maxItemSize` must be at most half of `memory` (64Mi if absent)",
    )
}

/// The suboptions of `-o` that each memcached 1.6 takes, with the values with which it starts, in any combination
/// (tests/contract/real_memcached.rs). Certificates, files and programs are not a user's to choose.
const MEMCACHED_OPTIONS: &[&str] = &[
    "(no_)?(maxconns_fast|slab_reassign|lru_crawler|lru_maintainer|inline_ascii_resp|modern)",
    "no_hashexpand|no_slab_automove|no_chunked_items|track_sizes",
    "slab_automove(=[0-2])?",
    "hash_algorithm=(jenkins|murmur3|xxh3)",
    // Less than 16 is not above the table of locks of 64 threads; more than 20 takes more than 8 MiB at once.
    "hashpower=(1[6-9]|20)",
    "slab_automove_ratio=0[.][0-9]{1,3}",
    "(slab_automove_window|lru_crawler_tocrawl|temporary_ttl|idle_timeout)=[0-9]{1,6}",
    "(hot_max_factor|warm_max_factor)=[0-9][.][0-9]{1,3}",
    // Together at most 80.
    "(hot|warm)_lru_pct=([2-9]|[1-3][0-9]|40)",
    "tail_repair_time=[1-9][0-9]{1,5}",
    "lru_crawler_sleep=[0-9]{1,6}",
    "(watcher_logbuf_size|worker_logbuf_size)=(6[4-9]|[7-9][0-9]|[1-9][0-9]{2,3})",
    "read_buf_mem_limit=[1-9][0-9]{1,3}",
];

pub(crate) fn memcached_options() -> Rule {
    rule(
        format!("self.all(o, o.matches('^({})$'))", MEMCACHED_OPTIONS.join("|")),
        "`options` must be settings of memcached's -o with a value that memcached 1.6 takes, for example \
         'idle_timeout=600' or 'no_lru_crawler' (memcached --help lists them), and none of 'ssl_', 'ext_', 'proxy_', \
         privileges, 'slab_sizes' and 'slab_chunk_max'",
    )
}

// === ports ===

const PORT_NAME: &str = "^([a-z0-9]+-)*[a-z0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*$";
/// Empty, as some clients write what is not set, or the name of a container's port.
const TARGET_PORT: &str = "^(([a-z0-9]+-)*[a-z0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*)?$";

/// A number, or an IANA_SVC_NAME (k8s.io/apimachinery/pkg/util/validation, IsValidPortName).
pub(crate) fn target_port(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "The port on which the container listens: a number from 1 to 65535, or a name \
            for it of at most 15 lower-case letters, digits and single '-' between them, with at \
            least one letter, which stands for the number `port`; the port itself if absent, 0 or empty.",
        "x-kubernetes-int-or-string": true,
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "minimum": 0,
        "maximum": 65535,
        "maxLength": 15,
        "pattern": TARGET_PORT,
    })
}

pub(crate) fn app_protocol() -> Rule {
    rule(
        format!("self.matches('^(({SUBDOMAIN}/)?{QUALIFIED})?$')"),
        "`appProtocol` must be a name such as 'http' or 'kubernetes.io/h2c'",
    )
}

fn rule(rule: String, message: &str) -> Rule {
    Rule::new(rule).message(message)
}
