//! One of the two servers, and its responses so far.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{BoxError, ServiceExt};

use super::THINGS;
use super::script::{Query, Request, Uid, Version};
use super::stream::Stream;
use super::trace::Entry;
use crate::control_plane::ControlPlane;
use crate::world::MAX_WAIT;
use controller_machinery::testing;

/// A version that no server reaches.
pub(super) const FUTURE: &str = "1000000000";

enum Server {
    Real(kube::Client),
    Model(testing::Server),
}

pub(super) struct Side {
    server: Server,
    /// The version in each response that had one.
    versions: Vec<String>,
    tokens: Vec<String>,
    /// UID and version in the responses for each object.
    known: HashMap<(String, String), Vec<(String, String)>>,
}

impl Side {
    pub(super) async fn real(plane: &ControlPlane) -> Side {
        Side::new(Server::Real(plane.admin_without_retries().await))
    }

    pub(super) fn model(model: testing::Server) -> Side {
        model.set_variation(false);
        Side::new(Server::Model(model))
    }

    fn new(server: Server) -> Side {
        Side { server, versions: Vec::new(), tokens: Vec::new(), known: HashMap::new() }
    }

    /// Does the same as etcd's compaction, except for the events that the API server remembers.
    pub(super) fn compact_history(&self) {
        match &self.server {
            Server::Model(model) => model.compact_history(),
            Server::Real(_) => panic!("etcd does it"),
        }
    }

    /// Sends a request and waits for the response; for a streaming list, for all initial objects.
    pub(super) async fn perform(&mut self, request: &Request) -> Entry {
        let (path, body) = self.resolve(request);
        if request.method == Method::GET && request.name.is_none() {
            self.catch_up().await;
        }
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            let entry = self.once(request, &path, body.clone()).await;
            // A busy API server can take too long to catch up with existing versions.
            if !entry.is_too_large() || path.contains(FUTURE) {
                self.learn(&entry.body);
                return entry;
            }
            assert!(Instant::now() < deadline, "the API server does not catch up: {entry:?}");
        }
    }

    async fn once(&self, request: &Request, path: &str, body: Vec<u8>) -> Entry {
        let asked = format!("{} {path} {}", request.method, String::from_utf8_lossy(&body));
        let answer = self.send(&request.method, path, request.content, body).await;
        let code = answer.status().as_u16();
        if code == 200 && request.has("watch", "true") {
            let stream = Stream::of(answer.into_body());
            // A watch without a version, or from version 0, gets all existing objects without requesting
            // them.
            let from = path.split("resourceVersion=").nth(1);
            let whole = from.is_none_or(|from| from.starts_with('0'));
            let whole = whole || request.has("sendInitialEvents", "true");
            if whole && request.has("allowWatchBookmarks", "true") {
                let annotations =
                    |frame: &Value| frame["object"]["metadata"]["annotations"].clone();
                stream.until(MAX_WAIT, |frame| !annotations(frame).is_null()).await;
            }
            return Entry::watch(asked, request.namespace, request.last_fence(), stream);
        }
        let bytes = answer.into_body().collect().await.expect("a whole answer").to_bytes();
        let body: Value = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
        Entry::answer(asked, code, body)
    }

    /// Waits until the API server's cache is as new as etcd, because a request for any version can get an
    /// older response.
    async fn catch_up(&self) {
        let Server::Real(_) = &self.server else { return };
        let things = format!("{THINGS}/things");
        let get = |path: String| async move {
            let answer = self.send(&Method::GET, &path, "", Vec::new()).await;
            let code = answer.status().as_u16();
            (code, answer.into_body().collect().await.expect("a whole answer").to_bytes())
        };
        let (_, newest) = get(things.clone()).await;
        let newest: Value = serde_json::from_slice(&newest).expect("a list");
        let newest = newest["metadata"]["resourceVersion"].as_str().expect("a version");
        let cached = format!("{things}?resourceVersion={newest}&resourceVersionMatch=NotOlderThan");
        let deadline = Instant::now() + MAX_WAIT;
        while get(cached.clone()).await.0 != 200 {
            assert!(Instant::now() < deadline, "the API server's cache does not catch up");
        }
    }

    fn learn(&mut self, body: &Value) {
        let meta = &body["metadata"];
        let text = |field: &str| meta[field].as_str().filter(|text| !text.is_empty());
        if let Some(token) = text("continue") {
            self.tokens.push(token.to_owned());
        }
        let Some(version) = text("resourceVersion") else { return };
        self.versions.push(version.to_owned());
        if let (Some(namespace), Some(name), Some(uid)) =
            (text("namespace"), text("name"), text("uid"))
        {
            let key = (namespace.to_owned(), name.to_owned());
            self.known.entry(key).or_default().push((uid.to_owned(), version.to_owned()));
        }
    }

    /// The path with parameters, and the body.
    fn resolve(&self, request: &Request) -> (String, Vec<u8>) {
        let mut path = THINGS.to_owned();
        if let Some(namespace) = request.namespace {
            path += &format!("/namespaces/{namespace}");
        }
        path += "/things";
        if let Some(name) = request.name {
            path += &format!("/{name}");
        }
        if request.status {
            path += "/status";
        }
        let mut separator = '?';
        for (name, query) in &request.query {
            let value = match query {
                Query::Text(text) => Some(text.clone()),
                Query::Version(version) => self.version(*version),
                Query::Token(at) => round(&self.tokens, *at),
            };
            if let Some(value) = value {
                path += &format!("{separator}{name}={}", escaped(&value));
                separator = '&';
            }
        }
        let mut body = request.body.clone();
        if let Some(version) = self.version(request.version) {
            body[request.within]["resourceVersion"] = json!(version);
        }
        if let Some(uid) = self.uid(request.uid) {
            body[request.within]["uid"] = json!(uid);
        }
        let body = if super::absent(&body) { Vec::new() } else { body.to_string().into_bytes() };
        (path, body)
    }

    fn version(&self, version: Version) -> Option<String> {
        let known = |key: (&str, &str)| self.known.get(&(key.0.to_owned(), key.1.to_owned()));
        match version {
            Version::None => None,
            Version::Last(key) => Some(known(key)?.last()?.1.clone()),
            Version::First(key) => Some(known(key)?.first()?.1.clone()),
            Version::At(at) => round(&self.versions, at),
            Version::Future => Some(FUTURE.to_owned()),
        }
    }

    fn uid(&self, uid: Uid) -> Option<String> {
        let known = |key: (&str, &str)| self.known.get(&(key.0.to_owned(), key.1.to_owned()));
        match uid {
            Uid::None => None,
            Uid::Last(key) => Some(known(key)?.last()?.0.clone()),
            Uid::First(key) => Some(known(key)?.first()?.0.clone()),
            Uid::Wrong => Some("00000000-0000-4000-8000-ffffffffffff".to_owned()),
        }
    }

    async fn send(
        &self,
        method: &Method,
        path: &str,
        content: &str,
        body: Vec<u8>,
    ) -> Response<UnsyncBoxBody<Bytes, BoxError>> {
        let request = http::Request::builder().method(method).uri(path);
        let request =
            if body.is_empty() { request } else { request.header("content-type", content) };
        let request = request.body(body).expect("a request");
        match &self.server {
            Server::Real(client) => {
                let answer = client.send(request.map(Into::into)).await.expect("an answer");
                answer.map(|body| body.map_err(BoxError::from).boxed_unsync())
            }
            Server::Model(model) => {
                let answer =
                    model.clone().oneshot(request.map(Bytes::from)).await.expect("an answer");
                answer.map(|body| body.map_err(BoxError::from).boxed_unsync())
            }
        }
    }

    /// Applies a configuration of any kind. Returns the response.
    pub(super) async fn apply(&self, path: &str, config: &Value) -> Value {
        let body = config.to_string().into_bytes();
        let answer = self.send(&Method::PATCH, path, "application/apply-patch+yaml", body).await;
        let bytes = answer.into_body().collect().await.expect("a whole answer").to_bytes();
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// Sends a JSON body. Returns the code of the response.
    pub(super) async fn code(&self, method: &Method, path: &str, body: &Value) -> u16 {
        let body = body.to_string().into_bytes();
        self.send(method, path, "application/json", body).await.status().as_u16()
    }

    /// Removes every object, for the next script.
    pub(super) async fn clear(&mut self) {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            let all = self.perform(&Request::list(None, Vec::new())).await;
            let items = all.body["items"].as_array().cloned().unwrap_or_default();
            if items.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "objects stay: {items:#?}");
            for item in items {
                let meta = &item["metadata"];
                let text = |field: &str| meta[field].as_str().unwrap_or_default();
                let (namespace, name) = (text("namespace"), text("name"));
                let path = format!("{THINGS}/namespaces/{namespace}/things/{name}");
                let free = json!({ "metadata": { "finalizers": null } }).to_string().into_bytes();
                self.send(&Method::PATCH, &path, "application/merge-patch+json", free).await;
                self.send(&Method::DELETE, &path, "application/json", Vec::new()).await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// One of several; the index wraps around.
fn round(all: &[String], at: usize) -> Option<String> {
    all.get(at.checked_rem(all.len())?).cloned()
}

fn escaped(value: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let escape = |byte: u8| {
        if plain(&byte) { (byte as char).to_string() } else { format!("%{byte:02X}") }
    };
    value.bytes().map(escape).collect()
}
