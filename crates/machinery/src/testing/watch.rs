//! A watch: its frames and its end.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::fault::Fault;
use super::history::Change;
use super::list::torn;
use super::request::{Ask, failure, respond, status, status_answer, too_large};
use super::selection::Selection;
use super::server::{Answer, Server};

/// Interval of bookmarks; about a minute, as in kube-apiserver.
const BOOKMARKS: Duration = Duration::from_secs(60);

/// Maximum duration of a watch.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

pub(super) struct Watching {
    server: Server,
    ask: Ask,
    selection: Selection,
    /// Number of changes that it has processed.
    seen: u64,
    /// Everything up to this version was sent or is in `queue`.
    sent: u64,
    queue: VecDeque<Bytes>,
    /// For a streaming list, the version up to which everything is sent before its end bookmark.
    initial_until: Option<u64>,
    end_bookmark_comes: bool,
    next_bookmark: Instant,
    ends_at: Instant,
    then: Then,
}

/// Continuation of the stream after the queue.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    More,
    Silence,
    End,
    Break,
}

impl Watching {
    pub(super) fn begin(server: &Server, ask: Ask, stale: bool) -> Response<Answer> {
        let fault = {
            let mut state = server.lock();
            let rate = state.faults.rates.0;
            state.inject(&Fault::WATCH, &ask.moment, rate)
        };
        let selection = match Selection::of(&ask) {
            Ok(selection) => selection,
            Err(refusal) => return *refusal,
        };
        if let Some(refusal) = refusal(&ask) {
            return refusal;
        }
        let mut watching = match Watching::open(server, ask, selection, stale) {
            Ok(watching) => watching,
            Err(fault) => return failure(fault),
        };
        match fault {
            Some(Fault::NoEndBookmark) => watching.end_bookmark_comes = false,
            Some(Fault::NoStreaming) if watching.initial_until.is_some() => {
                return failure(Fault::NoStreaming);
            }
            Some(Fault::Close) => watching.then = Then::End,
            Some(Fault::Replay) if watching.initial_until.is_none() => {
                let mut state = server.lock();
                let from = state.window.max(100).min(watching.sent);
                watching.sent = state.rng.u64(from..=watching.sent);
            }
            _ => {}
        }
        let frames = futures::stream::unfold(watching, |mut watching| async {
            let frame = watching.next().await?;
            Some((frame.map(Frame::data), watching))
        });
        respond(200, StreamBody::new(frames).boxed_unsync())
    }

    fn open(
        server: &Server,
        ask: Ask,
        selection: Selection,
        stale: bool,
    ) -> Result<Watching, Fault> {
        let seconds = ask.get("timeoutSeconds").and_then(|s| s.parse().ok()).unwrap_or(1800);
        let seconds = u64::min(seconds, LONGEST.as_secs());
        let now = Instant::now();
        let mut watching = Watching {
            seen: server.seen(),
            server: server.clone(),
            sent: ask.version().unwrap_or(0),
            ask,
            selection,
            queue: VecDeque::new(),
            initial_until: None,
            end_bookmark_comes: true,
            next_bookmark: now + BOOKMARKS,
            ends_at: now + Duration::from_secs(seconds),
            then: Then::More,
        };
        if watching.ask.is("sendInitialEvents") || watching.ask.version().is_none() {
            watching.initial(stale)?;
        } else if watching.sent < server.lock().window {
            let mut state = server.lock();
            if state.varies && state.rng.bool() {
                return Err(Fault::Gone);
            }
            drop(state);
            watching.error(410, "Expired", "too old resource version");
        }
        Ok(watching)
    }

    /// Begins a streaming list with the objects, at a version that can be older than the promised one. A watch without
    /// a version also begins with the objects, even if the server does not support streaming lists.
    fn initial(&mut self, stale: bool) -> Result<(), Fault> {
        let streams = self.ask.is("sendInitialEvents");
        let bookmarks = self.ask.is("allowWatchBookmarks");
        let mut state = self.server.lock();
        if streams && !state.streaming {
            return Err(Fault::NoStreaming);
        }
        if streams && state.streams_break {
            drop(state);
            self.error(500, "InternalError", "an internal error");
            return Ok(());
        }
        let until = match state.visible(&self.ask, stale) {
            Ok(until) => until,
            Err(Fault::TooLarge) if !state.varies || state.rng.bool() => {
                drop(state);
                self.end_with(&too_large());
                return Ok(());
            }
            Err(fault) => return Err(fault),
        };
        let oldest = state.window.max(state.history.compacted).max(100).min(until);
        let exact = !state.varies || state.rng.bool();
        let snapshot = if exact { until } else { state.rng.u64(oldest..=until) };
        let objects: Vec<_> = state
            .history
            .at(&self.ask.resource, self.ask.namespace.as_deref(), snapshot)
            .map(|(_, object)| object)
            .filter(|object| self.selection.matches(object))
            .collect();
        drop(state);
        for object in objects {
            self.frame("ADDED", &object);
        }
        self.sent = snapshot;
        self.initial_until = bookmarks.then_some(until);
        Ok(())
    }

    /// Returns the next piece of the body.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            if let Some(bytes) = self.queue.pop_front() {
                return Some(Ok(bytes));
            }
            match self.then {
                Then::More => {}
                Then::Silence => std::future::pending().await,
                Then::End => return None,
                Then::Break => {
                    self.then = Then::End;
                    return Some(Err(io::ErrorKind::ConnectionReset.into()));
                }
            }
            self.seen = self.server.seen();
            if self.fill() {
                continue;
            }
            tokio::select! {
                biased;
                () = self.server.changed_since(&mut self.seen) => {}
                () = tokio::time::sleep_until(self.next_bookmark) => self.bookmark(false),
                () = tokio::time::sleep_until(self.ends_at) => self.then = Then::End,
            }
        }
    }

    /// Queues the changes since the last call. Returns whether there were any, or the watch ended.
    fn fill(&mut self) -> bool {
        if self.server.lock().unserved.contains(&self.ask.resource) {
            self.then = Then::End;
            return true;
        }
        if self.scripted_fault() {
            return true;
        }
        let changes = self.changes();
        for change in &changes {
            if self.random_fault(change.verb, &change.object) {
                return true;
            }
            self.frame(change.verb, &change.object);
            self.sent = change.version;
        }
        if let Some(until) = self.initial_until.take() {
            self.sent = until;
            if self.end_bookmark_comes {
                self.bookmark(true);
            } else {
                // Events continue without the end bookmark, as from a cache that is never up to date.
                return !changes.is_empty();
            }
            return true;
        }
        !changes.is_empty()
    }

    /// Returns the changes to send.
    fn changes(&self) -> Vec<Change> {
        let state = self.server.lock();
        let until = self.initial_until.unwrap_or(state.history.version);
        let namespace = self.ask.namespace.as_deref();
        let changes = state.history.changes(&self.ask.resource, namespace, self.sent, until);
        changes.into_iter().filter_map(|change| self.selection.shown(change)).collect()
    }

    fn scripted_fault(&mut self) -> bool {
        // `Duplicate` is excluded because there is no event yet that could be repeated.
        let [which @ .., Fault::Duplicate] = &Fault::FRAME else { return false };
        let fault = self.server.lock().inject(which, &self.ask.moment, 0.0);
        fault.is_some_and(|fault| self.inject(fault, "MODIFIED", &Value::Null))
    }

    fn random_fault(&mut self, verb: &str, object: &Value) -> bool {
        let fault = {
            let mut state = self.server.lock();
            let rate = state.faults.rates.1;
            let event = state.faults.next("event", &self.ask.resource);
            state.inject(&Fault::FRAME, &event, rate)
        };
        let Some(fault) = fault else { return false };
        self.server.change(|_| {});
        self.inject(fault, verb, object)
    }

    /// Applies the fault. Returns whether it ends the watch.
    fn inject(&mut self, fault: Fault, verb: &str, object: &Value) -> bool {
        match fault {
            Fault::GoneInStream => self.error(410, "Expired", "too old resource version"),
            Fault::TooManyInStream => self.error(429, "TooManyRequests", "too many requests"),
            Fault::InternalInStream => self.error(500, "InternalError", "an internal error"),
            Fault::Close => self.then = Then::End,
            Fault::Silent => self.then = Then::Silence,
            Fault::Cut => {
                let line = line(verb, object);
                let at = self.server.lock().rng.usize(..line.len());
                self.queue.push_back(line.slice(..at));
                self.then = Then::Break;
            }
            _ => {
                self.frame(verb, object);
                return false;
            }
        }
        true
    }

    fn error(&mut self, code: u16, reason: &str, message: &str) {
        self.end_with(&status(code, reason, message));
    }

    fn end_with(&mut self, status: &Value) {
        self.frame("ERROR", status);
        self.then = Then::End;
    }

    fn bookmark(&mut self, ends_initial: bool) {
        if !ends_initial && !self.changes().is_empty() {
            // The changes are sent first, and the bookmark is still due.
            return;
        }
        self.next_bookmark = Instant::now() + BOOKMARKS;
        if !ends_initial && (!self.ask.is("allowWatchBookmarks") || !self.end_bookmark_comes) {
            return;
        }
        if !ends_initial {
            // The versions in between belong to other kinds.
            self.sent = self.server.version();
        }
        let version = self.sent;
        let mut meta = json!({ "resourceVersion": version.to_string() });
        if ends_initial {
            meta["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        self.frame("BOOKMARK", &json!({ "kind": "Any", "apiVersion": "v1", "metadata": meta }));
    }

    fn frame(&mut self, verb: &str, object: &Value) {
        let line = line(verb, object);
        let pieces = torn(&mut self.server.lock().rng, &line);
        self.queue.extend(pieces);
    }
}

/// Returns the refusal of a watch whose parameters are invalid in any state.
fn refusal(ask: &Ask) -> Option<Response<Answer>> {
    let how = ask.get("resourceVersionMatch");
    let fits = how == ask.get("sendInitialEvents").map(|_| "NotOlderThan");
    (!fits).then(|| status_answer(422, "Invalid", "ListOptions is invalid"))
}

fn line(verb: &str, object: &Value) -> Bytes {
    // In the order of the API server.
    let mut line = format!("{{\"type\":{},\"object\":{object}}}", json!(verb));
    line.push('\n');
    line.into()
}
