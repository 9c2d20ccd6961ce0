//! Connections: sockets, TLS, authentication.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::ConfigExt;
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use secrecy::ExposeSecret;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};

use super::exec::Plugin;
use super::proxy::Connector;
use super::socket::{self, Socket};
use super::token::{CertificateFiles, ClientCertificate, TokenFile};
use super::{Error, WriteGate, proxy};
use crate::identity::Identity;

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

/// The address of an API server and our credentials. Clones share the credentials.
#[derive(Clone)]
pub(super) struct Endpoint(Arc<Credentials>);

struct Credentials {
    /// The configuration, without the parts that the other fields replace.
    config: kube::Config,
    token: Option<TokenFile>,
    certificate: Option<CertificateFiles>,
    plugin: Option<Plugin>,
}

/// hyper's client, which pools connections.
type Http = hyper_util::client::legacy::Client<HttpsConnector<Connector>, Outgoing>;

/// The permission of a write. It is sent along with the request and checked again when the body is sent.
#[derive(Clone)]
pub(super) struct Permit {
    gate: Arc<dyn WriteGate>,
    term: u64,
    refused: Arc<OnceLock<String>>,
}

/// The body of a request.
pub(super) struct Outgoing {
    body: Full<Bytes>,
    /// Checked once, before the first byte.
    permit: Option<Permit>,
}

/// Connections that are recreated for new requests when the client certificate changes.
struct Connections {
    endpoint: Endpoint,
    current: Mutex<(Option<Arc<ClientCertificate>>, Http)>,
}

// === impl Endpoint ===

impl Endpoint {
    /// Reads the credentials of `config`, without connecting or running a plugin.
    ///
    /// # Errors
    /// [`Error::Config`] if its files cannot be read.
    pub(super) fn to(config: kube::Config) -> Result<Endpoint, Error> {
        let mut config = config;
        let auth = &mut config.auth_info;
        without_empty_texts(auth);
        if let Some(provider) = &auth.auth_provider {
            return Err(Error::Config(format!(
                "the kubeconfig has the auth-provider {}, which is not supported: use a credential plugin \
                 (`exec`), such as kubelogin or gke-gcloud-auth-plugin",
                provider.name
            )));
        }
        let token = TokenFile::of(auth)?;
        let certificate = CertificateFiles::of(auth)?;
        // As in client-go (plugin/pkg/client/auth/exec, UpdateTransportConfig), any other credential replaces a
        // plugin's. kube would run the plugin itself, several times, and use the file only without a token.
        let exec = auth.exec.take();
        let has_password = auth.username.is_some() && auth.password.is_some();
        let has_certificate = (auth.client_certificate.is_some()
            || auth.client_certificate_data.is_some())
            && (auth.client_key.is_some() || auth.client_key_data.is_some());
        let other = token.is_some() || auth.token.is_some();
        let exec = exec.filter(|_| !other && !has_password && !has_certificate);
        if token.is_some() {
            auth.token = None;
        }
        auth.token_file = None;
        if certificate.is_some() {
            (auth.client_certificate, auth.client_key) = (None, None);
        }
        let plugin = exec.map(Plugin::new).transpose()?;
        Ok(Endpoint(Arc::new(Credentials { config, token, certificate, plugin })))
    }

    /// Returns the host and port of the API server's URL.
    pub(super) fn address(&self) -> Option<&str> {
        self.0.config.cluster_url.authority().map(http::uri::Authority::as_str)
    }

    /// Returns the credential plugin, if any.
    pub(super) fn plugin(&self) -> Option<&Plugin> {
        self.0.plugin.as_ref()
    }

    /// Returns a service with its own connections.
    ///
    /// # Errors
    /// [`Error::Config`]: unusable certificates, credentials or proxy.
    pub(super) fn connect(&self, identity: &Identity) -> Result<HttpService, Error> {
        let config = &self.0.config;
        let shown = self.0.certificate.as_ref().map(CertificateFiles::get);
        let current = Mutex::new((shown.clone(), self.http(shown.as_deref())?));
        let connections = Arc::new(Connections { endpoint: self.clone(), current });
        let send = service_fn(move |request| connections.clone().send(request));
        let stack = ServiceBuilder::new()
            .map_request(|request: Request<Bytes>| request.map(Full::from))
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer().map_err(unusable)?)
            .layer(config.extra_headers_layer().map_err(unusable)?)
            .map_err(BoxError::from)
            .service(send);
        Ok(wire(stack, identity))
    }

    fn http(&self, shown: Option<&ClientCertificate>) -> Result<Http, Error> {
        // rustls panics if no provider is installed and two are compiled in, which another crate's features can cause.
        if CryptoProvider::get_default().is_none() {
            // Fails only if another thread has installed a provider in the meantime.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let mut config = self.0.config.clone();
        if let Some(shown) = shown {
            config.auth_info.client_certificate_data = Some(BASE64.encode(&shown.certificate));
            config.auth_info.client_key_data = Some(BASE64.encode(&shown.key).into());
        }
        let connector = proxy::connector(&config, connector())?;
        let https = config.rustls_https_connector_with_connector(connector).map_err(unusable)?;
        Ok(hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(POOL_SIZE)
            .http1_max_buf_size(READ_BUFFER)
            .build(https))
    }
}

/// Removes empty credentials, which templates leave in kubeconfigs.
fn without_empty_texts(auth: &mut kube::config::AuthInfo) {
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

#[allow(clippy::needless_pass_by_value)] // It is passed to `map_err`.
fn unusable(error: kube::Error) -> Error {
    Error::Config(error.to_string())
}

// === impl Permit ===

impl Permit {
    pub(super) fn new(gate: Arc<dyn WriteGate>) -> Permit {
        let term = gate.term();
        Permit { gate, term, refused: Arc::default() }
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

// === impl Connections ===

impl Connections {
    async fn send(
        self: Arc<Self>,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, BoxError> {
        let Credentials { token, certificate, plugin, .. } = &*self.endpoint.0;
        let printed = plugin.as_ref().and_then(Plugin::last);
        let file = token.as_ref().map(TokenFile::get);
        let header = file.or_else(|| printed.as_ref().and_then(|printed| printed.header.clone()));
        if let Some(header) = header {
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        let identity = certificate.as_ref().map(CertificateFiles::get);
        let identity =
            identity.or_else(|| printed.as_ref().and_then(|printed| printed.identity.clone()));
        let permit = request.extensions_mut().remove::<Permit>();
        let request = request.map(|body| Outgoing { body, permit });
        let response = self.with(identity)?.request(request).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            if let Some(token) = token {
                token.refused();
            }
            if let Some(certificate) = certificate {
                certificate.refused();
            }
            if let Some((plugin, printed)) = plugin.as_ref().zip(printed) {
                plugin.refused(&printed);
            }
        }
        Ok(response)
    }

    /// Returns connections with this client certificate. If it is unusable (for example, because its key is not written
    /// yet), returns those with the last one: anonymous requests would be refused for another reason.
    fn with(&self, identity: Option<Arc<ClientCertificate>>) -> Result<Http, Error> {
        let mut current = self.current.lock();
        if identity.as_ref().map(Arc::as_ptr) != current.0.as_ref().map(Arc::as_ptr) {
            match self.endpoint.http(identity.as_deref()) {
                Ok(http) => current.1 = http,
                Err(error) if current.0.is_none() => {
                    let why = format!("the client certificate cannot be used: {error}");
                    return Err(Error::Credentials(why));
                }
                Err(error) => tracing::warn!(%error, "The new client certificate cannot be used"),
            }
            current.0 = identity;
        }
        Ok(current.1.clone())
    }
}

fn connector() -> socket::Connector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_keepalive(Some(KEEPALIVE_IDLE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "fuchsia"))]
    connector.set_tcp_user_timeout(Some(USER_TIMEOUT));
    Socket::connector(connector)
}

/// Erases the types of a service.
pub(super) fn wire<S, B>(service: S, identity: &Identity) -> HttpService
where
    S: Service<Request<Bytes>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let agent = HeaderValue::try_from(identity.user_agent()).expect("it is visible ASCII");
    let service = service
        .map_request(move |mut request: Request<Bytes>| {
            request.headers_mut().insert(USER_AGENT, agent.clone());
            request
        })
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

    fn has_plugin(user: serde_json::Value) -> bool {
        let mut user = user;
        user["exec"] = serde_json::json!({"apiVersion": "client.authentication.k8s.io/v1",
            "command": "login", "interactiveMode": "Never"});
        let mut config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
        config.auth_info = serde_json::from_value(user).unwrap();
        Endpoint::to(config).unwrap().plugin().is_some()
    }

    #[test]
    fn other_nonempty_credentials_replace_a_plugin() {
        use serde_json::json;
        assert!(has_plugin(json!({})));
        let certificate = json!({"client-certificate-data": "YQ==", "client-key-data": "YQ=="});
        for other in [certificate, json!({"token": "t"}), json!({"username": "u", "password": "p"})]
        {
            assert!(!has_plugin(other.clone()), "{other}");
        }
        for none in [
            json!({"token": ""}),
            json!({"username": "", "password": ""}),
            json!({"client-certificate-data": "", "client-key-data": ""}),
            json!({"client-certificate-data": "YQ=="}),
        ] {
            assert!(has_plugin(none.clone()), "{none}");
        }
    }

    /// Between the first question and the body are a plugin, a connection and TLS.
    #[tokio::test]
    async fn permission_is_checked_again_when_the_body_is_sent() {
        for open in [true, false] {
            let gate = Arc::new(Switch(AtomicBool::new(true)));
            let permit = Permit::new(gate.clone());
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
        let permit = Permit::new(Arc::new(Terms(AtomicU64::new(7))));
        assert!(permit.ask().is_err_and(|why| why.contains("another term")));
    }
}
