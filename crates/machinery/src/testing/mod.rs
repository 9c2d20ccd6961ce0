//! An in-memory API server for tests of controllers without a cluster.
//!
//! A complete controller runs on it, with its informers, queue and writes:
//!
//! ```
//! use std::sync::Arc;
//!
//! use controller_machinery::controller::{Action, ReconcileError};
//! use controller_machinery::manager::{Context, Manager};
//! use controller_machinery::object::{Kind, Meta};
//! use controller_machinery::testing::{Fault, Id, Server};
//! use controller_machinery::view;
//! use serde::{Deserialize, Serialize};
//! use serde_json::{Value, json};
//!
//! #[derive(Debug, Serialize, Deserialize)]
//! struct Website {
//!     metadata: Meta,
//!     spec: Value,
//!     #[serde(default)]
//!     status: Value,
//! }
//!
//! view!(Website: Kind::namespaced("example.com", "v1", "Website", "websites"));
//!
//! async fn reconcile(site: Arc<Website>, cx: Context<Website>) -> Result<Action, ReconcileError> {
//!     cx.patch_status(json!({"url": format!("https://{}/", site.spec["host"].as_str().unwrap_or("-"))})).await?;
//!     Ok(Action::Done)
//! }
//!
//! #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn main() {
//!     let server = Server::new(1);
//!     let id = Id::new("/apis/example.com/v1/websites", "shop", "front");
//!     server.put(&id, json!({"spec": {"host": "a.example.com"}}));
//!     server.script([Fault::Unavailable]); // The first request fails.
//!
//!     let manager = Manager::new("websites").controller::<Website>().reconcile(reconcile);
//!     let test = async {
//!         server.until(&id, |site| site["status"]["url"] == "https://a.example.com/").await;
//!         server.put(&id, json!({"spec": {"host": "b.example.com"}}));
//!         server.until(&id, |site| site["status"]["url"] == "https://b.example.com/").await;
//!     };
//!     server.run(manager, test).await;
//! }
//! ```
//!
//! Guarantees
//! - Objects have one global resourceVersion. Every old version is kept until compaction, as in etcd.
//! - Lists support pages, `NotOlderThan`, `Exact` and namespaces. A continue token is bound to a version; after the
//!   version is compacted, the response is 410.
//! - Watches begin at a version. If it is older than the window, the response is 410, as HTTP response or in the
//!   stream. Watches support bookmarks (once a minute), `timeoutSeconds` and streaming lists.
//! - Supported requests are create, read, update, JSON patch, JSON merge patch, server-side apply, and delete with
//!   preconditions and finalizers, for objects and the status subresource. The server sets uid, generation and
//!   resourceVersion.
//! - Each field has its managers (`metadata.managedFields`), with the list keys and atomic fields of the built-in kinds
//!   and of [`Server::crd`]. An apply has conflicts, takes over fields and removes fields as on an API server.
//! - Lists and watches support selectors for labels, the name, the namespace, and a few fields of pods and Secrets.
//! - A custom resource of [`Server::crd`] is pruned and gets the defaults of its schema. Invalid objects are refused
//!   with causes for the same fields and with the same reasons.
//! - A seed determines random choices, and time is tokio's: with paused time, hours take a moment. On a runtime with
//!   one thread, the seed determines every request ([`seeds`]).
//! - The deletion of a pod on a node or of a namespace only begins; [`Cluster`] completes it. A namespace that is being
//!   deleted refuses new objects.
//! - Requests that are not modelled are refused with 501 and a sentence: strategic merge patches, dry runs,
//!   `generateName`, other selectors, deletes of a collection, subresources other than the status, and discovery.
//!
//! Limitations
//! - The only admission is [`Server::admit`]. Built-in kinds have no defaults and are not validated. CEL rules,
//!   patterns, formats and keywords such as `allOf` of a schema are not evaluated; a warning in the log names them.
//! - The `Accept` header is ignored: objects are always complete. A namespace need not exist.
//! - Without [`Server::collect_garbage`] or a [`Cluster`], the objects of a deleted owner stay, and an owner that is
//!   deleted in the foreground stays, too.
//!
//! This project sends the same random requests to this server and to a kube-apiserver, and compares the responses and
//! watches (tests/contract/model_server.rs).

mod history;
mod fault;
mod server;
mod running;
mod request;
mod crd;
mod schema;
mod fields;
mod managers;
mod selection;
mod list;
mod object;
mod metadata;
mod deletion;
mod user;
mod watch;
mod cluster;
mod histories;
mod seeds;
mod trial;

pub use cluster::{Cluster, LATENCY, PodState};
pub use fault::Fault;
pub use histories::{histories, timeline};
pub use history::{Id, Version};
pub use request::{Received, status as refusal};
pub use seeds::seeds;
pub use server::Server;
pub use trial::Trial;

/// Returns the condition of this type in an object's status.
pub fn condition<'a>(object: &'a serde_json::Value, kind: &str) -> Option<&'a serde_json::Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

#[cfg(test)]
mod tests;
