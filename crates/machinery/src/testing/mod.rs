//! An API server in memory, for tests of controllers without a cluster.
//!
//! A whole controller runs on it, with its informers, queue and writes:
//!
//! ```
//! use std::sync::Arc;
//!
//! use controller_machinery::controller::{Action, Problem};
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
//! async fn reconcile(site: Arc<Website>, cx: Context<Website>) -> Result<Action, Problem> {
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
//! - Lists have pages with continue tokens bound to a version (410 once that is compacted), `NotOlderThan`, `Exact`,
//!   and namespaces.
//! - Watches begin at a version (410 below the window, as HTTP response or in the stream). They have bookmarks once a
//!   minute, `timeoutSeconds`, and streaming lists.
//! - Create, read, update, JSON patch, JSON merge patch and server-side apply work, and so do the status subresource,
//!   and delete with preconditions and finalizers; uid, generation and resourceVersion are the server's.
//! - Each field has its managers (`metadata.managedFields`), with the list keys and atomic fields of the built-in kinds
//!   and of [`Server::crd`]. An apply conflicts, takes over and removes as on an API server.
//! - Lists and watches select by labels, by the name and the namespace, and by a few fields of pods and Secrets.
//! - A custom resource whose CustomResourceDefinition is given is pruned, gets the defaults of its schema, and is
//!   refused with causes of the same fields and reasons.
//! - Random choices follow from a seed, and time is tokio's: with time paused, hours pass in a moment. On a runtime with
//!   one thread, the seed determines every request ([`seeds`]).
//! - A pod on a node is only marked when it is deleted, and so is a namespace: [`Cluster`] ends both. A namespace that is
//!   being deleted takes no new objects.
//! - What is not modelled is refused with 501 and a sentence: strategic merge patches, dry runs, `generateName`, other
//!   selectors, deletes of a collection, subresources other than the status, and discovery.
//!
//! Not done: there is no admission but [`Server::admit`]. Built-in kinds have no defaults and are not validated. In a
//! schema, CEL rules, patterns, formats and `allOf` and the like are not evaluated; a warning in the log names them. The
//! `Accept` header is ignored: objects are always whole. The children of a deleted object stay, and one that is deleted
//! in the foreground, too, unless [`Server::collect_garbage`] is called or a [`Cluster`] runs. A namespace need not exist.
//!
//! This project sends the same random requests to it and to a kube-apiserver, and compares the responses and watches
//! (tests/contract/model_server.rs).

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
mod deletion;
mod user;
mod watch;
mod cluster;
mod seeds;

pub use cluster::{Cluster, LATENCY, PodState};
pub use fault::Fault;
pub use history::Id;
pub use request::{Received, status as refusal};
pub use seeds::seeds;
pub use server::Server;

/// Returns the condition of this type in an object's status.
pub fn condition<'a>(object: &'a serde_json::Value, kind: &str) -> Option<&'a serde_json::Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

#[cfg(test)]
mod tests;
