//! 4. Tells handlers about changes in the local copy of one kind.
//!
//! Guarantees
//! - Every handler is told a consistent story about every object: an add, updates of that object, a
//!   delete, in this order, ending in what is held. Another object under the same name is a delete
//!   and an add. An object that did not change is not reported, however often it is listed.
//! - [`Informer::synced`] returns only after the handlers were told the whole first list.
//! - A handler added late is told about the existing objects, as adds, and misses nothing after
//!   that: it starts from what the others were told, and learns of our own writes when they do.
//! - A handler added with [`Informer::handle`] is called at once and must not block. One added with
//!   [`Informer::subscribe`] may be as slow as it likes: what it has yet to be told is coalesced by
//!   key, so memory is bounded by the objects, not by the events.
//! - A handler that panics harms nobody else: the panic is caught and counted, and the handler is
//!   called again for the next change.
//! - If a task of the informer dies, [`Informer::run`] returns an error and the state becomes
//!   [`Dead`](crate::reflector::State::Dead); it never dies silently.
//!
//! Caveat
//! - `old` in [`Delta::Updated`](crate::store::Delta::Updated) is what the handler was last told,
//!   not what was last held.

mod pending;
mod handlers;
mod builder;
mod run;
pub mod predicate;

pub use builder::Builder;
pub use handlers::Subscription;
pub use run::{Error, Informer};
