//! Types of requests and responses.

use std::time::Duration;

use crate::object::{InternedStr, ObjectKey, ResourceVersion, Uid};

/// Selects objects of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// One namespace; `None` for all.
    pub namespace: Option<InternedStr>,
    /// Label selector.
    pub labels: Option<String>,
    /// Field selector.
    pub fields: Option<String>,
    /// Requests metadata only (PartialObjectMetadata): a view is decoded from `metadata`, `kind` and `apiVersion`.
    pub metadata_only: bool,
}

/// One page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Maximum number of items (the API server can ignore it).
    pub limit: Option<u32>,
    /// Token from the end of the previous page. It implies the version of the first page, so `not_older_than` is not
    /// sent with it: the API server would refuse both.
    pub continue_token: Option<String>,
    /// `resourceVersion` with `NotOlderThan`; `None` for the newest (a quorum read). With "0" (any cached version),
    /// no limit is sent, because that would cause a quorum read.
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
    /// resourceVersion of a list or bookmark. `None` only with `initial_events`: the newest.
    pub version: Option<String>,
    /// Requests a streaming list: all objects as `Added`, then a bookmark with `initial_events_end`, then changes.
    pub initial_events: bool,
    /// `timeoutSeconds`, at least one.
    pub timeout: Duration,
}

/// A change in a watch.
#[derive(Debug)]
#[non_exhaustive]
pub enum WatchEvent<V> {
    /// An object was created (or newly matches the selector).
    Added(V),
    /// An object changed.
    Modified(V),
    /// An object was deleted (or no longer matches).
    Deleted(V),
    /// Nothing changed up to this version.
    Bookmark {
        /// resourceVersion, opaque.
        version: String,
        /// All initial events were sent.
        initial_events_end: bool,
    },
    /// An object whose JSON does not fit the view. Others are unaffected.
    InvalidObject(InvalidObject),
}

/// An object that could not be decoded, with its readable metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidObject {
    /// The object's key.
    pub key: ObjectKey,
    /// Its UID; [`Uid::NONE`] if unreadable.
    pub uid: Uid,
    /// Its version; unknown if unreadable.
    pub version: ResourceVersion,
    /// True if it was deleted.
    pub deleted: bool,
    /// Description of the mismatch, in about 200 bytes.
    pub why: String,
}

/// Preconditions of a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preconditions {
    /// Only the object with this UID, not a later one with the same name.
    pub uid: Uid,
    /// Only if unchanged since this version; omitted if unknown.
    pub version: ResourceVersion,
}

/// Effect of an accepted delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deletion {
    /// The object was deleted.
    Deleted,
    /// The object is marked for deletion and waits for finalizers or its grace period.
    Terminating,
}
