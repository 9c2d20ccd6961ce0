//! A request: its parameters and its response.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::request::Parts;
use http::{Method, Response};
use http_body_util::{BodyExt, Collected, Full};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::fault::{Fault, Moment};
use super::history::Id;
use super::list::list;
use super::object::object;
use super::selection::Selection;
use super::server::{Answer, Server, State};
use super::watch::Watching;

/// A request, as the server received it.
#[derive(Debug, Clone)]
pub struct Received {
    /// Time from the start of the server until the request.
    pub at: Duration,
    /// `GET`, `PATCH` and so on.
    pub method: String,
    /// The verb, as in [`Server::fault`].
    pub verb: &'static str,
    /// The path of the collection without a namespace: `/apis/apps/v1/deployments`.
    pub resource: String,
    /// The number of this request among those with the same verb and resource, from 1.
    pub number: u64,
    /// The path and the query.
    pub uri: String,
    /// The body; null if there is none.
    pub body: Value,
}

/// A response that refuses a request.
pub(super) type Refusal = Box<Response<Answer>>;

/// The meaning of a path and its query.
pub(super) struct Ask {
    pub(super) resource: String,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
    /// The verb, the resource and the number of the request.
    pub(super) moment: Moment,
    query: HashMap<String, String>,
}

impl Ask {
    /// Parses the path of a collection, an object or a subresource; `None` for any other.
    fn parse(head: &Parts) -> Option<Ask> {
        let parts: Vec<&str> = head.uri.path().trim_matches('/').split('/').collect();
        let (group, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => (format!("api/{version}"), rest),
            ["apis", group, version, rest @ ..] => (format!("apis/{group}/{version}"), rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", _, "status" | "finalize"] => (None, rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
                (Some((*namespace).to_owned()), rest)
            }
            rest => (None, rest),
        };
        let resource = rest.first()?;
        let query = head.uri.query().unwrap_or_default().split('&');
        let query = query
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (unescaped(key), unescaped(&value.replace('+', " "))))
            .collect();
        Some(Ask {
            resource: format!("/{group}/{resource}"),
            namespace,
            name: rest.get(1).map(|name| unescaped(name)),
            subresource: rest.get(2).map(|sub| (*sub).to_owned()),
            moment: Moment { verb: "", resource: String::new(), number: 0 },
            query,
        })
    }

    fn verb(&self, method: &Method) -> &'static str {
        match *method {
            Method::GET if self.name.is_some() => "get",
            Method::GET if self.is("watch") => "watch",
            Method::GET => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            _ => "delete",
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.query.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn is(&self, key: &str) -> bool {
        matches!(self.get(key), Some("true" | "1"))
    }

    pub(super) fn version(&self) -> Option<u64> {
        self.get("resourceVersion")?.parse().ok().filter(|version| *version > 0)
    }

    pub(super) fn id(&self) -> Id {
        Id {
            resource: self.resource.clone(),
            namespace: self.namespace.clone().unwrap_or_default(),
            name: self.name.clone().unwrap_or_default(),
        }
    }
}

/// Decodes percent encoding.
fn unescaped(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

pub(super) async fn answer(
    server: &Server,
    head: &Parts,
    body: &[u8],
) -> io::Result<Response<Answer>> {
    if head.uri.path() == "/readyz" {
        return readiness(&server.lock());
    }
    let Some(mut ask) = Ask::parse(head) else {
        return Ok(not_modelled("this path", head));
    };
    let (received, interceptor) = {
        let mut state = server.lock();
        ask.moment = state.faults.next(ask.verb(&head.method), &ask.resource);
        let received = Received {
            at: state.history.began.elapsed(),
            method: head.method.to_string(),
            verb: ask.moment.verb,
            resource: ask.resource.clone(),
            number: ask.moment.number,
            uri: head.uri.to_string(),
            body: serde_json::from_slice(body).unwrap_or_default(),
        };
        state.requests.push(received.clone());
        (received, state.interceptor.clone())
    };
    if let Some(status) = interceptor.and_then(|intercept| intercept(&received)) {
        return Ok(refused(&status));
    }
    if let Some(what) = beyond_the_model(head, &ask, body) {
        return Ok(not_modelled(what, head));
    }
    let fault = {
        let mut state = server.lock();
        let which: &[Fault] = if ask.name.is_none() && head.method == Method::GET {
            &Fault::BEFORE
        } else {
            &Fault::OF_OBJECT
        };
        let rate = state.faults.rates.0;
        let fault = state.inject(which, &ask.moment, rate);
        if let Some(no) = refusal(&state, &ask) {
            return Ok(no);
        }
        fault
    };
    if fault.is_some() {
        server.change(|_| {});
    }
    with_fault(server, head, ask, body, fault).await
}

/// Handles a request, with a fault if one strikes it.
async fn with_fault(
    server: &Server,
    head: &Parts,
    ask: Ask,
    body: &[u8],
    fault: Option<Fault>,
) -> io::Result<Response<Answer>> {
    let mut stale = false;
    match fault {
        Some(Fault::Delay(delay)) => tokio::time::sleep(delay).await,
        Some(Fault::Stale) => stale = true,
        Some(Fault::Refused) => return Err(io::ErrorKind::ConnectionRefused.into()),
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::LostResponse) => {
            carry_out(server, head, ask, body, stale);
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Some(Fault::Unanswered) => {
            carry_out(server, head, ask, body, stale);
            return std::future::pending().await;
        }
        Some(fault) => return Ok(failure(fault)),
        None => {}
    }
    Ok(carry_out(server, head, ask, body, stale))
}

fn carry_out(
    server: &Server,
    head: &Parts,
    ask: Ask,
    body: &[u8],
    stale: bool,
) -> Response<Answer> {
    match (&head.method, &ask.name) {
        (&Method::GET, None) if ask.is("watch") => Watching::begin(server, ask, stale),
        (&Method::GET, None) => list(server, &ask, stale),
        _ => object(server, head, &ask, body),
    }
}

/// Returns the response to a readiness request. The request is not recorded. The next scripted fault strikes it, but is
/// not used up.
fn readiness(state: &State) -> io::Result<Response<Answer>> {
    match state.faults.script.front() {
        Some(Fault::Refused) => Err(io::ErrorKind::ConnectionRefused.into()),
        Some(fault @ (Fault::TooMany(_) | Fault::Internal | Fault::Unavailable)) => {
            Ok(failure(*fault))
        }
        _ => {
            let body = Full::new(Bytes::from("ok")).map_err(|never| match never {});
            Ok(Response::new(body.boxed_unsync()))
        }
    }
}

/// Returns the feature that a request uses and this server does not model.
fn beyond_the_model(head: &Parts, ask: &Ask, body: &[u8]) -> Option<&'static str> {
    if ask.get("dryRun").is_some() {
        return Some("dryRun");
    }
    if Selection::of(ask).is_ok_and(|selection| selection.beyond(&ask.resource)) {
        return Some("this fieldSelector");
    }
    if ask.get("labelSelector").is_some_and(|selector| selector.contains(['<', '>'])) {
        return Some("this labelSelector");
    }
    let content: Value = serde_json::from_slice(body).unwrap_or_default();
    if head.method == Method::DELETE {
        if content.get("orphanDependents").is_some() {
            return Some("orphanDependents");
        }
        if content.get("dryRun").is_some() {
            return Some("dryRun");
        }
    }
    let content_type = head.headers.get("content-type").and_then(|it| it.to_str().ok());
    match content_type.unwrap_or_default() {
        it if it.starts_with("application/apply-patch") && has_null(&content) => {
            return Some("null in an apply");
        }
        it if it.starts_with("application/apply-patch") && content.is_null() => {
            return Some("an apply that is not JSON");
        }
        it if it.starts_with("application/strategic") => return Some("a strategic merge patch"),
        _ => {}
    }
    let is_status = ask.subresource.as_deref().is_none_or(|name| name == "status");
    match (&head.method, &ask.name) {
        _ if !is_status => Some("this subresource"),
        (&Method::POST, None) => {
            let is_named =
                content["metadata"]["name"].as_str().is_some_and(|name| !name.is_empty());
            (!is_named).then_some("a create without a name")
        }
        (&Method::GET, _) | (&Method::PUT | &Method::PATCH | &Method::DELETE, Some(_)) => None,
        _ => Some("this method"),
    }
}

/// Returns whether a configuration sets a field to null.
fn has_null(config: &Value) -> bool {
    let is_null = |value: &Value| value.is_null() || has_null(value);
    match config {
        Value::Object(map) => map.values().any(is_null),
        Value::Array(items) => items.iter().any(is_null),
        _ => false,
    }
}

fn refusal(state: &State, ask: &Ask) -> Option<Response<Answer>> {
    if state.unserved.contains(&ask.resource) {
        return Some(failure(Fault::NotServed));
    }
    let (resource, plural) = (&ask.resource, ask.resource.rsplit('/').next().unwrap_or_default());
    let message = format!("{plural} is forbidden: the account cannot access this resource");
    state.forbidden.contains(resource).then(|| status_answer(403, "Forbidden", &message))
}

// === answers ===

/// Returns the refusal of a request that a real API server may support.
fn not_modelled(what: &str, head: &Parts) -> Response<Answer> {
    let (method, uri) = (&head.method, &head.uri);
    let message = format!("testing::Server does not model {what}: {method} {uri}");
    status_answer(501, "NotImplemented", &message)
}

/// Returns the metav1.Status of a failure.
pub fn status(code: u16, reason: &str, message: &str) -> Value {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "message": message,
    });
    if !reason.is_empty() {
        status["reason"] = json!(reason);
    }
    status
}

pub(super) fn failure(fault: Fault) -> Response<Answer> {
    let (code, reason, message) = match fault {
        Fault::Gone => (410, "Expired", "too old resource version"),
        Fault::TooMany(_) => (429, "TooManyRequests", "too many requests"),
        Fault::Unauthorized => (401, "Unauthorized", "Unauthorized"),
        Fault::Forbidden => (403, "Forbidden", "cannot list resource at the cluster scope"),
        Fault::NotServed => return not_served(),
        Fault::NoStreaming => (
            422,
            "Invalid",
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the \
             WatchList feature gate is enabled",
        ),
        Fault::Unavailable => (503, "ServiceUnavailable", "the server is unavailable"),
        Fault::TooLarge => return json_answer(504, &too_large()),
        _ => (500, "InternalError", "an internal error"),
    };
    let mut response = status_answer(code, reason, message);
    if let Fault::TooMany(seconds) = fault {
        response.headers_mut().insert("retry-after", seconds.into());
    }
    response
}

/// Returns the response for a path that the server does not know, which is text.
fn not_served() -> Response<Answer> {
    let body = Full::new(Bytes::from("404 page not found\n"));
    let mut response = respond(404, body.map_err(|never| match never {}).boxed_unsync());
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("text/plain"));
    response
}

/// Returns the metav1.Status for an object that does not exist.
pub(super) fn not_found(id: &Id) -> Response<Answer> {
    let plural = id.plural();
    let mut status = status(404, "NotFound", &format!("{plural} {:?} not found", id.name));
    status["details"] = json!({ "name": id.name, "kind": plural });
    json_answer(404, &status)
}

/// Returns the metav1.Status for a future version.
pub(super) fn too_large() -> Value {
    let mut status = status(504, "Timeout", "Too large resource version: 9, current: 8");
    let cause =
        json!({ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" });
    status["details"] = json!({ "causes": [cause], "retryAfterSeconds": 1 });
    status
}

/// Returns the response with a metav1.Status.
pub(super) fn refused(status: &Value) -> Response<Answer> {
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    json_answer(code.filter(|code| (400..600).contains(code)).unwrap_or(500), status)
}

pub(super) fn status_answer(code: u16, reason: &str, message: &str) -> Response<Answer> {
    json_answer(code, &status(code, reason, message))
}

pub(super) fn json_answer(code: u16, body: &Value) -> Response<Answer> {
    let bytes = Full::new(Bytes::from(body.to_string()));
    respond(code, bytes.map_err(|never| match never {}).boxed_unsync())
}

/// Returns the body of a complete response.
pub(super) fn body(response: Response<Answer>) -> Value {
    let collected = response.into_body().collect().now_or_never();
    let bytes = collected.and_then(Result::ok).map(Collected::to_bytes).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

pub(super) fn respond(code: u16, body: Answer) -> Response<Answer> {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).expect("it is a valid code");
    response
        .headers_mut()
        .insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}
