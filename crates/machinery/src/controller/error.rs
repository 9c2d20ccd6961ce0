//! Errors of a reconcile, and the classes that determine their retries.

use std::borrow::Cow;
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
pub enum ErrorClass {
    /// A network failure, 5xx, 429 or a refusal that passes ([`client::Error::is_transient_refusal`]): retried with
    /// backoff.
    Transient,
    /// Another client wrote first: retried soon, logged at debug level.
    Conflict,
    /// Refused by RBAC, quota or admission: retried slowly; manual action required.
    Forbidden,
    /// An object of another owner has the desired name ([`ReconcileError::waits_for`]): retried when that object is deleted
    /// or gets another controller. Also retried as slowly as `Forbidden`, in case no watch reports that.
    Waiting,
    /// The API server does not serve a kind: retried with pauses of up to 30 s; manual action required.
    NotServed,
    /// Invalid until the object changes: not retried.
    Terminal,
}

words!(ErrorClass: Transient, Conflict, Forbidden, Waiting, NotServed, Terminal);

impl ErrorClass {
    /// Returns the class of a failed call to the API server.
    pub fn of(error: &client::Error) -> Self {
        match error.code() {
            // The kind itself is missing, not an object.
            Some(404) if error.is_not_served() => Self::NotServed,
            // Another manager owns a field that was applied without force.
            Some(409) if !error.conflicting_fields().is_empty() => Self::Forbidden,
            // The state that was read is out of date; the next reconcile reads the current state.
            Some(404 | 409) => Self::Conflict,
            Some(_) if error.is_transient_refusal() => Self::Transient,
            // Invalid requests are retried slowly: the policy, the namespace, the kind or the proxy that refuses them
            // can change.
            Some(400 | 403 | 405 | 406 | 413 | 415 | 422) => Self::Forbidden,
            Some(500) if error.is_unmergeable() => Self::Forbidden,
            // An impossible name, or a body that is not JSON.
            None if matches!(error, client::Error::Request(_)) => Self::Terminal,
            // This includes 401: the token has expired, and a later request uses the renewed one.
            _ => Self::Transient,
        }
    }

    /// Returns the order of urgency: temporary problems first, then those that wait for a name, those that require
    /// manual action, and those that are not retried.
    fn rank(self) -> u8 {
        match self {
            Self::Transient | Self::Conflict => 0,
            Self::Waiting => 1,
            Self::Forbidden | Self::NotServed => 2,
            Self::Terminal => 3,
        }
    }
}

/// The error of a reconciler: a failed call, or a problem that requires manual action. It determines its retry.
///
/// ```
/// # use controller_machinery::controller::ReconcileError;
/// let problem = ReconcileError::terminal("ErrNoBucket", "spec.bucket is empty: name a bucket");
/// assert_eq!(problem.reason(), Some("ErrNoBucket"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReconcileError {
    /// A problem that the reconciler describes itself.
    #[error("{message}")]
    Custom {
        /// Its class, which determines its retry.
        class: ErrorClass,
        /// One word for an Event.
        reason: Cow<'static, str>,
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
    Reported(Box<ReconcileError>),
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
    /// Several problems of one reconcile, the most urgent one first: [`ReconcileError::all`].
    #[error("{}", first_sentences(.0))]
    Several(Vec<ReconcileError>),
}

/// Sentences of [`ReconcileError::Several`]. An Event has room for 1,024 bytes.
const SENTENCES: usize = 3;

fn first_sentences(problems: &[ReconcileError]) -> String {
    let sentences = problems.iter().take(SENTENCES).map(ToString::to_string);
    let text = sentences.collect::<Vec<_>>().join("; ");
    match problems.len().saturating_sub(SENTENCES) {
        0 => text,
        more => format!("{text}; and {more} more"),
    }
}

impl ReconcileError {
    /// Creates a problem that persists until the object changes. `reason` is one CamelCase word of a fixed set: it is the
    /// reason of an Event and a label of a metric.
    pub fn terminal(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.into(), message.into());
        Self::Custom { class: ErrorClass::Terminal, reason, message }
    }

    /// Creates a problem that persists until another object or a permission changes. `reason` is as for
    /// [`ReconcileError::terminal`].
    pub fn forbidden(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.into(), message.into());
        Self::Custom { class: ErrorClass::Forbidden, reason, message }
    }

    /// Creates the problem for a name of kind `C` that belongs to an object that no `V` controls.
    pub fn not_owned<V: Resource, C: Resource>(key: &ObjectKey) -> Self {
        let name = Name { kind: C::kind(), key: key.clone() };
        Self::NotOwned { owner: V::kind().kind.into(), controller: None, name }
    }

    /// Creates the problem for an object of kind `C` that must be deleted first.
    pub(crate) fn terminating<C: Resource>(key: &ObjectKey) -> Self {
        Self::Terminating(Name { kind: C::kind(), key: key.clone() })
    }

    /// Creates the problem for a field of a `C` that another program keeps changing. Without a field, the program keeps
    /// deleting the `C`.
    pub(crate) fn contested<C: Resource>(
        key: &ObjectKey,
        field: Option<String>,
        wait: Duration,
    ) -> Self {
        Self::Contested { name: Name { kind: C::kind(), key: key.clone() }, field, wait }
    }

    /// Joins the problems of independent steps, such as those of many owned objects. The most urgent problem determines
    /// the retry: temporary problems come first, then those that wait for a name. The object is enqueued when any of
    /// the awaited names becomes free, unless the API server is unreachable.
    ///
    /// # Errors
    /// If there is a problem.
    pub fn all(problems: impl IntoIterator<Item = Self>) -> Result<(), Self> {
        let mut problems: Vec<_> = problems.into_iter().collect();
        problems.sort_by_key(|problem| problem.class().rank());
        match problems.len() {
            0 => Ok(()),
            1 => Err(problems.remove(0)),
            _ => Err(Self::Several(problems)),
        }
    }

    /// Marks this problem as already reported by the reconciler.
    #[must_use]
    pub fn reported(self) -> Self {
        Self::Reported(Box::new(self))
    }

    /// Returns the error of the API server, if a call to it failed. `None` for several problems.
    pub fn api_error(&self) -> Option<&client::Error> {
        match self {
            Self::Call { source, .. } => Some(source),
            Self::Api(error) => Some(error),
            Self::Reported(problem) => problem.api_error(),
            _ => None,
        }
    }

    /// Creates a temporary problem outside the API server. It is retried with backoff, like an outage of the API
    /// server. `reason` is as for [`ReconcileError::terminal`].
    pub fn transient(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.into(), message.into());
        Self::Custom { class: ErrorClass::Transient, reason, message }
    }

    /// Returns the Event reason, one word. `None` for problems that do not concern users, such as conflicts and
    /// outages.
    pub fn reason(&self) -> Option<&str> {
        let error = match self {
            Self::Custom { reason, .. } => return Some(reason),
            Self::NotOwned { .. } => return Some("ErrResourceExists"),
            Self::Immutable { .. } => return Some("ErrFieldImmutable"),
            Self::Contested { .. } => return Some("ErrContested"),
            Self::Terminating(_) | Self::Reported(_) => return None,
            Self::Several(all) => return all.iter().find_map(Self::reason),
            Self::Call { source, .. } => source,
            Self::Api(error) => error,
        };
        match ErrorClass::of(error) {
            // No retry helps, and users cannot see the log.
            _ if matches!(error, client::Error::Decode { .. }) => Some("ErrUndecodable"),
            _ if matches!(error, client::Error::Request(_)) => Some("ErrRequest"),
            ErrorClass::Forbidden => Some("ErrRefused"),
            ErrorClass::NotServed => Some("ErrNotServed"),
            ErrorClass::Transient
            | ErrorClass::Conflict
            | ErrorClass::Waiting
            | ErrorClass::Terminal => None,
        }
    }

    /// Returns its class, which determines its retry.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Custom { class, .. } => *class,
            Self::NotOwned { .. } | Self::Terminating(_) | Self::Immutable { .. } => {
                ErrorClass::Waiting
            }
            Self::Contested { .. } => ErrorClass::Forbidden,
            Self::Reported(problem) => problem.class(),
            Self::Several(all) => all.first().map_or(ErrorClass::Transient, Self::class),
            Self::Call { source, .. } => ErrorClass::of(source),
            Self::Api(error) => ErrorClass::of(error),
        }
    }

    /// Returns the delay that the server requested (Retry-After), if any.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Several(all) => all.iter().filter_map(Self::retry_after).max(),
            Self::Reported(problem) => problem.retry_after(),
            _ => self.api_error().and_then(client::Error::retry_after),
        }
    }

    /// Returns the delay before the next retry, if it is known. Unlike a Retry-After, it ends early if the object or
    /// one of its dependencies changes.
    pub fn retry_in(&self) -> Option<Duration> {
        match self {
            Self::Contested { wait, .. } => Some(*wait),
            Self::Reported(problem) => problem.retry_in(),
            Self::Several(all) => all.iter().filter_map(Self::retry_in).min(),
            _ => None,
        }
    }

    /// Returns the names that must become free first.
    pub fn waits_for(&self) -> Vec<&Name> {
        match self {
            Self::NotOwned { name, .. }
            | Self::Immutable { name, .. }
            | Self::Terminating(name) => vec![name],
            Self::Reported(problem) => problem.waits_for(),
            Self::Several(all) => all.iter().flat_map(Self::waits_for).collect(),
            _ => Vec::new(),
        }
    }
}

/// A missing index is a bug in the program: terminal, and reported to the user.
impl From<UnknownIndex> for ReconcileError {
    fn from(unknown: UnknownIndex) -> Self {
        Self::terminal("ErrUnknownIndex", unknown.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_api_error_has_its_class() {
        for (code, reason, expected) in [
            (404, "NotFound", ErrorClass::Conflict),
            (404, "", ErrorClass::NotServed),
            (409, "AlreadyExists", ErrorClass::Conflict),
            (403, "Forbidden", ErrorClass::Forbidden),
            (422, "Invalid", ErrorClass::Forbidden),
            (405, "MethodNotAllowed", ErrorClass::Forbidden),
            (413, "RequestEntityTooLarge", ErrorClass::Forbidden),
            (401, "Unauthorized", ErrorClass::Transient),
            (429, "TooManyRequests", ErrorClass::Transient),
            (500, "InternalError", ErrorClass::Transient),
        ] {
            let class = ErrorClass::of(&client::Error::api(code, reason, ""));
            assert_eq!(class, expected, "{code} {reason}");
        }
        assert_eq!(ErrorClass::of(&client::Error::Deadline(Duration::ZERO)), ErrorClass::Transient);
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
            let class = ErrorClass::of(&client::Error::api(code, "", message));
            assert_eq!(class, ErrorClass::Transient, "{message}");
        }
        let taken = "Service \"a\" is invalid: spec.clusterIPs: Invalid value: [\"10.0.0.1\"]: failed to allocate IP \
                     10.0.0.1: provided IP is already allocated";
        assert_eq!(
            ErrorClass::of(&client::Error::api(422, "Invalid", taken)),
            ErrorClass::Forbidden
        );
        let twice = "failed to create typed patch object (ns/x; apps/v1, Kind=Deployment): errors:\n  \
                     .spec.template.spec.containers[name=\"a\"].env: duplicate entries for key [name=\"B\"]";
        let twice = client::Error::api(500, "", twice);
        assert_eq!(
            (ErrorClass::of(&twice), ReconcileError::from(twice).reason()),
            (ErrorClass::Forbidden, Some("ErrRefused"))
        );
    }

    #[test]
    fn each_problem_has_its_class_and_event_reason() {
        for (problem, class, reason) in [
            (
                ReconcileError::terminal("ErrUnnamed", "name it"),
                ErrorClass::Terminal,
                Some("ErrUnnamed"),
            ),
            (
                ReconcileError::forbidden("ErrExists", "rename it"),
                ErrorClass::Forbidden,
                Some("ErrExists"),
            ),
            (client::Error::api(403, "", "no").into(), ErrorClass::Forbidden, Some("ErrRefused")),
            (client::Error::api(404, "", "no").into(), ErrorClass::NotServed, Some("ErrNotServed")),
            (
                ReconcileError::transient("ErrDns", "no answer"),
                ErrorClass::Transient,
                Some("ErrDns"),
            ),
            (
                client::Error::Request("\"\" is no name".into()).into(),
                ErrorClass::Terminal,
                Some("ErrRequest"),
            ),
            (client::Error::api(409, "", "late").into(), ErrorClass::Conflict, None),
            (client::Error::api(500, "", "away").into(), ErrorClass::Transient, None),
        ] {
            assert_eq!((problem.class(), problem.reason()), (class, reason), "{problem}");
        }
        assert_eq!(ReconcileError::terminal("ErrUnnamed", "name it").to_string(), "name it");
    }
}
