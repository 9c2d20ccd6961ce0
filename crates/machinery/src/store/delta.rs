//! Changes of a store, as handlers receive them.

use std::sync::Arc;

use super::author::Author;
use crate::object::Object;

/// A change of the store.
///
/// If it is certainly one write of our own and nothing else, it has an author: its key need not be
/// woken, every other has to be. A change without one may be anybody's.
#[derive(Debug)]
pub enum Delta<V> {
    /// A new object.
    Added(Arc<V>, Option<Author>),
    /// The same object (same UID), changed.
    Updated {
        /// The state that was last reported.
        old: Arc<V>,
        /// The current state. If it is the very same as `old`, a change was reported late that is
        /// part of it (or this is a resync): what it changed is not known.
        new: Arc<V>,
        /// Author of the change.
        author: Option<Author>,
    },
    /// Gone; its last known state.
    Deleted(Arc<V>, Option<Author>),
}

/// Receives the changes of a store, in order. The flag is true for the first list. Called with the
/// store's door locked: a handler may read any store, but must neither block nor write to one.
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

    /// The author, if the change is one write of our own and nothing else.
    pub fn author(&self) -> Option<&Author> {
        match self {
            Delta::Added(_, author) | Delta::Updated { author, .. } | Delta::Deleted(_, author) => {
                author.as_ref()
            }
        }
    }

    /// An update that changes nothing visible: a change that is part of `object` already.
    pub(super) fn again(object: Arc<V>, author: Option<Author>) -> Delta<V> {
        Delta::Updated { old: object.clone(), new: object, author }
    }
}

/// Adds the deltas from `old` to `new`.
pub(super) fn step<V: Object>(
    old: Option<Arc<V>>,
    new: Option<Arc<V>>,
    author: Option<Author>,
    out: &mut Vec<Delta<V>>,
) {
    match (old, new) {
        (None, None) => {}
        (None, Some(new)) => out.push(Delta::Added(new, author)),
        (Some(old), None) => out.push(Delta::Deleted(old, author)),
        (Some(old), Some(new)) if old.uid() == new.uid() => {
            out.push(Delta::Updated { old, new, author });
        }
        (Some(old), Some(new)) => {
            // Whoever created the new one, the end of the old one was not reported yet.
            out.push(Delta::Deleted(old, None));
            out.push(Delta::Added(new, author));
        }
    }
}
