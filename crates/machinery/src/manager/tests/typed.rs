//! Types of k8s-openapi without a view.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use serde_json::json;

use crate::controller::{Action, ReconcileError};
use crate::manager::{Context, Manager};
use crate::object::{Object, ObjectKey, Typed};
use crate::testing::{Cluster, Fault, Id, Server, seeds};

const QUIET: Duration = Duration::from_secs(120);

/// Gives each ConfigMap a Deployment with the image that it names, in namespaces that are labelled.
async fn reconcile(
    config: Arc<Typed<ConfigMap>>,
    cx: Context<Typed<ConfigMap>>,
) -> Result<Action, ReconcileError> {
    let namespace = cx.get::<Typed<Namespace>>(&ObjectKey::new("", cx.key().namespace()))?;
    let labels = namespace.and_then(|namespace| namespace.metadata.labels.clone());
    let is_on = labels.is_some_and(|labels| labels.contains_key("on"));
    cx.prune::<Typed<Deployment>>(|_| is_on).await?;
    let Some(image) = config.data.as_ref().and_then(|data| data.get("image")).filter(|_| is_on)
    else {
        return Ok(Action::Done);
    };
    let (labels, name) = (json!({"app": cx.key().name()}), cx.key().name());
    let limits = json!({"limits": {"cpu": "1000m"}});
    let container = json!({"name": "app", "image": image, "resources": limits});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
    let mut deployment: Deployment = serde_json::from_value(json!({ "spec": spec })).unwrap();
    deployment.metadata.name = Some(name.to_string());
    cx.ensure::<Typed<Deployment>>(json!(deployment)).await?;
    Ok(Action::Done)
}

fn manager() -> Manager {
    Manager::new("test")
        .controller::<Typed<ConfigMap>>()
        .owns::<Typed<Deployment>>()
        .watches_with::<Typed<Namespace>, _>(|parts| {
            let configs = parts.store::<Typed<ConfigMap>>()?;
            Ok(move |namespace: &Typed<Namespace>| {
                let (all, name) = (configs.list(), namespace.metadata.name.clone());
                let here = all.iter().map(|config| config.key().clone()).collect::<Vec<_>>();
                here.into_iter().filter(|key| Some(key.namespace().to_string()) == name).collect()
            })
        })
        .reconcile(reconcile)
}

#[test]
fn types_of_k8s_openapi_are_reconciled_owned_and_watched() {
    seeds(50, async |server: Server| {
        let cluster = Cluster::start(&server, 2);
        let config = Id::new("/api/v1/configmaps", "ns", "web");
        let deployment = Id::new("/apis/apps/v1/deployments", "ns", "web");
        let namespace = Id::new("/api/v1/namespaces", "", "ns");
        server.put(&namespace, json!({"metadata": {"labels": {"on": ""}}}));
        server.put(&config, json!({"data": {"image": "web:1"}}));
        let test = async {
            tokio::time::sleep(QUIET).await;
            server.clear_faults();
            server.until(&deployment, |it| it["status"]["availableReplicas"] == 2).await;
            server.fault("patch", &deployment.resource, 1, Fault::LostResponse);
            server.patch(&deployment, &json!({"spec": {"replicas": 5}})).unwrap();
            server.until(&deployment, |it| it["spec"]["replicas"] == 2).await;
            server.patch(&config, &json!({"data": {"image": "web:2"}})).unwrap();
            let image = "/spec/template/spec/containers/0/image";
            server.until(&deployment, |it| it.pointer(image) == Some(&json!("web:2"))).await;
            server.settled(QUIET).await;
            server.patch(&namespace, &json!({"metadata": {"labels": {"on": null}}})).unwrap();
            server.until_gone(&deployment.resource).await;
        };
        server.run(manager(), test).await;
        drop(cluster);
    });
}
