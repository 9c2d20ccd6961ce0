//! All metrics of the process.

use std::sync::Arc;

use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::collectors::{Informers, Process, Queues};
use super::text;
use crate::identity::Identity;
use crate::informer::Informer;
use crate::instruments;
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

/// All metrics of the process: those that the modules count, and those that are read at each scrape. All managers of a
/// process count in the same series: controllers and Leases of one name are not distinguished.
pub struct Metrics {
    registry: Registry,
    queues: Arc<Queues>,
    informers: Arc<Informers>,
}

// === impl Metrics ===

impl Metrics {
    /// Creates the metrics of a process of `program`.
    pub fn new(program: &Identity, build: &Build) -> Arc<Metrics> {
        Metrics::with(program, build, |_| {})
    }

    /// Like [`Metrics::new`], with your own metrics, which `register` adds.
    ///
    /// ```
    /// use controller_machinery::metrics::prometheus_client::metrics::counter::Counter;
    /// use controller_machinery::metrics::{Build, Metrics};
    ///
    /// let announced = Counter::<u64>::default();
    /// let build = Build { version: "1.0.0", revision: "unknown" };
    /// let metrics = Metrics::with(&"website".into(), &build, |registry| {
    ///     registry.register("websites_announced", "Websites announced", announced.clone());
    /// });
    /// # drop(metrics);
    /// ```
    pub fn with(
        program: &Identity,
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
        let info = Info::new([("version", build.version), ("revision", build.revision)]);
        registry.register(format!("{prefix}_build"), "Which build runs", info);
        instruments::register(&mut registry, prefix);
        register(&mut registry);
        Arc::new(Metrics { registry, queues, informers })
    }

    /// Returns all metrics as text.
    pub fn encode(&self) -> String {
        text::write(&self.registry)
    }

    /// Reads `queue` at each scrape, under the name of its controller.
    pub fn watch_queue<K: Key>(&self, name: &'static str, queue: &WorkQueue<K>) {
        self.queues.watch(name, queue.clone());
    }

    /// Reads the state of `informer` at each scrape.
    pub fn watch_informer<V: Resource>(&self, informer: &Informer<V>) {
        self.informers.watch(informer.clone());
    }
}

opaque!(Metrics);
