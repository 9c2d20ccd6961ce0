//! 3. The local copy: one writer, many readers, indexes, deltas.
//!
//! Guarantees
//! - One writer, by type ([`Writer`] is not `Clone`), receives the API server's news, in order. Any
//!   number of readers ([`Store`]) read it, and may add the answers to our own writes.
//! - Readers never see part of a relist: a list becomes visible at one instant, indexes included.
//!   It is built beside what is held and swapped in, so no reader waits for a relist longer than it
//!   takes to change one object, some microseconds of processor time (benches/README.md, "Lock
//!   holds"). An answer that comes meanwhile waits until it is built and reported.
//! - The view never goes back: an object is never replaced by an older one, and a list that is
//!   older than what was already seen is refused as a whole.
//! - Nothing is lost: every object that goes away is a [`Delta::Deleted`], even if only a list
//!   shows that it is gone. A different UID under an old name is a delete and an add.
//! - A relist of unchanged objects reports nothing and replaces nothing: every `Arc` stays.
//! - The deltas, in order, are the whole truth: applied to an empty map they yield what the store
//!   holds, at every moment. A relist reports deletes first, except for a name that was taken over
//!   (its delete comes right before the add).
//! - Our own writes are visible and reported at once ([`Store::apply_response`], [`Store::apply_delete`]), with
//!   their [`WriteOrigin`]. See below.
//! - On top of an object itself the store needs 32 bytes for it, `Arc` included. (Indexes cost
//!   extra.)
//!
//! # One order of changes
//! Watch events and the responses to this process's writes change the store one after another, and
//! handlers are notified of each before the next. A response names its origin, the controller and
//! key whose pass wrote: that key is not woken, all others are. A watch event that repeats the
//! response has the same version and is ignored.
//!
//! This must never hide a foreign change. The danger is one that came *before* ours: a handler
//! knows version 5, another client writes 6, this process writes 7 and sees 7 at once. When 6
//! arrives, it is older than what is held, but no handler has looked at 7 with it in mind. So it is
//! reported as a change without an origin, from 7 to 7: it wakes, and changes nothing. A list that
//! comes before the watch has confirmed a response may include such a change, so it reports the
//! object in the same way. A change that could not be decoded counts against the next response.
//!
//! A delete leaves a tombstone until the watch has passed it. If the response to a write arrives when
//! the store knows that its object is gone, no event will wake the writer: [`WriteOrigin::scope`]
//! reports it.
//!
//! The watch may be faster than the response. Then the origin of the write is unknown, and its key
//! is woken for nothing.
//!
//! The response to a write that changed nothing carries the version of an earlier, foreign write. If
//! that write has not come over the watch yet, it is taken for ours. A writer that cannot rule this
//! out and must not miss it uses [`Store::apply_read`].
//!
//! # Versions
//! All this needs versions that can be ordered. Where they cannot be
//! ([`ResourceVersion::UNKNOWN`]), the watch is believed as it comes, and our own writes wait for
//! it.
//!
//! [`ResourceVersion::UNKNOWN`]: crate::object::ResourceVersion::UNKNOWN

mod origin;
mod delta;
mod pending;
mod table;
mod index;
mod state;
mod reader;
mod relist;
mod writer;

pub use delta::{Delta, DeltaHandler};
pub use index::{Index, UnknownIndex};
pub use origin::{ControllerId, WriteOrigin};
pub use reader::Store;
pub use relist::Contradiction;
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
