//! A model of the Kubernetes API server, for tests of what lists, watches and writes.
//!
//! What it models
//! - Objects by (resource, namespace, name) with one global resourceVersion, every old version kept
//!   until compaction, as etcd does.
//! - Lists: paged with continue tokens bound to a version (410 once that is compacted, with a token
//!   that goes on with the state of then), `NotOlderThan`, `Exact`, namespaces.
//! - Watches: from a version (410 below the window, as HTTP answer or in the stream), bookmarks
//!   once a minute, `timeoutSeconds`, streaming lists whose initial state may be older than the
//!   version that their end bookmark promises, with the changes between sent before it.
//! - create, read, update, JSON merge patch (also standing in for server-side apply), the status
//!   subresource, delete with preconditions and finalizers; uid, generation, resourceVersion.
//! - Faults, scripted one by one or drawn at random from a seed: see [`Fault`].
//!
//! tests/contract/model_server.rs sends the same random requests to it and to a real API server, and
//! compares what comes.
//!
//! What it leaves out on purpose: selectors, admission, defaulting, field ownership, tables.
//!
//! It is a tower `Service` and keeps tokio's time, so that a paused clock runs hours in a moment.

// A test binary may use a part of it.
#![allow(dead_code, unreachable_pub, unused_imports)]

mod history;
mod fault;
mod server;
mod request;
mod list;
mod object;
mod watch;

pub use fault::Fault;
pub use history::Id;
pub use server::Model;
