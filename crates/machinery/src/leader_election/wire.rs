//! The Lease in the API: coordination.k8s.io/v1.

use std::future::Future;
use std::time::Duration;

use serde_json::json;

use super::candidate::{Answer, Step};
use super::record::Record;
use crate::client::{Client, Error, Patch};
use crate::object::{Kind, Meta, NoLabels, ObjectKey, Resource};

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
}

impl Api for Client {
    async fn ask(&self, key: &ObjectKey, step: &Step) -> (Answer, Option<Error>) {
        let result = match step {
            Step::Create(record) => {
                let metadata = Meta::<NoLabels>::named(key.clone());
                let body = json!({"apiVersion": Lease::kind().api_version(), "kind": "Lease",
                    "metadata": metadata, "spec": record});
                self.create::<Lease>(key, &body).await
            }
            // The version in the patch is a precondition: for any other version, the response is 409.
            Step::Update(record, version) => {
                let body = json!({"metadata": {"resourceVersion": version}, "spec": record});
                self.patch::<Lease>(key, &Patch::Merge(&body)).await
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
