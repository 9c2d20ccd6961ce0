//! A fair work queue of keys, with priorities and retries.
//!
//! Guarantees
//! - A key is queued at most once and processed by at most one worker. If requested while being processed, it runs
//!   again afterwards. No request is lost: a run covers every request made before it began.
//! - Dropping the [`WorkItem`] ends a run, so neither a panic nor a dropped future can lose a key.
//! - Within a priority, tenants are served round robin, one key each; the keys of a tenant are first in, first out.
//!   With `p` keys of its own tenant ahead of it and `t` tenants waiting, a key is taken within `(p + 1) · t` turns of
//!   its priority, however many keys the others have.
//! - [`Priority::High`] goes first, but while they have keys, one get in 8 is for [`Priority::Low`] and one in 16 for
//!   [`Priority::Retry`] (one get later if both are due at once).
//! - A tenant that occupies half of the workers ([`WorkQueue::with_workers`]; rounded down, at least one) gets no other
//!   worker while a tenant that occupies fewer has a key in any priority. It keeps its turn; the two bounds on turns
//!   hold among the others. If no other tenant waits, it can occupy all workers: runs are not interrupted.
//! - A failure delays a key by `base · 2ⁿ` (5 ms to 1000 s) plus a jitter of at most 10 %, where n is the number of
//!   consecutive failures before it. Only failures spaced by a backoff count: events from outside make a key ready at
//!   once, and failures of these runs do not raise n.
//! - [`WorkQueue::forget`] ends a failure streak and cancels a pending retry. So does a run that ends without a pending
//!   retry: the queue stores nothing about a healthy key.
//! - An overall rate limits retries after the second consecutive failure. First runs, first retries and keys requested
//!   from outside do not wait for it. It is shared round robin by tenants, reserves nothing ahead of time, and delays
//!   no key longer than [`Limits::retry_patience`].
//! - [`Retry::at_least`] (a Retry-After) is observed in full, regardless of events, unless the key is forgotten.
//! - One key wakes one worker. Timers need no task of their own.
//! - A waiting key costs about 50 bytes beyond itself, and 35 more with a timer (`cargo bench --bench workqueue`).
//!   Memory never shrinks below its peak. Up to 256 finished keys stay cached without state.
//!
//! Items are linked instead of stored in a map per tenant. A design with a `HashMap` of keys, a `BTreeMap` per tenant
//! and one of timers was slower and larger: a key with 100,000 others waiting took twice as long as in client-go's
//! queue, and a delayed key took up to 180 bytes.
//!
//! There are two layers without locks or clocks: `queue` and, on top of it, `rate_limited`. `handle` adds the lock and
//! wakes workers.

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
