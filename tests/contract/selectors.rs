//! The pods that a workload serves, counts and scales: only its own, not those of a Helm release with the
//! same name and therefore the same recommended labels.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::world::{
    APP, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, Kind, MAX_WAIT, MEMCACHED, POD, SERVICE, World,
    is_ready,
};

const ENDPOINT_SLICE: Kind = Kind::new("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");

/// Installs what a chart made by `helm create` installs for a release: a Deployment and a Service,
/// labelled and selected by the chart's and the release's name. Returns the names of its pods.
async fn install_release(world: &World, chart: &str, release: &str) -> BTreeSet<String> {
    let name = format!("{release}-{chart}-0");
    let selector = json!({"app.kubernetes.io/name": chart, "app.kubernetes.io/instance": release});
    let mut labels = selector.clone();
    labels["app.kubernetes.io/managed-by"] = json!("Helm");
    let container = json!({"name": chart, "image": "memcached:1.6",
        "ports": [{"name": "memcached", "containerPort": 11211}]});
    let deployment = json!({"metadata": {"name": name, "labels": labels}, "spec": {
        "replicas": 2, "selector": {"matchLabels": selector},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}});
    world.create(DEPLOYMENT, deployment).await.unwrap();
    let service = json!({"metadata": {"name": name, "labels": labels}, "spec": {
        "selector": selector, "ports": [{"port": 11211, "targetPort": "memcached"}]}});
    world.create(SERVICE, service).await.unwrap();
    world.until(DEPLOYMENT, &name, |d| d["status"]["availableReplicas"] == 2).await;
    pods_of(world, &name).await
}

/// The names of the pods that ReplicaSets of this Deployment control.
async fn pods_of(world: &World, deployment: &str) -> BTreeSet<String> {
    let is_of = |pod: &&Value| {
        let owner = &pod["metadata"]["ownerReferences"][0];
        owner["kind"] == "ReplicaSet"
            && owner["name"]
                .as_str()
                .is_some_and(|name| name.rsplit_once('-').is_some_and(|(of, _)| of == deployment))
    };
    world.list(POD).await.iter().filter(is_of).map(name).collect()
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Returns the names of the pods that are endpoints of this Service, once it has at least `at_least`. One
/// slice contains up to a hundred.
async fn endpoints(world: &World, service: &str, at_least: usize) -> BTreeSet<String> {
    let (slices, mut changed) = mpsc::unbounded_channel();
    tokio::spawn(world.for_each_change(ENDPOINT_SLICE, move |slice| drop(slices.send(slice))));
    let found = async {
        loop {
            let slice = changed.recv().await.expect("the watch goes on");
            let of = &slice["metadata"]["labels"]["kubernetes.io/service-name"];
            let endpoints = slice["endpoints"].as_array().into_iter().flatten();
            let pods: BTreeSet<String> =
                endpoints.map(|e| e["targetRef"]["name"].as_str().unwrap().to_owned()).collect();
            if of == service && pods.len() >= at_least {
                return pods;
            }
        }
    };
    tokio::time::timeout(MAX_WAIT, found).await.expect("endpoints")
}

/// The names of the pods that a label selector, as a HorizontalPodAutoscaler reads it, finds.
async fn selected(world: &World, selector: &Value) -> BTreeSet<String> {
    let selector = crate::http::encoded(selector.as_str().expect("a selector"));
    world.list_with(POD, &selector).await.iter().map(name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_helm_release_of_the_same_name_is_neither_served_nor_counted() {
    let (world, _operator) = World::with_operator_at("release", "baseline").await;
    for (kind, chart, spec) in [
        (MEMCACHED, "memcached", json!({"size": 2})),
        (APP, "app", json!({"replicas": 2, "image": "shop:1", "ports": [{"port": 11211}]})),
    ] {
        let cart = if kind == APP { "shop" } else { "cart" };
        let foreign = install_release(&world, chart, cart).await;
        assert_eq!(foreign.len(), 2);
        world.create(kind, json!({"metadata": {"name": cart}, "spec": spec})).await.unwrap();
        world.until(kind, cart, is_ready).await;
        let own = pods_of(&world, cart).await;
        assert_eq!(own.len(), 2);
        assert_eq!(endpoints(&world, cart, 2).await, own, "the Service of {chart} {cart}");
        let theirs = format!("{cart}-{chart}-0");
        assert_eq!(endpoints(&world, &theirs, 2).await, foreign, "the Service of the release");

        let path = format!("{}/{cart}/scale", kind.path(&world.namespace));
        let get = (http::Method::GET, "application/json", Value::Null);
        let scale = world.send(get.0, &path, get.1, get.2).await.unwrap();
        assert_eq!(scale["status"]["replicas"], 2);
        assert_eq!(selected(&world, &scale["status"]["selector"]).await, own);
        // They are not adopted either.
        assert_eq!(pods_of(&world, &theirs).await, foreign);
        let still = world.get(kind, cart).await.unwrap();
        assert!(is_ready(&still), "{still:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn selectors_contain_one_label_of_the_kinds_own_group() {
    let (world, _operator) = World::with_operator_at("selectors", "baseline").await;
    let ports = json!([{"port": 80}]);
    for (kind, child, label, spec) in [
        (MEMCACHED, DEPLOYMENT, "cache.example.com/memcached", json!({"size": 1})),
        (APP, DEPLOYMENT, "app.example.com/v1", json!({"image": "shop:1", "ports": ports})),
        (GENERIC_DAEMON, DAEMON_SET, "mydomain.com/genericdaemon", json!({"image": "agent:1"})),
    ] {
        let name = format!("one-{}", kind.plural());
        world.create(kind, json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
        let ready = world.until(kind, &name, is_ready).await;
        let only = json!({label: name});
        let workload = world.get(child, &name).await.unwrap();
        assert_eq!(workload["spec"]["selector"], json!({"matchLabels": only}));
        let of_child = &workload["metadata"]["labels"];
        let of_pods = &workload["spec"]["template"]["metadata"]["labels"];
        assert_eq!((&of_child[label], &of_pods[label]), (&json!(name), &json!(name)));
        assert_eq!(of_child["app.kubernetes.io/instance"], json!(name));
        if kind != GENERIC_DAEMON {
            assert_eq!(world.get(SERVICE, &name).await.unwrap()["spec"]["selector"], only);
            assert_eq!(ready["status"]["selector"], format!("{label}={name}"));
        }
    }
}
