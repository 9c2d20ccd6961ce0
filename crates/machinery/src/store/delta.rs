//! What changed.

use std::sync::Arc;

use crate::object::Object;

/// Who made a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Somebody else, or it is not known.
    Server,
    /// One single write whose author is not known yet. Treat it as somebody else's, unless the
    /// task's [`Answers`](super::Answers) show that it was ours.
    Unclaimed,
    /// Certainly only us: the echo of a write passed to [`Store::wrote`](super::Store::wrote) or
    /// [`Store::removed`](super::Store::removed).
    Own,
}

/// What changed in the store.
#[derive(Debug)]
pub enum Delta<V> {
    /// A new object.
    Added(Arc<V>, Origin),
    /// The same object (same UID), changed.
    Updated {
        /// The state that was last reported.
        old: Arc<V>,
        /// The current state. After a write of our own that is not confirmed yet, it may be the
        /// same as `old`, or already newer than the change being reported.
        new: Arc<V>,
        /// Who did it.
        origin: Origin,
    },
    /// Gone; its last known state.
    Deleted(Arc<V>, Origin),
}

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

    /// Who did it.
    pub fn origin(&self) -> Origin {
        match self {
            Delta::Added(_, origin) | Delta::Updated { origin, .. } | Delta::Deleted(_, origin) => {
                *origin
            }
        }
    }
}

/// Adds the deltas that take handlers from `told` to `new`.
pub(super) fn step<V: Object>(
    told: Option<Arc<V>>,
    new: Option<Arc<V>>,
    origin: Origin,
    out: &mut Vec<Delta<V>>,
) {
    match (told, new) {
        (None, None) => {}
        (None, Some(new)) => out.push(Delta::Added(new, origin)),
        (Some(old), None) => out.push(Delta::Deleted(old, origin)),
        (Some(old), Some(new)) if old.uid() == new.uid() => {
            out.push(Delta::Updated { old, new, origin });
        }
        (Some(old), Some(new)) => {
            // Whoever made the new one, the end of the old one was not reported yet.
            out.push(Delta::Deleted(old, Origin::Server));
            out.push(Delta::Added(new, origin));
        }
    }
}
