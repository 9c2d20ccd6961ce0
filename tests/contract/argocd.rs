//! Argo CD shows the true health: its health check, run on objects from the API server.

use serde_json::{Value, json};

use crate::lua::health;
use crate::world::{APP, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, Kind, MEMCACHED, World, is_ready};

fn shown(kind: Kind, object: &Value) -> String {
    let config = std::fs::read_to_string("artifacts/argocd/argocd-cm.yaml").unwrap();
    let config: Value = serde_yaml_ng::from_str(&config).unwrap();
    let key = format!("resource.customizations.health.{}_{}", kind.group(), kind.name());
    health(config["data"][&key].as_str().unwrap(), object).0
}

#[tokio::test(flavor = "multi_thread")]
async fn argo_cd_sees_each_kind_progress_become_healthy_suspended_and_degraded() {
    let world = World::new("argo-cd", "baseline").await;
    let spec = |kind| match kind {
        MEMCACHED => json!({"size": 1}),
        GENERIC_DAEMON => json!({"image": "a:1", "label": "logs"}),
        _ => json!({"image": "a:1", "replicas": 1}),
    };
    let kinds = [MEMCACHED, GENERIC_DAEMON, APP];
    let object = |kind: Kind| {
        (
            kind.name().to_lowercase(),
            json!({"metadata": {"name": kind.name().to_lowercase()}, "spec": spec(kind)}),
        )
    };
    for kind in kinds {
        let made = world.create(kind, object(kind).1).await.unwrap();
        assert_eq!(shown(kind, &made), "Progressing", "{made:#}");
    }
    occupy_names(&world).await;
    let _operator = world.start_operator().await;
    for kind in kinds {
        let name = object(kind).0;
        let healthy = world.until(kind, &name, is_ready).await;
        assert_eq!(shown(kind, &healthy), "Healthy");
        let pause =
            json!({"metadata": {"annotations": {"workload-operator.example.com/paused": "true"}}});
        world.patch(kind, &name, pause).await.unwrap();
        world.until_condition(kind, &name, "Ready", ("False", "Paused")).await;
        assert_eq!(shown(kind, &world.get(kind, &name).await.unwrap()), "Suspended");

        let stuck = json!({"metadata": {"name": "taken"}, "spec": spec(kind)});
        let new = world.create(kind, stuck).await.unwrap();
        assert_eq!(shown(kind, &new), "Progressing");
        world.until_condition(kind, "taken", "Ready", ("False", "ErrResourceExists")).await;
        assert_eq!(shown(kind, &world.get(kind, "taken").await.unwrap()), "Degraded");
    }
}

/// Creates foreign objects with the names of owned objects.
async fn occupy_names(world: &World) {
    let labels = json!({"who": "else"});
    let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}});
    let spec = json!({"selector": {"matchLabels": labels}, "template": pod});
    for kind in [DEPLOYMENT, DAEMON_SET] {
        let object = json!({"metadata": {"name": "taken"}, "spec": spec});
        world.create(kind, object).await.unwrap();
    }
}
