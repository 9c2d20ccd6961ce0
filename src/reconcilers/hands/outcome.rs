//! The result of settling a child, and the health that follows from it.

use std::sync::Arc;
use std::time::Duration;

use super::Parent;
use crate::controller::Action;
use crate::reconcilers::child::{Child, ChildSpec};
use crate::reconcilers::error::Error;
use crate::reconcilers::health::{Health, Level};
use crate::reconcilers::reason::Reason;
use crate::store::Store;

/// The result of settling a child.
#[derive(Debug)]
pub enum Outcome<S: ChildSpec> {
    /// It is as desired.
    Settled(Arc<Child<S>>),
    /// A former child has to be deleted first.
    Waiting,
    /// Somebody else's object has the name.
    Taken,
    /// It differs in this field, which cannot be changed.
    Immutable(&'static str),
    /// Somebody keeps changing this field, or changed it during the write; it is left as it is for
    /// this long.
    Contested(&'static str, Duration),
    /// Somebody keeps deleting it; it is not created for this long.
    Deleted(Duration),
    /// The API server said no.
    Failed(Error),
    /// It is not wanted, and is gone or being deleted.
    Unwanted,
}

// === impl Outcome ===

impl<S: ChildSpec> Outcome<S> {
    /// The health of the child; `settled` is that of one that is as desired.
    pub fn health(&self, parent: &Parent, settled: Health) -> Health {
        let (kind, name) = (S::KIND.kind, parent.key.name());
        let owner = &parent.owner;
        match self {
            Outcome::Settled(_) => settled,
            Outcome::Waiting => Health::new(
                Level::Progressing,
                Reason::AwaitingDeletion,
                format!("Waiting until the former {kind} {name} is deleted"),
            ),
            Outcome::Taken => Health::new(
                Level::Stalled,
                Reason::ErrResourceExists,
                format!(
                    "{kind} {name} already exists and is not controlled by {} {}; delete or rename one of them",
                    owner.kind, owner.name
                ),
            ),
            Outcome::Immutable(field) => Health::new(
                Level::Stalled,
                Reason::FieldImmutable,
                format!(
                    "{field} of {kind} {name} cannot be changed; delete the {kind}, and the operator recreates it"
                ),
            ),
            Outcome::Contested(field, _) => Health::new(
                Level::Degraded,
                Reason::Contested,
                format!(
                    "Somebody keeps changing {field} of {kind} {name}; it is restored a few times a \
                     minute only. kubectl get {} {name} -o yaml --show-managed-fields tells who it is; \
                     if it does not, it is an admission policy or webhook",
                    S::KIND.plural
                ),
            ),
            Outcome::Deleted(_) => Health::new(
                Level::Degraded,
                Reason::Contested,
                format!(
                    "Somebody keeps deleting {kind} {name}; it is created a few times a minute only. \
                     The API server's audit log tells who it is"
                ),
            ),
            Outcome::Failed(error) => Health::of_failure(error),
            Outcome::Unwanted => Health::ready(Reason::AsExpected, ""),
        }
    }

    /// Why the child is not as desired, if a write failed, the name is taken, or a field cannot be
    /// changed. A contested child exists, and may well serve.
    pub fn failure(&self, parent: &Parent) -> Option<String> {
        match self {
            Outcome::Taken | Outcome::Immutable(_) | Outcome::Failed(_) => {
                Some(self.health(parent, Health::paused(false)).message)
            }
            Outcome::Settled(_)
            | Outcome::Waiting
            | Outcome::Contested(..)
            | Outcome::Deleted(_)
            | Outcome::Unwanted => None,
        }
    }

    /// The child as this pass last saw it, if the parent controls it.
    pub fn child(&self, parent: &Parent, store: &Store<Child<S>>) -> Option<Arc<Child<S>>> {
        match self {
            Outcome::Settled(child) => Some(child.clone()),
            _ => parent.own(store),
        }
    }

    /// What to do next; an error is retried according to its class.
    ///
    /// # Errors
    /// The API server's error.
    pub fn into_result(self) -> Result<Action, Error> {
        match self {
            Outcome::Failed(error) => Err(error),
            Outcome::Contested(_, wait) | Outcome::Deleted(wait) => Ok(Action::RequeueAfter(wait)),
            _ => Ok(Action::Done),
        }
    }
}

/// Whichever of the two comes first.
pub(in crate::reconcilers) fn sooner(one: Action, other: Action) -> Action {
    match (one, other) {
        (Action::RequeueAfter(a), Action::RequeueAfter(b)) => Action::RequeueAfter(a.min(b)),
        (Action::Done, action) | (action, Action::Done) => action,
    }
}
