//! One frame of a watch: `{"type": …, "object": …}`.
//!
//! The object is decoded according to its type in the same pass that reads the frame; the API
//! server always sends the type first. Only a frame in another order, or one whose object does not
//! fit, is read again.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};

use super::error::{Error, mismatch, shape};
use super::status::Status;
use super::types::Event;
use super::undecodable::Bare;

/// watch.EventType.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Type {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

/// A frame, decoded.
enum Frame<V> {
    Event(Event<V>),
    Error(Status),
    /// The object came before its type.
    Unordered,
}

/// Decodes one frame.
///
/// # Errors
/// [`Error::Api`] for an `ERROR` frame; [`Error::Decode`] for one that is not an event.
pub(super) fn decode<V: DeserializeOwned>(frame: &[u8]) -> Result<Event<V>, Error> {
    match parse(frame, None) {
        Ok(Frame::Event(event)) => Ok(event),
        Ok(Frame::Error(status)) => Err(status.into_error(500, None)),
        Ok(Frame::Unordered) | Err(_) => again(frame),
    }
}

/// Rereads a frame that was not understood at once: first its type, then its object accordingly.
#[cold]
fn again<V: DeserializeOwned>(frame: &[u8]) -> Result<Event<V>, Error> {
    #[derive(Deserialize)]
    struct Typed {
        r#type: Type,
        object: IgnoredAny,
    }
    #[derive(Deserialize)]
    struct Named {
        object: Bare,
    }
    #[derive(Deserialize)]
    struct Viewed<V> {
        #[serde(rename = "object")]
        _object: V,
    }
    let Typed { r#type, object: IgnoredAny } =
        serde_json::from_slice(frame).map_err(|_| Error::decode::<Typed>(frame))?;
    match parse(frame, Some(r#type)) {
        Ok(Frame::Event(event)) => return Ok(event),
        Ok(Frame::Error(status)) => return Err(status.into_error(500, None)),
        Ok(Frame::Unordered) | Err(_) => {}
    }
    match r#type {
        Type::Added | Type::Modified | Type::Deleted => {
            let why = mismatch::<Viewed<V>>(frame);
            let why = why.strip_prefix("object.").unwrap_or(&why).to_owned();
            match serde_json::from_slice(frame) {
                Ok(Named { object }) => {
                    let deleted = r#type == Type::Deleted;
                    Ok(Event::Undecodable(object.into_undecodable(deleted, why)))
                }
                Err(_) => Err(Error::Decode { why, excerpt: shape(frame) }),
            }
        }
        Type::Bookmark => Err(Error::decode::<Viewed<Bookmark>>(frame)),
        Type::Error => Err(Error::decode::<Viewed<Status>>(frame)),
    }
}

fn parse<V: DeserializeOwned>(frame: &[u8], known: Option<Type>) -> serde_json::Result<Frame<V>> {
    let mut json = serde_json::Deserializer::from_slice(frame);
    let decoded = FrameSeed { known, view: PhantomData }.deserialize(&mut json)?;
    json.end()?;
    Ok(decoded)
}

/// Decodes a frame whose type may already be known.
struct FrameSeed<V> {
    known: Option<Type>,
    view: PhantomData<fn() -> V>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Field {
    Type,
    Object,
    #[serde(other)]
    Other,
}

impl<'de, V: DeserializeOwned> DeserializeSeed<'de> for FrameSeed<V> {
    type Value = Frame<V>;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Frame<V>, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de, V: DeserializeOwned> Visitor<'de> for FrameSeed<V> {
    type Value = Frame<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a watch event")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Frame<V>, A::Error> {
        let mut decoded = None;
        while let Some(field) = map.next_key()? {
            match field {
                Field::Type => self.known = Some(map.next_value()?),
                Field::Object if decoded.is_some() => {
                    return Err(A::Error::duplicate_field("object"));
                }
                Field::Object => match self.known {
                    Some(known) => decoded = Some(object(known, &mut map)?),
                    None => {
                        map.next_value::<IgnoredAny>()?;
                        decoded = Some(Frame::Unordered);
                    }
                },
                Field::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        decoded.ok_or_else(|| A::Error::missing_field("object"))
    }
}

/// Decodes the object according to the event's type.
fn object<'de, V: DeserializeOwned, A: MapAccess<'de>>(
    r#type: Type,
    map: &mut A,
) -> Result<Frame<V>, A::Error> {
    Ok(Frame::Event(match r#type {
        Type::Added => Event::Added(map.next_value()?),
        Type::Modified => Event::Modified(map.next_value()?),
        Type::Deleted => Event::Deleted(map.next_value()?),
        Type::Bookmark => map.next_value::<Bookmark>()?.into_event(),
        Type::Error => return Ok(Frame::Error(map.next_value()?)),
    }))
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

impl Bookmark {
    fn into_event<V>(self) -> Event<V> {
        let annotations = self.metadata.annotations.unwrap_or_default();
        Event::Bookmark {
            version: self.metadata.resource_version,
            initial_events_end: annotations.initial_events_end.as_deref() == Some("true"),
        }
    }
}

#[cfg(test)]
mod tests;
