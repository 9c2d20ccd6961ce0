//! Reachability of the API server, derived from all calls.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::call::Client;
use super::query;
use crate::object::Kind;

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

/// Waits for an API server to return: see [`ApiServerHealth::recovered`].
#[derive(Debug)]
pub struct Recovered {
    api_server_health: ApiServerHealth,
    /// Number of returns already reported.
    seen: u64,
}

// === impl ApiServerHealth ===

impl ApiServerHealth {
    /// Returns a receiver of all later returns.
    pub fn recovered(&self) -> Recovered {
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

/// The probed path. A server is ready only after it has read its roles and can reach etcd, so other calls then succeed,
/// too; `/version` requires neither. All users can read it (`system:public-info-viewer`), and it is exempt from the API
/// server's limits.
const PATH: &str = "/readyz";
/// Longest wait for a response. This path is never queued, and a new connection can be faster than a dead one.
const ANSWER: Duration = Duration::from_secs(10);
/// The kind in metrics.
const KIND: Kind = Kind::cluster_scoped("", "", "", "readyz");

// === impl Client ===

impl Client {
    /// Probes the API server about every two seconds while all calls fail and no other client makes calls. The first
    /// response completes all waits for it ([`ApiServerHealth`](super::ApiServerHealth)). Clients that share one
    /// `ApiServerHealth` take turns. Reflectors run this function; it runs until it is dropped.
    pub async fn probe_while_down(&self) -> Infallible {
        loop {
            self.api_server_health().probe_due().await;
            // A successful call reports itself. Boxed, because it rarely runs.
            let probe = async { self.call("get", &KIND, query::at(PATH)?).await };
            drop(timeout(ANSWER, Box::pin(probe)).await);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

    use bytes::Bytes;
    use futures::FutureExt;
    use http::{Request, Response};
    use http_body_util::Full;
    use tokio::time::{Instant, sleep};
    use tower::service_fn;

    use super::*;
    use crate::client::Options;

    /// Returns whether a return was announced after calls with these answers (0: none), this far
    /// apart.
    async fn returned(every: Duration, calls: &[u16]) -> bool {
        let api_server_health = ApiServerHealth::default();
        let mut recovered = api_server_health.recovered();
        for code in calls {
            match code {
                0 => api_server_health.failed(),
                code => api_server_health.responded(*code),
            }
            sleep(every).await;
        }
        recovered.next().now_or_never().is_some()
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
        let mut recovered = api_server_health.recovered();
        api_server_health.responded(200);
        sleep(Duration::from_secs(600)).await;
        api_server_health.failed();
        api_server_health.responded(200);
        assert!(recovered.next().now_or_never().is_none());
    }

    /// An API server that answers with a code (0: not at all), and counts requests.
    #[derive(Clone, Default)]
    struct Server {
        code: Arc<AtomicU16>,
        asked: Arc<AtomicUsize>,
    }

    impl Server {
        fn client(&self) -> Client {
            let server = self.clone();
            let service = service_fn(move |request: Request<Bytes>| {
                assert_eq!(request.uri().path(), "/readyz");
                server.asked.fetch_add(1, Ordering::Relaxed);
                let code = server.code.load(Ordering::Relaxed);
                async move {
                    let body = Full::new(Bytes::from("ok"));
                    match code {
                        0 => Err(std::io::Error::other("connection refused")),
                        code => Ok(Response::builder().status(code).body(body).unwrap()),
                    }
                }
            });
            Client::from_service(service, Options::default())
        }

        /// Returns the number of requests that several `probe_while_down`s made in `time`.
        async fn asked_in(&self, client: &Client, time: Duration) -> usize {
            let before = self.asked.load(Ordering::Relaxed);
            let all = (0..5).map(|_| client.probe_while_down());
            drop(timeout(time, futures::future::join_all(all)).await);
            self.asked.load(Ordering::Relaxed) - before
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_client_probes_an_unreachable_server_every_two_seconds() {
        let server = Server::default();
        let client = server.client();
        client.api_server_health().failed();
        let asked = server.asked_in(&client, Duration::from_secs(300)).await;
        assert!((110..=240).contains(&asked), "{asked} times in 300 s");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_response_ends_the_probes() {
        for (trouble, answer) in [(0, 200), (500, 200), (403, 200)] {
            let server = Server::default();
            let client = server.client();
            let mut recovered = client.api_server_health().recovered();
            server.code.store(trouble, Ordering::Relaxed);
            client.api_server_health().failed();
            server.asked_in(&client, Duration::from_secs(60)).await;
            assert!(recovered.next().now_or_never().is_none(), "it is away: {trouble}");
            server.code.store(answer, Ordering::Relaxed);
            let back = Instant::now();
            let told = async {
                tokio::select! { () = recovered.next() => {}, _ = client.probe_while_down() => {} }
            };
            timeout(Duration::from_secs(60), told).await.expect("it is back");
            assert!(back.elapsed() < Duration::from_secs(5), "{:?}", back.elapsed());
            assert_eq!(server.asked_in(&client, Duration::from_secs(600)).await, 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_probe_is_sent_while_other_calls_are_made() {
        let server = Server::default();
        let client = server.client();
        assert_eq!(server.asked_in(&client, Duration::from_secs(600)).await, 0, "all is well");
        let others = async {
            for _ in 0..600 {
                client.api_server_health().failed();
                sleep(Duration::from_secs(1)).await;
            }
        };
        let (asked, ()) = tokio::join!(server.asked_in(&client, Duration::from_secs(600)), others);
        assert_eq!(asked, 0, "others ask every second");
    }
}
