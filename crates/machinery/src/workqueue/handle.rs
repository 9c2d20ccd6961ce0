//! The shell around the pure queue: one lock, wake-ups after every change under it, and the [`WorkItem`].
//!
//! A change wakes one waiting worker if a key is ready or if the next deadline is earlier: each waiting worker sleeps
//! until the deadline it knows. A worker that takes a key wakes another if there is one more key, or if it slept until
//! a deadline and another follows. A woken worker whose wait is cancelled wakes another.

use std::borrow::Borrow;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::queue::{Nanos, Next, Queue, Snapshot};
use super::request::{Key, Limits, Priority, Retry};
use crate::instruments::{QUEUE_SECONDS, WORK_SECONDS};

/// Number of pauses of a thread that finds the lock taken; 0.1 to 0.2 ms in total.
const PAUSES: u32 = 5;
/// The first pause in spins: 1.5 to 6 µs, at least ten times as long as the lock is held. The owner's next operations
/// are faster while the lock and its data stay in the caches of its processor: 4 workers on two cores take 237 ns per
/// key instead of 340 (`cargo bench --bench workqueue`).
const FIRST_PAUSE: u32 = 128;

/// A queue of keys. Cheap to clone; all clones share one queue.
pub struct WorkQueue<K: Key> {
    shared: Arc<Shared<K>>,
}

struct Shared<K: Key> {
    state: Aligned<Mutex<State<K>>>,
    /// Wakes one waiting worker.
    wake: Notify,
    /// tokio's clock, so that paused time covers the queue.
    created: Instant,
    /// How long keys wait, and how long they are processed. As in controller-runtime, both labels have the
    /// controller's name.
    times: Option<[Histogram; 2]>,
}

/// A value with its own pair of cache lines, because processors fetch lines in pairs: threads that wait for the lock do
/// not load adjacent data.
#[repr(align(128))]
struct Aligned<T>(T);

struct State<K: Key> {
    queue: Queue<K>,
    /// Number of workers that wait, or were woken and have not checked the queue yet.
    waiting: usize,
}

/// A key being processed. Dropping it ends the run, whatever the cause: a return, a panic or a cancelled task.
#[must_use = "dropping it immediately ends the run before it began"]
pub struct WorkItem<K: Key> {
    /// `None` once the run was ended by [`WorkQueue::done_and_get`].
    queue: Option<WorkQueue<K>>,
    key: K,
    id: u32,
    priority: Priority,
    /// False until the worker receives it: a drop before that puts the key back.
    has_begun: bool,
}

/// Result of a worker's check of the queue.
enum Found<K: Key> {
    /// A key, how long it waited, and whether another worker was woken.
    Item(WorkItem<K>, Duration, bool),
    /// No key before this time.
    Nothing(Option<Nanos>),
    /// The queue is shut down.
    ShutDown,
}

/// A waiting worker, counted until this is dropped.
struct Waiting<'a, K: Key> {
    queue: &'a WorkQueue<K>,
    /// False if the wait is cancelled. The worker can have been woken for a key that another worker must take now.
    has_ended: bool,
}

// === impl WorkQueue ===

impl<K: Key> WorkQueue<K> {
    /// Creates an empty queue with the default limits. Any number of workers can get keys of one tenant.
    pub fn new() -> WorkQueue<K> {
        WorkQueue::build(Queue::new(Limits::default(), usize::MAX), None)
    }

    /// Creates an empty queue for this many workers of the controller `name`. While another tenant waits, one tenant
    /// gets at most half of them. The metrics count how long keys wait and are processed.
    pub fn with_workers(name: &'static str, workers: usize, limits: Limits) -> WorkQueue<K> {
        let times = [QUEUE_SECONDS.with([name; 2]), WORK_SECONDS.with([name; 2])];
        WorkQueue::build(Queue::new(limits, workers), Some(times))
    }

    fn build(queue: Queue<K>, times: Option<[Histogram; 2]>) -> WorkQueue<K> {
        let shared = Shared {
            state: Aligned(Mutex::new(State { queue, waiting: 0 })),
            wake: Notify::new(),
            created: Instant::now(),
            times,
        };
        WorkQueue { shared: Arc::new(shared) }
    }

    /// Requests a run of `key` in [`Priority::High`].
    pub fn add(&self, key: impl Borrow<K>) {
        self.add_with(key, Priority::High);
    }

    /// Requests a run of `key`. If it is queued already, its priority can only rise; if it is being processed, it runs
    /// again afterwards. A pending backoff does not delay it; a Retry-After does. A key passed by reference, here and
    /// below, is cloned only if the queue does not store it.
    pub fn add_with(&self, key: impl Borrow<K>, priority: Priority) {
        self.change(|queue, now| queue.add(now, key.borrow(), priority));
    }

    /// Requests a run after `delay` for the run that is ending without a failure. Call it before the run is done.
    /// [`forget`](Self::forget) cancels it.
    pub fn requeue_after(&self, key: impl Borrow<K>, delay: Duration) {
        self.change(|queue, now| queue.requeue(now, key.borrow(), delay));
    }

    /// Counts a failure of `key` and requests a retry after a backoff. Call it before the run is done. Returns the
    /// length of the backoff.
    ///
    /// While a retry is pending, another failure (of a run requested from outside) does not count. The earlier of the
    /// two times applies, but never one before `at_least`.
    pub fn add_rate_limited(&self, key: impl Borrow<K>, retry: Retry) -> Duration {
        self.change(|queue, now| queue.retry(now, key.borrow(), retry))
    }

    /// Clears the failures of `key` and cancels its pending retry or requeue. Runs requested in other ways stay.
    pub fn forget(&self, key: &K) {
        self.change(|queue, now| queue.forget(now, key));
    }

    /// Returns the consecutive failures of `key`, each after the backoff of the previous one (at most 255). 0 once it
    /// was forgotten, or a run of it ended without a pending retry.
    pub fn requeues(&self, key: &K) -> u32 {
        self.lock().queue.requeues(key)
    }

    /// Takes the next key; `None` once the queue is shut down. Cancel-safe: if dropped before it is ready, no key is
    /// taken.
    pub async fn get(&self) -> Option<WorkItem<K>> {
        self.next(None).await
    }

    /// Ends a run and takes the next key under one lock: like dropping `before` and calling [`get`](Self::get).
    pub async fn done_and_get(&self, before: WorkItem<K>) -> Option<WorkItem<K>> {
        self.next(Some(before)).await
    }

    async fn next(&self, mut before: Option<WorkItem<K>>) -> Option<WorkItem<K>> {
        loop {
            let (mut item, waited) = match self.look(before.take()) {
                Found::Item(item, waited, false) => (item, waited),
                Found::Item(item, waited, true) => {
                    // tokio put the woken worker into this thread's LIFO slot, where no other thread can take it.
                    // Yielding lets it start before this worker's reconcile can block the thread.
                    let_another_go_first().await;
                    if self.lock().queue.is_shut_down() {
                        return None;
                    }
                    (item, waited)
                }
                Found::ShutDown => return None,
                Found::Nothing(deadline) => {
                    let mut waiting = Waiting { queue: self, has_ended: false };
                    self.until(deadline).await;
                    waiting.has_ended = true;
                    continue;
                }
            };
            if let Some([queued, _]) = &self.shared.times {
                queued.observe(waited.as_secs_f64());
            }
            item.has_begun = true;
            return Some(item);
        }
    }

    /// Ends the run `before`, then takes a key. A worker without a key counts as waiting from here on.
    fn look(&self, mut before: Option<WorkItem<K>>) -> Found<K> {
        // The drop of an item of another queue ends its run.
        let is_own = |queue: &mut WorkQueue<K>| Arc::ptr_eq(&queue.shared, &self.shared);
        // All workers share the reference count, so cloning the handle is costly.
        let handle = before.as_mut().and_then(|before| before.queue.take_if(is_own));
        let before = before.filter(|_| handle.is_some());
        let now = self.now();
        let mut state = self.lock();
        let worked = before.as_ref().map(|before| state.queue.done(now, before.id));
        // This worker can have slept until the next deadline; then another worker must take over.
        let is_awaited = state.waiting > 0
            && state.queue.next_deadline().is_some_and(|deadline| deadline <= now);
        let found = match state.queue.take(now) {
            _ if state.queue.is_shut_down() => Found::ShutDown,
            None => Found::Nothing(state.queue.next_deadline()),
            Some(Next { id, key, priority, waited }) => {
                let queue = Some(handle.unwrap_or_else(|| self.clone()));
                let item = WorkItem { queue, key, id, priority, has_begun: false };
                Found::Item(item, waited, state.waiting > 0 && state.queue.ready() > 0)
            }
        };
        let wakes = match &found {
            Found::Item(_, _, wakes) => {
                *wakes || is_awaited && state.queue.next_deadline().is_some()
            }
            Found::ShutDown => state.waiting > 0,
            Found::Nothing(_) => {
                state.waiting += 1;
                false
            }
        };
        drop(state);
        if wakes {
            self.shared.wake.notify_one();
        }
        // Without the lock: dropping the key must not delay others.
        drop(before);
        if let Some(worked) = worked {
            self.worked(worked);
        }
        found
    }

    fn worked(&self, worked: Duration) {
        if let Some([_, processed]) = &self.shared.times {
            processed.observe(worked.as_secs_f64());
        }
    }

    /// Waits until this worker is woken or the deadline has passed.
    async fn until(&self, deadline: Option<Nanos>) {
        let woken = self.shared.wake.notified();
        match deadline {
            None => woken.await,
            Some(deadline) => tokio::select! {
                biased;
                () = woken => {}
                // tokio rounds up to the millisecond; a timer never ends early.
                () = sleep_until(self.shared.created + Duration::from_nanos(deadline)) => {}
            },
        }
    }

    /// Returns the number of keys that are ready.
    pub fn len(&self) -> usize {
        self.change(|queue, now| {
            queue.promote_due(now);
            queue.ready()
        })
    }

    /// Returns whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the current state, in time proportional to the number of keys being processed.
    pub fn snapshot(&self) -> Snapshot {
        self.change(|queue, now| queue.snapshot(now))
    }

    /// Shuts the queue down: no key is accepted or returned, and waiting keys are forgotten.
    pub fn shut_down(&self) {
        self.change(|queue, now| queue.shut_down(now));
        self.shared.wake.notify_one();
    }

    /// Accepts keys again after a shutdown. The caller has ended all runs.
    pub(crate) fn restart(&self) {
        self.lock().queue.restart();
    }

    /// Changes the queue, then, without the lock, wakes a worker if necessary.
    fn change<T>(&self, change: impl FnOnce(&mut Queue<K>, Nanos) -> T) -> T {
        let now = self.now();
        let mut state = self.lock();
        let is_awaited = state.waiting > 0;
        let before = is_awaited.then(|| state.queue.next_deadline()).flatten();
        let result = change(&mut state.queue, now);
        let is_earlier = |next| before.is_none_or(|before| next < before);
        let wakes = is_awaited
            && (state.queue.ready() > 0 || state.queue.next_deadline().is_some_and(is_earlier));
        drop(state);
        if wakes {
            self.shared.wake.notify_one();
        }
        result
    }

    /// Takes the lock. A thread spins before each further try, twice as long each time, and sleeps only after
    /// [`PAUSES`]: sleeping and waking costs both threads more than spinning.
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        let state = &self.shared.state.0;
        for pause in 0..PAUSES {
            if let Some(state) = state.try_lock() {
                return state;
            }
            (0..FIRST_PAUSE << pause).for_each(|_| std::hint::spin_loop());
        }
        state.lock()
    }

    fn now(&self) -> Nanos {
        self.shared.created.elapsed().as_nanos() as Nanos
    }
}

impl<K: Key> Default for WorkQueue<K> {
    fn default() -> WorkQueue<K> {
        WorkQueue::new()
    }
}

impl<K: Key> Clone for WorkQueue<K> {
    fn clone(&self) -> WorkQueue<K> {
        WorkQueue { shared: Arc::clone(&self.shared) }
    }
}

opaque!(WorkQueue<K: Key>);

impl<K: Key> Drop for Waiting<'_, K> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.waiting -= 1;
        let is_awaited = state.queue.ready() > 0 || state.queue.next_deadline().is_some();
        let wakes = !self.has_ended && is_awaited && state.waiting > 0;
        drop(state);
        if wakes {
            self.queue.shared.wake.notify_one();
        }
    }
}

/// Yields once. Unlike with `tokio::task::yield_now`, which defers the task until the thread is idle, other threads can
/// take it immediately.
async fn let_another_go_first() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

// === impl WorkItem ===

impl<K: Key> WorkItem<K> {
    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns the priority it was taken from.
    pub fn priority(&self) -> Priority {
        self.priority
    }
}

impl<K: Key> fmt::Debug for WorkItem<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkItem").field(&self.key).finish()
    }
}

impl<K: Key> Drop for WorkItem<K> {
    fn drop(&mut self) {
        let Some(queue) = self.queue.take() else { return };
        if self.has_begun {
            let worked = queue.change(|queue, now| queue.done(now, self.id));
            queue.worked(worked);
        } else {
            queue.change(|queue, now| queue.put_back(now, self.id));
        }
    }
}
