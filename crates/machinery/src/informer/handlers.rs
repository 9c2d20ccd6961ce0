//! The handlers of an informer.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::store::{Delta, DeltaHandler};

/// The handlers of an informer, which can have several stores.
pub(super) struct Handlers<V> {
    all: Mutex<Vec<DeltaHandler<V>>>,
    panics: AtomicU64,
}

// === impl Handlers ===

impl<V> Handlers<V> {
    pub(super) fn new() -> Handlers<V> {
        Handlers { all: Mutex::default(), panics: AtomicU64::new(0) }
    }

    /// Returns the number of panics of handlers so far.
    pub(super) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Removes all handlers. They can hold the store, which holds them.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.all.lock());
        drop(all);
    }

    /// Notifies all handlers.
    pub(super) fn notify(&self, delta: &Delta<V>, initial: bool) {
        for handler in self.all.lock().iter_mut() {
            self.call(handler, delta, initial);
        }
    }

    /// Adds a handler, and calls it with `present` first.
    pub(super) fn add(
        &self,
        handler: impl FnMut(&Delta<V>, bool) + Send + 'static,
        present: impl Iterator<Item = Delta<V>>,
    ) {
        let mut handler: DeltaHandler<V> = Box::new(handler);
        for delta in present {
            self.call(&mut handler, &delta, true);
        }
        self.all.lock().push(handler);
    }

    /// Calls a handler even if it has panicked before: its state can be wrong, but no other change must go
    /// unreported.
    fn call(&self, handler: &mut DeltaHandler<V>, delta: &Delta<V>, initial: bool) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| handler(delta, initial))) {
            self.panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!("a handler panicked: {}", message(&*panic));
        }
    }
}

/// Returns the message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
