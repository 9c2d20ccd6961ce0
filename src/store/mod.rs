//! 3. The local copy: one writer, many readers, indexes, deltas.
//!
//! Guarantees
//! - One writer, by type ([`Writer`] is not `Clone`), is told what the API server says, in the order
//!   in which it says it; any number of readers ([`Store`]) look at it, and may add the answers to
//!   our own writes.
//! - Readers never see part of a relist: what was listed becomes visible at one instant, indexes
//!   included. No reader waits for a relist for longer than the change of one object takes, some
//!   microseconds of processor time (docs/PERFORMANCE.md, "Lock holds").
//! - The view never goes back: an object is never replaced by an older one, and a list that is older
//!   than what was already seen is refused whole.
//! - Nothing is lost: every object that goes is a [`Delta::Deleted`], also when only a list shows
//!   that it went. Another UID under an old name is a delete and an add.
//! - A relist of unchanged objects tells nothing and replaces nothing: every `Arc` stays.
//! - The deltas, in order, are the whole truth: who applies them to an empty map holds what the
//!   store holds, as soon as the API server has confirmed our own writes. Those of a relist are told
//!   deletes first, but for a name that was taken over (there the delete is told directly before the
//!   add) and for what we write ourselves meanwhile.
//! - Our own writes are visible at once ([`Store::wrote`], [`Store::removed`]) and told when the API
//!   server confirms them, with [`Origin::Own`]. See below what that means.
//! - Beside an object itself the store needs 32 bytes for it, `Arc` included. (Indexes cost extra.)
//!
//! # Whose change it is
//! [`Origin::Own`] lets a reconciler sleep: it says that handlers know this change because we made
//! it. It must never hide somebody else's. The danger is a change that came *before* ours: a handler
//! was last told version 5, somebody writes 6, we write 7 and see 7 at once. When 6 arrives it is
//! older than what we hold, but nobody has been told of it, nor has anybody looked at 7 with it in
//! mind: dropped as "old", its wake-up would be lost. So what is old is decided by how far the watch
//! has come, not by what is held: 6 comes out as an update with [`Origin::Server`], to the newest
//! state (7), and then 7 as [`Origin::Own`]. After a relist it cannot be told what happened between
//! two versions, so whatever differs from what was told last is [`Origin::Server`].
//!
//! An answer to a create may come after a list that does not have the object any more: somebody has
//! deleted it, and no news will ever show it. Whoever made it believes that it is there, so the next
//! news of any kind, a bookmark at the latest, tell its coming and its going, as [`Origin::Server`].
//!
//! The watch may be faster than the answer. Then the write is told as [`Origin::Unclaimed`], and
//! whoever wrote it knows when he is done that it was his: [`answers_of`].
//!
//! An answer to a write that changed nothing carries the version of somebody's earlier write. If
//! that has not come over the watch yet, or only since the task began, it is taken for ours. A writer
//! that cannot exclude it and must not miss it uses [`Store::learned`].
//!
//! # Versions
//! All this needs versions that can be ordered. Where they cannot ([`ResourceVersion::UNKNOWN`]),
//! the watch is believed as it comes, and our own writes wait for it.
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
