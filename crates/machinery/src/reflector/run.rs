//! The loop: does what the state machine says and tells it what happened.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::action::{Action, Input};
use super::failure::Failure;
use super::inlet::Inlet;
use super::observer::Observer;
use super::report::Report;
use super::rewound::Rewound;
use super::sink::Sink;
use super::state::HealthHandle;
use super::step::Machine;
use crate::client::{Client, Error, Event, Page, PageEnd, Scope, Watch, WatchFrom};
use crate::object::Resource;
use crate::shutdown::Shutdown;
use crate::store::Writer;

type Pending<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// Keeps one scope of one kind in the store in step with the server.
pub struct Reflector<V, S> {
    client: Client,
    scope: Scope,
    metadata_only: bool,
    machine: Machine,
    /// Shared with the list in progress, which adds its items as they are decoded.
    inlet: Arc<Mutex<Inlet<V, S>>>,
    report: Report,
    observer: Arc<dyn Observer>,
}

/// What is in progress.
enum Doing<V> {
    Nothing,
    Listing(Pending<PageEnd>),
    Opening(Pending<Watch<V>>),
    Watching(Watch<V>),
    /// The reflector is at its end.
    Over(Rewound),
}

/// What came out of it.
enum Came<V> {
    Page(PageEnd),
    Open(Watch<V>),
    Event(Event<V>),
    Ended,
    Failed(Error),
}

impl<V: Resource, S: Sink<V>> Reflector<V, S> {
    /// Creates a reflector that has not started. `metadata_only` asks the server for metadata only;
    /// `V` must then be a view that needs nothing else.
    pub fn new(
        client: Client,
        scope: Scope,
        metadata_only: bool,
        writer: Arc<Mutex<Writer<V>>>,
        sink: S,
        observer: Arc<dyn Observer>,
    ) -> Reflector<V, S> {
        let now = Instant::now();
        let health = HealthHandle::new(now);
        let kind = client.kind::<V>();
        let inlet = Inlet::new(writer, sink, observer.clone(), health.clone(), kind);
        let hints = client.identity().remedies();
        let report = Report::new(kind, scope.namespace.clone(), health, observer.clone(), hints);
        Reflector {
            client,
            scope,
            metadata_only,
            machine: Machine::new(metadata_only, fastrand::Rng::new(), now),
            inlet: Arc::new(Mutex::new(inlet)),
            report,
            observer,
        }
    }

    /// A handle that reads its health at any time.
    pub fn health(&self) -> HealthHandle {
        self.report.handle()
    }

    /// Lists and watches until the shutdown.
    ///
    /// # Errors
    /// If the API server's data went back in time.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), Rewound> {
        let client = self.client.clone();
        tokio::select! {
            biased;
            ended = self.follow(shutdown) => ended,
            // All callers may be waiting out a pause.
            never = client.look_out() => match never {},
        }
    }

    async fn follow(mut self, shutdown: Shutdown) -> Result<(), Rewound> {
        let mut doing = Doing::Nothing;
        let requested = shutdown.requested();
        tokio::pin!(requested);
        let mut returns = self.client.reach().returns();
        let timer = tokio::time::sleep(std::time::Duration::ZERO);
        tokio::pin!(timer);
        self.step(Input::Start, &mut doing);
        loop {
            if let Doing::Over(rewound) = doing {
                return Err(rewound);
            }
            // The deadline moves with every event; the timer is reset only when it must fire
            // earlier, and checked again when it fires.
            let deadline = self.machine.deadline();
            if deadline.is_some_and(|deadline| deadline < timer.deadline() || timer.is_elapsed()) {
                timer.as_mut().reset(deadline.unwrap_or_else(Instant::now));
            }
            tokio::select! {
                biased;
                () = &mut requested => return Ok(()),
                () = &mut timer, if deadline.is_some() => {
                    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                        self.step(Input::Deadline, &mut doing);
                    }
                }
                () = returns.next() => self.step(Input::Returned, &mut doing),
                came = doing.next() => self.came(came, &mut doing),
            }
            // A stream that always has something ready must not hog the thread.
            tokio::task::coop::consume_budget().await;
        }
    }

    fn came(&mut self, came: Came<V>, doing: &mut Doing<V>) {
        if !matches!(came, Came::Event(_)) {
            // What is over must not be polled again, whatever comes next.
            *doing = Doing::Nothing;
        }
        let input = match came {
            Came::Event(event) => return self.event(event, doing),
            Came::Page(PageEnd { version, continue_token }) => {
                Input::Page { version, continue_token }
            }
            Came::Open(watch) => {
                *doing = Doing::Watching(watch);
                self.observer.watch_opened(&self.client.kind::<V>());
                Input::Opened
            }
            Came::Ended => Input::Ended,
            Came::Failed(error) => Input::Failed(Failure::from(&error)),
        };
        self.step(input, doing);
    }

    fn event(&mut self, event: Event<V>, doing: &mut Doing<V>) {
        let version = match &event {
            Event::Added(object) | Event::Modified(object) | Event::Deleted(object) => {
                object.meta().version
            }
            Event::Undecodable(bad) => bad.version,
            Event::Bookmark { version, initial_events_end } => {
                let (version, initial_events_end) = (version.clone(), *initial_events_end);
                if !self.machine.is_staging() {
                    self.inlet.lock().apply(event);
                }
                return self.step(Input::Bookmark { version, initial_events_end }, doing);
            }
        };
        self.observer.event(&self.client.kind::<V>());
        if self.machine.is_staging() {
            self.inlet.lock().stage(event);
        } else if self.machine.is_news(version) {
            self.inlet.lock().apply(event);
        }
        self.step(Input::Event(version), doing);
    }

    fn step(&mut self, input: Input, doing: &mut Doing<V>) {
        let now = Instant::now();
        for action in self.machine.step(input, now) {
            self.perform(action, doing);
            if matches!(doing, Doing::Over(_)) {
                break;
            }
        }
        self.report.heard(self.machine.heard(), self.machine.held());
    }

    fn perform(&mut self, action: Action, doing: &mut Doing<V>) {
        match action {
            Action::Begin(reason) => {
                // A list in progress would keep staging its items.
                *doing = Doing::Nothing;
                self.inlet.lock().begin(reason);
            }
            Action::List(page) => *doing = Doing::Listing(self.list(page)),
            Action::Watch(from) => *doing = Doing::Opening(self.watch(from)),
            Action::Wait => *doing = Doing::Nothing,
            Action::Commit(at) => {
                if let Err(rewound) = self.inlet.lock().commit(at.number()) {
                    *doing = Doing::Over(rewound);
                }
            }
            Action::Abandon => {
                *doing = Doing::Nothing;
                self.inlet.lock().abandon();
            }
            Action::State { state, since, why } => self.report.state(state, since, why),
            Action::ShortWatch => self.observer.short_watch(&self.client.kind::<V>()),
            Action::End(rewound) => *doing = Doing::Over(rewound),
        }
    }

    fn list(&self, page: Page) -> Pending<PageEnd> {
        let (client, scope) = (self.client.clone(), self.scope.clone());
        let (inlet, metadata_only) = (self.inlet.clone(), self.metadata_only);
        Box::pin(async move {
            let each = |item| inlet.lock().listed(item);
            if metadata_only {
                client.list_metadata::<V>(&scope, &page, each).await
            } else {
                client.list::<V>(&scope, &page, each).await
            }
        })
    }

    fn watch(&self, from: WatchFrom) -> Pending<Watch<V>> {
        let (client, scope) = (self.client.clone(), self.scope.clone());
        Box::pin(async move { client.watch::<V>(&scope, &from).await })
    }
}

impl<V: Resource> Doing<V> {
    /// Waits for what comes out of it. Cancel-safe, as its parts are.
    async fn next(&mut self) -> Came<V> {
        match self {
            Doing::Nothing | Doing::Over(_) => std::future::pending().await,
            Doing::Listing(page) => page.await.map_or_else(Came::Failed, Came::Page),
            Doing::Opening(watch) => watch.await.map_or_else(Came::Failed, Came::Open),
            Doing::Watching(watch) => match watch.next().await {
                Some(Ok(event)) => Came::Event(event),
                Some(Err(error)) => Came::Failed(error),
                None => Came::Ended,
            },
        }
    }
}
