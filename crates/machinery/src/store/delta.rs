//! Changes of a store, as handlers receive them.

use std::sync::Arc;

use super::origin::WriteOrigin;
use crate::object::Object;

/// A change of the store.
///
/// If it is certainly one write of our own and nothing else, it has an origin: its key need not be
/// woken, every other has to be. A change without one may be anybody's.
#[derive(Debug)]
pub enum Delta<V> {
    /// A new object.
    Added(Arc<V>, Option<WriteOrigin>),
    /// The same object (same UID), changed.
    Updated {
        /// The state that was last reported.
        old: Arc<V>,
        /// The current state. If it is the very same as `old`, a change was reported late that is
        /// part of it (or this is a resync): what it changed is not known.
        new: Arc<V>,
        /// Author of the change.
        origin: Option<WriteOrigin>,
    },
    /// Gone; its last known state.
    Deleted(Arc<V>, Option<WriteOrigin>),
}

/// Receives the changes of a store, in order. The flag is true for the first list. Called with the
/// store's state locked: a handler may read any store, but must neither block nor write to one.
pub type DeltaHandler<V> = Box<dyn FnMut(&Delta<V>, bool) + Send>;

// === impl Delta ===

impl<V> Delta<V> {
    /// The object as it is, or as it last was.
    pub fn object(&self) -> &Arc<V> {
        match self {
            Delta::Added(object, _)
            | Delta::Updated { new: object, .. }
            | Delta::Deleted(object, _) => object,
        }
    }

    /// The origin, if the change is one write of our own and nothing else.
    pub fn origin(&self) -> Option<&WriteOrigin> {
        match self {
            Delta::Added(_, origin) | Delta::Updated { origin, .. } | Delta::Deleted(_, origin) => {
                origin.as_ref()
            }
        }
    }

    /// An update that changes nothing visible: a change that is part of `object` already.
    pub(super) fn again(object: Arc<V>, origin: Option<WriteOrigin>) -> Delta<V> {
        Delta::Updated { old: object.clone(), new: object, origin }
    }
}

/// Adds the deltas from `old` to `new`.
pub(super) fn step<V: Object>(
    old: Option<Arc<V>>,
    new: Option<Arc<V>>,
    origin: Option<WriteOrigin>,
    out: &mut Vec<Delta<V>>,
) {
    match (old, new) {
        (None, None) => {}
        (None, Some(new)) => out.push(Delta::Added(new, origin)),
        (Some(old), None) => out.push(Delta::Deleted(old, origin)),
        (Some(old), Some(new)) if old.uid() == new.uid() => {
            out.push(Delta::Updated { old, new, origin });
        }
        (Some(old), Some(new)) => {
            // Whoever created the new one, the end of the old one was not reported yet.
            out.push(Delta::Deleted(old, None));
            out.push(Delta::Added(new, origin));
        }
    }
}
