//! What happens to a reflector, and what it does.

use tokio::time::Instant;

use super::failure::Failure;
use super::position::Position;
use super::rewound::Rewound;
use super::state::State;
use crate::client::{Page, WatchFrom};
use crate::object::ResourceVersion;

/// What happened.
#[derive(Debug)]
pub(super) enum Input {
    /// The reflector begins.
    Start,
    /// All items of a page were taken.
    Page { version: String, continue_token: Option<String> },
    /// The server accepted the watch.
    Opened,
    /// An object came over the watch.
    Event(ResourceVersion),
    /// A bookmark came.
    Bookmark { version: String, initial_events_end: bool },
    /// The server ended the watch in good order.
    Ended,
    /// The list or watch failed.
    Failed(Failure),
    /// The API server was away and answers again, to others.
    Returned,
    /// The machine's deadline has passed.
    Deadline,
}

/// What to do, in the order given. `List`, `Watch` and `Wait` replace what was under way.
#[derive(Debug)]
pub(super) enum Action {
    /// Forget what was staged and stage a new list.
    Begin(Reason),
    /// Ask for a page; its items are staged.
    List(Page),
    /// Open a watch. With `initial_events` its objects are staged, until `Commit`.
    Watch(WatchFrom),
    /// Nothing until the deadline.
    Wait,
    /// What was staged is the whole truth at this version: show it.
    Commit(Position),
    /// What was staged is not used.
    Abandon,
    /// The reflector's state has changed, or why it is so.
    State { state: State, since: Instant, why: Option<String> },
    /// A watch ended early without getting anywhere.
    ShortWatch,
    /// What is held is of a history that is no more. The reflector's end.
    End(Rewound),
}

/// Why a list begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The first one, or one that has not succeeded yet.
    Start,
    /// The history since the last version is gone: 410.
    Expired,
    /// The kind could not be listed or was not served, and may be again.
    Healed,
    /// The server would not watch from our version.
    Refused,
    /// The server cannot get past our version.
    Stuck,
    /// A streaming list was not to be had, or did not end.
    NoStreaming,
    /// The attempt before failed, or its answer was older than what we hold.
    Retry,
}
