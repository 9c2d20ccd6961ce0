//! One frame of a watch: `{"type": …, "object": …}`.
//!
//! The API server always sends the type first, so serde decodes the object in the same pass. A frame in another order
//! is decoded again in this one.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, Value};

use super::error::{Error, mismatch, shape};
use super::status::Status;
use super::types::{InvalidObject, WatchEvent};
use crate::object::{ObjectKey, ResourceVersion, Uid};

/// metav1.WatchEvent.
#[derive(Deserialize)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
enum Frame<V> {
    Added(V),
    Modified(V),
    Deleted(V),
    Bookmark(Bookmark),
    Error(Status),
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: String,
    #[serde(default)]
    annotations: Value,
}

/// metav1.InitialEventsAnnotationKey.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Decodes one frame.
///
/// # Errors
/// [`Error::Api`] for an `ERROR` frame; [`Error::Decode`] for a frame that is not an event.
pub(super) fn decode<V: DeserializeOwned>(frame: &[u8]) -> Result<WatchEvent<V>, Error> {
    match serde_json::from_slice(frame) {
        Ok(Frame::Added(object)) => Ok(WatchEvent::Added(object)),
        Ok(Frame::Modified(object)) => Ok(WatchEvent::Modified(object)),
        Ok(Frame::Deleted(object)) => Ok(WatchEvent::Deleted(object)),
        Ok(Frame::Bookmark(Bookmark { metadata })) => Ok(WatchEvent::Bookmark {
            version: metadata.resource_version,
            initial_events_end: metadata.annotations[INITIAL_EVENTS_END] == "true",
        }),
        Ok(Frame::Error(status)) => Err(status.into_error(500, None)),
        Err(_) => match type_first(frame) {
            Some(ordered) => decode(&ordered),
            None => undecodable::<V>(frame),
        },
    }
}

/// Returns a frame with its type before its object; `None` if it has this order, or is no frame. Serde buffers an object
/// that comes first, and a view with raw JSON cannot be decoded from a buffer.
#[cold]
fn type_first(frame: &[u8]) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    struct Parts<'a> {
        #[serde(rename = "type", borrow)]
        kind: &'a RawValue,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let Parts { kind, object } = serde_json::from_slice(frame).ok()?;
    let is_after = kind.get().as_ptr() > object.get().as_ptr();
    is_after.then(|| format!("{{\"type\":{kind},\"object\":{object}}}").into_bytes())
}

/// Identifies the object of a mismatched frame.
#[cold]
fn undecodable<V: DeserializeOwned>(frame: &[u8]) -> Result<WatchEvent<V>, Error> {
    let why = mismatch::<Frame<V>>(frame);
    let why = why.strip_prefix("object.").unwrap_or(&why).to_owned();
    let (object, deleted) = match serde_json::from_slice::<Frame<Bare>>(frame) {
        Ok(Frame::Added(object) | Frame::Modified(object)) => (object, false),
        Ok(Frame::Deleted(object)) => (object, true),
        _ => return Err(Error::Decode { why, excerpt: shape(frame) }),
    };
    Ok(WatchEvent::InvalidObject(object.into_undecodable(deleted, why)))
}

/// The fields that identify an object. They are plain strings, because the metadata itself can be malformed.
#[derive(Deserialize)]
struct Bare {
    metadata: BareMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BareMeta {
    name: String,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

// === impl Bare ===

impl Bare {
    fn into_undecodable(self, deleted: bool, why: String) -> InvalidObject {
        let meta = self.metadata;
        InvalidObject {
            key: ObjectKey::new(meta.namespace.unwrap_or_default(), meta.name),
            uid: meta.uid.and_then(|uid| uid.parse().ok()).unwrap_or(Uid::NONE),
            version: ResourceVersion::parse(&meta.resource_version.unwrap_or_default()),
            deleted,
            why,
        }
    }
}

/// Identifies the object in `json`, which is not a `V`.
///
/// # Errors
/// If it is not JSON or has no name. Then it is not an object, and the response cannot be trusted.
pub(super) fn identify<V: DeserializeOwned>(
    json: &[u8],
    deleted: bool,
) -> Result<InvalidObject, Error> {
    match serde_json::from_slice::<Bare>(json) {
        Ok(bare) => Ok(bare.into_undecodable(deleted, mismatch::<V>(json))),
        Err(_) => Err(Error::decode::<V>(json)),
    }
}

#[cfg(test)]
mod tests;
