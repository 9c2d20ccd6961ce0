//! The status of a Memcached.

use super::{Memcached, Status, selector};
use crate::object::InternedStr;
use crate::workload::condition::{self, Time, Type, Wanted, merge};
use crate::workload::labels::selector_text;
use crate::workload::reason::Reason;
use crate::workload::{DeploymentSpec, Found};

/// The most pods that are named: as many as the schema allows, more than five times what a
/// Memcached may have.
const MAX_NODES: usize = 16;

/// The status to store. `nodes` are the names of the pods that serve.
pub fn status(
    memcached: &Memcached,
    found: &Found<'_, DeploymentSpec>,
    mut nodes: Vec<InternedStr>,
    now: Time,
) -> Status {
    let generation = memcached.meta.generation;
    let mut wanted = found.health.summary();
    wanted.push(available(memcached, found));
    wanted.push(found.health.progressing());
    wanted.push(found.health.degraded());
    let counts = found.workload.map(|deployment| &deployment.status);
    nodes.sort();
    nodes.truncate(MAX_NODES);
    Status {
        observed_generation: generation,
        size: counts.map_or(0, |counts| counts.replicas),
        ready_replicas: counts.map_or(0, |counts| counts.ready_replicas),
        selector: InternedStr::from(selector_text(&selector(memcached))),
        nodes: nodes.into(),
        conditions: merge(&memcached.status.conditions, wanted, generation, now),
    }
}

/// The status while the finalizer is at work or, if `done`, has finished. Nothing else is looked
/// at any more.
pub fn finalizing(memcached: &Memcached, done: bool, now: Time) -> Status {
    let generation = memcached.meta.generation;
    let name = memcached.meta.key.name();
    let (degraded, message) = if done {
        let message = format!(
            "Finalizer operations for custom resource {name} name were successfully accomplished"
        );
        (condition::Status::True, message)
    } else {
        let message = format!("Performing finalizer operations for the custom resource: {name}");
        (condition::Status::Unknown, message)
    };
    let no = condition::Status::False;
    let mut wanted = vec![Type::Ready.is(no, Reason::Finalizing, Reason::Finalizing.meaning())];
    for kind in [Type::Available, Type::Progressing] {
        wanted.push(kind.is(no, Reason::Finalizing, Reason::Finalizing.meaning()));
    }
    wanted.push(Type::Degraded.is(degraded, Reason::Finalizing, message));
    Status {
        observed_generation: generation,
        conditions: merge(&memcached.status.conditions, wanted, generation, now),
        ..memcached.status.clone()
    }
}

/// The condition Available: whether as many replicas as wanted can be used.
fn available(memcached: &Memcached, found: &Found<'_, DeploymentSpec>) -> Wanted {
    let name = memcached.meta.key.name();
    let size = memcached.spec.size;
    let no = condition::Status::False;
    let Some(deployment) = found.workload else {
        let Some(why) = &found.failure else {
            return Type::Available.is(no, Reason::Reconciling, &*found.health.message);
        };
        let message =
            format!("Failed to create Deployment for the custom resource ({name}): ({why})");
        return Type::Available.is(no, Reason::Reconciling, message);
    };
    if deployment.status.observed_generation == 0 {
        let message = "Waiting for the Deployment controller";
        return Type::Available.is(condition::Status::Unknown, Reason::Reconciling, message);
    }
    // Available pods count, not the last write, and not whether the controller has seen that.
    let count = deployment.status.available_replicas;
    if count >= size {
        let message = format!(
            "Deployment for custom resource ({name}) with {size} replicas created successfully"
        );
        return Type::Available.is(condition::Status::True, Reason::Reconciling, message);
    }
    if let Some(why) = &found.failure {
        let message =
            format!("Failed to update the size for the custom resource ({name}): ({why})");
        return Type::Available.is(no, Reason::Resizing, message);
    }
    let message = format!("{count} of {size} replicas are available");
    Type::Available.is(no, Reason::Reconciling, message)
}
