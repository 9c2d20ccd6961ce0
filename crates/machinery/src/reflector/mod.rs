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

mod failure;
mod health;
mod sink;
mod list_and_watch;

pub use health::{Health, HealthHandle, State};
pub use list_and_watch::{Reflector, Relist};

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use crate::object::ResourceVersion;

/// Items per page, as in client-go and kubectl.
const PAGE: u32 = 500;
/// Longest silence of a streaming list before it is abandoned.
const STREAM_PROGRESS: Duration = Duration::from_secs(15);
/// Longest duration of a streaming list, plus [`STREAM_PER_OBJECT`] for each object. On a busy kind, events can keep
/// the list alive although its final bookmark never arrives.
const STREAM_TOTAL: Duration = Duration::from_secs(60);
const STREAM_PER_OBJECT: Duration = Duration::from_millis(1);
/// Time before a server without streaming lists is tried again: it could have been upgraded.
const STREAM_RETRY: Duration = Duration::from_secs(3600);
/// Longest silence of a watch before the server's version is requested and the watch reopened. Bookmarks arrive about
/// once a minute if there are changes.
const IDLE: Duration = Duration::from_secs(150);
/// Shortest life of a new watch, even after a long outage: it delivers missed events within a moment.
const GRACE: Duration = Duration::from_secs(30);
/// Range of `timeoutSeconds`: below 240 s, where common load balancers cut idle connections, and spread out so that
/// replicas do not move in lockstep.
const TIMEOUT: Range<u64> = 120..230;
/// Range of `timeoutSeconds` of a streaming list, whose objects alone can take minutes (client-go: 300 to 600,
/// tools/cache/reflector.go).
const STREAM_TIMEOUT: Range<u64> = 300..600;
/// Number of failed streaming lists before pages are tried: broken off before complete, timed out, or failed with an
/// error. A proxy can cut long responses while other requests work.
const STREAMS_CUT: u32 = 3;
/// Range of the random delay of each reflector after a server has come back.
const RETURNED: Duration = Duration::from_secs(1);
/// Shortest delay before a kind that is not served is tried again; the longest is twice this. Its
/// CustomResourceDefinition can be applied at any moment, and the request is cheap.
const NOT_SERVED: Duration = Duration::from_millis(800);
/// Duration below which a watch that ends without progress counts as a failure.
const SHORT: Duration = Duration::from_secs(1);
/// Number of consecutive lists of the newest version that must be older than the stored one before the history counts
/// as regressed. One would be enough: such a list is as fresh as etcd (KEP-2340).
const REWOUND: u32 = 3;
/// Number of consecutive requests at one version that failed internally, ended at once, timed out or were too new for
/// the server, before the kind is listed again, and the bound of lists is dropped.
const STUCK: u32 = 5;

/// A resourceVersion of a list or bookmark. It is sent back unchanged, and ordered if it is a number.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Position {
    /// A number, as every API server that follows KEP-5504 sends.
    Number(ResourceVersion),
    /// Anything else. Its age cannot be compared.
    Opaque(String),
}

/// The regression of an API server's data to an earlier state, as when etcd is restored from a backup. Changes since
/// that backup are undone, and their versions are reused. The stored objects cannot be trusted, so the process should
/// restart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the API server's data went back from version {held} to {at}, as when a backup is restored: \
     the cached objects are no longer valid, and the process must restart"
)]
pub struct ResourceVersionRegressed {
    /// The newest version seen before.
    pub held: String,
    /// The newest version now.
    pub at: String,
}

impl Position {
    /// Parses a position; `None` for the empty string and `0`, which in a request means "any".
    fn parse(text: String) -> Option<Position> {
        match ResourceVersion::parse(&text) {
            number if number.is_known() => Some(Position::Number(number)),
            _ if text.is_empty() || text == "0" => None,
            _ => Some(Position::Opaque(text)),
        }
    }

    /// Returns the number, or [`ResourceVersion::UNKNOWN`].
    fn number(&self) -> ResourceVersion {
        match self {
            Position::Number(number) => *number,
            Position::Opaque(_) => ResourceVersion::UNKNOWN,
        }
    }

    /// Returns whether `self` is certainly older than `other`.
    fn is_older_than(&self, other: &Position) -> bool {
        self.number().is_older_than(other.number())
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Number(number) => fmt::Display::fmt(number, f),
            Position::Opaque(text) => f.write_str(text),
        }
    }
}
