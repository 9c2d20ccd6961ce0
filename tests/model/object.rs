//! Requests for single objects.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, Response};
use serde_json::{Value, json};

use super::fault::Fault;
use super::history::Id;
use super::request::{Ask, failure, json_answer, status_answer};
use super::server::{Answer, Model, State};

pub(super) fn object(model: &Model, head: &Parts, ask: &Ask, body: &[u8]) -> Response<Answer> {
    let mut id = ask.id();
    let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    if head.method == Method::POST {
        id.name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    }
    let old = model.lock().history.now(&id);
    let status = ask.subresource.as_deref() == Some("status");
    let mut answer = None;
    match (&head.method, old) {
        (&Method::POST, Some(_)) => return status_answer(409, "AlreadyExists", "already exists"),
        (&Method::POST, None) => {
            model.change(|state| answer = Some((201, state.history.put(&id, body))));
        }
        (&Method::GET, Some(old)) => answer = Some((200, old)),
        (&Method::PATCH, old) => {
            let created = old.is_none();
            if created && !applies(head) {
                return failure(Fault::NotServed);
            }
            let mut new = old.as_ref().map_or_else(|| json!({}), |old| (**old).clone());
            if let Some(no) = conflict(&new, &body["metadata"]) {
                return no;
            }
            merge(&mut new, if status { json!({ "status": body["status"] }) } else { body });
            if old.as_deref() == Some(&new) {
                answer = Some((200, Arc::new(new)));
            } else {
                let code = if created { 201 } else { 200 };
                model.change(|state| answer = Some((code, state.history.put(&id, new))));
            }
        }
        (&Method::DELETE, Some(old)) => {
            if let Some(no) = conflict(&old, &body["preconditions"]) {
                return no;
            }
            model.change(|state| answer = Some((200, bury(state, &id, &old))));
        }
        _ => return failure(Fault::NotServed),
    }
    match answer {
        Some((code, object)) => json_answer(code, &object),
        None => failure(Fault::Internal),
    }
}

/// Whether the patch is a server-side apply, which creates what is not there.
fn applies(head: &Parts) -> bool {
    let content = head.headers.get("content-type").and_then(|value| value.to_str().ok());
    content.is_some_and(|content| content.contains("apply"))
}

/// Deletes, or marks as deleting what has finalizers.
fn bury(state: &mut State, id: &Id, old: &Value) -> Arc<Value> {
    let finalizers = old["metadata"]["finalizers"].as_array().map_or(0, Vec::len);
    if finalizers == 0 {
        return state.history.remove(id).unwrap_or_default();
    }
    let mut new = old.clone();
    new["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    state.history.put(id, new)
}

/// 409 when a uid or resourceVersion is asked for that the object does not have.
fn conflict(object: &Value, asked: &Value) -> Option<Response<Answer>> {
    let differs = |field: &str| {
        asked
            .get(field)
            .is_some_and(|asked| !asked.is_null() && *asked != object["metadata"][field])
    };
    (differs("uid") || differs("resourceVersion"))
        .then(|| status_answer(409, "Conflict", "the precondition does not hold"))
}

/// RFC 7386.
fn merge(into: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *into = patch;
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            if let Some(into) = into.as_object_mut() {
                into.remove(&key);
            }
        } else {
            merge(&mut into[&key], value);
        }
    }
}
