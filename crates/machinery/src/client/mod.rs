//! 1. The HTTP client. No other module sends requests to the API server.
//!
//! Guarantees
//! - Every call ends: a complete response arrives within [`Options::deadline`], or the call fails with
//!   [`Error::Deadline`]. A write can take [`Options::write_deadline`], because the API server calls webhooks before
//!   it responds. The response of a list can take [`Options::list_deadline`] to begin. After that, the deadline
//!   starts over with each piece of the body: a long list can take its time, a silent server cannot. For a watch,
//!   the deadline ends with the head of the response; the caller must bound the silence after that.
//! - The client does not retry, with one exception: if a pooled connection turns out to be closed before any byte
//!   was sent, the request goes out on another one. The caller knows what can be repeated and has the backoff.
//! - A dead connection (packets vanish, no FIN) is detected within 45 s, by TCP keepalive or by unacknowledged data.
//! - When an API server that was down responds again, everything that waits for it is notified ([`Connectivity`]).
//!   [`Client::probe_while_down`] probes if no calls are made.
//! - Every write first asks [`Options::gate`], and carries [`Options::field_manager`].
//! - A list is decoded item by item as it arrives: apart from what `each` keeps, memory is bounded by the largest
//!   item. A watch is decoded from the read buffer. A body or object larger than [`MAX_OBJECT`] bytes is an error.
//! - An object that does not fit its view becomes [`Undecodable`]; others are unaffected.
//! - Dropping a call cancels it. [`Watch::next`] can be dropped and called again without losing an event.
//! - A token or client certificate in a file is reread within a minute, and immediately after a 401, regardless of
//!   wall clock changes. So is the CA of a pod's API server, except after a 401.
//! - A credential plugin runs in its own task, once for all sibling clients ([`Client::sibling`]): at the first
//!   call, shortly before its credential expires, and after a 401. No call's deadline ends it. A call that waits for
//!   it fails after a short time with [`Error::Credentials`].
//! - The client uses the proxy of the kubeconfig (`proxy-url`), else that of `HTTPS_PROXY` unless `NO_PROXY`
//!   excludes the server, also in a pod: [`config`].
//! - No error, log line or `Debug` output contains a token.
//!
//! Caveats
//! - HTTP/1.1, with one connection for each watch and each concurrent call. Connections are reused.
//! - A proxy is `http://` or `https://` and must allow CONNECT, or `socks5://`. One with TLS is verified like the API
//!   server, by the CA of the kubeconfig if it has one, as in client-go.

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
pub use dry_run::{DryRun, DryWrite, Rejection, RejectionCause};
pub use error::{Cause, Error};
pub use options::{Observer, Options, WriteGate};
pub(crate) use query::is_name;
pub use text::{is_control, one_line};
pub use types::{
    Deletion, Page, PageEnd, Preconditions, Propagation, Scope, Undecodable, WatchEvent, WatchFrom,
};
pub use watch::Watch;

/// The largest accepted object or response, in bytes. etcd takes 1.5 MiB by default (`--max-request-bytes`), and the
/// API server sends it at most 2 MiB (the gRPC limit of an etcd client). Built-in kinds are stored as protobuf, and
/// Go's JSON takes six bytes for each `<`, `>` and `&` (`\u003c`). So a legal object can have 12 MiB in JSON, and
/// refusing it would hide its whole kind.
pub const MAX_OBJECT: usize = 16 << 20;
