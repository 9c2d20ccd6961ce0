//! Events and the lease.

use prometheus_client::registry::Registry;

use super::labels::{Counters, Gauges};
use crate::events::{Dropped, Type};

pub(super) struct Events {
    published: Counters<3>,
    aggregated: Counters<3>,
    dropped: Counters<1>,
}

pub(super) struct Lease {
    master: Gauges<1>,
    slow: Counters<1>,
    acquired: Counters<1>,
}

// === impl Events ===

impl Events {
    pub(super) fn register(registry: &mut Registry, prefix: &str) -> Events {
        let events = Events {
            published: Counters::default(),
            aggregated: Counters::default(),
            dropped: Counters::default(),
        };
        let help = "New Events that were accepted for writing";
        registry.register(format!("{prefix}_events_published"), help, events.published.clone());
        let help = "Occurrences counted on an existing Event instead of creating a new one";
        registry.register(format!("{prefix}_events_aggregated"), help, events.aggregated.clone());
        let help = "Events that were lost, and why";
        registry.register(format!("{prefix}_events_dropped"), help, events.dropped.clone());
        for why in [
            Dropped::QueueFull,
            Dropped::Spam,
            Dropped::Failed,
            Dropped::Forbidden,
            Dropped::NotLeading,
            Dropped::NamespaceGone,
            Dropped::Shutdown,
        ] {
            drop(events.dropped.get_or_create(&[("why", why.as_str().into())]));
        }
        events
    }

    pub(super) fn published(&self, controller: &'static str, kind: Type, reason: &'static str) {
        self.published.get_or_create(&labels(controller, kind, reason)).inc();
    }

    pub(super) fn aggregated(&self, controller: &'static str, kind: Type, reason: &'static str) {
        self.aggregated.get_or_create(&labels(controller, kind, reason)).inc();
    }

    pub(super) fn dropped(&self, why: Dropped) {
        self.dropped.get_or_create(&[("why", why.as_str().into())]).inc();
    }
}

// === impl Lease ===

impl Lease {
    pub(super) fn register(registry: &mut Registry, prefix: &str) -> Lease {
        let lease = Lease {
            master: Gauges::default(),
            slow: Counters::default(),
            acquired: Counters::default(),
        };
        let help = "Gauge of if the reporting system is master of the relevant lease, 0 indicates \
                    backup, 1 indicates master. 'name' is the string used to identify the lease";
        registry.register("leader_election_master_status", help, lease.master.clone());
        let help = "Total number of slow path exercised in renewing leader leases. 'name' is the \
                    string used to identify the lease";
        registry.register("leader_election_slowpath", help, lease.slow.clone());
        let help = "How often this process gained permission to write";
        registry.register(format!("{prefix}_leadership_gained"), help, lease.acquired.clone());
        lease
    }

    /// There is a lease, and this process does not hold it yet.
    pub(super) fn known(&self, lease: &str) {
        let labels = [("name", lease.to_owned().into())];
        self.master.get_or_create(&labels).set(0);
        drop(self.slow.get_or_create(&labels));
        drop(self.acquired.get_or_create(&labels));
    }

    pub(super) fn leading(&self, lease: &str, leads: bool) {
        let labels = [("name", lease.to_owned().into())];
        self.master.get_or_create(&labels).set(i64::from(leads));
        if leads {
            self.acquired.get_or_create(&labels).inc();
        }
    }

    pub(super) fn slow_path(&self, lease: &str) {
        self.slow.get_or_create(&[("name", lease.to_owned().into())]).inc();
    }
}

fn labels(controller: &'static str, kind: Type, reason: &'static str) -> super::labels::Labels<3> {
    let kind = match kind {
        Type::Normal => "Normal",
        Type::Warning => "Warning",
    };
    [("controller", controller.into()), ("type", kind.into()), ("reason", reason.into())]
}
