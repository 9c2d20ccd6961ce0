//! The status of an App. Pure.

use super::desired::selector;
use super::view::{App, Status};
use crate::object::Text;
use crate::reconcilers::condition::{self, Time, Type, Wanted, settle};
use crate::reconcilers::health::Health;
use crate::reconcilers::identity::selector_text;
use crate::reconcilers::reason::Reason;
use crate::reconcilers::workload::{ChildCondition, Deployment};

/// What a pass found.
#[derive(Debug)]
pub struct Found<'a> {
    /// The Deployment, if the App controls it.
    pub deployment: Option<&'a Deployment>,
    /// Whether it is as desired.
    pub as_desired: bool,
    /// The health of the whole.
    pub health: Health,
}

/// The status to store: that of the Deployment, if the App controls it, and the health. The
/// generation that it refers to is the App's, as for every custom resource; so nothing in it may
/// come from a Deployment that is of an older one.
pub fn status(app: &App, found: &Found<'_>, now: Time) -> Status {
    let generation = app.meta.generation;
    let health = &found.health;
    let observed = found.deployment.is_some_and(Deployment::is_observed);
    let current = observed && found.as_desired;
    let counts = found.deployment.map(|deployment| deployment.status.clone()).unwrap_or_default();
    let inlined = |kind| counts.conditions.iter().find_map(|condition| inlined(condition, kind));
    let waiting = |kind: Type| {
        let message = "Waiting for the Deployment controller";
        kind.is(condition::Status::Unknown, Reason::RollingOut, message)
    };
    let mut wanted = health.summary();
    // In a fixed order: the Deployment's own order depends on what happened to it.
    if current {
        let kinds = [Type::Available, Type::Progressing, Type::ReplicaFailure];
        wanted.extend(kinds.into_iter().filter_map(inlined));
    } else if observed {
        wanted.extend(inlined(Type::Available));
        wanted.push(health.progressing());
    } else if found.deployment.is_some() {
        wanted.extend([Type::Available, Type::Progressing].map(waiting));
    }
    wanted.push(health.degraded());
    Status {
        observed_generation: generation,
        replicas: counts.replicas,
        updated_replicas: if current { counts.updated_replicas } else { 0 },
        ready_replicas: counts.ready_replicas,
        available_replicas: counts.available_replicas,
        unavailable_replicas: if current {
            counts.unavailable_replicas
        } else {
            app.spec.replicas.saturating_sub(counts.available_replicas).max(0)
        },
        selector: Text::from(selector_text(&selector(app))),
        conditions: settle(&app.status.conditions, wanted, generation, now),
    }
}

/// A condition of the Deployment as a condition of the App, if it is of this type.
fn inlined(condition: &ChildCondition, kind: Type) -> Option<Wanted> {
    if condition.kind != kind.as_str() {
        return None;
    }
    // Our schema requires a reason, the Deployment's does not.
    let reason = if condition.reason.is_empty() {
        Text::new(Reason::Reconciling.as_str())
    } else {
        condition.reason.clone()
    };
    Some(Wanted {
        kind,
        status: condition.status,
        reason,
        message: condition.message.to_string(),
        since: condition.last_transition_time,
    })
}
