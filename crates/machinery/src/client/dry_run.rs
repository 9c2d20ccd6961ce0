//! Dry runs: the writes of a client, validated and admitted by the API server but not stored.
//!
//! Guarantees
//! - Each write of a client with [`Options::dry_run`](super::Options::dry_run) carries `dryRun=All`.
//! - Each is reported once, with the object as stored and as it would be, even if the API server refuses it or does
//!   not respond.
//! - Dry runs do not build on each other. So the manager sends no second write that depends on the response to the
//!   first.
//! - The gate is not asked, because nothing is stored.

use bytes::Bytes;
use http::Request;
use serde_json::Value;

use super::Error;
use super::call::{Client, decode};
use super::query;
use crate::object::{Kind, ObjectKey};

/// Receives the writes of a client that only does dry runs.
pub trait DryRun: Send + Sync + 'static {
    /// The API server responded to a write.
    fn answered(&self, write: DryWrite);
}

/// A write that was not stored.
#[derive(Debug)]
pub struct DryWrite {
    /// `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: &'static str,
    /// The kind of the object.
    pub kind: Kind,
    /// The API path of the object or subresource, or of the collection for `create` and `deletecollection`.
    pub path: String,
    /// The subresource, such as `status`; empty for the object itself.
    pub subresource: &'static str,
    /// The body that was sent.
    pub sent: Bytes,
    /// The stored object, without `apiVersion` and `kind`; `None` if there is none, and for a `deletecollection`.
    pub before: Option<Value>,
    /// The object, or its subresource, as it would be stored; `None` if it would be deleted.
    pub after: Result<Option<Value>, Rejection>,
}

/// A write that the API server did not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The reason, as a sentence.
    pub message: String,
    /// The category of the reason.
    pub cause: RejectionCause,
}

/// The categories of reasons for a rejected write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectionCause {
    /// Another client changed the object first. The next attempt sees its change.
    Conflict,
    /// The object or its namespace was deleted or is terminating.
    Gone,
    /// The API server is busy or down, or refuses for a cause that passes. The next attempt can succeed.
    Transient,
    /// The write is invalid, forbidden, or denied by admission.
    Write,
}

/// Attempts to get the stored and the resulting object at one version.
const TRIES: usize = 3;

// === impl Client ===

impl Client {
    /// Sends a write as a dry run and reports it.
    pub(super) async fn dry_run(
        &self,
        verb: &'static str,
        kind: &Kind,
        key: Option<&ObjectKey>,
        subresource: &'static str,
        mut request: Request<Bytes>,
        reports: &dyn DryRun,
    ) -> Result<Bytes, Error> {
        let path = request.uri().path().to_owned();
        if matches!(verb, "delete" | "deletecollection") {
            // kube has put it into the body, which a proxy can drop; its URLs end with their query.
            let uri = format!("{}&dryRun=All", request.uri());
            *request.uri_mut() = uri.parse().map_err(|error| Error::Request(format!("{error}")))?;
        }
        let sent = request.body().clone();
        let (before, after, answer) = match self.try_write(verb, kind, key, request).await {
            Ok((before, after, answer)) => (before, Ok(after), Ok(answer)),
            Err(error) => (None, Err(Rejection::of(&error)), Err(error)),
        };
        reports.answered(DryWrite { verb, kind: *kind, path, subresource, sent, before, after });
        answer
    }

    /// Returns the stored object, the resulting one and the response, all at one version. Otherwise another client's
    /// change would look like part of the write.
    async fn try_write(
        &self,
        verb: &'static str,
        kind: &Kind,
        key: Option<&ObjectKey>,
        request: Request<Bytes>,
    ) -> Result<(Option<Value>, Option<Value>, Bytes), Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            // A list, because a client with informers has `list` permission, but perhaps not `get`.
            let before = match key {
                Some(key) => {
                    let mut all = self.read_all(kind, &query::only(key)).await?.into_iter();
                    all.find(|object| object["metadata"]["name"] == **key.name())
                }
                None => None,
            };
            let answer = self.call(verb, kind, request.clone()).await?;
            let after: Option<Value> = match verb {
                "delete" | "deletecollection" => None,
                _ => Some(decode(&answer)?),
            };
            let is_between = before.as_ref().zip(after.as_ref()).is_some_and(|(before, after)| {
                let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
                version(before) != version(after)
            });
            if !is_between || tries == TRIES {
                return Ok((before, after, answer));
            }
        }
    }
}

// === impl Rejection ===

impl Rejection {
    fn of(error: &Error) -> Rejection {
        let cause = match error.code() {
            Some(409) => RejectionCause::Conflict,
            Some(404) => RejectionCause::Gone,
            Some(403) if error.is_namespace_terminating() => RejectionCause::Gone,
            Some(401 | 408 | 429 | 500..) | None => RejectionCause::Transient,
            Some(_) if error.is_transient_refusal() => RejectionCause::Transient,
            Some(_) => RejectionCause::Write,
        };
        Rejection { message: error.to_string(), cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_has_a_cause() {
        for (code, message, expected) in [
            (409, "", RejectionCause::Conflict),
            (404, "", RejectionCause::Gone),
            (401, "", RejectionCause::Transient),
            (500, "", RejectionCause::Transient),
            (403, "not yet ready to handle request", RejectionCause::Transient),
            (403, "exceeded quota: none", RejectionCause::Write),
            (422, "spec.replicas: Invalid value", RejectionCause::Write),
        ] {
            let rejection = Rejection::of(&Error::api(code, "", message));
            assert_eq!(rejection.cause, expected, "{code} {message}");
        }
    }
}
