//! Writes.
//!
//! Guarantees
//! - Each write requests permission from the gate first, and again when its body is sent: a credential plugin, the
//!   connection and TLS can take time in between.
//! - A write is abandoned when its permission runs out, unless the gate has extended it in the meantime.

use std::pin::pin;

use bytes::Bytes;
use http::Request;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::call::{Client, JSON, decode, send};
use super::query::Url;
use super::transport::Permit;
use super::types::{Deletion, Preconditions, Propagation, Scope};
use super::{Error, WriteGate};
use crate::object::{Kind, ObjectKey, Resource};

const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
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
        let url = Url::collection(&V::kind(), Some(key.namespace()))?;
        self.write("create", "POST", url, JSON, bytes(body)?).await
    }

    /// Applies the fields in `body` (server-side apply, forced), which must contain `apiVersion` and `kind`. A
    /// `metadata.uid` in it selects that object. If another object has the name, the API server reports an immutable
    /// UID (422); if no object has the name, a conflict.
    ///
    /// # Errors
    /// [`Error::is_conflict`] if the UID's object was deleted; any other error of a write.
    pub async fn apply<V: Resource>(
        &self,
        key: &ObjectKey,
        body: &(impl Serialize + Sync),
    ) -> Result<V, Error> {
        let url = Url::object(&V::kind(), key, None)?.with("force", "true");
        self.write("patch", "PATCH", url, APPLY, bytes(body)?).await
    }

    /// Like [`Client::apply`], but does not take over fields of other managers.
    ///
    /// # Errors
    /// [`Error::is_conflict`] with [`Error::conflicting_fields`] if another manager owns one of the fields with a
    /// different value; the errors of [`Client::apply`].
    pub async fn apply_unforced<V: Resource>(
        &self,
        key: &ObjectKey,
        body: &(impl Serialize + Sync),
    ) -> Result<V, Error> {
        let url = Url::object(&V::kind(), key, None)?;
        self.write("patch", "PATCH", url, APPLY, bytes(body)?).await
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
        let url = Url::object(&V::kind(), key, None)?;
        self.write("update", "PUT", url, JSON, bytes(body)?).await
    }

    /// Sets `spec.replicas` of the scale subresource.
    ///
    /// # Errors
    /// Any error of a write.
    pub async fn scale<V: Resource>(&self, key: &ObjectKey, replicas: u32) -> Result<(), Error> {
        let kind = V::kind();
        let url = Url::object(&kind, key, Some("scale"))?;
        let url = url.with("fieldManager", &self.options().field_manager);
        let body = json!({"spec": {"replicas": replicas}});
        self.gated("patch", &kind, send("PATCH", url, MERGE, bytes(&body)?)?).await.map(drop)
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
        let mut body = serde_json::to_value(body).map_err(unsendable)?;
        let Some(Value::Object(meta)) = body.get_mut("metadata") else {
            return Err(Error::Request("what is to be applied has no metadata".to_owned()));
        };
        meta.remove("uid");
        meta.insert("resourceVersion".to_owned(), "1".into());
        let url = Url::object(&V::kind(), key, None)?.with("force", "true");
        self.write("patch", "PATCH", url, APPLY, bytes(&body)?).await
    }

    /// Sends a JSON merge patch.
    ///
    /// # Errors
    /// Any error of a write.
    pub async fn merge_patch<V: Resource>(
        &self,
        key: &ObjectKey,
        body: &(impl Serialize + Sync),
    ) -> Result<V, Error> {
        let url = Url::object(&V::kind(), key, None)?;
        self.write("patch", "PATCH", url, MERGE, bytes(body)?).await
    }

    /// Sends a JSON merge patch of the status subresource.
    ///
    /// # Errors
    /// Any error of a write.
    pub async fn patch_status<V: Resource>(
        &self,
        key: &ObjectKey,
        body: &(impl Serialize + Sync),
    ) -> Result<V, Error> {
        let url = Url::object(&V::kind(), key, Some("status"))?;
        self.write("patch", "PATCH", url, MERGE, bytes(body)?).await
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
        let url = Url::object(&V::kind(), key, None)?;
        self.write("patch", "PATCH", url, JSON_PATCH, bytes(operations)?).await
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
        propagation: Propagation,
    ) -> Result<Deletion, Error> {
        let mut only = serde_json::Map::new();
        if preconditions.uid.is_some() {
            only.insert("uid".to_owned(), preconditions.uid.to_string().into());
        }
        if preconditions.version.is_known() {
            only.insert("resourceVersion".to_owned(), preconditions.version.to_string().into());
        }
        let mut body = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation.as_str(),
            "preconditions": only,
        });
        if self.options().dry_run.is_some() {
            // The API server ignores URL parameters if the body has options.
            body["dryRun"] = json!(["All"]);
        }
        let url = Url::object(&V::kind(), key, None)?;
        let request = send("DELETE", url, JSON, bytes(&body)?)?;
        let answer = self.gated("delete", &V::kind(), request).await?;
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
        let kind = V::kind();
        let mut body =
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
        if self.options().dry_run.is_some() {
            body["dryRun"] = json!(["All"]);
        }
        let request = send("DELETE", Url::scoped(&kind, scope)?, JSON, bytes(&body)?)?;
        self.gated("deletecollection", &kind, request).await.map(drop)
    }

    async fn write<V: for<'de> Deserialize<'de> + Resource>(
        &self,
        verb: &'static str,
        method: &str,
        url: Url,
        kind: &'static str,
        body: Vec<u8>,
    ) -> Result<V, Error> {
        let url = url.with("fieldManager", &self.options().field_manager);
        let request = send(method, url, kind, body)?;
        decode(&self.gated(verb, &V::kind(), request).await?)
    }

    /// Sends a permitted write.
    async fn gated(
        &self,
        verb: &'static str,
        kind: &Kind,
        mut request: Request<Bytes>,
    ) -> Result<Bytes, Error> {
        if let Some(dry_run) = &self.options().dry_run {
            return self.dry_run(verb, kind, request, &**dry_run).await;
        }
        let gate = &self.options().gate;
        let permit = Permit::new(gate.clone());
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
        let is_unsent = matches!(answer, Err(Error::Request(_)));
        sent.is_settled = refused.is_some() || answer.is_ok() || is_unsent || is_refusal(&answer);
        match refused {
            Some(why) => Err(Error::NotPermitted(why)),
            None => answer.inspect(|_| self.note_write()),
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

/// Returns whether the API server refused the write. A code of 500 or more proves nothing: etcd can have been too slow,
/// or a load balancer can have lost the connection.
fn is_refusal(answer: &Result<Bytes, Error>) -> bool {
    matches!(answer, Err(Error::Api { code: ..500, .. }))
}

fn bytes(body: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(body).map_err(unsendable)
}

#[allow(clippy::needless_pass_by_value)] // It is passed to `map_err`.
fn unsendable(error: serde_json::Error) -> Error {
    Error::Request(format!("the body cannot be serialized: {error}"))
}
