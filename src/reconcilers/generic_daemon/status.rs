//! The status of a GenericDaemon. Pure.

use super::view::{GenericDaemon, Status};
use crate::reconcilers::condition::{self, Time, Type, Wanted, settle};
use crate::reconcilers::health::{Health, Level};
use crate::reconcilers::reason::Reason;
use crate::reconcilers::workload::DaemonSet;

/// What a pass found.
#[derive(Debug)]
pub struct Found<'a> {
    /// The DaemonSet, if the GenericDaemon controls it.
    pub daemon_set: Option<&'a DaemonSet>,
    /// Whether it is as desired: while it is paused, or an update was refused, its pods are those of
    /// an older spec.
    pub as_desired: bool,
    /// The health of the whole.
    pub health: Health,
}

/// The status to store.
pub fn status(daemon: &GenericDaemon, found: &Found<'_>, now: Time) -> Status {
    let generation = daemon.meta.generation;
    let health = &found.health;
    let (desired, installed) = found.daemon_set.map_or((0, 0), counts);
    let installed = if found.as_desired { installed } else { 0 };
    let mut wanted = health.summary();
    wanted.push(available(found.daemon_set, health));
    wanted.push(health.progressing());
    wanted.push(health.degraded());
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
    if !daemon_set.is_observed() {
        return (desired, 0);
    }
    let both = status.updated_number_scheduled.saturating_add(status.number_ready);
    (desired, both.saturating_sub(status.current_number_scheduled).clamp(0, desired.max(0)))
}

/// The condition Available: whether the daemon serves on every node where it belongs, be it of the
/// newest template or not.
fn available(daemon_set: Option<&DaemonSet>, health: &Health) -> Wanted {
    let is = |status, message| Type::Available.is(status, Reason::Reconciling, message);
    let Some(daemon_set) = daemon_set else {
        return is(condition::Status::False, health.message.clone());
    };
    let desired = match daemon_set.status.desired_number_scheduled {
        Some(desired) if daemon_set.is_observed() => desired,
        _ => {
            let message = "Waiting for the DaemonSet controller".to_owned();
            return is(condition::Status::Unknown, message);
        }
    };
    let serving = daemon_set.status.number_available;
    let all = serving >= desired && (desired > 0 || health.level == Level::Ready);
    let status = if all { condition::Status::True } else { condition::Status::False };
    is(status, format!("The daemon is available on {serving} of {desired} nodes"))
}
