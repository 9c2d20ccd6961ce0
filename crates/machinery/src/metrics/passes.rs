//! Reconcile passes.

use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::labels::{Counters, Gauges, Histograms, Labels};
use crate::controller::{Class, Outcome};

/// The buckets of controller-runtime's reconcile_time_seconds.
const SECONDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0,
];
/// The values of `result` that controller-runtime uses.
const RESULTS: [&str; 4] = ["success", ERROR, "requeue_after", "requeue"];
/// The one that `controller_runtime_reconcile_errors_total` also counts.
const ERROR: &str = "error";

pub(super) struct Passes {
    total: Counters<2>,
    errors: Counters<1>,
    terminal: Counters<1>,
    panics: Counters<1>,
    timeouts: Counters<1>,
    seconds: Histograms<1>,
    workers: Gauges<1>,
    active: Gauges<1>,
    by_class: Counters<2>,
    dropped: Counters<1>,
    blocked: Counters<1>,
}

// === impl Passes ===

impl Passes {
    pub(super) fn register(registry: &mut Registry, prefix: &str) -> Passes {
        let passes = Passes {
            total: Counters::default(),
            errors: Counters::default(),
            terminal: Counters::default(),
            panics: Counters::default(),
            timeouts: Counters::default(),
            seconds: Histograms::new_with_constructor(|| Histogram::new(SECONDS)),
            workers: Gauges::default(),
            active: Gauges::default(),
            by_class: Counters::default(),
            dropped: Counters::default(),
            blocked: Counters::default(),
        };
        let help = "Total number of reconciliations per controller";
        registry.register("controller_runtime_reconcile", help, passes.total.clone());
        for (name, help, counters) in [
            ("reconcile_errors", "Total number of reconciliation errors", &passes.errors),
            (
                "terminal_reconcile_errors",
                "Total number of terminal reconciliation errors",
                &passes.terminal,
            ),
            ("reconcile_panics", "Total number of reconciliation panics", &passes.panics),
            ("reconcile_timeouts", "Total number of reconciliation timeouts", &passes.timeouts),
        ] {
            let help = format!("{help} per controller");
            registry.register(format!("controller_runtime_{name}"), help, counters.clone());
        }
        let help = "Length of time per reconciliation per controller";
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            help,
            passes.seconds.clone(),
        );
        let help = "Maximum number of concurrent reconciles per controller";
        registry.register(
            "controller_runtime_max_concurrent_reconciles",
            help,
            passes.workers.clone(),
        );
        let help = "Number of currently used workers per controller";
        registry.register("controller_runtime_active_workers", help, passes.active.clone());
        passes.register_own(registry, prefix);
        passes
    }

    fn register_own(&self, registry: &mut Registry, prefix: &str) {
        let help = "Failed reconciliations by the class that decides on the retry";
        registry.register(format!("{prefix}_reconcile_failures"), help, self.by_class.clone());
        let help = "Reconciliations that shutdown did not wait for";
        registry.register(format!("{prefix}_reconciles_dropped"), help, self.dropped.clone());
        let help = "Reconciliations that blocked their thread for too long";
        registry.register(format!("{prefix}_reconciles_blocked"), help, self.blocked.clone());
    }

    /// All series of a controller exist from the start: a rate needs a 0 to start from.
    pub(super) fn running(&self, controller: &'static str, workers: usize) {
        let labels = labels(controller);
        for result in RESULTS {
            drop(self.total.get_or_create(&with(controller, "result", result)));
        }
        for counters in [
            &self.errors,
            &self.terminal,
            &self.panics,
            &self.timeouts,
            &self.dropped,
            &self.blocked,
        ] {
            drop(counters.get_or_create(&labels));
        }
        for class in Class::ALL {
            drop(self.by_class.get_or_create(&with(controller, "class", class.as_str())));
        }
        self.active.get_or_create(&labels).set(0);
        drop(self.seconds.get_or_create(&labels));
        let workers = i64::try_from(workers).unwrap_or(i64::MAX);
        self.workers.get_or_create(&labels).set(workers);
    }

    pub(super) fn started(&self, controller: &'static str) {
        self.active.get_or_create(&labels(controller)).inc();
    }

    pub(super) fn finished(&self, controller: &'static str, outcome: Outcome, took: Duration) {
        let labels = labels(controller);
        self.active.get_or_create(&labels).dec();
        self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
        self.total.get_or_create(&with(controller, "result", outcome.result())).inc();
        if outcome.result() == ERROR {
            self.errors.get_or_create(&labels).inc();
        }
        let class = match outcome {
            Outcome::Success | Outcome::RequeueAfter => return,
            Outcome::Dropped => {
                self.dropped.get_or_create(&labels).inc();
                return;
            }
            Outcome::Failed(class) => class,
            Outcome::Panicked => {
                self.panics.get_or_create(&labels).inc();
                Class::Transient
            }
            Outcome::TimedOut => {
                self.timeouts.get_or_create(&labels).inc();
                Class::Transient
            }
        };
        if class == Class::Terminal {
            self.terminal.get_or_create(&labels).inc();
        }
        self.by_class.get_or_create(&with(controller, "class", class.as_str())).inc();
    }

    pub(super) fn blocked(&self, controller: &'static str) {
        self.blocked.get_or_create(&labels(controller)).inc();
    }
}

fn labels(controller: &'static str) -> Labels<1> {
    [("controller", controller.into())]
}

fn with(controller: &'static str, name: &'static str, value: &'static str) -> Labels<2> {
    [("controller", controller.into()), (name, value.into())]
}
