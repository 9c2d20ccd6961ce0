//! Whether the API server answers, as all calls together tell.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// An API server that did not answer for so long was away, and its return is told. What pauses
/// after a shorter failure pauses for about as long anyway; and where some calls fail and others
/// do not, nobody is to be hurried.
const AWAY: Duration = Duration::from_secs(5);

/// Tells when an API server that was away answers again, so that what waits for it need not wait
/// out a pause that grew with the outage. Cheap to clone; all clones are one. Clients of one
/// process share it by [`Options::reach`](super::Options::reach).
#[derive(Clone)]
pub struct Reach(Arc<Shared>);

struct Shared {
    calls: Mutex<Calls>,
    returns: watch::Sender<u64>,
}

/// What became of the calls so far.
struct Calls {
    /// When one was last answered.
    answered: Instant,
    /// Whether one failed since.
    failed: bool,
}

/// Waits for the returns of an API server: see [`Reach::returns`].
#[derive(Debug)]
pub struct Returns(watch::Receiver<u64>);

// === impl Reach ===

impl Reach {
    /// For those that wait: each return from now on.
    pub fn returns(&self) -> Returns {
        Returns(self.0.returns.subscribe())
    }

    /// A call was answered, by whatever: 429 and 5xx are no answers, but a server in trouble. The
    /// client says so of each of its calls.
    pub fn answered(&self, code: u16) {
        if code == 429 || code >= 500 {
            return self.failed();
        }
        let now = Instant::now();
        let mut calls = self.0.calls.lock();
        let away = calls.failed && now.saturating_duration_since(calls.answered) >= AWAY;
        *calls = Calls { answered: now, failed: false };
        drop(calls);
        if away {
            self.0.returns.send_modify(|returns| *returns += 1);
        }
    }

    /// A call was not answered.
    pub fn failed(&self) {
        self.0.calls.lock().failed = true;
    }
}

impl Default for Reach {
    fn default() -> Reach {
        let calls = Calls { answered: Instant::now(), failed: false };
        Reach(Arc::new(Shared { calls: Mutex::new(calls), returns: watch::Sender::new(0) }))
    }
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reach").finish_non_exhaustive()
    }
}

// === impl Returns ===

impl Returns {
    /// The next return. Cancel-safe.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody calls any more.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// Whether a return was told after calls with these answers (0: none), this far apart.
    async fn told(every: Duration, calls: &[u16]) -> bool {
        let reach = Reach::default();
        let mut returns = reach.returns();
        for code in calls {
            match code {
                0 => reach.failed(),
                code => reach.answered(*code),
            }
            tokio::time::sleep(every).await;
        }
        returns.next().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_away_is_back_with_its_first_answer_whatever_that_is() {
        for answer in [200, 403, 409] {
            assert!(told(Duration::from_secs(2), &[200, 0, 0, 0, answer]).await, "{answer}");
        }
        assert!(told(Duration::from_secs(2), &[200, 503, 503, 429, 200]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_stopped_answering_is_not_back() {
        assert!(!told(Duration::from_secs(60), &[200, 200, 200]).await, "nothing failed");
        assert!(!told(Duration::from_secs(1), &[200, 0, 200, 0, 200, 0, 200]).await, "some did");
        assert!(!told(Duration::from_secs(2), &[200, 0, 0, 503]).await, "it is still in trouble");
    }
}
