//! 1. The wire. No other room talks to the API server.
//!
//! Guarantees
//! - Every call ends: a complete answer, body included, arrives within [`Options::deadline`], or
//!   the call fails with [`Error::Deadline`]. A write may take [`Options::write_deadline`], since the API server asks
//!   webhooks before it answers. A list may take [`Options::list_deadline`] to begin;
//!   then the deadline starts over with each piece of the body, so a long list may take its time but
//!   a silent server may not. In a watch it applies only until the server has answered; the watcher
//!   must bound the silence after that.
//! - Nothing is retried here, but for a request that found its connection closed before any of it was sent. The
//!   caller knows what may be repeated, and has the backoff.
//! - A dead connection (packets vanish, no FIN) is detected within 45 s, by TCP keepalive or by
//!   unacknowledged data.
//! - When an API server that was away answers again, everything waiting for it is woken
//!   ([`Connectivity`]). If no call is made in the meantime, [`Client::probe_while_down`] probes.
//! - Every write first asks [`Options::gate`], and carries [`Options::field_manager`].
//! - A list is decoded item by item as it arrives: apart from what `each` keeps, memory is bounded
//!   by the largest item. A watch is decoded from the buffer it was read into. A body or an object
//!   larger than [`MAX_OBJECT`] bytes is an error.
//! - An object that does not fit its view becomes [`Undecodable`]; its neighbours are unaffected.
//! - A dropped call is cancelled. [`Watch::next`] can be dropped and called again without losing an
//!   event.
//! - A token or a client certificate in a file is reread within a minute, and immediately after a
//!   401, whatever the wall clock does in the meantime. So is the CA of a pod's API server, except
//!   for the 401.
//! - A credential plugin runs in a task of its own, once for all clients that are siblings
//!   ([`Client::sibling`]): at the first call, shortly before its credential expires, and after a
//!   401. No deadline of a call ends it. A call that has to wait for it fails, after a short wait,
//!   with [`Error::Credentials`].
//! - The API server is reached through the proxy that the kubeconfig names (`proxy-url`), else the
//!   one that `HTTPS_PROXY` names unless `NO_PROXY` excludes the server, also in a pod: [`config`].
//! - No error, log line or `Debug` output contains a token.
//!
//! Caveats
//! - HTTP/1.1, one connection for each watch and for each call under way; connections are reused.
//! - A proxy must be `http://` or `https://`, and allow CONNECT. One with TLS is verified as the API
//!   server is, by the CA of the kubeconfig if that has one, as with client-go.

mod text;
mod error;
mod status;
mod options;
mod connectivity;
mod config;
mod token;
mod exec;
mod proxy;
mod transport;
mod query;
mod types;
mod undecodable;
mod item_scanner;
mod frames;
mod event;
mod warnings;
mod call;
mod list;
mod watch;
mod write;
mod dry_run;
mod untyped;
mod probe;

pub use call::Client;
pub use config::{Config, config};
pub use connectivity::{Connectivity, Reconnected};
pub use dry_run::{DryRun, DryWrite, Refusal, RefusalCause};
pub use error::Error;
pub use options::{Observer, Options, WriteGate};
pub(crate) use query::is_name;
pub use text::{is_control, one_line};
pub use types::{Deletion, Event, Page, PageEnd, Preconditions, Scope, Undecodable, WatchFrom};
pub use watch::Watch;

/// The largest object or answer that is accepted, in bytes. etcd takes 1.5 MiB by default
/// (`--max-request-bytes`), and the API server sends it at most 2 MiB (the gRPC limit of an etcd
/// client). Built-in kinds are stored as protobuf, and Go's JSON takes six bytes for each `<`, `>`
/// and `&` (`\u003c`): a legal object may be 12 MiB on the wire, and refusing it would hide its
/// whole kind from everybody.
pub const MAX_OBJECT: usize = 16 << 20;
