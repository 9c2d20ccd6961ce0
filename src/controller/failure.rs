//! Errors: what to do about them.

use std::time::Duration;

use crate::client;

/// An error of a reconciler: what to do about it.
pub trait Failure: std::error::Error + Send + Sync + 'static {
    /// Its class, which has a retry rule.
    fn class(&self) -> Class;

    /// The server asked to be left alone for so long.
    fn retry_after(&self) -> Option<Duration> {
        None
    }
}

/// Classes of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Try again with backoff: network, 5xx, 429.
    Transient,
    /// Somebody was faster: try again soon, at debug level.
    Conflict,
    /// Not allowed, by RBAC, quota or admission: try again slowly; a person must act.
    Forbidden,
    /// Wrong until the object changes: not retried.
    Terminal,
}

impl Class {
    /// One static word: metric label and Event reason.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Transient => "Transient",
            Class::Conflict => "Conflict",
            Class::Forbidden => "Forbidden",
            Class::Terminal => "Terminal",
        }
    }
}

/// A call to the API server that failed. An error of your own that wraps one has its class, unless
/// you know better.
impl Failure for client::Error {
    fn class(&self) -> Class {
        match self.code() {
            // What was read is out of date; the next pass reads what is there now.
            Some(404 | 409) => Class::Conflict,
            // Nothing can be made in the namespace, and nothing has to be.
            Some(403) if self.is_namespace_terminating() => Class::Terminal,
            // Even what is invalid is tried again, slowly: a policy that refuses it may change.
            Some(400 | 403 | 422) => Class::Forbidden,
            // 401 among them: the token was not renewed in time, which heals by itself.
            _ => Class::Transient,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        client::Error::retry_after(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_of_the_api_server_has_the_class_that_helps() {
        for (code, expected) in [
            (404, Class::Conflict),
            (409, Class::Conflict),
            (403, Class::Forbidden),
            (422, Class::Forbidden),
            (401, Class::Transient),
            (429, Class::Transient),
            (500, Class::Transient),
        ] {
            assert_eq!(client::Error::api(code, "", "").class(), expected, "{code}");
        }
        assert_eq!(client::Error::Deadline(Duration::ZERO).class(), Class::Transient);
    }

    #[test]
    fn in_a_namespace_that_goes_nothing_is_tried_again() {
        let mut error = client::Error::api(403, "Forbidden", "it is being terminated");
        if let client::Error::Api { causes, .. } = &mut error {
            causes.push("NamespaceTerminating".to_owned());
        }
        assert_eq!(error.class(), Class::Terminal);
    }
}
