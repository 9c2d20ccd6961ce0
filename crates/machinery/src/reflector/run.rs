//! The loop that executes the state machine's actions and reports the results to it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::action::{Action, Input};
use super::failure::Failure;
use super::feed::StoreFeed;
use super::observer::Observer;
use super::regressed::ResourceVersionRegressed;
use super::report::Report;
use super::state::HealthHandle;
use super::step::Machine;
use crate::client::{Client, Error, Page, PageEnd, Scope, Watch, WatchEvent, WatchFrom};
use crate::object::{Kind, Resource};
use crate::shutdown::Shutdown;
use crate::store::Writer;

type Pending<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// Keeps one scope of one kind in the store synchronized with the server.
pub struct Reflector<V> {
    client: Client,
    scope: Scope,
    machine: Machine,
    /// Shared with the list in progress, which adds its items as they are decoded.
    feed: Arc<Mutex<StoreFeed<V>>>,
    report: Report,
    observer: Arc<dyn Observer>,
    refresh: Refresh,
    /// The refresh that the next complete list serves.
    serving: u64,
}

/// Requests lists of the current state. Clones belong to the same reflector.
#[derive(Debug, Clone)]
pub struct Refresh {
    wanted: watch::Sender<u64>,
    done: watch::Sender<u64>,
}

/// The operation in progress.
enum Operation<V> {
    Nothing,
    Listing(Pending<PageEnd>),
    Opening(Pending<Watch<V>>),
    Watching(Open<V>),
    /// The reflector has ended.
    Over(ResourceVersionRegressed),
}

/// An accepted watch. Its end is reported when it is dropped.
struct Open<V> {
    watch: Watch<V>,
    timing: Timing,
}

/// Duration of an open watch, and number of objects that arrive over it.
struct Timing {
    kind: Kind,
    since: Instant,
    items: u64,
    observer: Arc<dyn Observer>,
}

/// The result of the operation in progress.
enum Completion<V> {
    Page(PageEnd),
    Open(Watch<V>),
    Event(WatchEvent<V>),
    Ended,
    Failed(Error),
}

impl<V: Resource> Reflector<V> {
    /// Creates a reflector without starting it.
    pub fn new(
        client: Client,
        scope: Scope,
        writer: Writer<V>,
        observer: Arc<dyn Observer>,
    ) -> Reflector<V> {
        let now = Instant::now();
        let health = HealthHandle::new(now);
        let kind = V::kind();
        let feed = StoreFeed::new(writer, observer.clone(), health.clone(), kind);
        let hints = client.identity().remedies();
        let report = Report::new(kind, scope.namespace.clone(), health, hints);
        Reflector {
            client,
            scope,
            machine: Machine::new(fastrand::Rng::new(), now),
            feed: Arc::new(Mutex::new(feed)),
            report,
            observer,
            refresh: Refresh { wanted: watch::Sender::new(0), done: watch::Sender::new(0) },
            serving: 0,
        }
    }

    /// Returns a handle that requests a list of the current state.
    pub fn refresh(&self) -> Refresh {
        self.refresh.clone()
    }

    /// Returns a handle that reads its health at any time.
    pub fn health(&self) -> HealthHandle {
        self.report.handle()
    }

    /// Lists and watches until shutdown.
    ///
    /// # Errors
    /// If the API server's data went back in time.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), ResourceVersionRegressed> {
        let client = self.client.clone();
        tokio::select! {
            biased;
            ended = self.follow(shutdown) => ended,
            // If all callers wait, no call notices that the server is back.
            never = client.probe_while_down() => match never {},
        }
    }

    async fn follow(mut self, shutdown: Shutdown) -> Result<(), ResourceVersionRegressed> {
        let mut operation = Operation::Nothing;
        let requested = shutdown.requested();
        tokio::pin!(requested);
        let mut reconnected = self.client.connectivity().reconnected();
        let mut refresh = self.refresh.wanted.subscribe();
        if *refresh.borrow() > 0 {
            refresh.mark_changed();
        }
        let timer = tokio::time::sleep(std::time::Duration::ZERO);
        tokio::pin!(timer);
        self.step(Input::Start, &mut operation);
        loop {
            if let Operation::Over(regressed) = operation {
                return Err(regressed);
            }
            // The deadline moves with every event. The timer is reset only to fire earlier, and checked again when
            // it fires.
            let deadline = self.machine.deadline();
            if deadline.is_some_and(|deadline| deadline < timer.deadline() || timer.is_elapsed()) {
                timer.as_mut().reset(deadline.unwrap_or_else(Instant::now));
            }
            tokio::select! {
                biased;
                () = &mut requested => return Ok(()),
                () = &mut timer, if deadline.is_some() => {
                    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                        self.step(Input::Deadline, &mut operation);
                    }
                }
                () = reconnected.next() => self.step(Input::Returned, &mut operation),
                // The sender is in `self`, so this cannot fail.
                _ = refresh.changed() => {
                    self.serving = *refresh.borrow_and_update();
                    self.step(Input::Refresh, &mut operation);
                }
                completion = operation.next() => self.complete(completion, &mut operation),
            }
            // Yields, because a stream can always have something ready.
            tokio::task::coop::consume_budget().await;
        }
    }

    fn complete(&mut self, completion: Completion<V>, operation: &mut Operation<V>) {
        if !matches!(completion, Completion::Event(_)) {
            // A completed future must not be polled again.
            *operation = Operation::Nothing;
        }
        let input = match completion {
            Completion::Event(event) => return self.event(event, operation),
            Completion::Page(PageEnd { version, continue_token }) => {
                Input::Page { version, continue_token }
            }
            Completion::Open(watch) => {
                let (kind, observer) = (V::kind(), self.observer.clone());
                observer.watch_opened(&kind);
                let timing = Timing { kind, since: Instant::now(), items: 0, observer };
                *operation = Operation::Watching(Open { watch, timing });
                Input::Opened
            }
            Completion::Ended => Input::Ended,
            Completion::Failed(error) => Input::Failed(Failure::from(&error)),
        };
        self.step(input, operation);
    }

    fn event(&mut self, event: WatchEvent<V>, operation: &mut Operation<V>) {
        let version = match &event {
            WatchEvent::Added(object)
            | WatchEvent::Modified(object)
            | WatchEvent::Deleted(object) => object.meta().version,
            WatchEvent::Undecodable(bad) => bad.version,
            WatchEvent::Bookmark { version, initial_events_end } => {
                let (version, initial_events_end) = (version.clone(), *initial_events_end);
                if !self.machine.is_staging() {
                    self.feed.lock().apply(event);
                }
                return self.step(Input::Bookmark { version, initial_events_end }, operation);
            }
        };
        if let Operation::Watching(open) = operation {
            open.timing.items += 1;
        }
        if self.machine.is_staging() {
            self.feed.lock().stage(event);
        } else if self.machine.is_news(version) || event.is_deletion() {
            self.feed.lock().apply(event);
        } else if let WatchEvent::Added(object) | WatchEvent::Modified(object) = &event
            && !self.feed.lock().holds(object.key())
        {
            return self.step(Input::OutOfOrder(version), operation);
        }
        self.step(Input::Event(version), operation);
    }

    fn step(&mut self, input: Input, operation: &mut Operation<V>) {
        let now = Instant::now();
        for action in self.machine.step(input, now) {
            self.perform(action, operation);
            if matches!(operation, Operation::Over(_)) {
                break;
            }
        }
        self.report.heard(self.machine.heard(), self.machine.held());
    }

    fn perform(&mut self, action: Action, operation: &mut Operation<V>) {
        match action {
            Action::Begin(reason) => {
                // Otherwise a list in progress would keep staging items.
                *operation = Operation::Nothing;
                self.feed.lock().begin(reason);
            }
            Action::List(page) => *operation = Operation::Listing(self.list(page)),
            Action::AskVersion => *operation = Operation::Listing(self.ask_version()),
            Action::Watch(from) => *operation = Operation::Opening(self.watch(from)),
            Action::Wait => *operation = Operation::Nothing,
            Action::Commit(at) => {
                self.feed.lock().commit(at.number());
                self.refresh.done.send_replace(self.serving);
            }
            Action::Abandon => {
                *operation = Operation::Nothing;
                self.feed.lock().abandon();
            }
            Action::State { state, since, why } => self.report.state(state, since, why),
            Action::ShortWatch => self.observer.short_watch(&V::kind()),
            Action::End(regressed) => *operation = Operation::Over(regressed),
        }
    }

    fn ask_version(&self) -> Pending<PageEnd> {
        let (client, page) = (self.client.clone(), Page { limit: Some(1), ..Page::default() });
        let scope = Scope { metadata_only: true, ..self.scope.clone() };
        Box::pin(async move { client.list::<V>(&scope, &page, drop).await })
    }

    fn list(&self, page: Page) -> Pending<PageEnd> {
        let (client, scope) = (self.client.clone(), self.scope.clone());
        let feed = self.feed.clone();
        Box::pin(
            async move { client.list::<V>(&scope, &page, |item| feed.lock().listed(item)).await },
        )
    }

    fn watch(&self, from: WatchFrom) -> Pending<Watch<V>> {
        let (client, scope) = (self.client.clone(), self.scope.clone());
        Box::pin(async move { client.watch::<V>(&scope, &from).await })
    }
}

// === impl Refresh ===

impl Refresh {
    /// Requests a list of the current state, unless one was requested for this `term` or a later one.
    pub fn request(&self, term: u64) {
        self.wanted.send_if_modified(|wanted| {
            let is_later = term > *wanted;
            *wanted = term.max(*wanted);
            is_later
        });
    }

    /// Completes when the list requested for `term` is stored and reported.
    pub fn done(&self, term: u64) -> impl Future<Output = ()> + Send + use<> {
        let mut done = self.done.subscribe();
        async move {
            if done.wait_for(|done| *done >= term).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Drop for Timing {
    fn drop(&mut self) {
        self.observer.watch_ended(&self.kind, self.since.elapsed(), self.items);
    }
}

impl<V: Resource> Operation<V> {
    /// Waits for the result. Cancel-safe, as its parts are.
    async fn next(&mut self) -> Completion<V> {
        match self {
            Operation::Nothing | Operation::Over(_) => std::future::pending().await,
            Operation::Listing(page) => {
                page.await.map_or_else(Completion::Failed, Completion::Page)
            }
            Operation::Opening(watch) => {
                watch.await.map_or_else(Completion::Failed, Completion::Open)
            }
            Operation::Watching(open) => match open.watch.next().await {
                Some(Ok(event)) => Completion::Event(event),
                Some(Err(error)) => Completion::Failed(error),
                None => Completion::Ended,
            },
        }
    }
}
