//! Errors of a reconcile, and the classes that determine their retries.

use std::time::Duration;

use crate::client;
use crate::object::{Kind, ObjectKey, Resource};
use crate::store::UnknownIndex;

/// The name of an object that must be deleted before another object can use it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    /// Its kind.
    pub kind: Kind,
    /// Its key.
    pub key: ObjectKey,
}

/// Classes of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// A network failure, 5xx, 429 or a refusal that passes ([`client::Error::is_transient_refusal`]): retried with
    /// backoff.
    Transient,
    /// Another client wrote first: retried soon, logged at debug level.
    Conflict,
    /// Refused by RBAC, quota or admission: retried slowly; manual action required.
    Forbidden,
    /// An object of another owner has the desired name ([`Problem::waits_for`]): retried when that object is deleted
    /// or gets another controller. Also retried as slowly as `Forbidden`, in case no watch reports that.
    Waiting,
    /// The API server does not serve a kind: retried with pauses of up to 30 s; manual action required.
    NotServed,
    /// Invalid until the object changes: not retried.
    Terminal,
}

words!(Class: Transient, Conflict, Forbidden, Waiting, NotServed, Terminal);

impl Class {
    /// Returns the class of a failed call to the API server.
    pub fn of(error: &client::Error) -> Class {
        match error.code() {
            // The kind itself is missing, not an object.
            Some(404) if error.is_not_served() => Class::NotServed,
            // Another manager owns a field that was applied without force.
            Some(409) if !error.conflicting_fields().is_empty() => Class::Forbidden,
            // The state that was read is out of date; the next reconcile reads the current state.
            Some(404 | 409) => Class::Conflict,
            Some(_) if error.is_transient_refusal() => Class::Transient,
            // Invalid requests are retried slowly: the policy, the namespace, the kind or the proxy that refuses them
            // can change.
            Some(400 | 403 | 405 | 406 | 413 | 415 | 422) => Class::Forbidden,
            Some(500) if error.is_unmergeable() => Class::Forbidden,
            // An impossible name, or a body that is not JSON.
            None if matches!(error, client::Error::Request(_)) => Class::Terminal,
            // This includes 401: the token has expired, and a later request uses the renewed one.
            _ => Class::Transient,
        }
    }

    /// Returns the order of urgency: temporary problems first, then those that wait for a name, those that require
    /// manual action, and those that are not retried.
    fn rank(self) -> u8 {
        match self {
            Class::Transient | Class::Conflict => 0,
            Class::Waiting => 1,
            Class::Forbidden | Class::NotServed => 2,
            Class::Terminal => 3,
        }
    }
}

/// The error of a reconciler: a failed call, or a problem that requires manual action. It determines its retry.
///
/// ```
/// # use controller_machinery::controller::Problem;
/// let problem = Problem::terminal("ErrNoBucket", "spec.bucket is empty: name a bucket");
/// assert_eq!(problem.reason(), Some("ErrNoBucket"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A problem that the reconciler describes itself.
    #[error("{message}")]
    Custom {
        /// Its class, which determines its retry.
        class: Class,
        /// One word for an Event.
        reason: &'static str,
        /// A sentence that states the problem and its solution.
        message: String,
    },
    /// The desired name is taken by an object that the owner does not control.
    #[error("{} {} already exists and is not managed by {owner}", .name.kind.kind, .name.key)]
    NotOwned {
        /// The kind of the owner, `Foo`.
        owner: Box<str>,
        /// Kind and name of the object's controller, if it has one.
        controller: Option<Box<str>>,
        /// The name.
        name: Name,
    },
    /// The desired name belongs to an object that is being deleted, or that the garbage collector is about to delete.
    /// It is not reported to users, and retried after the deletion.
    #[error("{} {} is being deleted", .0.kind.kind, .0.key)]
    Terminating(Name),
    /// An owned object differs in an immutable field. It is retried after the object is deleted.
    #[error(
        "{field} of {kind} {:?} is immutable: delete the {kind}, and the controller creates it again",
        .name.key.name(),
        kind = .name.kind.kind
    )]
    Immutable {
        /// The owned object.
        name: Name,
        /// The field, such as `spec.selector`.
        field: String,
    },
    /// Another program keeps undoing what is written to an owned object or to the status.
    #[error(
        "another controller or an admission policy keeps reverting {} {:?}; retrying within a minute",
        .name.kind.kind,
        .name.key.name()
    )]
    Contested {
        /// The owned object, or the object itself if it is its status.
        name: Name,
        /// The field that is changed back; `None` if the owned object is deleted each time.
        field: Option<String>,
        /// Time until it is written again.
        wait: Duration,
    },
    /// A problem that the reconciler has already reported, for example in the status. It is retried like the inner
    /// problem, but no Event is published.
    #[error(transparent)]
    Reported(Box<Problem>),
    /// A failed call to the API server, with its purpose.
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
    /// A failed call to the API server.
    #[error(transparent)]
    Api(#[from] client::Error),
    /// Several problems of one reconcile, the most urgent one first: [`Problem::all`].
    #[error("{}", first_sentences(.0))]
    Several(Vec<Problem>),
}

/// Sentences of [`Problem::Several`]. An Event has room for 1,024 bytes.
const SENTENCES: usize = 3;

fn first_sentences(problems: &[Problem]) -> String {
    let sentences = problems.iter().take(SENTENCES).map(ToString::to_string);
    let text = sentences.collect::<Vec<_>>().join("; ");
    match problems.len().saturating_sub(SENTENCES) {
        0 => text,
        more => format!("{text}; and {more} more"),
    }
}

impl Problem {
    /// Creates a problem that persists until the object changes.
    pub fn terminal(reason: &'static str, message: impl Into<String>) -> Problem {
        Problem::Custom { class: Class::Terminal, reason, message: message.into() }
    }

    /// Creates a problem that persists until another object or a permission changes.
    pub fn forbidden(reason: &'static str, message: impl Into<String>) -> Problem {
        Problem::Custom { class: Class::Forbidden, reason, message: message.into() }
    }

    /// Creates the problem for a name of kind `C` that belongs to an object that no `V` controls.
    pub fn not_owned<V: Resource, C: Resource>(key: &ObjectKey) -> Problem {
        let name = Name { kind: C::kind(), key: key.clone() };
        Problem::NotOwned { owner: V::kind().kind.into(), controller: None, name }
    }

    /// Creates the problem for an object of kind `C` that must be deleted first.
    pub(crate) fn terminating<C: Resource>(key: &ObjectKey) -> Problem {
        Problem::Terminating(Name { kind: C::kind(), key: key.clone() })
    }

    /// Creates the problem for a field of a `C` that another program keeps changing. Without a field, the program keeps
    /// deleting the `C`.
    pub(crate) fn contested<C: Resource>(
        key: &ObjectKey,
        field: Option<String>,
        wait: Duration,
    ) -> Problem {
        Problem::Contested { name: Name { kind: C::kind(), key: key.clone() }, field, wait }
    }

    /// Joins the problems of independent steps, such as those of many owned objects. The most urgent problem determines
    /// the retry: temporary problems come first, then those that wait for a name. The object is enqueued when any of
    /// the awaited names becomes free, unless the API server is unreachable.
    ///
    /// # Errors
    /// If there is a problem.
    pub fn all(problems: impl IntoIterator<Item = Problem>) -> Result<(), Problem> {
        let mut problems: Vec<_> = problems.into_iter().collect();
        problems.sort_by_key(|problem| problem.class().rank());
        match problems.len() {
            0 => Ok(()),
            1 => Err(problems.remove(0)),
            _ => Err(Problem::Several(problems)),
        }
    }

    /// Marks this problem as already reported by the reconciler.
    #[must_use]
    pub fn reported(self) -> Problem {
        Problem::Reported(Box::new(self))
    }

    /// Returns the error of the API server, if a call to it failed. `None` for several problems.
    pub fn api_error(&self) -> Option<&client::Error> {
        match self {
            Problem::Call { source, .. } => Some(source),
            Problem::Api(error) => Some(error),
            Problem::Reported(problem) => problem.api_error(),
            _ => None,
        }
    }

    /// Creates a temporary problem outside the API server. It is retried with backoff, like an outage of the API
    /// server. `reason` is one word for an Event.
    pub fn transient(reason: &'static str, message: impl Into<String>) -> Problem {
        Problem::Custom { class: Class::Transient, reason, message: message.into() }
    }

    /// Returns the Event reason, one word. `None` for problems that do not concern users, such as conflicts and
    /// outages.
    pub fn reason(&self) -> Option<&'static str> {
        let error = match self {
            Problem::Custom { reason, .. } => return Some(reason),
            Problem::NotOwned { .. } => return Some("ErrResourceExists"),
            Problem::Immutable { .. } => return Some("ErrFieldImmutable"),
            Problem::Contested { .. } => return Some("ErrContested"),
            Problem::Terminating(_) | Problem::Reported(_) => return None,
            Problem::Several(all) => return all.iter().find_map(Problem::reason),
            Problem::Call { source, .. } => source,
            Problem::Api(error) => error,
        };
        match Class::of(error) {
            // No retry helps, and users cannot see the log.
            _ if matches!(error, client::Error::Decode { .. }) => Some("ErrUndecodable"),
            _ if matches!(error, client::Error::Request(_)) => Some("ErrRequest"),
            Class::Forbidden => Some("ErrRefused"),
            Class::NotServed => Some("ErrNotServed"),
            Class::Transient | Class::Conflict | Class::Waiting | Class::Terminal => None,
        }
    }

    /// Returns its class, which determines its retry.
    pub fn class(&self) -> Class {
        match self {
            Problem::Custom { class, .. } => *class,
            Problem::NotOwned { .. } | Problem::Terminating(_) | Problem::Immutable { .. } => {
                Class::Waiting
            }
            Problem::Contested { .. } => Class::Forbidden,
            Problem::Reported(problem) => problem.class(),
            Problem::Several(all) => all.first().map_or(Class::Transient, Problem::class),
            Problem::Call { source, .. } => Class::of(source),
            Problem::Api(error) => Class::of(error),
        }
    }

    /// Returns the delay that the server requested (Retry-After), if any.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Problem::Several(all) => all.iter().filter_map(Problem::retry_after).max(),
            Problem::Reported(problem) => problem.retry_after(),
            _ => self.api_error().and_then(client::Error::retry_after),
        }
    }

    /// Returns the delay before the next retry, if it is known. Unlike a Retry-After, it ends early if the object or
    /// one of its dependencies changes.
    pub fn retry_in(&self) -> Option<Duration> {
        match self {
            Problem::Contested { wait, .. } => Some(*wait),
            Problem::Reported(problem) => problem.retry_in(),
            Problem::Several(all) => all.iter().filter_map(Problem::retry_in).min(),
            _ => None,
        }
    }

    /// Returns the names that must become free first.
    pub fn waits_for(&self) -> Vec<&Name> {
        match self {
            Problem::NotOwned { name, .. }
            | Problem::Immutable { name, .. }
            | Problem::Terminating(name) => vec![name],
            Problem::Reported(problem) => problem.waits_for(),
            Problem::Several(all) => all.iter().flat_map(Problem::waits_for).collect(),
            _ => Vec::new(),
        }
    }
}

/// A missing index is a bug in the program: terminal, and reported to the user.
impl From<UnknownIndex> for Problem {
    fn from(unknown: UnknownIndex) -> Problem {
        Problem::terminal("ErrUnknownIndex", unknown.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_api_error_has_its_class() {
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
        for (code, message) in [
            (403, "deployments.apps \"a\" is forbidden: not yet ready to handle request"),
            (
                403,
                "services \"a\" is forbidden: status unknown for quota: new, resources: count/services",
            ),
            (
                403,
                "deployments.apps \"a\" is forbidden: cannot set blockOwnerDeletion in this case because cannot \
                   find RESTMapping for APIVersion example.com/v1 Kind App: no matches for kind \"App\"",
            ),
            (
                422,
                "deployments.apps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied \
                   request: failed to configure binding: paramKind kind `v1, Kind=ConfigMap` not yet synced to use \
                   for admission",
            ),
            (
                422,
                "Service \"a\" is invalid: spec.clusterIPs: Invalid value: null: failed to allocate IP: etcdserver: \
                   leader changed",
            ),
            (
                422,
                "Service \"a\" is invalid: spec.ports[0].nodePort: Invalid value: 30000: cannot allocate resources \
                   of type servicenodeports at this time",
            ),
        ] {
            let class = Class::of(&client::Error::api(code, "", message));
            assert_eq!(class, Class::Transient, "{message}");
        }
        let taken = "Service \"a\" is invalid: spec.clusterIPs: Invalid value: [\"10.0.0.1\"]: failed to allocate IP \
                     10.0.0.1: provided IP is already allocated";
        assert_eq!(Class::of(&client::Error::api(422, "Invalid", taken)), Class::Forbidden);
        let twice = "failed to create typed patch object (ns/x; apps/v1, Kind=Deployment): errors:\n  \
                     .spec.template.spec.containers[name=\"a\"].env: duplicate entries for key [name=\"B\"]";
        let twice = client::Error::api(500, "", twice);
        assert_eq!(
            (Class::of(&twice), Problem::from(twice).reason()),
            (Class::Forbidden, Some("ErrRefused"))
        );
    }

    #[test]
    fn each_problem_has_its_class_and_event_reason() {
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
