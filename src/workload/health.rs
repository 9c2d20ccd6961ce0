//! Health of a custom resource, computed from its owned objects, and the conditions that report it.
//!
//! [`Health::of_deployment`] and [`Health::of_daemon_set`] decide, for the status and for the command `status`.
//! `health/table.md` has the table of their results, and `health/tests.rs` has it as code.
//!
//! kstatus, Flux and `kubectl wait` read three conditions: Ready (always present), Reconciling and Stalled
//! (present only while true, never both). Degraded is True while there is a problem. A rollout is running from
//! a change until it has completed once. Later changes of the pods are not a rollout.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::child::{Child, ChildSpec};
use super::condition::{Status, Time, Type, Wanted};
use super::custom_resource::Custom;
use super::diagnostics::Ask;
use super::evidence::{Answer, Evidence};
use super::pod_state::Trouble;
use super::progress::{Progress, degraded_for, reported};
use super::reason::Reason;
use super::sentence::join;
use crate::client;
use crate::controller::{Name, ReconcileError};
use crate::object::Labels;

/// Health of a custom resource or an owned object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The level.
    pub level: Level,
    /// The rollout of the workload.
    pub rollout: Rollout,
    /// Reason, one word.
    pub reason: Reason,
    /// Message, a sentence.
    pub message: String,
    /// Problem of the pods of a paused object.
    pub paused_problem: Option<(Reason, String)>,
}

/// Levels of health. Later ones are worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The state matches the spec.
    Ready,
    /// In progress, without a problem.
    Progressing,
    /// There is a problem that can resolve itself.
    Degraded,
    /// Manual action is required.
    Stalled,
    /// A user has paused the object.
    Paused,
}

/// State of the rollout of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rollout {
    /// It has completed once, whatever happened to the pods since.
    Complete,
    /// It is running.
    UnderWay,
    /// It has stopped.
    Halted,
}

/// Time after which a problem that often resolves itself is Stalled: the longest pause between two pulls of an
/// image (`MaxContainerBackOff` in k8s.io/kubernetes, pkg/kubelet).
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(300);

/// The words of a message that a controller has not processed a change.
pub(crate) const UNPROCESSED: &str = "has not processed the";

/// End of the message of a workload whose pods are ready, but not all for `minReadySeconds`.
pub(crate) const READY_FIRST: &str = ": new pods must first be ready for minReadySeconds";

/// Inputs to the health of a workload, in addition to its own status.
#[derive(Debug, Default)]
pub struct Context<'a> {
    /// True if the rollout of this generation has completed before.
    pub completed: bool,
    /// Time since the last progress.
    pub idle: Duration,
    /// Number of pods that the status lists, if it lists any.
    pub listed: Option<usize>,
    /// The label of the nodes where a daemon belongs; all nodes if there is none.
    pub label: Option<&'a str>,
    /// Number of nodes where the daemon belonged, according to the status.
    pub desired_before: i32,
    /// True if the daemon belongs on more nodes now, so that a rollout begins.
    pub grown: bool,
    /// Number of its nodes. The more nodes, the rarer the lists.
    pub nodes: u32,
    /// Evidence of its pods, Events and nodes.
    pub evidence: Evidence,
    /// The health that the status reports for this generation. It replaces evidence while lists fail, and keeps
    /// messages naming the same pod.
    pub previous: Option<Health>,
    /// Time since the reason of `previous` last changed.
    pub lasting: Duration,
}

/// A type of workload whose health is computed.
pub trait Workload: ChildSpec {
    /// Returns the health of a workload that is as desired.
    fn health(child: &Child<Self>, context: &Context<'_>) -> Health;

    /// Returns whether the status refers to the newest generation.
    fn is_observed(child: &Child<Self>) -> bool;

    /// Returns counts that grow while a rollout makes progress.
    fn progress(child: &Child<Self>) -> [i32; 4];

    /// Returns the selector of the pods.
    fn selector(&self) -> &Labels;

    /// Returns the lists that explain why the workload is not ready.
    fn ask(_: &Child<Self>) -> Ask {
        Ask::Pods
    }

    /// Returns the number of nodes that run a pod although none belongs there. The lists of nodes show why.
    fn misscheduled(_: &Child<Self>) -> usize {
        0
    }

    /// Returns whether the counts alone do not show whether the workload is ready.
    fn is_to_be_explained(_: &Child<Self>) -> bool {
        false
    }
}

// === impl Context ===

impl Context<'_> {
    /// Returns whether the workload has made no progress for [`Progress::IDLE_MAX`].
    pub(super) fn is_stuck(&self) -> bool {
        self.idle >= Progress::IDLE_MAX
    }

    /// Returns whether the workload has made no progress for `limit`, or the status reports this and none was
    /// made since.
    pub(super) fn is_late(&self, limit: Duration) -> bool {
        const LATE: [Reason; 2] = [Reason::ProgressDeadlineExceeded, Reason::ContainersNotReady];
        let is_known = |known: Trouble| LATE.contains(&known.reason) && self.is_stuck();
        self.idle >= limit || self.known().is_some_and(is_known)
    }

    /// Returns the problem that the status reports, if diagnostic lists show such problems.
    pub(super) fn known(&self) -> Option<Trouble> {
        let previous = self.previous.as_ref().filter(|previous| previous.reason.is_of_pods())?;
        let (reason, message) = previous.trouble()?;
        let stalls_at_once = previous.level == Level::Stalled;
        Some(Trouble { reason, message: message.to_owned(), stalls_at_once })
    }

    /// Returns the error of the pods. While their list fails, returns the one in the status.
    pub(super) fn of_pods(&self) -> Option<Trouble> {
        let known = self.known();
        if matches!(self.evidence.pods, Answer::Failed) {
            return known.filter(|known| known.reason.is_shown_by_pods());
        }
        let found = self.evidence.of_pods(known.as_ref().map(|known| known.message.as_str()))?;
        let same = known.filter(|known| {
            let both = (&*known.message, &*found.message);
            known.reason == found.reason
                && found.reason == Reason::PodsUnschedulable
                && is_same_message(both.0, both.1)
        });
        Some(Trouble { message: same.map_or(found.message, |known| known.message), ..found })
    }

    /// Returns why pods cannot start that have tried for a while.
    pub(super) fn of_lasting_pods(&self) -> Option<Trouble> {
        self.evidence.of_lasting_pods(None)
    }

    /// Returns what a starting pod lacks. The message names the pod of the previous one.
    fn of_starting_pods(&self) -> Option<Trouble> {
        let previous = self.previous.as_ref().map(|previous| previous.message.as_str());
        self.evidence.of_starting_pods(previous)
    }

    /// Returns the error to report of a rollout that is incomplete, or was `completed`. Errors that pass within
    /// [`Progress::IDLE_MAX`] are not reported during a rollout. A known one is, until the pods show that it is
    /// solved.
    pub(super) fn error(&self, of_pods: Option<Trouble>, completed: bool) -> Option<Trouble> {
        let is_due = completed || self.is_stuck() || self.known().is_some();
        of_pods.filter(|_| is_due).or_else(|| self.of_lasting_pods())
    }

    /// Returns the health of a workload that is incomplete although no pod shows an error. `completed` says
    /// whether it was complete before; then pods can be missing for [`Progress::IDLE_MAX`]. Otherwise pods can take
    /// `limit` to start.
    pub(super) fn incomplete(&self, missing: &str, completed: bool, limit: Duration) -> Health {
        let is_due = match completed {
            // While many pods are replaced one after another, each can be missing for a short time.
            true => self.is_stuck() && self.evidence.has_lasting_pods() || self.known().is_some(),
            false => self.is_late(limit),
        };
        let of = |reason, message| {
            self.health_of(Trouble { reason, message, stalls_at_once: false }, completed)
        };
        match self.of_starting_pods() {
            Some(starting) if is_due => self.health_of(starting, completed),
            None if is_due && completed => of(Reason::ReplicasUnavailable, missing.to_owned()),
            None if is_due => {
                let message = format!("No progress for {} seconds: {missing}", limit.as_secs());
                of(Reason::ProgressDeadlineExceeded, message)
            }
            starting => {
                let message = match starting {
                    Some(starting) => join(missing, &starting.message),
                    None => self.kept(missing),
                };
                match completed {
                    true => Health {
                        rollout: Rollout::Complete,
                        ..Health::new(Level::Progressing, Reason::ReplicasUnavailable, message)
                    },
                    false => Health::rolling_out(message),
                }
            }
        }
    }

    /// Returns `first` or, while the pods are not listed, the previous message if it begins with it.
    fn kept(&self, first: &str) -> String {
        let previous = self.previous.as_ref().map(|previous| &previous.message);
        let unlisted = matches!(self.evidence.pods, Answer::Failed | Answer::NotAsked);
        let kept = previous.filter(|message| unlisted && message.starts_with(first));
        kept.map_or_else(|| first.to_owned(), String::clone)
    }

    /// Returns why a DaemonSet's pods cannot be created.
    pub(super) fn of_events(&self) -> Option<Trouble> {
        let reason = Reason::ReplicaFailure;
        match &self.evidence.refusal {
            Answer::Failed => self.known().filter(|known| known.reason == reason),
            answer => answer.found().cloned().flatten().map(|message| Trouble {
                reason,
                message,
                stalls_at_once: false,
            }),
        }
    }

    /// Returns `first` with the known problem of a pod.
    pub(super) fn with_pod(&self, first: &str) -> String {
        let previous = self.previous.as_ref().map(|previous| previous.message.as_str());
        match self.evidence.of_pods(previous).or_else(|| self.of_starting_pods()) {
            Some(trouble) => join(first, &trouble.message),
            None => self.kept(first),
        }
    }

    /// Returns the health of a workload whose pods are ready, but not all for `minReadySeconds`. Until then, a
    /// pod that crashed before can crash again.
    pub(super) fn not_ready_for_long(&self, missing: &str) -> Health {
        match self.known().filter(|known| known.reason.is_of_pods()) {
            Some(known) => self.health_of(known, true),
            None => Health {
                rollout: Rollout::Complete,
                ..Health::rolling_out(format!("{missing}{READY_FIRST}"))
            },
        }
    }

    /// Returns the health of a workload with this problem.
    pub(super) fn health_of(&self, trouble: Trouble, completed: bool) -> Health {
        let lasts = self.previous.as_ref().is_some_and(|previous| {
            previous.reason == trouble.reason
                && (previous.level == Level::Stalled || self.lasting >= STALLED_AFTER)
        });
        let stalled = trouble.stalls_at_once || trouble.reason.stalls() && lasts;
        let level = if stalled { Level::Stalled } else { Level::Degraded };
        let rollout = match (completed, level) {
            (true, _) => Rollout::Complete,
            (false, Level::Stalled) => Rollout::Halted,
            (false, _) => Rollout::UnderWay,
        };
        let (reason, message) = (trouble.reason, trouble.message);
        Health { level, rollout, reason, message, paused_problem: None }
    }
}

// === impl Health ===

impl Health {
    /// Returns a health of this level. Only a level of Progressing has a running rollout.
    pub fn new(level: Level, reason: Reason, message: impl Into<String>) -> Health {
        let rollout = match level {
            Level::Ready => Rollout::Complete,
            Level::Progressing => Rollout::UnderWay,
            Level::Degraded | Level::Stalled | Level::Paused => Rollout::Halted,
        };
        Health { level, rollout, reason, message: message.into(), paused_problem: None }
    }

    /// Returns the health of an object whose state matches the spec.
    pub fn ready(reason: Reason, message: impl Into<String>) -> Health {
        Health::new(Level::Ready, reason, message)
    }

    /// Returns the health during a rollout.
    pub fn rolling_out(message: impl Into<String>) -> Health {
        Health::new(Level::Progressing, Reason::RollingOut, message)
    }

    /// Returns the health of a paused object. It records whether the rollout had `completed`.
    pub fn paused(completed: bool) -> Health {
        let rollout = if completed { Rollout::Complete } else { Rollout::Halted };
        Health { rollout, ..Health::new(Level::Paused, Reason::Paused, Reason::Paused.meaning()) }
    }

    /// Returns the health of an object with an owned object that is not as desired.
    pub fn of_problem(problem: &ReconcileError) -> Health {
        let of = |level, reason, message| Health::new(level, reason, message);
        match problem {
            ReconcileError::Terminating(Name { kind, key }) => of(
                Level::Progressing,
                Reason::AwaitingDeletion,
                format!("Waiting for the deletion of the previous {} {}", kind.kind, key.name()),
            ),
            ReconcileError::NotOwned { owner, controller, name: Name { kind, key } } => {
                let (kind, name) = (kind.kind, key.name());
                let message = match controller {
                    Some(controller) => format!(
                        "{kind} {name} already exists and is controlled by {controller}; rename {owner} {name}"
                    ),
                    None => format!(
                        "{kind} {name} already exists and is not controlled by {owner} {name}; delete or rename \
                         one of them"
                    ),
                };
                of(Level::Stalled, Reason::ErrResourceExists, message)
            }
            ReconcileError::Immutable { name: Name { kind, key }, field } => of(
                Level::Stalled,
                Reason::FieldImmutable,
                format!(
                    "{field} of {} {} cannot be changed; delete the {}, and the operator recreates it",
                    kind.kind,
                    key.name(),
                    kind.kind
                ),
            ),
            ReconcileError::Contested { name, field, .. } => {
                of(Level::Degraded, Reason::Contested, contested(name, field.as_deref()))
            }
            ReconcileError::Reported(problem) => Health::of_problem(problem),
            ReconcileError::Call { .. } | ReconcileError::Api(_) => {
                match problem.api_error().and_then(Reason::of_refusal) {
                    // Other objects can release quota.
                    Some(reason @ Reason::QuotaExceeded) => Health {
                        rollout: Rollout::UnderWay,
                        ..of(Level::Degraded, reason, stable(problem))
                    },
                    Some(reason) => of(Level::Stalled, reason, stable(problem)),
                    None => of(Level::Degraded, Reason::ApiError, unanswered(problem)),
                }
            }
            ReconcileError::Custom { reason, message, .. }
                if *reason == Reason::Invalid.as_str() =>
            {
                of(Level::Stalled, Reason::Invalid, message.clone())
            }
            _ => of(Level::Degraded, Reason::ApiError, problem.to_string()),
        }
    }

    /// Returns the health of a workload that its controller, of this kind, has not observed yet.
    pub(super) fn unobserved(kind: &str, context: &Context<'_>) -> Health {
        if context.is_late(Progress::IDLE_MAX) {
            let seconds = Progress::IDLE_MAX.as_secs();
            let message = format!(
                "The {kind} controller {UNPROCESSED} {kind} for {seconds} seconds. Check that \
                 kube-controller-manager is running"
            );
            let reason = Reason::ProgressDeadlineExceeded;
            return context.health_of(Trouble { reason, message, stalls_at_once: false }, false);
        }
        Health::rolling_out(format!("Waiting for the {kind} controller"))
    }

    /// Returns this health of `object`, as Stalled if a problem that often resolves itself has lasted for
    /// [`STALLED_AFTER`].
    pub(crate) fn aged<V: Custom>(self, object: &V, now: Time) -> Health {
        let same = reported(object).filter(|previous| previous.reason == self.reason);
        let lasts = same.is_some_and(|previous| {
            previous.level == Level::Stalled || degraded_for(object, now) >= STALLED_AFTER
        });
        if self.reason == Reason::QuotaExceeded && lasts {
            let halted = self.rollout == Rollout::UnderWay;
            let rollout = if halted { Rollout::Halted } else { self.rollout };
            return Health { level: Level::Stalled, rollout, ..self };
        }
        self
    }

    /// Returns the health of an owned object that has no health of its own.
    pub fn of_result<T>(child: &Result<T, ReconcileError>) -> Health {
        child
            .as_ref()
            .err()
            .map_or_else(|| Health::ready(Reason::AsExpected, ""), Health::of_problem)
    }

    /// Returns the worse of the health of a workload and of another owned object, with the rollout of the
    /// workload.
    pub fn and(self, other: Health) -> Health {
        if other.level > self.level {
            let halted = self.rollout == Rollout::Halted;
            let rollout = if halted { other.rollout } else { self.rollout };
            Health { rollout, ..other }
        } else {
            self
        }
    }

    /// Returns the problem, if there is one.
    pub fn trouble(&self) -> Option<(Reason, &str)> {
        matches!(self.level, Level::Degraded | Level::Stalled)
            .then_some((self.reason, &*self.message))
    }

    /// Returns the condition Ready, with Reconciling or Stalled where they apply.
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

    /// Returns the condition Degraded.
    pub fn degraded(&self) -> Wanted {
        let paused_problem =
            self.paused_problem.as_ref().map(|(reason, message)| (*reason, message.as_str()));
        match self.trouble().or(paused_problem) {
            Some((reason, message)) => Type::Degraded.is(Status::True, reason, message),
            None => {
                Type::Degraded.is(Status::False, Reason::AsExpected, Reason::AsExpected.meaning())
            }
        }
    }

    /// Returns the condition Progressing.
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

/// Returns whether two messages of the scheduler about one pod differ in numbers only. Their node counts change
/// all the time (`0/4987 nodes are available: 12 Insufficient cpu.`).
fn is_same_message(one: &str, other: &str) -> bool {
    let parts = |message: &str| {
        let (pod, words) = message.split_once(": ").unwrap_or((message, ""));
        let words: String = words.chars().filter(|c| !c.is_ascii_digit()).collect();
        (pod.to_owned(), words)
    };
    parts(one) == parts(other)
}

/// Prefix of the annotations in which the operator records its applies.
const RECORD: &str = "workload-operator.example.com/";

/// Returns the message about an owned object that another client keeps changing or, without a field, deleting.
fn contested(Name { kind, key }: &Name, field: Option<&str>) -> String {
    let (plural, kind, name) = (kind.plural, kind.kind, key.name());
    match field {
        // No other program writes it, so --show-managed-fields would name this operator.
        Some(field) if field.contains(RECORD) => format!(
            "Another installation of this operator probably watches this namespace: both write {kind} {name}. \
             Configure only one of them for each namespace"
        ),
        Some(field) => format!(
            "Another client keeps changing {field} of {kind} {name}, so the operator restores it only a few times a \
             minute. To find the client, run: kubectl get {plural} {name} -o yaml --show-managed-fields. If it shows \
             none, the cause is an admission policy or webhook"
        ),
        None => format!(
            "Another client keeps deleting {kind} {name}, so the operator recreates it at most five times a minute. To \
             find the client, search the API server's audit log"
        ),
    }
}

/// Returns the text of an error of the API server, with possible causes of a missing response.
fn unanswered(problem: &ReconcileError) -> String {
    let text = stable(problem);
    match problem.api_error() {
        Some(client::Error::Deadline(_)) => format!(
            "{text}: etcd or an admission webhook may be slow or unavailable (kubectl get \
             mutatingwebhookconfigurations,validatingwebhookconfigurations)"
        ),
        _ => text,
    }
}

/// Returns the text of an error, the same at each retry: without the local address of a connection, whose port
/// changes (`read tcp 10.0.0.1:51234->10.0.0.2:443: …`, as Go writes it).
fn stable(error: &ReconcileError) -> String {
    let text = error.to_string();
    let mut parts = text.split("->");
    let mut stable = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let start = stable.rfind(' ').map_or(0, |at| at + 1);
        let port = stable[start..].rsplit(':').next().unwrap_or_default();
        if stable[start..].contains(':') && port.parse::<u16>().is_ok() {
            stable.truncate(start);
        } else {
            stable.push_str("->");
        }
        stable.push_str(part);
    }
    stable
}
