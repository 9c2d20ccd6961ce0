//! The overall state of a custom resource, and the conditions that report it to tools.
//!
//! kstatus, Flux and `kubectl wait` read three of them: Ready (always present), Reconciling and
//! Stalled (present only while true, never both). Degraded says whether something is wrong.

use super::condition::{Status, Type, Wanted};
use super::error::{Diagnosis, Error, diagnose};
use super::reason::Reason;
use super::workload::Rollout;

/// The state of a custom resource or a child. Later variants are worse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Situation {
    /// Everything is as the spec says.
    Done(Reason, String),
    /// In progress, and nothing is wrong.
    Underway(Reason, String),
    /// Something is wrong, and the operator tries again.
    Troubled(Reason, String),
    /// Only a person can help.
    Stalled(Reason, String),
    /// A person has stopped all writes.
    Paused,
}

impl Situation {
    /// The worse of the two.
    pub fn and(self, other: Situation) -> Situation {
        if other.badness() > self.badness() { other } else { self }
    }

    /// The state of a child that is as desired; `done` is used once it is rolled out.
    pub fn of_rollout(rollout: Rollout, done: Situation) -> Situation {
        match rollout {
            Rollout::Done => done,
            Rollout::Underway(message) => Situation::Underway(Reason::RollingOut, message),
            Rollout::Failing { given_up: true, message } => {
                Situation::Stalled(Reason::ProgressDeadlineExceeded, message)
            }
            Rollout::Failing { given_up: false, message } => {
                Situation::Troubled(Reason::ReplicaFailure, message)
            }
        }
    }

    /// The state after a write that the API server refused or could not carry out.
    pub fn of_failure(error: &Error) -> Situation {
        match diagnose(&error.source) {
            Diagnosis::Refused(reason) => Situation::Stalled(reason, error.to_string()),
            _ => Situation::Troubled(Reason::ApiError, error.to_string()),
        }
    }

    /// The state, in a sentence.
    pub fn message(&self) -> &str {
        match self {
            Situation::Done(_, message)
            | Situation::Underway(_, message)
            | Situation::Troubled(_, message)
            | Situation::Stalled(_, message) => message,
            Situation::Paused => Reason::Paused.meaning(),
        }
    }

    /// What is wrong, if anything.
    pub fn trouble(&self) -> Option<(Reason, &str)> {
        match self {
            Situation::Troubled(reason, message) | Situation::Stalled(reason, message) => {
                Some((*reason, message))
            }
            Situation::Done(..) | Situation::Underway(..) | Situation::Paused => None,
        }
    }

    /// The condition Ready, with Reconciling or Stalled where it applies.
    pub fn summary(&self) -> Vec<Wanted> {
        let not_ready = |reason, message: &str| Type::Ready.is(Status::False, reason, message);
        let also = |kind: Type, reason, message: &str| {
            vec![not_ready(reason, message), kind.is(Status::True, reason, message)]
        };
        match self {
            Situation::Done(reason, message) => {
                vec![Type::Ready.is(Status::True, *reason, message)]
            }
            Situation::Underway(reason, message) | Situation::Troubled(reason, message) => {
                also(Type::Reconciling, *reason, message)
            }
            Situation::Stalled(reason, message) => also(Type::Stalled, *reason, message),
            Situation::Paused => vec![not_ready(Reason::Paused, Reason::Paused.meaning())],
        }
    }

    /// The condition Degraded.
    pub fn degraded(&self) -> Wanted {
        match self.trouble() {
            Some((reason, message)) => Type::Degraded.is(Status::True, reason, message),
            None => {
                Type::Degraded.is(Status::False, Reason::AsExpected, Reason::AsExpected.meaning())
            }
        }
    }

    /// The condition Progressing.
    pub fn progressing(&self) -> Wanted {
        match self {
            Situation::Underway(reason, message)
            | Situation::Troubled(reason @ Reason::ReplicaFailure, message) => {
                Type::Progressing.is(Status::True, *reason, message)
            }
            Situation::Done(..) => {
                let reason = Reason::RolloutComplete;
                Type::Progressing.is(Status::False, reason, reason.meaning())
            }
            Situation::Troubled(reason, message) | Situation::Stalled(reason, message) => {
                Type::Progressing.is(Status::False, *reason, message)
            }
            Situation::Paused => {
                Type::Progressing.is(Status::False, Reason::Paused, Reason::Paused.meaning())
            }
        }
    }

    fn badness(&self) -> u8 {
        match self {
            Situation::Done(..) => 0,
            Situation::Underway(..) => 1,
            Situation::Troubled(..) => 2,
            Situation::Stalled(..) => 3,
            Situation::Paused => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Situation; 5] {
        let why = || (Reason::RollingOut, "why".to_owned());
        let (a, b) = why();
        [
            Situation::Done(a, b.clone()),
            Situation::Underway(a, b.clone()),
            Situation::Troubled(a, b.clone()),
            Situation::Stalled(a, b),
            Situation::Paused,
        ]
    }

    fn status_of(conditions: &[Wanted], kind: Type) -> Option<Status> {
        conditions.iter().find(|c| c.kind == kind).map(|c| c.status)
    }

    /// The rules by which Flux checks conditions (fluxcd/pkg, runtime/conditions/check).
    #[test]
    fn no_situation_breaks_the_rules_of_tools() {
        for situation in all() {
            let mut conditions = situation.summary();
            conditions.push(situation.degraded());
            let is = |kind, status| status_of(&conditions, kind) == Some(status);
            let ready = is(Type::Ready, Status::True);
            let (reconciling, stalled) =
                (is(Type::Reconciling, Status::True), is(Type::Stalled, Status::True));
            assert!(status_of(&conditions, Type::Ready).is_some(), "{situation:?}: FAIL0002");
            assert!(!(ready && is(Type::Degraded, Status::True)), "{situation:?}: FAIL0001");
            assert!(!(ready && (reconciling || stalled)), "{situation:?}: FAIL0003, FAIL0004");
            assert!(!(reconciling && stalled), "{situation:?}: FAIL0005");
            assert!(!is(Type::Ready, Status::Unknown) || reconciling, "{situation:?}: FAIL0011");
            for kind in [Type::Reconciling, Type::Stalled] {
                assert_ne!(
                    status_of(&conditions, kind),
                    Some(Status::False),
                    "{situation:?}: WARN"
                );
            }
        }
    }

    #[test]
    fn of_two_situations_the_worse_one_counts() {
        for (at, worse) in all().into_iter().enumerate() {
            for better in &all()[..at] {
                assert_eq!(worse.clone().and(better.clone()), worse);
                assert_eq!(better.clone().and(worse.clone()), worse);
            }
        }
    }
}
