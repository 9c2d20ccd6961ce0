//! One reconcile of a custom resource: its objects are applied, its health is observed, and its status is written.
//!
//! Guarantees
//! - A problem with one object does not prevent the apply of the others, or the write of the status.
//! - A conflict, or an API server that does not respond, ends the reconcile at once, to be retried.
//! - A problem is published as a Warning once, when it begins.

use std::sync::Arc;

use serde::Serialize;

use super::child::{Child, ChildSpec, Desired};
use super::condition::{Status, Time, Type};
use super::custom_resource::Custom;
use super::health::{self, Health, Workload};
use super::observer::{Observer, earlier};
use super::pod_template::unknown_port;
use super::progress::completed;
use super::reason::Reason;
use crate::client;
use crate::controller::{Action, ErrorClass, ReconcileError};
use crate::manager::Context;

/// A reconcile of a `V`, whose pods run in an `S`.
pub(crate) struct Reconciliation<'a, V, S: ChildSpec> {
    cx: &'a Context<V>,
    observer: &'a Observer,
    /// The workload, as stored or as just applied; `None` if the custom resource controls none.
    workload: Option<Arc<Child<S>>>,
    is_as_desired: bool,
    /// True if this reconcile has applied the workload.
    is_applied: bool,
    failure: Option<String>,
    /// True if an object of another owner has the name of the workload.
    is_taken: bool,
    /// True if a write was refused that the status does not report yet.
    is_early: bool,
    problems: Vec<ReconcileError>,
    next: Action,
}

/// Number of attempts after which the status reports a refused write. A single refusal often passes within a moment,
/// such as that of a webhook that restarts.
const REPORTED_AFTER: u32 = 3;

/// Findings of a reconcile, from which the status follows.
#[derive(Debug)]
pub struct Found<'a, S: ChildSpec> {
    /// The workload, if the custom resource controls one.
    pub workload: Option<&'a Child<S>>,
    /// True if the workload is as desired. Otherwise its pods are those of an older spec: the object is paused,
    /// or an update was refused.
    pub is_as_desired: bool,
    /// The combined health.
    pub health: Health,
    /// The reason why the workload could not be created or updated.
    pub failure: Option<String>,
}

impl<'a, V: Custom, S: Workload> Reconciliation<'a, V, S> {
    /// Starts a reconcile with the stored workload.
    ///
    /// # Errors
    /// If the controller does not own such workloads.
    pub(crate) fn new(cx: &'a Context<V>, observer: &'a Observer) -> Result<Self, ReconcileError> {
        Ok(Reconciliation {
            cx,
            observer,
            workload: controlled(cx)?,
            is_as_desired: false,
            is_applied: false,
            failure: None,
            is_taken: false,
            is_early: false,
            problems: Vec::new(),
            next: Action::Done,
        })
    }

    /// Adds a finalizer. Returns whether the custom resource has it.
    ///
    /// # Errors
    /// Conflicts and outages.
    pub(crate) async fn finalizer(&mut self, name: &'static str) -> Result<bool, ReconcileError> {
        let Err(problem) = self.cx.add_finalizer(name).await else { return Ok(true) };
        if self.workload.is_none() {
            self.failure = Some(problem.to_string());
        }
        self.collect(problem)?;
        Ok(false)
    }

    /// Applies the workload. Returns it, unless there is a problem.
    ///
    /// # Errors
    /// Conflicts and outages.
    pub(crate) async fn apply(
        &mut self,
        desired: &Desired<S>,
    ) -> Result<Option<Arc<Child<S>>>, ReconcileError> {
        let ensured = match unknown_port(&desired.spec["template"]) {
            Some(why) => Err(ReconcileError::terminal(Reason::Invalid.as_str(), why)),
            None => desired.ensure(self.cx).await,
        };
        match ensured {
            Ok(workload) => {
                self.workload = Some(workload.clone());
                (self.is_applied, self.is_as_desired) = (true, true);
                Ok(Some(workload))
            }
            Err(problem) => {
                self.failure = failure(&problem);
                self.is_taken = matches!(problem, ReconcileError::NotOwned { .. });
                self.collect(problem)?;
                self.workload = controlled(self.cx)?;
                Ok(None)
            }
        }
    }

    /// Applies another object, or deletes the stored one if `desired` is `None`. While the name of the workload is taken,
    /// nothing is created that could only lead to foreign pods, or to none.
    ///
    /// # Errors
    /// Conflicts and outages.
    pub(crate) async fn apply_or_prune<T: ChildSpec>(
        &mut self,
        desired: Option<&Desired<T>>,
    ) -> Result<(), ReconcileError> {
        let applied = match desired {
            Some(_) if self.is_taken => Ok(()),
            Some(desired) => desired.ensure(self.cx).await.map(drop),
            None => self.cx.prune::<Child<T>>(|_| false).await,
        };
        applied.or_else(|problem| self.collect(problem))
    }

    /// Records whether the stored workload, which this reconcile does not write, is as desired.
    ///
    /// # Errors
    /// Those of [`Desired::is_ensured`].
    pub(crate) fn compare(&mut self, desired: &Desired<S>) -> Result<(), ReconcileError> {
        let compared = self.workload.as_ref().map(|there| desired.is_ensured(self.cx, there));
        self.is_as_desired = compared.transpose()?.unwrap_or(false);
        Ok(())
    }

    /// Returns the stored workload, if the custom resource controls one.
    pub(crate) fn workload(&self) -> Option<&Child<S>> {
        self.workload.as_deref()
    }

    /// Sets the reason why no workload is applied.
    pub(crate) fn fail(&mut self, why: &str) {
        self.failure = Some(why.to_owned());
    }

    /// Returns the worst health: of the workload, if it is as desired, and of all problems.
    pub(crate) async fn observe(&mut self, known: health::Context<'_>) -> Health {
        let object = self.cx.object().clone();
        let mut healths = Vec::from_iter(self.problems.iter().map(Health::of_problem));
        if let Some(child) = self.workload.as_ref().filter(|_| self.is_applied) {
            let client = self.cx.client();
            let (health, next) = self.observer.observe(&client, &*object, child, known).await;
            healths.insert(0, health);
            self.requeue(next);
        }
        let worst = healths.into_iter().reduce(Health::and);
        let worst = worst.unwrap_or_else(|| Health::ready(Reason::AsExpected, ""));
        worst.aged(&*object, Time::now())
    }

    /// Returns the health of a paused custom resource, with the problem of its workload.
    pub(crate) async fn observe_paused(&mut self, known: health::Context<'_>) -> Health {
        let object = self.cx.object().clone();
        let paused = Health::paused(completed(&*object));
        let Some(child) = self.workload.clone() else { return paused };
        let client = self.cx.client();
        let (of_child, next) = self.observer.observe(&client, &*object, &child, known).await;
        self.requeue(next);
        let paused_problem =
            of_child.trouble().map(|(reason, message)| (reason, message.to_owned()));
        Health { paused_problem, ..paused }
    }

    /// Returns the findings for the status.
    pub(crate) fn found(&self, health: &Health) -> Found<'_, S> {
        Found {
            workload: self.workload.as_deref(),
            is_as_desired: self.is_as_desired,
            health: health.clone(),
            failure: self.failure.clone(),
        }
    }

    /// Requests another reconcile. Of several requests, the earliest counts.
    pub(crate) fn requeue(&mut self, next: Action) {
        self.next = earlier(self.next, next);
    }

    /// Ends the reconcile without a status.
    pub(crate) fn skip_report(self) -> Action {
        self.next
    }

    /// Writes the status and ends the reconcile.
    ///
    /// # Errors
    /// If the status cannot be written; else the most urgent problem.
    pub(crate) async fn report(
        self,
        status: &(impl Serialize + Sync),
        health: &Health,
    ) -> Result<Action, ReconcileError> {
        if self.is_early {
            return Ok(earlier(self.next, outcome(self.problems)?));
        }
        let reported = report(self.cx, status, health).await?;
        Ok(earlier(earlier(reported, self.next), outcome(self.problems)?))
    }

    /// Collects a problem that the status reports.
    ///
    /// # Errors
    /// Problems that end the reconcile: conflicts and outages.
    fn collect(&mut self, problem: ReconcileError) -> Result<(), ReconcileError> {
        if !is_reported(&problem) {
            return Err(problem);
        }
        let is_refusal =
            |error: &client::Error| error.code().is_some() && error.retry_after().is_none();
        let is_early = self.cx.failures() < REPORTED_AFTER - 1;
        self.is_early |= is_early && problem.api_error().is_some_and(is_refusal);
        self.problems.push(problem);
        Ok(())
    }
}

/// Returns the reason why a workload could not be created or updated. A contested or terminating workload
/// exists, and its pods can serve.
pub(crate) fn failure(problem: &ReconcileError) -> Option<String> {
    let exists =
        matches!(problem, ReconcileError::Terminating(_) | ReconcileError::Contested { .. });
    (!exists).then(|| Health::of_problem(problem).message)
}

/// Returns the stored workload of the custom resource, if it controls one.
fn controlled<V: Custom, S: ChildSpec>(
    cx: &Context<V>,
) -> Result<Option<Arc<Child<S>>>, ReconcileError> {
    let uid = cx.object().uid();
    Ok(cx.get::<Child<S>>(cx.key())?.filter(|child| child.meta.is_controlled_by(uid)))
}

/// Verbs of calls that write.
const WRITES: [&str; 3] = ["create", "update", "delete"];

/// Returns whether the status reports a problem.
fn is_reported(problem: &ReconcileError) -> bool {
    let Some(error) = problem.api_error() else { return true };
    // The API server waits, for example for a webhook. It may still be able to store a status.
    let is_write = matches!(problem, ReconcileError::Call { verb, .. } if WRITES.contains(verb));
    if is_write && matches!(error, client::Error::Deadline(_)) {
        return true;
    }
    let answered = error.code().is_some();
    // The object is about to be deleted together with its status.
    let goes = error.is_namespace_terminating();
    answered
        && !goes
        && matches!(ErrorClass::of(error), ErrorClass::Transient | ErrorClass::Forbidden)
}

/// Returns the action that follows from reported problems.
///
/// # Errors
/// The most urgent problem: one that can resolve itself, then one that waits for a name.
fn outcome(problems: Vec<ReconcileError>) -> Result<Action, ReconcileError> {
    let mut action = Action::Done;
    let others = problems.into_iter().filter(|problem| match problem {
        ReconcileError::Contested { wait, .. } => {
            action = earlier(action, Action::RequeueAfter(*wait));
            false
        }
        _ => true,
    });
    ReconcileError::all(others).map_err(ReconcileError::reported)?;
    Ok(action)
}

/// Writes a changed status, and publishes a Warning if a problem has begun. If another manager, such as a
/// second operator, keeps writing another status for the same spec, the status is not written for a while.
///
/// # Errors
/// If the status cannot be written.
async fn report<V: Custom>(
    cx: &Context<V>,
    status: &(impl Serialize + Sync),
    health: &Health,
) -> Result<Action, ReconcileError> {
    match cx.patch_status(status).await {
        Err(ReconcileError::Contested { wait, .. }) => {
            if let Some((reason, _)) = health.trouble() {
                cx.note(reason.as_str());
            }
            return Ok(Action::RequeueAfter(wait));
        }
        // The object is deleted, and the watch has not reported it yet.
        Err(ReconcileError::Call { source, .. }) if source.is_not_found() => {
            return Ok(Action::Done);
        }
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

/// Publishes a Warning if the API server refused a write that the status cannot report: that of the status
/// itself, or the removal of the finalizer, after which the status reports success. Returns the problem.
pub fn refused<V: Custom>(cx: &Context<V>, problem: ReconcileError) -> ReconcileError {
    let Some(error) = problem.api_error() else { return problem };
    let reason = match Reason::of_refusal(error) {
        Some(reason) => reason,
        None if is_reported(&problem) && cx.object().meta().is_terminating => Reason::ApiError,
        None => return problem,
    };
    if matches!(problem, ReconcileError::Reported(_)) {
        return problem;
    }
    cx.warn(reason.as_str(), &Health::of_problem(&problem).message);
    problem.reported()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client;
    use crate::controller::Name;
    use crate::object::{ObjectKey, Resource};
    use crate::workload::services::Service;

    fn name() -> Name {
        Name { kind: Service::kind(), key: ObjectKey::new("ns", "a") }
    }

    #[test]
    fn the_more_urgent_of_two_problems_is_returned() {
        let api = |code| ReconcileError::from(client::Error::api(code, "", "no"));
        let taken =
            || ReconcileError::NotOwned { owner: "App".into(), controller: None, name: name() };
        let wait = Duration::from_secs(7);
        let contested = || ReconcileError::Contested { name: name(), field: None, wait };
        for (problems, expected) in [
            (vec![api(403), taken()], ErrorClass::Waiting),
            (vec![taken(), api(403)], ErrorClass::Waiting),
            (vec![taken(), api(500)], ErrorClass::Transient),
            (vec![contested(), taken()], ErrorClass::Waiting),
            (vec![api(403)], ErrorClass::Forbidden),
        ] {
            assert_eq!(outcome(problems).unwrap_err().class(), expected);
        }
        let both = outcome(vec![contested()]).unwrap();
        assert!(matches!(both, Action::RequeueAfter(after) if after == wait), "{both:?}");
    }
}
