//! Manual changes of an owned object that block the operator's apply, which leaves the fields of other
//! managers. The object is restored nevertheless.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::world::{
    APP, DAEMON_SET, DEPLOYMENT, EVENT, GENERIC_DAEMON, Kind, MEMCACHED, SERVICE, World,
    conditions, is_ready,
};

/// The path of the only container of an owned object.
const CONTAINER: &str = "/spec/template/spec/containers/0";

/// A custom resource, the owned object that is changed, and the JSON patch that changes it.
type Case = (&'static str, Kind, Value, Kind, Value);

fn replace(path: impl AsRef<str>, value: Value) -> Value {
    json!({"op": "replace", "path": path.as_ref(), "value": value})
}

fn add(path: impl AsRef<str>, value: Value) -> Value {
    json!({"op": "add", "path": path.as_ref(), "value": value})
}

fn of_services() -> Vec<Case> {
    let app = |ports: Value| json!({"image": "shop:1", "replicas": 0, "ports": ports});
    let one = app(json!([{"port": 8080}]));
    let on_nodes = app(json!([{"port": 8080, "nodePort": 30083}]));
    let two = app(json!([{"name": "web", "port": 80}, {"name": "tls", "port": 443}]));
    let port = |at: u8, number: u16| replace(format!("/spec/ports/{at}/port"), json!(number));
    vec![
        ("only-port", APP, one, SERVICE, json!([port(0, 9090)])),
        ("only-node-port", APP, on_nodes, SERVICE, json!([port(0, 9090)])),
        ("every-port", APP, two.clone(), SERVICE, json!([port(0, 81), port(1, 444)])),
        ("port-of-two", APP, two, SERVICE, json!([port(0, 81)])),
        ("headless", MEMCACHED, json!({"size": 0}), SERVICE, json!([port(0, 11212)])),
    ]
}

fn of_container_ports() -> Vec<Case> {
    let named = json!({"image": "shop:1", "replicas": 0,
        "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81, "targetPort": "admin"}]});
    let moved = json!([replace(format!("{CONTAINER}/ports/0/containerPort"), json!(11212))]);
    let exchanged = json!([
        replace(format!("{CONTAINER}/ports/1/name"), json!("other")),
        add(format!("{CONTAINER}/ports/0/name"), json!("admin")),
    ]);
    vec![
        ("named-port", MEMCACHED, json!({"size": 0}), DEPLOYMENT, moved),
        ("name-of-port", APP, named, DEPLOYMENT, exchanged),
    ]
}

fn of_rights() -> Vec<Case> {
    let security = format!("{CONTAINER}/securityContext");
    let escalates = replace(format!("{security}/allowPrivilegeEscalation"), json!(true));
    let profile = "/spec/template/spec/securityContext/seccompProfile";
    let local = json!({"type": "Localhost", "localhostProfile": "mine.json"});
    let local = json!([replace(profile, local)]);
    let privileged = json!([escalates, add(format!("{security}/privileged"), json!(true))]);
    let added = json!({"add": ["CAP_CHOWN", "CAP_SYS_ADMIN"]});
    let capability = json!([escalates, add(format!("{security}/capabilities"), added)]);
    let none = json!({"size": 0});
    let daemon = json!({"image": "agent:1", "label": "nowhere"});
    let exec = json!({"exec": {"command": ["true"]}, "periodSeconds": 5});
    let probed = json!([replace(format!("{CONTAINER}/readinessProbe"), exec)]);
    vec![
        ("seccomp", MEMCACHED, none.clone(), DEPLOYMENT, local.clone()),
        ("seccomp-of-daemon", GENERIC_DAEMON, daemon.clone(), DAEMON_SET, local),
        ("probe", MEMCACHED, none.clone(), DEPLOYMENT, probed),
        ("privileged", MEMCACHED, none, DEPLOYMENT, privileged),
        ("capability", GENERIC_DAEMON, daemon, DAEMON_SET, capability),
    ]
}

fn of_resources() -> Vec<Case> {
    let with = |resources: Value| json!({"image": "shop:1", "replicas": 0, "resources": resources});
    let resources = format!("{CONTAINER}/resources");
    let limited = with(json!({"limits": {"cpu": "500m"}}));
    let above = json!([
        replace(format!("{resources}/limits/cpu"), json!("2")),
        add(format!("{resources}/requests"), json!({"cpu": "1"})),
    ]);
    let requested = with(json!({"requests": {"memory": "1Gi"}}));
    let below = json!([
        replace(format!("{resources}/requests/memory"), json!("1Mi")),
        add(format!("{resources}/limits"), json!({"memory": "2Mi"})),
    ]);
    let below_and_more = json!([
        replace(format!("{resources}/requests"), json!({"memory": "1Mi", "cpu": "1m"})),
        add(format!("{resources}/limits"), json!({"memory": "2Mi"})),
    ]);
    let extended = with(json!({"limits": {"example.com/gpu": "2"}}));
    let fewer = json!([
        replace(format!("{resources}/limits/example.com~1gpu"), json!("1")),
        add(format!("{resources}/requests"), json!({"example.com/gpu": "1"})),
    ]);
    vec![
        ("requests", APP, limited, DEPLOYMENT, above),
        ("limits", APP, requested.clone(), DEPLOYMENT, below),
        ("limits-and-request", APP, requested, DEPLOYMENT, below_and_more),
        ("extended", APP, extended, DEPLOYMENT, fewer),
    ]
}

/// Another source of a volume that a container mounts.
fn of_volumes() -> Vec<Case> {
    let pod = json!({"volumes": [{"name": "cache"}],
        "containers": [{"name": "app", "volumeMounts": [{"name": "cache", "mountPath": "/cache"}]}]});
    let app = json!({"image": "shop:1", "replicas": 0, "podTemplate": {"spec": pod}});
    let on_node = json!({"name": "cache", "hostPath": {"path": "/tmp", "type": ""}});
    let moved = json!([replace("/spec/template/spec/volumes/0", on_node)]);
    vec![("volume", APP, app, DEPLOYMENT, moved)]
}

/// Additions under a key that the operator has set.
fn of_duplicates() -> Vec<Case> {
    let app = json!({"image": "shop:1", "replicas": 0, "ports": [{"port": 80}],
        "envs": [{"name": "MODE", "value": "safe"}, {"name": "REGION", "value": "north"}],
        "podTemplate": {"spec": {"imagePullSecrets": [{"name": "registry"}]}}});
    let daemon = json!({"image": "agent:1", "label": "nowhere", "envs": [{"name": "MODE", "value": "safe"}]});
    let second = json!({"name": "MODE", "value": "debug"});
    let variable = || json!([add(format!("{CONTAINER}/env/-"), second.clone())]);
    let first = json!([add(format!("{CONTAINER}/env/0"), second.clone())]);
    let port = json!({"name": "other", "containerPort": 80, "protocol": "TCP"});
    let secret =
        json!([add("/spec/template/spec/imagePullSecrets/-", json!({"name": "registry"}))]);
    vec![
        ("variable-twice", APP, app.clone(), DEPLOYMENT, variable()),
        ("variable-before", APP, app.clone(), DEPLOYMENT, first),
        ("variable-of-daemon", GENERIC_DAEMON, daemon, DAEMON_SET, variable()),
        (
            "port-twice",
            APP,
            app.clone(),
            DEPLOYMENT,
            json!([add(format!("{CONTAINER}/ports/-"), port)]),
        ),
        ("secret-twice", APP, app, DEPLOYMENT, secret),
    ]
}

/// Fields that the API sets as a whole, with their map or list item.
fn of_wholes() -> Vec<Case> {
    let key = json!({"name": "settings", "key": "level"});
    let app = json!({"image": "shop:1", "replicas": 0,
        "envs": [{"name": "LEVEL", "valueFrom": {"configMapKeyRef": key}}],
        "envFrom": [{"configMapRef": {"name": "settings", "optional": true}}, {"secretRef": {"name": "a"}}],
        "podTemplate": {"spec": {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}}});
    let added = |path: String, value: Value| (app.clone(), json!([add(path, value)]));
    let optional =
        added(format!("{CONTAINER}/env/0/valueFrom/configMapKeyRef/optional"), json!(true));
    let prefix = added(format!("{CONTAINER}/envFrom/0/prefix"), json!("X_"));
    let secret = added(format!("{CONTAINER}/envFrom/1/secretRef/optional"), json!(true));
    let effect = added("/spec/template/spec/tolerations/0/effect".to_owned(), json!("NoSchedule"));
    let cases = [
        ("optional-key", optional),
        ("prefix", prefix),
        ("optional-secret", secret),
        ("effect", effect),
    ];
    cases.map(|(name, (app, patch))| (name, APP, app, DEPLOYMENT, patch)).into()
}

/// Manual restrictions of the nodes on which a daemon runs.
fn of_nodes() -> Vec<Case> {
    let daemon = |label: Value| json!({"image": "agent:1", "label": label});
    let select = || json!([add("/spec/template/spec/nodeSelector", json!({"disk": "ssd"}))]);
    let terms = json!([{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]);
    let required =
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    let affinity =
        || json!([add("/spec/template/spec/affinity", json!({"nodeAffinity": required}))]);
    vec![
        ("selected-of-all", GENERIC_DAEMON, daemon(json!("")), DAEMON_SET, select()),
        ("selected-of-key", GENERIC_DAEMON, daemon(json!("logs")), DAEMON_SET, select()),
        ("selected-of-pair", GENERIC_DAEMON, daemon(json!("logs=true")), DAEMON_SET, select()),
        ("affine-of-all", GENERIC_DAEMON, daemon(json!("")), DAEMON_SET, affinity()),
        ("affine-of-key", GENERIC_DAEMON, daemon(json!("logs")), DAEMON_SET, affinity()),
        ("affine-of-pair", GENERIC_DAEMON, daemon(json!("logs=true")), DAEMON_SET, affinity()),
    ]
}

async fn spoilt_and_restored(world: &World, (name, kind, spec, child, spoil): Case) {
    world.create(kind, json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
    world.until(kind, name, is_ready).await;
    let good = world.get(child, name).await.unwrap()["spec"].clone();
    let what = format!("{}/{name}", child.plural());
    let spoil = spoil.to_string();
    world.kubectl(&["patch", &what, "--type=json", "-p", &spoil]).unwrap();
    let healed = |c: &Value| without_foreign(&c["spec"]) == without_foreign(&good);
    world.until(child, name, healed).await;
    world.until(kind, name, is_ready).await;
}

/// Removes foreign fields that can remain because they do no harm.
fn without_foreign(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(container) = spec.pointer_mut("/template/spec/containers/0") {
        for (map, list) in [("securityContext", "capabilities"), ("resources", "requests")] {
            let Some(map) = container[map].as_object_mut() else { continue };
            let emptied = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
            if map.get(list).is_some_and(|v| emptied(v) || *v == json!({"add": ["CAP_CHOWN"]})) {
                map.remove(list);
            }
        }
    }
    if spec["template"]["spec"]["affinity"] == json!({"nodeAffinity": {}}) {
        spec["template"]["spec"].as_object_mut().unwrap().remove("affinity");
    }
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manual_change_that_blocks_the_apply_is_reverted() {
    let (world, _operator) = World::with_operator_at("by-hand", "privileged").await;
    let cases = [
        of_services(),
        of_container_ports(),
        of_rights(),
        of_resources(),
        of_volumes(),
        of_duplicates(),
        of_wholes(),
        of_nodes(),
    ];
    let cases = cases.into_iter().flatten();
    let all = cases.map(|case| {
        let (world, name) = (&world, case.0);
        async move {
            let done =
                tokio::time::timeout(Duration::from_secs(120), spoilt_and_restored(world, case));
            done.await.err().map(|_| name)
        }
    });
    let failed: Vec<_> = futures::future::join_all(all).await.into_iter().flatten().collect();
    assert!(failed.is_empty(), "not restored: {failed:?}");
    // Each one is restored at the first attempt: no Event reports that the spec is invalid or contested.
    // (Kubernetes' own controllers can warn about the manual change.)
    let is_ours = |event: &Value| {
        let who = event["reportingController"].as_str().unwrap_or_default();
        who.starts_with("workload-operator.example.com/")
    };
    let ours: Vec<_> = world.list(EVENT).await.into_iter().filter(is_ours).collect();
    assert!(!ours.is_empty(), "the operator publishes what it restores");
    for event in ours {
        // A daemon that was removed from nodes is not available for a moment.
        let is_true = event["reason"] == "ReplicasUnavailable";
        assert!(event["type"] == "Normal" || is_true, "{event}");
    }
}

/// A change of the type would release its address.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_changed_to_a_load_balancer_remains_one() {
    let (world, _operator) = World::with_operator_at("balanced", "baseline").await;
    let on_nodes = |port: u16| json!([{"port": 80, "nodePort": port}]);
    let spec = json!({"image": "shop:1", "replicas": 0, "ports": on_nodes(30086)});
    world.create(APP, json!({"metadata": {"name": "shop"}, "spec": spec})).await.unwrap();
    world.until(APP, "shop", is_ready).await;
    let balanced = json!([
        replace("/spec/type", json!("LoadBalancer")),
        add("/spec/loadBalancerSourceRanges", json!(["10.0.0.0/8"])),
    ]);
    world.kubectl(&["patch", "services/shop", "--type=json", "-p", &balanced.to_string()]).unwrap();
    world.patch(APP, "shop", json!({"spec": {"ports": on_nodes(30087)}})).await.unwrap();
    let moved = |s: &Value| s["spec"]["ports"][0]["nodePort"] == 30087;
    world.until(SERVICE, "shop", moved).await;
    world.until(APP, "shop", is_ready).await;
    let spec = world.get(SERVICE, "shop").await.unwrap()["spec"].clone();
    assert_eq!(
        (&spec["type"], &spec["loadBalancerSourceRanges"][0]),
        (&json!("LoadBalancer"), &json!("10.0.0.0/8"))
    );
    // A client that removes the load balancer leaves a node port.
    let plain = json!([
        replace("/spec/type", json!("ClusterIP")),
        json!({"op": "remove", "path": "/spec/loadBalancerSourceRanges"}),
        json!({"op": "remove", "path": "/spec/ports/0/nodePort"}),
    ]);
    world.kubectl(&["patch", "services/shop", "--type=json", "-p", &plain.to_string()]).unwrap();
    world.until(SERVICE, "shop", |s| s["spec"]["type"] == "NodePort" && moved(s)).await;
}

/// Returns whether the Service has this port, and only this.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_changed_to_an_external_name_is_restored() {
    let (world, _operator) = World::with_operator_at("led-elsewhere", "baseline").await;
    let spec = json!({"image": "shop:1", "replicas": 0, "ports": [{"port": 80}]});
    world.create(APP, json!({"metadata": {"name": "shop"}, "spec": spec})).await.unwrap();
    world.until(APP, "shop", is_ready).await;
    let elsewhere = json!({"spec": {"type": "ExternalName", "externalName": "example.com"}});
    world.patch(SERVICE, "shop", elsewhere).await.unwrap();
    // With that type, the API server ignores the name.
    let leads_to_pods = |service: &Value| {
        service["spec"]["type"] == "ClusterIP" && service["spec"]["clusterIP"].is_string()
    };
    world.until(SERVICE, "shop", leads_to_pods).await;
    world.until(APP, "shop", is_ready).await;
}

fn has_port(port: u16) -> impl Fn(&Value) -> bool {
    move |service| {
        let ports = service["spec"]["ports"].as_array();
        ports.is_some_and(|ports| ports.len() == 1 && ports[0]["port"] == port)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_service_update_leaves_the_service_working() {
    let (world, _operator) = World::with_operator_at("refused-ports", "baseline").await;
    let edit = async |ports: Value| {
        world.patch(APP, "shop", json!({"spec": {"ports": ports}})).await.unwrap();
    };
    let ports = json!([{"port": 8080, "targetPort": 80}]);
    let spec = json!({"image": "shop:1", "replicas": 0, "ports": ports});
    world.create(APP, json!({"metadata": {"name": "shop"}, "spec": spec})).await.unwrap();
    world.until(APP, "shop", is_ready).await;
    // In no version of the Service does a port lead elsewhere, not even while it is repaired.
    let seen = Arc::<Mutex<Vec<Value>>>::default();
    let looking = seen.clone();
    let watch = tokio::spawn(world.for_each_change(SERVICE, move |service| {
        looking.lock().push(service["spec"]["ports"].clone());
    }));
    let refused = async |port: u16| {
        let before = world.get(SERVICE, "shop").await.unwrap();
        edit(json!([{"port": port, "targetPort": 80, "nodePort": 80}])).await;
        world.until_condition(APP, "shop", "Stalled", ("True", "Invalid")).await;
        assert_eq!(world.get(SERVICE, "shop").await.unwrap()["spec"], before["spec"]);
    };
    refused(9090).await;
    edit(json!([{"port": 9090, "targetPort": 80}])).await;
    world.until(SERVICE, "shop", has_port(9090)).await;
    // The same after the operator had to restore the number of the only port.
    let moved = json!([replace("/spec/ports/0/port", json!(7070))]).to_string();
    world.kubectl(&["patch", "services/shop", "--type=json", "-p", &moved]).unwrap();
    world.until(SERVICE, "shop", has_port(9090)).await;
    world.until(APP, "shop", is_ready).await;
    refused(9191).await;
    edit(json!([{"port": 9191, "targetPort": 80}])).await;
    world.until(SERVICE, "shop", has_port(9191)).await;
    world.until(APP, "shop", is_ready).await;
    watch.abort();
    let seen = seen.lock();
    let all: Vec<&Value> = seen.iter().flat_map(|ports| ports.as_array().unwrap()).collect();
    assert!(all.iter().any(|port| port["port"] == 9191), "{all:?}");
    assert!(all.iter().all(|port| port["targetPort"] == 80), "{all:?}");
}

/// As after a restore from another version.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_with_another_selector_is_reported_until_it_is_deleted() {
    let world = World::new("other-selector", "baseline").await;
    let app = json!({"metadata": {"name": "shop"}, "spec": {"image": "shop:1", "replicas": 0}});
    let app = world.create(APP, app).await.unwrap();
    let owner = json!({"apiVersion": app["apiVersion"], "kind": "App", "name": "shop",
        "uid": app["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
    let labels = json!({"former": "label"});
    let child = json!({"metadata": {"name": "shop", "ownerReferences": [owner]}, "spec": {
        "selector": {"matchLabels": labels}, "replicas": 0, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "app", "image": "shop:0"}]}}}});
    world.create(DEPLOYMENT, child).await.unwrap();
    let _operator = world.start_operator().await;
    world.until_condition(APP, "shop", "Stalled", ("True", "FieldImmutable")).await;
    let told = world.get(APP, "shop").await.unwrap();
    let ready = conditions(&told).find(|it| it["type"] == "Ready").unwrap();
    let message = "spec.selector of Deployment shop cannot be changed; delete the Deployment";
    assert!(ready["message"].as_str().unwrap().contains(message), "{ready}");
    world.kubectl(&["delete", "deployment/shop"]).unwrap();
    world.until(APP, "shop", is_ready).await;
}

/// An apply leaves a field to its other owners.
#[tokio::test(flavor = "multi_thread")]
async fn unwanted_fields_are_removed_despite_other_or_missing_owners() {
    let (world, _operator) = World::with_operator_at("co-owned", "baseline").await;
    let envs = json!([{"name": "DEBUG", "value": "1"}, {"name": "REGION", "value": "north"}]);
    let spec = json!({"image": "ui:1", "replicas": 1, "envs": envs,
        "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]});
    for name in ["shared-ui", "cleared-ui"] {
        let object = json!({"metadata": {"name": name}, "spec": spec});
        world.create(APP, object).await.unwrap();
        world.until(APP, name, is_ready).await;
    }
    let ledger = json!({"metadata": {"name": "ledger"}, "spec": {"size": 1, "exporter": {}}});
    world.create(MEMCACHED, ledger).await.unwrap();
    world.until(MEMCACHED, "ledger", is_ready).await;
    // This variable has no other owner, so it remains when the operator's own variables are removed.
    let own = ["set", "env", "deployment/own-ui", "FOO=1"];
    let one = json!({"image": "ui:1", "replicas": 0, "envs": [{"name": "A", "value": "1"}]});
    world.create(APP, json!({"metadata": {"name": "own-ui"}, "spec": one})).await.unwrap();
    world.until(APP, "own-ui", is_ready).await;
    world.kubectl(&own).unwrap();
    world.patch(APP, "own-ui", json!({"spec": {"envs": []}})).await.unwrap();
    let has_foo = |child: &Value| {
        let env = &child["spec"]["template"]["spec"]["containers"][0]["env"];
        *env == json!([{"name": "FOO", "value": "1"}])
    };
    world.until(DEPLOYMENT, "own-ui", has_foo).await;
    for child in ["deployment/shared-ui", "service/shared-ui", "deployment/ledger"] {
        applied_by_gitops(&world, child);
    }
    for child in ["deployment/cleared-ui", "service/cleared-ui"] {
        let clear = json!({"metadata": {"managedFields": [{}]}}).to_string();
        world.kubectl(&["patch", child, "--type=merge", "-p", &clear]).unwrap();
    }
    let less =
        json!({"spec": {"envs": [{"name": "REGION", "value": "north"}], "ports": [{"port": 80}]}});
    let has_region = |child: &Value| {
        let env = &child["spec"]["template"]["spec"]["containers"][0]["env"];
        *env == json!([{"name": "REGION", "value": "north"}])
    };
    let count = |list: &Value| list.as_array().map_or(0, Vec::len);
    for name in ["shared-ui", "cleared-ui"] {
        world.patch(APP, name, less.clone()).await.unwrap();
        world.until(DEPLOYMENT, name, has_region).await;
        world.until(SERVICE, name, |service| count(&service["spec"]["ports"]) == 1).await;
        world.until(APP, name, is_ready).await;
    }
    world.patch(MEMCACHED, "ledger", json!({"spec": {"exporter": null}})).await.unwrap();
    let alone = |child: &Value| count(&child["spec"]["template"]["spec"]["containers"]) == 1;
    world.until(DEPLOYMENT, "ledger", alone).await;
    world.until(MEMCACHED, "ledger", is_ready).await;
}

/// Applies an object unchanged, as another manager.
fn applied_by_gitops(world: &World, child: &str) {
    let object = world.kubectl(&["get", child, "-o", "json"]).unwrap();
    let mut object: Value = serde_json::from_str(&object).unwrap();
    object["metadata"].as_object_mut().unwrap().retain(|field, _| field == "name");
    object.as_object_mut().unwrap().remove("status");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), object.to_string()).unwrap();
    let apply = ["apply", "--server-side", "--field-manager=gitops", "-f"];
    world.kubectl(&[&apply[..], &[file.path().to_str().unwrap()]].concat()).unwrap();
}
