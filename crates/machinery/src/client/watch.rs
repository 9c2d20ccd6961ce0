//! Watches.

use std::fmt;
use std::marker::PhantomData;

use http::header::{ACCEPT_ENCODING, HeaderValue};

use super::call::{Client, chunk};
use super::frames::LineDecoder;
use super::transport::Answer;
use super::types::{Scope, WatchEvent, WatchFrom};
use super::{Error, event, query};
use crate::object::Resource;

/// An open watch. Dropping it closes its connection.
pub struct Watch<V> {
    body: Answer,
    frames: LineDecoder,
    /// True after the end or an error: nothing more is read.
    over: bool,
    marker: PhantomData<fn() -> V>,
}

// === impl Client ===

impl Client {
    /// Opens a watch. The deadline applies to the head of the response. After that, the watch can be silent for
    /// [`WatchFrom::timeout`].
    ///
    /// # Errors
    /// Any error of a call; [`Error::is_expired`] if the version was compacted.
    pub async fn watch<V: Resource>(
        &self,
        scope: &Scope,
        from: &WatchFrom,
    ) -> Result<Watch<V>, Error> {
        let kind = V::kind();
        let mut request = query::watch(&kind, scope, from)?;
        // From 1.37 on, the API server compresses each event separately, which few clients can read. An uncompressed
        // event is decoded from the read buffer.
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let mut observe = self.observe("watch", &kind);
        let answer = self.open(request, &mut observe).await?;
        observe.code = answer.status().as_u16();
        Ok(Watch {
            body: answer.into_body(),
            frames: LineDecoder::default(),
            over: false,
            marker: PhantomData,
        })
    }
}

// === impl Watch ===

impl<V: Resource> Watch<V> {
    /// Returns the next event; `None` after a normal end. An `ERROR` frame is [`Error::Api`]. An error ends the
    /// watch. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<WatchEvent<V>, Error>> {
        if self.over {
            return None;
        }
        let next = self.read().await.transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }

    async fn read(&mut self) -> Result<Option<WatchEvent<V>>, Error> {
        loop {
            if let Some(frame) = self.frames.next()? {
                return event::decode(&frame).map(Some);
            }
            match chunk(&mut self.body).await? {
                Some(chunk) => self.frames.extend(&chunk),
                None if self.frames.is_empty() => return Ok(None),
                None => return Err(Error::Cut("an event of a watch")),
            }
        }
    }
}

impl<V> fmt::Debug for Watch<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("over", &self.over).finish_non_exhaustive()
    }
}
