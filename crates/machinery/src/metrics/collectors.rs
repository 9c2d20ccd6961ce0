//! Metrics of queues, informers and the process that are read at each scrape.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::process::getrlimit;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::informer::Informer;
use crate::instruments::full_name;
use crate::object::Resource;
use crate::reflector::State;
use crate::workqueue::{Key, Priority, Snapshot, WorkQueue};

/// Metrics of the process, read at each scrape, with the names that all Prometheus client libraries use. Without /proc,
/// the metrics from it are missing.
#[derive(Debug)]
pub(super) struct Process {
    /// Unix time of its creation in seconds, which approximates the start of the process.
    pub(super) started: f64,
}

/// Sources that are read at each scrape, by name.
pub(super) struct Sources<T> {
    prefix: String,
    sources: RwLock<Vec<(String, Read<T>)>>,
}

type Read<T> = Box<dyn Fn() -> T + Send + Sync>;

/// Numbers of a source.
pub(super) trait Numbers: Sized + 'static {
    const METRICS: &'static [Metric<Self>];

    /// Merges the numbers of two sources of one name: a duplicate series would fail the whole scrape.
    fn and(self, other: Self) -> Self;
}

/// A metric with a value per source. Each of the labels has the name of the source.
pub(super) struct Metric<T> {
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    kind: MetricType,
    /// Returns the value, or one per priority.
    values: fn(&T) -> Values,
}

/// Lists metrics, one per line: name, kind, labels, values, help.
macro_rules! metrics {
    ($($name:literal $kind:ident $labels:tt $values:expr, $help:literal;)+) => {
        &[$(Metric {
            name: $name,
            labels: &$labels,
            help: $help,
            kind: MetricType::$kind,
            values: $values,
        }),+]
    };
}

type Values = Vec<(Option<Priority>, f64)>;

fn one(value: f64) -> Values {
    vec![(None, value)]
}

pub(super) type Queues = Sources<Snapshot>;
pub(super) type Informers = Sources<InformerNumbers>;

/// State of the reflectors of one kind; for several reflectors, the worst.
#[derive(Default, Clone, Copy)]
pub(super) struct InformerNumbers {
    version: u64,
    stale: Duration,
    synced: bool,
    live: bool,
    quarantined: usize,
    handler_panics: u64,
}

// === impl Sources ===

impl<T: Numbers> Sources<T> {
    /// Creates an empty list. `prefix` is the prefix of our own metrics.
    pub(super) fn new(prefix: &str) -> Sources<T> {
        Sources { prefix: prefix.to_owned(), sources: RwLock::default() }
    }

    fn add(&self, name: String, read: impl Fn() -> T + Send + Sync + 'static) {
        self.sources.write().push((name, Box::new(read)));
    }

    fn read(&self) -> BTreeMap<String, T> {
        let mut all = BTreeMap::new();
        for (name, read) in self.sources.read().iter() {
            let numbers = all.remove(name).into_iter().fold(read(), T::and);
            all.insert(name.clone(), numbers);
        }
        all
    }
}

impl<T: Numbers> Collector for Sources<T> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.read();
        for Metric { name, labels, help, kind, values } in T::METRICS {
            let name = full_name(&self.prefix, name);
            let mut metric = encoder.encode_descriptor(&name, help, None, *kind)?;
            for (source, numbers) in &all {
                for (priority, value) in values(numbers) {
                    let labels = labels.iter().map(|label| (*label, source.as_str()));
                    let priority = priority.map(|priority| ("priority", priority.as_str()));
                    let labels: Vec<_> = labels.chain(priority).collect();
                    let metric = metric.encode_family(&labels)?;
                    match kind {
                        // All counters are whole numbers.
                        MetricType::Counter => ConstCounter::new(value as u64).encode(metric)?,
                        _ => ConstGauge::new(value).encode(metric)?,
                    }
                }
            }
        }
        Ok(())
    }
}

opaque!(Sources<T>);

// === impl Queues ===

impl Queues {
    pub(super) fn watch<K: Key>(&self, name: &'static str, queue: WorkQueue<K>) {
        self.add(name.to_owned(), move || queue.snapshot());
    }
}

impl Numbers for Snapshot {
    // controller-runtime sets both labels to the controller's name.
    const METRICS: &'static [Metric<Snapshot>] = metrics! {
        "workqueue_depth" Gauge ["name", "controller"] |n| std::iter::zip(Priority::ALL.map(Some), n.depth.map(|keys| keys as f64)).collect(), "Current depth of workqueue by priority.";
        "workqueue_adds" Counter ["name", "controller"] |n| one(n.adds as f64), "Total number of adds handled by workqueue.";
        "workqueue_retries" Counter ["name", "controller"] |n| one(n.retries as f64), "Total number of retries handled by workqueue.";
        "workqueue_unfinished_work_seconds" Gauge ["name", "controller"] |n| one(n.unfinished.as_secs_f64()), "How many seconds of work has been done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads.";
        "workqueue_longest_running_processor_seconds" Gauge ["name", "controller"] |n| one(n.longest.as_secs_f64()), "How many seconds has the longest running processor for workqueue been running.";
        "_workqueue_delayed" Gauge ["name", "controller"] |n| one(n.delayed as f64), "Keys that wait for a backoff, a timer or the overall rate of retries.";
    };

    fn and(self, other: Snapshot) -> Snapshot {
        Snapshot {
            depth: [0, 1].map(|priority| self.depth[priority] + other.depth[priority]),
            adds: self.adds + other.adds,
            retries: self.retries + other.retries,
            unfinished: self.unfinished + other.unfinished,
            longest: self.longest.max(other.longest),
            delayed: self.delayed + other.delayed,
            ..self
        }
    }
}

// === impl Informers ===

impl Informers {
    pub(super) fn watch<V: Resource>(&self, informer: Informer<V>) {
        self.add(V::kind().resource(), move || {
            let (scopes, now) = (informer.health(), Instant::now());
            let scopes = scopes.iter().map(|(_, health)| InformerNumbers {
                version: health.version.number().unwrap_or_default(),
                stale: health.staleness(now),
                synced: health.synced,
                live: health.state == State::Live,
                quarantined: health.quarantined,
                ..InformerNumbers::default()
            });
            InformerNumbers {
                handler_panics: informer.handler_panics(),
                ..scopes.reduce(InformerNumbers::and).unwrap_or_default()
            }
        });
    }
}

impl Numbers for InformerNumbers {
    // client-go uses the label `name` for a reflector.
    const METRICS: &'static [Metric<InformerNumbers>] = metrics! {
        "reflector_last_resource_version" Gauge ["name"] |n| one(n.version as f64), "Last resource version seen for the reflectors.";
        "_informer_stale_seconds" Gauge ["resource"] |n| one(n.stale.as_secs_f64()), "Seconds since the API server last sent a list, a change, a bookmark or its version.";
        "_informer_synced" Gauge ["resource"] |n| one(f64::from(u8::from(n.synced))), "1 once there was a complete list.";
        "_informer_live" Gauge ["resource"] |n| one(f64::from(u8::from(n.live))), "1 while the local copy follows the API server.";
        "_quarantined_objects" Gauge ["resource"] |n| one(n.quarantined as f64), "Objects that cannot be decoded and are held as they last could be, or not at all.";
        "_informer_handler_panics" Counter ["resource"] |n| one(n.handler_panics as f64), "Panics of handlers so far.";
    };

    fn and(self, other: InformerNumbers) -> InformerNumbers {
        InformerNumbers {
            version: self.version.min(other.version),
            stale: self.stale.max(other.stale),
            synced: self.synced && other.synced,
            live: self.live && other.live,
            quarantined: self.quarantined + other.quarantined,
            handler_panics: self.handler_panics + other.handler_panics,
        }
    }
}

// === impl Process ===

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = ConstCounter::new(cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9);
        let help = "Total user and system CPU time spent in seconds.";
        let name = "process_cpu_seconds";
        cpu.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;

        let mut gauge = |name: &str, help: &str, value: Option<f64>| {
            let Some(value) = value else { return Ok(()) };
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)
        };
        let help = "Start time of the process since unix epoch in seconds.";
        gauge("process_start_time_seconds", help, Some(self.started))?;
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let help = "Resident memory size in bytes.";
        gauge("process_resident_memory_bytes", help, bytes(&status, "VmRSS:"))?;
        let help = "Virtual memory size in bytes.";
        gauge("process_virtual_memory_bytes", help, bytes(&status, "VmSize:"))?;
        let open = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
        gauge("process_open_fds", "Number of open file descriptors.", open)?;
        let max = getrlimit(rustix::process::Resource::Nofile).current.map(|limit| limit as f64);
        gauge("process_max_fds", "Maximum number of open file descriptors.", max)
    }
}

/// Returns a field of /proc/self/status in bytes. The unit kB in this file means KiB.
fn bytes(status: &str, field: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024.0)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::object::ObjectKey;

    #[tokio::test]
    async fn queues_of_one_name_are_one_series() {
        let queues = Queues::new("");
        for key in ["a", "b"] {
            let queue = WorkQueue::new();
            queue.add(ObjectKey::new("ns", key));
            queues.watch("twice", queue);
        }
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register_collector(Box::new(queues));
        encode(&mut text, &registry).unwrap();
        let labels = "name=\"twice\",controller=\"twice\"";
        let adds = format!("\nworkqueue_adds_total{{{labels}}} 2");
        let depth = format!("\nworkqueue_depth{{{labels},priority=\"high\"}} 2");
        assert!(text.matches(&adds).count() == 1 && text.matches(&depth).count() == 1, "{text}");
    }
}
