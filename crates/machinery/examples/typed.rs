//! A controller of Tasks: each is a Job that runs once. Uses the types of kube's derive and of k8s-openapi.
//!
//! `cargo run --example typed -- crd | kubectl apply -f -`, then `cargo run --example typed`
use std::io::{IsTerminal, stderr};
use std::{process::ExitCode, sync::Arc};

use controller_machinery::controller::{Action, ReconcileError};
use controller_machinery::manager::{Condition, Context, Manager};
use controller_machinery::object::Typed;
use k8s_openapi::api::batch::v1::Job;
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(CustomResource, Serialize, Deserialize, Debug, Clone, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Task", namespaced, status = "TaskStatus")]
struct TaskSpec {
    image: String,
    command: Vec<String>,
}

#[derive(Serialize, Deserialize, Debug, Clone, Default, JsonSchema)]
struct TaskStatus {
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    conditions: Vec<Condition>,
}

const ENDS: [&str; 3] = ["Complete", "Failed", "Lost"];

async fn reconcile(
    task: Arc<Typed<Task>>,
    cx: Context<Typed<Task>>,
) -> Result<Action, ReconcileError> {
    let former = task.status.clone().unwrap_or_default().conditions;
    let report = async |reason: &str, why: &str| {
        let is_complete = reason == "Complete";
        let complete = Condition::new(&*task, &former, "Complete", is_complete, reason, why);
        cx.patch_status(json!({"conditions": [complete]})).await.map(|()| Action::Done)
    };
    let job = match cx.owned::<Typed<Job>>()?.into_iter().next() {
        Some(job) => job, // A running Job is not changed, even if the Task's spec was.
        None if former.iter().any(|it| ENDS.contains(&&*it.reason)) => return Ok(Action::Done),
        None if former.iter().any(|it| *it.reason == *"Running") => {
            return report("Lost", "the Job was deleted before it ended").await;
        }
        None => {
            // The status is written first. If it could not be written later, the Job would run again after each TTL.
            report("Starting", "").await?;
            cx.ensure::<Typed<Job>>(job(&task)).await?
        }
    };
    let mut reported = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ended = reported.find(|it| it.status == "True" && ENDS.contains(&&*it.type_));
    let reason = ended.map_or("Running", |it| &it.type_);
    report(reason, ended.and_then(|it| it.message.as_deref()).unwrap_or_default()).await
}

fn job(task: &Task) -> Value {
    let container = json!({"name": "task", "image": task.spec.image, "command": task.spec.command});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let spec = json!({"ttlSecondsAfterFinished": 600, "template": template});
    json!({"metadata": {"name": task.name_any()}, "spec": spec})
}

#[tokio::main]
async fn main() -> ExitCode {
    let colors = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt().with_writer(stderr).with_ansi(colors).init();
    if std::env::args().nth(1).is_some_and(|it| it == "crd") {
        println!("{}", json!(Task::crd()));
        return ExitCode::SUCCESS;
    }
    Manager::new("task").controller::<Typed<Task>>().owns::<Typed<Job>>().run(reconcile).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use controller_machinery::testing::{Cluster, Id, PodState, Server, condition};

    use super::*;

    fn manager() -> Manager {
        Manager::new("task").controller::<Typed<Task>>().owns::<Typed<Job>>().reconcile(reconcile)
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_runs_once_whatever_is_edited_restarted_or_deleted() {
        let server = Server::new(1);
        server.crd(&json!(Task::crd()).to_string()).unwrap();
        let task = Id::new("/apis/example.com/v1/tasks", "ns", "a");
        let job = Id::new("/apis/batch/v1/jobs", "ns", "a");
        server.create(&task, json!({"spec": {"image": "batch:1", "command": ["run"]}})).unwrap();
        let cluster = Cluster::start(&server, 1);
        cluster.pods_are(|_| PodState::Unready); // They are at work.
        let is = |reason: &'static str| {
            move |it: &_| condition(it, "Complete").is_some_and(|it| it["reason"] == reason)
        };
        server.run(manager(), server.until(&task, is("Running"))).await;
        server.patch(&task, &json!({"spec": {"image": "batch:2"}})).unwrap();
        cluster.pods_are(|_| PodState::Ready);
        server.run(manager(), server.until(&task, is("Complete"))).await;
        server.until_gone(&job.resource).await; // The Job's TTL has passed.
        server.run(manager(), server.settled(Duration::from_secs(60))).await;
        assert_eq!(server.incarnations(&job), 1);

        let (task, job) = (Id { name: "b".to_owned(), ..task }, Id { name: "b".to_owned(), ..job });
        cluster.pods_are(|_| PodState::Unready);
        server.create(&task, json!({"spec": {"image": "batch:1", "command": ["run"]}})).unwrap();
        server.run(manager(), server.until(&task, is("Running"))).await;
        server.remove(&job);
        server.run(manager(), server.until(&task, is("Lost"))).await;
        assert_eq!(server.incarnations(&job), 1);
    }
}
