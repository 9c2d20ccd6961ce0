//! The pods of a Memcached: memcached itself and, on request, an exporter of its metrics.

use std::cmp::Ordering;

use serde_json::json;

use super::{DEFAULT_PORT, Exporter, MEMCACHED, Settings, Spec};
use crate::object::{InternedStr, Quantity};
use crate::workload::{
    Capabilities, Container, ContainerPort, ContainerSecurity, PodSecurity, PodSpec, Resources,
    Seccomp,
};

/// Any non-root user works; this is the usual one.
const USER: i64 = 1001;
/// The user `nobody` of the exporter's image. The image names it by name, and `runAsNonRoot` requires a number.
const NOBODY: i64 = 65534;
/// Name of the exporter's container.
pub(super) const EXPORTER: &str = "exporter";
/// Port of the exporter (github.com/prometheus/memcached_exporter), and its name.
const EXPORTER_PORT: i32 = 9150;
const METRICS: &str = "metrics";
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
            chosen(&exporter.image, &settings.exporter_image, NO_EXPORTER_IMAGE)
        };
        Ok(Images {
            memcached: chosen(&spec.image, &settings.memcached_image, NO_IMAGE)?,
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

/// Returns a pod that Pod Security `restricted` admits.
pub(super) fn pod(spec: &Spec, images: &Images) -> PodSpec {
    let exporter = images.exporter.as_ref().map(|image| exporter(spec, image));
    PodSpec {
        containers: [memcached(spec, &images.memcached)].into_iter().chain(exporter).collect(),
        security_context: Some(PodSecurity {
            run_as_non_root: Some(true),
            seccomp_profile: Some(Seccomp { kind: InternedStr::new("RuntimeDefault") }),
            ..PodSecurity::default()
        }),
        // Clusters can have nodes of other systems, where the images do not run.
        node_selector: [("kubernetes.io/os", "linux")].into_iter().collect(),
        // Neither program calls the API server.
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        ..PodSpec::default()
    }
}

fn memcached(spec: &Spec, image: &InternedStr) -> Container {
    let port = spec.port();
    let mut command = texts(&["memcached", "-m=64", "-o", "modern", "-v"]);
    if port != DEFAULT_PORT {
        command.extend([InternedStr::new("-p"), InternedStr::from(port.to_string())]);
    }
    Container {
        name: InternedStr::new(MEMCACHED),
        image: image.clone(),
        image_pull_policy: InternedStr::new("IfNotPresent"),
        command: command.into(),
        args: arguments(spec).into_iter().map(InternedStr::from).collect(),
        ports: [tcp(MEMCACHED, port)].into(),
        resources: resources(spec),
        readiness_probe: (spec.readiness_probe != "None")
            .then(|| Box::new(json!({ "tcpSocket": { "port": MEMCACHED } }))),
        security_context: Some(Box::new(restricted(USER))),
        ..Container::default()
    }
}

/// Returns the container that exports the metrics of the instance in the same pod.
fn exporter(spec: &Spec, image: &InternedStr) -> Container {
    let resources = spec.exporter.as_ref().and_then(|exporter| exporter.resources.as_ref());
    Container {
        name: InternedStr::new(EXPORTER),
        image: image.clone(),
        image_pull_policy: InternedStr::new("IfNotPresent"),
        args: [InternedStr::from(format!("--memcached.address=localhost:{}", spec.port()))].into(),
        ports: [tcp(METRICS, EXPORTER_PORT)].into(),
        // memcached_exporter 0.16.0 needs 18 MiB, and 3 ms of processor time per scrape (of 500).
        resources: filled(resources, "10m", (mebibytes(32), mebibytes(64))),
        security_context: Some(Box::new(restricted(NOBODY))),
        ..Container::default()
    }
}

fn tcp(name: &str, container_port: i32) -> ContainerPort {
    ContainerPort {
        container_port,
        protocol: InternedStr::new("TCP"),
        name: InternedStr::new(name),
    }
}

/// Returns the security settings that Pod Security `restricted` requires.
fn restricted(user: i64) -> ContainerSecurity {
    ContainerSecurity {
        run_as_non_root: Some(true),
        run_as_user: Some(user),
        allow_privilege_escalation: Some(false),
        // Neither program writes a file.
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { drop: texts(&["ALL"]).into() }),
        ..ContainerSecurity::default()
    }
}

fn texts(words: &[&str]) -> Vec<InternedStr> {
    words.iter().map(|word| InternedStr::new(word)).collect()
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
fn resources(spec: &Spec) -> Resources {
    let memory = mebibytes(memory_needed(spec));
    filled(spec.resources.as_deref(), "100m", (memory.clone(), memory))
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
fn filled(own: Option<&Resources>, cpu: &str, (request, limit): (Quantity, Quantity)) -> Resources {
    let mut all = own.cloned().unwrap_or_default();
    let compared = |one: &Quantity, other: &Quantity| Some(one.millis()?.cmp(&other.millis()?));
    let or = |one: Quantity, other: Option<&Quantity>, if_one_is: Ordering| match other {
        Some(other) if compared(&one, other) == Some(if_one_is) => other.clone(),
        _ => one,
    };
    let limit = or(limit, all.requests.get("memory"), Ordering::Less);
    all.limits.set_default("memory", limit);
    let request = or(request, all.limits.get("memory"), Ordering::Greater);
    all.requests.set_default("memory", request);
    let cpu = or(Quantity::new(cpu), all.limits.get("cpu"), Ordering::Greater);
    all.requests.set_default("cpu", cpu);
    all
}
