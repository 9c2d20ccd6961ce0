//! Requests for single objects.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, Response};
use json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use serde_json::{Value, json};

use super::crd::details;
use super::deletion::{self, leaves};
use super::fault::Fault;
use super::history::Id;
use super::managers::Writer;
use super::metadata;
use super::request::{
    Ask, Refusal, failure, json_answer, not_found, refused, status, status_answer,
};
use super::server::{Answer, Server, State};
use crate::client::PropagationPolicy;

/// A response: code and body, or the refusal.
pub(super) type Outcome = Result<(u16, Arc<Value>), Refusal>;

/// The content type of a request.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Content {
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
    if let Some(refusal) = wrong_identity(server, &id, content, &body).filter(|_| writes) {
        return refusal;
    }
    let by = manager(head, ask, content);
    if !by.subresource.is_empty() && !server.lock().has_status(&id) {
        return not_found(&id);
    }
    let mut outcome = Err(failure(Fault::Internal).into());
    server.change(|state| {
        let old = state.history.now(&id);
        outcome = match (&head.method, old) {
            (&Method::POST, old) => create(state, &id, old.as_deref(), body, by),
            (&Method::PATCH, None) if matches!(content, Content::Apply { .. }) => {
                apply_new(state, &id, &body, by)
            }
            (&Method::PUT, None) if CREATED_BY_UPDATE.contains(&id.plural()) => {
                create(state, &id, None, body, by)
            }
            (_, None) => Err(not_found(&id).into()),
            (&Method::GET, Some(old)) => Ok((200, old)),
            (&Method::PUT, Some(old)) => put(state, &id, &old, body, by),
            (&Method::PATCH, Some(old)) => patch(state, &id, &old, &body, content, by),
            (&Method::DELETE, Some(old)) => {
                let only = &body["preconditions"];
                if differs(&old, only, "uid") || differs(&old, only, "resourceVersion") {
                    Err(conflict())
                } else {
                    let (policy, grace) = (propagation(ask, &body, &old), grace_period(ask, &body));
                    Ok((200, deletion::delete(state, &id, &old, &policy, grace)))
                }
            }
            (_, Some(_)) => Err(failure(Fault::NotServed).into()),
        };
    });
    match outcome {
        Ok((code, object)) => json_answer(code, &object),
        Err(refusal) => *refusal,
    }
}

/// Returns the refusal of a body whose object or kind differs from the path.
fn wrong_identity(
    server: &Server,
    id: &Id,
    content: Content,
    body: &Value,
) -> Option<Response<Answer>> {
    let crd = server.lock().crd(id);
    if crd.as_ref().is_some_and(|crd| crd.is_namespaced == id.namespace.is_empty()) {
        return Some(failure(Fault::NotServed));
    }
    if matches!(content, Content::MergePatch | Content::JsonPatch) {
        return None;
    }
    let api_version = id.api_version();
    let kind = body["kind"].as_str().unwrap_or_default();
    let is_kind = match &crd {
        // The schema refuses another kind.
        Some(_) => !kind.is_empty(),
        None => is_plural_of(id.plural(), kind),
    };
    let is_of_kind = body["apiVersion"] == api_version && is_kind;
    let is_same = |field: &str, expected: &str| {
        body["metadata"][field].as_str().is_none_or(|it| it.is_empty() || it == expected)
    };
    let why = if !is_of_kind {
        format!("the object is not of the kind that the URL names, in {api_version}")
    } else if !is_same("name", &id.name) || !is_same("namespace", &id.namespace) {
        "the name or namespace of the object does not match that on the URL".to_owned()
    } else {
        return None;
    };
    Some(status_answer(400, "BadRequest", &why))
}

/// Returns whether a collection can have objects of this kind.
fn is_plural_of(plural: &str, kind: &str) -> bool {
    let kind = kind.to_lowercase();
    let stem = kind.strip_suffix('y').unwrap_or(&kind);
    !kind.is_empty()
        && [kind.clone(), format!("{kind}s"), format!("{kind}es"), format!("{stem}ies")]
            .iter()
            .any(|it| it == plural)
}

/// Built-in kinds that a PUT creates (`AllowCreateOnUpdate` in k8s.io/kubernetes, pkg/registry).
const CREATED_BY_UPDATE: [&str; 9] = [
    "services",
    "endpoints",
    "events",
    "limitranges",
    "leases",
    "roles",
    "rolebindings",
    "clusterroles",
    "clusterrolebindings",
];

/// Built-in kinds that a PUT without a version does not change (`AllowUnconditionalUpdate`, as above).
const VERSIONED: [&str; 9] = [
    "leases",
    "poddisruptionbudgets",
    "runtimeclasses",
    "csidrivers",
    "csinodes",
    "volumeattachments",
    "validatingadmissionpolicies",
    "validatingwebhookconfigurations",
    "mutatingwebhookconfigurations",
];

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

/// Returns the field manager of a request; by default the first word of the user agent.
fn manager(head: &Parts, ask: &Ask, content: Content) -> Writer {
    let agent = head.headers.get("user-agent").and_then(|agent| agent.to_str().ok());
    let agent = agent.unwrap_or_default().split('/').next().unwrap_or_default();
    Writer {
        operation: if matches!(content, Content::Apply { .. }) { "Apply" } else { "Update" },
        name: ask.get("fieldManager").unwrap_or(agent).to_owned(),
        subresource: ask.subresource.clone().unwrap_or_default(),
    }
}

/// Returns the grace period that a deletion requests, in seconds.
fn grace_period(ask: &Ask, body: &Value) -> Option<i64> {
    let of_query = ask.get("gracePeriodSeconds").and_then(|seconds| seconds.parse().ok());
    of_query.or_else(|| body["gracePeriodSeconds"].as_i64())
}

/// Returns the propagation policy of a deletion; by default that of an earlier one.
fn propagation(ask: &Ask, body: &Value, old: &Value) -> PropagationPolicy {
    match ask.get("propagationPolicy").or_else(|| body["propagationPolicy"].as_str()) {
        Some("Foreground") => PropagationPolicy::Foreground,
        Some("Orphan") => PropagationPolicy::Orphan,
        Some(_) => PropagationPolicy::Background,
        None => deletion::propagation_of(old),
    }
}

fn invalid(why: &str) -> Refusal {
    status_answer(422, "Invalid", why).into()
}

pub(super) fn create(
    state: &mut State,
    id: &Id,
    old: Option<&Value>,
    mut body: Value,
    by: Writer,
) -> Outcome {
    if !body["metadata"].is_object() {
        body["metadata"] = json!({});
    }
    let sent = body["metadata"]["resourceVersion"].clone();
    wipe(&mut body);
    state.complete(id, &mut body);
    state.write(id, by, |write| write.update(None, &mut body));
    state.admit(id, &mut body, None)?;
    if sent.as_str().is_some_and(|sent| !sent.is_empty()) {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(status_answer(500, "", why).into());
    }
    if old.is_some() {
        return Err(status_answer(409, "AlreadyExists", "already exists").into());
    }
    store_new(state, id, body)
}

fn store_new(state: &mut State, id: &Id, mut new: Value) -> Outcome {
    deletion::admit_into_namespace(state, id)?;
    if state.has_status(id) {
        // The status subresource has its own path. A status that the schema defaults is set when it is read from etcd.
        without_status(&mut new);
        state.complete(id, &mut new);
    }
    wipe(&mut new);
    deletion::begin(id, &mut new);
    new["metadata"]["creationTimestamp"] = json!(state.now());
    Ok((201, state.history.put(id, new)))
}

/// Removes the fields that only the server sets (`WipeObjectMetaSystemFields`).
fn wipe(object: &mut Value) {
    if let Some(meta) = object["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "generation", "selfLink", "creationTimestamp"]
            .into_iter()
            .chain(["deletionTimestamp", "deletionGracePeriodSeconds"])
        {
            meta.remove(field);
        }
    }
}

fn without_status(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
}

/// Creates an object by an apply. A missing object has no UID, so a configuration with a UID is refused. Any
/// resourceVersion is accepted.
fn apply_new(state: &mut State, id: &Id, config: &Value, by: Writer) -> Outcome {
    if !by.subresource.is_empty() {
        return Err(not_found(id).into());
    }
    state.check_types(id, config)?;
    if config["metadata"]["uid"].as_str().is_some_and(|uid| !uid.is_empty()) {
        return Err(conflict());
    }
    let nothing = json!({ "metadata": {} });
    let mut new = state.write(id, by, |write| write.apply(&nothing, config, false))?;
    state.complete(id, &mut new);
    state.admit(id, &mut new, None)?;
    store_new(state, id, new)
}

fn conflict() -> Refusal {
    status_answer(409, "Conflict", "the precondition does not hold").into()
}

fn put(state: &mut State, id: &Id, old: &Arc<Value>, mut new: Value, by: Writer) -> Outcome {
    let is_of_another = differs(old, &new["metadata"], "uid");
    let has_version = new["metadata"]["resourceVersion"].as_str().is_some_and(|it| !it.is_empty());
    let needs_version = !id.is_built_in() || VERSIONED.contains(&id.plural());
    if !is_of_another && !has_version && needs_version {
        return Err(invalid("metadata.resourceVersion: must be specified for an update"));
    }
    let is_status = !by.subresource.is_empty();
    state.complete(id, &mut new);
    state.write(id, by, |write| write.update(Some(old), &mut new));
    update(state, id, old, new, is_status)
}

pub(super) fn patch(
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
    // For a patch, the UID is not a precondition but an immutable field, which is not part of the status.
    if differs(old, &new["metadata"], "resourceVersion") {
        return Err(conflict());
    }
    if differs(old, &new["metadata"], "uid") && !is_status {
        state.check(id, &new, Some(old))?;
        return Err(invalid("metadata.uid: Invalid value: field is immutable"));
    }
    new["metadata"]["uid"] = old["metadata"]["uid"].clone();
    update(state, id, old, new, is_status)
}

/// Applies an RFC 6902 patch. As in evanphx/json-patch, a missing field can be replaced.
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
    if !object["metadata"].is_object() {
        return Err(invalid("patch: Invalid value: what is left is no object with metadata"));
    }
    Ok(())
}

/// Replaces `old` with `new`, except for fields that the request cannot change.
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
        state.check_status(id, &new, old)?;
    } else {
        state.admit(id, &mut new, Some(old))?;
    }
    if timeless(old) == timeless(&new) {
        return Ok((200, old.clone()));
    }
    if deletion::is_over(id, &new) {
        // The response shows the last state, although it is not stored.
        new["metadata"]["generation"] = json!(state.history.generation(id, old, &new));
        state.history.remove(id);
        return Ok((200, Arc::new(new)));
    }
    Ok((200, state.history.put(id, new)))
}

/// Returns the object without the times of `managedFields`. A write that changes only these is ignored.
fn timeless(object: &Value) -> Value {
    let mut object = object.clone();
    let entries = object["metadata"]["managedFields"].as_array_mut();
    for entry in entries.into_iter().flatten() {
        entry["time"].take();
    }
    object
}

impl State {
    /// Prunes fields and sets defaults according to the CustomResourceDefinition. Removes empty maps and lists from
    /// metadata.
    pub(super) fn complete(&self, id: &Id, object: &mut Value) {
        if let Some(meta) = object["metadata"].as_object_mut() {
            let is_empty = |value: &Value| *value == json!({}) || *value == json!([]);
            meta.retain(|name, value| name == "managedFields" || !is_empty(value));
        }
        if let Some(crd) = self.crd(id) {
            crd.complete(object);
        }
    }

    /// Returns whether the status has its own subresource.
    pub(super) fn has_status(&self, id: &Id) -> bool {
        self.crd(id).is_none_or(|crd| crd.has_status)
    }

    /// Applies admission, then the schema. Both can change or refuse the object.
    fn admit(&self, id: &Id, object: &mut Value, old: Option<&Value>) -> Result<(), Refusal> {
        if let Some(admission) = &self.admission {
            admission(object).map_err(|status| Box::new(refused(&status)))?;
            if !(object.is_object() && object["metadata"].is_object()) {
                let why = "Server::admit has left no object with metadata";
                return Err(status_answer(500, "InternalError", why).into());
            }
            self.complete(id, object);
        }
        self.check(id, object, old)
    }

    /// Refuses an object that violates its schema. Violations that existed before the change are accepted (ratcheting
    /// validation).
    fn check(&self, id: &Id, object: &Value, old: Option<&Value>) -> Result<(), Refusal> {
        self.check_fields(id, object, old, "")
    }

    fn check_status(&self, id: &Id, object: &Value, old: &Value) -> Result<(), Refusal> {
        self.check_fields(id, object, Some(old), "status")
    }

    fn check_fields(
        &self,
        id: &Id,
        object: &Value,
        old: Option<&Value>,
        below: &str,
    ) -> Result<(), Refusal> {
        let crd = self.crd(id);
        let refusals = |object: &Value| {
            let of_fields = crd.as_ref().map(|crd| crd.refusals(object)).unwrap_or_default();
            metadata::refusals(object).into_iter().chain(of_fields).collect::<Vec<_>>()
        };
        let before = old.map(refusals).unwrap_or_default();
        let mut causes = refusals(object);
        causes.retain(|cause| cause.field.starts_with(below) && !before.contains(cause));
        if causes.is_empty() {
            return Ok(());
        }
        let all: Vec<_> = causes.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
        let message = format!("{:?} is invalid: {}", id.name, all.join(", "));
        let mut status = status(422, "Invalid", &message);
        status["details"] = details(&causes);
        Err(json_answer(422, &status).into())
    }

    /// Refuses a configuration that violates the types of the schema.
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

/// Returns whether the request contains a uid or resourceVersion that differs from the object's.
fn differs(object: &Value, asked: &Value, field: &str) -> bool {
    let asked = asked.get(field).and_then(Value::as_str).filter(|asked| !asked.is_empty());
    asked.is_some_and(|asked| object["metadata"][field] != *asked)
}
