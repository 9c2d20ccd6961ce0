//! The local cache of objects: one writer, many readers, indexes and deltas.
//!
//! Guarantees
//! - One writer, by type ([`Writer`] is not `Clone`), receives the events of the API server in order. Any number of
//!   readers ([`Store`]) read the store, and can add the responses to our own writes.
//! - Readers never see part of a relist: a list becomes visible at one instant, including indexes. The list is built
//!   separately and swapped in. So a reader waits for a relist no longer than for the change of one object: some
//!   microseconds, except when the table grows. A response that arrives meanwhile waits until the list is reported.
//! - The view does not go back: an event or a response never replaces an object by an older one, and a list that is
//!   older than the store is refused as a whole. Any other list wins, as in client-go.
//! - Nothing is lost: every removed object is reported as a [`Delta::Deleted`], even if only a list shows the deletion.
//!   A different UID under an old name is a delete and an add.
//! - A relist of unchanged objects reports nothing and replaces nothing: every `Arc` stays.
//! - The deltas are complete: applied in order to an empty map, they yield the content of the store at every moment. A
//!   relist reports deletes first, except when a name has a new object (its delete comes right before the add).
//! - Responses to own writes are visible and reported at once ([`Store::apply_response`], [`Store::apply_delete`]).
//!   Their echo over the watch changes nothing and is not reported.
//! - Per object, the store needs 32 bytes beyond the object itself, `Arc` included. Indexes cost extra.
//!
//! # One order of changes
//! Watch events and the responses to this process's writes change the store one after another, and handlers are
//! notified of each before the next. Every handler sees every change, whatever its origin: none is suppressed by
//! mistake.
//!
//! An event can be older than the stored object: another client writes 6, this process writes 7 and stores 7 at once.
//! The event for 6 is then ignored: the report of 7 came after it, and includes it.
//!
//! A delete leaves a tombstone until the watch has passed it or three bookmarks have arrived. Until then, no late event
//! restores the object. A created object that the watch does not show by the next bookmark is outside its scope and is
//! removed.
//!
//! # Versions
//! All this requires versions that can be ordered. With [`ResourceVersion::UNKNOWN`], watch events are applied in the
//! order of their arrival, and own writes become visible only through the watch.
//!
//! [`ResourceVersion::UNKNOWN`]: crate::object::ResourceVersion::UNKNOWN

mod index;
mod state;
mod reader;
mod relist;
mod writer;

pub use index::{Index, UnknownIndex};
pub use reader::Store;
pub use writer::Writer;

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

/// Creates a store. Indexes cannot be added later.
pub fn new<V: Object>(indexes: Vec<Index<V>>) -> (Writer<V>, Store<V>) {
    let store = Store::new(indexes);
    (Writer { store: store.clone(), relist: None }, store)
}

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
fn step<V: Object>(old: Option<Arc<V>>, new: Arc<V>, mut report: impl FnMut(Delta<V>)) {
    match old {
        None => report(Delta::Added(new)),
        Some(old) if old.uid() == new.uid() => report(Delta::Updated { old, new }),
        Some(old) => {
            report(Delta::Deleted(old));
            report(Delta::Added(new));
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod model;
