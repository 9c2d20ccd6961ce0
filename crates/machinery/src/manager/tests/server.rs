//! As much of an API server as the manager needs: objects under their paths, lists, watches that
//! show every change from the list on, applies and merge patches.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tower::service_fn;

use crate::client::{Client, Options};

/// Method, path and query, and body of a request.
type Asked = (String, String, Value);
type Pieces = Pin<Box<dyn futures::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;

#[derive(Clone, Default)]
pub(super) struct Server(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
}

struct State {
    objects: BTreeMap<String, Value>,
    version: u64,
    requests: Vec<Asked>,
    admit: fn(&mut Value),
    refuses: fn(&Value) -> bool,
    /// Reads of an object that another controller answers with a write: after the next patch of fields, and
    /// from now on.
    interferes: (u32, u32),
    /// A namespace that is being deleted.
    terminating: &'static str,
    /// A part of a path below which nothing may be listed.
    forbidden: &'static str,
    /// A part of a path below which nothing is found by a patch.
    missing: &'static str,
    /// Path and event of each change.
    changes: broadcast::Sender<(String, Value)>,
}

impl Default for State {
    fn default() -> State {
        State {
            objects: BTreeMap::new(),
            version: 10,
            requests: Vec::new(),
            admit: |_| {},
            refuses: |_| false,
            interferes: (0, 0),
            terminating: "",
            forbidden: "",
            missing: "",
            changes: broadcast::Sender::new(100),
        }
    }
}

impl Server {
    pub(super) fn client(&self, options: Options) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Bytes>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        Client::from_service(service, options)
    }

    /// Stores an object under its path, and returns it as stored.
    pub(super) fn put(&self, path: &str, object: Value) -> Value {
        self.0.state.lock().put(path, object)
    }

    pub(super) fn find(&self, path: &str) -> Option<Value> {
        self.0.state.lock().objects.get(path).cloned()
    }

    pub(super) fn get(&self, path: &str) -> Value {
        self.0.state.lock().objects[path].clone()
    }

    /// Deletes the object under a path, without an event.
    pub(super) fn remove(&self, path: &str) {
        self.0.state.lock().objects.remove(path);
    }

    /// Sets the change that is made to everything that is applied.
    pub(super) fn admit(&self, admit: fn(&mut Value)) {
        self.0.state.lock().admit = admit;
    }

    /// Which objects are refused as invalid.
    pub(super) fn refuse(&self, refuses: fn(&Value) -> bool) {
        self.0.state.lock().refuses = refuses;
    }

    /// Nothing can be created in this namespace any more.
    pub(super) fn terminate(&self, namespace: &'static str) {
        self.0.state.lock().terminating = namespace;
    }

    /// Nothing may be listed or watched below this part of a path.
    pub(super) fn forbid(&self, part: &'static str) {
        self.0.state.lock().forbidden = part;
    }

    /// There is no such namespace, or subresource.
    pub(super) fn has_no(&self, part: &'static str) {
        self.0.state.lock().missing = part;
    }

    /// Once fields have been patched, another controller writes the object after each of the next reads.
    pub(super) fn interfere_after_patch(&self, reads: u32) {
        self.0.state.lock().interferes = (reads, 0);
    }

    pub(super) fn requests(&self) -> Vec<Asked> {
        self.0.state.lock().requests.clone()
    }

    /// Method and path of everything but reads.
    pub(super) fn writes(&self) -> Vec<String> {
        let writes = self.requests().into_iter().filter(|(method, ..)| method != "GET");
        let path = |path: &str| path.split('?').next().unwrap().to_owned();
        writes.map(|(method, url, _)| format!("{method} {}", path(&url))).collect()
    }

    async fn answer(&self, request: Request<Bytes>) -> Response<StreamBody<Pieces>> {
        let (head, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (path, url) = (head.uri.path().to_owned(), head.uri.to_string());
        let mut state = self.0.state.lock();
        state.requests.push((head.method.to_string(), url.clone(), body.clone()));
        if !state.forbidden.is_empty() && path.contains(state.forbidden) {
            let refused = json!({"kind": "Status", "reason": "Forbidden", "message": "no"});
            let piece = Bytes::from(refused.to_string());
            return whole(403, Box::pin(futures::stream::iter([Ok(Frame::data(piece))])));
        }
        if url.contains("watch=") {
            return whole(200, state.watch(&path));
        }
        let (code, answer) = match head.method.as_str() {
            "GET" if state.is_collection(&path) => (200, state.list(&path)),
            "GET" => state.read(&path),
            "DELETE" => {
                state.objects.remove(&path);
                (200, json!({"kind": "Status"}))
            }
            "POST" => (201, body),
            _ => state.patch(&path, &body),
        };
        let piece = Bytes::from(answer.to_string());
        whole(code, Box::pin(futures::stream::iter([Ok(Frame::data(piece))])))
    }
}

fn whole(code: u16, pieces: Pieces) -> Response<StreamBody<Pieces>> {
    let mut response = Response::new(StreamBody::new(pieces));
    *response.status_mut() = code.try_into().unwrap();
    response
}

/// A JSON merge patch.
fn merge(into: &mut Value, patch: &Value) {
    match patch {
        Value::Object(fields) if into.is_object() || into.is_null() => {
            for (field, value) in fields {
                match value {
                    Value::Null => drop(into.as_object_mut().map(|into| into.remove(field))),
                    value => merge(&mut into[field], value),
                }
            }
        }
        value => *into = value.clone(),
    }
}

/// An operation of a JSON patch (RFC 6902): `test`, `add` to an object, or `remove`. Returns whether it was carried out.
fn json_patch(object: &mut Value, operation: &Value) -> bool {
    let path = operation["path"].as_str().unwrap();
    if operation["op"] == "test" {
        return object.pointer(path) == Some(&operation["value"]);
    }
    let (parent, field) = path.rsplit_once('/').unwrap();
    if operation["op"] == "add" {
        let value = operation["value"].clone();
        match object.pointer_mut(parent).unwrap() {
            Value::Array(items) if field == "-" => items.push(value),
            parent => parent[field] = value,
        }
        return true;
    }
    match object.pointer_mut(parent).unwrap() {
        Value::Array(items) => drop(items.remove(field.parse().unwrap())),
        parent => drop(parent.as_object_mut().unwrap().remove(field)),
    }
    true
}

/// The entry of `managedFields` for an apply.
pub(super) const APPLIED: Applied = Applied { manager: "test", operation: "Apply" };

#[derive(serde::Serialize)]
pub(super) struct Applied {
    manager: &'static str,
    operation: &'static str,
}

/// Records who patched fields, as the API server does. Returns whether any were.
fn record_patch(object: &mut Value, operations: &[Value]) -> bool {
    let of_object = |operation: &Value| {
        operation["op"] == "remove" && operation["path"].as_str().unwrap().starts_with("/spec")
    };
    let patched = operations.iter().any(of_object);
    if patched {
        let entry = json!({"manager": "test", "operation": "Update", "fieldsV1": {"f:spec": {}}});
        let entries = &mut object["metadata"]["managedFields"];
        let before = entries.as_array().cloned().unwrap_or_default();
        *entries = before.into_iter().chain([entry]).collect();
    }
    patched
}

impl State {
    fn put(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        let parts: Vec<&str> = path.rsplit('/').collect();
        let meta = &mut object["metadata"];
        meta["name"] = json!(parts[0]);
        if path.contains("/namespaces/") {
            meta["namespace"] = json!(parts[2]);
        }
        meta["resourceVersion"] = json!(self.version.to_string());
        if meta["uid"].is_null() {
            meta["uid"] = json!(format!("00000000-0000-4000-8000-{:012}", self.version));
        }
        let known = self.objects.insert(path.to_owned(), object.clone()).is_some();
        let kind = if known { "MODIFIED" } else { "ADDED" };
        let _ = self.changes.send((path.to_owned(), json!({"type": kind, "object": object})));
        object
    }

    /// Returns whether the last part of the path is no name: it has none of its own below a
    /// namespace.
    fn is_collection(&self, path: &str) -> bool {
        ["sites", "children", "secrets", "nodes"].iter().any(|plural| path.ends_with(plural))
    }

    fn list(&self, path: &str) -> Value {
        let plural = path.rsplit('/').next().unwrap();
        let of = |key: &str| key.rsplit('/').nth(1) == Some(plural);
        let items: Vec<&Value> =
            self.objects.iter().filter(|(key, _)| of(key)).map(|(_, object)| object).collect();
        json!({"kind": "List", "metadata": {"resourceVersion": self.version.to_string()}, "items": items})
    }

    fn watch(&self, path: &str) -> Pieces {
        let plural = path.rsplit('/').next().unwrap().to_owned();
        let changes = self.changes.subscribe();
        Box::pin(
            futures::stream::unfold(changes, |mut changes| async {
                let change = changes.recv().await.ok()?;
                Some((change, changes))
            })
            .filter_map(move |(path, event)| {
                let ours = path.rsplit('/').nth(1) == Some(&plural);
                let piece = ours.then(|| Ok(Frame::data(Bytes::from(format!("{event}\n")))));
                std::future::ready(piece)
            }),
        )
    }

    fn read(&mut self, path: &str) -> (u16, Value) {
        let answer = self.found(path);
        if self.interferes.1 > 0 && answer.0 == 200 {
            self.interferes.1 -= 1;
            let object = answer.1.clone();
            self.put(path, object);
        }
        answer
    }

    fn found(&self, path: &str) -> (u16, Value) {
        match self.objects.get(path) {
            Some(object) => (200, object.clone()),
            None => (404, json!({"kind": "Status", "reason": "NotFound", "message": "no"})),
        }
    }

    fn patch(&mut self, path: &str, body: &Value) -> (u16, Value) {
        let is_in = |part: &str| path.split('/').any(|it| it == part);
        if !self.missing.is_empty() && is_in(self.missing) {
            return (404, json!({"kind": "Status", "reason": "NotFound", "message": "no"}));
        }
        let is_new = !self.objects.contains_key(path.trim_end_matches("/status"));
        if !self.terminating.is_empty() && is_new && is_in(self.terminating) {
            let causes = json!([{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]);
            return (
                403,
                json!({"kind": "Status", "reason": "Forbidden", "message": "it goes",
                "details": {"causes": causes}}),
            );
        }
        let path = path.trim_end_matches("/status");
        let known = self.objects.get(path).cloned();
        let wanted = &body["metadata"]["resourceVersion"];
        if known.as_ref().is_some_and(|known| {
            !wanted.is_null() && known["metadata"]["resourceVersion"] != *wanted
        }) {
            return (409, json!({"kind": "Status", "reason": "Conflict", "message": "changed"}));
        }
        let uid = &body["metadata"]["uid"];
        if known.as_ref().is_some_and(|known| !uid.is_null() && known["metadata"]["uid"] != *uid) {
            let message = "metadata.uid: Invalid value: \"x\": field is immutable";
            return (422, json!({"kind": "Status", "reason": "Invalid", "message": message}));
        }
        let mut object = known.unwrap_or_else(|| json!({"metadata": {}}));
        if let Some(operations) = body.as_array() {
            if !operations.iter().all(|operation| json_patch(&mut object, operation)) {
                let message = "the server rejected our request due to an error in our request";
                return (422, json!({"kind": "Status", "reason": "Invalid", "message": message}));
            }
            if record_patch(&mut object, operations) {
                self.interferes = (0, self.interferes.0);
            }
        }
        if body.is_object() && object["metadata"]["managedFields"].is_null() {
            object["metadata"]["managedFields"] = json!([APPLIED]);
        }
        for (field, value) in body.as_object().into_iter().flatten() {
            match field.as_str() {
                "metadata" => merge(&mut object["metadata"], value),
                "spec" => merge(&mut object["spec"], value),
                _ => object[field] = value.clone(),
            }
        }
        (self.admit)(&mut object);
        if (self.refuses)(&object) {
            let refused = json!({"kind": "Status", "reason": "Invalid", "message": "no",
                "details": {"causes": [{"reason": "FieldValueInvalid", "field": "spec"}]}});
            return (422, refused);
        }
        (200, self.put(path, object))
    }
}
