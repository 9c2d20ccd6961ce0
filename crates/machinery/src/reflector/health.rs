//! The health of a reflector: its state, a handle to read it, and lines in the log.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::identity::Hints;
use crate::object::{InternedStr, Kind, ResourceVersion};

/// Number of consecutive failures before a log line. A single failure is routine.
const WORTH_A_LINE: u32 = 3;
/// Shortest time in [`State::Live`] that counts as recovered, because each watch could end at once.
const RECOVERED: Duration = Duration::from_secs(1);

/// The state of a reflector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Not started.
    Starting,
    /// The first list is in progress; nothing can be read yet.
    Listing,
    /// The view follows the server.
    Live,
    /// There is a view, but the server has sent nothing since [`Health::since`].
    Stale,
    /// Listing or watching is forbidden. The old view is kept.
    Forbidden,
    /// The API server does not serve the kind. The old view is kept.
    NotServed,
    /// The reflector's task has panicked or was stopped.
    Dead,
}

/// The health of a reflector.
#[derive(Debug, Clone)]
pub struct Health {
    /// Its state.
    pub state: State,
    /// Start of the state. [`State::Stale`] counts from the last response of the server.
    pub since: Instant,
    /// The last error, as a sentence; `None` while [`State::Live`].
    pub why: Option<String>,
    /// The version up to which the view is complete.
    pub version: ResourceVersion,
    /// Time of arrival of the last list, event or bookmark.
    pub heard: Instant,
    /// True once there has been a complete list.
    pub synced: bool,
    /// Number of objects that cannot be decoded; their last decodable state is stored, if there was one.
    pub quarantined: usize,
}

/// Reads the [`Health`] of one reflector at any time. Cheap to clone.
#[derive(Debug, Clone)]
pub struct HealthHandle(watch::Sender<Health>);

/// Reports states: each problem once when it begins and once when it ends.
pub(super) struct HealthReporter {
    kind: Kind,
    namespace: Option<InternedStr>,
    pub(super) health: HealthHandle,
    hints: Hints,
    /// Number of failures since the last recovery.
    failures: u32,
    /// True if the problem was logged, so that its end must be logged, too.
    reported: bool,
}

// === impl Health ===

impl Health {
    /// Returns the greatest age of the view: the time since the server last sent something. The result is small in
    /// [`State::Live`].
    pub fn staleness(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard)
    }
}

// === impl HealthHandle ===

impl HealthHandle {
    pub(super) fn new(now: Instant) -> HealthHandle {
        HealthHandle(watch::Sender::new(Health {
            state: State::Starting,
            since: now,
            why: None,
            version: ResourceVersion::UNKNOWN,
            heard: now,
            synced: false,
            quarantined: 0,
        }))
    }

    /// Returns the current health.
    pub fn get(&self) -> Health {
        self.0.borrow().clone()
    }

    /// Returns whether there has been a complete list.
    pub fn has_synced(&self) -> bool {
        self.0.borrow().synced
    }

    /// Completes when the health is as `wanted`; never, if the reflector ends before.
    pub fn reached<F: FnMut(&Health) -> bool + Send>(
        &self,
        wanted: F,
    ) -> impl Future<Output = ()> + Send + use<F> {
        let mut changes = self.0.subscribe();
        // `handle` keeps the sender, so this cannot fail.
        let handle = self.clone();
        async move {
            drop(changes.wait_for(wanted).await);
            drop(handle);
        }
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Health)) {
        self.0.send_if_modified(|health| {
            let before = (health.state, health.synced);
            change(health);
            before != (health.state, health.synced)
        });
    }
}

// === impl HealthReporter ===

impl HealthReporter {
    pub(super) fn new(
        kind: Kind,
        namespace: Option<InternedStr>,
        health: HealthHandle,
        hints: Hints,
    ) -> HealthReporter {
        HealthReporter { kind, namespace, health, hints, failures: 0, reported: false }
    }

    pub(super) fn state(&self) -> State {
        self.health.0.borrow().state
    }

    /// Reports a response at `at`; the view is complete up to `version`.
    pub(super) fn heard(&mut self, at: Instant, version: ResourceVersion) {
        self.recovered();
        self.health.update(|health| (health.heard, health.version) = (at, version));
    }

    /// Reports the state and its reason.
    pub(super) fn enter(&mut self, state: State, why: Option<String>) {
        self.recovered();
        self.log(state, why.as_deref());
        self.health.update(|health| {
            health.why = why;
            if state != health.state {
                let is_stale = state == State::Stale;
                health.since = if is_stale { health.heard } else { Instant::now() };
                health.state = state;
            }
        });
    }

    fn log(&mut self, state: State, why: Option<&str>) {
        let (what, why) = (self.what(), why.unwrap_or_default());
        let before = self.state();
        let begins = state != before;
        match state {
            State::Forbidden | State::NotServed if begins => {
                self.reported = true;
                let (problem, remedy) = match state {
                    State::Forbidden => ("forbidden", self.hints.permissions),
                    _ => ("not served", self.hints.kinds),
                };
                tracing::warn!(why, "cannot list or watch {what}: {problem}; {remedy}");
            }
            // The problem is solved at once: its cause was a clear error, not watches that end early.
            State::Live if matches!(before, State::Forbidden | State::NotServed) => {
                (self.failures, self.reported) = (0, false);
                tracing::info!("{what}: listed and watched again");
            }
            State::Live if before == State::Listing && !self.reported => {
                tracing::info!("{what}: listed, watching");
            }
            State::Stale | State::Listing if !why.is_empty() => {
                self.failures += 1;
                if self.failures == WORTH_A_LINE && !self.reported {
                    self.reported = true;
                    tracing::warn!("cannot list or watch {what}: {why}; retrying");
                } else {
                    tracing::debug!("{what}: {why}");
                }
            }
            _ => {}
        }
    }

    /// Reports the end of a problem, once the kind has been live for a while.
    fn recovered(&mut self) {
        if self.state() != State::Live || (self.failures == 0 && !self.reported) {
            return;
        }
        if self.health.get().since.elapsed() >= RECOVERED {
            self.failures = 0;
            if std::mem::take(&mut self.reported) {
                tracing::info!("{}: listed and watched again", self.what());
            }
        }
    }

    /// Returns the resource, such as `daemonsets.apps`, and the namespace, if any.
    fn what(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} in namespace {namespace}", self.kind.resource()),
            None => self.kind.resource(),
        }
    }
}

impl Drop for HealthReporter {
    /// Reports the end of the reflector, normal or by a panic.
    fn drop(&mut self) {
        let why = if std::thread::panicking() { "its task panicked" } else { "it was stopped" };
        self.enter(State::Dead, Some(why.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use parking_lot::Mutex;

    const KIND: Kind = Kind::namespaced("apps", "v1", "DaemonSet", "daemonsets");

    const HINTS: Hints =
        Hints { kinds: "apply crds.yaml", permissions: "apply roles.yaml", reviews: "" };

    /// The lines that `work` logs at info level and above.
    fn logged(work: impl FnOnce(&mut HealthReporter)) -> Vec<String> {
        #[derive(Clone, Default)]
        struct LogBuffer(Arc<Mutex<Vec<u8>>>);

        impl std::io::Write for LogBuffer {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        let (logged, health) = (LogBuffer::default(), HealthHandle::new(Instant::now()));
        let mut report = HealthReporter::new(KIND, None, health, HINTS);
        let writer = logged.clone();
        // While only one subscriber exists, tracing asks the thread that registers a log call for
        // its subscriber. That can be the thread of another test, which has none.
        let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || work(&mut report));
        let text = String::from_utf8(logged.0.lock().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn enter(report: &mut HealthReporter, state: State) {
        let why = (state != State::Live).then(|| "why".to_owned());
        report.enter(state, why);
    }

    fn a_while_passes(report: &mut HealthReporter) {
        report.health.update(|health| health.since = health.since.checked_sub(RECOVERED).unwrap());
        report.recovered();
    }

    #[test]
    fn watches_that_all_end_at_once_are_one_lasting_problem() {
        let logged = logged(|report| {
            for _ in 0..100 {
                enter(report, State::Live);
                enter(report, State::Stale);
            }
        });
        assert_eq!(logged.len(), 1, "{logged:#?}");
        assert!(logged[0].contains("WARN"), "{logged:#?}");
    }

    #[test]
    fn a_required_manual_action_is_logged_at_its_start_and_end() {
        for (state, line) in [
            (State::Forbidden, "cannot list or watch daemonsets.apps: forbidden; apply roles.yaml"),
            (State::NotServed, "cannot list or watch daemonsets.apps: not served; apply crds.yaml"),
        ] {
            let logged = logged(|report| {
                (0..100).for_each(|_| enter(report, state));
                (0..3).for_each(|_| enter(report, State::Live));
                a_while_passes(report);
            });
            assert_eq!(logged.len(), 2, "{logged:#?}");
            assert!(logged[0].contains("WARN") && logged[0].contains(line), "{logged:#?}");
            assert!(logged[1].contains("INFO") && logged[1].contains("again"), "{logged:#?}");
        }
    }

    #[test]
    fn only_a_lasting_connection_problem_is_logged() {
        let once = logged(|report| {
            for _ in 0..100 {
                enter(report, State::Stale);
                enter(report, State::Live);
                a_while_passes(report);
            }
        });
        assert_eq!(once, Vec::<String>::new());
        let lasting = logged(|report| {
            (0..100).for_each(|_| enter(report, State::Stale));
            enter(report, State::Live);
            a_while_passes(report);
        });
        assert_eq!(lasting.len(), 2, "{lasting:#?}");
    }
}
