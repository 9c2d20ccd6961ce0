//! Runs controllers on the server, and waits for their effects.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::history::Id;
use super::request::Received;
use super::server::Server;
use crate::manager::Manager;
use crate::shutdown::Shutdown;

/// Time limit of a test, in tokio's time.
const LONGEST: Duration = Duration::from_secs(3600);

impl Server {
    /// Runs the controllers of `manager` on this server until `test` ends, then stops them as SIGTERM does. Returns the
    /// result of `test`.
    ///
    /// Nothing is served (`Manager::serve`), so tests that run in parallel do not share a port.
    ///
    /// Use it with tokio's paused time (`#[tokio::test(start_paused = true)]`). Then retries, timeouts and
    /// [`settled`](Server::settled) take no real time.
    ///
    /// # Panics
    ///
    /// If the manager has wiring faults, if a controller ends with an error, or if `test` takes more than an hour of
    /// tokio's time.
    #[expect(clippy::panic, reason = "as an assertion, it fails the test")]
    pub async fn run<T>(&self, manager: Manager, test: impl Future<Output = T>) -> T {
        let program = manager.serving_nothing().program(|options| self.client(options)).await;
        let program = program.unwrap_or_else(|error| panic!("{error}"));
        let shutdown = Shutdown::manual();
        let stop = shutdown.clone();
        let test = async {
            let outcome = tokio::time::timeout(LONGEST, test).await;
            stop.request();
            outcome
        };
        let (ended, outcome) = tokio::join!(program.run(shutdown), test);
        ended.unwrap_or_else(|error| panic!("a controller has ended: {error}"));
        outcome
            .unwrap_or_else(|_| panic!("the test is not done after {LONGEST:?}{}", self.awaited()))
    }

    /// Returns a text with the objects that `until` waits for, and their current state.
    fn awaited(&self) -> String {
        let awaited = self.lock().awaited.clone();
        let each = awaited.iter().map(|id| {
            let Id { resource, namespace, name } = id;
            let is = self.get(id).map_or_else(|| "is absent".to_owned(), |it| format!("is {it}"));
            format!("; it waits for {resource} {namespace}/{name}, which {is}")
        });
        each.collect()
    }

    /// Completes when no request has arrived for this time, so that no retry is due within it. Ignores watches, which
    /// are renewed every few minutes, and Leases, which their holder renews all the time.
    pub async fn settled(&self, quiet: Duration) {
        let count = || {
            let state = self.lock();
            let counts = |it: &&Received| it.verb != "watch" && !it.resource.ends_with("/leases");
            state.requests.iter().filter(counts).count()
        };
        loop {
            let before = count();
            tokio::time::sleep(quiet).await;
            if count() == before {
                return;
            }
        }
    }

    /// Completes when an object exists and `wanted` returns true for it, and returns the object. Checks every version
    /// from now on.
    pub async fn until(&self, id: &Id, wanted: impl FnMut(&Value) -> bool) -> Arc<Value> {
        self.lock().awaited.push(id.clone());
        let found = self.found(id, wanted).await;
        let mut state = self.lock();
        if let Some(at) = state.awaited.iter().position(|awaited| awaited == id) {
            state.awaited.remove(at);
        }
        found
    }

    async fn found(&self, id: &Id, mut wanted: impl FnMut(&Value) -> bool) -> Arc<Value> {
        let mut seen = self.seen();
        let (mut from, mut object) = (self.version(), self.get(id));
        loop {
            if let Some(object) = object.filter(|object| wanted(object)) {
                return object;
            }
            let (resource, namespace) = (id.resource.as_str(), Some(id.namespace.as_str()));
            let now = self.version();
            let changes = self.lock().history.changes(resource, namespace, from, now);
            let mut of_it = changes.into_iter().filter(|change| {
                change.verb != "DELETED" && change.object["metadata"]["name"] == *id.name
            });
            if let Some(found) = of_it.find(|change| wanted(&change.object)) {
                return found.object;
            }
            (from, object) = (now, None);
            self.changed_since(&mut seen).await;
        }
    }

    /// Completes when a resource has no objects.
    pub async fn until_gone(&self, resource: &str) {
        let mut seen = self.seen();
        while !self.objects(resource).is_empty() {
            self.changed_since(&mut seen).await;
        }
    }

    /// Completes when this many faults were injected.
    pub async fn until_injected(&self, count: usize) {
        let mut seen = self.seen();
        while self.lock().faults.injected.len() < count {
            self.changed_since(&mut seen).await;
        }
    }

    /// Returns the number of changes so far.
    pub(super) fn seen(&self) -> u64 {
        self.lock().changes
    }

    /// Completes when there were more changes than `seen`, and updates `seen`. Cancel-safe.
    pub(super) async fn changed_since(&self, seen: &mut u64) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let now = self.seen();
            if now != std::mem::replace(seen, now) {
                return;
            }
            changed.await;
        }
    }
}
