//! 4. Notifies handlers of changes in the local copy of one kind.
//!
//! Guarantees
//! - Every handler receives a consistent story about every object: an add, updates of that object, a
//!   delete, in this order, always ending in what is held. Another object under the same name is a
//!   delete and an add. An object that did not change is not reported, however often it is listed.
//! - The watch's news and the answers to our own writes are reported in one order, the order in
//!   which they became visible.
//! - [`Informer::synced`] returns only after the handlers were notified of the whole first list.
//! - A handler added late is notified of the existing objects, as adds, and misses nothing after
//!   that.
//! - A handler is called at once, by whoever made the change, and must neither block nor write to a
//!   store. It may read any.
//! - A handler that panics harms no other: the panic is caught and counted, and the handler is
//!   called again for the next change.
//! - What is wired wrongly is refused by [`Informer::run`] with an error that says what to do.
//! - If a task of the informer dies, [`Informer::run`] returns an error and the state becomes
//!   [`Dead`](crate::reflector::State::Dead); it never dies silently.

mod handlers;
mod builder;
mod run;
pub mod predicate;

pub use builder::Builder;
pub use run::{Error, Informer, Refusal};
