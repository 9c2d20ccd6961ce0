//! Reports how a custom resource is: its status, and Warnings about problems that have begun.

use std::sync::Arc;

use serde::Serialize;

use super::child::{Child, ChildSpec, Desired};
use super::condition::{Status, Type};
use super::custom_resource::Custom;
use super::health::Health;
use super::reason::Reason;
use crate::client;
use crate::controller::{Action, Class, Problem};
use crate::manager::Context;

/// A child, or why it is not as desired.
pub(crate) type Ensured<S> = Result<Arc<Child<S>>, Problem>;

/// Splits off the problems that end a reconcile without a report: another process was faster, or the API server
/// does not answer. All others are reported in the status.
///
/// # Errors
/// Such a problem.
pub(crate) fn to_report<T>(result: Result<T, Problem>) -> Result<Result<T, Problem>, Problem> {
    match result {
        Err(problem) if !is_reported(&problem) => Err(problem),
        result => Ok(result),
    }
}

/// The purposes of calls that write.
const WRITES: [&str; 3] = ["create", "update", "delete"];

fn is_reported(problem: &Problem) -> bool {
    let Some(error) = problem.api_error() else { return true };
    // The API server waits for something, such as a webhook, and may yet take a status.
    let is_write = matches!(problem, Problem::Call { verb, .. } if WRITES.contains(verb));
    if is_write && matches!(error, client::Error::Deadline(_)) {
        return true;
    }
    let answered = error.code().is_some();
    // The object is about to go, and so is its status.
    let goes = error.is_namespace_terminating();
    answered && !goes && matches!(Class::of(error), Class::Transient | Class::Forbidden)
}

/// Returns what follows from children that are not as desired, once that is reported.
///
/// # Errors
/// The most urgent problem: what may heal by itself, then what waits for a name to become free.
pub(crate) fn outcome<const N: usize>(
    children: [Result<(), Problem>; N],
) -> Result<Action, Problem> {
    let (mut action, mut urgent) = (Action::Done, None);
    let rank = |problem: &Problem| match problem.class() {
        Class::Transient | Class::Conflict => 0,
        Class::Waiting => 1,
        Class::Forbidden | Class::NotServed | Class::Terminal => 2,
    };
    for problem in children.into_iter().filter_map(Result::err) {
        match problem {
            Problem::Contested { wait, .. } => action = sooner(action, Action::RequeueAfter(wait)),
            problem => match &urgent {
                Some(other) if rank(other) <= rank(&problem) => {}
                _ => urgent = Some(problem),
            },
        }
    }
    urgent.map_or(Ok(action), |problem| Err(problem.reported()))
}

/// Has the child be as `desired`, or not be there if there is none to desire.
///
/// # Errors
/// Those of [`Desired::ensure`] and [`Context::prune`].
pub(crate) async fn ensure_or_prune<V: Custom, S: ChildSpec>(
    desired: Option<&Desired<S>>,
    cx: &Context<V>,
) -> Result<(), Problem> {
    match desired {
        Some(desired) => desired.ensure(cx).await.map(drop),
        None => cx.prune::<Child<S>>(|_| false).await,
    }
}

/// The child that `cx` reconciles the owner of, if the owner controls it.
///
/// # Errors
/// If the controller does not own such children.
pub(crate) fn own<V: Custom, S: ChildSpec>(
    cx: &Context<V>,
) -> Result<Option<Arc<Child<S>>>, Problem> {
    let uid = cx.object().uid();
    Ok(cx.get::<Child<S>>(cx.key())?.filter(|child| child.meta.is_controlled_by(uid)))
}

/// The child that a reconcile ensured or, if it could not, the one that is there.
///
/// # Errors
/// Those of [`own`].
pub(crate) fn there<V: Custom, S: ChildSpec>(
    ensured: &Ensured<S>,
    cx: &Context<V>,
) -> Result<Option<Arc<Child<S>>>, Problem> {
    ensured.as_ref().map_or_else(|_| own(cx), |child| Ok(Some(child.clone())))
}

/// Returns whether there is a child, and it is as `desired`.
///
/// # Errors
/// Those of [`Desired::is_ensured`].
pub(crate) fn is_as_desired<V: Custom, S: ChildSpec>(
    desired: &Desired<S>,
    cx: &Context<V>,
    child: Option<&Child<S>>,
) -> Result<bool, Problem> {
    child.map_or(Ok(false), |child| desired.is_ensured(cx, child))
}

/// Writes a changed status, and publishes a Warning if a problem has begun. If another manager (a
/// second operator, say) keeps writing another one for the same spec, theirs is left for a while.
///
/// # Errors
/// If it could not be written.
pub(crate) async fn report<V: Custom>(
    cx: &Context<V>,
    status: &(impl Serialize + Sync),
    health: &Health,
) -> Result<Action, Problem> {
    match cx.patch_status(status).await {
        Err(Problem::Contested { wait, .. }) => {
            if let Some((reason, _)) = health.trouble() {
                cx.note(reason.as_str());
            }
            return Ok(Action::RequeueAfter(wait));
        }
        // The object is gone, and its watch behind.
        Err(Problem::Call { source, .. }) if source.is_not_found() => return Ok(Action::Done),
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
/// the removal of the finalizer, after which the status says that all is done. Returns the problem.
pub fn refused<V: Custom>(cx: &Context<V>, problem: Problem) -> Problem {
    let Some(error) = problem.api_error() else { return problem };
    let reason = match Reason::of_refusal(error) {
        Some(reason) => reason,
        None if is_reported(&problem) && cx.object().meta().deleting => Reason::ApiError,
        None => return problem,
    };
    if matches!(problem, Problem::Reported(_)) {
        return problem;
    }
    cx.warn(reason.as_str(), &Health::of_problem(&problem).message);
    problem.reported()
}

/// Whichever of the two comes first.
pub(crate) fn sooner(one: Action, other: Action) -> Action {
    match (one, other) {
        (Action::RequeueAfter(a), Action::RequeueAfter(b)) => Action::RequeueAfter(a.min(b)),
        (Action::Done, action) | (action, Action::Done) => action,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client;
    use crate::controller::Name;
    use crate::object::{ObjectKey, Resource};
    use crate::workload::service::Service;

    fn name() -> Name {
        Name { kind: Service::KIND, key: ObjectKey::new("ns", "a") }
    }

    #[test]
    fn of_two_problems_the_more_urgent_one_decides() {
        let api = |code| Err(client::Error::api(code, "", "no").into());
        let taken = || Err(Problem::NotOwned { owner: "App".to_owned(), name: name() });
        let wait = Duration::from_secs(7);
        let contested = || Err(Problem::Contested { name: name(), field: None, wait });
        for (children, expected) in [
            ([api(403), taken()], Class::Waiting),
            ([taken(), api(403)], Class::Waiting),
            ([taken(), api(500)], Class::Transient),
            ([contested(), taken()], Class::Waiting),
            ([Ok(()), api(403)], Class::Forbidden),
        ] {
            assert_eq!(outcome(children).unwrap_err().class(), expected);
        }
        let both = outcome([contested(), Ok(())]).unwrap();
        assert!(matches!(both, Action::RequeueAfter(after) if after == wait), "{both:?}");
    }
}
