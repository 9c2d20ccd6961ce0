//! A list: pages, and the version they are of.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};

use super::fault::Fault;
use super::history::Id;
use super::request::{Ask, failure, respond};
use super::server::{Answer, Model, State};

pub(super) fn list(model: &Model, ask: &Ask, stale: bool) -> Response<Answer> {
    let mut state = model.lock();
    let rates = state.rates;
    let fault = state.strike(&Fault::LIST, rates.0);
    let (version, after) = match ask.get("continue") {
        Some(token) => {
            let (version, after) = token.split_once('|').unwrap_or(("0", ""));
            let version = version.parse().unwrap_or(0);
            if version < state.history.compacted || fault == Some(Fault::GoneOnContinue) {
                return failure(Fault::Gone);
            }
            (version, Some(after.to_owned()))
        }
        None => match state.visible(ask, stale) {
            Ok(version) => (version, None),
            Err(fault) => return failure(fault),
        },
    };
    let limit = ask.get("limit").and_then(|limit| limit.parse().ok());
    let limit = limit.map_or(usize::MAX, |limit: usize| limit.min(state.page));
    let all = state.history.at(&ask.resource, ask.namespace.as_deref(), version);
    let place = |id: &Id| format!("{}/{}", id.namespace, id.name);
    let mut rest =
        all.skip_while(|(id, _)| after.as_ref().is_some_and(|after| place(id) <= *after));
    let page: Vec<(&Id, Arc<Value>)> = rest.by_ref().take(limit).collect();
    let mut meta = json!({ "resourceVersion": version.to_string() });
    let more = rest.next().is_some();
    if let (true, Some((last, _))) = (more, page.last()) {
        meta["continue"] = json!(format!("{version}|{}", place(last)));
    }
    let items: Vec<&Value> = page.iter().map(|(_, object)| &**object).collect();
    let body = json!({ "kind": "List", "apiVersion": "v1", "metadata": meta, "items": items });
    let mut bytes = body.to_string().into_bytes();
    drop(rest);
    let cut = fault == Some(Fault::Cut);
    if cut {
        bytes.truncate(state.rng.usize(..bytes.len()));
    }
    let mut chunks: Vec<io::Result<Bytes>> =
        torn(&mut state.rng, &Bytes::from(bytes)).into_iter().map(Ok).collect();
    if cut {
        chunks.push(Err(io::ErrorKind::UnexpectedEof.into()));
    }
    respond(
        200,
        StreamBody::new(futures::stream::iter(chunks).map(|c| c.map(Frame::data))).boxed_unsync(),
    )
}

/// Tears bytes into pieces, as a network does.
pub(super) fn torn(rng: &mut fastrand::Rng, bytes: &Bytes) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = if rng.u8(..4) == 0 { at + rng.usize(1..200) } else { bytes.len() };
        let end = end.min(bytes.len());
        pieces.push(bytes.slice(at..end));
        at = end;
    }
    pieces
}

impl State {
    /// The version that a list or streaming list is answered with. A stale server answers with
    /// what it has, or says that it lags.
    pub(super) fn visible(&mut self, ask: &Ask, stale: bool) -> Result<u64, Fault> {
        let now = self.history.version;
        if ask.version().is_some_and(|version| version > now) {
            return Err(Fault::TooLarge);
        }
        if !stale {
            return Ok(now);
        }
        let version = self.rng.u64(self.history.compacted.max(100)..=now);
        let bound = ask.version().unwrap_or(0);
        // Half of the lagging servers are honest about it.
        if bound > version && self.rng.bool() { Err(Fault::TooLarge) } else { Ok(version) }
    }
}
