//! One frame of a watch: `{"type": …, "object": …}`.
//!
//! The API server always sends the type first, so serde decodes the object in the same pass; in another order it
//! buffers the object.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::{Error, mismatch, shape};
use super::status::Status;
use super::types::WatchEvent;
use super::undecodable::Bare;

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
    annotations: Option<BookmarkAnnotations>,
}

#[derive(Default, Deserialize)]
struct BookmarkAnnotations {
    /// metav1.InitialEventsAnnotationKey.
    #[serde(rename = "k8s.io/initial-events-end", default)]
    initial_events_end: Option<String>,
}

/// Decodes one frame.
///
/// # Errors
/// [`Error::Api`] for an `ERROR` frame; [`Error::Decode`] for a frame that is not an event.
pub(super) fn decode<V: DeserializeOwned>(frame: &[u8]) -> Result<WatchEvent<V>, Error> {
    match serde_json::from_slice(frame) {
        Ok(Frame::Added(object)) => Ok(WatchEvent::Added(object)),
        Ok(Frame::Modified(object)) => Ok(WatchEvent::Modified(object)),
        Ok(Frame::Deleted(object)) => Ok(WatchEvent::Deleted(object)),
        Ok(Frame::Bookmark(Bookmark { metadata })) => {
            let annotations = metadata.annotations.unwrap_or_default();
            Ok(WatchEvent::Bookmark {
                version: metadata.resource_version,
                initial_events_end: annotations.initial_events_end.as_deref() == Some("true"),
            })
        }
        Ok(Frame::Error(status)) => Err(status.into_error(500, None)),
        Err(_) => undecodable::<V>(frame),
    }
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
    Ok(WatchEvent::Undecodable(object.into_undecodable(deleted, why)))
}

#[cfg(test)]
mod tests;
