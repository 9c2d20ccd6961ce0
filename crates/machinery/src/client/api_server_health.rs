//! Reachability of the API server, derived from all calls.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The return of the API server is announced if every call failed for at least this long. After a shorter outage,
/// backoffs are short anyway.
const OUTAGE: Duration = Duration::from_secs(5);
/// Shortest pause between probes while calls fail; the longest is twice this, so that replicas do not probe in
/// lockstep. Work therefore resumes about two seconds after the server is back.
const PROBE_INTERVAL: Duration = Duration::from_millis(1_300);

/// Signals when an API server that was down responds again, which shortens grown backoffs. Cheap to clone; all
/// clones share one state. The clients of a process share it through
/// [`Options::api_server_health`](super::Options::api_server_health).
#[derive(Debug, Clone, Default)]
pub struct ApiServerHealth(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    calls: Mutex<Calls>,
    /// Notified of the first failure after a response, and of a return. Unlike a `sync::watch`, it wakes waiters in
    /// order, so that simulations are reproducible.
    changed: Notify,
}

/// The outcome of the calls so far.
#[derive(Debug, Default)]
struct Calls {
    /// The failed calls since the last response, if any.
    outage: Option<Outage>,
    /// Number of returns so far.
    returns: u64,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    /// Earliest time of the next probe.
    probe_at: Instant,
}

/// Waits for an API server to return: see [`ApiServerHealth::reconnected`].
#[derive(Debug)]
pub struct Recovered {
    api_server_health: ApiServerHealth,
    /// Number of returns already reported.
    seen: u64,
}

// === impl ApiServerHealth ===

impl ApiServerHealth {
    /// Returns a receiver of all later returns.
    pub fn reconnected(&self) -> Recovered {
        Recovered { api_server_health: self.clone(), seen: self.0.calls.lock().returns }
    }

    /// Records a response; the client reports every call. Codes from 501 count as failures. 401 and 403 count as
    /// neither: an API server that has just started refuses all requests until it has read its roles. 429 is not a
    /// return: the server asks clients to slow down. 500 is the failure of one request (object too large for etcd,
    /// webhook down), so a later success is not a return.
    pub fn responded(&self, code: u16) {
        match code {
            401 | 403 | 429 | 500 => return,
            501.. => return self.failed(),
            _ => {}
        }
        let mut calls = self.0.calls.lock();
        if calls.outage.take().is_some_and(|outage| outage.since.elapsed() >= OUTAGE) {
            calls.returns += 1;
            drop(calls);
            self.0.changed.notify_waiters();
        }
    }

    /// Records a failed call.
    pub fn failed(&self) {
        let now = Instant::now();
        let mut calls = self.0.calls.lock();
        let since = calls.outage.as_ref().map_or(now, |outage| outage.since);
        let before = calls.outage.replace(Outage { since, probe_at: now + pause() });
        drop(calls);
        if before.is_none() {
            self.0.changed.notify_waiters();
        }
    }

    /// Completes when calls fail and no call was made for a while. Only one waiter completes, and must probe; the next
    /// one completes after another pause.
    pub(super) async fn probe_due(&self) {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let now = Instant::now();
            let probe_at = self.0.calls.lock().outage.as_mut().map(|outage| {
                let next = if outage.probe_at <= now { now + pause() } else { outage.probe_at };
                std::mem::replace(&mut outage.probe_at, next)
            });
            match probe_at {
                Some(at) if at <= now => return,
                Some(at) => sleep_until(at).await,
                None => changed.await,
            }
        }
    }
}

fn pause() -> Duration {
    PROBE_INTERVAL + PROBE_INTERVAL.mul_f64(fastrand::f64())
}

// === impl Recovered ===

impl Recovered {
    /// Waits for the next return. Cancel-safe.
    pub async fn next(&mut self) {
        loop {
            let mut changed = pin!(self.api_server_health.0.changed.notified());
            changed.as_mut().enable();
            let returns = self.api_server_health.0.calls.lock().returns;
            if returns != std::mem::replace(&mut self.seen, returns) {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// Returns whether a return was announced after calls with these answers (0: none), this far
    /// apart.
    async fn returned(every: Duration, calls: &[u16]) -> bool {
        let api_server_health = ApiServerHealth::default();
        let mut reconnected = api_server_health.reconnected();
        for code in calls {
            match code {
                0 => api_server_health.failed(),
                code => api_server_health.responded(*code),
            }
            tokio::time::sleep(every).await;
        }
        reconnected.next().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_accepted_request_after_an_outage_is_a_return() {
        for answer in [200, 404, 409] {
            assert!(returned(Duration::from_secs(2), &[200, 0, 0, 0, answer]).await, "{answer}");
        }
        assert!(returned(Duration::from_secs(2), &[200, 503, 503, 429, 200]).await);
        assert!(!returned(Duration::from_secs(2), &[200, 0, 0, 0, 403, 401]).await, "no roles yet");
        assert!(returned(Duration::from_secs(2), &[200, 0, 0, 0, 403, 0, 200]).await);
        assert!(returned(Duration::from_secs(2), &[200, 0, 500, 0, 0, 500, 200]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_stopped_responding_does_not_return() {
        assert!(!returned(Duration::from_secs(60), &[200, 200, 200]).await, "nothing failed");
        assert!(
            !returned(Duration::from_secs(1), &[200, 0, 200, 0, 200, 0, 200]).await,
            "some did"
        );
        assert!(
            !returned(Duration::from_secs(2), &[200, 0, 0, 503]).await,
            "it is still in trouble"
        );
        assert!(!returned(Duration::from_secs(60), &[200, 0]).await, "it is still away");
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_500_responses_are_not_an_outage() {
        assert!(!returned(Duration::from_secs(2), &[200, 500, 500, 500, 500, 200]).await);
    }

    /// `/readyz`, which is probed while calls fail, is exempt from the server's limits.
    #[tokio::test(start_paused = true)]
    async fn repeated_429_responses_are_not_an_outage() {
        assert!(!returned(Duration::from_secs(2), &[200, 429, 429, 429, 429, 200]).await);
        assert!(returned(Duration::from_secs(2), &[200, 0, 0, 0, 429, 200]).await, "it was before");
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_failure_after_a_long_idle_time_is_not_an_outage() {
        let api_server_health = ApiServerHealth::default();
        let mut reconnected = api_server_health.reconnected();
        api_server_health.responded(200);
        tokio::time::sleep(Duration::from_secs(600)).await;
        api_server_health.failed();
        api_server_health.responded(200);
        assert!(reconnected.next().now_or_never().is_none());
    }
}
