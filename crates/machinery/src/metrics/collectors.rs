//! Metrics of queues, informers and the process that are read at each scrape.

use std::fmt;
use std::fs;
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::process::getrlimit;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::informer::Informer;
use crate::instruments::full_name;
use crate::object::Resource;
use crate::reflector::{Health, State};
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

impl<T> Sources<T> {
    /// Creates an empty list. `prefix` is the prefix of our own metrics.
    pub(super) fn new(prefix: &str) -> Sources<T> {
        Sources { prefix: prefix.to_owned(), sources: RwLock::default() }
    }

    fn add(&self, name: String, read: impl Fn() -> T + Send + Sync + 'static) {
        self.sources.write().push((name, Box::new(read)));
    }

    fn read(&self) -> Vec<(String, T)> {
        self.sources.read().iter().map(|(name, read)| (name.clone(), read())).collect()
    }

    /// Writes one metric, with a value per label set.
    fn write<L: EncodeLabelSet, M: EncodeMetric + TypedMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        series: impl Iterator<Item = (L, M)>,
    ) -> fmt::Result {
        let name = full_name(&self.prefix, name);
        let mut family = encoder.encode_descriptor(&name, help, None, M::TYPE)?;
        for (labels, value) in series {
            value.encode(family.encode_family(&labels)?)?;
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

impl Collector for Queues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (all, encoder) = (self.read(), &mut encoder);
        // controller-runtime sets both to the controller's name.
        let labels = |queue| [("name", queue), ("controller", queue)];
        let depths = all.iter().flat_map(|(queue, numbers)| {
            Priority::ALL.iter().zip(numbers.depth).map(move |(priority, keys)| {
                let [name, controller] = labels(queue.as_str());
                let keys = i64::try_from(keys).unwrap_or(i64::MAX);
                ([name, controller, ("priority", priority.as_str())], ConstGauge::new(keys))
            })
        });
        let metric = ("workqueue_depth", "Current depth of workqueue by priority.");
        self.write(encoder, metric, depths)?;

        let mut counter = |name, help, value: fn(&Snapshot) -> u64| {
            let series = all.iter().map(|(queue, n)| (labels(queue), ConstCounter::new(value(n))));
            self.write(encoder, (name, help), series)
        };
        counter("workqueue_adds", "Total number of adds handled by workqueue.", |n| n.adds)?;
        let help = "Total number of retries handled by workqueue.";
        counter("workqueue_retries", help, |n| n.retries)?;

        let mut gauge = |name, help, value: fn(&Snapshot) -> f64| {
            let series = all.iter().map(|(queue, n)| (labels(queue), ConstGauge::new(value(n))));
            self.write(encoder, (name, help), series)
        };
        let help = "How many seconds of work has been done that is in progress and hasn't been \
                    observed by work_duration. Large values indicate stuck threads.";
        gauge("workqueue_unfinished_work_seconds", help, |n| n.unfinished.as_secs_f64())?;
        let help = "How many seconds has the longest running processor for workqueue been running.";
        gauge("workqueue_longest_running_processor_seconds", help, |n| n.longest.as_secs_f64())?;
        let help = "Keys that wait for a backoff, a timer or the overall rate of retries.";
        gauge("_workqueue_delayed", help, |n| n.delayed as f64)
    }
}

// === impl Informers ===

impl Informers {
    pub(super) fn watch<V: Resource>(&self, informer: Informer<V>) {
        self.add(informer.kind().resource(), move || {
            let (scopes, now) = (informer.health(), Instant::now());
            let scopes = scopes.iter().map(|(_, health)| InformerNumbers::of(health, now));
            InformerNumbers {
                handler_panics: informer.handler_panics(),
                ..scopes.reduce(InformerNumbers::and).unwrap_or_default()
            }
        });
    }

    /// Returns the numbers of each kind. Informers of one kind are merged: a duplicate series would fail the whole
    /// scrape.
    fn by_kind(&self) -> Vec<(String, InformerNumbers)> {
        let mut all: Vec<(String, InformerNumbers)> = Vec::new();
        for (kind, read) in self.read() {
            match all.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, numbers)) => *numbers = numbers.and(read),
                None => all.push((kind, read)),
            }
        }
        all
    }
}

impl InformerNumbers {
    fn of(health: &Health, now: Instant) -> InformerNumbers {
        InformerNumbers {
            version: health.version.number().unwrap_or_default(),
            stale: health.staleness(now),
            synced: health.synced,
            live: health.state == State::Live,
            quarantined: health.quarantined,
            ..InformerNumbers::default()
        }
    }

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

impl Collector for Informers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (all, encoder) = (self.by_kind(), &mut encoder);
        let metric =
            ("reflector_last_resource_version", "Last resource version seen for the reflectors.");
        // client-go uses this label for a reflector.
        let versions =
            all.iter().map(|(kind, n)| ([("name", kind.as_str())], ConstGauge::new(n.version)));
        self.write(encoder, metric, versions)?;

        let labels = |kind| [("resource", kind)];
        let mut gauge = |name, help, value: fn(&InformerNumbers) -> f64| {
            let series =
                all.iter().map(|(kind, n)| (labels(kind.as_str()), ConstGauge::new(value(n))));
            self.write(encoder, (name, help), series)
        };
        let help =
            "Seconds since the API server last sent a list, a change, a bookmark or its version.";
        gauge("_informer_stale_seconds", help, |n| n.stale.as_secs_f64())?;
        let help = "1 once there was a complete list.";
        gauge("_informer_synced", help, |n| f64::from(u8::from(n.synced)))?;
        let help = "1 while the local copy follows the API server.";
        gauge("_informer_live", help, |n| f64::from(u8::from(n.live)))?;
        let help =
            "Objects that cannot be decoded and are held as they last could be, or not at all.";
        gauge("_quarantined_objects", help, |n| n.quarantined as f64)?;

        let mut counter = |name, help, value: fn(&InformerNumbers) -> u64| {
            let series =
                all.iter().map(|(kind, n)| (labels(kind.as_str()), ConstCounter::new(value(n))));
            self.write(encoder, (name, help), series)
        };
        counter("_informer_handler_panics", "Panics of handlers so far.", |n| n.handler_panics)
    }
}

// === impl Process ===

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = ConstCounter::new(cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9);
        let help = "Total user and system CPU time spent in seconds.";
        let kind = cpu.metric_type();
        cpu.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, kind)?)?;

        let mut gauge = |name: &str, help: &str, value: Option<f64>| {
            let Some(value) = value else { return Ok(()) };
            let value = ConstGauge::new(value);
            value.encode(encoder.encode_descriptor(name, help, None, value.metric_type())?)
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
