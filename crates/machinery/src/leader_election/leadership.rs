//! The handle that reports whether this process can write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::client::WriteGate;
use crate::clock::boottime;

/// Relation of this process to the lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Another process leads, or none does. This one keeps its caches warm and writes nothing.
    #[default]
    Standby,
    /// This process leads.
    Leading,
    /// This process holds the lease without permission to write. Either it did not renew the lease in time and needs
    /// another renewal, or it waits for the holder of a former Lease.
    Suspended,
}

/// The phase and its reasons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Relation of this process to the lease.
    pub phase: Phase,
    /// Last known holder of the lease.
    pub holder: Option<String>,
    /// The reason of the last failed request for the Lease.
    pub problem: Option<String>,
    /// The reason for a wait before this process leads.
    pub waits: Option<String>,
    /// True if the Lease was ever read or written.
    pub is_known: bool,
}

/// A handle that reports whether this process can write now. Cheap to clone and to call.
#[derive(Clone)]
pub struct Leadership {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    /// End of permission by [`boottime`], in nanoseconds; 0 without permission. Only the elector writes it. It
    /// withdraws permission before another process can acquire the lease.
    until: AtomicU64,
    /// Time limit of a write that was begun with permission.
    in_flight: Duration,
    /// Unanswered writes can be applied until this reading of [`boottime`].
    writes_until: AtomicU64,
    /// Number of times this process became the leader. The end of a suspension does not count, because no other process
    /// has led.
    term: AtomicU64,
    status: watch::Sender<Status>,
}

// === impl Leadership ===

impl Leadership {
    pub(super) fn new(in_flight: Duration) -> Leadership {
        let (until, writes_until, term, status) = Default::default();
        let shared = Shared { until, in_flight, writes_until, term, status };
        Leadership { shared: Arc::new(shared) }
    }

    /// Returns whether this process can write at this moment.
    pub fn is_permitted(&self) -> bool {
        self.left().is_some()
    }

    /// Returns the number of the current or last term; 0 before the first.
    pub fn term(&self) -> u64 {
        self.shared.term.load(Ordering::Acquire)
    }

    /// Begins a term. Call this before giving permission for it.
    pub(super) fn begin_term(&self) {
        self.shared.term.fetch_add(1, Ordering::Release);
    }

    /// Returns the remaining time of permission, if there is one.
    fn left(&self) -> Option<Duration> {
        Some(rest(&self.shared.until)).filter(|left| !left.is_zero())
    }

    /// Returns the time for which the API server can still apply an unanswered write.
    pub(super) fn writes_until(&self) -> Duration {
        rest(&self.shared.writes_until)
    }

    /// Returns the phase and its reasons. It can lag for a moment when permission has just ended: writes use
    /// [`Leadership::is_permitted`].
    pub fn status(&self) -> Status {
        self.shared.status.borrow().clone()
    }

    /// Returns a receiver of changes of [`Leadership::status`], beginning with the current status.
    pub fn changes(&self) -> watch::Receiver<Status> {
        let mut changes = self.shared.status.subscribe();
        changes.mark_changed();
        changes
    }

    pub(crate) fn permit_until(&self, until: Option<Duration>) {
        self.shared.until.store(until.map_or(0, nanoseconds), Ordering::Release);
    }

    /// Creates a leadership without an election: [`Leadership::permit`] decides.
    #[cfg(any(test, feature = "testing"))]
    pub fn of_tests() -> Leadership {
        Leadership::new(super::Config::default().in_flight)
    }

    /// Permits or forbids writes, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn permit(&self, permitted: bool) {
        let phase = if permitted { Phase::Leading } else { Phase::Standby };
        if permitted {
            self.begin_term();
        }
        self.permit_until(permitted.then_some(Duration::MAX));
        self.publish(Status { phase, is_known: true, ..Status::default() });
    }

    /// Publishes `status` and returns the previous phase.
    pub(super) fn publish(&self, status: Status) -> Phase {
        let before = self.shared.status.borrow().phase;
        self.shared.status.send_if_modified(|known| {
            let differs = *known != status;
            *known = status;
            differs
        });
        before
    }
}

impl WriteGate for Leadership {
    fn may_write(&self) -> Result<Duration, String> {
        if let Some(left) = self.left() {
            return Ok(left.saturating_add(self.shared.in_flight));
        }
        let status = self.shared.status.borrow();
        Err(match (status.phase, &status.holder, &status.waits) {
            (_, _, Some(waits)) => waits.clone(),
            (Phase::Standby, Some(holder), None) => format!("{holder} leads"),
            (Phase::Standby, None, None) => "no process leads yet".to_owned(),
            _ => "the lease was not renewed in time".to_owned(),
        })
    }

    fn term(&self) -> u64 {
        Leadership::term(self)
    }

    fn unanswered(&self) {
        let until = boottime() + self.shared.in_flight;
        self.shared.writes_until.fetch_max(nanoseconds(until), Ordering::Release);
    }
}

impl std::fmt::Debug for Leadership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Leadership").field(&*self.shared.status.borrow()).finish()
    }
}

/// Returns the time from now until a reading of [`boottime`].
fn rest(until: &AtomicU64) -> Duration {
    let until = until.load(Ordering::Acquire);
    Duration::from_nanos(until.saturating_sub(nanoseconds(boottime())))
}

/// Converts a time since boot, up to 584 years.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
