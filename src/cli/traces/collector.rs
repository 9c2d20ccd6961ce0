//! The connection to a collector.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt;
use opentelemetry_http::{HttpClient, HttpError};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use super::Error;
use super::settings::Settings;

/// Maximum size of a response. A partial success contains only a number and a sentence.
const MAX_ANSWER: usize = 64 << 10;

type HttpService = BoxCloneSyncService<Request<Full<Bytes>>, Response<Incoming>, legacy::Error>;

/// A client for the exporter's requests. The exporter calls it from its own thread, outside the runtime that
/// hyper needs, so each request is spawned as a task of the runtime.
pub(super) struct Collector {
    wire: HttpService,
    runtime: Handle,
    timeout: Duration,
    /// True if the last request failed and this was logged.
    failing: AtomicBool,
}

// === impl Collector ===

impl Collector {
    /// Creates a client, which does not connect yet.
    pub(super) fn new(settings: &Settings, runtime: &Handle) -> Result<Collector, Error> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(settings.timeout));
        let client = legacy::Client::builder(TokioExecutor::new());
        let wire = if settings.tls {
            let connector = tls(settings)?
                .rustls_https_connector_with_connector(connector)
                .map_err(|error| Error::Tls(Box::new(error)))?;
            BoxCloneSyncService::new(client.build(connector))
        } else {
            BoxCloneSyncService::new(client.build(connector))
        };
        let (runtime, failing) = (runtime.clone(), AtomicBool::new(false));
        Ok(Collector { wire, runtime, timeout: settings.timeout, failing })
    }

    /// Logs one line when requests begin to fail and one when they succeed again.
    fn observe(&self, answer: &Result<Response<Bytes>, HttpError>) {
        let why = match answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            Err(error) => Some(chain(&**error)),
        };
        match (why, self.failing.load(Ordering::Relaxed)) {
            (Some(why), false) => tracing::warn!(why, "Spans are not exported"),
            (Some(why), true) => tracing::debug!(why, "Spans are still not exported"),
            (None, true) => tracing::info!("Spans are exported again"),
            (None, false) => {}
        }
        let fails = answer.as_ref().map_or(true, |answer| !answer.status().is_success());
        self.failing.store(fails, Ordering::Relaxed);
    }
}

#[async_trait::async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (wire, limit) = (self.wire.clone(), self.timeout);
        // A timer can only be created on the runtime, too.
        let sent = async move { timeout(limit, exchange(wire, request.map(Full::new))).await };
        let answer = match self.runtime.spawn(sent).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(format!("no answer within {limit:?}").into()),
            // The runtime has stopped.
            Err(error) => Err(error.into()),
        };
        self.observe(&answer);
        answer
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Returns the configuration of kube's connector: the certificates to trust.
fn tls(settings: &Settings) -> Result<kube::Config, Error> {
    let mut config = kube::Config::new(http::Uri::from_static("https://collector"));
    if let Some(path) = &settings.certificate {
        let unreadable = |source| Error::Certificate { path: path.clone(), source };
        let found = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
        let found = found.map(|one| one.map(|certificate| certificate.to_vec()));
        let all: Vec<Vec<u8>> = found.collect::<Result<_, _>>().map_err(unreadable)?;
        config.root_cert = Some(all);
    }
    Ok(config)
}

async fn exchange(
    wire: HttpService,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, HttpError> {
    let (head, body) = wire.oneshot(request).await?.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await?.to_bytes();
    Ok(Response::from_parts(head, body))
}

/// Returns an error with its causes, because hyper's message only reports that a connection failed.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
