//! How far a rollout is, by the rules of kstatus (sigs.k8s.io/cli-utils, pkg/kstatus): what tools
//! would report for the child itself.

use super::daemon_set::DaemonSet;
use super::deployment::Deployment;
use crate::reconcilers::condition::Status;

/// How far a rollout is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rollout {
    /// All pods of this generation serve, and no others.
    Done,
    /// In progress; the sentence says how far.
    Underway(String),
    /// In progress, but Kubernetes cannot create the pods; the message is Kubernetes' own.
    Failing {
        /// Whether the Deployment controller has given up waiting.
        given_up: bool,
        /// Why, in a sentence.
        message: String,
    },
}

impl Rollout {
    /// The rollout of a Deployment that is as desired.
    pub fn of_deployment(deployment: &Deployment) -> Rollout {
        let (meta, status) = (&deployment.meta, &deployment.status);
        let wanted = deployment.spec().replicas;
        if status.observed_generation < meta.generation {
            return Rollout::Underway("Waiting for the Deployment controller".to_owned());
        }
        let progressing = status.condition("Progressing");
        if let Some(late) = progressing.filter(|c| c.reason == "ProgressDeadlineExceeded") {
            return Rollout::Failing { given_up: true, message: late.message.to_string() };
        }
        let failure = status.condition("ReplicaFailure").filter(|c| c.status == Status::True);
        if let Some(failure) = failure {
            return Rollout::Failing { given_up: false, message: failure.message.to_string() };
        }
        let share = |n: i32, what: &str| {
            Some(Rollout::Underway(format!("{n} of {wanted} replicas are {what}")))
        };
        let surplus = status.replicas - status.updated_replicas;
        let behind = if status.updated_replicas < wanted {
            share(status.updated_replicas, "up to date")
        } else if surplus > 0 {
            Some(Rollout::Underway(format!("{surplus} old replicas are left")))
        } else if status.replicas > wanted {
            let surplus = status.replicas - wanted;
            Some(Rollout::Underway(format!("{surplus} surplus replicas are left")))
        } else if status.ready_replicas < wanted {
            share(status.ready_replicas, "ready")
        } else if status.available_replicas < wanted {
            share(status.available_replicas, "available")
        } else if status.unavailable_replicas > 0 {
            // Counted from the desired size of the ReplicaSets: pods that are still to come, though
            // no longer wanted, are in no other count.
            let surplus = status.unavailable_replicas;
            Some(Rollout::Underway(format!("{surplus} surplus replicas are on their way")))
        } else if progressing.is_some_and(|c| c.reason != "NewReplicaSetAvailable") {
            Some(Rollout::Underway("Waiting for the rollout to complete".to_owned()))
        } else if status.condition("Available").is_none_or(|c| c.status != Status::True) {
            Some(Rollout::Underway("Waiting for the Deployment to be available".to_owned()))
        } else {
            None
        };
        behind.unwrap_or(Rollout::Done)
    }

    /// The rollout of a DaemonSet that is as desired.
    pub fn of_daemon_set(daemon_set: &DaemonSet) -> Rollout {
        let (meta, status) = (&daemon_set.meta, &daemon_set.status);
        let desired = match status.desired_number_scheduled {
            Some(desired) if status.observed_generation >= meta.generation => desired,
            _ => return Rollout::Underway("Waiting for the DaemonSet controller".to_owned()),
        };
        let counts = [
            (status.current_number_scheduled, "have the daemon"),
            (status.updated_number_scheduled, "have the daemon of this generation"),
            (status.number_available, "have the daemon available"),
            (status.number_ready, "have the daemon ready"),
        ];
        match counts.into_iter().find(|(count, _)| *count < desired) {
            Some((count, what)) => Rollout::Underway(format!("{count} of {desired} nodes {what}")),
            None => Rollout::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::reconcilers::app::{self, App};
    use crate::reconcilers::fixtures::{child, custom, rolled_out, wire};

    const NGINX: &str = include_str!("../../../artifacts/examples/nginx-app.yaml");

    /// The rollout of a Deployment of generation 1 that wants two pods, after `change`.
    fn rollout(change: impl Fn(&mut Value)) -> Rollout {
        let app: App = custom(NGINX);
        let mut object = wire(&app, &app::desired(&app).deployment);
        object["status"] = rolled_out(2);
        change(&mut object);
        Rollout::of_deployment(&child(&object))
    }

    fn underway(change: impl Fn(&mut Value)) -> String {
        match rollout(change) {
            Rollout::Underway(message) => message,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn done_when_all_pods_are_of_this_generation_and_available() {
        assert_eq!(rollout(|_| {}), Rollout::Done);
        let no_deadline = |object: &mut Value| {
            object["status"]["conditions"].as_array_mut().unwrap().remove(1);
        };
        assert_eq!(
            rollout(no_deadline),
            Rollout::Done,
            "without a deadline there is no Progressing"
        );
    }

    #[test]
    fn the_message_says_how_far_it_is() {
        for (field, value, message) in [
            ("observedGeneration", 0, "Waiting for the Deployment controller"),
            ("updatedReplicas", 1, "1 of 2 replicas are up to date"),
            ("replicas", 3, "1 old replicas are left"),
            ("readyReplicas", 1, "1 of 2 replicas are ready"),
            ("availableReplicas", 0, "0 of 2 replicas are available"),
            ("unavailableReplicas", 5, "5 surplus replicas are on their way"),
        ] {
            assert_eq!(underway(|object| object["status"][field] = json!(value)), message);
        }
        let scaled_down = underway(|object| object["spec"]["replicas"] = json!(1));
        assert_eq!(scaled_down, "1 surplus replicas are left");
    }

    #[test]
    fn the_deployment_controller_has_the_last_word() {
        let reason = |object: &mut Value| {
            object["status"]["conditions"][1]["reason"] = json!("ReplicaSetUpdated");
        };
        assert_eq!(underway(reason), "Waiting for the rollout to complete");
        let unavailable = |object: &mut Value| {
            object["status"]["conditions"][0]["status"] = json!("False");
        };
        assert_eq!(underway(unavailable), "Waiting for the Deployment to be available");
    }
}
