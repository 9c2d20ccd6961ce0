//! The controller of Widgets: applies a Deployment for each, and reports its availability in the condition `Ready`.

use std::sync::Arc;

use controller_machinery::controller::{Action, ReconcileError};
use controller_machinery::manager::{Condition, Context, Manager};
use controller_machinery::object::Typed;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Desired state of a Widget.
#[derive(CustomResource, Serialize, Deserialize, Debug, Clone, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1alpha1",
    kind = "Widget",
    plural = "widgets",
    namespaced
)]
#[kube(status = "WidgetStatus", doc = "A Deployment whose pods run one image.")]
#[kube(printcolumn = r#"{"name": "Ready", "type": "string",
    "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}"#)]
#[serde(rename_all = "camelCase")]
pub struct WidgetSpec {
    /// The image of the pods.
    #[schemars(length(min = 1))]
    image: String,
    /// Number of pods.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1000))]
    replicas: i32,
}

fn one() -> i32 {
    1
}

/// Observed state of a Widget.
#[derive(Serialize, Deserialize, Debug, Clone, Default, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WidgetStatus {
    /// The generation that this status describes.
    observed_generation: i64,
    /// Number of ready pods.
    ready_replicas: i32,
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    conditions: Vec<Condition>,
}

/// Returns the CustomResourceDefinition, which deploy/crd.yaml contains.
pub fn definition() -> String {
    serde_saphyr::to_string(&Widget::crd()).expect("YAML can express every JSON")
}

/// Adds the controller to the program.
pub fn add_to(manager: Manager) -> Manager {
    manager.controller::<Typed<Widget>>().owns::<Typed<Deployment>>().reconcile(reconcile)
}

/// Reconciles a Widget: applies its Deployment and writes its status.
async fn reconcile(
    object: Arc<Typed<Widget>>,
    cx: Context<Typed<Widget>>,
) -> Result<Action, ReconcileError> {
    let labels = json!({"app.kubernetes.io/name": "widget", "app.kubernetes.io/instance": object.uid()});
    let container = json!({"name": "widget", "image": object.spec.image});
    let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
    let spec = json!({
        "replicas": object.spec.replicas,
        "selector": {"matchLabels": labels},
        "template": pod,
    });
    let child = json!({"metadata": {"name": object.name_any(), "labels": labels}, "spec": spec});
    let deployment = cx.ensure::<Typed<Deployment>>(child).await?;

    let ready = deployment.status.as_ref().and_then(|it| it.ready_replicas).unwrap_or(0);
    let wanted = object.spec.replicas;
    let former = object.status.clone().unwrap_or_default().conditions;
    let reason = if ready >= wanted { "Serving" } else { "WaitingForPods" };
    let message = format!("{ready} of {wanted} pods are ready");
    let condition = Condition::new(&*object, &former, "Ready", ready >= wanted, reason, message);
    let status = json!({
        "observedGeneration": object.metadata.generation,
        "readyReplicas": ready,
        "conditions": [condition],
    });
    cx.patch_status(status).await?;
    Ok(Action::Done)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use controller_machinery::testing::{Cluster, Id, Server, Trial, condition};

    use super::*;

    fn manager() -> Manager {
        add_to(Manager::new("widget-operator"))
    }

    /// Creates a Widget on a server that knows its definition. Returns the names of it and of its Deployment.
    fn object_on(server: &Server) -> (Id, Id) {
        server.crd(&definition()).unwrap();
        let object = Id::new("/apis/example.com/v1alpha1/widgets", "ns", "a");
        server.create(&object, json!({"spec": {"image": "nginx:1.27"}})).unwrap();
        (object, Id::new("/apis/apps/v1/deployments", "ns", "a"))
    }

    #[test]
    fn the_file_of_the_definition_is_up_to_date() {
        let file = include_str!("../deploy/crd.yaml");
        assert!(file == definition(), "cargo run -- crd > deploy/crd.yaml");
    }

    #[tokio::test(start_paused = true)]
    async fn a_widget_becomes_ready_and_is_repaired() {
        let server = Server::new(1);
        let (object, deployment) = object_on(&server);
        let _cluster = Cluster::start(&server, 3);
        let test = async {
            let is_ready = |it: &_| condition(it, "Ready").is_some_and(|it| it["status"] == "True");
            server.until(&object, is_ready).await;
            server.settled(Duration::from_secs(60)).await;
            let writes: Vec<_> = server.writes().into_iter().map(|write| write.uri).collect();
            assert_eq!(writes.len(), 3, "the Deployment, and two statuses: {writes:?}");
            server.patch(&deployment, &json!({"spec": {"replicas": 7}})).unwrap();
            server.until(&deployment, |it| it["spec"]["replicas"] == 1).await;
        };
        server.run(manager(), test).await;
    }

    #[test]
    fn any_history_of_a_widget_ends_in_its_desired_state() {
        let object = Id::new("/apis/example.com/v1alpha1/widgets", "ns", "a");
        let one = json!({"image": "nginx:1.27"});
        let other = json!({"image": "nginx:1.28", "replicas": 3});
        Trial::new(object, [one, other], manager).crd(definition()).run(100);
    }
}
