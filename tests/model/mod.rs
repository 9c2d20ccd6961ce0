//! A model of the Kubernetes API server, for tests of code that lists, watches and writes.
//!
//! It models
//! - Objects by (resource, namespace, name) with one global resourceVersion; every old version is
//!   kept until compaction, as in etcd.
//! - Lists: paged with continue tokens bound to a version (410 once that is compacted, with a token
//!   that continues with the then current state), `NotOlderThan`, `Exact`, namespaces.
//! - Watches: from a version (410 below the window, as HTTP response or in the stream), bookmarks
//!   once a minute, `timeoutSeconds`, streaming lists whose initial state may be older than the
//!   version that their end bookmark promises, with the changes in between sent before it.
//! - Create, read, update, JSON merge patch (also standing in for server-side apply), the status
//!   subresource, delete with preconditions and finalizers; uid, generation, resourceVersion.
//! - Faults, scripted one by one or drawn at random from a seed: see [`Fault`].
//!
//! tests/contract/model_server.rs sends the same random requests to it and to a real API server,
//! and compares the responses.
//!
//! It leaves out on purpose: selectors, admission, defaulting, field ownership, tables.
//!
//! It is a tower `Service` and runs on tokio's clock, so that with time paused hours pass in a
//! moment.

// A test binary may use only a part of it.
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
