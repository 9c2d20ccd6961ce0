//! The controller: options, workers and shutdown.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::OptionFuture;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::policy::{Failing, FailureStreak, Retries};
use super::worker::{Core, export};
use super::{Name, Outcome, Reconciler};
use crate::client::{ApiServerHealth, Recovered};
use crate::object::{ObjectKey, leak};
use crate::workqueue::{Backoff, Limits, Priority, Retry, WorkQueue};

/// Time for reconciles dropped by shutdown to reach an await point. A reconcile that blocks its thread never does and
/// continues to run; tokio's runtime waits for that thread when it is dropped.
const LET_GO: Duration = Duration::from_secs(1);

/// Options of a controller.
#[derive(Clone)]
pub struct Options {
    /// Number of concurrent reconciles. While another namespace waits, a namespace has at most half of them. Default 4.
    pub workers: usize,
    /// Time limit of a reconcile. Default 300 s: four writes that each take as long as the API server permits.
    pub deadline: Duration,
    /// Longest wait of shutdown for running reconciles. Default 15 s: dropping the rest, writing the last Events and
    /// releasing the Lease take up to 10 s more, and the kubelet sends SIGKILL after 30 s.
    pub drain: Duration,
    /// Retries of failures.
    pub retries: Retries,
    /// Connection state of the client. If set, keys that failed during an outage are retried as soon as the API server
    /// responds. Default `None`.
    pub api_server_health: Option<ApiServerHealth>,
    /// Called after each reconcile, within its `tracing` span. It must neither block nor panic. Default `None`.
    pub finished: Option<Finished>,
    /// Overall limits of retries.
    pub limits: Limits,
}

/// A function that receives the controller's name, the key and the outcome of each reconcile.
pub type Finished = Arc<dyn Fn(&'static str, &ObjectKey, Outcome) + Send + Sync>;

/// A controller, which runs a reconciler over the keys of a queue.
pub struct Controller<R>(Arc<Core<R>>);

/// The reason why a run of a controller ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The program shuts down: running reconciles have [`Options::drain`] to end.
    Shutdown,
    /// Another process can lead: running reconciles end at once.
    TermOver,
}

/// Handle for adding keys to a controller. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(crate) queue: WorkQueue<ObjectKey>,
    failing: Arc<Mutex<Failing>>,
}

/// Summary of a controller's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Reconciles that ended.
    pub reconciles: u64,
    /// Reconciles that were dropped, by shutdown or with their worker. The next reconcile of the key completes their
    /// work.
    pub dropped: u64,
    /// Reconciles that could not be dropped, because they block their threads.
    pub stuck: usize,
}

opaque!(Options);
opaque!(Controller<R>);
opaque!(Handle);

// === impl Options ===

impl Default for Options {
    fn default() -> Options {
        Options {
            workers: 4,
            deadline: Duration::from_secs(300),
            drain: Duration::from_secs(15),
            retries: Retries::default(),
            api_server_health: None,
            finished: None,
            limits: Limits::default(),
        }
    }
}

// === impl Controller ===

impl<R: Reconciler> Controller<R> {
    /// Creates a controller that is not running yet. Its queue already accepts keys. `name` is a label in metrics and
    /// logs.
    pub fn new(name: impl AsRef<str>, reconciler: R, options: Options) -> Controller<R> {
        let name = leak(name);
        Controller(Arc::new(Core {
            name,
            reconciler,
            queue: WorkQueue::with_workers(name, options.workers, options.limits),
            options,
            failing: Arc::default(),
            reconciles: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }))
    }

    /// Returns its name in metrics and logs.
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Returns its handle.
    pub fn handle(&self) -> Handle {
        let Core { queue, failing, .. } = &*self.0;
        Handle { queue: queue.clone(), failing: failing.clone() }
    }

    /// Runs until `shutdown` completes. Then no reconcile begins, running ones have [`Options::drain`] to end, and the
    /// rest is dropped. Dropping the future drops all reconciles.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Summary {
        self.run_until(shutdown.map(|()| End::Shutdown)).await
    }

    /// Empties the queue, and accepts keys again. No reconcile may run.
    pub(crate) fn restart(&self) {
        *self.0.failing.lock() = Failing::default();
        self.0.queue.restart();
    }

    /// Runs until `end` completes.
    pub(crate) async fn run_until(&self, end: impl Future<Output = End>) -> Summary {
        let handle = self.handle();
        let (core, options) = (&self.0, &self.0.options);
        let name = core.name;
        export(name, options.workers.max(1));
        let mut workers = JoinSet::new();
        for _ in 0..options.workers.max(1) {
            workers.spawn(Arc::clone(core).work());
        }
        let mut recovered = options.api_server_health.as_ref().map(ApiServerHealth::recovered);
        let mut end = pin!(end);
        let end = loop {
            tokio::select! {
                biased;
                end = &mut end => break end,
                // Without a connection state, this branch is disabled.
                Some(()) = OptionFuture::from(recovered.as_mut().map(Recovered::next)) => {
                    handle.wake_transient();
                }
            }
        };
        core.queue.shut_down();
        if timeout(options.drain, ended(&mut workers)).await.is_err() {
            workers.abort_all();
            // The summary reports the remaining ones.
            let _ = timeout(LET_GO, ended(&mut workers)).await;
        }
        let summary = Summary {
            reconciles: core.reconciles.load(Ordering::Relaxed),
            dropped: core.dropped.load(Ordering::Relaxed),
            stuck: workers.len(),
        };
        workers.detach_all();
        if end == End::Shutdown {
            tracing::info!(controller = name, ?summary, "controller stopped");
        }
        summary
    }
}

async fn ended(workers: &mut JoinSet<()>) {
    while workers.join_next().await.is_some() {}
}

// === impl Handle ===

impl Handle {
    /// Creates a handle of a queue without a controller.
    pub fn new(queue: WorkQueue<ObjectKey>) -> Handle {
        Handle { queue, failing: Arc::default() }
    }

    /// Enqueues a key. With a manager, this does nothing before the stores have synced and while another process leads,
    /// because a controller then begins with all objects.
    pub fn add(&self, key: &ObjectKey) {
        self.queue.add(key);
    }

    /// Enqueues every key whose last reconcile waited for this name ([`ErrorClass::Waiting`](super::ErrorClass::Waiting)),
    /// because the name has become free. One of the keys gets it.
    pub fn wake_waiting(&self, name: &Name) {
        self.failing.lock().freed(name).for_each(|(key, streak)| self.wake(key, streak));
    }

    /// Retries every key whose last reconcile failed transiently, now or when its Retry-After permits it, because the
    /// API server responds again. Its next failure counts as the first.
    fn wake_transient(&self) {
        for (key, streak) in self.failing.lock().transient() {
            if streak.retry_after().is_zero() {
                self.queue.forget(key);
            }
            self.wake(key, streak);
        }
    }

    /// Enqueues a key whose reason to fail is over, after its Retry-After if it has one. The caller holds the lock of
    /// `failing`, so that no reconcile ends in between with another failure.
    fn wake(&self, key: &ObjectKey, streak: &FailureStreak) {
        match streak.retry_after() {
            Duration::ZERO => self.queue.add_with(key, Priority::Low),
            // Only the backoff ends. If the key were forgotten, the Retry-After would end, too, and a key that was
            // added meanwhile would run at once.
            at_least => {
                let retry = Retry { backoff: Backoff::always(Duration::ZERO), at_least };
                self.queue.add_rate_limited(key, retry);
            }
        }
    }
}
