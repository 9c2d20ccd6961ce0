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

pub(crate) mod kubernetes;

use kube::core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};

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

// === budgets ===

/// Returns the schema of the limit of a budget. 0 means absent, but 0% does not.
pub(crate) fn amount_of_a_budget(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "Number or percentage, such as '25%', of pods that can be unavailable. Without it, there is no \
            limit.",
        "x-kubernetes-int-or-string": true,
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "minimum": 0,
        "maximum": i32::MAX,
        "maxLength": 4,
        "pattern": "^(100|[1-9][0-9]?)%$",
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

fn rule(rule: String, message: &str) -> Rule {
    Rule::new(rule).message(message)
}
