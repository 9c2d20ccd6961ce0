//! Handlers: called in the reflector's task, or at their own pace.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::pending::Pending;
use crate::object::Object;
use crate::store::Delta;

type Inline<V> = Box<dyn FnMut(&Delta<V>, bool) + Send>;

/// All handlers of one informer.
pub(super) struct Handlers<V> {
    slots: Mutex<Slots<V>>,
    panics: Arc<AtomicU64>,
}

struct Slots<V> {
    all: Vec<Slot<V>>,
    /// Whether the initial list was reported. Under the same lock as the handlers, so that it
    /// cannot change between a new handler's check of it and that handler's registration.
    synced: bool,
}

enum Slot<V> {
    /// Called at once.
    Inline(Inline<V>),
    /// Called in a task of its own; goes away with its [`Subscription`].
    Queued(Weak<Queue<V>>),
}

/// What one subscriber has yet to be told.
struct Queue<V> {
    pending: Mutex<Pending<V>>,
    /// Notified when `pending` has grown, and when the initial list is complete.
    bell: Notify,
    synced: AtomicBool,
    told_initial: Notify,
}

/// A handler with a task of its own. Dropping it ends the handler.
#[must_use = "dropping a subscription ends it"]
pub struct Subscription<V> {
    queue: Arc<Queue<V>>,
    _stop: DropGuard,
}

// === impl Handlers ===

impl<V: Object> Handlers<V> {
    pub(super) fn new() -> Handlers<V> {
        let slots = Mutex::new(Slots { all: Vec::new(), synced: false });
        Handlers { slots, panics: Arc::default() }
    }

    /// How often handlers have panicked so far.
    pub(super) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Tells all handlers.
    pub(super) fn tell(&self, delta: &Delta<V>, initial: bool) {
        self.slots.lock().all.retain_mut(|slot| slot.tell(delta, initial, &self.panics));
    }

    /// The initial list has been reported.
    pub(super) fn synced(&self) {
        let mut slots = self.slots.lock();
        slots.synced = true;
        for slot in &slots.all {
            if let Slot::Queued(queue) = slot
                && let Some(queue) = queue.upgrade()
            {
                queue.mark_initial();
            }
        }
    }

    /// Adds a handler that is called at once, starting with `present`.
    pub(super) fn inline(
        &self,
        handler: impl FnMut(&Delta<V>, bool) + Send + 'static,
        present: impl Iterator<Item = Delta<V>>,
    ) {
        let mut slot = Slot::Inline(Box::new(handler));
        for delta in present {
            slot.tell(&delta, true, &self.panics);
        }
        self.slots.lock().all.push(slot);
    }

    /// Adds a handler with a task of its own, which is told about `present` first.
    pub(super) fn subscribe<F, D>(
        &self,
        handler: F,
        present: impl Iterator<Item = Delta<V>>,
    ) -> Subscription<V>
    where
        F: FnMut(Delta<V>, bool) -> D + Send + 'static,
        D: Future<Output = ()> + Send,
    {
        let mut pending = Pending::default();
        present.for_each(|delta| pending.push(&delta, true));
        let queue = Arc::new(Queue {
            pending: Mutex::new(pending),
            bell: Notify::new(),
            synced: AtomicBool::new(false),
            told_initial: Notify::new(),
        });
        self.slots.lock().push_queue(&queue);
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let (told, panics) = (queue.clone(), self.panics.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = stopped => {}
                () = told.tell_on(handler, &panics) => {}
            }
        });
        Subscription { queue, _stop: stop.drop_guard() }
    }
}

impl<V: Object> Slots<V> {
    fn push_queue(&mut self, queue: &Arc<Queue<V>>) {
        if self.synced {
            queue.mark_initial();
        }
        self.all.push(Slot::Queued(Arc::downgrade(queue)));
    }
}

impl<V: Object> Slot<V> {
    /// Tells the handler; returns whether it is still there.
    fn tell(&mut self, delta: &Delta<V>, initial: bool, panics: &AtomicU64) -> bool {
        match self {
            Slot::Inline(handler) => {
                // A handler that panicked is called again for the next change: its state may be
                // wrong, but no other change must go unreported because of that.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| handler(delta, initial))) {
                    count(&*panic, panics);
                }
                true
            }
            Slot::Queued(queue) => {
                let Some(queue) = queue.upgrade() else { return false };
                queue.pending.lock().push(delta, initial);
                queue.bell.notify_one();
                true
            }
        }
    }
}

/// Counts and logs a panic.
fn count(panic: &(dyn Any + Send), panics: &AtomicU64) {
    panics.fetch_add(1, Ordering::Relaxed);
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    tracing::error!("a handler panicked: {text}");
}

// === impl Queue ===

impl<V: Object> Queue<V> {
    fn mark_initial(&self) {
        self.pending.lock().mark_initial();
        self.bell.notify_one();
    }

    /// Tells the handler forever.
    async fn tell_on<F, D>(&self, mut handler: F, panics: &AtomicU64)
    where
        F: FnMut(Delta<V>, bool) -> D,
        D: Future<Output = ()>,
    {
        loop {
            if !self.synced.load(Ordering::Acquire) && self.pending.lock().is_initial_told() {
                self.synced.store(true, Ordering::Release);
                self.told_initial.notify_waiters();
            }
            let next = self.pending.lock().pop();
            let Some((first, second, initial)) = next else {
                self.bell.notified().await;
                continue;
            };
            for delta in std::iter::once(first).chain(second) {
                let told = AssertUnwindSafe(async { handler(delta, initial).await });
                if let Err(panic) = told.catch_unwind().await {
                    count(&*panic, panics);
                }
            }
        }
    }
}

// === impl Subscription ===

impl<V: Object> Subscription<V> {
    /// Whether the handler has been told about everything that existed when it was added, or about
    /// the whole initial list.
    pub fn has_synced(&self) -> bool {
        self.queue.synced.load(Ordering::Acquire)
    }

    /// Waits until [`Subscription::has_synced`] is true.
    pub async fn synced(&self) {
        loop {
            // Registered before the check, so that nothing is missed in between.
            let told = self.queue.told_initial.notified();
            if self.has_synced() {
                return;
            }
            told.await;
        }
    }

    /// How many changes the handler has yet to be told; never more than the objects that exist or
    /// that it believes to exist.
    pub fn backlog(&self) -> usize {
        self.queue.pending.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::object::fixtures::Thing;

    #[tokio::test(start_paused = true)]
    async fn a_subscriber_that_comes_as_the_initial_list_ends_is_synced() {
        let handlers: Handlers<Thing> = Handlers::new();
        let present = std::iter::from_fn(|| {
            handlers.synced();
            None
        });
        let subscription = handlers.subscribe(|_, _| std::future::ready(()), present);
        tokio::time::timeout(Duration::from_secs(1), subscription.synced()).await.unwrap();
    }
}
