//! Handles that a worker holds: first a request for a key, then the key.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::handle::WorkQueue;
use super::key::{Key, Priority};
use super::queue::Next;
use super::sync::Sleep;
use super::waiting::unlock;

/// A key that a worker has. Dropping it ends the run, whatever the cause: a return, a panic or a
/// cancelled task.
#[must_use = "dropping it at once ends the run before it began"]
pub struct WorkItem<K: Key> {
    /// None once the run was ended in some way other than dropping this.
    queue: Option<WorkQueue<K>>,
    key: K,
    id: u32,
    priority: Priority,
    waited: Duration,
}

/// Waits for a key: see [`WorkQueue::get`].
#[must_use = "futures do nothing unless awaited"]
pub struct Get<'a, K: Key> {
    queue: &'a WorkQueue<K>,
    /// The run to end first.
    before: Option<WorkItem<K>>,
    /// That run's handle, reused for the next: all workers share its count, so cloning is costly.
    handle: Option<WorkQueue<K>>,
    /// The number under which it waits or was notified.
    number: Option<u64>,
    sleep: Option<Sleep>,
    /// Taken, but another worker was woken: it goes first. tokio runs a task that was woken here on
    /// this very thread, which is not free before this worker lets go of it, and if what it does now
    /// blocks the thread, that may be never.
    yielded: Option<WorkItem<K>>,
}

/// Waits for the end: see [`WorkQueue::drained`].
#[must_use = "futures do nothing unless awaited"]
pub struct Drained<'a, K: Key> {
    queue: &'a WorkQueue<K>,
}

// === impl Get ===

impl<'a, K: Key> Get<'a, K> {
    /// Waits for a key, after ending the run `before`, if any.
    pub(super) fn new(queue: &'a WorkQueue<K>, before: Option<WorkItem<K>>) -> Get<'a, K> {
        Get { queue, before, handle: None, number: None, sleep: None, yielded: None }
    }

    /// Takes a key, finds out that there will be none, or waits.
    fn look(&mut self, context: &mut Context<'_>) -> Poll<Option<WorkItem<K>>> {
        let shared = &self.queue.shared;
        if let Some(before) = &mut self.before {
            // Its run ends here, so dropping it must not end it again.
            self.handle = before.queue.take();
        }
        let before = self.before.as_ref().map(|before| before.id);
        let now = shared.clock.now();
        let mut state = shared.state.lock();
        let ended = before.map(|id| state.queue.done(now, id));
        if let Some(number) = self.number.take() {
            state.leave(number);
        }
        let next = state.queue.take(now);
        if next.is_none() && !state.queue.is_shut_down() {
            let (number, deadline) = state.wait(context.waker().clone());
            drop(state);
            self.number = Some(number);
            self.sleep = deadline.map(|deadline| shared.clock.sleep_until(deadline));
            self.over(ended);
            return Poll::Pending;
        }
        let woken = unlock(state);
        // The timer was for what has been found now.
        self.sleep = None;
        let item = next.map(|Next { id, key, priority, waited }| {
            let queue = self.handle.take().unwrap_or_else(|| self.queue.clone());
            WorkItem { queue: Some(queue), key, id, priority, waited }
        });
        let over = catch_unwind(AssertUnwindSafe(|| self.over(ended)));
        if let Err(panic) = over {
            item.into_iter().for_each(WorkItem::put_back);
            resume_unwind(panic);
        }
        if woken && item.is_some() {
            self.yielded = item;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(item.map(|item| self.hand_out(item)))
    }

    /// Reports that a worker works on the key from now on.
    fn hand_out(&self, item: WorkItem<K>) -> WorkItem<K> {
        let observer = &self.queue.shared.observer;
        let observed =
            catch_unwind(AssertUnwindSafe(|| observer.dequeued(item.priority, item.waited)));
        if let Err(panic) = observed {
            item.put_back();
            resume_unwind(panic);
        }
        item
    }

    /// The previous run has ended and took this long. Called without the lock: dropping its key,
    /// and whatever the observer does, must not delay others.
    fn over(&mut self, worked: Option<Duration>) {
        if let Some(worked) = worked {
            self.before = None;
            self.queue.shared.observer.done(worked);
        }
    }
}

/// Nothing in it is pinned, whatever type the key is.
impl<K: Key> Unpin for Get<'_, K> {}

impl<K: Key> Future for Get<'_, K> {
    type Output = Option<WorkItem<K>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(item) = self.yielded.take() {
            if !self.queue.shared.state.lock().queue.is_abandoned() {
                return Poll::Ready(Some(self.hand_out(item)));
            }
            item.put_back();
        }
        loop {
            if let Poll::Ready(item) = self.look(context) {
                return Poll::Ready(item);
            }
            if self.yielded.is_some() {
                return Poll::Pending;
            }
            // If the timer has ended already, look again; otherwise it wakes this task.
            let ended = self.sleep.as_mut().is_some_and(|sleep| sleep.poll(context).is_ready());
            if !ended {
                return Poll::Pending;
            }
        }
    }
}

impl<K: Key> Drop for Get<'_, K> {
    fn drop(&mut self) {
        self.yielded.take().into_iter().for_each(WorkItem::put_back);
        let Some(number) = self.number else { return };
        let mut state = self.queue.shared.state.lock();
        state.leave(number);
        unlock(state);
    }
}

// === impl Drained ===

impl<'a, K: Key> Drained<'a, K> {
    pub(super) fn new(queue: &'a WorkQueue<K>) -> Drained<'a, K> {
        Drained { queue }
    }
}

impl<K: Key> Future for Drained<'_, K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.queue.shared.state.lock();
        if state.queue.is_drained() {
            return Poll::Ready(());
        }
        if !state.drained.iter().any(|known| known.will_wake(context.waker())) {
            state.drained.push(context.waker().clone());
        }
        Poll::Pending
    }
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

    /// Gives the key back: its run has not begun, and is still to come.
    fn put_back(mut self) {
        if let Some(queue) = self.queue.take() {
            queue.change(|queue, now| queue.put_back(now, self.id));
        }
    }

    /// Returns the time from the request for the run until a worker got it.
    pub fn waited(&self) -> Duration {
        self.waited
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
        let worked = queue.change(|queue, now| queue.done(now, self.id));
        queue.shared.observer.done(worked);
    }
}
