//! 3. The local copy: one writer, many readers, indexes, deltas.
//!
//! Guarantees
//! - One writer, by type ([`Writer`] is not `Clone`), receives what the API server says, in order.
//!   Any number of readers ([`Store`]) read it, and may add the answers to our own writes.
//! - Readers never see part of a relist: a list becomes visible at one instant, indexes included.
//!   No reader waits for a relist longer than it takes to change one object, some microseconds of
//!   processor time (docs/PERFORMANCE.md, "Lock holds").
//! - The view never goes back: an object is never replaced by an older one, and a list that is
//!   older than what was already seen is refused as a whole.
//! - Nothing is lost: every object that goes away is a [`Delta::Deleted`], even if only a list
//!   shows that it is gone. A different UID under an old name is a delete and an add.
//! - A relist of unchanged objects reports nothing and replaces nothing: every `Arc` stays.
//! - The deltas, in order, are the whole truth: applied to an empty map they yield what the store
//!   holds, once the API server has confirmed our own writes. A relist reports deletes first,
//!   except for a name that was taken over (its delete comes right before the add) and for what we
//!   write ourselves in the meantime.
//! - Our own writes are visible at once ([`Store::wrote`], [`Store::removed`]) and reported when
//!   the API server confirms them, with [`Origin::Own`]. See below for what that means.
//! - On top of an object itself the store needs 32 bytes for it, `Arc` included. (Indexes cost
//!   extra.)
//!
//! # Whose change it is
//! [`Origin::Own`] lets a reconciler sleep: it says that handlers know of this change because we
//! made it. It must never hide somebody else's. The danger is a change that came *before* ours: a
//! handler was last told version 5, somebody writes 6, we write 7 and see 7 at once. When 6
//! arrives, it is older than what we hold, but nobody has been told of it, and nobody has looked at
//! 7 with it in mind: if it were dropped as "old", its wake-up would be lost. So what is old is
//! decided by how far the watch has come, not by what is held: 6 comes out as an update with
//! [`Origin::Server`], to the newest state (7), and then 7 as [`Origin::Own`]. After a relist there
//! is no knowing what happened between two versions, so whatever differs from what was last told is
//! [`Origin::Server`].
//!
//! The answer to a create may arrive after a list that no longer has the object: somebody has
//! deleted it, and no news will ever show it. Its creator believes that it exists, so the next news
//! of any kind, a bookmark at the latest, reports that it came and went, as [`Origin::Server`]. The
//! same is said of what somebody else created and a list showed, if we deleted it before handlers
//! were told.
//!
//! The watch may be faster than the answer. Then the write is reported as [`Origin::Unclaimed`],
//! and when its author is done, it knows that the write was its own: [`answers_of`].
//!
//! The answer to a write that changed nothing carries the version of somebody's earlier write. If
//! that write has not come over the watch yet, or came only since the task began, it is taken for
//! ours. A writer that cannot rule this out and must not miss it uses [`Store::learned`].
//!
//! # Versions
//! All this needs versions that can be ordered. Where they cannot be
//! ([`ResourceVersion::UNKNOWN`]), the watch is believed as it comes, and our own writes wait for
//! it.
//!
//! [`ResourceVersion::UNKNOWN`]: crate::object::ResourceVersion::UNKNOWN

mod lock;
mod delta;
mod answers;
mod table;
mod index;
mod memory;
mod state;
mod reader;
mod writer;
mod relist;

pub use answers::{Answers, Write, answers_of};
pub use delta::{Delta, Origin};
pub use index::Index;
#[cfg(lock_holds)]
pub use lock::{Hold, observe, processor_time};
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
