//! Events: what a person reads in `kubectl describe`.
//!
//! Guarantees
//! - [`Recorder::publish`] never waits, never fails and does no I/O: it only holds a lock for
//!   microseconds. One task, [`Sink::run`], talks to the API server.
//! - Bounded: at most [`QUEUE`] Events wait to be written, [`QUEUE_OF_ONE`] of one namespace, [`MEMORY`] series are remembered, a note
//!   is at most 1,024 bytes. What does not fit is dropped and counted, never silently.
//! - A repeated occurrence makes no new Event: it raises `series.count` of the existing one, in one
//!   PATCH for all waiting repetitions.
//! - A new note is never hidden behind an old one: a note cannot be changed once written
//!   (k8s.io/kubernetes/pkg/apis/core/validation), so another note is another Event.
//! - Spam is limited per object and type: [`BURST`] writes, then one per [`REFILL`], both as in
//!   client-go's EventCorrelator; repetitions leave the last [`RESERVE`] to new Events.
//! - A write that is late or unanswered, or that the server has no time for, is tried [`TRIES`] times; it is then
//!   dropped and counted, as one that is refused is at once. No namespace holds more than [`WRITERS_OF_ONE`] of
//!   the writers. An Event that has expired on the server (404) is created again. A create whose answer
//!   was lost is repeated under the same name, so it never creates two.
//! - At shutdown, what is waiting is written, for at most [`FLUSH`].
//! - Text from outside can do no harm: control and direction-changing characters become spaces.
//!
//! Caveats
//! - Events are best effort by nature and expire (one hour by default). Whatever people must know
//!   is also in `status`.
//! - Events are writes and ask the client's gate like all writes: a process that does not lead
//!   drops them.

mod text;
mod recent;
mod correlate;
mod wire;
mod recorder;
mod sink;

use std::sync::Arc;
use std::time::Duration;

use crate::identity::Identity;
use recorder::Shared;

pub use recorder::{Dropped, Observer, Occurrence, Recorder, Regarding, Type, Unobserved};
pub use sink::Sink;

/// Number of Events that may wait to be written. client-go's broadcaster has the same limit.
pub const QUEUE: usize = 1_000;
/// Those of them that may be about one namespace.
pub const QUEUE_OF_ONE: usize = QUEUE / 4;
/// Number of series and objects that are remembered, each. client-go's LRU has the same limit.
pub const MEMORY: usize = 4_096;
/// Writes about one object and type that may come at once (client-go: 25).
pub const BURST: u32 = 25;
/// Time to earn one more write about one object and type (client-go: 1/300 Hz).
pub const REFILL: Duration = Duration::from_secs(300);
/// The part of [`BURST`] that only new Events may use.
pub const RESERVE: u32 = 10;
/// Writes that may be under way at a time. (client-go makes one at a time.)
pub(crate) const WRITERS: usize = 8;
/// Those of them that may be about one namespace: one whose webhook hangs must not hold up the others.
pub const WRITERS_OF_ONE: usize = 2;
/// Number of attempts of a write.
pub const TRIES: u32 = 3;
/// Time to write what is still waiting at shutdown.
pub const FLUSH: Duration = Duration::from_secs(3);

/// A recorder and the sink that must run for anything to be written. `instance` is this process's
/// name (pod name, host name), cut at 128 bytes. The recorder's controller is called like the
/// program: see [`Recorder::for_controller`].
pub fn new(
    program: impl Into<Identity>,
    instance: &str,
    observer: Arc<dyn Observer>,
) -> (Recorder, Sink) {
    let program = program.into();
    let shared = Shared::new(program, instance, observer);
    (Recorder { shared: shared.clone(), controller: program.name() }, Sink::new(shared))
}
