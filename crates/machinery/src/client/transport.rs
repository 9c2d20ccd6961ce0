//! The connection: sockets, TLS, authentication.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

use super::Error;
use super::error::config_failure;
use super::token::TokenFile;
use crate::identity::Identity;

/// An answer's body.
pub(super) type Answer = UnsyncBoxBody<Bytes, BoxError>;
/// Anything that sends requests to an API server. kube's `Client` wraps such a service in a buffer
/// with a task; without it a request takes one hop fewer between tasks.
pub(super) type Wire = BoxCloneSyncService<Request<Body>, Response<Answer>, BoxError>;

/// Time limit for a TCP connection. TLS on it, and the answer, fall under the deadline of the call.
const CONNECT: Duration = Duration::from_secs(5);
/// An idle connection is probed after KEEPALIVE_IDLE, then every KEEPALIVE_INTERVAL, and is dead
/// after KEEPALIVE_PROBES probes without answer: after 30 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
/// Data unacknowledged for this long means a dead connection; without this the kernel retries for a
/// quarter of an hour (tcp_retries2).
const USER_TIMEOUT: Duration = Duration::from_secs(30);
/// The API server closes connections that are idle for 90 s; closing them first avoids sending a
/// request just as that happens.
const POOL_IDLE: Duration = Duration::from_secs(60);
/// How many idle connections are kept.
const POOL_SIZE: usize = 16;
/// Size of a read buffer: HTTP heads must fit, and bodies come in pieces of up to this size.
/// hyper's own limit of about 400 kB would cost memory on every connection.
const READ_BUFFER: usize = 64 << 10;

/// The way to the API server that `config` names. Nothing is connected yet.
pub(super) fn connect(config: &kube::Config, identity: &Identity) -> Result<Wire, Error> {
    let unusable = |error: kube::Error| Error::Config(config_failure(&error));
    if let Some(proxy) = &config.proxy_url {
        return Err(Error::Config(format!(
            "the kubeconfig asks for the proxy {}, and proxies are not supported",
            proxy.host().unwrap_or_default()
        )));
    }
    let token = TokenFile::of(&config.auth_info)?;
    let mut config = config.clone();
    if token.is_some() {
        // A plugin ranks after the file, and must not be used in its place.
        config.auth_info.token_file = None;
        config.auth_info.exec = None;
    }
    let https = config.rustls_https_connector_with_connector(connector()).map_err(unusable)?;
    let http: hyper_util::client::legacy::Client<_, Body> =
        hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(POOL_SIZE)
            .http1_max_buf_size(READ_BUFFER)
            .build(https);
    let stack = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(unusable)?)
        .layer(config.extra_headers_layer().map_err(unusable)?)
        .map_err(BoxError::from)
        .service(http);
    let Some(token) = token else { return Ok(wire(stack, identity)) };
    let asked = token.clone();
    Ok(wire(
        stack
            .map_request(move |mut request: Request<Body>| {
                request.headers_mut().insert(AUTHORIZATION, asked.header());
                request
            })
            .map_response(move |response: Response<_>| {
                if response.status() == StatusCode::UNAUTHORIZED {
                    token.refused();
                }
                response
            }),
        identity,
    ))
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
pub(super) fn wire<S, B>(service: S, identity: &Identity) -> Wire
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let agent = HeaderValue::try_from(identity.user_agent()).expect("it is visible ASCII");
    let service = service
        .map_request(move |mut request: Request<Body>| {
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
    use kube::config::ExecConfig;

    use super::*;

    #[tokio::test]
    async fn where_there_is_a_token_file_no_credential_plugin_runs() {
        let folder = tempfile::tempdir().unwrap();
        let (token, ran) = (folder.path().join("token"), folder.path().join("ran"));
        std::fs::write(&token, "secret").unwrap();
        let mut config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
        config.auth_info.token_file = Some(token.display().to_string());
        config.auth_info.exec = Some(ExecConfig {
            command: Some("touch".to_owned()),
            args: Some(vec![ran.display().to_string()]),
            ..serde_json::from_str("{}").unwrap()
        });
        let connected = connect(&config, &Identity::default());
        assert!(!ran.exists(), "the plugin ran");
        connected.unwrap();
    }
}
