//! The shell around the pure queue: one lock, wake-ups after every change under it, and what a worker holds.
//!
//! A change wakes one waiting worker if a key is ready, or if the next deadline has become earlier: each waiting worker
//! sleeps until the deadline that it knows. A worker that takes a key wakes the next if there is another key, or if it has
//! slept until a deadline itself and another follows. One that gives up hands over what it was woken for.

use std::borrow::Borrow;
use std::fmt;
use std::future::poll_fn;
use std::ops::Deref;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::backoff::{Limits, Retry};
use super::key::{Key, Priority};
use super::observer::{Observer, Snapshot};
use super::queue::Next;
use super::rate_limited::RateLimited;
use super::timers::Nanos;

/// Number of pauses of a thread that finds the lock taken; 0.1 ms in all.
const PAUSES: u32 = 5;
/// The first pause in spins: 1.5 to 3 µs, ten times as long as the lock is held. The holder's next rounds are faster
/// while the lock, and all that it guards, stay in its processor's caches: 4 workers on two cores take 237 ns per key
/// instead of 340 (`cargo bench --bench workqueue`).
const FIRST_PAUSE: u32 = 128;

/// A queue of keys. Cheap to clone; all clones are one queue.
pub struct WorkQueue<K: Key> {
    shared: Arc<Shared<K>>,
}

struct Shared<K: Key> {
    state: Aligned<Mutex<State<K>>>,
    /// Wakes one of the workers that wait.
    wake: Notify,
    /// tokio's clock, so that paused time covers the queue.
    created: Instant,
    observer: Box<dyn Observer>,
}

/// A value with cache lines of its own, two because the processor fetches them in pairs: threads that have yet to
/// take the lock read what is next to it.
#[repr(align(128))]
struct Aligned<T>(T);

struct State<K: Key> {
    queue: RateLimited<K>,
    /// Number of workers that wait, or were woken and have not looked yet.
    waiting: usize,
}

/// A key that a worker has. Dropping it ends the run, whatever the cause: a return, a panic or a
/// cancelled task.
#[must_use = "dropping it at once ends the run before it began"]
pub struct WorkItem<K: Key> {
    /// `None` once the run was ended by [`WorkQueue::done_and_get`].
    queue: Option<WorkQueue<K>>,
    key: K,
    id: u32,
    priority: Priority,
    /// False until the worker has it: then dropping it gives it back, and its run is still to come.
    has_begun: bool,
}

/// What a worker finds when it looks.
enum Found<K: Key> {
    /// A key, how long it waited, and whether another worker was woken.
    Item(WorkItem<K>, Duration, bool),
    /// Nothing before this time.
    Nothing(Option<Nanos>),
    /// The queue is shut down.
    ShutDown,
}

/// A worker that waits. It is counted until this is dropped.
struct Waiting<'a, K: Key> {
    queue: &'a WorkQueue<K>,
    /// False if it is dropped earlier. It may have been woken for what another one has to do now.
    has_ended: bool,
}

// === impl WorkQueue ===

impl<K: Key> WorkQueue<K> {
    /// An empty queue with the default limits and no observer.
    pub fn new() -> WorkQueue<K> {
        WorkQueue::with(Limits::default(), ())
    }

    /// An empty queue. Any number of workers may get keys of one tenant.
    pub fn with(limits: Limits, observer: impl Observer) -> WorkQueue<K> {
        WorkQueue::with_workers(usize::MAX, limits, observer)
    }

    /// An empty queue for this many workers: while another tenant waits, one tenant gets half of them
    /// at most.
    pub fn with_workers(workers: usize, limits: Limits, observer: impl Observer) -> WorkQueue<K> {
        let state = State { queue: RateLimited::new(limits, workers), waiting: 0 };
        let shared = Shared {
            state: Aligned(Mutex::new(state)),
            wake: Notify::new(),
            created: Instant::now(),
            observer: Box::new(observer),
        };
        WorkQueue { shared: Arc::new(shared) }
    }

    /// Requests a run of `key` in [`Priority::High`].
    pub fn add(&self, key: impl Borrow<K>) {
        self.add_with(key, Priority::High);
    }

    /// Requests a run of `key`. If it is waiting already, it only rises to `priority`; if it is being
    /// processed, it runs again afterwards. A pending backoff does not hold it off; a Retry-After
    /// does. A key passed by reference, here and below, is cloned only if the queue does not know it.
    pub fn add_with(&self, key: impl Borrow<K>, priority: Priority) {
        self.change(|queue, now| queue.add(now, key.borrow(), priority));
    }

    /// Requests a run after `delay` on behalf of the run that is ending, which did not fail. It is forgotten with
    /// [`forget`](Self::forget): the last run decides. Must be called before the run is done.
    pub fn requeue_after(&self, key: impl Borrow<K>, delay: Duration) {
        self.change(|queue, now| queue.requeue(now, key.borrow(), delay));
    }

    /// Counts a failure of `key` and requests a retry after a backoff. Must be
    /// called before the run is done. Returns how long the backoff is.
    ///
    /// While a retry is pending, another failure (of a run caused by an outside event) does not count. The earlier of
    /// the two times applies, but never one before `at_least`.
    pub fn add_rate_limited(&self, key: impl Borrow<K>, retry: Retry) -> Duration {
        self.change(|queue, now| queue.retry(now, key.borrow(), retry))
    }

    /// `key` is well: forgets its failures and cancels its pending retry or requeue. Runs requested in
    /// other ways stay.
    pub fn forget(&self, key: &K) {
        self.change(|queue, now| queue.forget(now, key));
    }

    /// Failures of `key` in a row, each after the backoff of the previous one (at most 255). 0 once
    /// it was forgotten, or a run of it ended while no retry was pending.
    pub fn requeues(&self, key: &K) -> u32 {
        self.lock().queue.requeues(key)
    }

    /// The next key; `None` once the queue is shut down. Cancel-safe:
    /// if dropped before it is ready, it has taken nothing.
    pub async fn get(&self) -> Option<WorkItem<K>> {
        self.next(None).await
    }

    /// Ends a run and takes the next key under one lock: like dropping `before` and then calling
    /// [`get`](Self::get), for a worker's loop.
    pub async fn done_and_get(&self, before: WorkItem<K>) -> Option<WorkItem<K>> {
        self.next(Some(before)).await
    }

    async fn next(&self, mut before: Option<WorkItem<K>>) -> Option<WorkItem<K>> {
        loop {
            let (mut item, waited) = match self.look(before.take()) {
                Found::Item(item, waited, false) => (item, waited),
                Found::Item(item, waited, true) => {
                    // tokio runs a task that was woken here on this very thread, which is not free before this
                    // worker lets go of it: if what it does now blocks the thread, that may be never.
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
            self.shared.observer.dequeued(item.priority, waited);
            item.has_begun = true;
            return Some(item);
        }
    }

    /// Ends the run `before`, then takes a key. A worker that finds nothing counts as waiting from here on.
    fn look(&self, before: Option<WorkItem<K>>) -> Found<K> {
        // One of another queue is dropped, which ends its run.
        let mut before = before.filter(|before| before.is_of(self));
        // All workers share its count, so cloning it is costly.
        let handle = before.as_mut().and_then(|before| before.queue.take());
        let now = self.now();
        let mut state = self.lock();
        let worked = before.as_ref().map(|before| state.queue.done(now, before.id));
        // The worker that sleeps until the next deadline may be this one: another one has to take over.
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
        // Without the lock: dropping the key, and whatever the observer does, must not delay others.
        drop(before);
        worked.into_iter().for_each(|worked| self.shared.observer.done(worked));
        found
    }

    /// Returns when this worker is woken, or the time has come.
    async fn until(&self, deadline: Option<Nanos>) {
        let woken = self.shared.wake.notified();
        match deadline {
            None => woken.await,
            Some(deadline) => tokio::select! {
                () = woken => {}
                // tokio rounds up to the millisecond; a timer never ends early.
                () = sleep_until(self.shared.created + Duration::from_nanos(deadline)) => {}
            },
        }
    }

    /// Keys that are ready to be taken, or wait only for the overall rate.
    pub fn len(&self) -> usize {
        self.change(|queue, now| {
            queue.fire(now);
            queue.depth().iter().sum()
        })
    }

    /// Returns whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The current state. Takes time proportional to the number of keys being processed.
    pub fn snapshot(&self) -> Snapshot<K> {
        self.change(|queue, now| queue.snapshot(now))
    }

    /// No more keys come in and none goes out: those that wait are forgotten.
    pub fn shut_down(&self) {
        self.change(|queue, now| queue.shut_down(now));
        self.shared.wake.notify_one();
    }

    /// Changes the queue, then, without the lock, wakes a worker if there is something to do.
    fn change<T>(&self, change: impl FnOnce(&mut RateLimited<K>, Nanos) -> T) -> T {
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

    /// Takes the lock. A thread pauses before each further try, twice as long each time, and sleeps only after
    /// [`PAUSES`]: to sleep and to be woken costs both threads more than to wait.
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

impl<K: Key> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").finish_non_exhaustive()
    }
}

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

/// Like `tokio::task::yield_now`, which would hide this task until the thread has nothing else to do: other threads
/// can take it at once.
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
    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The priority it was taken from.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    fn is_of(&self, queue: &WorkQueue<K>) -> bool {
        self.queue.as_ref().is_some_and(|own| Arc::ptr_eq(&own.shared, &queue.shared))
    }
}

impl<K: Key> Deref for WorkItem<K> {
    type Target = K;
    fn deref(&self) -> &K {
        &self.key
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
            queue.shared.observer.done(worked);
        } else {
            queue.change(|queue, now| queue.put_back(now, self.id));
        }
    }
}
