//! The event handlers of a controller, which enqueue its keys.
//!
//! Guarantees
//! - No filter hides the start or the end of a deletion, or a change of the owner.
//! - If a handler panics, all objects are enqueued, because the keys that it would have enqueued are unknown.
//! - A handler that only records a change runs before the handlers that enqueue a key because of it.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::kinds::ControllerDeps;
use super::wiring::WiringError;
use crate::controller::{Handle, enqueue};
use crate::object::Resource;
use crate::store::{Delta, Store};
use crate::workqueue::Priority;

/// The declared handlers of a controller, and their filters.
#[derive(Default)]
pub(super) struct Handlers {
    pub(super) filters: Filters,
    /// The views with handlers that are filtered.
    pub(super) filtered: Vec<TypeId>,
    /// Handlers that record changes and enqueue nothing.
    pub(super) recording: Vec<Handler>,
    pub(super) enqueuing: Vec<Handler>,
}

/// The filters of a controller, by the type of their view, each with the view's name.
#[derive(Clone, Default)]
pub(super) struct Filters(pub(super) HashMap<TypeId, (&'static str, Arc<dyn Any + Send + Sync>)>);

/// Returns whether a change of an object enqueues it.
pub(super) type Filter<V> = Arc<dyn Fn(&Delta<V>) -> bool + Send + Sync>;
/// Creates a handler, once there is a queue.
type Handler = Box<dyn FnOnce(&ControllerDeps) -> Result<Listen, WiringError> + Send>;
/// Adds a handler to its informer.
pub(super) type Listen = Box<dyn FnOnce() + Send>;

// === impl Handlers ===

impl Handlers {
    /// Returns the views of filters that no handler uses.
    pub(super) fn filters_of_nothing(&self) -> impl Iterator<Item = &'static str> {
        let filters = self.filters.0.iter();
        filters.filter(|(view, _)| !self.filtered.contains(view)).map(|(_, (name, _))| *name)
    }

    /// Creates the handlers, in the order in which they receive each change.
    pub(super) fn listens<V: Resource>(
        &mut self,
        parts: &ControllerDeps,
    ) -> Result<Vec<Listen>, WiringError> {
        let own = handler_of::<V, _>(|parts| {
            let enqueue = enqueue::for_object(parts.handle());
            or_enqueue_all::<V, V, _>(parts, filtered(parts, enqueue))
        });
        let recording = std::mem::take(&mut self.recording).into_iter();
        let all = recording.chain([own]).chain(std::mem::take(&mut self.enqueuing));
        all.map(|handler| handler(parts)).collect()
    }
}

// === impl Filters ===

impl Filters {
    /// Returns the filter of `W`. Without a declared filter, all changes pass.
    pub(super) fn of<W: Resource>(&self) -> Filter<W> {
        let filter = self.0.get(&TypeId::of::<W>());
        let filter = filter.and_then(|(_, filter)| filter.downcast_ref::<Filter<W>>());
        filter.cloned().unwrap_or_else(|| Arc::new(|_| true))
    }
}

/// Returns whether a deletion starts or ends, or the owner changes. If filters applied to these changes, a cleanup
/// would not run, or an owned object would not be restored.
pub(super) fn ends<V: Resource>(delta: &Delta<V>) -> bool {
    match delta {
        Delta::Added(..) => false,
        Delta::Updated { old, new, .. } => {
            let (old, new) = (old.meta(), new.meta());
            old.is_terminating != new.is_terminating || old.owner != new.owner
        }
        Delta::Deleted(..) => true,
    }
}

/// Creates a handler of the changes of `W`.
pub(super) fn handler_of<W: Resource, H>(
    make: impl FnOnce(&ControllerDeps) -> Result<H, WiringError> + Send + 'static,
) -> Handler
where
    H: Fn(&Delta<W>, bool) + Send + Sync + 'static,
{
    Box::new(|parts| {
        let (informer, handler) = (parts.informer::<W>()?.clone(), make(parts)?);
        Ok(Box::new(move || informer.handle(handler)))
    })
}

/// Forwards the changes that pass the filters of `W`.
pub(super) fn filtered<W: Resource, H: Fn(&Delta<W>, bool)>(
    parts: &ControllerDeps,
    handler: H,
) -> impl Fn(&Delta<W>, bool) + use<W, H> {
    let passes = parts.filters.of::<W>();
    move |delta, initial| {
        if passes(delta) {
            handler(delta, initial);
        }
    }
}

/// Enqueues every object of `V` if the handler panics. If it keeps panicking, all are enqueued together after
/// [`PANICS_EVERY`]: one object of a tenant must not keep every object reconciling.
pub(super) fn or_enqueue_all<V: Resource, W, H: Fn(&Delta<W>, bool)>(
    parts: &ControllerDeps,
    handler: H,
) -> Result<impl Fn(&Delta<W>, bool) + use<V, W, H>, WiringError> {
    let (objects, handle) = (parts.store::<V>()?, parts.handle());
    let enqueue_all = move || enqueue_all(&objects, &handle);
    // The time from which all objects can be enqueued again; in the future while they are about to be.
    let next = Arc::new(Mutex::new(Instant::now()));
    Ok(move |delta: &Delta<W>, initial| {
        let handled = catch_unwind(AssertUnwindSafe(|| handler(delta, initial)));
        if let Err(panic) = handled {
            let (now, mut at) = (Instant::now(), next.lock());
            if *at <= now {
                enqueue_all();
                *at = now + PANICS_EVERY;
            } else if *at <= now + PANICS_EVERY {
                let (later, enqueue_all) = (*at, enqueue_all.clone());
                *at = later + PANICS_EVERY;
                tokio::spawn(async move {
                    sleep_until(later).await;
                    enqueue_all();
                });
            }
            resume_unwind(panic); // The informer logs and counts it.
        }
    })
}

/// Enqueues every object.
pub(super) fn enqueue_all<V: Resource>(objects: &Store<V>, handle: &Handle) {
    for object in objects.list() {
        handle.queue.add_with(object.key(), Priority::Low);
    }
}

/// Minimum time between two additions of all objects because of panics.
const PANICS_EVERY: Duration = Duration::from_secs(10);
