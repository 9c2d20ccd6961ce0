//! 1. The HTTP client. No other module sends requests to the API server.
//!
//! Guarantees
//! - Every call has a time limit. A call fails with [`Error::Deadline`] if the complete response has not arrived within
//!   [`Options::deadline`]. The limit of a write is [`Options::write_deadline`], because the API server calls webhooks
//!   before it responds. The response of a list must begin within [`Options::list_deadline`]. After that, the deadline
//!   restarts with each chunk of the body. The limit of a watch covers only the head of the response; the caller must
//!   limit the silence after that.
//! - The client does not retry, with one exception: if a pooled connection turns out to be closed before any byte was
//!   sent, the request goes out on another one. The caller knows which requests can be repeated, and has its own
//!   backoff.
//! - A dead connection (packets vanish, no FIN) is detected within 45 s, by TCP keepalive or by unacknowledged data.
//! - When an API server that was down responds again, all waiters are notified ([`ApiServerHealth`]).
//!   [`Client::probe_while_down`] probes if no calls are made.
//! - Every write first requests permission from [`Options::gate`], and sends [`Options::field_manager`].
//! - A list is decoded item by item as it arrives. Apart from the items that `each` keeps, memory is bounded by the
//!   largest item. A watch is decoded from the read buffer. A body or object larger than [`MAX_OBJECT`] bytes is an
//!   error.
//! - An object that does not fit its view becomes [`InvalidObject`]; others are unaffected.
//! - Dropping a call cancels it. [`Watch::next`] can be dropped and called again without losing an event.
//! - A token in a file is reread within a minute, regardless of wall clock changes. So is the CA of a pod's API server.
//! - A credential plugin runs when the client is created, and again a minute before its token expires.
//! - The client uses the proxy of the kubeconfig (`proxy-url`). Without one, it uses the proxy of `HTTPS_PROXY` unless
//!   `NO_PROXY` excludes the server, also in a pod: [`config`].
//! - No error, log line or `Debug` output contains a token.
//!
//! Caveats
//! - Client certificates, in files or from a plugin, and tokens of a plugin without an expiry are read once.
//! - A call that needs a new token waits for the plugin within its own deadline.
//! - The client uses HTTP/1.1. Each watch and each concurrent call has its own connection. Idle connections are reused.
//! - A proxy URL has the scheme `http`, `https` or `socks5`. An HTTP proxy must allow CONNECT. The certificate of an
//!   `https` proxy is verified like that of the API server: by the CA of the kubeconfig if it has one, as in client-go.

mod text;
mod error;
mod status;
mod options;
mod api_server_health;
mod config;
mod token;
mod proxy;
mod transport;
mod query;
mod types;
mod event;
mod call;
mod list;
mod watch;
mod write;
mod dry_run;
mod untyped;

pub use api_server_health::{ApiServerHealth, Recovered};
pub use call::Client;
pub use config::{Config, config};
pub use dry_run::{DryRun, DryWrite, Rejection, RejectionCause};
pub use error::{Cause, Error};
pub use kube::core::params::{Patch, PropagationPolicy};
pub use options::{Options, WriteGate};
pub(crate) use query::is_name;
pub use text::{is_control, one_line};
pub use types::{
    Deletion, InvalidObject, Page, PageEnd, Preconditions, Scope, WatchEvent, WatchFrom,
};
pub use watch::Watch;

/// The largest accepted object or response, in bytes. etcd accepts 1.5 MiB by default (`--max-request-bytes`), and the
/// API server sends it at most 2 MiB (the gRPC limit of an etcd client). Built-in kinds are stored as protobuf, and
/// Go's JSON needs six bytes for each `<`, `>` and `&` (`\u003c`). So a legal object can have 12 MiB in JSON, and
/// refusing it would hide its complete kind.
pub const MAX_OBJECT: usize = 16 << 20;
