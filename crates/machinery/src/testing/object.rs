//! Requests for single objects.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, Response};
use serde_json::{Value, json};

use super::fault::Fault;
use super::history::{Id, generation};
use super::request::{Ask, Refusal, failure, json_answer, status_answer};
use super::server::{Answer, Server, State};

/// The answer: code and body, or the refusal.
type Outcome = Result<(u16, Arc<Value>), Refusal>;

pub(super) fn object(server: &Server, head: &Parts, ask: &Ask, body: &[u8]) -> Response<Answer> {
    let mut id = ask.id();
    let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let writes = matches!(head.method, Method::POST | Method::PUT | Method::PATCH);
    let is_object = body.is_object() && body.get("metadata").is_none_or(Value::is_object);
    if writes && !is_object {
        return status_answer(400, "BadRequest", "the body is no object");
    }
    if head.method == Method::POST {
        id.name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    }
    let status = ask.subresource.as_deref() == Some("status");
    let mut outcome = Err(failure(Fault::Internal).into());
    server.change(|state| {
        let old = state.history.now(&id);
        outcome = match (&head.method, old) {
            (&Method::POST, old) => create(state, &id, old.as_deref(), body),
            (&Method::PATCH, None) if applies(head) => apply_new(state, &id, body),
            (_, None) => Err(failure(Fault::NotServed).into()),
            (&Method::GET, Some(old)) => Ok((200, old)),
            (&Method::PUT, Some(old)) => {
                let of_another = differs(&old, &body["metadata"], "uid");
                if of_another || body["metadata"]["resourceVersion"].is_string() {
                    update(state, &id, &old, body, status)
                } else {
                    Err(invalid("metadata.resourceVersion: must be specified for an update"))
                }
            }
            (&Method::PATCH, Some(old)) => patch(state, &id, &old, body, status),
            (&Method::DELETE, Some(old)) => delete(state, &id, &old, &body["preconditions"]),
            (_, Some(_)) => Err(failure(Fault::NotServed).into()),
        };
    });
    match outcome {
        Ok((code, object)) => json_answer(code, &object),
        Err(refusal) => *refusal,
    }
}

/// Returns whether the patch is a server-side apply, which creates a missing object.
fn applies(head: &Parts) -> bool {
    let content = head.headers.get("content-type").and_then(|value| value.to_str().ok());
    content.is_some_and(|content| content.contains("apply"))
}

fn invalid(why: &str) -> Refusal {
    status_answer(422, "Invalid", why).into()
}

fn create(state: &mut State, id: &Id, old: Option<&Value>, mut body: Value) -> Outcome {
    if body["metadata"]["resourceVersion"].is_string() {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(status_answer(500, "", why).into());
    }
    if old.is_some() {
        return Err(status_answer(409, "AlreadyExists", "already exists").into());
    }
    // The subresource has a path of its own.
    without_status(&mut body);
    Ok((201, state.history.put(id, body)))
}

fn without_status(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
}

/// A missing object has no UID, so a request that gives one is refused. Any resourceVersion is
/// accepted.
fn apply_new(state: &mut State, id: &Id, mut body: Value) -> Outcome {
    if body["metadata"]["uid"].is_string() {
        return Err(conflict());
    }
    if let Some(meta) = body["metadata"].as_object_mut() {
        meta.remove("resourceVersion");
    }
    create(state, id, None, body)
}

fn conflict() -> Refusal {
    status_answer(409, "Conflict", "the precondition does not hold").into()
}

fn patch(state: &mut State, id: &Id, old: &Arc<Value>, body: Value, status: bool) -> Outcome {
    // For a patch the UID is not a precondition but a field, which cannot change and is not part of
    // the status.
    let other = differs(old, &body["metadata"], "uid");
    if differs(old, &body["metadata"], "resourceVersion") {
        return Err(conflict());
    }
    if other && !status {
        return Err(invalid("metadata.uid: field is immutable"));
    }
    let mut new = (**old).clone();
    merge(&mut new, body);
    new["metadata"]["uid"] = old["metadata"]["uid"].clone();
    update(state, id, old, new, status)
}

/// Replaces `old` by `new`, except for what the request may not change.
fn update(state: &mut State, id: &Id, old: &Arc<Value>, mut new: Value, status: bool) -> Outcome {
    let asked = &new["metadata"];
    if differs(old, asked, "uid") || differs(old, asked, "resourceVersion") {
        return Err(conflict());
    }
    let written = new.get("status").cloned();
    if status {
        new = (**old).clone();
    }
    without_status(&mut new);
    if let Some(kept) = if status { written } else { old.get("status").cloned() } {
        new["status"] = kept;
    }
    for field in SYSTEM {
        match old["metadata"].get(field) {
            Some(value) => new["metadata"][field] = value.clone(),
            None => drop(new["metadata"].as_object_mut().and_then(|meta| meta.remove(field))),
        }
    }
    if !leaves(old, &new) {
        return Err(invalid("no new finalizers can be added if the object is being deleted"));
    }
    if **old == new {
        return Ok((200, old.clone()));
    }
    if is_deleting(&new) && finalizers(&new).is_empty() {
        // The response shows what would have been stored.
        new["metadata"]["generation"] = json!(generation(old, &new));
        state.history.remove(id);
        return Ok((200, Arc::new(new)));
    }
    Ok((200, state.history.put(id, new)))
}

/// Fields that only the server sets.
const SYSTEM: [&str; 7] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

fn finalizers(object: &Value) -> &[Value] {
    object["metadata"]["finalizers"].as_array().map_or(&[], Vec::as_slice)
}

fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Returns whether the update adds no finalizer to an object that is being deleted.
fn leaves(old: &Value, new: &Value) -> bool {
    !is_deleting(old) || finalizers(new).iter().all(|one| finalizers(old).contains(one))
}

/// Resources whose delete is answered with the deleted object as it was (`ReturnDeletedObject`)
/// and not with a Status.
const RETURNED: [&str; 1] = ["/api/v1/services"];

/// Deletes the object, or marks it as being deleted if it has finalizers.
fn delete(state: &mut State, id: &Id, old: &Arc<Value>, only: &Value) -> Outcome {
    if differs(old, only, "uid") || differs(old, only, "resourceVersion") {
        return Err(conflict());
    }
    if finalizers(old).is_empty() {
        let gone = state.history.remove(id);
        if let (true, Some(gone)) = (RETURNED.contains(&&*id.resource), gone) {
            return Ok((200, gone));
        }
        let uid = &old["metadata"]["uid"];
        return Ok((
            200,
            Arc::new(json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": { "name": id.name, "uid": uid },
            })),
        ));
    }
    if is_deleting(old) {
        return Ok((200, old.clone()));
    }
    let mut new = (**old).clone();
    let meta = &mut new["metadata"];
    meta["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    meta["deletionGracePeriodSeconds"] = json!(0);
    meta["generation"] = json!(meta["generation"].as_i64().unwrap_or(0) + 1);
    Ok((200, state.history.put(id, new)))
}

/// Returns whether the request gives a uid or resourceVersion that the object does not have.
fn differs(object: &Value, asked: &Value, field: &str) -> bool {
    asked.get(field).is_some_and(|asked| asked.is_string() && *asked != object["metadata"][field])
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
