//! Types of requests and answers.

use std::time::Duration;

use crate::object::{InternedStr, ObjectKey, ResourceVersion, Uid};

/// Selects objects of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// One namespace, or all.
    pub namespace: Option<InternedStr>,
    /// Label selector.
    pub labels: Option<String>,
    /// Field selector.
    pub fields: Option<String>,
}

/// One page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// At most this many items (the API server may ignore it).
    pub limit: Option<u32>,
    /// Token from the end of the previous page. It stands for the version of the first page, so
    /// `not_older_than` is not sent with it (the API server would refuse both).
    pub continue_token: Option<String>,
    /// `resourceVersion` with `NotOlderThan`; `None` = the newest there is (a quorum read). With
    /// "0" (whatever the server has in its cache) no limit is sent: it would turn the request into
    /// a quorum read.
    pub not_older_than: Option<String>,
}

/// Metadata after the items of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageEnd {
    /// resourceVersion of the list, as sent: opaque.
    pub version: String,
    /// Set if there is another page.
    pub continue_token: Option<String>,
}

/// Start and options of a watch.
#[derive(Debug, Clone)]
pub struct WatchFrom {
    /// resourceVersion, as received in a list or bookmark. `None` only with `initial_events`: the
    /// newest there is.
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
    /// It is gone (or no longer matches).
    Deleted(V),
    /// Nothing changed up to this version.
    Bookmark {
        /// resourceVersion, opaque.
        version: String,
        /// All initial events were sent.
        initial_events_end: bool,
    },
    /// An object whose JSON does not fit the view. Its neighbours are unaffected.
    Undecodable(Undecodable),
}

impl<V> Event<V> {
    /// Returns whether it tells of the end of an object.
    pub fn is_deletion(&self) -> bool {
        matches!(self, Event::Deleted(_) | Event::Undecodable(Undecodable { deleted: true, .. }))
    }
}

/// An object that could not be decoded, and as much of its metadata as could.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    /// Which object.
    pub key: ObjectKey,
    /// Its identity; [`Uid::NONE`] if that could not be read.
    pub uid: Uid,
    /// Its version; unknown if that could not be read.
    pub version: ResourceVersion,
    /// It was deleted.
    pub deleted: bool,
    /// Description of the mismatch, in about 200 bytes.
    pub why: String,
}

/// Preconditions of a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preconditions {
    /// Only this one, never a namesake.
    pub uid: Uid,
    /// Only if unchanged since this version; left out if unknown.
    pub version: ResourceVersion,
}

/// Effect of an accepted delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// The object is gone.
    Final,
    /// The object is marked for deletion; finalizers or its grace period still keep it.
    Started,
}
