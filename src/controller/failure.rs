//! Errors: what to do about them.

use std::time::Duration;

use crate::client;
use crate::store::UnknownIndex;

/// An error of a reconciler, which says what to do about it.
pub trait Failure: std::error::Error + Send + Sync + 'static {
    /// Its class, which determines how it is retried.
    fn class(&self) -> Class;

    /// How long the server asked to be left alone, if it did.
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
    /// A static word: metric label and Event reason.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Transient => "Transient",
            Class::Conflict => "Conflict",
            Class::Forbidden => "Forbidden",
            Class::Terminal => "Terminal",
        }
    }
}

/// A ready-made reconciler error: a failed call, or something a person has to fix.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A person has to fix it.
    #[error("{message}")]
    Told {
        /// How to treat it meanwhile.
        class: Class,
        /// One word for an Event.
        reason: &'static str,
        /// A sentence that says what is wrong and what to do.
        message: String,
    },
    /// A call to the API server failed.
    #[error(transparent)]
    Api(#[from] client::Error),
}

impl Problem {
    /// Wrong until the object changes.
    pub fn terminal(reason: &'static str, message: impl Into<String>) -> Problem {
        Problem::Told { class: Class::Terminal, reason, message: message.into() }
    }

    /// Cannot be done until a person has changed something else.
    pub fn forbidden(reason: &'static str, message: impl Into<String>) -> Problem {
        Problem::Told { class: Class::Forbidden, reason, message: message.into() }
    }

    /// Why a person should be notified, as one word for an Event. `None` if nobody needs to be:
    /// someone else was faster, or the API server was away.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Problem::Told { reason, .. } => Some(reason),
            Problem::Api(error) => (error.class() == Class::Forbidden).then_some("ErrRefused"),
        }
    }
}

/// A lookup that was never wired: no retry helps, and a person hears of it.
impl From<UnknownIndex> for Problem {
    fn from(unknown: UnknownIndex) -> Problem {
        Problem::terminal("ErrUnknownIndex", unknown.to_string())
    }
}

impl Failure for Problem {
    fn class(&self) -> Class {
        match self {
            Problem::Told { class, .. } => *class,
            Problem::Api(error) => error.class(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        if let Problem::Api(error) = self { error.retry_after() } else { None }
    }
}

/// A failed call to the API server. An error of your own that wraps one has the same class, unless
/// you know better.
impl Failure for client::Error {
    fn class(&self) -> Class {
        match self.code() {
            // What was read is out of date; the next pass reads the current state.
            Some(404 | 409) => Class::Conflict,
            // Nothing can be created in the namespace, and nothing needs to be.
            Some(403) if self.is_namespace_terminating() => Class::Terminal,
            // Even invalid requests are retried, slowly: a policy that refuses them may change.
            Some(400 | 403 | 422) => Class::Forbidden,
            // This includes 401: the token was not renewed in time, which fixes itself.
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
    fn of_a_problem_a_person_hears_if_only_a_person_can_help() {
        for (problem, class, reason) in [
            (Problem::terminal("ErrUnnamed", "name it"), Class::Terminal, Some("ErrUnnamed")),
            (Problem::forbidden("ErrExists", "rename it"), Class::Forbidden, Some("ErrExists")),
            (client::Error::api(403, "", "no").into(), Class::Forbidden, Some("ErrRefused")),
            (client::Error::api(409, "", "late").into(), Class::Conflict, None),
            (client::Error::api(500, "", "away").into(), Class::Transient, None),
        ] {
            assert_eq!((problem.class(), problem.reason()), (class, reason), "{problem}");
        }
        assert_eq!(Problem::terminal("ErrUnnamed", "name it").to_string(), "name it");
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
