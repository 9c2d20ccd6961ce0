//! One request: what it asks for, and the response.

use std::collections::HashMap;
use std::io;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::fault::Fault;
use super::history::Id;
use super::list::list;
use super::object::object;
use super::server::{Answer, Model, State};
use super::watch::Watching;

/// A response that is a refusal.
pub(super) type Refusal = Box<Response<Answer>>;

/// The meaning of a path and its query.
pub(super) struct Ask {
    pub(super) resource: String,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
    query: HashMap<String, String>,
}

impl Ask {
    fn parse(head: &Parts) -> Ask {
        let mut parts: Vec<&str> = head.uri.path().trim_matches('/').split('/').collect();
        let root = if parts[0] == "api" { 2 } else { 3 };
        let rest = parts.split_off(root);
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
                (Some((*namespace).to_owned()), rest)
            }
            rest => (None, rest),
        };
        let query = head.uri.query().unwrap_or_default().split('&');
        let query = query
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (unescaped(key), unescaped(value)))
            .collect();
        Ask {
            resource: format!("/{}/{}", parts.join("/"), rest[0]),
            namespace,
            name: rest.get(1).map(|name| (*name).to_owned()),
            subresource: rest.get(2).map(|sub| (*sub).to_owned()),
            query,
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

/// Undoes percent encoding.
fn unescaped(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut plain = Vec::new();
    while let Some(byte) = bytes.next() {
        let mut digit = || bytes.next().and_then(|b| (b as char).to_digit(16)).unwrap_or(0) as u8;
        plain.push(match byte {
            b'%' => digit() << 4 | digit(),
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8_lossy(&plain).into_owned()
}

pub(super) async fn answer(
    model: &Model,
    head: &Parts,
    body: &[u8],
) -> io::Result<Response<Answer>> {
    if head.uri.path() == "/readyz" {
        return readiness(&model.lock());
    }
    let ask = Ask::parse(head);
    let fault = {
        let mut state = model.lock();
        state.requests.push(format!("{} {}", head.method, head.uri));
        let rate = state.rates.0;
        let fault = state.strike(&Fault::BEFORE, rate);
        if let Some(no) = refusal(&state, &ask) {
            return Ok(no);
        }
        fault
    };
    let mut stale = false;
    match fault {
        Some(Fault::Delay(delay)) => tokio::time::sleep(delay).await,
        Some(Fault::Stale) => stale = true,
        Some(Fault::Refused) => return Err(io::ErrorKind::ConnectionRefused.into()),
        Some(fault) => return Ok(failure(fault)),
        None => {}
    }
    match (&head.method, &ask.name) {
        (&Method::GET, None) if ask.is("watch") => Ok(Watching::begin(model, ask, stale)),
        (&Method::GET, None) => Ok(list(model, &ask, stale)),
        _ => Ok(object(model, head, &ask, body)),
    }
}

/// Not a request like the others: it is not recorded, and meets the next scripted fault without
/// using it up.
fn readiness(state: &State) -> io::Result<Response<Answer>> {
    match state.script.front() {
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

fn refusal(state: &State, ask: &Ask) -> Option<Response<Answer>> {
    if state.unserved.contains(&ask.resource) {
        return Some(failure(Fault::NotServed));
    }
    state.forbidden.contains(&ask.resource).then(|| failure(Fault::Forbidden))
}

// === answers ===

/// The metav1.Status of a failure.
pub(super) fn status(code: u16, reason: &str, message: &str) -> Value {
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
        Fault::NotServed => (404, "NotFound", "the server could not find the requested resource"),
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

/// The metav1.Status for a version that is still to come.
pub(super) fn too_large() -> Value {
    let mut status = status(504, "Timeout", "Too large resource version: 9, current: 8");
    let cause =
        json!({ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" });
    status["details"] = json!({ "causes": [cause], "retryAfterSeconds": 1 });
    status
}

pub(super) fn status_answer(code: u16, reason: &str, message: &str) -> Response<Answer> {
    json_answer(code, &status(code, reason, message))
}

pub(super) fn json_answer(code: u16, body: &Value) -> Response<Answer> {
    let bytes = Full::new(Bytes::from(body.to_string()));
    respond(code, bytes.map_err(|never| match never {}).boxed_unsync())
}

pub(super) fn respond(code: u16, body: Answer) -> Response<Answer> {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).expect("it is one of ours");
    response
        .headers_mut()
        .insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}
