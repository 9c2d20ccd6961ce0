//! Inputs and actions of a reflector.

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
    /// The reflector begins.
    Start,
    /// All items of a page have been taken in.
    Page { version: String, continue_token: Option<String> },
    /// The server accepted the watch.
    Opened,
    /// An object arrived over the watch.
    Event(ResourceVersion),
    /// An object that is not held arrived over the watch at a version that the watch has passed.
    OutOfOrder(ResourceVersion),
    /// A bookmark arrived.
    Bookmark { version: String, initial_events_end: bool },
    /// The server ended the watch normally.
    Ended,
    /// The list or watch failed.
    Failed(Failure),
    /// The API server was unreachable and is answering others again.
    Returned,
    /// Somebody needs the state as it is now.
    Refresh,
    /// The machine's deadline has passed.
    Deadline,
}

/// An action, to be taken in the order given. `List`, `Watch` and `Wait` replace the operation under way.
#[derive(Debug)]
pub(super) enum Action {
    /// Discard what was staged and stage a new list.
    Begin(Reason),
    /// Request a page; its items are staged.
    List(Page),
    /// Open a watch. With `initial_events`, its objects are staged until `Commit`.
    Watch(WatchFrom),
    /// Request the version that the API server has now: a consistent list of at most one object.
    AskVersion,
    /// Do nothing until the deadline.
    Wait,
    /// Show the staged objects: they are the complete state at this version.
    Commit(Position),
    /// Discard what was staged.
    Abandon,
    /// The reflector's state has changed, or the reason for it.
    State { state: State, since: Instant, why: Option<String> },
    /// A watch ended early without getting anywhere.
    ShortWatch,
    /// The held objects are from a history that no longer exists. The reflector ends.
    End(ResourceVersionRegressed),
}

/// Why a list begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The first list; none has succeeded yet.
    Start,
    /// The history since the last version is gone (410).
    Expired,
    /// The kind could not be listed or was not served; this may have changed.
    Healed,
    /// The server refused to watch from our version.
    Refused,
    /// The server cannot get past our version.
    Stuck,
    /// The watch showed an object that it should have shown earlier.
    OutOfOrder,
    /// A streaming list was not available, or did not end.
    NoStreaming,
    /// The previous attempt failed, or its answer was older than what we hold.
    Retry,
    /// Somebody needs the state as it is now, not as a watch cache has it.
    Refresh,
}
