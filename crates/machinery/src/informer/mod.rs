//! 4. Informers: a local copy of one kind, and handlers of its changes.
//!
//! Guarantees
//! - Every handler receives consistent changes of every object: an add, updates, a delete, in this order, ending in
//!   the stored state. Another object with the same name is a delete and an add. Unchanged objects are not reported,
//!   however often they are listed.
//! - Watch events and the responses to our own writes are reported in one order: that in which they became visible.
//! - [`Informer::synced`] completes after the handlers have received the whole first list.
//! - A handler added late receives the existing objects as adds, and misses nothing after that.
//! - A handler is called synchronously by the writer of a change. It must neither block nor write to a store; it can
//!   read any.
//! - A panic of a handler is caught and counted. It affects no other handler, and the handler is called for the next
//!   change.
//! - [`Informer::run`] refuses wrong wiring with an error that says what to do.
//! - If a task of the informer panics, [`Informer::run`] returns an error and the state becomes
//!   [`Dead`](crate::reflector::State::Dead).

mod builder;
mod run;
pub mod predicate;

pub use builder::Builder;
pub(crate) use run::message;
pub use run::{BuildError, Error, Informer};
