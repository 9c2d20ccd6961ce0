//! Watches.

use std::fmt;
use std::marker::PhantomData;

use http::header::ACCEPT_ENCODING;

use super::call::{Client, JSON, piece, request};
use super::frames::Frames;
use super::query::Url;
use super::transport::Answer;
use super::types::{Event, Scope, WatchFrom};
use super::{Error, event};
use crate::object::Resource;

/// The `Accept` header of a metadata-only watch. An aggregated API server that cannot leave out the
/// rest sends it: otherwise it would answer 406, for ever.
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// An open watch. Dropping it closes its connection.
pub struct Watch<V> {
    body: Answer,
    frames: Frames,
    /// Nothing more is read after the end or an error.
    over: bool,
    marker: PhantomData<fn() -> V>,
}

// === impl Client ===

impl Client {
    /// Opens a watch. The deadline applies to the API server's answer; after that the watch may be
    /// silent for as long as [`WatchFrom::timeout`].
    ///
    /// # Errors
    /// All that can go wrong with a call; [`Error::is_expired`] if the version is compacted away.
    pub async fn watch<V: Resource>(
        &self,
        scope: &Scope,
        from: &WatchFrom,
    ) -> Result<Watch<V>, Error> {
        let kind = self.kind::<V>();
        let url = Url::watch(&kind, scope, from)?;
        let accept = if from.metadata_only { METADATA } else { JSON };
        // From 1.37 on, the API server compresses each event of a watch separately, which few
        // clients can read; uncompressed, an event is decoded from the read buffer.
        let request =
            request("GET", url)?.accept(accept).header(ACCEPT_ENCODING, "identity").empty();
        let mut observe = self.observe("watch", &kind);
        let answer = self.open(request, &mut observe).await?;
        observe.code = answer.status().as_u16();
        Ok(Watch {
            body: answer.into_body(),
            frames: Frames::default(),
            over: false,
            marker: PhantomData,
        })
    }
}

// === impl Watch ===

impl<V: Resource> Watch<V> {
    /// The next event; `None` when the server ended the watch properly. An `ERROR` frame is
    /// [`Error::Api`]. After an error the watch is over. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<Event<V>, Error>> {
        if self.over {
            return None;
        }
        let next = self.read().await.transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }

    async fn read(&mut self) -> Result<Option<Event<V>>, Error> {
        loop {
            if let Some(frame) = self.frames.next()? {
                return event::decode(&frame).map(Some);
            }
            match piece(&mut self.body).await? {
                Some(piece) => self.frames.arrived(&piece),
                None if self.frames.is_between() => return Ok(None),
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
