//! Requests for single objects.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, Response};
use json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use serde_json::{Value, json};

use super::crd::details;
use super::fault::Fault;
use super::history::{Id, generation};
use super::managers::Writer;
use super::request::{Ask, Refusal, failure, json_answer, refused, status, status_answer};
use super::server::{Answer, Server, State};

/// The answer: code and body, or the refusal.
type Outcome = Result<(u16, Arc<Value>), Refusal>;

/// What a request carries.
#[derive(Clone, Copy, PartialEq)]
enum Content {
    Object,
    MergePatch,
    JsonPatch,
    Apply { force: bool },
}

pub(super) fn object(server: &Server, head: &Parts, ask: &Ask, body: &[u8]) -> Response<Answer> {
    let mut id = ask.id();
    let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let content = match content(head, ask) {
        Ok(content) => content,
        Err(refusal) => return *refusal,
    };
    let is_object = body.is_object() && body.get("metadata").is_none_or(Value::is_object);
    let writes = matches!(head.method, Method::POST | Method::PUT | Method::PATCH);
    if writes && !(is_object || content == Content::JsonPatch && body.is_array()) {
        return status_answer(400, "BadRequest", "the body is no object");
    }
    if head.method == Method::POST {
        id.name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    }
    let by = manager(head, ask, content);
    if !by.subresource.is_empty() && !server.lock().has_status(&id) {
        return failure(Fault::NotServed);
    }
    let mut outcome = Err(failure(Fault::Internal).into());
    server.change(|state| {
        let old = state.history.now(&id);
        outcome = match (&head.method, old) {
            (&Method::POST, old) => create(state, &id, old.as_deref(), body, by),
            (&Method::PATCH, None) if matches!(content, Content::Apply { .. }) => {
                apply_new(state, &id, &body, by)
            }
            (_, None) => Err(failure(Fault::NotServed).into()),
            (&Method::GET, Some(old)) => Ok((200, old)),
            (&Method::PUT, Some(old)) => put(state, &id, &old, body, by),
            (&Method::PATCH, Some(old)) => patch(state, &id, &old, &body, content, by),
            (&Method::DELETE, Some(old)) => delete(state, &id, &old, &body["preconditions"]),
            (_, Some(_)) => Err(failure(Fault::NotServed).into()),
        };
    });
    match outcome {
        Ok((code, object)) => json_answer(code, &object),
        Err(refusal) => *refusal,
    }
}

fn content(head: &Parts, ask: &Ask) -> Result<Content, Refusal> {
    let (manager, force) = (ask.get("fieldManager"), ask.get("force"));
    if head.method != Method::PATCH {
        return Ok(Content::Object);
    }
    let content = match head.headers.get("content-type").and_then(|it| it.to_str().ok()) {
        Some(it) if it.starts_with("application/apply-patch") && manager.is_some() => {
            Content::Apply { force: ask.is("force") }
        }
        Some(it) if it.starts_with("application/apply-patch") => {
            return Err(invalid("fieldManager: Required value: is required for apply patch"));
        }
        Some(it) if it.starts_with("application/json-patch") => Content::JsonPatch,
        Some(it) if it.starts_with("application/merge-patch") => Content::MergePatch,
        _ => return Err(status_answer(415, "UnsupportedMediaType", "no such patch").into()),
    };
    if force.is_some() && !matches!(content, Content::Apply { .. }) {
        return Err(invalid("force: Forbidden: may not be specified for non-apply patch"));
    }
    Ok(content)
}

/// Who sends the request: the field manager, or the first word of the user agent.
fn manager(head: &Parts, ask: &Ask, content: Content) -> Writer {
    let agent = head.headers.get("user-agent").and_then(|agent| agent.to_str().ok());
    let agent = agent.unwrap_or_default().split('/').next().unwrap_or_default();
    Writer {
        operation: if matches!(content, Content::Apply { .. }) { "Apply" } else { "Update" },
        name: ask.get("fieldManager").unwrap_or(agent).to_owned(),
        subresource: ask.subresource.clone().unwrap_or_default(),
    }
}

fn invalid(why: &str) -> Refusal {
    status_answer(422, "Invalid", why).into()
}

fn create(state: &mut State, id: &Id, old: Option<&Value>, mut body: Value, by: Writer) -> Outcome {
    state.complete(id, &mut body);
    state.admit(id, &mut body)?;
    if body["metadata"]["resourceVersion"].is_string() {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(status_answer(500, "", why).into());
    }
    if old.is_some() {
        return Err(status_answer(409, "AlreadyExists", "already exists").into());
    }
    state.write(id, by, |write| write.update(None, &mut body));
    store_new(state, id, body)
}

fn store_new(state: &mut State, id: &Id, mut new: Value) -> Outcome {
    if state.has_status(id) {
        // The subresource has a path of its own.
        without_status(&mut new);
    }
    new["metadata"]["creationTimestamp"] = json!(state.now());
    if let Some(meta) = new["metadata"].as_object_mut() {
        meta.remove("uid");
    }
    Ok((201, state.history.put(id, new)))
}

fn without_status(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
}

/// A missing object has no UID, so a request that gives one is refused. Any resourceVersion is
/// accepted.
fn apply_new(state: &mut State, id: &Id, config: &Value, by: Writer) -> Outcome {
    if !by.subresource.is_empty() {
        return Err(failure(Fault::NotServed).into());
    }
    state.check_types(id, config)?;
    if config["metadata"]["uid"].is_string() {
        return Err(conflict());
    }
    let nothing = json!({ "metadata": {} });
    let mut new = state.write(id, by, |write| write.apply(&nothing, config, false))?;
    state.complete(id, &mut new);
    state.admit(id, &mut new)?;
    store_new(state, id, new)
}

fn conflict() -> Refusal {
    status_answer(409, "Conflict", "the precondition does not hold").into()
}

fn put(state: &mut State, id: &Id, old: &Arc<Value>, mut new: Value, by: Writer) -> Outcome {
    let is_of_another = differs(old, &new["metadata"], "uid");
    if !is_of_another && !new["metadata"]["resourceVersion"].is_string() {
        return Err(invalid("metadata.resourceVersion: must be specified for an update"));
    }
    let is_status = !by.subresource.is_empty();
    state.complete(id, &mut new);
    state.write(id, by, |write| write.update(Some(old), &mut new));
    update(state, id, old, new, is_status)
}

fn patch(
    state: &mut State,
    id: &Id,
    old: &Arc<Value>,
    body: &Value,
    content: Content,
    by: Writer,
) -> Outcome {
    let is_status = !by.subresource.is_empty();
    let mut new = (**old).clone();
    if let Content::Apply { force } = content {
        state.check_types(id, body)?;
        new = state.write(id, by, |write| write.apply(old, body, force))?;
        state.complete(id, &mut new);
    } else {
        if content == Content::JsonPatch {
            json_patched(&mut new, body)?;
        } else {
            json_patch::merge(&mut new, body);
        }
        state.complete(id, &mut new);
        state.write(id, by, |write| write.update(Some(old), &mut new));
    }
    // For a patch the UID is not a precondition but a field, which cannot change and is not part of
    // the status.
    if differs(old, &new["metadata"], "resourceVersion") {
        return Err(conflict());
    }
    if differs(old, &new["metadata"], "uid") && !is_status {
        state.check(id, &new)?;
        return Err(invalid("metadata.uid: Invalid value: field is immutable"));
    }
    new["metadata"]["uid"] = old["metadata"]["uid"].clone();
    update(state, id, old, new, is_status)
}

/// Applies an RFC 6902 patch. As in evanphx/json-patch, a field that is missing can be replaced.
fn json_patched(object: &mut Value, patch: &Value) -> Result<(), Refusal> {
    let bad = |error: serde_json::Error| status_answer(400, "BadRequest", &error.to_string());
    let patch: json_patch::Patch =
        serde_json::from_value(patch.clone()).map_err(|error| Box::new(bad(error)))?;
    for mut operation in patch.0 {
        if let PatchOperation::Replace(ReplaceOperation { path, value }) = &operation
            && object.pointer(path.as_str()).is_none()
            && let Some((parent, _)) = path.as_str().rsplit_once('/')
            && object.pointer(parent).is_some_and(Value::is_object)
        {
            let (path, value) = (path.clone(), value.clone());
            operation = PatchOperation::Add(AddOperation { path, value });
        }
        json_patch::patch(object, &[operation]).map_err(|error| invalid(&error.to_string()))?;
    }
    Ok(())
}

/// Replaces `old` by `new`, except for what the request may not change.
fn update(state: &mut State, id: &Id, old: &Arc<Value>, mut new: Value, status: bool) -> Outcome {
    let asked = &new["metadata"];
    if differs(old, asked, "uid") || differs(old, asked, "resourceVersion") {
        return Err(conflict());
    }
    let written = new.get("status").cloned();
    if status {
        let managers = new["metadata"]["managedFields"].take();
        new = (**old).clone();
        new["metadata"]["managedFields"] = managers;
    }
    if state.has_status(id) {
        without_status(&mut new);
        if let Some(kept) = if status { written } else { old.get("status").cloned() } {
            new["status"] = kept;
        }
    }
    if let Some(meta) = new["metadata"].as_object_mut() {
        for field in SYSTEM {
            match old["metadata"].get(field) {
                Some(value) => drop(meta.insert(field.to_owned(), value.clone())),
                None => drop(meta.remove(field)),
            }
        }
        meta.retain(|_, value| !value.is_null());
    }
    if !leaves(old, &new) {
        return Err(invalid("no new finalizers can be added if the object is being deleted"));
    }
    if status {
        state.check(id, &new)?;
    } else {
        state.admit(id, &mut new)?;
    }
    if timeless(old) == timeless(&new) {
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

/// The object without the times of `managedFields`: a write that changes nothing else is none.
fn timeless(object: &Value) -> Value {
    let mut object = object.clone();
    let entries = object["metadata"]["managedFields"].as_array_mut();
    for entry in entries.into_iter().flatten() {
        entry["time"].take();
    }
    object
}

impl State {
    /// Drops and sets fields as the CustomResourceDefinition says. Metadata has no empty maps and lists.
    fn complete(&self, id: &Id, object: &mut Value) {
        if let Some(meta) = object["metadata"].as_object_mut() {
            let is_empty = |value: &Value| *value == json!({}) || *value == json!([]);
            meta.retain(|name, value| name == "managedFields" || !is_empty(value));
        }
        if let Some(crd) = self.crd(id) {
            crd.complete(object);
        }
    }

    /// Returns whether the status has a subresource of its own.
    fn has_status(&self, id: &Id) -> bool {
        self.crd(id).is_none_or(|crd| crd.has_status)
    }

    /// Has the object changed or refused by admission, then by its schema.
    fn admit(&self, id: &Id, object: &mut Value) -> Result<(), Refusal> {
        if let Some(admission) = &self.admission {
            admission(object).map_err(|status| Box::new(refused(&status)))?;
        }
        self.check(id, object)
    }

    fn check(&self, id: &Id, object: &Value) -> Result<(), Refusal> {
        let causes = self.crd(id).map(|crd| crd.refusals(object)).unwrap_or_default();
        if causes.is_empty() {
            return Ok(());
        }
        let all: Vec<_> = causes.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
        let message = format!("{:?} is invalid: {}", id.name, all.join(", "));
        let mut status = status(422, "Invalid", &message);
        status["details"] = details(&causes);
        Err(json_answer(422, &status).into())
    }

    /// Refuses a configuration that does not have the types of the schema.
    fn check_types(&self, id: &Id, config: &Value) -> Result<(), Refusal> {
        let Some(why) = self.crd(id).and_then(|crd| crd.mistyped(config)) else { return Ok(()) };
        let object = format!("{}/{}", id.namespace, id.name);
        let message = format!("failed to create typed patch object ({object}): {why}");
        Err(status_answer(500, "", &message).into())
    }
}

/// Fields that only the server sets.
const SYSTEM: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
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
    let now = state.now();
    let mut new = (**old).clone();
    let meta = &mut new["metadata"];
    meta["deletionTimestamp"] = json!(now);
    meta["deletionGracePeriodSeconds"] = json!(0);
    meta["generation"] = json!(meta["generation"].as_i64().unwrap_or(0) + 1);
    Ok((200, state.history.put(id, new)))
}

/// Returns whether the request gives a uid or resourceVersion that the object does not have.
fn differs(object: &Value, asked: &Value, field: &str) -> bool {
    asked.get(field).is_some_and(|asked| asked.is_string() && *asked != object["metadata"][field])
}
