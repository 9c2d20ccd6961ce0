//! Lists, item by item.

use bytes::{Buf, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::call::{Client, chunk};
use super::error::shape;
use super::query;
use super::types::{InvalidObject, Page, PageEnd, Scope};
use super::{Error, MAX_OBJECT, event, status};
use crate::object::{Kind, ObjectKey, Resource};

/// Size up to which chunks are gathered before parsing. The API server writes a list in chunks of a few kB, smaller
/// than its objects.
const GATHERED: usize = 64 << 10;

/// The received part of a list, `{"kind": …, "metadata": {…}, "items": [{…}, …]}`, with its fields in any order.
#[derive(Default)]
struct Received {
    /// What comes before the items; empty until they begin.
    before: Vec<u8>,
    /// What has not been taken apart yet. After the last item, it begins with `]`.
    rest: BytesMut,
}

/// A list without its items.
#[derive(Deserialize)]
struct Envelope {
    kind: Option<String>,
    metadata: Option<ListMeta>,
}

/// metav1.ListMeta.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    /// Empty for kinds that are not stored, such as metrics.k8s.io.
    #[serde(default)]
    resource_version: String,
    r#continue: Option<String>,
}

// === impl Client ===

impl Client {
    /// Lists one page. Items are passed on as they arrive, before the page is known to be complete: after an error,
    /// discard the items already received.
    ///
    /// The beginning of the response has its own deadline ([`Options::list_deadline`]). After that, the deadline counts
    /// from the last chunk of the body, without the time that `each` takes.
    ///
    /// [`Options::list_deadline`]: super::Options::list_deadline
    ///
    /// # Errors
    /// Any error of a call; [`Error::Cut`] if the list breaks off.
    pub async fn list<V: Resource>(
        &self,
        scope: &Scope,
        page: &Page,
        mut each: impl FnMut(Result<V, InvalidObject>) + Send,
    ) -> Result<PageEnd, Error> {
        let each = |json: &[u8]| {
            each(match serde_json::from_slice(json) {
                Ok(object) => Ok(object),
                Err(_) => Err(event::identify::<V>(json, false)?),
            });
            Ok(())
        };
        self.list_json(&V::kind(), scope, page, each).await
    }

    /// Lists one page, with each item as JSON. Otherwise as [`Client::list`].
    pub(super) async fn list_json(
        &self,
        kind: &Kind,
        scope: &Scope,
        page: &Page,
        mut each: impl FnMut(&[u8]) -> Result<(), Error> + Send,
    ) -> Result<PageEnd, Error> {
        let request = query::list(kind, scope, page)?;
        let mut observe = self.observe("list", kind);
        let answer = self.open(request, &mut observe).await?;
        let code = answer.status().as_u16();
        let (mut body, mut received) = (answer.into_body(), Received::default());
        let deadline = self.options().deadline;
        let late = |_| Error::Deadline(deadline);
        let mut enough = GATHERED;
        while let Some(chunk) = timeout(deadline, chunk(&mut body)).await.map_err(late)?? {
            received.rest.extend_from_slice(&chunk);
            if received.rest.len() >= enough {
                received.take_apart(&mut each)?;
                // Otherwise a large item would be scanned from its start with each chunk.
                enough = (2 * received.rest.len()).clamp(GATHERED, MAX_OBJECT);
            }
        }
        received.take_apart(&mut each)?;
        let body = received.end()?;
        let Envelope { kind, metadata } = serde_json::from_slice(&body)
            .map_err(|error| if error.is_eof() { Error::Cut("a list") } else { no_list(&body) })?;
        observe.code = code;
        if kind.as_deref() == Some("Status") {
            return Err(status::error(code, None, &body));
        }
        let meta = metadata.ok_or_else(|| no_list(&body))?;
        let continue_token = meta.r#continue.filter(|token| !token.is_empty());
        Ok(PageEnd { version: meta.resource_version, continue_token })
    }

    /// Gets one object with a list that selects its name. A controller always has `list` permission, because it
    /// watches; it may not have `get`. `None` if the object does not exist. The response is as
    /// new as etcd, although from Kubernetes 1.31 on it can come from the watch cache (`ConsistentListFromCache`,
    /// KEP-2340).
    ///
    /// # Errors
    /// As [`Client::list`], and [`Error::Decode`] if the object does not fit its view.
    pub async fn find<V: Resource>(&self, key: &ObjectKey) -> Result<Option<V>, Error> {
        let mut found = None;
        let each = |object: Result<V, InvalidObject>| {
            let name = object.as_ref().map_or_else(|bad| &bad.key, |object| object.key());
            if name == key {
                found = Some(object);
            }
        };
        self.list(&query::only(key), &Page::default(), each).await?;
        let undecodable =
            |bad: InvalidObject| Error::Decode { why: bad.why, excerpt: bad.key.to_string() };
        found.transpose().map_err(undecodable)
    }
}

// === impl Received ===

impl Received {
    /// Passes on each item that is complete.
    fn take_apart(
        &mut self,
        mut each: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.before.is_empty()
            && let Some(start) = start_of_items(&self.rest)
        {
            self.before.extend_from_slice(&self.rest.split_to(start));
        }
        while !self.before.is_empty() {
            let is_between = |byte: &&u8| byte.is_ascii_whitespace() || **byte == b',';
            self.rest.advance(self.rest.iter().take_while(is_between).count());
            if self.rest.first().is_none_or(|byte| *byte == b']') {
                break;
            }
            let mut items = serde_json::Deserializer::from_slice(&self.rest).into_iter();
            let item: &RawValue = match items.next() {
                Some(Ok(item)) => item,
                Some(Err(error)) if !error.is_eof() => return Err(no_list(&self.rest)),
                _ => break,
            };
            each(item.get().as_bytes())?;
            let length = items.byte_offset();
            self.rest.advance(length);
        }
        if self.rest.len() > MAX_OBJECT {
            return Err(Error::TooLarge { what: "an item of a list", limit: MAX_OBJECT });
        }
        Ok(())
    }

    /// Returns the list without its items.
    fn end(mut self) -> Result<Vec<u8>, Error> {
        if !self.before.is_empty() && !self.rest.starts_with(b"]") {
            return Err(Error::Cut("a list"));
        }
        self.before.extend_from_slice(&self.rest);
        Ok(self.before)
    }
}

/// Returns where the items begin. A text that contains this key has a backslash before its second quote.
fn start_of_items(json: &[u8]) -> Option<usize> {
    const KEY: &[u8] = b"\"items\"";
    json.windows(KEY.len()).enumerate().filter(|(_, key)| *key == KEY).find_map(|(at, _)| {
        let mut after = json[at + KEY.len()..].iter();
        let mut next = || after.find(|byte| !byte.is_ascii_whitespace());
        (next() == Some(&b':') && next() == Some(&b'[')).then(|| json.len() - after.len())
    })
}

fn no_list(body: &[u8]) -> Error {
    Error::Decode { why: "it is not a list".to_owned(), excerpt: shape(body) }
}
