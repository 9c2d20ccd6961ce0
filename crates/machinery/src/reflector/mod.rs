//! 2. List, then watch, forever.
//!
//! Guarantees
//! - After any faults the store equals the server at some version, and that version only grows:
//!   every list asks for nothing older than what is held, and an answer that is older anyway is
//!   refused. Events from before the held version are dropped.
//! - A list is shown whole or not at all. Until it is complete, and if it never is, readers see
//!   what was there before; unchanged objects are neither replaced nor reported.
//! - Errors do not harm the view: 403 and 404 are states ([`State::Forbidden`],
//!   [`State::NotServed`]) in which the old view is kept; they never count as an empty list. They
//!   heal by themselves.
//! - A streaming list is preferred. Pages are used instead where the server has none, or its end
//!   does not come in time, or, before one is whole, three break off, cannot be understood, are not answered
//!   in time, or are answered with 500 or "too large resource version"; this is remembered for an hour. Streaming
//!   lists that are not accepted, because the server is away or asks for a pause, do not count. An
//!   expired continue token leads to one list in a single page, not to page one forever.
//! - A watch that breaks or ends is resumed from its version; only 410, or a version that the
//!   server cannot get past, leads to a new list. After 150 s of silence the server is asked for its
//!   version, and a new watch is opened. If watches stay silent for half an hour while the server has newer
//!   versions, the kind is listed. A watch that is not accepted within the client's deadline, or
//!   within 30 s if the deadline is longer, is reopened; after five of them in a row, or five that end at once,
//!   the kind is listed, and after each further one as long as no watch delivers anything.
//! - Waits after failures start at 800 ms and double up to 30 s, with jitter. They start over when
//!   a watch delivers something new, after two minutes of health, and when an API server that was
//!   unreachable answers again ([`Connectivity`](crate::client::Connectivity)), which also cuts the current wait
//!   short. While no other client calls, the reflectors take turns asking whether it does, every
//!   two seconds. An expired version is not a failure, unless it happens again before a watch has
//!   delivered anything. `Retry-After`, up to 300 s, is a lower bound. `timeoutSeconds` is drawn from
//!   120 to 230 s, that of a streaming list from 300 to 600 s, so that replicas do not move in lockstep.
//! - An object that cannot be decoded stays as it last was and is counted; other objects are not
//!   affected, and its next version or its deletion heals it.
//! - A server whose data went back in time is detected ([`ResourceVersionRegressed`]): if a list that asked for the
//!   newest version is answered with one older than what is held, three times in a row. If its versions have
//!   caught up since, what a list has wins.
//! - The health can be read at any time ([`HealthHandle`]), even after the task ended by a panic.
//!   A problem for a person to fix is one line in the log when it begins and one when it is over.
//!
//! Assumptions
//! - The resourceVersions of one kind are numbers that grow (KEP-5504). Where they are not, nothing
//!   can be refused for its age, and the server is trusted.
//! - No two objects of a kind change at the same version: of several events with the same version,
//!   the first is taken and the others are treated as repetitions. The API server writes each
//!   object in a transaction of its own. But what etcd itself removes when a lease ends, it removes
//!   in one transaction. Of Kubernetes' own kinds, only Events have leases (`--event-ttl`), and a
//!   view of them keeps some expired ones until the next list.

mod position;
mod backoff;
mod failure;
mod state;
mod regressed;
mod action;
mod step;
mod quarantine;
mod observer;
mod feed;
mod report;
mod run;

pub use action::Reason;
pub use observer::{Observer, Unobserved};
pub use regressed::ResourceVersionRegressed;
pub use run::{Reflector, Refresh};
pub use state::{Health, HealthHandle, State};
