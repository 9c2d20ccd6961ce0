//! Reports how a custom resource is: its status, and Warnings about problems that have begun.

use std::sync::Arc;

use serde::Serialize;

use super::child::{Child, ChildSpec};
use super::condition::{Status, Type};
use super::custom::Custom;
use super::error::{Diagnosis, diagnose, is_to_be_told};
use super::health::Health;
use crate::controller::{Action, Problem};
use crate::manager::Context;

/// A child, or why it is not as desired.
pub(super) type Ensured<S> = Result<Arc<Child<S>>, Problem>;

/// Splits off the problems that end a pass without a report: another process was faster, or the API server
/// does not answer. All others are reported in the status.
///
/// # Errors
/// Such a problem.
pub(super) fn to_report<T>(result: Result<T, Problem>) -> Result<Result<T, Problem>, Problem> {
    match result {
        Err(problem) if !is_reported(&problem) => Err(problem),
        result => Ok(result),
    }
}

fn is_reported(problem: &Problem) -> bool {
    problem.api_error().is_none_or(is_to_be_told)
}

/// What follows from a child that is not as desired, once that is reported.
///
/// # Errors
/// The problem, which is retried according to its class.
pub(super) fn outcome<T>(result: Result<T, Problem>) -> Result<Action, Problem> {
    match result {
        Ok(_) => Ok(Action::Done),
        Err(Problem::Contested { wait, .. }) => Ok(Action::RequeueAfter(wait)),
        Err(problem) => Err(problem.reported()),
    }
}

/// The child that `cx` reconciles the owner of, if the owner controls it.
///
/// # Errors
/// If the controller does not own such children.
pub(super) fn own<V: Custom, S: ChildSpec>(
    cx: &Context<V>,
) -> Result<Option<Arc<Child<S>>>, Problem> {
    let uid = cx.object().uid();
    Ok(cx.get::<Child<S>>(cx.key())?.filter(|child| child.meta.is_controlled_by(uid)))
}

/// Writes the status if it has changed, and publishes a Warning if a problem has begun. If somebody else,
/// such as a second operator, keeps writing another status for the same spec, theirs is left for a while.
///
/// # Errors
/// When it could not be written.
pub(super) async fn report<V: Custom>(
    cx: &Context<V>,
    status: &(impl Serialize + Sync),
    health: &Health,
) -> Result<Action, Problem> {
    match cx.patch_status(status).await {
        Err(Problem::Contested { wait, .. }) => return Ok(Action::RequeueAfter(wait)),
        written => written?,
    }
    let Some((reason, message)) = health.trouble() else { return Ok(Action::Done) };
    let is_known = cx.object().conditions().iter().any(|condition| {
        condition.is(Type::Degraded)
            && condition.status == Status::True
            && condition.reason == reason.as_str()
    });
    if is_known {
        cx.note(reason.as_str());
    } else {
        cx.warn(reason.as_str(), message);
    }
    Ok(Action::Done)
}

/// Publishes a Warning if the API server refused what the status does not report: the status itself, or
/// the removal of a finalizer. Returns the problem.
pub fn refused<V: Custom>(cx: &Context<V>, problem: Problem) -> Problem {
    let refusal = problem.api_error().map(diagnose);
    if let (Some(Diagnosis::Refused(reason)), false) =
        (refusal, matches!(problem, Problem::Reported(_)))
    {
        cx.warn(reason.as_str(), &problem.to_string());
        return problem.reported();
    }
    problem
}

/// Whichever of the two comes first.
pub(super) fn sooner(one: Action, other: Action) -> Action {
    match (one, other) {
        (Action::RequeueAfter(a), Action::RequeueAfter(b)) => Action::RequeueAfter(a.min(b)),
        (Action::Done, action) | (action, Action::Done) => action,
    }
}
