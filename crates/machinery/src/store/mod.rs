//! 3. The local copy: one writer, many readers, indexes, deltas.
//!
//! Guarantees
//! - One writer, by type ([`Writer`] is not `Clone`), receives the API server's news, in order. Any
//!   number of readers ([`Store`]) read it, and may add the responses to our own writes.
//! - Readers never see part of a relist: a list becomes visible at one instant, indexes included.
//!   It is built beside what is stored and swapped in, so no reader waits for a relist longer than it
//!   takes to change one object. That is some microseconds, except when the
//!   table has to grow. A response that comes meanwhile waits until it is built and reported.
//! - The view does not go back: an event or a response never replaces an object by an older one, and a list that is
//!   older than what was already seen is refused as a whole. A list that is not older wins, as in client-go.
//! - Nothing is lost: every object that goes away is a [`Delta::Deleted`], even if only a list
//!   shows that it is gone. A different UID under an old name is a delete and an add.
//! - A relist of unchanged objects reports nothing and replaces nothing: every `Arc` stays.
//! - The deltas, in order, are the whole truth: applied to an empty map they yield what the store
//!   has, at every moment. A relist reports deletes first, except for a name that was taken over
//!   (its delete comes right before the add).
//! - Responses to own writes are visible and reported at once ([`Store::apply_response`], [`Store::apply_delete`]).
//!   Their echo over the watch changes nothing and is not reported.
//! - On top of an object itself the store needs 32 bytes for it, `Arc` included. (Indexes cost
//!   extra.)
//!
//! # One order of changes
//! Watch events and the responses to this process's writes change the store one after another, and
//! handlers are notified of each before the next. Whoever made a change, every handler sees it: nothing is
//! suppressed, so nothing is suppressed by mistake.
//!
//! An event may be older than what is stored: another client writes 6, this process writes 7 and stores 7 at once.
//! When 6 arrives, it is ignored: the report of 7 came after it, and includes it.
//!
//! A delete leaves a tombstone until the watch has passed it, or three bookmarks have come, so that no late event brings the object back. A created
//! object that the watch does not show by the next bookmark is outside of what is watched, and leaves the store.
//!
//! # Versions
//! All this needs versions that can be ordered. Where they cannot be
//! ([`ResourceVersion::UNKNOWN`]), the watch is believed as it comes, and our own writes wait for
//! it.
//!
//! [`ResourceVersion::UNKNOWN`]: crate::object::ResourceVersion::UNKNOWN

mod delta;
mod index;
mod state;
mod reader;
mod relist;
mod writer;

pub use delta::{Delta, DeltaHandler};
pub use index::{Index, UnknownIndex};
pub use reader::Store;
pub use writer::Writer;

use crate::object::Object;

/// Makes a store. Indexes are fixed from the start.
pub fn new<V: Object>(indexes: Vec<Index<V>>) -> (Writer<V>, Store<V>) {
    let store = Store::new(indexes);
    (Writer::new(store.clone()), store)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod model;
