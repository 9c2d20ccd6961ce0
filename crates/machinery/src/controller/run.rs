//! A controller: its settings, its workers, its end.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::policy::{Failing, Retries, Wakes};
use super::watchdog::{Heartbeat, Watchdog};
use super::worker::Core;
use super::{Name, Observer, Reconciler};
use crate::client::{Connectivity, Reconnected};
use crate::object::ObjectKey;
use crate::workqueue::{Backoff, Limits, Priority, Retry, WorkQueue};

/// Time for passes dropped by shutdown to reach an await point. One that blocks its thread
/// never does, and is left behind; tokio's runtime waits for that thread when it is dropped.
const LET_GO: Duration = Duration::from_secs(1);

/// Options of a controller.
#[derive(Clone)]
pub struct Options {
    /// Number of passes at a time. While another namespace waits, one has half of them at most. Default 4.
    pub workers: usize,
    /// A pass that takes longer than this is dropped. Default 300 s: four writes that each take as long as the API server waits.
    pub deadline: Duration,
    /// Longest wait of shutdown for passes under way. Default 15 s: dropping the rest, the last Events and giving up the
    /// Lease take up to 10 s more, and all of it has to fit into the 30 s that a kubelet gives.
    pub drain: Duration,
    /// A pass that keeps its thread for longer than this, without awaiting, is named; 0 names none. Default
    /// 5 s.
    pub blocked: Duration,
    /// Retries of failures.
    pub retries: Retries,
    /// Connection state of the client. If it is set, keys that failed during an outage are retried as soon as the API
    /// server answers. Default `None`.
    pub connectivity: Option<Connectivity>,
    /// Notified of what the controller does. With a manager, the default is its metrics; `Some` replaces them.
    pub observer: Option<Arc<dyn Observer>>,
    /// The overall limits of retries.
    pub limits: Limits,
    /// Notified of what the queue does. With a manager, the default is its metrics; `Some` replaces them.
    pub queue_observer: Option<Arc<dyn crate::workqueue::Observer>>,
}

/// Runs a reconciler over the keys of a queue.
pub struct Controller<R> {
    core: Core<R>,
    options: Options,
}

/// Handle of a controller, by which others add keys. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(super) queue: WorkQueue<ObjectKey>,
    failing: Arc<Mutex<Failing>>,
}

/// Summary of a controller's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Passes that ended.
    pub passes: u64,
    /// Passes that shutdown stopped waiting for. The first pass after a restart finishes what they
    /// left half done.
    pub dropped: u64,
    /// Passes that could not even be dropped, because they block their threads.
    pub stuck: usize,
}

// === impl Options ===

impl Default for Options {
    fn default() -> Options {
        Options {
            workers: 4,
            deadline: Duration::from_secs(300),
            drain: Duration::from_secs(15),
            blocked: Duration::from_secs(5),
            retries: Retries::default(),
            connectivity: None,
            observer: None,
            limits: Limits::default(),
            queue_observer: None,
        }
    }
}

// === impl Controller ===

impl<R: Reconciler> Controller<R> {
    /// A controller that is not running yet; its queue already accepts keys. `name` is a label of
    /// its metrics and logs.
    pub fn new(name: &'static str, reconciler: R, options: Options) -> Controller<R> {
        let core = Core {
            name,
            reconciler,
            queue: WorkQueue::with_workers(
                options.workers,
                options.limits,
                options.queue_observer.clone().unwrap_or_else(|| Arc::new(())),
            ),
            deadline: options.deadline,
            retries: options.retries,
            observer: options.observer.clone().unwrap_or_else(|| Arc::new(())),
            failing: Arc::default(),
            passes: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        };
        Controller { core, options }
    }

    /// Its name in metrics and logs.
    pub fn name(&self) -> &'static str {
        self.core.name
    }

    /// Returns its handle.
    pub fn handle(&self) -> Handle {
        let Core { queue, failing, .. } = &self.core;
        Handle { queue: queue.clone(), failing: failing.clone() }
    }

    /// Works until `shutdown` is ready: after that no pass begins, those under way have
    /// [`Options::drain`] to end, and the rest are dropped. Dropping the future drops all passes.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Summary {
        let handle = self.handle();
        let (name, options) = (self.core.name, self.options);
        let core = Arc::new(self.core);
        let posts: Vec<Arc<Heartbeat>> =
            (0..options.workers.max(1)).map(|_| Arc::default()).collect();
        core.observer.running(name, posts.len());
        let _watchdog =
            Watchdog::start(name, posts.clone(), options.blocked, core.observer.clone());
        let (mut workers, mut at) = (JoinSet::new(), HashMap::new());
        for heartbeat in posts {
            at.insert(
                workers.spawn(Arc::clone(&core).work(Arc::clone(&heartbeat))).id(),
                heartbeat,
            );
        }
        let mut reconnected = options.connectivity.as_ref().map(Connectivity::reconnected);
        let mut shutdown = pin!(shutdown);
        loop {
            let ended = tokio::select! {
                () = &mut shutdown => break,
                () = returned(&mut reconnected) => {
                    handle.wake_transient();
                    continue;
                }
                Some(ended) = workers.join_next() => ended,
            };
            // No pass can cause this, whatever it does; an observer can.
            if let Err(error) = ended {
                tracing::error!(controller = name, %error, "a worker died and is replaced");
                // At its predecessor's heartbeat, which the watchdog knows.
                let heartbeat = at.remove(&error.id()).unwrap_or_default();
                at.insert(
                    workers.spawn(Arc::clone(&core).work(Arc::clone(&heartbeat))).id(),
                    heartbeat,
                );
            }
        }
        core.queue.shut_down();
        if timeout(options.drain, ended(&mut workers)).await.is_err() {
            workers.abort_all();
            // The summary reports those that are left.
            let _ = timeout(LET_GO, ended(&mut workers)).await;
        }
        let summary = Summary {
            passes: core.passes.load(Ordering::Relaxed),
            dropped: core.dropped.load(Ordering::Relaxed),
            stuck: workers.len(),
        };
        workers.detach_all();
        tracing::info!(controller = name, ?summary, "controller stopped");
        summary
    }
}

/// Waits for the API server to come back the next time.
async fn returned(reconnected: &mut Option<Reconnected>) {
    match reconnected {
        Some(reconnected) => reconnected.next().await,
        None => std::future::pending().await,
    }
}

async fn ended(workers: &mut JoinSet<()>) {
    while workers.join_next().await.is_some() {}
}

// === impl Handle ===

impl Handle {
    /// A handle of a queue that no controller works on.
    pub fn new(queue: WorkQueue<ObjectKey>) -> Handle {
        Handle { queue, failing: Arc::default() }
    }

    /// The queue, for adding keys.
    pub fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    /// A name has become free: every key whose last pass waited for it
    /// ([`Class::Waiting`](super::Class::Waiting)) runs again now. One of them gets it.
    pub fn wake_waiting(&self, name: Name) {
        self.wake(&Wakes::Name(Box::new(name)), |_| {});
    }

    /// The API server was away and answers again: every key whose last pass failed transiently runs
    /// again now, and its next failure counts as the first; or when a Retry-After permits it.
    fn wake_transient(&self) {
        self.wake(&Wakes::Outage, |key| self.queue.forget(key));
    }

    /// Runs every key whose last pass failed for a reason that is over, after `before`, once its Retry-After is
    /// over. Holds the lock, so that no pass can end in between with another failure.
    fn wake(&self, over: &Wakes, before: impl Fn(&ObjectKey)) {
        let mut failing = self.failing.lock();
        if let Wakes::Name(name) = over {
            failing.freed(Name::clone(name));
        }
        for (key, row) in failing.woken_by(over) {
            let asked = row.asked.map(|until| until.saturating_duration_since(Instant::now()));
            match asked.filter(|left| !left.is_zero()) {
                // The pause ends, but not what the server asked for. Forgetting the key would end
                // that too: one that was added meanwhile would run at once.
                Some(at_least) => {
                    let retry = Retry { backoff: Backoff::always(Duration::ZERO), at_least };
                    self.queue.add_rate_limited(key, retry);
                }
                None => {
                    before(key);
                    self.queue.add_with(key, Priority::Low);
                }
            }
        }
    }
}
