//! 4. Tells handlers what changes in the local copy of one kind.
//!
//! Guarantees
//! - Every handler is told a true story of every object: an add, updates of that object, a delete,
//!   in this order, ending in what is held. Another object under the same name is a delete and an
//!   add. An object that did not change is not told, however often it is listed.
//! - [`Informer::synced`] returns only after the handlers were told the whole first list.
//! - A handler that comes late is told of the objects already there, as adds, and misses nothing
//!   after: it begins with what the others were told, and hears of our own writes when they do.
//! - A handler of [`Informer::handle`] is called at once and must not block. One of
//!   [`Informer::subscribe`] may be as slow as it likes: what it has still to be told is coalesced
//!   by key, so memory is bounded by the objects, not by the events.
//! - A handler that panics harms nobody: the panic is caught and counted, and it is called again
//!   for the next change.
//! - A task of the informer that dies is an error of [`Informer::run`] and the state
//!   [`Dead`](crate::reflector::State::Dead), never silence.
//!
//! Caveat
//! - [`Delta::Updated`](crate::store::Delta::Updated)'s `old` is what the handler was last told,
//!   not what was held last.

mod pending;
mod handlers;
mod builder;
mod run;
pub mod predicate;

pub use builder::Builder;
pub use handlers::Subscription;
pub use run::{Error, Informer};
