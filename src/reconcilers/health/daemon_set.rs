//! Health of a DaemonSet.

use super::{Context, Health, Level, Rollout, Workload};
use crate::object::Labels;
use crate::reconcilers::evidence::Trouble;
use crate::reconcilers::reason::Reason;
use crate::reconcilers::workload::{DaemonSet, DaemonSetSpec};

impl Workload for DaemonSetSpec {
    fn health(child: &DaemonSet, context: &Context<'_>) -> Health {
        Health::of_daemon_set(child, context)
    }

    fn is_observed(child: &DaemonSet) -> bool {
        child.is_observed() && child.status.desired_number_scheduled.is_some()
    }

    fn progress(child: &DaemonSet) -> [i32; 4] {
        let status = &child.status;
        [
            status.current_number_scheduled,
            status.updated_number_scheduled,
            status.number_available,
            status.number_ready,
        ]
    }

    fn selector(&self) -> &Labels {
        &self.selector.match_labels
    }

    fn is_nowhere(child: &DaemonSet) -> bool {
        child.status.desired_number_scheduled == Some(0)
    }

    fn lacks_pods(child: &DaemonSet) -> bool {
        let status = &child.status;
        status.desired_number_scheduled.is_some_and(|n| status.current_number_scheduled < n)
    }
}

impl Health {
    /// The health of a DaemonSet that is as desired.
    pub fn of_daemon_set(daemon_set: &DaemonSet, context: &Context<'_>) -> Health {
        let status = &daemon_set.status;
        let desired = match status.desired_number_scheduled {
            Some(desired) if daemon_set.is_observed() => desired,
            _ => return Health::rolling_out("Waiting for the DaemonSet controller"),
        };
        if desired == 0 {
            return nowhere(context);
        }
        let Some(behind) = behind(daemon_set, desired) else {
            let message = format!("The daemon is ready on all {desired} nodes where it belongs");
            return Health::ready(Reason::AllNodesReady, message);
        };
        // Daemons of an older template are left.
        let rolling = status.updated_number_scheduled < status.current_number_scheduled;
        let completed = context.completed && !rolling;
        let refused = (status.current_number_scheduled < desired)
            .then(|| context.evidence.refusal.clone())
            .flatten()
            .map(|message| Trouble { reason: Reason::ReplicaFailure, message });
        match refused.or_else(|| context.evidence.of_pods(context.previous)) {
            Some(trouble) if completed => Health::of_trouble(trouble, true),
            Some(trouble) if context.stuck => given_up(trouble),
            None if completed => Health {
                rollout: Rollout::Complete,
                ..Health::new(Level::Degraded, Reason::ReplicasUnavailable, behind)
            },
            None if context.stuck => {
                // Kubernetes gives a DaemonSet no deadline.
                let message = format!("No progress for 30 seconds: {behind}");
                let reason = Reason::ProgressDeadlineExceeded;
                Health::of_trouble(Trouble { reason, message }, false)
            }
            _ => Health::rolling_out(behind),
        }
    }
}

/// A rollout of a DaemonSet that has made no progress: a refusal is final, because the controller
/// never gives up by itself.
fn given_up(trouble: Trouble) -> Health {
    match trouble.reason {
        Reason::ReplicaFailure => Health::new(Level::Stalled, trouble.reason, trouble.message),
        _ => Health::of_trouble(trouble, false),
    }
}

/// What is missing until it is as wanted.
fn behind(daemon_set: &DaemonSet, desired: i32) -> Option<String> {
    let status = &daemon_set.status;
    let counts = [
        (status.current_number_scheduled, "have the daemon"),
        (status.updated_number_scheduled, "have the daemon of this generation"),
        (status.number_available, "have the daemon available"),
        (status.number_ready, "have the daemon ready"),
    ];
    let (count, what) = counts.into_iter().find(|(count, _)| *count < desired)?;
    Some(format!("{count} of {desired} nodes {what}"))
}

/// A daemon that belongs on no node: no node has its label, or a taint keeps it out.
fn nowhere(context: &Context<'_>) -> Health {
    let evidence = &context.evidence;
    if let Some(message) = evidence.tainted(context.label) {
        return Health::new(Level::Stalled, Reason::NodesTainted, message);
    }
    if evidence.nodes.as_ref().is_some_and(|nodes| !nodes.is_empty()) {
        return Health::rolling_out("Waiting until the DaemonSet controller counts the nodes");
    }
    let message = match context.label {
        None => "There is no node where the daemon can run".to_owned(),
        Some(label) => {
            let example =
                if label.contains('=') { label.to_owned() } else { format!("{label}=true") };
            format!("No node has the label {label}; kubectl label node NODE {example}")
        }
    };
    Health::ready(Reason::NoMatchingNodes, message)
}
