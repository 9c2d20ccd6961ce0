//! 5. What to do next: a queue of keys, fair, in priorities, with retries.
//!
//! Guarantees
//! - A key waits at most once and is processed at most once at a time. If requested while being
//!   processed, it runs again afterwards. No request is lost: what was requested before a run began
//!   is covered by that run, what is requested later by another.
//! - A key that was taken is given back by dropping [`WorkItem`], so neither a panic nor a dropped
//!   future can lose it.
//! - Within a priority tenants take turns, one key each; within a tenant it is first come, first
//!   served. With `p` keys of its own tenant ahead of it and `t` tenants waiting, a key is taken
//!   within `(p + 1) · t` turns of its priority, however many keys the others have.
//! - Priorities share the gets: [`Priority::High`] goes first, but one get in 8 is for [`Priority::Low`]
//!   and one in 16 for [`Priority::Retry`] while they have keys (one get later if both are due at
//!   once).
//! - A tenant that holds half of the workers ([`WorkQueue::with_workers`]; rounded down, but one at least)
//!   gets no other while a key of a tenant that holds fewer could be taken, in whatever priority. It
//!   keeps its turn; the two bounds on turns hold among the others. If no other tenant waits, it may have all
//!   workers: runs under way are not interrupted.
//! - A failure delays a key by `base · 2ⁿ` (5 ms to 1000 s) plus a jitter of at most 10 %, where n
//!   is the number of failures in a row before it. Only failures spaced by a backoff count: events
//!   from outside make a key ready at once, but do not raise n, however many of those runs fail.
//! - [`WorkQueue::forget`] ends a row of failures and cancels a pending retry. So does a run that
//!   ends while no retry is pending: nothing is kept about a healthy key.
//! - An overall rate limits retries after the second failure in a row. First runs and first retries
//!   never wait for it, and neither does a key requested from outside. Tenants take turns at it,
//!   nothing is reserved ahead of time, and no key waits for it longer than
//!   [`Limits::retry_patience`].
//! - [`Retry::at_least`] (a Retry-After) is observed in full, whatever events arrive, unless the
//!   key is forgotten.
//! - One key wakes one worker. Timers need no task of their own.
//! - A waiting key costs about 50 bytes beyond itself, and 35 more with a timer (`cargo bench --bench
//!   workqueue`). Memory follows the largest number of keys held at once; some of the last 256 keys that
//!   are done are still held, but nothing is known about them.
//!
//! Why items with links, and not a map per tenant: with a `HashMap` of keys, a `BTreeMap` per tenant and
//! one of timers, a key with 100,000 others waiting took twice as long as in client-go's queue, and a
//! parked key up to 180 bytes.
//!
//! There are two layers, each a file on top of the previous: `queue` and `rate_limited`,
//! all pure, with the time as an argument. `handle` puts a lock around both, wakes workers, and is their side.

mod key;
mod items;
mod fair;
mod queue;
mod timers;
mod backoff;
mod bucket;
mod rate_limited;
mod observer;
mod handle;

pub use backoff::{Backoff, Limits, Retry};
pub use handle::{WorkItem, WorkQueue};
pub use key::{Key, Priority};
pub use observer::{Observer, Snapshot};

#[cfg(test)]
mod tests;
