//! The HTTP server for probes and scrapes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::checks::{HealthChecks, Report};
use super::registry::Metrics;
use super::review::{Authorizer, Refusal};
use super::tls::Tls;

/// The `Content-Type` of metrics.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Time to finish the current response when the lifetime of a connection ends, or at shutdown.
const LAST_ANSWER: Duration = Duration::from_secs(2);
/// Number of connections that can wait to be accepted, as with tokio's `TcpListener::bind`.
const BACKLOG: u32 = 1024;
/// Pause after a failed accept, usually because no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Content of a server; a missing one returns 404.
#[derive(Clone, Default)]
pub struct Routes {
    /// Checks of `/healthz` and `/livez`: the kubelet restarts the container if they fail.
    pub health: Option<HealthChecks>,
    /// Checks of `/readyz`: the pod is not ready if they fail.
    pub ready: Option<HealthChecks>,
    /// Content of `/metrics`, and access to it.
    pub metrics: Option<(Arc<Metrics>, Authorizer)>,
}

/// Limits of a server.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Number of concurrent connections. A further one replaces the oldest that is idle, and is refused if none is.
    /// Default 32.
    pub connections: usize,
    /// Maximum size of a request's line and headers in bytes, at least 8192. Default 8192.
    pub header_bytes: usize,
    /// Maximum number of headers in a request. Default 64.
    pub headers: usize,
    /// Time limit of a request's headers and of an idle connection. Default 3 s.
    pub header_time: Duration,
    /// Lifetime of a connection. Default 10 s.
    pub life: Duration,
}

/// A server on one address. Use separate servers for health and metrics, so that scrapes cannot block probes.
#[must_use = "no request gets a response until the server runs"]
pub struct Server {
    listener: TcpListener,
    service: Service,
}

/// Content and limits of a server.
struct Service {
    routes: Routes,
    limits: Limits,
    tls: Option<Tls>,
    /// Cancelled when the server stops.
    stopping: CancellationToken,
}

type Answer = Response<Full<Bytes>>;

/// An open connection.
struct Open {
    task: AbortHandle,
    /// True while a response is made.
    answering: Arc<AtomicBool>,
}

opaque!(Routes);
opaque!(Server);

// === impl Limits ===

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 32,
            header_bytes: 8192,
            headers: 64,
            header_time: Duration::from_secs(3),
            life: Duration::from_secs(10),
        }
    }
}

// === impl Server ===

impl Server {
    /// Listens on `address`; port 0 selects a free one, and `[::]` accepts IPv4, too.
    ///
    /// # Errors
    /// If it cannot listen: the address is in use, or does not belong to this host.
    pub async fn bind(address: SocketAddr, routes: Routes, limits: Limits) -> io::Result<Server> {
        let listener = listen(address).await?;
        let service = Service { routes, limits, tls: None, stopping: CancellationToken::new() };
        Ok(Server { listener, service })
    }

    /// Serves over TLS only.
    pub fn with_tls(mut self, tls: Tls) -> Server {
        self.service.tls = Some(tls);
        self
    }

    /// Returns the address that it listens on.
    ///
    /// # Errors
    /// If the socket is broken.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`. Stop the server last, so that probes can see the end of readiness.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        let Server { listener, service } = self;
        let service = Arc::new(service);
        let (mut connections, mut open) = (JoinSet::new(), VecDeque::<Open>::new());
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                () = &mut stop => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    open.retain(|connection| !connection.task.is_finished());
                    if open.len() >= service.limits.connections {
                        // Otherwise idle connections would keep the kubelet's probes waiting.
                        let is_idle = |one: &Open| !one.answering.load(Ordering::Relaxed);
                        let idle = open.iter().position(is_idle);
                        let Some(oldest) = idle.and_then(|at| open.remove(at)) else { continue };
                        oldest.task.abort();
                    }
                    let (service, answering) = (service.clone(), Arc::new(AtomicBool::new(false)));
                    let is_answering = answering.clone();
                    let task = connections
                        .spawn(async move { service.serve(stream, &is_answering).await });
                    open.push_back(Open { task, answering });
                }
                Err(error) => {
                    tracing::debug!(%error, "Could not accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        service.stopping.cancel();
        while connections.join_next().await.is_some() {}
    }
}

/// Listens on `address`. `[::]` includes IPv4, as in Go, whatever the host's `net.ipv6.bindv6only` is.
async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if address.ip() != Ipv6Addr::UNSPECIFIED {
        return TcpListener::bind(address).await;
    }
    let socket = TcpSocket::new_v6()?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

// === impl Service ===

impl Service {
    /// Serves one connection, from its first byte to its end.
    async fn serve(&self, stream: TcpStream, answering: &AtomicBool) {
        let Some(tls) = &self.tls else { return self.answer(stream, answering).await };
        let hands = timeout(self.limits.header_time, tls.accept(stream));
        if let Some(Ok(Ok(stream))) = self.stopping.run_until_cancelled(hands).await {
            self.answer(stream, answering).await;
        }
    }

    async fn answer(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send,
        answering: &AtomicBool,
    ) {
        let service = service_fn(|request| async move {
            answering.store(true, Ordering::Relaxed);
            let answer = self.routes.answer(&request).await;
            answering.store(false, Ordering::Relaxed);
            Ok::<_, Infallible>(answer)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_time)
            .max_headers(self.limits.headers)
            .max_buf_size(self.limits.header_bytes.max(8192))
            .half_close(false)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let result = tokio::select! {
            result = &mut connection => result,
            _ = timeout(self.limits.life, self.stopping.cancelled()) => {
                connection.as_mut().graceful_shutdown();
                timeout(LAST_ANSWER, connection).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, "A connection for health or metrics broke");
        }
    }
}

// === impl Routes ===

impl Routes {
    async fn answer(&self, request: &Request<impl Body>) -> Answer {
        // An unread body would be parsed as the next request.
        if !request.body().is_end_stream() {
            let mut answer =
                text_response(StatusCode::PAYLOAD_TOO_LARGE, "no body is accepted\n".into());
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            return answer;
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = text_response(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD\n".into());
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        let path = request.uri().path().trim_start_matches('/');
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        let query = request.uri().query().unwrap_or_default();
        let found = match (first, &self.health, &self.ready, &self.metrics) {
            ("healthz" | "livez", Some(checks), ..) | ("readyz", _, Some(checks), _) => {
                health(checks, first, rest, query)
            }
            ("metrics", _, _, Some((metrics, access))) if rest.is_empty() => {
                Some(scrape(metrics, access, request).await)
            }
            _ => None,
        };
        found.unwrap_or_else(|| text_response(StatusCode::NOT_FOUND, "not found\n".into()))
    }
}

/// Returns the response to a probe: `ok`, or the report with `?verbose` or after a failure. `?exclude=NAME` can be
/// repeated.
fn health(checks: &HealthChecks, title: &str, one: &str, query: &str) -> Option<Answer> {
    let parameters = query.split('&').map(|part| part.split_once('=').unwrap_or((part, "")));
    let exclude: Vec<&str> =
        parameters.clone().filter(|(key, _)| *key == "exclude").map(|(_, name)| name).collect();
    let verbose = parameters.clone().any(|(key, _)| key == "verbose");
    let report = match one {
        "" => checks.report(title, &exclude),
        name => checks.one(name)?,
    };
    Some(match report {
        Report { ok: true, .. } if !verbose => text_response(StatusCode::OK, "ok".into()),
        Report { ok: true, text } => text_response(StatusCode::OK, text),
        Report { ok: false, text } => text_response(StatusCode::SERVICE_UNAVAILABLE, text),
    })
}

async fn scrape(metrics: &Metrics, access: &Authorizer, request: &Request<impl Body>) -> Answer {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = header.and_then(|value| value.split_once(' '));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let admitted = access.admit(bearer.map(|(_, token)| token.trim())).await;
    if let Err(refusal) = admitted {
        let code = match refusal {
            Refusal::Unauthenticated => StatusCode::UNAUTHORIZED,
            Refusal::Forbidden => StatusCode::FORBIDDEN,
            Refusal::Unknown => StatusCode::SERVICE_UNAVAILABLE,
        };
        let mut answer = text_response(code, format!("{refusal}\n"));
        if code == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        return answer;
    }
    let mut answer = text_response(StatusCode::OK, metrics.encode());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROMETHEUS));
    answer
}

fn text_response(code: StatusCode, text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

#[cfg(test)]
mod tests;
