//! Detection of reconciles that block their threads.
//!
//! A deadline can drop a reconcile only where it awaits. A reconcile that computes or blocks without awaiting blocks
//! its thread and all tasks on it, including timers. Only another thread with its own clock can detect that, because
//! tokio's clock can stand still. If the blocked thread drove tokio's timers and sockets, no idle thread takes this
//! over: tokio wakes idle threads only for new tasks. So the watchdog spawns an empty task.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Handle;

use super::Observer;
use crate::object::ObjectKey;

/// The shortest pause between two checks.
const LEAST: Duration = Duration::from_millis(1);

/// State of a worker for the watchdog.
#[derive(Default)]
pub(super) struct Heartbeat {
    /// Milliseconds on CLOCK_MONOTONIC when the current poll began; 0 between polls.
    polling_since: AtomicU64,
    /// The key being reconciled.
    key: Mutex<Option<ObjectKey>>,
}

/// A thread that watches heartbeats until this is dropped.
pub(super) struct Watchdog {
    _stop: Sender<()>,
}

/// A future that records its polls in a heartbeat.
pub(super) struct Watched<F> {
    pub(super) pass: Pin<Box<F>>,
    pub(super) heartbeat: Arc<Heartbeat>,
}

/// A poll in progress. Drop clears the heartbeat's mark, even after a panic.
struct Polling<'a>(&'a Heartbeat);

// === impl Heartbeat ===

impl Heartbeat {
    /// Sets the key of the next reconcile.
    pub(super) fn over(&self, key: &ObjectKey) {
        *self.key.lock() = Some(key.clone());
    }

    /// Returns whether the current poll has taken longer than `limit`.
    fn blocks(&self, limit: Duration) -> bool {
        let since = self.polling_since.load(Ordering::Relaxed);
        since != 0 && Duration::from_millis(now().saturating_sub(since)) > limit
    }
}

// === impl Watchdog ===

impl Watchdog {
    /// Starts watching. A poll longer than `limit` is reported once; a `limit` of 0 watches nothing. If no thread can
    /// be spawned, a warning is logged and nothing is watched.
    pub(super) fn start(
        controller: &'static str,
        posts: Vec<Arc<Heartbeat>>,
        limit: Duration,
        observer: Arc<dyn Observer>,
    ) -> Watchdog {
        let (stop, stopped) = channel::<()>();
        if limit.is_zero() {
            return Watchdog { _stop: stop };
        }
        let (runtime, tick) = (Handle::try_current().ok(), (limit / 4).max(LEAST));
        let watch = move || {
            let mut told = vec![0; posts.len()];
            // Nothing is ever sent: dropping the watchdog ends the loop.
            while stopped.recv_timeout(tick) == Err(RecvTimeoutError::Timeout) {
                if let Some(runtime) =
                    runtime.as_ref().filter(|_| posts.iter().any(|p| p.blocks(tick)))
                {
                    runtime.spawn(std::future::ready(()));
                }
                for (heartbeat, told) in posts.iter().zip(&mut told) {
                    let since = heartbeat.polling_since.load(Ordering::Relaxed);
                    let for_so_long = Duration::from_millis(now().saturating_sub(since));
                    if since == 0 || since == *told || for_so_long < limit {
                        continue;
                    }
                    *told = since;
                    let key = heartbeat.key.lock().clone().unwrap_or_default();
                    tracing::error!(
                        controller,
                        namespace = %key.namespace(),
                        name = %key.name(),
                        seconds = for_so_long.as_secs(),
                        "a reconcile blocks its thread: it neither awaits nor ends",
                    );
                    observer.blocked(controller);
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("watch-{controller}"));
        if let Err(error) = thread.spawn(watch) {
            tracing::warn!(controller, %error, "no watchdog: blocked reconciles will not be named");
        }
        Watchdog { _stop: stop }
    }
}

// === impl Watched ===

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Watched { pass, heartbeat } = &mut *self;
        heartbeat.polling_since.store(now(), Ordering::Relaxed);
        let _polling = Polling(heartbeat);
        pass.as_mut().poll(context)
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.polling_since.store(0, Ordering::Relaxed);
    }
}

/// Returns the milliseconds on CLOCK_MONOTONIC, never 0.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000).max(1)
}
