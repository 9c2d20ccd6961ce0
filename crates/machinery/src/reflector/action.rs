//! The inputs and actions of the state machine.

use tokio::time::Instant;

use super::failure::Failure;
use super::position::Position;
use super::regressed::ResourceVersionRegressed;
use super::state::State;
use crate::client::{Page, WatchFrom};
use crate::object::ResourceVersion;

/// An input of the state machine.
#[derive(Debug)]
pub(super) enum Input {
    /// The reflector starts.
    Start,
    /// All items of a page are staged.
    Page { version: String, continue_token: Option<String> },
    /// The server accepted the watch.
    Opened,
    /// An object arrived over the watch.
    Event(ResourceVersion),
    /// An object that is not stored arrived over the watch at a version older than the watch's.
    OutOfOrder(ResourceVersion),
    /// A bookmark arrived.
    Bookmark { version: String, initial_events_end: bool },
    /// The server ended the watch normally.
    Ended,
    /// The list or watch failed.
    Failed(Failure),
    /// The API server was unreachable and responds again.
    Returned,
    /// A caller needs the current state.
    Refresh,
    /// The machine's deadline has passed.
    Deadline,
}

/// An action. Actions are executed in the given order; `List`, `Watch` and `Wait` replace the operation in progress.
#[derive(Debug)]
pub(super) enum Action {
    /// Discard the staged objects and stage a new list.
    Begin(Reason),
    /// Request a page; its items are staged.
    List(Page),
    /// Open a watch. With `initial_events`, its objects are staged until `Commit`.
    Watch(WatchFrom),
    /// Request the API server's current version: a consistent list of at most one object.
    AskVersion,
    /// Do nothing until the deadline.
    Wait,
    /// Show the staged objects as the complete state at this version.
    Commit(Position),
    /// Discard the staged objects.
    Abandon,
    /// The reflector's state has changed, or the reason for it.
    State { state: State, since: Instant, why: Option<String> },
    /// A watch ended early without progress.
    ShortWatch,
    /// The stored objects belong to a history that no longer exists. The reflector terminates.
    End(ResourceVersionRegressed),
}

/// The reason for a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The first list; none has succeeded yet.
    Start,
    /// The history since the last version was compacted (410).
    Expired,
    /// The kind could not be listed or was not served, which can have changed.
    Healed,
    /// The server refused to watch from our version.
    Refused,
    /// Watches from the stored version keep failing.
    Stuck,
    /// The watch showed an object that it should have shown earlier.
    OutOfOrder,
    /// A streaming list was not available, or did not end.
    NoStreaming,
    /// The previous attempt failed, or its response was older than the store.
    Retry,
    /// A caller needs the current state, not that of a watch cache.
    Refresh,
}
