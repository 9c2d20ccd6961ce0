//! Probes of an API server that is down.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::timeout;

use super::call::Client;
use super::query;
use crate::object::Kind;

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
            let mut reconnected = client.api_server_health().reconnected();
            server.code.store(trouble, Ordering::Relaxed);
            client.api_server_health().failed();
            server.asked_in(&client, Duration::from_secs(60)).await;
            assert!(reconnected.next().now_or_never().is_none(), "it is away: {trouble}");
            server.code.store(answer, Ordering::Relaxed);
            let back = Instant::now();
            let told = async {
                tokio::select! { () = reconnected.next() => {}, _ = client.probe_while_down() => {} }
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
