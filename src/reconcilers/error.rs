//! Why a pass failed.

use super::reason::Reason;
use crate::client;

/// What an error of the API server means here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Diagnosis {
    /// There is no such object.
    Gone,
    /// The object is a different one, or has changed since this pass read it.
    Conflict,
    /// The namespace is being deleted: nothing can be created in it, and nothing needs to be.
    NamespaceGoing,
    /// A person has to act: on a quota, rights, a policy, or the spec.
    Refused(Reason),
    /// The API server failed, and said so.
    Failed,
    /// No answer, or this process may not write.
    Unknown,
}

/// What `error` means.
pub fn diagnose(error: &client::Error) -> Diagnosis {
    match error.code() {
        None => Diagnosis::Unknown,
        Some(404) => Diagnosis::Gone,
        Some(409) => Diagnosis::Conflict,
        Some(403) if error.is_namespace_terminating() => Diagnosis::NamespaceGoing,
        Some(403) if error.is_quota_exceeded() => Diagnosis::Refused(Reason::QuotaExceeded),
        Some(403) => Diagnosis::Refused(Reason::Forbidden),
        Some(400 | 422) if error.is_denied() => Diagnosis::Refused(Reason::Forbidden),
        Some(400 | 422) => Diagnosis::Refused(Reason::Invalid),
        // This includes 401: the token was not renewed in time, which resolves itself.
        Some(_) => Diagnosis::Failed,
    }
}

/// Returns whether to report the error to a person, not only in the log.
pub(super) fn is_to_be_told(error: &client::Error) -> bool {
    matches!(diagnose(error), Diagnosis::Refused(_) | Diagnosis::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_policy_denies_is_forbidden_whatever_its_code() {
        let denied = "deployments.apps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with \
                      binding 'b' denied request: not today";
        let by_webhook = "admission webhook \"w\" denied the request: not today";
        for (code, message) in [(422, denied), (400, by_webhook), (403, by_webhook)] {
            let said = diagnose(&client::Error::api(code, "Invalid", message));
            assert_eq!(said, Diagnosis::Refused(Reason::Forbidden), "{code} {message}");
        }
        let invalid = client::Error::api(422, "Invalid", "spec.replicas: Invalid value");
        assert_eq!(diagnose(&invalid), Diagnosis::Refused(Reason::Invalid));
    }
}
