//! The pods of a Memcached: memcached itself and, on request, an exporter of its metrics.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::{DEFAULT_PORT, Exporter, MEMCACHED, Settings, Spec};
use crate::object::{InternedStr, Quantity};
use crate::workload::labels::Identity;
use crate::workload::pod_template::{self, object};

/// Any non-root user works; this is the usual one.
const USER: i64 = 1001;
/// The user `nobody` of the exporter's image. The image names it by name, and `runAsNonRoot` requires a number.
const NOBODY: i64 = 65534;
/// Name of the exporter's container and of its port.
pub(super) const EXPORTER: &str = "metrics";
/// Port of the exporter (github.com/prometheus/memcached_exporter).
const EXPORTER_PORT: i32 = 9150;
/// Default memory for items, in MiB, as in memcached.
const DEFAULT_MEMORY: i128 = 64;
const MEBIBYTE: i128 = 1 << 20;
/// Default maximum of connections, as in memcached.
const CONNECTIONS: i128 = 1024;

/// Messages if neither the Memcached nor the administrator names an image.
pub(super) const NO_IMAGE: &str =
    "Unable to find MEMCACHED_IMAGE environment variable with the image";
const NO_EXPORTER_IMAGE: &str =
    "Unable to find MEMCACHED_EXPORTER_IMAGE environment variable with the image";

/// The images of the containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Images {
    /// The image of memcached.
    pub memcached: InternedStr,
    /// The image of the exporter, if the Memcached has one.
    pub exporter: Option<InternedStr>,
}

impl Images {
    /// Returns this image of memcached, without an exporter.
    pub fn of(memcached: &str) -> Images {
        Images { memcached: InternedStr::new(memcached), exporter: None }
    }

    /// Returns the Memcached's own images or the administrator's.
    ///
    /// # Errors
    /// The environment variable that is missing.
    pub fn chosen(spec: &Spec, settings: &Settings) -> Result<Images, &'static str> {
        let chosen = |own: &InternedStr, administrators: &Option<InternedStr>, missing| {
            let named = [Some(own), administrators.as_ref()].into_iter().flatten();
            named.into_iter().find(|image| !image.is_empty()).cloned().ok_or(missing)
        };
        let exporter = |exporter: &Exporter| {
            let own = spec.own_exporter_image(exporter);
            chosen(&own, &settings.exporter_image, NO_EXPORTER_IMAGE)
        };
        Ok(Images {
            memcached: chosen(&spec.own_image(), &settings.memcached_image, NO_IMAGE)?,
            exporter: spec.exporter.as_deref().map(exporter).transpose()?,
        })
    }

    /// Returns the images of `other` that differ.
    pub(super) fn differences(&self, other: &Images) -> Vec<InternedStr> {
        let memcached = (Some(&self.memcached), Some(&other.memcached));
        let both = [memcached, (self.exporter.as_ref(), other.exporter.as_ref())];
        let pairs = both.into_iter().filter_map(|(one, other)| Some((one?, other?)));
        pairs.filter(|(one, other)| one != other).map(|(_, other)| other.clone()).collect()
    }
}

impl Spec {
    /// Returns the image of memcached in the spec or its template; empty if it is the administrator's.
    pub(super) fn own_image(&self) -> InternedStr {
        self.image_of(MEMCACHED).unwrap_or_else(|| self.image.clone())
    }

    /// Returns the image of the exporter in the spec or its template; empty if it is the administrator's.
    pub(super) fn own_exporter_image(&self, exporter: &Exporter) -> InternedStr {
        self.image_of(EXPORTER).unwrap_or_else(|| exporter.image.clone())
    }

    /// Returns the image that the template has for a container.
    fn image_of(&self, container: &str) -> Option<InternedStr> {
        let template = self.pod_template.set();
        let containers = template["spec"]["containers"].as_array()?;
        let own = containers.iter().find(|it| it["name"] == container)?;
        own["image"].as_str().filter(|image| !image.is_empty()).map(InternedStr::new)
    }

    /// Returns the port on which an instance listens.
    pub(super) fn port(&self) -> i32 {
        if self.container_port == 0 { DEFAULT_PORT } else { self.container_port }
    }

    /// Returns the memory for items, in MiB.
    fn memory(&self) -> i128 {
        let bytes = self.memory.as_ref().and_then(Quantity::millis).map(|millis| millis / 1000);
        bytes.map_or(DEFAULT_MEMORY, |bytes| bytes / MEBIBYTE)
    }
}

/// Returns the pod template. The template of the spec cannot change what makes the container a memcached of this spec.
pub(super) fn template(identity: &Identity<'_>, spec: &Spec, images: &Images) -> Value {
    let pod = pod(spec, images);
    let own = pod["containers"][0].clone();
    let mut template = pod_template::template(identity, pod, spec.pod_template.set());
    let container = &mut template["spec"]["containers"][0];
    for field in ["command", "args"] {
        container[field] = own[field].clone();
    }
    template
}

/// Returns a pod that Pod Security `restricted` admits.
pub(super) fn pod(spec: &Spec, images: &Images) -> Value {
    let exporter = images.exporter.as_ref().map(|image| exporter(spec, image));
    let containers = [memcached(spec, &images.memcached)].into_iter().chain(exporter);
    json!({
        "containers": containers.collect::<Vec<_>>(),
        "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
        // Clusters can have nodes of other systems, where the images do not run.
        "nodeSelector": { "kubernetes.io/os": "linux" },
        // Neither program calls the API server.
        "automountServiceAccountToken": false,
    })
}

fn memcached(spec: &Spec, image: &str) -> Value {
    let port = spec.port();
    let mut command = ["memcached", "-m=64", "-o", "modern", "-v"].map(str::to_owned).to_vec();
    if port != DEFAULT_PORT {
        command.extend(["-p".to_owned(), port.to_string()]);
    }
    let probe =
        (spec.readiness_probe != "None").then(|| json!({ "tcpSocket": { "port": MEMCACHED } }));
    object([
        ("name", json!(MEMCACHED)),
        ("image", json!(image)),
        ("imagePullPolicy", json!("IfNotPresent")),
        ("command", json!(command)),
        ("args", json!(arguments(spec))),
        ("ports", json!([tcp(MEMCACHED, port)])),
        ("resources", resources(spec)),
        ("readinessProbe", json!(probe)),
        ("securityContext", restricted(USER)),
    ])
}

/// Returns the container that exports the metrics of the instance in the same pod.
fn exporter(spec: &Spec, image: &str) -> Value {
    let resources = spec.exporter.as_ref().map(|exporter| exporter.resources.set());
    json!({
        "name": EXPORTER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": [format!("--memcached.address=localhost:{}", spec.port())],
        "ports": [tcp(EXPORTER, EXPORTER_PORT)],
        // memcached_exporter 0.16.0 needs 18 MiB, and 3 ms of processor time per scrape (of 500).
        "resources": filled(resources.unwrap_or_default(), "10m", (mebibytes(32), mebibytes(64))),
        "securityContext": restricted(NOBODY),
    })
}

fn tcp(name: &str, container_port: i32) -> Value {
    json!({ "containerPort": container_port, "protocol": "TCP", "name": name })
}

/// Returns the security settings that Pod Security `restricted` requires.
fn restricted(user: i64) -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": user,
        "allowPrivilegeEscalation": false,
        // Neither program writes a file.
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    })
}

/// Returns the arguments after the command.
///
/// memcached parses the `-m=64` of the command as `-m 0`, and 1.6 does not start with so little memory ("Cannot
/// set item size limit higher than 1/2 of memory max"). The last limit counts, and this is the last. It has the
/// short form because 1.4 has no other.
fn arguments(spec: &Spec) -> Vec<String> {
    let mut arguments = vec!["-m".to_owned(), spec.memory().to_string()];
    let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
    if let Some(connections) = spec.max_connections {
        add("-c", connections.to_string());
    }
    if let Some(threads) = spec.threads {
        add("-t", threads.to_string());
    }
    if !spec.max_item_size.is_empty() {
        // memcached writes 8Mi as 8m.
        add("-I", format!("{}m", spec.max_item_size.trim_end_matches("Mi")));
    }
    if !spec.options.is_empty() {
        add("-o", spec.options.join(","));
    }
    arguments
}

/// Returns the resources of an instance. A client's request takes about 24 µs of processor time, so 100m are
/// 4,000 requests a second. There is no CPU limit, which would only make clients wait.
fn resources(spec: &Spec) -> Value {
    let memory = mebibytes(memory_needed(spec));
    filled(spec.resources.set(), "100m", (memory.clone(), memory))
}

/// Returns the memory that an instance needs, in MiB: 1.2 times that for items, and 64. With more than 1,024
/// connections, it adds 2 for each further thousand.
///
/// Measured with the worst mix of items (the smallest, which make the hash table largest, then a page of each
/// size class) and 950 busy connections, memcached 1.6.38 takes 116 MiB with 64 MiB for items, 319 with 256 and
/// 1,144 with 1,024 (1.6.18: 116, 327 and 1,164): tests/contract/real_memcached.rs. In addition to the items,
/// these are 38 for the classes, 10 for connections, and at most a sixth for the tables during growth.
fn memory_needed(spec: &Spec) -> i128 {
    let more = i128::from(spec.max_connections.unwrap_or(0)) - CONNECTIONS;
    let connections = if more > 0 { (2 * more + 999) / 1000 } else { 0 };
    (spec.memory() * 6 + 4) / 5 + 64 + connections
}

fn mebibytes(amount: i128) -> Quantity {
    Quantity::new(&format!("{amount}Mi"))
}

/// Returns the user's resources with defaults for missing ones: requests of CPU and memory, and a limit of
/// memory. No default makes a request larger than its limit.
fn filled(own: Value, cpu: &str, (request, limit): (Quantity, Quantity)) -> Value {
    let mut own = if own.is_null() { json!({}) } else { own };
    let amount = |own: &Value, kind: &str, name: &str| -> Option<Quantity> {
        serde_json::from_value(own[kind][name].clone()).ok()
    };
    let or = |one: Quantity, other: Option<Quantity>, if_one_is: Ordering| {
        let compared = |other: &Quantity| Some(one.millis()?.cmp(&other.millis()?));
        let other = other.filter(|other| compared(other) == Some(if_one_is));
        other.unwrap_or(one)
    };
    let mut fill = |kind: &str, name: &str, default: Quantity, other: &str, if_default_is| {
        let default = or(default, amount(&own, other, name), if_default_is);
        if let Some(kinds) = own.as_object_mut()
            && let Some(amounts) = kinds.entry(kind).or_insert(json!({})).as_object_mut()
        {
            amounts.entry(name).or_insert(json!(default));
        }
    };
    fill("limits", "memory", limit, "requests", Ordering::Less);
    fill("requests", "memory", request, "limits", Ordering::Greater);
    fill("requests", "cpu", Quantity::new(cpu), "limits", Ordering::Greater);
    own
}
