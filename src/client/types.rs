//! What is asked and what is answered.

use std::time::Duration;

use crate::object::{ObjectKey, ResourceVersion, Text, Uid};

/// Which objects of a kind are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// One namespace, or all.
    pub namespace: Option<Text>,
    /// Label selector.
    pub labels: Option<String>,
    /// Field selector.
    pub fields: Option<String>,
}

/// One page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// At most so many items (the API server may ignore it).
    pub limit: Option<u32>,
    /// Where the page before ended. A token stands for the version of the first page, so
    /// `not_older_than` is not sent with it (the API server would refuse both).
    pub continue_token: Option<String>,
    /// `resourceVersion` with `NotOlderThan`; none = the newest there is (a quorum read). With "0",
    /// whatever the server has in its cache, no limit is sent: it would turn the request into a
    /// quorum read.
    pub not_older_than: Option<String>,
}

/// What came after the items of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageEnd {
    /// resourceVersion of the list, as sent: opaque.
    pub version: String,
    /// There is another page.
    pub continue_token: Option<String>,
}

/// Where a watch begins.
#[derive(Debug, Clone)]
pub struct WatchFrom {
    /// resourceVersion, as received in a list or bookmark. None only with `initial_events`:
    /// the newest there is.
    pub version: Option<String>,
    /// A streaming list: first all objects as `Added`, then a bookmark with
    /// `initial_events_end`, then changes.
    pub initial_events: bool,
    /// `timeoutSeconds`, at least one.
    pub timeout: Duration,
    /// Decode metadata only: ask for PartialObjectMetadata.
    pub metadata_only: bool,
}

/// A change on the wire.
#[derive(Debug)]
pub enum Event<V> {
    /// There is a new object (or one that newly matches the selector).
    Added(V),
    /// It changed.
    Modified(V),
    /// It is gone (or does not match any more).
    Deleted(V),
    /// Nothing changed up to this version.
    Bookmark {
        /// resourceVersion, opaque.
        version: String,
        /// All initial events were sent.
        initial_events_end: bool,
    },
    /// An object whose JSON does not fit the view. Its neighbours are unharmed.
    Undecodable(Undecodable),
}

/// An object that could not be decoded, and as much of its metadata as could.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    /// Which.
    pub key: ObjectKey,
    /// Its identity; [`Uid::NONE`] if that could not be read.
    pub uid: Uid,
    /// Its age; unknown if that could not be read.
    pub version: ResourceVersion,
    /// It was deleted.
    pub deleted: bool,
    /// What did not fit, in about 200 bytes.
    pub why: String,
}

/// Preconditions of a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preconditions {
    /// Only this one, never a namesake.
    pub uid: Uid,
    /// Only if unchanged since; left out if unknown.
    pub version: ResourceVersion,
}

/// What a delete that was accepted has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// The object is gone.
    Final,
    /// The object is marked as deleted, and goes when its finalizers and its grace period have.
    Started,
}
