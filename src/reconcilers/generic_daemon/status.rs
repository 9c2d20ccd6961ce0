//! The status of a GenericDaemon. Pure.

use super::view::{GenericDaemon, Status};
use crate::reconcilers::condition::{self, Time, Type, Wanted, settle};
use crate::reconcilers::reason::Reason;
use crate::reconcilers::situation::Situation;
use crate::reconcilers::workload::{DaemonSet, Rollout};

/// The state of a GenericDaemon whose DaemonSet is as desired.
pub fn of_daemon_set(daemon: &GenericDaemon, daemon_set: &DaemonSet) -> Situation {
    let nodes = daemon_set.status.desired_number_scheduled.unwrap_or(0);
    let done = if nodes > 0 {
        let message = format!("The daemon is ready on all {nodes} nodes where it belongs");
        Situation::Done(Reason::AllNodesReady, message)
    } else {
        let message = match &daemon.spec.label {
            None => "There is no node where the daemon can run".to_owned(),
            Some(label) => {
                let example =
                    if label.contains('=') { label.to_string() } else { format!("{label}=true") };
                format!("No node has the label {label}; kubectl label node NODE {example}")
            }
        };
        Situation::Done(Reason::NoMatchingNodes, message)
    };
    Situation::of_rollout(Rollout::of_daemon_set(daemon_set), done)
}

/// The status to store; `daemon_set` is `None` unless the GenericDaemon controls it.
pub fn status(
    daemon: &GenericDaemon,
    daemon_set: Option<&DaemonSet>,
    situation: &Situation,
    now: Time,
) -> Status {
    let generation = daemon.meta.generation;
    let (desired, installed) = daemon_set.map_or((0, 0), counts);
    let mut wanted = situation.summary();
    wanted.push(available(desired, installed, daemon_set.is_some(), situation));
    wanted.push(situation.progressing());
    wanted.push(situation.degraded());
    Status {
        observed_generation: generation,
        desired,
        installed,
        conditions: settle(&daemon.status.conditions, wanted, generation, now),
    }
}

/// The number of nodes where the daemon belongs, and of those where it is up to date and ready.
///
/// Kubernetes counts nodes that are up to date and nodes that are ready, but not those that are
/// both. Of `n` nodes that have the daemon, at least `updated + ready - n` are both, and exactly
/// that many as long as an update replaces ready pods one by one. So this never overstates.
fn counts(daemon_set: &DaemonSet) -> (i32, i32) {
    let status = &daemon_set.status;
    let desired = status.desired_number_scheduled.unwrap_or(0);
    if status.observed_generation < daemon_set.meta.generation {
        return (desired, 0);
    }
    let both = status.updated_number_scheduled.saturating_add(status.number_ready);
    (desired, both.saturating_sub(status.current_number_scheduled).clamp(0, desired.max(0)))
}

fn available(desired: i32, installed: i32, there: bool, situation: &Situation) -> Wanted {
    let all = there && installed >= desired && matches!(situation, Situation::Done(..));
    let (status, message) = if all || (there && desired > 0 && installed >= desired) {
        (
            condition::Status::True,
            format!("The daemon is available on {installed} of {desired} nodes"),
        )
    } else if there {
        (
            condition::Status::False,
            format!("The daemon is available on {installed} of {desired} nodes"),
        )
    } else {
        (condition::Status::False, situation.message().to_owned())
    };
    Type::Available.is(status, Reason::Reconciling, message)
}
