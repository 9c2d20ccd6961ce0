//! All metrics of the process.

use std::sync::Arc;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::collectors::{Informers, Process, Queues};
use super::observers::{Durations, Events, Lease, QueueObserver, Reconciles, Requests, Watches};
use super::series::{Series, Value};
use super::text;
use crate::identity::Identity;
use crate::informer::Informer;
use crate::object::Resource;
use crate::workqueue::{Key, WorkQueue};

/// Version of the running build.
#[derive(Debug, Clone)]
pub struct Build {
    /// Version of the package.
    pub version: &'static str,
    /// Revision of the sources; `unknown` if the build did not set it.
    pub revision: &'static str,
}

/// All metrics of the process. Implements the observers of all modules; create one and share it.
pub struct Metrics {
    registry: Registry,
    /// The address of the API server.
    pub(super) host: Value,
    pub(super) requests: Requests,
    durations: Durations,
    pub(super) reconciles: Reconciles,
    pub(super) watches: Watches,
    pub(super) events: Events,
    pub(super) lease: Lease,
    queues: Arc<Queues>,
    informers: Arc<Informers>,
}

// === impl Metrics ===

impl Metrics {
    /// Creates the metrics of a process of `program`. `host` is its API server (`name:port`).
    pub fn new(program: &Identity, host: &str, build: &Build) -> Arc<Metrics> {
        Metrics::with(program, host, build, |_| {})
    }

    /// Like [`Metrics::new`], with your own metrics, which `register` adds.
    ///
    /// ```
    /// use controller_machinery::metrics::prometheus_client::metrics::counter::Counter;
    /// use controller_machinery::metrics::{Build, Metrics};
    ///
    /// let announced = Counter::<u64>::default();
    /// let build = Build { version: "1.0.0", revision: "unknown" };
    /// let metrics = Metrics::with(&"website".into(), "", &build, |registry| {
    ///     registry.register("websites_announced", "Websites announced", announced.clone());
    /// });
    /// # drop(metrics);
    /// ```
    pub fn with(
        program: &Identity,
        host: &str,
        build: &Build,
        register: impl FnOnce(&mut Registry),
    ) -> Arc<Metrics> {
        let prefix = &program.metrics_prefix();
        let mut registry = Registry::default();
        let (queues, informers) = (Arc::new(Queues::new(prefix)), Arc::new(Informers::new(prefix)));
        registry.register_collector(Box::new(queues.clone()));
        registry.register_collector(Box::new(informers.clone()));
        let started = jiff::Timestamp::now().as_millisecond() as f64 / 1_000.0;
        registry.register_collector(Box::new(Process { started }));
        let info = (format!("{prefix}_build_info"), "Which build runs");
        let labels = ["version", "revision"];
        let info: Series<2, Gauge> = Series::register(&mut registry, info, labels, Gauge::default);
        info.of([build.version, build.revision]).set(1);
        register(&mut registry);
        Arc::new(Metrics {
            host: host.to_owned().into(),
            requests: Requests::register(&mut registry, prefix),
            durations: Durations::register(&mut registry, prefix),
            reconciles: Reconciles::register(&mut registry, prefix),
            watches: Watches::register(&mut registry, prefix),
            events: Events::register(&mut registry, prefix).known(),
            lease: Lease::register(&mut registry, prefix),
            queues,
            informers,
            registry,
        })
    }

    /// Returns all metrics as text.
    pub fn encode(&self) -> String {
        text::write(&self.registry)
    }

    /// Returns an observer for the queue of the controller `name`, to be passed to the queue.
    pub fn queue_observer(&self, name: &'static str) -> QueueObserver {
        self.durations.observer(name)
    }

    /// Reads `queue` at each scrape, under the same name.
    pub fn watch_queue<K: Key>(&self, name: &'static str, queue: &WorkQueue<K>) {
        self.queues.watch(name, queue.clone());
    }

    /// Reads the state of `informer` at each scrape.
    pub fn watch_informer<V: Resource>(&self, informer: &Informer<V>) {
        self.watches.known(&informer.kind());
        self.informers.watch(informer.clone());
    }

    /// Exports the metrics of this lease as 0 instead of omitting them.
    pub fn watch_lease(&self, name: &str) {
        self.lease.known(name);
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
