//! Errors: what to do about them.

use std::time::Duration;

use crate::client;
use crate::object::{Kind, ObjectKey, Resource};
use crate::store::UnknownIndex;

/// The name of an object that has to go before another one can have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Its kind.
    pub kind: Kind,
    /// Its key.
    pub key: ObjectKey,
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
    /// A foreign object has the name of a child ([`Problem::waits_for`]): try again when it
    /// goes or changes hands, and as slowly as if it was forbidden, in case no watch shows that.
    Waiting,
    /// The API server does not serve a kind: try again with pauses of up to half a minute; a person
    /// must act.
    NotServed,
    /// Wrong until the object changes: not retried.
    Terminal,
}

impl Class {
    /// The class of a failed call to the API server.
    pub fn of(error: &client::Error) -> Class {
        match error.code() {
            // No pass can help: neither an object nor its name is missing.
            Some(404) if error.is_not_served() => Class::NotServed,
            // The read state is out of date; the next pass reads the current state.
            Some(404 | 409) => Class::Conflict,
            // Even invalid requests are retried, slowly: a policy that refuses them may change, and a namespace
            // that is being deleted may be created again. So may what a kind, or a proxy, takes.
            Some(400 | 403 | 405 | 406 | 413 | 415 | 422) => Class::Forbidden,
            Some(500) if error.is_unmergeable() => Class::Forbidden,
            // A name that no object can have, or a body that is no JSON.
            None if matches!(error, client::Error::Request(_)) => Class::Terminal,
            // This includes 401: the token was not renewed in time, which fixes itself.
            _ => Class::Transient,
        }
    }

    /// All of them.
    pub const ALL: [Class; 6] = [
        Class::Transient,
        Class::Conflict,
        Class::Forbidden,
        Class::Waiting,
        Class::NotServed,
        Class::Terminal,
    ];

    /// A static word: metric label and Event reason.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Transient => "Transient",
            Class::Conflict => "Conflict",
            Class::Forbidden => "Forbidden",
            Class::Waiting => "Waiting",
            Class::NotServed => "NotServed",
            Class::Terminal => "Terminal",
        }
    }
}

/// The error of a reconciler: a failed call, or something that a person has to fix. It says how it is retried.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A person has to fix it.
    #[error("{message}")]
    Told {
        /// Its class, which determines how it is retried meanwhile.
        class: Class,
        /// One word for an Event.
        reason: &'static str,
        /// A sentence that says what is wrong and what to do.
        message: String,
    },
    /// The name of a child is taken by an object that is not the owner's. The text is that of
    /// Kubernetes' sample-controller.
    #[error("Resource {:?} already exists and is not managed by {owner}", .name.key.name())]
    Taken {
        /// The kind of the owner, `Foo`.
        owner: String,
        /// The name.
        name: Name,
    },
    /// An object that is being deleted has the name of a child, or one that the garbage collector is about
    /// to delete. No user has to know: it is tried again when it has gone.
    #[error("{} {} is being deleted", .0.kind.kind, .0.key)]
    Awaiting(Name),
    /// A child differs in a field that cannot be changed. It is tried again when the child has gone.
    #[error(
        "{field} of {} {:?} cannot be changed: delete it, and it is created again",
        .name.kind.kind,
        .name.key.name()
    )]
    Immutable {
        /// The child.
        name: Name,
        /// The field, `spec.selector`.
        field: &'static str,
    },
    /// Something keeps undoing what is written: a child, or the status of the object.
    #[error(
        "{} {:?} was written several times within a minute, and something undoes it each time: another \
         controller, or an admission policy. It is written again within a minute",
        .name.kind.kind,
        .name.key.name()
    )]
    Contested {
        /// The child, or the object itself if it is its status.
        name: Name,
        /// The field that is changed back; `None` if the child is deleted each time.
        field: Option<String>,
        /// Time until it is written again.
        wait: Duration,
    },
    /// A problem that the reconciler has reported in its own way, such as in the status: no Event is
    /// published for it. It is retried like the problem itself.
    #[error(transparent)]
    Reported(Box<Problem>),
    /// A call to the API server failed, for this purpose.
    #[error("cannot {verb} {kind} {key}: {source}")]
    Call {
        /// The purpose: `create`, `update`, …
        verb: &'static str,
        /// The kind of object.
        kind: &'static str,
        /// The object.
        key: ObjectKey,
        /// The error of the API server, or of the connection to it.
        #[source]
        source: Box<client::Error>,
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

    /// An object that is not a `V`'s has the name that a child of kind `C` should have.
    pub fn taken<V: Resource, C: Resource>(key: &ObjectKey) -> Problem {
        let name = Name { kind: C::KIND, key: key.clone() };
        Problem::Taken { owner: V::KIND.kind.to_string(), name }
    }

    /// The child of kind `C` that has to go first.
    pub(crate) fn awaiting<C: Resource>(key: &ObjectKey) -> Problem {
        Problem::Awaiting(Name { kind: C::KIND, key: key.clone() })
    }

    /// The child of kind `C` of which this field is changed again and again; it is deleted if there is
    /// none.
    pub(crate) fn contested<C: Resource>(
        key: &ObjectKey,
        field: Option<String>,
        wait: Duration,
    ) -> Problem {
        Problem::Contested { name: Name { kind: C::KIND, key: key.clone() }, field, wait }
    }

    /// This problem as one that the reconciler has reported itself.
    #[must_use]
    pub fn reported(self) -> Problem {
        Problem::Reported(Box::new(self))
    }

    /// The error of the API server, if a call to it failed.
    pub fn api_error(&self) -> Option<&client::Error> {
        match self {
            Problem::Call { source, .. } => Some(source),
            Problem::Api(error) => Some(error),
            Problem::Reported(problem) => problem.api_error(),
            _ => None,
        }
    }

    /// Something outside of the API server failed for now: it is tried again with backoff, as if the
    /// API server had been away. `reason` is one word for an Event.
    pub fn transient(reason: &'static str, message: impl Into<String>) -> Problem {
        Problem::Told { class: Class::Transient, reason, message: message.into() }
    }

    /// Why a person should be notified, as one word for an Event. `None` if that is not needed:
    /// someone else was faster, or the API server was away.
    pub fn reason(&self) -> Option<&'static str> {
        let error = match self {
            Problem::Told { reason, .. } => return Some(reason),
            Problem::Taken { .. } => return Some("ErrResourceExists"),
            Problem::Immutable { .. } => return Some("ErrFieldImmutable"),
            Problem::Contested { .. } => return Some("ErrContested"),
            Problem::Awaiting(_) | Problem::Reported(_) => return None,
            Problem::Call { source, .. } => source,
            Problem::Api(error) => error,
        };
        match Class::of(error) {
            // No retry helps, and the log alone would be silence to the object's owner.
            _ if matches!(error, client::Error::Decode { .. }) => Some("ErrUndecodable"),
            _ if matches!(error, client::Error::Request(_)) => Some("ErrRequest"),
            Class::Forbidden => Some("ErrRefused"),
            Class::NotServed => Some("ErrNotServed"),
            Class::Transient | Class::Conflict | Class::Waiting | Class::Terminal => None,
        }
    }
}

/// A lookup that was never wired: no retry helps, and a person hears of it.
impl From<UnknownIndex> for Problem {
    fn from(unknown: UnknownIndex) -> Problem {
        Problem::terminal("ErrUnknownIndex", unknown.to_string())
    }
}

impl Problem {
    /// Its class, which determines how it is retried.
    pub fn class(&self) -> Class {
        match self {
            Problem::Told { class, .. } => *class,
            Problem::Taken { .. } | Problem::Awaiting(_) | Problem::Immutable { .. } => {
                Class::Waiting
            }
            Problem::Contested { .. } => Class::Forbidden,
            Problem::Reported(problem) => problem.class(),
            Problem::Call { source, .. } => Class::of(source),
            Problem::Api(error) => Class::of(error),
        }
    }

    /// Returns the wait that the server asked for (Retry-After), if any.
    pub fn retry_after(&self) -> Option<Duration> {
        self.api_error().and_then(client::Error::retry_after)
    }

    /// Returns the pause before the next try, if it is known. Unlike a server's Retry-After, a change of the
    /// object or of what it depends on ends it.
    pub fn retry_in(&self) -> Option<Duration> {
        match self {
            Problem::Contested { wait, .. } => Some(*wait),
            Problem::Reported(problem) => problem.retry_in(),
            _ => None,
        }
    }

    /// The name that has to become free, if the class is [`Class::Waiting`].
    pub fn waits_for(&self) -> Option<&Name> {
        match self {
            Problem::Taken { name, .. }
            | Problem::Immutable { name, .. }
            | Problem::Awaiting(name) => Some(name),
            Problem::Reported(problem) => problem.waits_for(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_of_the_api_server_has_the_class_that_helps() {
        for (code, reason, expected) in [
            (404, "NotFound", Class::Conflict),
            (404, "", Class::NotServed),
            (409, "AlreadyExists", Class::Conflict),
            (403, "Forbidden", Class::Forbidden),
            (422, "Invalid", Class::Forbidden),
            (405, "MethodNotAllowed", Class::Forbidden),
            (413, "RequestEntityTooLarge", Class::Forbidden),
            (401, "Unauthorized", Class::Transient),
            (429, "TooManyRequests", Class::Transient),
            (500, "InternalError", Class::Transient),
        ] {
            let class = Class::of(&client::Error::api(code, reason, ""));
            assert_eq!(class, expected, "{code} {reason}");
        }
        assert_eq!(Class::of(&client::Error::Deadline(Duration::ZERO)), Class::Transient);
        let twice = "failed to create typed patch object (ns/x; apps/v1, Kind=Deployment): errors:\n  \
                     .spec.template.spec.containers[name=\"a\"].env: duplicate entries for key [name=\"B\"]";
        let twice = client::Error::api(500, "", twice);
        assert_eq!(
            (Class::of(&twice), Problem::from(twice).reason()),
            (Class::Forbidden, Some("ErrRefused"))
        );
    }

    #[test]
    fn of_a_problem_a_person_hears_if_only_a_person_can_help() {
        for (problem, class, reason) in [
            (Problem::terminal("ErrUnnamed", "name it"), Class::Terminal, Some("ErrUnnamed")),
            (Problem::forbidden("ErrExists", "rename it"), Class::Forbidden, Some("ErrExists")),
            (client::Error::api(403, "", "no").into(), Class::Forbidden, Some("ErrRefused")),
            (client::Error::api(404, "", "no").into(), Class::NotServed, Some("ErrNotServed")),
            (Problem::transient("ErrDns", "no answer"), Class::Transient, Some("ErrDns")),
            (
                client::Error::Request("\"\" is no name".into()).into(),
                Class::Terminal,
                Some("ErrRequest"),
            ),
            (client::Error::api(409, "", "late").into(), Class::Conflict, None),
            (client::Error::api(500, "", "away").into(), Class::Transient, None),
        ] {
            assert_eq!((problem.class(), problem.reason()), (class, reason), "{problem}");
        }
        assert_eq!(Problem::terminal("ErrUnnamed", "name it").to_string(), "name it");
    }
}
