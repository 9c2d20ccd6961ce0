//! Leader election: of several processes, one writes and the others stand by with warm caches.
//!
//! Guarantees
//! - Two processes are never allowed to write at the same moment, as long as no clock runs more
//!   than [`Config::clock_ratio`] times as fast as another. Both only need to use this
//!   protocol; their wall clocks are never consulted and may be hours apart.
//! - [`Leadership`] is asked before each write and reads the clock each time, so a process that was
//!   stopped, suspended or starved wakes up without permission. The check costs one vDSO call and
//!   one atomic load; it takes no lock.
//! - A write has ended before another process may write: it is given up [`Config::in_flight`] after
//!   permission has, unless that was extended meanwhile. Permission is checked again when the body is
//!   sent, however long the connection took. A pass, and a write, that began in an earlier term goes no further:
//!   another process has led since.
//! - Losing the lease does not end the process: it stands by and may lead again. An unreachable API
//!   server only suspends permission; the next acknowledged renewal restores it, unless somebody
//!   else has taken the lease.
//! - When told to stop, [`Elector::run`] withdraws permission, waits until no write without an answer
//!   can be carried out any more ([`Config::in_flight`]), and then gives the lease up. A
//!   standby watches the lease and has it at once; without the right to watch, it polls, and has it
//!   after [`Config::retry`] plus a fifth at most.
//! - A watch only brings news earlier: it may lag, or die silently, and neither delays a takeover
//!   from a dead leader nor permits one too early.
//!
//! Design
//! - Permission is counted from the moment a renewal was *sent*, once the API server has acknowledged
//!   it: by its answer, or by a read that shows exactly the record that was sent, at a newer version.
//!   So a leader keeps the lease although each write of it takes seconds.
//! - Another process's lease has expired when this process has seen the same resourceVersion for the
//!   lease's duration (the recorded one, but no less than its own), by its own clock, counted from the
//!   *arrival* of the answer that first showed it. An edit by hand, even one that clears the spec
//!   or names this process, only makes it wait from the beginning. A lease is free at once only in the form in which its
//!   holder gives it up: no holder, no acquireTime, one second, and a renewTime. The lease is then taken with that resourceVersion as a precondition: had there been
//!   a renewal in the meantime, the API server would refuse.
//! - The holder counts at most `duration / clock_ratio - in_flight`, everybody else `duration`. If
//!   the candidate's clock runs r times as fast as the holder's, the holder's permission ends
//!   before the candidate's begins for every r up to `clock_ratio`. A fast holder gives up early,
//!   which is harmless; the case to cover is a fast candidate with a slow holder.
//! - The elector runs on the runtime of the reconciles, not on a thread of its own. If all threads of
//!   that are blocked, no reconcile makes progress and no probe is answered; a process that renewed the
//!   lease all the same would keep out the one that can work. A blocked reconcile is named in the log
//!   after seconds, and a suspension too.
//! - The clock is CLOCK_BOOTTIME: it keeps running while the machine is suspended, and cannot be
//!   set.
//!
//! Caveats
//! - Beyond `clock_ratio`, permissions may overlap: if a candidate's clock runs r times as fast as
//!   the holder's, for at most `validity - duration / r` on the holder's clock. One such case is a
//!   virtual machine that its hypervisor freezes and resumes without telling its clock: that clock
//!   stood still.
//! - No clock stops a write that was sent in time and lands late. Preconditions (UID,
//!   resourceVersion) make such a write harmless; writers must set them.
//! - A process that creates the Lease in place of a deleted one has no permission until the duration of the
//!   deleted one has passed since, at most four times its own duration. The same holds for a process that sees such
//!   a new Lease; the UID tells the two apart. A process that has just started knows of no former Lease: if somebody
//!   deletes the Lease of a live leader at this moment, both may write until the leader's permission ends.

mod config;
mod clock;
mod record;
mod candidate;
mod leadership;
mod wire;
mod elector;

pub use clock::{Boottime, Clock};
pub use config::{Config, ConfigError};
pub use elector::{Elector, new};
pub use leadership::{Leadership, Observer, Phase, Status, Unobserved};
