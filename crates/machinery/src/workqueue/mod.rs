//! A fair work queue of keys, with priorities and retries.
//!
//! Guarantees
//! - A key is queued at most once and processed by at most one worker. If requested while being processed, it runs
//!   again afterwards. No request is lost: a run covers every request made before it began.
//! - Dropping the [`WorkItem`] ends a run, so neither a panic nor a dropped future can lose a key.
//! - Within a priority, tenants are served round robin, one key each; the keys of a tenant are first in, first out.
//!   With `p` keys of its own tenant ahead of it and `t` tenants waiting, a key is taken within `(p + 1) · t` turns of
//!   its priority, however many keys the others have.
//! - [`Priority::High`] goes first, but while it has keys, one get in 8 is for [`Priority::Low`].
//! - A tenant that occupies half of the workers ([`WorkQueue::with_workers`]; rounded down, at least one) gets no other
//!   worker while a tenant that occupies fewer has a key in any priority. It keeps its turn; the two bounds on turns
//!   hold among the others. If no other tenant waits, it can occupy all workers: runs are not interrupted.
//! - A failure delays a key by `base · 2ⁿ` (5 ms to 1000 s) plus a jitter of at most 10 %, where n is the number of
//!   consecutive failures before it. Only failures spaced by a backoff count: events from outside make a key ready at
//!   once, and failures of these runs do not raise n.
//! - [`WorkQueue::forget`] ends a failure streak and cancels a pending retry. So does a run that ends without a pending
//!   retry: the queue stores nothing about a healthy key.
//! - An overall rate limits how many retries after the second consecutive failure are queued. First runs, first retries
//!   and keys requested from outside do not wait for it. Tenants take turns, and it reserves nothing ahead of time.
//! - [`Retry::at_least`] (a Retry-After) is observed in full, regardless of events, unless the key is forgotten.
//! - One key wakes one worker. Timers need no task of their own.
//! - Memory never shrinks below its peak.
//!
//! `queue` has neither locks nor clocks. `handle` adds the lock and wakes workers.

mod request;
mod queue;
mod handle;

pub use handle::{WorkItem, WorkQueue};
pub use queue::Snapshot;
pub use request::{Backoff, Key, Limits, Priority, Retry};

#[cfg(test)]
mod tests;
