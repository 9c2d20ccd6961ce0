//! The health of a reflector.

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::object::ResourceVersion;

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

// === impl State ===

impl State {
    /// Returns a word for metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Starting => "Starting",
            State::Listing => "Listing",
            State::Live => "Live",
            State::Stale => "Stale",
            State::Forbidden => "Forbidden",
            State::NotServed => "NotServed",
            State::Dead => "Dead",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
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

    /// Signals changes of the state, and the first complete list.
    pub fn changes(&self) -> watch::Receiver<Health> {
        self.0.subscribe()
    }

    /// Completes when the health is as `wanted`; never, if the reflector ends before.
    pub fn reached<F: FnMut(&Health) -> bool + Send>(
        &self,
        wanted: F,
    ) -> impl Future<Output = ()> + Send + use<F> {
        let mut changes = self.changes();
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
