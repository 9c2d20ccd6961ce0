//! App: `app.example.com/v1`.

use serde_json::{Value, json};

use crate::audit::{Entry, writes_to};
use crate::world::{APP, DEPLOYMENT, SERVICE, World, is_ready};

fn app(spec: &Value) -> Value {
    json!({"metadata": {"name": "shop"}, "spec": spec})
}

/// Merge-patches the App's spec and waits until the operator has applied it.
async fn edit(world: &World, spec: Value) {
    world.patch(APP, "shop", json!({"spec": spec})).await.unwrap();
    world.until(APP, "shop", is_ready).await;
}

async fn container(world: &World) -> Value {
    let deployment = world.get(DEPLOYMENT, "shop").await.unwrap();
    deployment["spec"]["template"]["spec"]["containers"][0].clone()
}

/// The Service's ports, sorted by number.
async fn service_ports(world: &World) -> Vec<Value> {
    let service = world.get(SERVICE, "shop").await.unwrap();
    let mut ports = service["spec"]["ports"].as_array().unwrap().clone();
    ports.sort_by_key(|port| port["port"].as_i64());
    ports
}

/// One field of every port.
fn all(ports: &[Value], field: &str) -> Vec<Value> {
    ports.iter().map(|port| port[field].clone()).collect()
}

fn operators_writes_to_the_deployment(world: &World) -> Vec<Entry> {
    operators_writes_to(world, "deployments")
}

fn operators_writes_to(world: &World, resource: &str) -> Vec<Entry> {
    let writes = writes_to(world, resource, "shop");
    writes.into_iter().filter(|write| write.by_operator).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_ip_and_the_node_ports_survive_edits() {
    let (world, _operator) = World::with_operator_at("app-addresses", "baseline").await;
    let ports = json!([{"name": "web", "port": 80}, {"name": "tls", "port": 443}]);
    world.create(APP, app(&json!({"image": "shop:1", "ports": ports}))).await.unwrap();
    world.until(APP, "shop", is_ready).await;
    // Another client makes it reachable from outside. The API server assigns node ports.
    world.patch(SERVICE, "shop", json!({"spec": {"type": "NodePort"}})).await.unwrap();
    let before = world.get(SERVICE, "shop").await.unwrap();
    let node_ports = all(&service_ports(&world).await, "nodePort");
    assert!(node_ports.iter().all(Value::is_i64), "{node_ports:?}");

    edit(&world, json!({"image": "shop:2"})).await;
    let renamed =
        json!([{"name": "www", "port": 80, "targetPort": 8080}, {"name": "tls", "port": 443}]);
    edit(&world, json!({"ports": renamed})).await;
    let after = world.get(SERVICE, "shop").await.unwrap();
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["spec"]["type"], "NodePort");
    assert!(after["spec"]["clusterIP"].is_string());
    assert_eq!(after["spec"]["clusterIP"], before["spec"]["clusterIP"]);
    let ports = service_ports(&world).await;
    assert_eq!(all(&ports, "nodePort"), node_ports);
    assert_eq!(all(&ports, "name"), ["www", "tls"]);
    assert_eq!(all(&ports, "targetPort"), [json!(8080), json!(443)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_node_port_is_assigned_and_can_be_released() {
    let (world, _operator) = World::with_operator_at("app-node-port", "baseline").await;
    let ports = json!([{"port": 80, "nodePort": 30084}]);
    world.create(APP, app(&json!({"image": "shop:1", "ports": ports}))).await.unwrap();
    world.until(APP, "shop", is_ready).await;
    let service = world.get(SERVICE, "shop").await.unwrap();
    assert_eq!(service["spec"]["type"], "NodePort");
    assert_eq!(service["spec"]["ports"][0]["nodePort"], 30084);
    edit(&world, json!({"ports": [{"port": 80, "nodePort": 30085}]})).await;
    assert_eq!(all(&service_ports(&world).await, "nodePort"), [30085]);
    edit(&world, json!({"ports": [{"port": 80}]})).await;
    let service = world.get(SERVICE, "shop").await.unwrap();
    assert_eq!(service["spec"]["type"], "ClusterIP");
    assert!(service["spec"]["ports"][0]["nodePort"].is_null());
}

/// The API server rounds such quantities up in a pod template.
#[tokio::test(flavor = "multi_thread")]
async fn a_quantity_finer_than_a_thousandth_is_accepted() {
    let (world, _operator) = World::with_operator_at("app-fine", "baseline").await;
    let resources = json!({"limits": {"cpu": "0.0625", "memory": "0.1234Gi"}});
    world.create(APP, app(&json!({"image": "shop:1", "resources": resources}))).await.unwrap();
    world.until(APP, "shop", is_ready).await;
    assert_eq!(container(&world).await["resources"]["limits"]["cpu"], "63m");
    edit(&world, json!({"replicas": 2})).await;
    assert_eq!(operators_writes_to_the_deployment(&world).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_form_of_a_field_replaces_another_managers_form() {
    let (world, _operator) = World::with_operator_at("forms", "baseline").await;
    let app = json!({"metadata": {"name": "shop"}, "spec": {"image": "nginx:1.27", "replicas": 1}});
    world.create(APP, app).await.unwrap();
    world.until(APP, "shop", is_ready).await;
    let change = async |spec: Value| {
        world.patch(APP, "shop", json!({ "spec": spec })).await.unwrap();
    };
    let deployment = async |wanted: &dyn Fn(&Value) -> bool| {
        world.until(DEPLOYMENT, "shop", |found| wanted(&found["spec"])).await;
        world.until(APP, "shop", is_ready).await;
    };
    // The API server has set a default for `rollingUpdate`, which is invalid with Recreate.
    change(json!({"strategy": {"type": "Recreate"}})).await;
    deployment(&|spec| spec["strategy"] == json!({"type": "Recreate"})).await;
    change(json!({"strategy": null})).await;
    deployment(&|spec| spec["strategy"]["type"] == "RollingUpdate").await;

    // Together with a manual surge of 0, this setting would be refused.
    let no_surge = json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0}}}}).to_string();
    world.kubectl(&["patch", "deployment", "shop", "-p", &no_surge]).unwrap();
    change(json!({"strategy": {"rollingUpdate": {"maxUnavailable": 0}}})).await;
    deployment(&|spec| {
        spec["strategy"]["rollingUpdate"] == json!({"maxUnavailable": 0, "maxSurge": "25%"})
    })
    .await;
}
