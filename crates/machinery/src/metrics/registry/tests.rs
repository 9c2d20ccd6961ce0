use std::time::Duration;

use tokio::time::{Instant, advance};

use super::*;
use crate::controller::{Class, Outcome};
use crate::events::{Dropped, Type};
use crate::object::{Kind, Meta, ObjectKey};
use crate::{client, controller, events, leader_election, reflector};

#[derive(Debug, serde::Deserialize)]
struct Deployment {
    metadata: Meta,
}

crate::view!(Deployment: Kind::namespaced("apps", "v1", "Deployment", "deployments"));

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Job(u32);

impl Key for Job {
    type Tenant = ();
    fn tenant(&self) -> &() {
        &()
    }
}

/// Metrics after a short life in which everything happened once.
async fn lived() -> Arc<Metrics> {
    let metrics = Metrics::new(
        &"workload-operator".into(),
        "10.0.0.1:443",
        &Build { version: "1.2.3", revision: "abc" },
    );
    let client = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let client = client::Client::new(client, client::Options::default()).await.unwrap();
    metrics.watch_informer(&Informer::<Deployment>::builder(client).build());
    metrics.watch_lease("workload-operator");
    requests_happen(&metrics);
    watches_happen(&metrics).await;
    passes_happen(&metrics);
    {
        use leader_election::Observer;
        metrics.leading("workload-operator", true);
        metrics.slow_path("workload-operator");
    }
    {
        use events::Observer;
        metrics.published("memcached", Type::Warning, "FailedCreate");
        metrics.dropped(Dropped::QueueFull);
    }
    queue_happens(&metrics).await;
    metrics
}

fn requests_happen(metrics: &Metrics) {
    use client::Observer;
    let took = Duration::from_millis(300);
    for (verb, code) in [("list", 200), ("watch", 200), ("patch", 409), ("create", 0)] {
        metrics.request(verb, &Deployment::kind(), code, took);
    }
}

async fn watches_happen(metrics: &Metrics) {
    use reflector::Observer;
    let kind = &Deployment::kind();
    metrics.list_began(kind);
    metrics.list_failed(kind);
    metrics.list_began(kind);
    metrics.listed(kind, 50, Duration::from_millis(20));
    metrics.watch_opened(kind);
    advance(Duration::from_secs(40)).await;
    metrics.watch_ended(kind, Duration::from_secs(40), 2);
    metrics.watch_opened(kind);
    metrics.watch_ended(kind, Duration::ZERO, 0);
    metrics.short_watch(kind);
    metrics.decode_error(kind, &ObjectKey::new("ns", "secret-name"), "why");
}

fn passes_happen(metrics: &Metrics) {
    use controller::Observer;
    metrics.running("memcached", 4);
    let (key, took) = (ObjectKey::new("ns", "name"), Duration::from_millis(2));
    for outcome in [
        Outcome::Success,
        Outcome::RequeueAfter,
        Outcome::Failed(Class::Conflict),
        Outcome::Failed(Class::Terminal),
        Outcome::Panicked,
        Outcome::TimedOut,
        Outcome::Dropped,
    ] {
        metrics.started("memcached");
        metrics.finished("memcached", &key, outcome, took);
    }
    metrics.started("memcached");
}

async fn queue_happens(metrics: &Metrics) {
    let limits = crate::workqueue::Limits::default();
    let queue = WorkQueue::with(limits, metrics.queue_observer("memcached"));
    metrics.watch_queue("memcached", &queue);
    (0..3).for_each(|job| queue.add(Job(job)));
    queue.requeue_after(Job(9), Duration::from_secs(3_600));
    let taken = queue.get().await.unwrap();
    advance(Duration::from_secs(5)).await;
    drop(taken);
    let taken = queue.get().await.unwrap();
    advance(Duration::from_secs(7)).await;
    // In process forever.
    std::mem::forget(taken);
}

/// Names, types and samples, sorted; without buckets and without what depends on the machine.
fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("# HELP") && !line.contains("_bucket{"))
        .filter(|line| !line.contains("process_"))
        .collect();
    lines.sort_unstable();
    lines.join("\n")
}

#[tokio::test(start_paused = true)]
async fn a_scrape_has_exactly_these_names_labels_and_values() {
    let _begin = Instant::now();
    let text = lived().await.encode();
    assert_eq!(sorted(&text), include_str!("scrape.txt").trim_end());
}
