//! Leader election: one of several processes writes, and the others stand by with warm caches.
//!
//! Guarantees
//! - Two processes never have permission to write at the same time, as long as no clock runs more than
//!   [`Config::clock_ratio`] times as fast as another. Both must use this protocol. Their wall clocks are never used
//!   and can be hours apart.
//! - [`Leadership`] is checked before each write and reads the clock each time. So a process that was stopped,
//!   suspended or starved continues without permission. The check costs one vDSO call and one atomic load, without a
//!   lock.
//! - A write ends before another process can write: it is abandoned [`Config::in_flight`] after permission has
//!   ended, unless permission was extended. Permission is checked again when the body is sent, however long the
//!   connection took. A reconcile or write that began in an earlier term stops, because another process has led since.
//! - A process that loses the lease stands by and can lead again. An unreachable API server only suspends
//!   permission. The next acknowledged renewal restores it, unless another process has taken the lease.
//! - On shutdown, [`Elector::run`] withdraws permission, waits until no unanswered write can be applied any more
//!   ([`Config::in_flight`]), and then releases the lease. A standby reads the lease, and takes it after
//!   [`Config::retry_period`] plus at most a fifth.
//!
//! Design
//! - Permission counts from the time a renewal was *sent*, once the API server has acknowledged it: by its response,
//!   or by a read that returns exactly the record that was sent, at a newer version. So a leader keeps the lease
//!   even if each write of it takes seconds.
//! - Another process's lease has expired when this process has seen the same resourceVersion for the lease's
//!   duration (the recorded one, but no less than its own), by its own clock, counted from the *arrival* of the
//!   first response with that version. A manual edit, even one that clears the spec or names this process, only
//!   restarts the wait. A lease is free at once only in the form in which its holder releases it: no holder, no
//!   acquireTime, one second, and a renewTime. It is then taken with that resourceVersion as a precondition: the API
//!   server refuses the write if there was a renewal in the meantime.
//! - The holder counts at most `duration / clock_ratio - in_flight`, all other processes `duration`. If the candidate's
//!   clock runs r times as fast as the holder's, the holder's permission ends before the candidate's begins for
//!   every r up to `clock_ratio`. A fast holder stops early, which is harmless; the critical case is a fast
//!   candidate with a slow holder.
//! - The elector runs on the runtime of the reconciles, not on its own thread. If all threads of the runtime are
//!   blocked, no reconcile makes progress and no probe gets a response. Renewing the lease in that state would prevent
//!   another process from taking over. The log reports a suspension.
//! - The clock is CLOCK_BOOTTIME: it keeps running while the machine is suspended, and cannot be set.
//!
//! Caveats
//! - Beyond `clock_ratio`, permissions can overlap: if a candidate's clock runs r times as fast as the holder's, for
//!   at most `validity - duration / r` on the holder's clock. One such case is a virtual machine that its hypervisor
//!   freezes and resumes without adjusting its clock.
//! - No clock stops a write that was sent in time and arrives late. Preconditions (UID, resourceVersion) make such a
//!   write harmless; writers must set them.
//! - A process that creates the Lease in place of a deleted one has no permission until the duration of the deleted
//!   one has elapsed, at most four times its own duration. The same applies to a process that sees such a new Lease,
//!   which it detects by the UID. A process that has just started knows no former Lease: if a live leader's Lease
//!   is deleted at this moment, both can write until the leader's permission ends. The same is true if the waiting
//!   process dies and its lease duration is shorter than the leader's.
//! - A process that is stopped while it waits leaves its Lease to expire, because a new process would take a released
//!   Lease at once.

mod config;
mod record;
mod candidate;
mod leadership;
mod elector;

pub use config::{Config, ConfigError};
pub use elector::{Elector, new};
pub use leadership::{Leadership, Phase, Status};
