//! One request and its response.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tower::{BoxError, Service, ServiceExt};
use tracing::Span;
use tracing::field::{Empty, display};

use super::api_server_health::ApiServerHealth;
use super::config::Config;
use super::options::Options;
use super::text::Warnings;
use super::transport::{self, Answer, HttpService, WritePermit};
use super::{Error, MAX_OBJECT, query, status};
use crate::identity::Identity;
use crate::instruments::{REQUEST_SECONDS, REQUESTS, REQUESTS_BY_RESOURCE, Value};
use crate::object::{Kind, ObjectKey, Resource};

/// Limit for reading an error's body. A Status that names every invalid field is a few kB.
const MAX_ERROR: usize = 256 << 10;

/// A client of one API server. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    /// Set after each successful write of this client or a clone.
    pub(super) has_written: Arc<AtomicBool>,
}

struct Shared {
    service: HttpService,
    /// The host and port of the API server's URL. `None` over a service.
    address: Option<String>,
    agent: HeaderValue,
    options: Options,
    warnings: Warnings,
}

/// A request in progress. When dropped, it is counted and its span ends.
pub(super) struct ObservedCall<'a> {
    client: &'a Client,
    verb: &'static str,
    kind: &'a Kind,
    /// 0 until a complete response has arrived.
    pub(super) code: u16,
    began: Instant,
    span: Span,
}

// === impl Client ===

impl Client {
    /// Creates a client for the API server of `config`, without connecting. kube's own retries
    /// (`config.default_retry`) are not used. Waits for a credential plugin, if any, without a time limit.
    ///
    /// # Errors
    /// [`Error::Config`]: unusable certificates, credentials or proxy, or a plugin that fails.
    pub async fn new(config: impl Into<Config>, options: Options) -> Result<Client, Error> {
        let config = config.into();
        let address = config.host().map(str::to_owned);
        let config = config.0;
        let plugin = config.auth_info.exec.as_ref().and_then(|exec| exec.command.clone());
        let service = match plugin {
            None => transport::connect(config)?,
            Some(plugin) => {
                tracing::info!("Running the credential plugin {plugin}");
                let (send, connected) = oneshot::channel();
                // Not a blocking task: a runtime would wait for it when the program ends.
                std::thread::spawn(move || send.send(transport::connect(config)));
                let ended = Error::Config(format!("the credential plugin {plugin} was not run"));
                connected.await.unwrap_or(Err(ended))?
            }
        };
        Ok(Client::over(service, address, options))
    }

    /// Returns a client with the same credentials and connections, and other options.
    #[must_use]
    pub fn sibling(&self, options: Options) -> Client {
        Client::over(self.shared.service.clone(), self.shared.address.clone(), options)
    }

    /// Creates a client over any service, such as an API server in memory. Each request has a complete body; its URL is
    /// a path with a query.
    ///
    /// A kube client can be such a service. Its layers, such as authentication, then apply:
    ///
    /// ```
    /// # use bytes::{Bytes, BytesMut};
    /// # use controller_machinery::client::{Client, Options};
    /// # use http::Request;
    /// # use kube::client::Body;
    /// fn over(kube: kube::Client, options: Options) -> Client {
    ///     let service = tower::service_fn(move |request: Request<Bytes>| {
    ///         let kube = kube.clone();
    ///         async move { kube.send(request.map(Body::from)).await }
    ///     });
    ///     Client::from_service(service, options)
    /// }
    /// ```
    ///
    /// [`Manager::program`](crate::manager::Manager::program) accepts such a function.
    pub fn from_service<S, B>(service: S, options: Options) -> Client
    where
        S: Service<Request<Bytes>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Client::over(transport::wire(service), None, options)
    }

    fn over(service: HttpService, address: Option<String>, options: Options) -> Client {
        let agent = options.identity.user_agent();
        let agent = HeaderValue::try_from(agent).expect("it is visible ASCII");
        let shared = Shared { service, address, agent, options, warnings: Warnings::default() };
        let shared = Arc::new(shared);
        Client { shared, has_written: Arc::default() }
    }

    /// Returns the same client, but one that records only its own writes and those of its clones.
    pub(crate) fn noting_writes(&self) -> Client {
        Client { has_written: Arc::default(), ..self.clone() }
    }

    /// Returns whether this client or a clone has written.
    pub(crate) fn has_written(&self) -> bool {
        self.has_written.load(Ordering::Relaxed)
    }

    /// Gets one object with a quorum read.
    ///
    /// # Errors
    /// [`Error::is_not_found`] if there is none; any other error of a call.
    pub async fn get<V: Resource>(&self, key: &ObjectKey) -> Result<V, Error> {
        let kind = V::kind();
        decode(&self.call("get", &kind, query::object(&kind, key)?).await?)
    }

    /// Returns the signal for an API server that responds again after an outage.
    pub fn api_server_health(&self) -> &ApiServerHealth {
        &self.options().api_server_health
    }

    /// Returns the program's identity.
    pub fn identity(&self) -> &Identity {
        &self.options().identity
    }

    /// Returns whether the writes of this client are dry runs.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.options().dry_run.is_some()
    }

    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }

    pub(super) fn observe<'a>(&'a self, verb: &'static str, kind: &'a Kind) -> ObservedCall<'a> {
        // Never entered: log lines belong to the reconcile, not to its request.
        let span = tracing::debug_span!(
            "request",
            otel.name = %format_args!("{verb} {}", kind.resource()),
            otel.kind = "client",
            otel.status_code = Empty,
            otel.status_description = Empty,
            verb,
            resource = kind.resource(),
            http.response.status_code = Empty,
        );
        ObservedCall { client: self, verb, kind, code: 0, began: Instant::now(), span }
    }

    /// Sends a request and returns the whole body of the response, or its error.
    pub(super) async fn call(
        &self,
        verb: &'static str,
        kind: &Kind,
        request: Request<Bytes>,
    ) -> Result<Bytes, Error> {
        let mut observe = self.observe(verb, kind);
        let answer = self.open(request, &mut observe).await?;
        let code = answer.status().as_u16();
        let body = observe.by_deadline(read(answer.into_body(), MAX_OBJECT)).await??;
        observe.code = code;
        body.ok_or(Error::TooLarge { what: "an answer", limit: MAX_OBJECT })
    }

    /// Sends `request` and returns the head of the response. A refusal is an error: this function reads its body and
    /// sets its code in `observe`.
    pub(super) async fn open(
        &self,
        mut request: Request<Bytes>,
        observe: &mut ObservedCall<'_>,
    ) -> Result<Response<Answer>, Error> {
        let api_server_health = self.api_server_health();
        let permit = request.extensions().get::<WritePermit>().cloned();
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, self.shared.agent.clone());
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("application/json"));
        let answer = observe.by_deadline(self.shared.service.clone().oneshot(request)).await;
        let answer = answer.and_then(|answer| {
            answer.map_err(|error| Error::transport(error).at(self.shared.address.as_deref()))
        });
        let answer = answer.inspect_err(|_| {
            // A write that this process withdrew is no failure of the API server.
            if permit.is_none_or(|permit| permit.refused().is_none()) {
                api_server_health.failed();
            }
        })?;
        api_server_health.responded(answer.status().as_u16());
        self.shared.warnings.log(answer.headers());
        if answer.status().is_success() {
            return Ok(answer);
        }
        let code = answer.status().as_u16();
        let asked = status::retry_after(answer.headers());
        let body = observe.by_deadline(read(answer.into_body(), MAX_ERROR)).await??;
        observe.code = code;
        let error = status::error(code, asked, &body.unwrap_or_default());
        Err(error.about(observe.kind, self.identity()))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("options", self.options()).finish_non_exhaustive()
    }
}

// === impl ObservedCall ===

impl ObservedCall<'_> {
    /// Awaits `future` until the deadline of the call, then fails with [`Error::Deadline`].
    async fn by_deadline<T>(&self, future: impl Future<Output = T>) -> Result<T, Error> {
        let options = self.client.options();
        let deadline = match self.verb {
            "list" => options.list_deadline,
            "create" | "update" | "patch" | "delete" | "deletecollection" => options.write_deadline,
            _ => options.deadline,
        };
        // A deadline can be as long as a Duration, which no Instant can be.
        let left = deadline.saturating_sub(self.began.elapsed());
        timeout(left, future).await.map_err(|_| Error::Deadline(deadline))
    }

    fn count(&self) {
        let host = || Value::from(self.client.shared.address.clone().unwrap_or_default());
        // Without a response, client-go uses this value.
        let code: Value =
            if self.code == 0 { "<error>".into() } else { self.code.to_string().into() };
        let method = match self.verb {
            "create" => "POST",
            "update" => "PUT",
            "patch" => "PATCH",
            "delete" | "deletecollection" => "DELETE",
            _ => "GET",
        };
        REQUESTS.with([code.clone(), method.into(), host()]).inc();
        let seconds = self.began.elapsed().as_secs_f64();
        REQUEST_SECONDS.with([method.into(), host()]).observe(seconds);
        REQUESTS_BY_RESOURCE.with([self.verb.into(), self.kind.resource().into(), code]).inc();
    }

    /// Records the response on the span.
    fn record(&self) {
        if self.code != 0 {
            self.span.record("http.response.status_code", i64::from(self.code));
        }
        let why: &dyn fmt::Display = match self.code {
            0 => &"no answer",
            400.. => &self.code,
            _ => return,
        };
        // In this order: tracing-opentelemetry expects the status code without description first.
        self.span.record("otel.status_code", "ERROR");
        self.span.record("otel.status_description", display(why));
    }
}

impl Drop for ObservedCall<'_> {
    fn drop(&mut self) {
        self.count();
        if !self.span.is_disabled() {
            self.record();
        }
    }
}

/// Reads the next chunk of a body; `None` at its end. Cancel-safe.
pub(super) async fn chunk(body: &mut Answer) -> Result<Option<Bytes>, Error> {
    while let Some(frame) = body.frame().await {
        match frame.map_err(Error::transport)?.into_data() {
            Ok(chunk) if chunk.is_empty() => {}
            Ok(chunk) => return Ok(Some(chunk)),
            // Trailers: no API server sends any.
            Err(_) => {}
        }
    }
    Ok(None)
}

/// Reads a complete body; `None` if it is larger than `most`. Copies each chunk, because a chunk keeps a whole read
/// buffer in memory.
async fn read(mut body: Answer, most: usize) -> Result<Option<Bytes>, Error> {
    let mut all = BytesMut::new();
    while let Some(chunk) = chunk(&mut body).await? {
        if all.len() + chunk.len() > most {
            return Ok(None);
        }
        all.extend_from_slice(&chunk);
    }
    Ok(Some(all.freeze()))
}

/// Decodes the object in a response.
pub(super) fn decode<V: DeserializeOwned>(body: &[u8]) -> Result<V, Error> {
    serde_json::from_slice(body).map_err(|_| Error::decode::<V>(body))
}

#[cfg(test)]
mod tests;
