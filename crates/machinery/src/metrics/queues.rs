//! Work queues: distributions are recorded as they happen, the rest is read at the scrape.

use std::fmt;
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::labels::{Histograms, Labels};
use crate::workqueue::{Key, Observer, Priority, WorkQueue};

/// 10 ns to 1,000 s, as in controller-runtime.
const SECONDS: [f64; 12] =
    [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1_000.0];

/// Observes one queue, by name.
pub struct QueueObserver {
    waited: Histogram,
    worked: Histogram,
}

pub(super) struct Durations {
    waited: Histograms<2>,
    worked: Histograms<2>,
}

/// The queues that are queried at each scrape.
pub(super) struct Queues {
    prefix: String,
    read: RwLock<Vec<(&'static str, Read)>>,
}

type Read = Box<dyn Fn() -> Numbers + Send + Sync>;

/// A [`Snapshot`](crate::workqueue::Snapshot) without its keys.
struct Numbers {
    adds: u64,
    retries: u64,
    depth: [usize; 3],
    delayed: usize,
    unfinished: Duration,
    longest: Duration,
}

// === impl QueueObserver ===

impl Observer for QueueObserver {
    fn dequeued(&self, _: Priority, waited: Duration) {
        self.waited.observe(waited.as_secs_f64());
    }

    fn done(&self, worked: Duration) {
        self.worked.observe(worked.as_secs_f64());
    }
}

// === impl Durations ===

impl Durations {
    pub(super) fn register(registry: &mut Registry) -> Durations {
        let histograms = || Histograms::new_with_constructor(|| Histogram::new(SECONDS));
        let durations = Durations { waited: histograms(), worked: histograms() };
        registry.register(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
            durations.waited.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes",
            durations.worked.clone(),
        );
        durations
    }

    pub(super) fn observer(&self, queue: &'static str) -> QueueObserver {
        let labels = labels(queue);
        QueueObserver {
            waited: self.waited.get_or_create_owned(&labels),
            worked: self.worked.get_or_create_owned(&labels),
        }
    }
}

// === impl Queues ===

impl Queues {
    /// None yet; `prefix` is that of the metrics of our own.
    pub(super) fn new(prefix: &str) -> Queues {
        Queues { prefix: prefix.to_owned(), read: RwLock::default() }
    }

    pub(super) fn watch<K: Key>(&self, name: &'static str, queue: WorkQueue<K>) {
        let read = move || {
            let now = queue.snapshot();
            Numbers {
                adds: now.adds,
                retries: now.retries,
                depth: now.depth,
                delayed: now.delayed,
                unfinished: now.unfinished,
                longest: now.oldest.map_or(Duration::ZERO, |(_, age)| age),
            }
        };
        self.read.write().push((name, Box::new(read)));
    }

    fn counters(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        all: &[(&'static str, Numbers)],
        value: fn(&Numbers) -> u64,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (queue, numbers) in all {
            let labels = labels(queue);
            ConstCounter::new(value(numbers)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn gauges(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        all: &[(&'static str, Numbers)],
        value: fn(&Numbers) -> f64,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (queue, numbers) in all {
            let labels = labels(queue);
            ConstGauge::new(value(numbers)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl Collector for Queues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all: Vec<_> = self.read.read().iter().map(|(name, read)| (*name, read())).collect();
        let help = "Current depth of workqueue by priority.";
        let mut depth =
            encoder.encode_descriptor("workqueue_depth", help, None, MetricType::Gauge)?;
        for (queue, numbers) in &all {
            for (priority, keys) in Priority::ALL.iter().zip(numbers.depth) {
                let [name, controller] = labels(queue);
                let labels = [name, controller, ("priority", priority.as_str().into())];
                let keys = i64::try_from(keys).unwrap_or(i64::MAX);
                ConstGauge::new(keys).encode(depth.encode_family(&labels)?)?;
            }
        }
        let encoder = &mut encoder;
        let help = "Total number of adds handled by workqueue.";
        self.counters(encoder, "workqueue_adds", help, &all, |n| n.adds)?;
        let help = "Total number of retries handled by workqueue.";
        self.counters(encoder, "workqueue_retries", help, &all, |n| n.retries)?;
        let help = "How many seconds of work has been done that is in progress and hasn't been \
                    observed by work_duration. Large values indicate stuck threads.";
        self.gauges(encoder, "workqueue_unfinished_work_seconds", help, &all, |n| {
            n.unfinished.as_secs_f64()
        })?;
        let help = "How many seconds has the longest running processor for workqueue been running.";
        self.gauges(encoder, "workqueue_longest_running_processor_seconds", help, &all, |n| {
            n.longest.as_secs_f64()
        })?;
        let help = "Keys that wait for a backoff or a timer.";
        let name = format!("{}_workqueue_delayed", self.prefix);
        self.gauges(encoder, &name, help, &all, |n| n.delayed as f64)
    }
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queues").finish_non_exhaustive()
    }
}

/// controller-runtime sets both to the controller's name.
fn labels(queue: &'static str) -> Labels<2> {
    [("name", queue.into()), ("controller", queue.into())]
}
