//! The status of an App. Pure.

use super::desired::selector;
use super::view::{App, Status};
use crate::object::Text;
use crate::reconcilers::condition::{Time, Type, Wanted, settle};
use crate::reconcilers::identity::selector_text;
use crate::reconcilers::reason::Reason;
use crate::reconcilers::situation::Situation;
use crate::reconcilers::workload::{ChildCondition, Deployment, Rollout};

/// The state of an App whose Deployment is as desired.
pub fn of_deployment(app: &App, deployment: &Deployment) -> Situation {
    let done = match app.spec.replicas {
        0 => Situation::Done(Reason::ScaledToZero, "No replica is wanted".to_owned()),
        replicas => {
            Situation::Done(Reason::AllReplicasReady, format!("All {replicas} replicas are ready"))
        }
    };
    Situation::of_rollout(Rollout::of_deployment(deployment), done)
}

/// The status to store: that of the Deployment, if the App controls it, and the overall state. The
/// generation that it refers to is the App's, as for every custom resource.
pub fn status(
    app: &App,
    deployment: Option<&Deployment>,
    situation: &Situation,
    now: Time,
) -> Status {
    let generation = app.meta.generation;
    let counts = deployment.map(|deployment| deployment.status.clone()).unwrap_or_default();
    let mut wanted = situation.summary();
    // In a fixed order: the Deployment's own order depends on what happened to it.
    wanted.extend(
        [Type::Available, Type::Progressing, Type::ReplicaFailure]
            .map(|kind| counts.conditions.iter().find_map(|condition| inlined(condition, kind)))
            .into_iter()
            .flatten(),
    );
    wanted.push(situation.degraded());
    Status {
        observed_generation: generation,
        replicas: counts.replicas,
        updated_replicas: counts.updated_replicas,
        ready_replicas: counts.ready_replicas,
        available_replicas: counts.available_replicas,
        unavailable_replicas: counts.unavailable_replicas,
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
