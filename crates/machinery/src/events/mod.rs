//! Kubernetes Events, as shown by `kubectl describe`.
//!
//! Guarantees
//! - [`Recorder::publish`] never waits, never fails and does no I/O: it only holds a lock for microseconds. Only the
//!   task [`Sink::run`] sends requests to the API server.
//! - Bounded: at most [`QUEUE`] Events wait to be written, [`QUEUE_OF_ONE`] of one namespace. Events beyond that are
//!   dropped and counted. At most [`MEMORY`] Events of the last two hours are known; a note is cut at 1,024 bytes.
//! - An Event that equals one of the last [`AGAIN`], or one that waits, is not written.
//! - Writes are limited per object and type to [`BURST`], then one per [`REFILL`], as in client-go's EventCorrelator.
//!   Repetitions leave the last [`RESERVE`] to new Events.
//! - A write without a response, or that the server cannot handle now, is tried [`TRIES`] times, then dropped and
//!   counted. A refused write is dropped at once. A namespace uses at most [`WRITERS_OF_ONE`] of the writers.
//! - A create without a response is repeated under the same name.
//! - At shutdown, waiting Events are written, for at most [`FLUSH`].
//! - Control characters and characters that change the text direction become spaces.
//!
//! Caveats
//! - Events are best effort and expire (one hour by default). Report important information in `status`, too.
//! - Events pass the client's gate like all writes: a process that does not lead drops them.

mod text;
mod correlate;
mod recorder;
mod sink;

use std::time::Duration;

use crate::identity::Identity;
use recorder::Shared;

pub use recorder::{Dropped, Event, Recorder, Regarding, Type};
pub use sink::Sink;

/// Number of Events that can wait to be written. client-go's broadcaster has the same limit.
pub const QUEUE: usize = 1_000;
/// The part of [`QUEUE`] for one namespace.
pub const QUEUE_OF_ONE: usize = QUEUE / 4;
/// Number of recent Events, and of objects, that are known. client-go's LRU has the same limit.
pub const MEMORY: usize = 4_096;
/// Burst of writes for one object and type (client-go: 25).
pub const BURST: u32 = 25;
/// Time until one more write for one object and type is permitted (client-go: 1/300 Hz).
pub const REFILL: Duration = Duration::from_secs(300);
/// The part of [`BURST`] for new Events only.
pub const RESERVE: u32 = 10;
/// Time before an equal Event is written again.
pub const AGAIN: Duration = Duration::from_secs(60);
/// Number of concurrent writes. (client-go makes one at a time.)
pub(crate) const WRITERS: usize = 8;
/// Limit of concurrent writes of one namespace: a namespace whose webhook hangs must not block the others.
pub const WRITERS_OF_ONE: usize = 2;
/// Number of attempts of a write.
pub const TRIES: u32 = 3;
/// Time to write waiting Events at shutdown.
pub const FLUSH: Duration = Duration::from_secs(3);

/// Creates a recorder and its sink, which must run for Events to be written. `instance` is this process's name (pod
/// name, host name), truncated to 128 bytes. The recorder's controller is the program; see
/// [`Recorder::for_controller`] for others.
pub fn new(program: impl Into<Identity>, instance: &str) -> (Recorder, Sink) {
    let program = program.into();
    let shared = Shared::new(program, instance);
    (Recorder { shared: shared.clone(), controller: program.name() }, Sink::new(shared))
}
