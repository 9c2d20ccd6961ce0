//! The writes of a `Context` on a real API server.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use serde_json::json;
use workload_operator::client::{PropagationPolicy, Scope};
use workload_operator::controller::{Action, ReconcileError};
use workload_operator::manager::{Context, Manager};
use workload_operator::object::{ObjectKey, Resource, Typed};
use workload_operator::shutdown::Shutdown;

use crate::world::{DEPLOYMENT, SERVICE_ACCOUNT, World};

/// Makes each kind of write once. The responses must show its effect. The deletion waits for a label.
async fn reconcile(
    owner: Arc<Typed<ServiceAccount>>,
    cx: Context<Typed<ServiceAccount>>,
) -> Result<Action, ReconcileError> {
    if owner.metadata.labels.is_some() {
        return orphan(cx).await;
    }
    let namespace = cx.key().namespace().to_string();
    let named = |name: &str| json!({"namespace": namespace, "name": name});
    let labels = json!({"app": "web"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}});
    let spec = json!({"replicas": 0, "selector": {"matchLabels": labels}, "template": template});
    let created =
        cx.create::<Typed<Deployment>>(json!({"metadata": named("web"), "spec": spec})).await?;
    // Without a label selector of the informer, the store contains the response.
    let key = ObjectKey::new(namespace.as_str(), "web");
    assert_eq!(cx.get::<Typed<Deployment>>(&key)?.unwrap().metadata.uid, created.metadata.uid);
    cx.scale::<Typed<Deployment>>(&key, 1).await?;
    let mine = json!({"metadata": named("web"), "spec": {"replicas": 3}});
    let conflict = cx.apply_unforced::<Typed<Deployment>>(&mine).await.unwrap_err();
    assert_eq!(
        conflict.api_error().unwrap().conflicting_fields(),
        [".spec.replicas"],
        "{conflict}"
    );
    let applied = cx.apply::<Typed<Deployment>>(&mine).await?;
    assert_eq!(applied.spec.replicas, Some(3));

    let config = json!({"metadata": {"namespace": namespace, "generateName": "some-"}});
    let config = cx.create::<Typed<ConfigMap>>(config).await?;
    let name = config.metadata.name.clone().unwrap();
    assert!(name.starts_with("some-"), "{name}");
    let data = json!({"metadata": config.metadata, "data": {"a": "1"}});
    let updated = cx.update::<Typed<ConfigMap>>(&data).await?;
    assert_eq!(updated.data.as_ref().unwrap()["a"], "1");
    let stale = cx.update::<Typed<ConfigMap>>(&data).await.unwrap_err();
    assert!(
        stale.to_string().starts_with(&format!("cannot update ConfigMap {namespace}/{name}: "))
    );
    assert!(stale.api_error().unwrap().is_conflict(), "{stale}");
    let scope = Scope { namespace: Some(namespace.as_str().into()), ..Scope::default() };
    cx.delete_all::<Typed<ConfigMap>>(&scope).await?;
    Ok(Action::Done)
}

async fn orphan(cx: Context<Typed<ServiceAccount>>) -> Result<Action, ReconcileError> {
    let web = cx.get::<Typed<Deployment>>(&cx.key().sibling("web"))?.unwrap();
    cx.delete(&*web, PropagationPolicy::Orphan).await?;
    cx.merge_patch::<Typed<ServiceAccount>>(
        cx.key(),
        json!({"metadata": {"labels": {"done": "yes"}}}),
    )
    .await?;
    Ok(Action::Done)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_write_of_a_context_works_on_a_real_server() {
    let world = World::new("writes", "baseline").await;
    world.create(SERVICE_ACCOUNT, json!({"metadata": {"name": "owner"}})).await.unwrap();
    let manager = Manager::new("writes")
        .kubeconfig(Some(world.plane().kubeconfig().to_owned()))
        .namespaces([world.namespace.as_str()])
        .informer::<Typed<ServiceAccount>>(|all| all.fields("metadata.name=owner").labels("!done"))
        .controller::<Typed<ServiceAccount>>()
        .reads::<Typed<Deployment>>()
        .reconcile(reconcile);
    let stop = Shutdown::manual();
    let running = tokio::spawn(manager.run_until(stop.clone()));
    // The garbage collector orphans only what its watches have shown.
    world.until(DEPLOYMENT, "web", |it| it["status"]["availableReplicas"] == 3).await;
    let go = json!({"metadata": {"labels": {"go": "yes"}}});
    world.patch(SERVICE_ACCOUNT, "owner", go).await.unwrap();
    world.until(SERVICE_ACCOUNT, "owner", |it| it["metadata"]["labels"]["done"] == "yes").await;
    world.until_gone(DEPLOYMENT, "web").await;
    let kind = Typed::<ReplicaSet>::kind();
    let path = kind.path(Some(&world.namespace));
    let sets = world.send(http::Method::GET, &path, "application/json", json!(null)).await.unwrap();
    let orphan = &sets["items"][0]["metadata"];
    assert!(orphan["name"].as_str().unwrap().starts_with("web-"), "{sets:#}");
    assert!(orphan["ownerReferences"].is_null(), "{orphan:#}");
    stop.request();
    running.await.unwrap().unwrap();
}
