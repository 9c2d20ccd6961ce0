//! 1. The wire. No other room asks the API server.
//!
//! Guarantees
//! - Every call ends: an answer, body included, is there within [`Options::deadline`], or the call
//!   is [`Error::Deadline`]. In a list the deadline is counted anew from each piece of the body
//!   that arrives, so that a long list may take its time but a silent server may not. A watch has
//!   it only until the server has answered; who watches must bound the silence after that.
//! - Nothing is retried here. Whoever calls knows what may be repeated, and has the backoff.
//! - A dead connection (packets vanish, no FIN) is found within 45 s, by TCP keepalive or by data
//!   that is not acknowledged.
//! - When an API server that was away answers again, whoever waits for it is told ([`Reach`]). Where
//!   nobody calls meanwhile, [`Client::look_out`] asks.
//! - Every write first asks [`Options::gate`], and carries [`Options::field_manager`].
//! - A list is decoded item by item while it arrives: beside what `each` keeps, memory is bounded by
//!   the largest item. A watch is decoded from the buffer it was read into. A body or an object
//!   larger than [`MAX_OBJECT`] bytes is an error.
//! - An object that does not fit its view is [`Undecodable`], and its neighbours are unharmed.
//! - A call that is dropped is cancelled. [`Watch::next`] can be dropped and called again without
//!   losing an event.
//! - A token in a file is read anew within a minute, and after a 401 at once, whatever the wall clock
//!   does meanwhile.
//! - No error, log line or `Debug` output contains a token.
//!
//! Caveats
//! - HTTP/1.1, one connection for each watch and for each call under way; connections are reused.
//! - A kubeconfig with a proxy is refused: the client has none.

mod error;
mod status;
mod options;
mod reach;
mod config;
mod token;
mod transport;
mod query;
mod types;
mod undecodable;
mod splitter;
mod frames;
mod event;
mod warnings;
mod call;
mod list;
mod watch;
mod write;
mod plain;
mod look_out;

pub use call::Client;
pub use config::config;
pub use error::Error;
pub use options::{Observer, Options, WriteGate};
pub use reach::{Reach, Returns};
pub use types::{Deletion, Event, Page, PageEnd, Preconditions, Scope, Undecodable, WatchFrom};
pub use watch::Watch;

/// The largest object or answer that is accepted, in bytes. etcd takes 1.5 MiB by default
/// (`--max-request-bytes`), and the API server sends it 2 MiB at most (gRPC's bound for a client of
/// etcd). Kinds of Kubernetes' own are stored as protobuf, and in JSON Go writes six bytes for one of
/// `<`, `>` and `&` (`\u003c`): one legal object may be 12 MiB on the wire, and one that is not
/// accepted would keep its whole kind from everybody.
pub const MAX_OBJECT: usize = 16 << 20;
