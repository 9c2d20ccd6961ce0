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

/// An error of a reconciler, ready made: a call that failed, or what a person has to mend.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A person has to mend it.
    #[error("{message}")]
    Told {
        /// What is to be done about it meanwhile.
        class: Class,
        /// One word for an Event.
        reason: &'static str,
        /// A sentence: what is wrong, and what to do.
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

    /// Not to be done until a person has changed something else.
    pub fn forbidden(reason: &'static str, message: impl Into<String>) -> Problem {
        Problem::Told { class: Class::Forbidden, reason, message: message.into() }
    }

    /// Why a person has to know, one word for an Event; none if nobody has to: somebody was faster,
    /// or the API server was away.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Problem::Told { reason, .. } => Some(reason),
            Problem::Api(error) => (error.class() == Class::Forbidden).then_some("ErrRefused"),
        }
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
