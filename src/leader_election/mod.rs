//! Leader election: of several processes one writes, the others stand by with warm caches.
//!
//! Guarantees
//! - Two processes are never allowed to write at the same moment, as long as no clock runs more
//!   than [`Config::clock_ratio`] times as fast as another. It is enough that both use this
//!   protocol; their wall clocks are never looked at and may be hours apart.
//! - [`Leadership`] is asked before each write and looks at the clock each time, so a process that
//!   was stopped, suspended or starved wakes up without permission. The look costs one vDSO call
//!   and one atomic load; it takes no lock.
//! - A write that is sent with permission and ends within [`Config::in_flight`] has ended before
//!   anybody else may write.
//! - Losing the lease does not end the process: it stands by and may lead again. An API server
//!   that is out of reach only suspends permission; the next renewal that is acknowledged gives it
//!   back, unless somebody else has taken the lease.
//! - [`Elector::run`] gives the lease up when told to stop, after permission was withdrawn; a
//!   standby has it within one poll ([`Config::retry`] and a fifth).
//!
//! How
//! - Permission is counted from the moment at which a renewal was *sent*, once its own response
//!   has acknowledged it. A renewal whose answer was lost counts for nothing, even if it is seen
//!   later to have been written.
//! - Somebody else's lease has expired when this process has seen the same resourceVersion for all
//!   of the lease's duration, on its own clock, counted from the *arrival* of the answer that first
//!   showed it. The lease is then taken with that resourceVersion as precondition: had there been
//!   a renewal meanwhile, the API server would refuse.
//! - The holder counts `duration / clock_ratio - in_flight`, everybody else `duration`. If the
//!   candidate's clock runs r times as fast as the holder's, the holder's permission ends before
//!   the candidate's begins for every r up to `clock_ratio`. A fast holder gives up early, which
//!   is harmless; what has to be covered is the fast candidate and the slow holder.
//! - The clock is CLOCK_BOOTTIME: it runs while the machine is suspended, and nobody sets it.
//!
//! Caveats
//! - Beyond `clock_ratio` permissions may overlap: with a candidate's clock r times as fast as the
//!   holder's for at most `validity - duration / r` on the holder's clock. A virtual machine that
//!   is frozen by its hypervisor and resumed without its clock being told is such a case: a clock
//!   that stood still.
//! - No clock stops a write that was sent in time and lands late. Preconditions (UID,
//!   resourceVersion) make such a write harmless; whoever writes must set them.
//! - A Lease that was deleted by hand and made anew gives nobody permission before the duration of
//!   the old one has passed; that is known by its UID. Only a process that never saw the old one
//!   does not know it: if the Lease of a live leader is deleted in the very moment in which another
//!   process starts, both may write until the leader's permission ends.

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
