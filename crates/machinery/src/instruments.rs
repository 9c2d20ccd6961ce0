//! The metrics that the modules count where something happens.
//!
//! Guarantees
//! - An observation costs short locks, atomics and temporary memory for a few labels.
//! - No label contains an object name or a namespace: the number of series does not depend on the number of objects.
//! - [`Metrics`](crate::metrics::Metrics) exports them. All clients and controllers of a process count here.

use std::borrow::Cow;
use std::sync::LazyLock;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The buckets of client-go's rest_client_request_duration_seconds (k8s.io/component-base/metrics).
const REQUEST: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// The buckets of the queue metrics: 10 ns to 1,000 s, as in controller-runtime.
const QUEUE: [f64; 12] =
    [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1_000.0];
/// The buckets of controller-runtime's reconcile_time_seconds.
const RECONCILE: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0,
];
/// The buckets for lists and watches: 10 ms to 5 min, because a watch lasts for minutes.
const WATCH: [f64; 12] = [0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 300.0];
/// The buckets for numbers of objects.
const ITEMS: [f64; 7] = [0.0, 1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0];

/// A label's value. Most are known at compile time.
pub(crate) type Value = Cow<'static, str>;
type Labels<const N: usize> = [(&'static str, Value); N];

/// A metric with labels: one time series per combination of their values.
pub(crate) struct Series<const N: usize, M: 'static> {
    labels: [&'static str; N],
    family: LazyLock<Family<Labels<N>, M>>,
}

/// Declares metrics, one per line: name of the static, kind, name, labels, help. The program's prefix is added to a name
/// that begins with `_`.
macro_rules! declare {
    ($($series:ident: $kind:ident::$new:ident($($buckets:ident)?)
        $name:literal [$($label:literal),+] $help:literal;)+) => {
        $(
            pub(crate) static $series: Series<{ [$($label),+].len() }, $kind> = Series {
                labels: [$($label),+],
                family: LazyLock::new(|| Family::new_with_constructor(|| $kind::$new($($buckets)?))),
            };
        )+

        /// Adds all metrics to a registry, those of the library with this prefix.
        pub(crate) fn register(registry: &mut Registry, prefix: &str) {
            $(registry.register(full_name(prefix, $name), $help, (*$series.family).clone());)+
        }
    };
}

declare! {
    REQUESTS: Counter::default() "rest_client_requests" ["code", "method", "host"] "Number of HTTP requests, partitioned by status code, method, and host";
    REQUEST_SECONDS: Histogram::new(REQUEST) "rest_client_request_duration_seconds" ["verb", "host"] "Request latency in seconds; a watch counts until it is open";
    REQUESTS_BY_RESOURCE: Counter::default() "_api_requests" ["verb", "resource", "code"] "Requests to the API server by verb and resource as RBAC names them";

    QUEUE_SECONDS: Histogram::new(QUEUE) "workqueue_queue_duration_seconds" ["name", "controller"] "How long in seconds an item stays in workqueue before being requested";
    WORK_SECONDS: Histogram::new(QUEUE) "workqueue_work_duration_seconds" ["name", "controller"] "How long in seconds processing an item from workqueue takes";

    RECONCILES: Counter::default() "controller_runtime_reconcile" ["controller", "result"] "Total number of reconciliations per controller";
    RECONCILE_ERRORS: Counter::default() "controller_runtime_reconcile_errors" ["controller"] "Total number of reconciliation errors per controller";
    TERMINAL_ERRORS: Counter::default() "controller_runtime_terminal_reconcile_errors" ["controller"] "Total number of terminal reconciliation errors per controller";
    PANICS: Counter::default() "controller_runtime_reconcile_panics" ["controller"] "Total number of reconciliation panics per controller";
    TIMEOUTS: Counter::default() "controller_runtime_reconcile_timeouts" ["controller"] "Total number of reconciliation timeouts per controller";
    RECONCILE_SECONDS: Histogram::new(RECONCILE) "controller_runtime_reconcile_time_seconds" ["controller"] "Length of time per reconciliation per controller";
    WORKERS: Gauge::default() "controller_runtime_max_concurrent_reconciles" ["controller"] "Maximum number of concurrent reconciles per controller";
    ACTIVE_WORKERS: Gauge::default() "controller_runtime_active_workers" ["controller"] "Number of currently used workers per controller";
    FAILURES: Counter::default() "_reconcile_failures" ["controller", "class"] "Failed reconciliations by the class that decides on the retry";
    DROPPED: Counter::default() "_reconciles_dropped" ["controller"] "Reconciliations that shutdown did not wait for";

    LISTS: Counter::default() "reflector_lists" ["name"] "Total number of API lists done by the reflectors";
    WATCHES: Counter::default() "reflector_watches" ["name"] "Total number of API watches done by the reflectors";
    SHORT_WATCHES: Counter::default() "reflector_short_watches" ["name"] "Total number of short API watches done by the reflectors";
    LIST_FAILURES: Counter::default() "_list_failures" ["resource"] "Lists that were refused or broke off";
    UNDECODABLE: Counter::default() "_undecodable_objects" ["resource"] "Versions of objects that did not fit what the operator reads of them";
    LIST_SECONDS: Histogram::new(WATCH) "reflector_list_duration_seconds" ["name"] "How long an API list takes to return and decode for the reflectors";
    LIST_ITEMS: Histogram::new(ITEMS) "reflector_items_per_list" ["name"] "How many items an API list returns to the reflectors";
    WATCH_SECONDS: Histogram::new(WATCH) "reflector_watch_duration_seconds" ["name"] "How long an API watch takes to return and decode for the reflectors";
    WATCH_ITEMS: Histogram::new(ITEMS) "reflector_items_per_watch" ["name"] "How many items an API watch returns to the reflectors";

    EVENTS_PUBLISHED: Counter::default() "_events_published" ["controller", "type", "reason"] "New Events that were accepted for writing";
    EVENTS_DROPPED: Counter::default() "_events_dropped" ["why"] "Events that were lost, and why";

    MASTER_STATUS: Gauge::default() "leader_election_master_status" ["name"] "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease";
    SLOW_PATH: Counter::default() "leader_election_slowpath" ["name"] "Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the lease";
    LEADERSHIP_GAINED: Counter::default() "_leadership_gained" ["name"] "How often this process gained permission to write";
}

// === impl Series ===

impl<const N: usize, M: Clone> Series<N, M> {
    /// Returns the series with these values, in the order of the labels, and exports it from now on. A series that is
    /// known beforehand is exported from the start, because a rate needs an initial 0.
    pub(crate) fn with<V: Into<Value>>(&self, values: [V; N]) -> M {
        let mut values = values.map(Into::into);
        let label = |at: usize| (self.labels[at], std::mem::take(&mut values[at]));
        self.family.get_or_create_owned(&std::array::from_fn(label))
    }
}

/// Returns the name of a metric, with the program's prefix if it begins with `_`.
pub(crate) fn full_name(prefix: &str, name: &str) -> String {
    if name.starts_with('_') { format!("{prefix}{name}") } else { name.to_owned() }
}
