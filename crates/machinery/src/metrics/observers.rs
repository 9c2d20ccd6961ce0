//! Metrics that are updated by events.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::registry::Metrics;
use super::series::{Series, Value, declare, full_name};
use crate::controller::{Class, Outcome};
use crate::events::{Dropped, Type};
use crate::object::{Kind, ObjectKey};
use crate::workqueue::Priority;
use crate::{client, controller, events, leader_election, reflector, workqueue};

/// The buckets of client-go's rest_client_request_duration_seconds (k8s.io/component-base/metrics).
const REQUEST: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// The buckets of the queue metrics: 10 ns to 1,000 s, as in controller-runtime.
const QUEUE: [f64; 12] =
    [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1_000.0];
/// The buckets of controller-runtime's reconcile_time_seconds.
const PASS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0,
];
/// The buckets for lists and watches: 10 ms to 5 min, because a watch lasts for minutes.
const WATCH: [f64; 12] = [0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 300.0];
/// The buckets for numbers of objects.
const ITEMS: [f64; 7] = [0.0, 1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0];

/// The values of `result` that controller-runtime uses.
const RESULTS: [&str; 4] = ["success", ERROR, "requeue_after", "requeue"];
/// The value that `controller_runtime_reconcile_errors_total` also counts.
const ERROR: &str = "error";

declare! {
    Requests {
        total: Counter::default() "rest_client_requests" ["code", "method", "host"] "Number of HTTP requests, partitioned by status code, method, and host";
        seconds: Histogram::new(REQUEST) "rest_client_request_duration_seconds" ["verb", "host"] "Request latency in seconds; a watch counts until it is open";
        by_resource: Counter::default() "_api_requests" ["verb", "resource", "code"] "Requests to the API server by verb and resource as RBAC names them";
    }
    Durations {
        waited: Histogram::new(QUEUE) "workqueue_queue_duration_seconds" ["name", "controller"] "How long in seconds an item stays in workqueue before being requested";
        worked: Histogram::new(QUEUE) "workqueue_work_duration_seconds" ["name", "controller"] "How long in seconds processing an item from workqueue takes";
    }
    Reconciles {
        total: Counter::default() "controller_runtime_reconcile" ["controller", "result"] "Total number of reconciliations per controller";
        errors: Counter::default() "controller_runtime_reconcile_errors" ["controller"] "Total number of reconciliation errors per controller";
        terminal: Counter::default() "controller_runtime_terminal_reconcile_errors" ["controller"] "Total number of terminal reconciliation errors per controller";
        panics: Counter::default() "controller_runtime_reconcile_panics" ["controller"] "Total number of reconciliation panics per controller";
        timeouts: Counter::default() "controller_runtime_reconcile_timeouts" ["controller"] "Total number of reconciliation timeouts per controller";
        seconds: Histogram::new(PASS) "controller_runtime_reconcile_time_seconds" ["controller"] "Length of time per reconciliation per controller";
        workers: Gauge::default() "controller_runtime_max_concurrent_reconciles" ["controller"] "Maximum number of concurrent reconciles per controller";
        active: Gauge::default() "controller_runtime_active_workers" ["controller"] "Number of currently used workers per controller";
        by_class: Counter::default() "_reconcile_failures" ["controller", "class"] "Failed reconciliations by the class that decides on the retry";
        dropped: Counter::default() "_reconciles_dropped" ["controller"] "Reconciliations that shutdown did not wait for";
    }
    Watches {
        lists: Counter::default() "reflector_lists" ["name"] "Total number of API lists done by the reflectors";
        watches: Counter::default() "reflector_watches" ["name"] "Total number of API watches done by the reflectors";
        short: Counter::default() "reflector_short_watches" ["name"] "Total number of short API watches done by the reflectors";
        list_failures: Counter::default() "_list_failures" ["resource"] "Lists that were refused or broke off";
        undecodable: Counter::default() "_undecodable_objects" ["resource"] "Versions of objects that did not fit what the operator reads of them";
        list_seconds: Histogram::new(WATCH) "reflector_list_duration_seconds" ["name"] "How long an API list takes to return and decode for the reflectors";
        list_items: Histogram::new(ITEMS) "reflector_items_per_list" ["name"] "How many items an API list returns to the reflectors";
        watch_seconds: Histogram::new(WATCH) "reflector_watch_duration_seconds" ["name"] "How long an API watch takes to return and decode for the reflectors";
        watch_items: Histogram::new(ITEMS) "reflector_items_per_watch" ["name"] "How many items an API watch returns to the reflectors";
    }
    Events {
        published: Counter::default() "_events_published" ["controller", "type", "reason"] "New Events that were accepted for writing";
        dropped: Counter::default() "_events_dropped" ["why"] "Events that were lost, and why";
    }
    Lease {
        master: Gauge::default() "leader_election_master_status" ["name"] "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease";
        slow: Counter::default() "leader_election_slowpath" ["name"] "Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the lease";
        acquired: Counter::default() "_leadership_gained" ["name"] "How often this process gained permission to write";
    }
}

/// The observer of one queue.
pub struct QueueObserver {
    waited: Histogram,
    worked: Histogram,
}

// Series that are known beforehand are exported from the start, because a rate needs an initial 0.

impl Durations {
    /// Returns the observer of a queue. As in controller-runtime, both labels have the controller's name.
    pub(super) fn observer(&self, queue: &'static str) -> QueueObserver {
        let labels = [queue, queue];
        QueueObserver { waited: self.waited.of(labels), worked: self.worked.of(labels) }
    }
}

impl Watches {
    /// Exports the series of an informer of this kind.
    pub(super) fn known(&self, kind: &Kind) {
        for series in
            [&self.lists, &self.watches, &self.short, &self.list_failures, &self.undecodable]
        {
            drop(series.of([kind.resource()]));
        }
        for series in [&self.list_items, &self.watch_items, &self.list_seconds, &self.watch_seconds]
        {
            drop(series.of([kind.resource()]));
        }
    }
}

impl Events {
    pub(super) fn known(self) -> Events {
        for why in [
            Dropped::QueueFull,
            Dropped::Spam,
            Dropped::Failed,
            Dropped::Forbidden,
            Dropped::NotLeading,
            Dropped::NamespaceGone,
            Dropped::Shutdown,
        ] {
            drop(self.dropped.of([why.as_str()]));
        }
        self
    }
}

impl Lease {
    /// Exports the series of a lease that this process does not hold yet.
    pub(super) fn known(&self, lease: &str) {
        self.master.of([lease.to_owned()]).set(0);
        drop(self.slow.of([lease.to_owned()]));
        drop(self.acquired.of([lease.to_owned()]));
    }
}

// === observers of the modules ===

impl workqueue::Observer for QueueObserver {
    fn dequeued(&self, _: Priority, waited: Duration) {
        self.waited.observe(waited.as_secs_f64());
    }
    fn done(&self, worked: Duration) {
        self.worked.observe(worked.as_secs_f64());
    }
}

impl client::Observer for Metrics {
    fn request(&self, verb: &'static str, kind: &Kind, code: u16, took: Duration) {
        let Requests { total, seconds, by_resource } = &self.requests;
        let method = method(verb);
        // Without a response, client-go uses this value.
        let code: Value = if code == 0 { "<error>".into() } else { code.to_string().into() };
        total.of([code.clone(), method.into(), self.host.clone()]).inc();
        seconds.of([method.into(), self.host.clone()]).observe(took.as_secs_f64());
        by_resource.of([verb.into(), kind.resource().into(), code]).inc();
    }
}

impl controller::Observer for Metrics {
    fn running(&self, controller: &'static str, workers: usize) {
        let reconciles = &self.reconciles;
        for result in RESULTS {
            drop(reconciles.total.of([controller, result]));
        }
        for series in [
            &reconciles.errors,
            &reconciles.terminal,
            &reconciles.panics,
            &reconciles.timeouts,
            &reconciles.dropped,
        ] {
            drop(series.of([controller]));
        }
        for class in Class::ALL {
            drop(reconciles.by_class.of([controller, class.as_str()]));
        }
        reconciles.active.of([controller]).set(0);
        drop(reconciles.seconds.of([controller]));
        reconciles.workers.of([controller]).set(i64::try_from(workers).unwrap_or(i64::MAX));
    }

    fn started(&self, controller: &'static str) {
        self.reconciles.active.of([controller]).inc();
    }

    fn finished(&self, controller: &'static str, _: &ObjectKey, outcome: Outcome, took: Duration) {
        let reconciles = &self.reconciles;
        reconciles.active.of([controller]).dec();
        reconciles.seconds.of([controller]).observe(took.as_secs_f64());
        reconciles.total.of([controller, outcome.result()]).inc();
        if outcome.result() == ERROR {
            reconciles.errors.of([controller]).inc();
        }
        let (also, class) = match outcome {
            Outcome::Success | Outcome::RequeueAfter => (None, None),
            Outcome::Dropped => (Some(&reconciles.dropped), None),
            Outcome::Failed(Class::Terminal) => (Some(&reconciles.terminal), Some(Class::Terminal)),
            Outcome::Failed(class) => (None, Some(class)),
            Outcome::Panicked => (Some(&reconciles.panics), Some(Class::Transient)),
            Outcome::TimedOut => (Some(&reconciles.timeouts), Some(Class::Transient)),
        };
        if let Some(series) = also {
            series.of([controller]).inc();
        }
        if let Some(class) = class {
            reconciles.by_class.of([controller, class.as_str()]).inc();
        }
    }
}

impl reflector::Observer for Metrics {
    fn list_began(&self, kind: &Kind) {
        self.watches.lists.of([kind.resource()]).inc();
    }
    fn listed(&self, kind: &Kind, items: usize, took: Duration) {
        self.watches.list_seconds.of([kind.resource()]).observe(took.as_secs_f64());
        self.watches.list_items.of([kind.resource()]).observe(items as f64);
    }
    fn list_failed(&self, kind: &Kind) {
        self.watches.list_failures.of([kind.resource()]).inc();
    }
    fn watch_opened(&self, kind: &Kind) {
        self.watches.watches.of([kind.resource()]).inc();
    }
    fn short_watch(&self, kind: &Kind) {
        self.watches.short.of([kind.resource()]).inc();
    }
    fn watch_ended(&self, kind: &Kind, took: Duration, items: u64) {
        self.watches.watch_seconds.of([kind.resource()]).observe(took.as_secs_f64());
        self.watches.watch_items.of([kind.resource()]).observe(items as f64);
    }
    fn decode_error(&self, kind: &Kind, _: &ObjectKey, _: &str) {
        self.watches.undecodable.of([kind.resource()]).inc();
    }
}

impl events::Observer for Metrics {
    fn published(&self, controller: &'static str, kind: Type, reason: &'static str) {
        self.events.published.of([controller, type_name(kind), reason]).inc();
    }
    fn dropped(&self, why: Dropped) {
        self.events.dropped.of([why.as_str()]).inc();
    }
}

impl leader_election::Observer for Metrics {
    fn leading(&self, lease: &str, leads: bool) {
        self.lease.master.of([lease.to_owned()]).set(i64::from(leads));
        if leads {
            self.lease.acquired.of([lease.to_owned()]).inc();
        }
    }
    fn slow_path(&self, lease: &str) {
        self.lease.slow.of([lease.to_owned()]).inc();
    }
}

/// Returns the HTTP method of an RBAC verb.
fn method(verb: &str) -> &'static str {
    match verb {
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        "delete" | "deletecollection" => "DELETE",
        _ => "GET",
    }
}

fn type_name(kind: Type) -> &'static str {
    match kind {
        Type::Normal => "Normal",
        Type::Warning => "Warning",
    }
}
