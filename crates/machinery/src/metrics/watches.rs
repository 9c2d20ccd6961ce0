//! Lists and watches: what client-go defines as `reflector_*` but never fills, and how old the
//! local copies are.

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
use tokio::time::Instant;

use super::labels::{Counters, Histograms, Labels};
use crate::object::{Kind, Resource};
use crate::reflector::{Health, State};

/// 10 ms to 5 min: a list may take long, and a watch lasts for minutes.
const SECONDS: [f64; 12] =
    [0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 300.0];
/// Objects: 0 to 100,000.
const ITEMS: [f64; 7] = [0.0, 1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0];

pub(super) struct Watches {
    lists: Counters<1>,
    list_failures: Counters<1>,
    list_seconds: Histograms<1>,
    list_items: Histograms<1>,
    watches: Counters<1>,
    short: Counters<1>,
    watch_seconds: Histograms<1>,
    watch_items: Histograms<1>,
    undecodable: Counters<1>,
}

/// The informers that are queried at each scrape.
pub(super) struct Informers {
    prefix: String,
    read: RwLock<Vec<(Kind, Read)>>,
}

type Read = Box<dyn Fn() -> Numbers + Send + Sync>;

/// The state of one kind's reflectors; the worst state where there are several.
#[derive(Default)]
struct Numbers {
    version: u64,
    stale: Duration,
    synced: bool,
    live: bool,
    quarantined: usize,
    handler_panics: u64,
    index_panics: u64,
}

// === impl Watches ===

impl Watches {
    pub(super) fn register(registry: &mut Registry, prefix: &str) -> Watches {
        let seconds = || Histograms::new_with_constructor(|| Histogram::new(SECONDS));
        let items = || Histograms::new_with_constructor(|| Histogram::new(ITEMS));
        let watches = Watches {
            lists: Counters::default(),
            list_failures: Counters::default(),
            list_seconds: seconds(),
            list_items: items(),
            watches: Counters::default(),
            short: Counters::default(),
            watch_seconds: seconds(),
            watch_items: items(),
            undecodable: Counters::default(),
        };
        for (name, help, counters) in [
            (
                "reflector_lists".to_owned(),
                "Total number of API lists done by the reflectors",
                &watches.lists,
            ),
            (
                "reflector_watches".to_owned(),
                "Total number of API watches done by the reflectors",
                &watches.watches,
            ),
            (
                "reflector_short_watches".to_owned(),
                "Total number of short API watches done by the reflectors",
                &watches.short,
            ),
            (
                format!("{prefix}_list_failures"),
                "Lists that were refused or broke off",
                &watches.list_failures,
            ),
            (
                format!("{prefix}_undecodable_objects"),
                "Versions of objects that did not fit what the operator reads of them",
                &watches.undecodable,
            ),
        ] {
            registry.register(name, help, counters.clone());
        }
        watches.register_histograms(registry);
        watches
    }

    fn register_histograms(&self, registry: &mut Registry) {
        for (name, help, histograms) in [
            (
                "reflector_list_duration_seconds",
                "How long an API list takes to return and decode for the reflectors",
                &self.list_seconds,
            ),
            (
                "reflector_items_per_list",
                "How many items an API list returns to the reflectors",
                &self.list_items,
            ),
            (
                "reflector_watch_duration_seconds",
                "How long an API watch takes to return and decode for the reflectors",
                &self.watch_seconds,
            ),
            (
                "reflector_items_per_watch",
                "How many items an API watch returns to the reflectors",
                &self.watch_items,
            ),
        ] {
            registry.register(name, help, histograms.clone());
        }
    }

    /// There is an informer of this kind. Its counters exist from the start, because a rate needs a
    /// 0 to start from.
    pub(super) fn known(&self, kind: &Kind) {
        for counters in [&self.lists, &self.watches, &self.short] {
            drop(counters.get_or_create(&labels(kind)));
        }
        for counters in [&self.list_failures, &self.undecodable] {
            drop(counters.get_or_create(&resource(kind)));
        }
    }

    pub(super) fn listed(&self, kind: &Kind, items: usize, took: Duration) {
        let labels = labels(kind);
        self.list_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        self.list_items.get_or_create(&labels).observe(items as f64);
    }

    pub(super) fn list_began(&self, kind: &Kind) {
        self.lists.get_or_create(&labels(kind)).inc();
    }

    pub(super) fn list_failed(&self, kind: &Kind) {
        self.list_failures.get_or_create(&resource(kind)).inc();
    }

    pub(super) fn watch_opened(&self, kind: &Kind) {
        self.watches.get_or_create(&labels(kind)).inc();
    }

    pub(super) fn watch_ended(&self, kind: &Kind, took: Duration, items: u64) {
        let labels = labels(kind);
        self.watch_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        self.watch_items.get_or_create(&labels).observe(items as f64);
    }

    pub(super) fn short_watch(&self, kind: &Kind) {
        self.short.get_or_create(&labels(kind)).inc();
    }

    pub(super) fn undecodable(&self, kind: &Kind) {
        self.undecodable.get_or_create(&resource(kind)).inc();
    }
}

// === impl Informers ===

impl Informers {
    /// None yet; `prefix` is that of the metrics of our own.
    pub(super) fn new(prefix: &str) -> Informers {
        Informers { prefix: prefix.to_owned(), read: RwLock::default() }
    }

    pub(super) fn watch<V: Resource>(&self, informer: crate::informer::Informer<V>) {
        let kind = informer.kind();
        let read = move || Numbers {
            handler_panics: informer.handler_panics(),
            index_panics: informer.store().index_panics(),
            ..Numbers::of(informer.health().iter().map(|(_, health)| health), Instant::now())
        };
        self.read.write().push((kind, Box::new(read)));
    }

    /// The numbers of each kind. Two informers of one kind, with two views, are one: a series that
    /// came twice would fail the whole scrape.
    fn by_kind(&self) -> Vec<(Kind, Numbers)> {
        let mut all: Vec<(Kind, Numbers)> = Vec::new();
        for (kind, read) in self.read.read().iter() {
            match all.iter_mut().find(|(known, _)| known.resource() == kind.resource()) {
                Some((_, numbers)) => *numbers = numbers.and(&read()),
                None => all.push((*kind, read())),
            }
        }
        all
    }

    /// Encodes one number per kind.
    fn each<M: EncodeMetric>(
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        all: &[(Kind, Numbers)],
        value: fn(&Numbers) -> M,
    ) -> fmt::Result {
        let metric = value(&Numbers::default()).metric_type();
        let mut family = encoder.encode_descriptor(name, help, None, metric)?;
        for (kind, numbers) in all {
            value(numbers).encode(family.encode_family(&resource(kind))?)?;
        }
        Ok(())
    }
}

impl Numbers {
    fn of<'a>(health: impl Iterator<Item = &'a Health>, now: Instant) -> Numbers {
        let all = Numbers { synced: true, live: true, version: u64::MAX, ..Numbers::default() };
        health.fold(all, |sum, one| Numbers {
            version: sum.version.min(one.version.number().unwrap_or_default()),
            stale: sum.stale.max(one.staleness(now)),
            synced: sum.synced && one.synced,
            live: sum.live && one.state == State::Live,
            quarantined: sum.quarantined + one.quarantined,
            ..sum
        })
    }

    /// Those of another informer, too.
    fn and(&self, other: &Numbers) -> Numbers {
        Numbers {
            version: self.version.min(other.version),
            stale: self.stale.max(other.stale),
            synced: self.synced && other.synced,
            live: self.live && other.live,
            quarantined: self.quarantined + other.quarantined,
            handler_panics: self.handler_panics + other.handler_panics,
            index_panics: self.index_panics + other.index_panics,
        }
    }
}

impl Collector for Informers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.by_kind();
        let help = "Last resource version seen for the reflectors.";
        let gauge = MetricType::Gauge;
        let mut versions =
            encoder.encode_descriptor("reflector_last_resource_version", help, None, gauge)?;
        for (kind, numbers) in &all {
            let labels = labels(kind);
            ConstGauge::new(numbers.version).encode(versions.encode_family(&labels)?)?;
        }
        let encoder = &mut encoder;
        let own = |name| format!("{}_{name}", self.prefix);
        let help = "Seconds since the API server was last heard: how old the local copy may be.";
        Self::each(encoder, &own("informer_stale_seconds"), help, &all, |n| {
            ConstGauge::new(n.stale.as_secs_f64())
        })?;
        let help = "1 once there was a complete list.";
        Self::each(encoder, &own("informer_synced"), help, &all, |n| {
            ConstGauge::new(f64::from(u8::from(n.synced)))
        })?;
        let help = "1 while the local copy follows the API server.";
        Self::each(encoder, &own("informer_live"), help, &all, |n| {
            ConstGauge::new(f64::from(u8::from(n.live)))
        })?;
        let help =
            "Objects that cannot be decoded and are held as they last could be, or not at all.";
        Self::each(encoder, &own("quarantined_objects"), help, &all, |n| {
            ConstGauge::new(n.quarantined as f64)
        })?;
        let help = "Panics of handlers so far.";
        Self::each(encoder, &own("informer_handler_panics"), help, &all, |n| {
            ConstCounter::new(n.handler_panics)
        })?;
        let help = "Panics of index functions so far: such an object is not found by that index.";
        Self::each(encoder, &own("informer_index_panics"), help, &all, |n| {
            ConstCounter::new(n.index_panics)
        })
    }
}

impl fmt::Debug for Informers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informers").finish_non_exhaustive()
    }
}

/// client-go's label for a reflector.
fn labels(kind: &Kind) -> Labels<1> {
    [("name", kind.resource().into())]
}

fn resource(kind: &Kind) -> Labels<1> {
    [("resource", kind.resource().into())]
}
