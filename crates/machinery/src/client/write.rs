//! Writes.
//!
//! Guarantees
//! - Each write requests permission from the gate first, and again when its body is sent: a credential plugin, the
//!   connection and TLS can take time in between.
//! - A write is abandoned when its permission runs out, unless the gate has extended it in the meantime.

use std::pin::pin;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_TYPE, HeaderValue};
use kube::core::params::{self, DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::call::{Client, decode};
use super::query::{self, built, objects, segment};
use super::transport::WritePermit;
use super::types::{Deletion, Preconditions, Scope};
use super::{Error, WriteGate};
use crate::object::{Kind, ObjectKey, Resource};

const JSON_PATCH: &str = "application/json-patch+json";

// === impl Client ===

impl Client {
    /// Creates an object (POST). Returns it as stored.
    ///
    /// # Errors
    /// [`Error::is_already_exists`] if the name is taken; any other error of a write.
    pub async fn create<V: Resource>(
        &self,
        key: &ObjectKey,
        body: &(impl Serialize + Sync),
    ) -> Result<V, Error> {
        let all = objects(&V::kind(), Some(key.namespace()))?;
        let request = built(all.create(&self.post_params(), sendable(serde_json::to_vec(body))?))?;
        decode(&self.gated("create", &V::kind(), None, "", request).await?)
    }

    /// Replaces an object (PUT). A `metadata.resourceVersion` or `metadata.uid` in `body` is a precondition.
    ///
    /// # Errors
    /// [`Error::is_conflict`] if a precondition fails, [`Error::is_not_found`] if there is no such object; any other
    /// error of a write.
    pub async fn update<V: Resource>(
        &self,
        key: &ObjectKey,
        body: &(impl Serialize + Sync),
    ) -> Result<V, Error> {
        let all = objects(&V::kind(), Some(key.namespace()))?;
        let name = segment("name", key.name())?;
        let request =
            built(all.replace(&name, &self.post_params(), sendable(serde_json::to_vec(body))?))?;
        decode(&self.gated("update", &V::kind(), Some(key), "", request).await?)
    }

    /// Patches an object. An apply is forced: it takes over fields of other managers. The fields to apply include
    /// `apiVersion` and `kind`. A `metadata.uid` in them selects that object. If another object has the name, the API
    /// server reports an immutable UID (422); if no object has the name, a conflict.
    ///
    /// # Errors
    /// [`Error::is_conflict`] if the UID's object was deleted; any other error of a write.
    pub async fn patch<V: Resource>(
        &self,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Sync>,
    ) -> Result<V, Error> {
        decode(&self.patch_at::<V>(key, "", true, patch).await?)
    }

    /// Applies fields, but does not take over fields of other managers.
    ///
    /// # Errors
    /// [`Error::is_conflict`] with [`Error::conflicting_fields`] if another manager owns one of the fields with a
    /// different value; the errors of [`Client::patch`].
    pub async fn apply_unforced<V: Resource>(
        &self,
        key: &ObjectKey,
        body: &(impl Serialize + Sync),
    ) -> Result<V, Error> {
        decode(&self.patch_at::<V>(key, "", false, &Patch::Apply(body)).await?)
    }

    /// Creates an object by server-side apply. The resourceVersion "1" is older than any object, so an existing object
    /// is a conflict (409). With a UID, a missing object would be a conflict, too.
    ///
    /// # Errors
    /// [`Error::is_conflict`] if the name is taken; any other error of a write.
    pub async fn apply_new<V: Resource>(
        &self,
        key: &ObjectKey,
        body: &(impl Serialize + Sync),
    ) -> Result<V, Error> {
        let mut body = sendable(serde_json::to_value(body))?;
        let Some(Value::Object(meta)) = body.get_mut("metadata") else {
            return Err(Error::Request("what is to be applied has no metadata".to_owned()));
        };
        meta.remove("uid");
        meta.insert("resourceVersion".to_owned(), "1".into());
        self.patch(key, &Patch::Apply(&body)).await
    }

    /// Sends an RFC 6902 patch, for finalizers: `test`, then `add` or `remove`.
    ///
    /// # Errors
    /// [`Error::is_invalid`] if a `test` fails; any other error of a write.
    pub async fn json_patch<V: Resource>(
        &self,
        key: &ObjectKey,
        operations: &Value,
    ) -> Result<V, Error> {
        // kube builds this one from operations of its own.
        let all = objects(&V::kind(), Some(key.namespace()))?;
        let PostParams { dry_run, field_manager } = self.post_params();
        let params = PatchParams { dry_run, field_manager, ..PatchParams::default() };
        let patch = Patch::Merge(operations);
        let mut request = built(all.patch(&segment("name", key.name())?, &params, &patch))?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON_PATCH));
        decode(&self.gated("patch", &V::kind(), Some(key), "", request).await?)
    }

    /// Patches the status subresource. An apply is forced.
    ///
    /// # Errors
    /// Any error of a write.
    pub async fn patch_status<V: Resource>(
        &self,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Sync>,
    ) -> Result<V, Error> {
        decode(&self.patch_at::<V>(key, "status", true, patch).await?)
    }

    /// Sets `spec.replicas` of the scale subresource.
    ///
    /// # Errors
    /// Any error of a write.
    pub async fn scale<V: Resource>(&self, key: &ObjectKey, replicas: u32) -> Result<(), Error> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.patch_at::<V>(key, "scale", false, &patch).await.map(drop)
    }

    /// Deletes the object that the preconditions select.
    ///
    /// # Errors
    /// [`Error::is_conflict`] if a precondition does not hold, [`Error::is_not_found`] if there is no such object; any
    /// other error of a write.
    pub async fn delete<V: Resource>(
        &self,
        key: &ObjectKey,
        preconditions: Preconditions,
        propagation: PropagationPolicy,
    ) -> Result<Deletion, Error> {
        let Preconditions { uid, version } = preconditions;
        let params = DeleteParams {
            preconditions: Some(params::Preconditions {
                uid: uid.is_some().then(|| uid.to_string()),
                resource_version: version.is_known().then(|| version.to_string()),
            }),
            propagation_policy: Some(propagation),
            dry_run: self.is_dry_run(),
            ..DeleteParams::default()
        };
        let all = objects(&V::kind(), Some(key.namespace()))?;
        let request = all.delete(&segment("name", key.name())?, &params);
        let answer = self.gated("delete", &V::kind(), Some(key), "", built(request)?).await?;
        // If the object was deleted, the response is a Status or, for some kinds (`ReturnDeletedObject`: Services),
        // its last state; otherwise, the object marked for deletion.
        let left: Option<Value> = serde_json::from_slice(&answer).ok();
        let gone = left.is_some_and(|left| left["metadata"]["deletionTimestamp"].is_null());
        Ok(if gone { Deletion::Deleted } else { Deletion::Terminating })
    }

    /// Deletes all objects that `scope` selects, in the background.
    ///
    /// # Errors
    /// Any error of a write.
    pub async fn delete_collection<V: Resource>(&self, scope: &Scope) -> Result<(), Error> {
        let all = objects(&V::kind(), scope.namespace.as_deref())?;
        let params = DeleteParams { dry_run: self.is_dry_run(), ..DeleteParams::background() };
        let request = all.delete_collection(&params, &query::selectors(scope));
        self.gated("deletecollection", &V::kind(), None, "", built(request)?).await.map(drop)
    }

    /// Patches an object, or its subresource unless this is empty. Only an apply can be forced.
    async fn patch_at<V: Resource>(
        &self,
        key: &ObjectKey,
        subresource: &'static str,
        force: bool,
        patch: &Patch<impl Serialize + Sync>,
    ) -> Result<Bytes, Error> {
        let PostParams { dry_run, field_manager } = self.post_params();
        let force = force && matches!(patch, Patch::Apply(_));
        let params = PatchParams { dry_run, force, field_manager, ..PatchParams::default() };
        let all = objects(&V::kind(), Some(key.namespace()))?;
        let name = segment("name", key.name())?;
        let request = match subresource {
            "" => all.patch(&name, &params, patch),
            _ => all.patch_subresource(subresource, &name, &params, patch),
        };
        self.gated("patch", &V::kind(), Some(key), subresource, built(request)?).await
    }

    pub(super) fn post_params(&self) -> PostParams {
        let field_manager = Some(self.options().field_manager.clone());
        PostParams { dry_run: self.is_dry_run(), field_manager }
    }

    /// Sends a permitted write; `key` is that of the one object that exists before.
    async fn gated(
        &self,
        verb: &'static str,
        kind: &Kind,
        key: Option<&ObjectKey>,
        subresource: &'static str,
        mut request: Request<Bytes>,
    ) -> Result<Bytes, Error> {
        if let Some(dry_run) = &self.options().dry_run {
            return self.dry_run(verb, kind, key, subresource, request, &**dry_run).await;
        }
        let gate = &self.options().gate;
        let permit = WritePermit::new(gate.clone());
        let mut left = permit.ask().map_err(Error::NotPermitted)?;
        request.extensions_mut().insert(permit.clone());
        let mut sent = Sent { gate: &**gate, is_settled: false };
        let mut call = pin!(self.call(verb, kind, request));
        let answer = loop {
            match timeout(left, &mut call).await {
                Ok(answer) => break answer,
                // The lease can have been renewed in the meantime.
                Err(_) => left = permit.ask().map_err(|_| Error::Deadline(left))?,
            }
        };
        let refused = permit.refused();
        // A code of 500 or more proves nothing: etcd can have been too slow, or a load balancer can have lost the
        // connection.
        sent.is_settled = refused.is_some()
            || matches!(answer, Ok(_) | Err(Error::Request(_) | Error::Api { code: ..500, .. }));
        match refused {
            Some(why) => Err(Error::NotPermitted(why)),
            None => answer.inspect(|_| self.has_written.store(true, Ordering::Relaxed)),
        }
    }
}

/// A write in progress. It reports to the gate if it ends without a response.
struct Sent<'a> {
    gate: &'a dyn WriteGate,
    is_settled: bool,
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.gate.unanswered();
        }
    }
}

fn sendable<T>(body: serde_json::Result<T>) -> Result<T, Error> {
    body.map_err(|error| Error::Request(format!("the body cannot be serialized: {error}")))
}
