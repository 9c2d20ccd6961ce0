//! Connections: sockets, TLS, authentication.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, SizeHint};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::ConfigExt;
use kube::config::AuthInfo;
use rustls::crypto::CryptoProvider;
use secrecy::ExposeSecret;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

use super::token::TokenFile;
use super::{Error, WriteGate, proxy};

/// The body of a response.
pub(super) type Answer = UnsyncBoxBody<Bytes, BoxError>;
/// A service that sends requests to an API server. Unlike kube's `Client`, it has no buffer task, which saves one
/// task switch per request.
pub(super) type HttpService = BoxCloneSyncService<Request<Bytes>, Response<Answer>, BoxError>;

/// Time limit for a TCP connection. TLS and the response fall under the deadline of the call.
const CONNECT: Duration = Duration::from_secs(5);
/// An idle connection is probed after KEEPALIVE_IDLE, then every KEEPALIVE_INTERVAL, and is dead after
/// KEEPALIVE_PROBES lost probes: after 30 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
/// Time without acknowledgement before a connection is dead. Otherwise the kernel retries for a quarter of an hour
/// (tcp_retries2).
const USER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time before an idle connection is closed. When the first of several dead connections is detected, the others have
/// been idle for as long: a request on one of them would wait for its deadline.
const POOL_IDLE: Duration = KEEPALIVE_IDLE;
/// Maximum number of idle connections.
const POOL_SIZE: usize = 16;
/// Size of a read buffer. HTTP heads must fit, and bodies arrive in chunks of up to this size. hyper's default of about
/// 400 kB would cost memory on every connection.
const READ_BUFFER: usize = 64 << 10;

/// The permission of a write. It is sent along with the request and checked again when the body is sent.
#[derive(Clone)]
pub(super) struct WritePermit {
    gate: Arc<dyn WriteGate>,
    term: u64,
    refused: Arc<OnceLock<String>>,
}

/// The body of a request.
pub(super) struct Outgoing {
    body: Full<Bytes>,
    /// Checked once, before the first byte.
    permit: Option<WritePermit>,
}

/// Returns a service that sends requests to the API server of `config`, without connecting. Runs a credential plugin
/// and blocks the thread meanwhile.
///
/// # Errors
/// [`Error::Config`]: unusable certificates, credentials or proxy.
pub(super) fn connect(mut config: kube::Config) -> Result<HttpService, Error> {
    // rustls panics if no provider is installed and two are compiled in, which another crate's features can cause.
    if CryptoProvider::get_default().is_none() {
        // Fails only if another thread has installed a provider in the meantime.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let token = credentials(&mut config.auth_info)?.map(Arc::new);
    let connector = proxy::connector(&config, connector())?;
    let stack = ServiceBuilder::new()
        .map_request(|request: Request<Bytes>| request.map(Full::from))
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(unusable)?)
        .layer(config.extra_headers_layer().map_err(unusable)?)
        .map_err(BoxError::from)
        .map_request(move |mut request: Request<Full<Bytes>>| {
            if let Some(token) = &token {
                request.headers_mut().insert(AUTHORIZATION, token.get());
            }
            let permit = request.extensions_mut().remove::<WritePermit>();
            request.map(|body| Outgoing { body, permit })
        });
    let https = config.rustls_https_connector_with_connector(connector).map_err(unusable)?;
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(POOL_SIZE)
        .http1_max_buf_size(READ_BUFFER)
        .build(https);
    Ok(wire(stack.service(http)))
}

/// Leaves one kind of credentials in `auth`, as client-go does; kube adds the others. Returns the file of a token
/// instead of leaving it, because kube neither trims a token nor rereads it if the wall clock is set back.
///
/// # Errors
/// [`Error::Config`] if the token file cannot be read, or for an `auth-provider`.
fn credentials(auth: &mut AuthInfo) -> Result<Option<TokenFile>, Error> {
    without_empty_texts(auth);
    if let Some(provider) = &auth.auth_provider {
        return Err(Error::Config(format!(
            "the kubeconfig has the auth-provider {}, which is not supported: use a credential plugin \
             (`exec`), such as kubelogin or gke-gcloud-auth-plugin",
            provider.name
        )));
    }
    let token = TokenFile::of(auth)?;
    if token.is_some() {
        auth.token = None;
    }
    auth.token_file = None;
    // Any other credential replaces a plugin's (plugin/pkg/client/auth/exec, UpdateTransportConfig).
    let has_certificate = (auth.client_certificate.is_some()
        || auth.client_certificate_data.is_some())
        && (auth.client_key.is_some() || auth.client_key_data.is_some());
    auth.exec.take_if(|_| has_certificate || token.is_some());
    Ok(token)
}

/// Removes empty credentials, which templates leave in kubeconfigs.
fn without_empty_texts(auth: &mut AuthInfo) {
    let texts = [
        &mut auth.username,
        &mut auth.token_file,
        &mut auth.client_certificate,
        &mut auth.client_certificate_data,
        &mut auth.client_key,
    ];
    for text in texts {
        text.take_if(|text| text.is_empty());
    }
    for secret in [&mut auth.password, &mut auth.token, &mut auth.client_key_data] {
        secret.take_if(|secret| secret.expose_secret().is_empty());
    }
}

fn unusable(error: kube::Error) -> Error {
    match Error::transport(error.into()) {
        Error::Transport { root, .. } => Error::Config(root),
        other => other,
    }
}

// === impl WritePermit ===

impl WritePermit {
    pub(super) fn new(gate: Arc<dyn WriteGate>) -> WritePermit {
        let term = gate.term();
        WritePermit { gate, term, refused: Arc::default() }
    }

    /// Returns the time within which the write must end, if permitted.
    pub(super) fn ask(&self) -> Result<Duration, String> {
        if self.gate.term() != self.term {
            return Err("another term of leadership has begun since this was decided".to_owned());
        }
        self.gate.may_write()
    }

    /// Returns why the body was refused, if it was.
    pub(super) fn refused(&self) -> Option<String> {
        self.refused.get().cloned()
    }
}

// === impl Outgoing ===

impl hyper::body::Body for Outgoing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(permit) = self.permit.take()
            && let Err(why) = permit.ask()
        {
            permit.refused.get_or_init(|| why.clone());
            return Poll::Ready(Some(Err(why.into())));
        }
        Pin::new(&mut self.body).poll_frame(context).map_err(BoxError::from)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_keepalive(Some(KEEPALIVE_IDLE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "fuchsia"))]
    connector.set_tcp_user_timeout(Some(USER_TIMEOUT));
    connector
}

/// Erases the types of a service.
pub(super) fn wire<S, B>(service: S) -> HttpService
where
    S: Service<Request<Bytes>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let service = service
        .map_response(|response: Response<B>| {
            response.map(|body| body.map_err(Into::into).boxed_unsync())
        })
        .map_err(Into::into);
    BoxCloneSyncService::new(service)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;

    struct Switch(AtomicBool);

    impl WriteGate for Switch {
        fn may_write(&self) -> Result<Duration, String> {
            let open = self.0.load(Ordering::Relaxed);
            if open { Ok(Duration::MAX) } else { Err("another replica leads".to_owned()) }
        }
    }

    fn has_plugin(mut user: serde_json::Value) -> bool {
        user["exec"] = serde_json::json!({"command": "login"});
        let mut auth = serde_json::from_value(user).unwrap();
        credentials(&mut auth).unwrap();
        auth.exec.is_some()
    }

    #[test]
    fn a_complete_certificate_replaces_a_plugin() {
        use serde_json::json;
        assert!(has_plugin(json!({})));
        let certificate = json!({"client-certificate-data": "YQ==", "client-key-data": "YQ=="});
        assert!(!has_plugin(certificate));
        assert!(has_plugin(json!({"client-certificate-data": "", "client-key-data": ""})));
        assert!(has_plugin(json!({"client-certificate-data": "YQ=="})));
    }

    /// Between the first question and the body are a plugin, a connection and TLS.
    #[tokio::test]
    async fn permission_is_checked_again_when_the_body_is_sent() {
        for open in [true, false] {
            let gate = Arc::new(Switch(AtomicBool::new(true)));
            let permit = WritePermit::new(gate.clone());
            let mut body = Outgoing { body: Full::from("body"), permit: Some(permit.clone()) };
            assert_eq!(hyper::body::Body::size_hint(&body).exact(), Some(4));
            gate.0.store(open, Ordering::Relaxed);
            let sent = body.frame().await.expect("it has a frame");
            assert_eq!(sent.is_ok(), open);
            assert_eq!(permit.refused().is_some(), !open);
        }
    }

    /// Open, in a term that changes each time that it is asked for.
    struct Terms(AtomicU64);

    impl WriteGate for Terms {
        fn may_write(&self) -> Result<Duration, String> {
            Ok(Duration::MAX)
        }

        fn term(&self) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed)
        }
    }

    #[test]
    fn a_write_decided_in_another_term_is_not_sent() {
        let permit = WritePermit::new(Arc::new(Terms(AtomicU64::new(7))));
        assert!(permit.ask().is_err_and(|why| why.contains("another term")));
    }
}
