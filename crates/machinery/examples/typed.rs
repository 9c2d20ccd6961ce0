//! A Task: a Job that runs once. Its types are those of kube's derive and of k8s-openapi.
//!
//! `cargo run --example typed -- crd | kubectl apply -f -`, then `cargo run --example typed`
use std::{process::ExitCode, sync::Arc};

use controller_machinery::controller::{Action, Problem};
use controller_machinery::manager::{Condition, Context, EnsureOptions, Manager};
use controller_machinery::object::Typed;
use k8s_openapi::api::batch::v1::Job;
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

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

const ENDS: [&str; 2] = ["Complete", "Failed"];

async fn reconcile(task: Arc<Typed<Task>>, cx: Context<Typed<Task>>) -> Result<Action, Problem> {
    let conditions = task.status.clone().unwrap_or_default().conditions;
    if conditions.iter().any(|it| ENDS.contains(&&*it.reason)) {
        return Ok(Action::Done); // The Job may be gone: it is deleted after its TTL.
    }
    let container = json!({"name": "task", "image": task.spec.image, "command": task.spec.command});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let spec = json!({"ttlSecondsAfterFinished": 600, "template": template});
    let job = json!({"metadata": {"name": task.name_any()}, "spec": spec});
    // The pods of a Job cannot be changed.
    let options = EnsureOptions::default().immutable(&["spec.template"]);
    let job = cx.ensure_with::<Typed<Job>>(job, options).await?;
    let mut reported = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ended = reported.find(|it| it.status == "True" && ENDS.contains(&&*it.type_));
    let is_complete = ended.is_some_and(|it| it.type_ == "Complete");
    let reason = ended.map_or("Running", |it| &it.type_);
    let why = ended.and_then(|it| it.message.clone()).unwrap_or_default();
    let complete = Condition::new(&*task, &conditions, "Complete", is_complete, reason, why);
    cx.patch_status(json!({"conditions": [complete]})).await.map(|()| Action::Done)
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    if std::env::args().nth(1).is_some_and(|it| it == "crd") {
        println!("{}", json!(Task::crd()));
        return ExitCode::SUCCESS;
    }
    Manager::new("task").controller::<Typed<Task>>().owns::<Typed<Job>>().run(reconcile).await
}
