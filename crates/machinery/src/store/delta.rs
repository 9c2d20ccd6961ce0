//! Changes of a store.

use std::sync::Arc;

use crate::object::Object;

/// A change of the store, whatever its origin.
#[derive(Debug)]
pub enum Delta<V> {
    /// A new object.
    Added(Arc<V>),
    /// The same object (same UID), changed.
    Updated {
        /// The state that was last reported.
        old: Arc<V>,
        /// The current state.
        new: Arc<V>,
    },
    /// A deleted object, in its last known state.
    Deleted(Arc<V>),
}

/// Receives the changes of a store, in order. The flag is true for the first list. Called with the store's state
/// locked: a handler can read any store, but must neither block nor write to one.
pub type DeltaHandler<V> = Box<dyn FnMut(&Delta<V>, bool) + Send>;

// === impl Delta ===

impl<V> Delta<V> {
    /// Returns the object in its latest state.
    pub fn object(&self) -> &Arc<V> {
        match self {
            Delta::Added(object) | Delta::Updated { new: object, .. } | Delta::Deleted(object) => {
                object
            }
        }
    }
}

/// Reports the deltas from `old` to `new`.
pub(super) fn step<V: Object>(old: Option<Arc<V>>, new: Arc<V>, mut report: impl FnMut(Delta<V>)) {
    match old {
        None => report(Delta::Added(new)),
        Some(old) if old.uid() == new.uid() => report(Delta::Updated { old, new }),
        Some(old) => {
            report(Delta::Deleted(old));
            report(Delta::Added(new));
        }
    }
}
