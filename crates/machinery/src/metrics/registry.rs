//! All metrics of the process.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::events_and_lease::{Events, Lease};
use super::labels::Gauges;
use super::passes::Passes;
use super::process::Process;
use super::queues::{Durations, QueueObserver, Queues};
use super::requests::Requests;
use super::text::{self, Format};
use super::watches::{Informers, Watches};
use crate::controller::Outcome;
use crate::events::{Dropped, Type};
use crate::identity::Identity;
use crate::informer::Informer;
use crate::object::{Kind, ObjectKey, Resource};
use crate::reflector::Reason;
use crate::workqueue::{Key, WorkQueue};
use crate::{client, controller, events, leader_election, reflector};

/// Which build runs.
#[derive(Debug, Clone)]
pub struct Build {
    /// Version of the package.
    pub version: &'static str,
    /// Revision of the sources; `unknown` if the build was not told.
    pub revision: &'static str,
}

/// All metrics. Observes every room that can be observed; make one per process and share it.
pub struct Metrics {
    registry: Registry,
    requests: Requests,
    durations: Durations,
    queues: Arc<Queues>,
    passes: Passes,
    watches: Watches,
    informers: Arc<Informers>,
    events: Events,
    lease: Lease,
}

// === impl Metrics ===

impl Metrics {
    /// Metrics of a process of `program` that talks to the API server `host` (`name:port`).
    pub fn new(program: &Identity, host: &str, build: &Build) -> Arc<Metrics> {
        Metrics::with(program, host, build, |_| {})
    }

    /// Like [`Metrics::new`], with metrics of your own: `register` adds them.
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
        let info = Gauges::default();
        let labels = [("version", build.version.into()), ("revision", build.revision.into())];
        let one: Gauge = info.get_or_create_owned(&labels);
        one.set(1);
        registry.register(format!("{prefix}_build_info"), "Which build runs", info);
        register(&mut registry);
        Arc::new(Metrics {
            requests: Requests::register(&mut registry, prefix, host),
            durations: Durations::register(&mut registry),
            passes: Passes::register(&mut registry, prefix),
            watches: Watches::register(&mut registry, prefix),
            events: Events::register(&mut registry, prefix),
            lease: Lease::register(&mut registry, prefix),
            queues,
            informers,
            registry,
        })
    }

    /// All metrics, as text.
    pub fn encode(&self, format: Format) -> String {
        text::write(&self.registry, format)
    }

    /// An observer for the queue of the controller `name`; pass it on when creating the queue.
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

    /// There is a lease of this name, so its metrics are to be 0 instead of missing.
    pub fn watch_lease(&self, name: &str) {
        self.lease.known(name);
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

// === the rooms that are observed ===

impl client::Observer for Metrics {
    fn request(&self, verb: &'static str, kind: &Kind, code: u16, took: Duration) {
        self.requests.count(verb, kind, code, took);
    }
}

impl controller::Observer for Metrics {
    fn running(&self, controller: &'static str, workers: usize) {
        self.passes.running(controller, workers);
    }
    fn started(&self, controller: &'static str) {
        self.passes.started(controller);
    }
    fn finished(&self, controller: &'static str, _: &ObjectKey, outcome: Outcome, took: Duration) {
        self.passes.finished(controller, outcome, took);
    }
    fn blocked(&self, controller: &'static str) {
        self.passes.blocked(controller);
    }
}

impl reflector::Observer for Metrics {
    fn list_began(&self, kind: &Kind, _: Reason) {
        self.watches.list_began(kind);
    }
    fn listed(&self, kind: &Kind, items: usize, took: Duration) {
        self.watches.listed(kind, items, took);
    }
    fn list_failed(&self, kind: &Kind) {
        self.watches.list_failed(kind);
    }
    fn watch_opened(&self, kind: &Kind) {
        self.watches.watch_opened(kind);
    }
    fn short_watch(&self, kind: &Kind) {
        self.watches.short_watch(kind);
    }
    fn watch_ended(&self, kind: &Kind, took: Duration, items: u64) {
        self.watches.watch_ended(kind, took, items);
    }
    fn decode_error(&self, kind: &Kind, _: &ObjectKey, _: &str) {
        self.watches.undecodable(kind);
    }
}

impl events::Observer for Metrics {
    fn published(&self, controller: &'static str, kind: Type, reason: &'static str) {
        self.events.published(controller, kind, reason);
    }
    fn aggregated(&self, controller: &'static str, kind: Type, reason: &'static str) {
        self.events.aggregated(controller, kind, reason);
    }
    fn dropped(&self, why: Dropped) {
        self.events.dropped(why);
    }
}

impl leader_election::Observer for Metrics {
    fn leading(&self, lease: &str, leads: bool) {
        self.lease.leading(lease, leads);
    }
    fn slow_path(&self, lease: &str) {
        self.lease.slow_path(lease);
    }
}

#[cfg(test)]
mod tests;
