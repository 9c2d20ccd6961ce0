//! Lists: their pages and versions.

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
use super::request::{Ask, Refusal, failure, json_answer, respond, status, status_answer};
use super::selection::Selection;
use super::server::{Answer, Server, State};

/// The beginning of a page.
struct Start {
    version: u64,
    /// The position after which it begins; `None` for the first object.
    after: Option<String>,
    /// True if all remaining objects are returned, whatever limit was requested.
    whole: bool,
}

pub(super) fn list(server: &Server, ask: &Ask, stale: bool) -> Response<Answer> {
    let selection = match Selection::of(ask) {
        Ok(selection) => selection,
        Err(refusal) => return *refusal,
    };
    let mut state = server.lock();
    let rates = state.faults.rates;
    let fault = state.inject(&Fault::LIST, &ask.moment, rates.0);
    let is_one = ask.namespace.is_some() && selection.is_of_one();
    let start = match state.start(ask, is_one, fault, stale) {
        Ok(start) => start,
        Err(refusal) => return *refusal,
    };
    // As on an API server, 0 means no limit.
    let limit = ask.get("limit").and_then(|limit| limit.parse().ok());
    let limit = limit.filter(|limit| *limit > 0 && !start.whole);
    let limit = limit.map_or(usize::MAX, |limit: usize| limit.min(state.page));
    let all = state.history.at(&ask.resource, ask.namespace.as_deref(), start.version);
    let mut rest = all
        .skip_while(|(id, _)| start.after.as_ref().is_some_and(|after| place(ask, id) <= *after));
    let page: Vec<(&Id, Arc<Value>)> =
        rest.by_ref().filter(|(_, object)| selection.matches(object)).take(limit).collect();
    let mut meta = json!({ "resourceVersion": start.version.to_string() });
    // It is unknown whether the selector matches any remaining object, except in a list of one object by its name.
    let remaining = rest.count() * usize::from(!is_one);
    if let (true, Some((last, _))) = (remaining > 0, page.last()) {
        meta["continue"] = json!(token(start.version, &place(ask, last)));
        if selection.is_all() {
            meta["remainingItemCount"] = json!(remaining);
        }
    }
    let items: Vec<&Value> = page.iter().map(|(_, object)| &**object).collect();
    let body = json!({ "kind": "List", "apiVersion": "v1", "metadata": meta, "items": items });
    send(&mut state, body.to_string().into_bytes(), fault == Some(Fault::Cut))
}

fn send(state: &mut State, mut bytes: Vec<u8>, cut: bool) -> Response<Answer> {
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

/// Returns an object's position in the list.
fn place(ask: &Ask, id: &Id) -> String {
    match ask.namespace {
        Some(_) => id.name.clone(),
        None => format!("{}/{}", id.namespace, id.name),
    }
}

/// Returns a continue token. Version 0 continues with the state at that time.
fn token(version: u64, after: &str) -> String {
    format!("{version}|{after}")
}

/// Returns the refusal of a list whose parameters are invalid in any state.
fn refusal(ask: &Ask) -> Option<Response<Answer>> {
    let (version, how) = (ask.get("resourceVersion"), ask.get("resourceVersionMatch"));
    let invalid = match how {
        None => false,
        Some("Exact") => version.is_none_or(|version| version == "0"),
        Some("NotOlderThan") => version.is_none(),
        Some(_) => true,
    };
    let continues = ask.get("continue").is_some();
    if invalid || how.is_some() && continues {
        return Some(status_answer(422, "Invalid", "ListOptions is invalid"));
    }
    (continues && ask.version().is_some()).then(|| {
        let why = "specifying resource version is not allowed when using continue";
        status_answer(400, "BadRequest", why)
    })
}

/// Splits bytes at random positions, as a network does.
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
    /// Returns the beginning of a page. `is_one`: one object is listed by its name, so a limit has no meaning.
    fn start(
        &mut self,
        ask: &Ask,
        is_one: bool,
        fault: Option<Fault>,
        stale: bool,
    ) -> Result<Start, Refusal> {
        if let Some(refusal) = refusal(ask) {
            return Err(refusal.into());
        }
        if let Some(token) = ask.get("continue") {
            return self.go_on(token, fault == Some(Fault::GoneOnContinue));
        }
        let exact = match ask.get("resourceVersionMatch") {
            Some(how) => how == "Exact",
            None => ask.get("limit").is_some() && !is_one,
        };
        let whole = ask.get("resourceVersion") == Some("0");
        match ask.version() {
            Some(version) if exact && version <= self.history.version => {
                if version < self.history.compacted {
                    return Err(failure(Fault::Gone).into());
                }
                Ok(Start { version, after: None, whole })
            }
            _ => {
                let version = self.visible(ask, stale).map_err(|fault| Box::new(failure(fault)))?;
                Ok(Start { version, after: None, whole })
            }
        }
    }

    fn go_on(&self, continued: &str, gone: bool) -> Result<Start, Refusal> {
        let Some((version, after)) = continued.split_once('|') else {
            return Err(status_answer(400, "BadRequest", "invalid continue token").into());
        };
        let version = match version.parse().unwrap_or(0) {
            0 => self.history.version,
            version if version < self.history.compacted || gone => {
                let mut gone = status(410, "Expired", "the provided continue token is too old");
                gone["metadata"]["continue"] = json!(token(0, after));
                return Err(json_answer(410, &gone).into());
            }
            version => version,
        };
        Ok(Start { version, after: Some(after.to_owned()), whole: false })
    }

    /// Returns the version that a list or streaming list shows. A stale server returns an older version, or reports
    /// that it lags.
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
        // A lagging server reports this in half of the cases.
        if bound > version && self.rng.bool() { Err(Fault::TooLarge) } else { Ok(version) }
    }
}
