//! Health of a custom resource, computed from its children, and the conditions that report it.
//!
//! One function per type of workload decides: [`Health::of_deployment`] and
//! [`Health::of_daemon_set`]. The status and the command `status` use the same ones. docs/REASONS.md
//! has the table of their results, which [`table`] holds as code.
//!
//! kstatus, Flux and `kubectl wait` read three conditions: Ready (always present), Reconciling and
//! Stalled (present only while true, never both). Degraded is True while something is wrong. A
//! rollout is under way from a change until it has completed once; what happens to the pods after
//! that is not a rollout.

mod deployment;
mod daemon_set;
mod memory;
#[cfg(test)]
mod table;

pub use memory::{Progress, completed};

use super::child::{Child, ChildSpec};
use super::condition::{Status, Type, Wanted};
use super::error::{Diagnosis, Error, diagnose};
use super::evidence::{Evidence, Trouble};
use super::reason::Reason;
use crate::object::Labels;

/// Health of a custom resource or a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// How good it is.
    pub level: Level,
    /// The rollout of the workload.
    pub rollout: Rollout,
    /// Why, in one word.
    pub reason: Reason,
    /// Why, in a sentence.
    pub message: String,
}

/// Levels of health. Later ones are worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything is as the spec says.
    Ready,
    /// In progress, and nothing is wrong.
    Progressing,
    /// Something is wrong, but it may heal by itself.
    Degraded,
    /// Only a person can help.
    Stalled,
    /// A person has stopped all writes.
    Paused,
}

/// State of the rollout of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rollout {
    /// It has completed, whatever became of the pods since.
    Complete,
    /// It goes on.
    UnderWay,
    /// It does not go on.
    Halted,
}

/// What is known about a workload beside its own status.
#[derive(Debug, Default)]
pub struct Context<'a> {
    /// Whether the rollout of this generation has completed before.
    pub completed: bool,
    /// Whether it has made no progress for [`Progress::PATIENCE`].
    pub stuck: bool,
    /// The number of its pods that the status lists, if it lists any.
    pub listed: Option<usize>,
    /// The label of the nodes where a daemon belongs; all nodes if there is none.
    pub label: Option<&'a str>,
    /// What its pods, Events and nodes show.
    pub evidence: Evidence,
    /// The message of the condition Degraded, if that is True: the same pod is named again.
    pub previous: Option<&'a str>,
}

/// A type of workload whose health is computed.
pub trait Workload: ChildSpec {
    /// Its health, if it is as desired.
    fn health(child: &Child<Self>, context: &Context<'_>) -> Health;

    /// Whether its status refers to its newest generation.
    fn is_observed(child: &Child<Self>) -> bool;

    /// Counts that grow while a rollout makes progress.
    fn progress(child: &Child<Self>) -> [i32; 4];

    /// Selects its pods.
    fn selector(&self) -> &Labels;

    /// Whether it belongs on no node.
    fn is_nowhere(_: &Child<Self>) -> bool {
        false
    }

    /// Whether its controller reports in Events only that pods cannot be created, and some are
    /// missing.
    fn lacks_pods(_: &Child<Self>) -> bool {
        false
    }
}

// === impl Health ===

impl Health {
    /// A health of this level, without a rollout that goes on.
    pub fn new(level: Level, reason: Reason, message: impl Into<String>) -> Health {
        let rollout = match level {
            Level::Ready => Rollout::Complete,
            Level::Progressing => Rollout::UnderWay,
            Level::Degraded | Level::Stalled | Level::Paused => Rollout::Halted,
        };
        Health { level, rollout, reason, message: message.into() }
    }

    /// Everything is as the spec says.
    pub fn ready(reason: Reason, message: impl Into<String>) -> Health {
        Health::new(Level::Ready, reason, message)
    }

    /// A rollout that goes on.
    pub fn rolling_out(message: impl Into<String>) -> Health {
        Health::new(Level::Progressing, Reason::RollingOut, message)
    }

    /// A person has stopped all writes.
    pub fn paused() -> Health {
        Health::new(Level::Paused, Reason::Paused, Reason::Paused.meaning())
    }

    /// The health after a write that the API server refused or could not carry out.
    pub fn of_failure(error: &Error) -> Health {
        match diagnose(&error.source) {
            Diagnosis::Refused(reason) => Health::new(Level::Stalled, reason, error.to_string()),
            _ => Health::new(Level::Degraded, Reason::ApiError, error.to_string()),
        }
    }

    /// The health of a workload with this trouble.
    fn of_trouble(trouble: Trouble, completed: bool) -> Health {
        let level = if trouble.reason.needs_a_person() { Level::Stalled } else { Level::Degraded };
        let rollout = match (completed, level) {
            (true, _) => Rollout::Complete,
            (false, Level::Stalled) => Rollout::Halted,
            (false, _) => Rollout::UnderWay,
        };
        Health { level, rollout, reason: trouble.reason, message: trouble.message }
    }

    /// The health of a workload together with that of its other child: the worse of the two, and
    /// the rollout of the workload.
    pub fn and(self, other: Health) -> Health {
        if other.level > self.level {
            let rollout = if self.rollout == Rollout::Complete && self.level != Level::Paused {
                self.rollout
            } else {
                other.rollout
            };
            Health { rollout, ..other }
        } else {
            self
        }
    }

    /// What is wrong, if anything.
    pub fn trouble(&self) -> Option<(Reason, &str)> {
        matches!(self.level, Level::Degraded | Level::Stalled)
            .then_some((self.reason, &*self.message))
    }

    /// The condition Ready, with Reconciling or Stalled where it applies.
    pub fn summary(&self) -> Vec<Wanted> {
        let is = |kind: Type, status| kind.is(status, self.reason, &*self.message);
        let under_way = self.rollout != Rollout::Complete || self.level == Level::Progressing;
        let ready = if self.level == Level::Ready { Status::True } else { Status::False };
        let mut conditions = vec![is(Type::Ready, ready)];
        match self.level {
            Level::Progressing | Level::Degraded if under_way => {
                conditions.push(is(Type::Reconciling, Status::True));
            }
            Level::Stalled => conditions.push(is(Type::Stalled, Status::True)),
            _ => {}
        }
        conditions
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
        let is = |status| Type::Progressing.is(status, self.reason, &*self.message);
        match self.rollout {
            Rollout::Complete => {
                let reason = Reason::RolloutComplete;
                Type::Progressing.is(Status::False, reason, reason.meaning())
            }
            Rollout::UnderWay => is(Status::True),
            Rollout::Halted => is(Status::False),
        }
    }
}

/// `first`, and what is known of a pod.
fn with_pod(first: &str, trouble: Option<Trouble>) -> String {
    match trouble {
        Some(trouble) => format!("{first}; {}", trouble.message),
        None => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Health; 7] {
        let of = |level| Health::new(level, Reason::RollingOut, "why");
        let trouble = |completed| {
            let reason = Reason::CrashLoopBackOff;
            Health::of_trouble(Trouble { reason, message: "why".to_owned() }, completed)
        };
        [
            of(Level::Ready),
            of(Level::Progressing),
            trouble(true),
            trouble(false),
            of(Level::Degraded),
            of(Level::Stalled),
            Health::paused(),
        ]
    }

    fn status_of(conditions: &[Wanted], kind: Type) -> Option<Status> {
        conditions.iter().find(|c| c.kind == kind).map(|c| c.status)
    }

    /// The rules by which Flux checks conditions (fluxcd/pkg, runtime/conditions/check).
    #[test]
    fn no_health_breaks_the_rules_of_tools() {
        for health in all() {
            let mut conditions = health.summary();
            conditions.push(health.degraded());
            let is = |kind, status| status_of(&conditions, kind) == Some(status);
            let ready = is(Type::Ready, Status::True);
            let (reconciling, stalled) =
                (is(Type::Reconciling, Status::True), is(Type::Stalled, Status::True));
            assert!(status_of(&conditions, Type::Ready).is_some(), "{health:?}: FAIL0002");
            assert!(!(ready && is(Type::Degraded, Status::True)), "{health:?}: FAIL0001");
            assert!(!(ready && (reconciling || stalled)), "{health:?}: FAIL0003, FAIL0004");
            assert!(!(reconciling && stalled), "{health:?}: FAIL0005");
            assert!(!is(Type::Ready, Status::Unknown) || reconciling, "{health:?}: FAIL0011");
            for kind in [Type::Reconciling, Type::Stalled] {
                assert_ne!(status_of(&conditions, kind), Some(Status::False), "{health:?}: WARN");
            }
        }
    }

    #[test]
    fn the_worse_of_two_counts() {
        for worse in all() {
            for better in all().into_iter().filter(|better| better.level < worse.level) {
                for both in [worse.clone().and(better.clone()), better.and(worse.clone())] {
                    assert_eq!((both.level, both.reason), (worse.level, worse.reason));
                }
            }
        }
    }

    #[test]
    fn a_completed_rollout_stays_complete_whatever_is_wrong_with_the_service() {
        let taken = Health::new(Level::Stalled, Reason::ErrResourceExists, "taken");
        let both = Health::ready(Reason::AllReplicasReady, "all").and(taken);
        assert_eq!(both.progressing().reason, "RolloutComplete");
    }
}
