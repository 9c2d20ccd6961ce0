//! 2. List, then watch, indefinitely.
//!
//! Guarantees
//! - The store equals the server at some version, and that version only grows. Every list requests a version at least
//!   as new as the stored one; an older response is refused. Older events are dropped.
//! - A list is shown completely or not at all. Until it is complete, readers see the previous state. Unchanged
//!   objects are neither replaced nor reported.
//! - Errors do not change the view. 403 and 404 are states ([`State::Forbidden`], [`State::NotServed`]). They keep the
//!   old view, never count as an empty list, and end when a list succeeds.
//! - Streaming lists are preferred. The reflector falls back to paged lists for an hour if the server does not
//!   support streaming lists, if the final bookmark does not arrive in time, or after three streaming lists have
//!   failed before one was complete (cut off, undecodable, timed out, 500, or "too large resource version").
//!   Streaming lists that are not accepted, because the server is down or asks for a pause, do not count. After an
//!   expired continue token, the reflector requests one list in a single page.
//! - A watch that breaks or ends is resumed from its version. Only 410, or a version from which watches keep failing,
//!   leads to a new list. After 150 s of silence, the reflector requests the server's version and opens a new watch. A
//!   watch is reopened if it is not accepted within the client's deadline. The kind is listed after five
//!   such watches in a row, or five that end at once. After that, each further one leads to a list until a watch
//!   delivers something.
//! - Waits after failures start at 800 ms and double up to 30 s, with jitter. They start over when a watch delivers
//!   something new, after two minutes without failure, and when an unreachable API server responds again
//!   ([`ApiServerHealth`](crate::client::ApiServerHealth)). Such a return also shortens the current wait. While no other
//!   client makes calls, the reflectors take turns probing the API server every two seconds. An expired version is a
//!   failure only if it happens again before a watch has delivered anything. `Retry-After`, up to 300 s, is a lower
//!   bound. `timeoutSeconds` is random, from 120 to 230 s, and for a streaming list from 300 to 600 s, so that replicas
//!   do not move in lockstep.
//! - An object that cannot be decoded keeps its last state and is counted. Other objects are not affected. The next
//!   decodable version or the deletion of the object ends this.
//! - A server whose data went back in time is detected ([`ResourceVersionRegressed`]): three lists in a row that
//!   requested the newest version returned an older one than is stored. If the server's versions have caught up since,
//!   the list wins.
//! - The health can be read at any time ([`HealthHandle`]), even after the task has panicked. A problem that needs
//!   manual action is logged once when it begins and once when it ends.
//!
//! Assumptions
//! - The resourceVersions of one kind are growing numbers (KEP-5504). If they are not, the reflector trusts the
//!   server, because it cannot detect outdated responses.
//! - No two objects of a kind are written at the same version: of several additions or changes with one version, only
//!   the first counts. Deletions always count, because etcd removes the objects of an expired lease in one transaction.

mod limits;
mod position;
mod failure;
mod health;
mod sink;
mod list_and_watch;

pub use health::{Health, HealthHandle, State};
pub use list_and_watch::{Reflector, Relist};
pub use position::ResourceVersionRegressed;
