//! The Lease in the API: coordination.k8s.io/v1.

use std::future::Future;
use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::candidate::{Answer, Step};
use super::record::Record;
use crate::client::{Client, Error, Scope, WatchEvent, WatchFrom};
use crate::object::{Kind, Meta, Nothing, ObjectKey, Resource, ResourceVersion, Uid};

/// Requested duration of a watch; client-go requests 5 to 10 minutes.
const WATCH: Duration = Duration::from_secs(300);

/// A Lease.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Lease {
    metadata: Meta,
    #[serde(default)]
    spec: Record,
}

crate::view!(Lease: Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases"));

/// The operations of a client that an elector needs.
pub(super) trait Api: Send + Sync {
    /// Sends the request `step`. The error is for humans; the response determines the next step.
    fn ask(
        &self,
        key: &ObjectKey,
        step: &Step,
    ) -> impl Future<Output = (Answer, Option<Error>)> + Send;

    /// Watches the Lease, and forwards events, beginning with the opening. Returns when the watch has ended, or was
    /// silent for `silence`.
    fn watch(
        &self,
        key: &ObjectKey,
        silence: Duration,
        each: impl FnMut(Shown) + Send,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// An event of the watch of the Lease.
#[derive(Debug)]
pub(super) enum Shown {
    /// The watch was opened.
    Opened,
    /// The Lease.
    Lease(Record, ResourceVersion, Uid),
    /// The Lease was deleted.
    Gone,
    /// The watch has ended.
    Ended,
}

impl Api for Client {
    async fn ask(&self, key: &ObjectKey, step: &Step) -> (Answer, Option<Error>) {
        let result = match step {
            Step::Create(record) => {
                let metadata = Meta::<Nothing>::named(key.clone());
                let body = json!({"apiVersion": Lease::kind().api_version(), "kind": "Lease",
                    "metadata": metadata, "spec": record});
                self.create::<Lease>(key, &body).await
            }
            // The version in the patch is a precondition: for any other version, the response is 409.
            Step::Update(record, version) => {
                let body = json!({"metadata": {"resourceVersion": version}, "spec": record});
                self.merge_patch::<Lease>(key, &body).await
            }
            Step::Read | Step::Wait(_) | Step::Done => self.get::<Lease>(key).await,
        };
        match result {
            Ok(Lease { metadata, spec }) => {
                (Answer::Lease(spec, metadata.version, metadata.uid), None)
            }
            Err(error) => (answer(&error), Some(error)),
        }
    }

    async fn watch(
        &self,
        key: &ObjectKey,
        silence: Duration,
        mut each: impl FnMut(Shown) + Send,
    ) -> Result<(), Error> {
        // With this selector, a Role for the named Lease suffices.
        let scope = Scope {
            namespace: Some(key.namespace().clone()),
            fields: Some(format!("metadata.name={}", key.name())),
            ..Scope::default()
        };
        let from = WatchFrom {
            version: Some("0".to_owned()),
            initial_events: false,
            timeout: WATCH,
            metadata_only: false,
        };
        let mut watch = Client::watch::<Lease>(self, &scope, &from).await?;
        each(Shown::Opened);
        while let Ok(Some(event)) = timeout(silence, watch.next()).await {
            match event? {
                WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                    each(Shown::Lease(lease.spec, lease.metadata.version, lease.metadata.uid));
                }
                WatchEvent::Deleted(_) | WatchEvent::Undecodable(_) => each(Shown::Gone),
                WatchEvent::Bookmark { .. } => {}
            }
        }
        Ok(())
    }
}

fn answer(error: &Error) -> Answer {
    match error {
        // Includes "namespaces not found", the response to a create in a missing namespace; waiting is correct for
        // both. A 404 without a reason is not from the API server but, for example, from a proxy.
        Error::Api { code: 404, reason, .. } if !reason.is_empty() => Answer::Absent,
        Error::Api { code: 409, .. } => Answer::Conflict,
        Error::Api { retry_after, .. } => {
            Answer::Failed { retry_after: retry_after.unwrap_or_default() }
        }
        _ => Answer::Failed { retry_after: Duration::ZERO },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_page_of_a_proxy_does_not_mean_an_absent_lease() {
        assert_eq!(answer(&Error::api(404, "NotFound", "leases \"a\" not found")), Answer::Absent);
        let failed = Answer::Failed { retry_after: Duration::ZERO };
        assert_eq!(answer(&Error::api(404, "", "default backend - 404")), failed);
    }
}
