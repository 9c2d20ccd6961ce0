//! The loop that lists and watches, as client-go's `ListAndWatch`.

use std::convert::Infallible;
use std::ops::Range;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::failure::{Backoff, Failure, FailureClass};
use super::health::{HealthHandle, HealthReporter, State};
use super::sink::StoreSink;
use super::{
    GRACE, IDLE, NOT_SERVED, PAGE, Position, RETURNED, REWOUND, ResourceVersionRegressed, SHORT,
    STREAM_PER_OBJECT, STREAM_PROGRESS, STREAM_RETRY, STREAM_TIMEOUT, STREAM_TOTAL, STREAMS_CUT,
    STUCK, TIMEOUT,
};
use crate::client::{Client, InvalidObject, Page, Scope, Watch, WatchEvent, WatchFrom};
use crate::instruments::{
    LIST_FAILURES, LIST_ITEMS, LIST_SECONDS, LISTS, SHORT_WATCHES, UNDECODABLE, WATCH_ITEMS,
    WATCH_SECONDS, WATCHES,
};
use crate::object::{Resource, ResourceVersion};
use crate::shutdown::Shutdown;
use crate::store::Writer;

/// Keeps one scope of one kind in the store synchronized with the server.
pub struct Reflector<V> {
    client: Client,
    scope: Scope,
    sink: StoreSink<V>,
    health: HealthReporter,
    relist: Relist,
    /// The term for which the next complete list is requested.
    term: u64,
    /// A list of the current state was requested and is not complete. If it fails, the watch continues, and the list
    /// is tried again at this time.
    due: Option<Instant>,
    /// The version up to which the view is complete; it only grows. `None` before the first complete list.
    held: Option<Position>,
    /// Last time at which the view was known to be current.
    heard: Instant,
    /// True if the next list has no lower bound: the server refused the bound, or the response must come from etcd
    /// instead of a lagging watch cache. The response is still refused if it is older than `held`.
    unbounded: bool,
    /// The end of the time for which the server is assumed to lack streaming lists.
    paged_until: Option<Instant>,
    failures: Failures,
    backoff: Backoff,
    wait: Option<Wait>,
}

/// Requests lists of the current state. Clones belong to the same reflector.
#[derive(Debug, Clone)]
pub struct Relist {
    requested: watch::Sender<u64>,
    completed: watch::Sender<u64>,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    List,
    Watch,
}

/// A wait after a failure.
#[derive(Debug, Clone, Copy)]
struct Wait {
    until: Instant,
    /// The server requested it, so nothing shortens it.
    is_requested: bool,
}

/// Failures since a watch last made progress.
#[derive(Debug, Default)]
struct Failures {
    /// Number of streaming lists that broke off, failed or timed out since the last complete list.
    streams_cut: u32,
    /// Number of lists without a lower bound, since the last complete list, that were older than `held`.
    regressed: u32,
    /// Number of requests that delivered nothing and perhaps never will: internal errors, immediate ends, timeouts,
    /// "too large resource version".
    stuck: u32,
    /// A list followed an expired version.
    relisted: bool,
}

/// An accepted watch. Its end is reported when it is dropped.
struct Open<V: Resource> {
    watch: Watch<V>,
    began: Instant,
    /// Number of objects that arrived.
    items: u64,
    /// True if this watch has moved `held`.
    progressed: bool,
}

impl<V: Resource> Reflector<V> {
    /// Creates a reflector without starting it.
    pub fn new(client: Client, scope: Scope, writer: Writer<V>) -> Reflector<V> {
        export(&V::kind().resource());
        let now = Instant::now();
        let health = HealthHandle::new(now);
        let hints = client.identity().hints();
        Reflector {
            sink: StoreSink::new(writer, health.clone()),
            health: HealthReporter::new(V::kind(), scope.namespace.clone(), health, hints),
            client,
            scope,
            relist: Relist { requested: watch::Sender::new(0), completed: watch::Sender::new(0) },
            term: 0,
            due: None,
            held: None,
            heard: now,
            unbounded: false,
            paged_until: None,
            failures: Failures::default(),
            backoff: Backoff::default(),
            wait: None,
        }
    }

    /// Returns a handle that requests a list of the current state.
    pub fn relist(&self) -> Relist {
        self.relist.clone()
    }

    /// Returns a handle that reads its health at any time.
    pub fn health(&self) -> HealthHandle {
        self.health.health.clone()
    }

    /// Lists and watches until shutdown.
    ///
    /// # Errors
    /// If the API server's data went back in time.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<(), ResourceVersionRegressed> {
        let client = self.client.clone();
        tokio::select! {
            biased;
            () = shutdown.requested() => Ok(()),
            ended = self.list_and_watch() => ended.map(|never| match never {}),
            // If all callers wait, no call notices that the server is back.
            never = client.probe_while_down() => match never {},
        }
    }

    async fn list_and_watch(&mut self) -> Result<Infallible, ResourceVersionRegressed> {
        self.health.enter(State::Listing, None);
        let mut wanted = self.relist.requested.subscribe();
        // One can be wanted since before the start.
        wanted.mark_changed();
        let mut next = Next::List;
        loop {
            next = tokio::select! {
                biased;
                // The sender is in `self`, so this cannot fail.
                _ = wanted.changed() => {
                    self.list_for(*wanted.borrow_and_update());
                    Next::List
                }
                next = self.step(next) => next?,
            };
        }
    }

    /// Requests the newest state, immediately or after the wait that the server requested. Every step can be dropped for
    /// it: the next list discards an unfinished one.
    fn list_for(&mut self, term: u64) {
        self.term = term;
        self.unbounded = true;
        self.due = Some(Instant::now());
        self.wait = self.wait.filter(|wait| wait.is_requested);
    }

    async fn step(&mut self, next: Next) -> Result<Next, ResourceVersionRegressed> {
        self.wait().await;
        let watched = if next == Next::Watch && !self.is_due() {
            self.watch().await
        } else {
            match self.list().await {
                Ok(None) => return Ok(Next::Watch),
                // The same stream continues with changes.
                Ok(Some(stream)) => self.follow(stream).await,
                Err(failure) => return self.list_failed(failure),
            }
        };
        Ok(watched.unwrap_or_else(|failure| self.watch_failed(failure)))
    }

    /// Returns whether a requested list must begin.
    fn is_due(&self) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
    }

    // === Lists ===

    /// Lists the kind, as a stream if the server supports it. The stream continues as a watch.
    async fn list(&mut self) -> Result<Option<Open<V>>, Failure> {
        if self.paged_until.is_none_or(|until| until <= Instant::now()) {
            let failure = match self.list_stream().await {
                Ok(stream) => return Ok(Some(stream)),
                Err(failure) => failure,
            };
            if !self.falls_back(&failure) {
                return Err(failure);
            }
            self.sink.abandon();
        }
        self.list_pages().await?;
        Ok(None)
    }

    async fn list_stream(&mut self) -> Result<Open<V>, Failure> {
        self.sink.begin();
        let timeout = random(STREAM_TIMEOUT);
        let from = WatchFrom { version: self.bound(), initial_events: true, timeout };
        let mut stream = self.open(&from).await?;
        let version = self.stage(&mut stream).await?;
        self.commit(version)?;
        stream.progressed = true;
        Ok(stream)
    }

    /// Stages the objects of a streaming list. Returns the version of the bookmark that completes it.
    async fn stage(&mut self, stream: &mut Open<V>) -> Result<String, Failure> {
        let mut end_by = stream.began + STREAM_TOTAL;
        let mut progress_by = stream.began + STREAM_PROGRESS;
        loop {
            let arrived = timeout_at(progress_by.min(end_by), stream.watch.next()).await;
            let now = Instant::now();
            let event = match arrived {
                Ok(Some(Ok(event))) if now < end_by => event,
                Ok(Some(Err(error))) => return Err(Failure::of_stream(&error)),
                Ok(None) => {
                    let why = "the streaming list ended early";
                    return Err(Failure::new(FailureClass::Internal, why));
                }
                _ => {
                    let why = "the streaming list takes too long";
                    return Err(Failure::new(FailureClass::Refused, why));
                }
            };
            match event {
                WatchEvent::Bookmark { version, initial_events_end: true } => return Ok(version),
                // Other bookmarks are no progress: they carry no object.
                WatchEvent::Bookmark { .. } => {}
                event => {
                    stream.items += 1;
                    self.sink.stage(event);
                    progress_by = now + STREAM_PROGRESS;
                    end_by += STREAM_PER_OBJECT;
                }
            }
            // Yields, because a stream can always have something ready.
            consume_budget().await;
        }
    }

    /// Returns whether pages are requested instead of the stream that failed, now and for a while.
    fn falls_back(&mut self, failure: &Failure) -> bool {
        let is_cut = match failure.class {
            // This is the response of an API server whose etcd is too old for streaming lists, or whose watch cache
            // lags. Pages can still work, also through a proxy that delays the beginning of a stream.
            FailureClass::Internal | FailureClass::ServerBehind | FailureClass::Unanswered => true,
            // Not accepted: the server is down, too busy, or has no watch cache yet. This is temporary, and pages would
            // cost the server more.
            FailureClass::Transient | FailureClass::OutOfStep => false,
            FailureClass::Expired
            | FailureClass::Refused
            | FailureClass::Forbidden
            | FailureClass::NotServed => false,
        };
        self.failures.streams_cut += u32::from(is_cut);
        if failure.class != FailureClass::Refused && self.failures.streams_cut < STREAMS_CUT {
            return false;
        }
        self.paged_until = Some(Instant::now() + STREAM_RETRY);
        // Otherwise the pages wait for as long as the server requested.
        failure.retry_after.is_none()
    }

    async fn list_pages(&mut self) -> Result<(), Failure> {
        let mut page = Page { limit: Some(PAGE), ..Page::default() };
        match self.list_from(&mut page).await {
            // A restart at page 1 could expire again indefinitely: request everything in one page.
            Err(failure)
                if failure.class == FailureClass::Expired && page.continue_token.is_some() =>
            {
                self.sink.abandon();
                self.list_from(&mut Page::default()).await
            }
            listed => listed,
        }
    }

    /// Requests pages from the first one on. The list has the version of its first page.
    async fn list_from(&mut self, page: &mut Page) -> Result<(), Failure> {
        self.sink.begin();
        page.not_older_than = self.bound();
        let mut version = None;
        loop {
            let sink = &mut self.sink;
            let listed = self.client.list::<V>(&self.scope, page, |item| sink.listed(item)).await;
            let end = listed.map_err(|error| Failure::from(&error))?;
            let version = version.get_or_insert(end.version);
            if end.continue_token.is_none() {
                return self.commit(std::mem::take(version));
            }
            // A continue token contains its version and allows no other.
            page.continue_token = end.continue_token;
            // Yields, because a server in memory responds immediately.
            consume_budget().await;
        }
    }

    /// The version that a list must reach.
    fn bound(&self) -> Option<String> {
        self.held.as_ref().filter(|_| !self.unbounded).map(Position::to_string)
    }

    /// Completes the list at `version`.
    fn commit(&mut self, version: String) -> Result<(), Failure> {
        let Some(at) = Position::parse(version) else {
            let why = "the API server sent a list without a resourceVersion";
            return Err(Failure::new(FailureClass::Transient, why));
        };
        if let Some(held) = self.held.as_ref().filter(|held| at.is_older_than(held)) {
            let why = format!(
                "the API server answered with version {at}, older than {held} which is held"
            );
            self.failures.regressed += u32::from(self.unbounded);
            let is_regressed = self.failures.regressed >= REWOUND;
            let regressed = is_regressed
                .then(|| ResourceVersionRegressed { held: held.to_string(), at: at.to_string() });
            // The server ignores the bound, so the next list has none.
            self.unbounded = true;
            return Err(Failure { regressed, ..Failure::new(FailureClass::OutOfStep, why) });
        }
        self.sink.commit(at.number());
        self.held = Some(at);
        self.due = None;
        self.unbounded = false;
        // The next watch without events leads to a list again.
        self.failures.stuck = self.failures.stuck.min(STUCK - 1);
        (self.failures.streams_cut, self.failures.regressed) = (0, 0);
        self.heard();
        self.relist.completed.send_replace(self.term);
        Ok(())
    }

    fn list_failed(&mut self, failure: Failure) -> Result<Next, ResourceVersionRegressed> {
        self.sink.abandon();
        let can_watch = match failure.class {
            FailureClass::Expired | FailureClass::Refused => {
                self.unbounded = true;
                false
            }
            FailureClass::Forbidden | FailureClass::NotServed | FailureClass::OutOfStep => false,
            FailureClass::ServerBehind => {
                self.unbounded |= self.is_stuck();
                true
            }
            _ => true,
        };
        let regressed = failure.regressed.clone();
        self.back_off(failure);
        if let Some(regressed) = regressed {
            return Err(regressed);
        }
        if self.due.is_some() && can_watch && self.held.is_some() {
            // The view is complete up to `held`, and a watch from there still works.
            self.due = self.wait.take().map(|wait| wait.until);
            return Ok(Next::Watch);
        }
        Ok(Next::List)
    }

    // === Watches ===

    /// Watches from the stored version.
    async fn watch(&mut self) -> Result<Next, Failure> {
        let version = self.held.as_ref().map(Position::to_string);
        let from = WatchFrom { version, initial_events: false, timeout: random(TIMEOUT) };
        let watch = self.open(&from).await?;
        self.follow(watch).await
    }

    async fn open(&self, from: &WatchFrom) -> Result<Open<V>, Failure> {
        let opened = self.client.watch::<V>(&self.scope, from).await;
        let watch = opened.map_err(|error| Failure::from(&error))?;
        WATCHES.with([V::kind().resource()]).inc();
        let (began, items, progressed) = (Instant::now(), 0, false);
        Ok(Open { watch, began, items, progressed })
    }

    /// Applies what a watch delivers, until it ends or is silent for too long.
    async fn follow(&mut self, mut open: Open<V>) -> Result<Next, Failure> {
        // While a list is due, the view is not known to be current.
        if self.due.is_none() {
            self.health.enter(State::Live, None);
        }
        loop {
            if self.is_due() {
                return Ok(Next::List);
            }
            let silent = (self.heard + IDLE).max(open.began + GRACE);
            let deadline = self.due.map_or(silent, |due| due.min(silent));
            match timeout_at(deadline, open.watch.next()).await {
                Ok(Some(Ok(event))) => self.event(event, &mut open)?,
                Ok(Some(Err(error))) => {
                    let failure = Failure::from(&error);
                    // Proxies cut idle connections, perhaps every few seconds. If the API server is down, the next
                    // watch is not accepted, which is a failure.
                    let is_cut =
                        failure.class == FailureClass::Transient && failure.retry_after.is_none();
                    return if is_cut && open.began.elapsed() >= SHORT {
                        Ok(Next::Watch)
                    } else {
                        Err(failure)
                    };
                }
                Ok(None) if open.progressed || open.began.elapsed() >= SHORT => {
                    return Ok(Next::Watch);
                }
                Ok(None) => {
                    SHORT_WATCHES.with([V::kind().resource()]).inc();
                    let why = "the API server ends every watch immediately";
                    return Err(Failure::new(FailureClass::Internal, why));
                }
                Err(_) if deadline < silent => {}
                Err(_) => {
                    drop(open);
                    return self.ask_version().await;
                }
            }
            // Yields, because a watch can always have something ready.
            consume_budget().await;
        }
    }

    fn event(&mut self, event: WatchEvent<V>, open: &mut Open<V>) -> Result<(), Failure> {
        let version = match &event {
            WatchEvent::Added(object)
            | WatchEvent::Modified(object)
            | WatchEvent::Deleted(object) => object.meta().version,
            WatchEvent::InvalidObject(bad) => bad.version,
            WatchEvent::Bookmark { version, .. } => {
                let at = Position::parse(version.clone());
                self.sink.apply(event);
                self.refuse_the_past(at.as_ref())?;
                let moved = at.is_some_and(|at| self.advance(at));
                self.progress(moved, open);
                return Ok(());
            }
        };
        open.items += 1;
        let is_deletion = matches!(
            event,
            WatchEvent::Deleted(_) | WatchEvent::InvalidObject(InvalidObject { deleted: true, .. })
        );
        if self.is_news(version) || is_deletion {
            self.sink.apply(event);
        } else if let WatchEvent::Added(object) | WatchEvent::Modified(object) = &event
            && !self.sink.holds(object.key())
        {
            // Either it was sent before and deleted since, or it has just become visible, as OpenShift's projects do
            // for a new member. A list decides which, after a wait, because a server can repeat this.
            let why =
                format!("the watch shows an object at version {version}, which it has passed");
            return Err(Failure::new(FailureClass::OutOfStep, why));
        }
        // A version that is not a number is progress, too, but cannot be a position to continue from.
        let moved = !version.is_known() || self.advance(Position::Number(version));
        self.progress(moved, open);
        Ok(())
    }

    /// Returns whether an event at this version is new. Watches send events in order: an event that is not after `held`
    /// is a repetition. Applying it would restore an object that was deleted since. Deletions are always applied.
    fn is_news(&self, version: ResourceVersion) -> bool {
        !version.is_known() || !self.version().is_known() || version.is_newer_than(self.version())
    }

    /// Requests the server's version after a silent watch. A quiet kind without bookmarks is silent, too, and would
    /// otherwise be listed again and again. The next watch uses another connection and delivers what a dead one hid.
    async fn ask_version(&mut self) -> Result<Next, Failure> {
        if self.version().is_known() {
            let page = Page { limit: Some(1), ..Page::default() };
            let scope = Scope { metadata_only: true, ..self.scope.clone() };
            let answer = self.client.list::<V>(&scope, &page, drop).await;
            let newest = answer.map_err(|error| Failure::from(&error))?.version;
            self.refuse_the_past(Position::parse(newest).as_ref())?;
        }
        self.heard();
        Ok(Next::Watch)
    }

    /// Refuses a server that reports an older version than the stored one. The next list requests the newest: if the
    /// server lags, it catches up; otherwise the history has changed.
    fn refuse_the_past(&mut self, at: Option<&Position>) -> Result<(), Failure> {
        let (Some(at), Some(held)) = (at, &self.held) else { return Ok(()) };
        if !at.is_older_than(held) {
            return Ok(());
        }
        let why = format!("the API server is at version {at}, older than {held} which is held");
        self.unbounded = true;
        Err(Failure::new(FailureClass::OutOfStep, why))
    }

    fn watch_failed(&mut self, failure: Failure) -> Next {
        let next = match failure.class {
            // A 410 is the server's way to request a list. It is a failure only if a list did not help.
            FailureClass::Expired if !self.failures.relisted => {
                self.failures.relisted = true;
                self.health.enter(State::Stale, Some(failure.why));
                return Next::List;
            }
            FailureClass::Refused => {
                self.unbounded = true;
                Next::List
            }
            FailureClass::Expired
            | FailureClass::Forbidden
            | FailureClass::NotServed
            | FailureClass::OutOfStep => Next::List,
            FailureClass::Internal | FailureClass::Unanswered | FailureClass::ServerBehind => {
                if self.is_stuck() {
                    Next::List
                } else {
                    Next::Watch
                }
            }
            FailureClass::Transient => Next::Watch,
        };
        self.back_off(failure);
        next
    }

    /// Counts a request that delivers nothing and perhaps never will. Returns whether to try another way.
    fn is_stuck(&mut self) -> bool {
        self.failures.stuck += 1;
        self.failures.stuck >= STUCK
    }

    // === Progress and waits ===

    /// Returns the version up to which the view is complete.
    fn version(&self) -> ResourceVersion {
        self.held.as_ref().map_or(ResourceVersion::UNKNOWN, Position::number)
    }

    /// Moves `held` forward to `at`, never back. Returns whether it moved.
    fn advance(&mut self, at: Position) -> bool {
        let moved = match &self.held {
            Some(held) if held.number().is_known() && at.number().is_known() => {
                held.is_older_than(&at)
            }
            Some(held) => *held != at,
            None => true,
        };
        if moved {
            self.held = Some(at);
        }
        moved
    }

    /// Records that the watch has delivered something, and whether that `moved` the version.
    fn progress(&mut self, moved: bool, open: &mut Open<V>) {
        self.heard();
        open.progressed |= moved;
        // While a list is due, its failures count, although the watch works.
        if moved && self.due.is_none() {
            self.failures = Failures::default();
            self.backoff.start_over();
        }
    }

    /// Records that the view is current.
    fn heard(&mut self) {
        self.heard = Instant::now();
        self.health.heard(self.heard, self.version());
    }

    fn back_off(&mut self, failure: Failure) {
        let now = Instant::now();
        let until = match (failure.class, failure.retry_after) {
            (FailureClass::NotServed, None) => {
                self.backoff.start_over();
                now + NOT_SERVED.mul_f64(1.0 + fastrand::f64())
            }
            _ => self.backoff.after(&failure, now),
        };
        self.wait = Some(Wait { until, is_requested: failure.retry_after.is_some() });
        let state = match (failure.class, self.health.state()) {
            (FailureClass::Forbidden, _) => State::Forbidden,
            (FailureClass::NotServed, _) => State::NotServed,
            // Other failures do not hide a problem that needs manual action.
            (_, state @ (State::Forbidden | State::NotServed)) => state,
            _ if self.held.is_some() => State::Stale,
            _ => State::Listing,
        };
        self.health.enter(state, Some(failure.why));
    }

    /// Waits after a failure. If the API server was down and returns, the cause of the failure is over: the wait is
    /// shortened, unless the server requested it, and the next failure counts as the first.
    async fn wait(&mut self) {
        let mut recovered = self.client.api_server_health().recovered();
        while let Some(wait) = &mut self.wait {
            tokio::select! {
                biased;
                () = sleep_until(wait.until) => self.wait = None,
                () = recovered.next(), if !wait.is_requested => {
                    let now = Instant::now();
                    let soon = RETURNED.mul_f64(fastrand::f64());
                    wait.until = now + soon.min(wait.until - now);
                    self.backoff.start_over();
                }
            }
        }
    }
}

/// Exports the metrics of a kind as 0 instead of omitting them.
fn export(resource: &str) {
    for series in [&LISTS, &WATCHES, &SHORT_WATCHES, &LIST_FAILURES, &UNDECODABLE] {
        drop(series.with([resource.to_owned()]));
    }
    for series in [&LIST_ITEMS, &WATCH_ITEMS, &LIST_SECONDS, &WATCH_SECONDS] {
        drop(series.with([resource.to_owned()]));
    }
}

fn random(seconds: Range<u64>) -> Duration {
    Duration::from_secs(fastrand::u64(seconds))
}

opaque!(Reflector<V>);

// === impl Relist ===

impl Relist {
    /// Requests a list of the current state, unless one was requested for this `term` or a later one.
    pub fn request(&self, term: u64) {
        self.requested.send_if_modified(|wanted| {
            let is_later = term > *wanted;
            *wanted = term.max(*wanted);
            is_later
        });
    }

    /// Completes when the list requested for `term` is stored and reported.
    pub fn done(&self, term: u64) -> impl Future<Output = ()> + Send + use<> {
        let mut done = self.completed.subscribe();
        async move {
            if done.wait_for(|done| *done >= term).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl<V: Resource> Drop for Open<V> {
    fn drop(&mut self) {
        let resource = V::kind().resource();
        WATCH_SECONDS.with([resource.clone()]).observe(self.began.elapsed().as_secs_f64());
        WATCH_ITEMS.with([resource]).observe(self.items as f64);
    }
}

#[cfg(test)]
mod tests;
