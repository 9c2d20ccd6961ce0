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
pub(crate) mod template;

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

/// Requires a name that is a DNS label, because `bearers` have the same name. Some servers also reject a
/// Service's name that begins with a digit (RFC 1035).
pub(crate) fn dns_label_name(bearers: &str) -> Rule {
    Rule::new("size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message(
        format!(
            "`metadata.name` must have at most 63 lower-case letters, digits and '-', begin with a letter, and end \
             with a letter or digit, because {bearers} must have the same name"
        )
        .as_str(),
    )
}

pub(crate) fn object_name() -> Rule {
    rule(
        format!("self.matches('^{SUBDOMAIN}$')"),
        "`name` must be a valid object name: lower-case letters, digits, '-' and '.'",
    )
}

// === images and labels ===

pub(crate) fn image() -> Rule {
    rule(
        "self.matches('^[!-~]+$')".to_owned(),
        "`image` must be the name of an image without white space, for example 'nginx:1.27'",
    )
}

/// Validates an image that replaces the administrator's.
pub(crate) fn own_image() -> Rule {
    rule(
        "self.matches('^[!-~]*$')".to_owned(),
        "`image` must be the name of an image without white space, for example 'memcached:1.6'; without it, the \
         administrator's image is used",
    )
}

pub(crate) fn node_label() -> Rule {
    rule(
        format!("self.matches('^(({SUBDOMAIN}/)?{QUALIFIED}(=({QUALIFIED})?)?)?$')"),
        "`label` must be a node label: 'key' or 'key=value', for example 'logs' or 'example.com/disk=ssd'; a key and \
         a value have at most 63 letters, digits, '-', '_' and '.', and begin and end with a letter or digit",
    )
}

/// Limits the part before the '/' to 253 characters, because it is a DNS name.
pub(crate) fn prefix_of(field: &str) -> Rule {
    rule(
        "!self.contains('/') || self.indexOf('/') <= 253".to_owned(),
        &format!("`{field}` must have at most 253 characters before the '/'"),
    )
}

// === environment ===

/// Maximum total length of the values of all variables, in characters. Kubernetes stores an App several
/// times: as last applied, in its Deployment, and in each of its ReplicaSets.
pub(crate) const MOST_CHARACTERS: u32 = 65536;

pub(crate) fn sum_of_values() -> Rule {
    rule(
        format!("self.map(e, has(e.value) ? size(e.value) : 0).sum() <= {MOST_CHARACTERS}"),
        &format!(
            "`envs` must have at most {MOST_CHARACTERS} characters of values in total; move long values to a \
             ConfigMap and refer to it with `valueFrom`"
        ),
    )
}

/// Allows the fields of a pod that an environment variable can refer to
/// (k8s.io/kubernetes/pkg/apis/core/validation, validEnvDownwardAPIFieldPathExpressions).
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
        "description": "Unit of the value.",
        "x-kubernetes-int-or-string": true,
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "enum": [0, 1, "", "0", "1", "1m", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi",
            "1Ti", "1Pi", "1Ei"],
    })
}

// === pods ===

/// The form of a label value.
const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

/// Returns the schema of pod labels. The API server validates the keys in the pod template. A rule would
/// exceed its budget, because the estimate assumes that the keys of a map are as long as a request.
pub(crate) fn pod_labels(_: &mut SchemaGenerator) -> Schema {
    labels(
        "Additional labels of the pods. A change restarts the pods.",
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
        // Together with the keys, the values stay below 256 KiB (k8s.io/apimachinery,
        // TotalAnnotationSizeLimitB).
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
    labels("Labels that a node must have to run the pods.", 16, &json!(null))
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
        &format!("`{field}` must be a valid object name: lower-case letters, digits, '-' and '.'"),
    )
}

/// Like [`name_in`], for an optional field.
pub(crate) fn optional_name_in(field: &str) -> Rule {
    rule(
        format!("self.matches('^({SUBDOMAIN})?$')"),
        &format!("`{field}` must be a valid object name: lower-case letters, digits, '-' and '.'"),
    )
}

pub(crate) fn when_unsatisfiable(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "With 'DoNotSchedule', a pod that would exceed `maxSkew` stays pending. With 'ScheduleAnyway', the scheduler only prefers other nodes.",
        "type": "string",
        "enum": ["DoNotSchedule", "ScheduleAnyway"],
    })
}

// === resources ===

/// Returns the schema of amounts by resource name. It excludes `hugepages-…`, which need volumes that an App
/// cannot have. The API server validates the names of extended resources in the Deployment, because a rule
/// would exceed its budget.
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

/// Maximum number of resources: three of Kubernetes' own and four extended ones.
const MOST_RESOURCES: u64 = 7;

/// Requires that the request of one resource does not exceed its limit. One rule for all resources would
/// exceed its budget.
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
        &format!("`requests` must not exceed `limits`: `{resource}` does"),
    )
}

/// Requires that limits of extended resources are whole numbers.
pub(crate) fn extended_limits() -> Rule {
    let limit = "self.limits[k]";
    rule(
        format!(
            "!has(self.limits) || self.limits.all(k, !k.contains('/') || type({limit}) == int || \
             !isQuantity({limit}) || quantity({limit}).isInteger())"
        ),
        "the limit of an extended resource must be a whole number",
    )
}

/// Requires that requests of extended resources equal their limits. Another rule rejects invalid quantities.
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
        "the request of an extended resource must equal its limit",
    )
}

// === containers ===

/// Requires that the container has the named port of a probe, because the kubelet never runs a probe of an
/// unknown port. Only a `targetPort` names a port. (`==` of an int-or-string has no bounded cost.)
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
            "the port of `{probe}` must be a number, or a name that one of `ports` has as its `targetPort`"
        ),
    )
}

pub(crate) fn probe_port(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "Port: a number from 1 to 65535, or a name that one of `ports` has as its `targetPort`.",
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
        "`mountPath` must begin with '/', must not be '/', and must not contain ':'",
    )
}

pub(crate) fn no_root_if_restricted() -> Rule {
    rule(
        "!has(self.securityProfile) || self.securityProfile == '' || !has(self.runAsUser) || self.runAsUser > 0"
            .to_owned(),
        "`runAsUser` must be greater than 0 if `securityProfile` is 'Restricted'",
    )
}

/// Refuses a node selector that contradicts `label`.
pub(crate) fn label_and_selector() -> Rule {
    let (key, value) = ("self.label.split('=')[0]", "self.label.split('=')[1]");
    rule(
        format!(
            "!has(self.label) || !self.label.contains('=') || !has(self.pod) || !has(self.pod.nodeSelector) || \
             !({key} in self.pod.nodeSelector) || self.pod.nodeSelector[{key}] == {value}"
        ),
        "`pod.nodeSelector` must not have the key of `label` with a different value",
    )
}

pub(crate) fn amount(_: &mut SchemaGenerator) -> Schema {
    amount_of("A number of pods, or a percentage such as '25%'.", (0, 0))
}

pub(crate) fn amount_of_a_budget(_: &mut SchemaGenerator) -> Schema {
    amount_of(
        "Number or percentage, such as '25%', of pods that can be unavailable. Without it, there is no limit.",
        // 0 means absent, but 0% does not.
        (0, 1),
    )
}

pub(crate) fn amount_of_nodes(_: &mut SchemaGenerator) -> Schema {
    amount_of(
        "Number or percentage, such as '10%', of nodes whose pod can be unavailable during a rolling update. \
         Defaults to 1.",
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

/// Requires the formula of the default limit (`memory_needed`), without the memory for more than 1,024
/// connections.
pub(crate) fn memory_limit() -> Rule {
    let limit = "self.resources.limits['memory']";
    rule(
        format!(
            "!has(self.resources) || !has(self.resources.limits) || !('memory' in self.resources.limits) || \
             !(type({limit}) == int || isQuantity({limit})) || quantity(string({limit})).asApproximateFloat() >= \
             1.2 * {MEMORY}.asApproximateFloat() + 67108864.0"
        ),
        "`resources` must have a memory limit of at least 64Mi plus 1.2 times `memory` (default 64Mi)",
    )
}

pub(crate) fn item_size() -> Rule {
    rule(
        format!(
            "!has(self.maxItemSize) || self.maxItemSize == '' || \
             quantity(self.maxItemSize).add(quantity(self.maxItemSize)).compareTo({MEMORY}) <= 0"
        ),
        "`maxItemSize` must be at most half of `memory` (default 64Mi)",
    )
}

/// The suboptions of `-o` that every memcached 1.6 accepts, with values that work in any combination
/// (tests/contract/real_memcached.rs). Certificates, files and programs are excluded, because users must not
/// choose them.
const MEMCACHED_OPTIONS: &[&str] = &[
    "(no_)?(maxconns_fast|slab_reassign|lru_crawler|lru_maintainer|inline_ascii_resp|modern)",
    "no_hashexpand|no_slab_automove|no_chunked_items|track_sizes",
    "slab_automove(=[0-2])?",
    "hash_algorithm=(jenkins|murmur3|xxh3)",
    // Below 16, the hash table is not larger than the lock table of 64 threads. Above 20, it takes more than
    // 8 MiB at once.
    "hashpower=(1[6-9]|20)",
    "slab_automove_ratio=0[.][0-9]{1,3}",
    "(slab_automove_window|lru_crawler_tocrawl|temporary_ttl|idle_timeout)=[0-9]{1,6}",
    "(hot_max_factor|warm_max_factor)=[0-9][.][0-9]{1,3}",
    // Their sum is at most 80.
    "(hot|warm)_lru_pct=([2-9]|[1-3][0-9]|40)",
    "tail_repair_time=[1-9][0-9]{1,5}",
    "lru_crawler_sleep=[0-9]{1,6}",
    "(watcher_logbuf_size|worker_logbuf_size)=(6[4-9]|[7-9][0-9]|[1-9][0-9]{2,3})",
    "read_buf_mem_limit=[1-9][0-9]{1,3}",
];

pub(crate) fn memcached_options() -> Rule {
    rule(
        format!("self.all(o, o.matches('^({})$'))", MEMCACHED_OPTIONS.join("|")),
        "`options` must be settings of memcached's -o with values that memcached 1.6 accepts, for example \
         'idle_timeout=600' or 'no_lru_crawler' (see memcached --help); 'ssl_', 'ext_', 'proxy_', privileges, \
         'slab_sizes' and 'slab_chunk_max' are not allowed",
    )
}

// === ports ===

const PORT_NAME: &str = "^([a-z0-9]+-)*[a-z0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*$";
/// The name of a container's port, or an empty string, which some clients write for an unset field.
const TARGET_PORT: &str = "^(([a-z0-9]+-)*[a-z0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*)?$";

/// Returns the schema of a number or an IANA_SVC_NAME (k8s.io/apimachinery/pkg/util/validation,
/// IsValidPortName).
pub(crate) fn target_port(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "Port of the container: a number from 1 to 65535, or a name of at most 15 lower-case letters, \
            digits and single '-', with at least one letter. A name stands for the number of `port`. Defaults to \
            `port`.",
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
