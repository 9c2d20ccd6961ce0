//! The overlays: each is applied on a real API server, with exactly the used permissions.

use std::collections::BTreeSet;
use std::process::Command;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::audit::{Audit, Entry, logged};
use crate::control_plane::ControlPlane;
use crate::leadership::create_lease_roles;
use crate::operator_process::OperatorProcess;
use crate::world::{
    APP, BUDGET, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, Kind, MEMCACHED, MEMCACHED_IMAGE, POD,
    SERVICE, World, is_ready, memcached,
};

pub const SYSTEM: &str = "workload-operator-system";
pub const NAME: &str = "workload-operator";

/// Permissions whose verbs do not appear in an audit log, because the API server checks them while it handles
/// another request. A creation by server-side apply is a `patch`. The permission to block the owner's
/// deletion is checked when the owned object is admitted.
const CHECKED_IMPLICITLY: &[[&str; 3]] = &[
    ["apps", "deployments", "create"],
    ["apps", "daemonsets", "create"],
    ["", "services", "create"],
    ["policy", "poddisruptionbudgets", "create"],
    ["cache.example.com", "memcacheds/finalizers", "update"],
    ["mydomain.com", "genericdaemons/finalizers", "update"],
    ["app.example.com", "apps/finalizers", "update"],
];

/// Permissions for cases that do not occur here. An API server of this version streams the initial state as
/// part of a watch; an older one requires a list. An owned object is read if its name is in use by an object
/// that the watch has not reported yet.
pub const SELDOM: &[[&str; 3]] = &[
    ["cache.example.com", "memcacheds", "list"],
    ["mydomain.com", "genericdaemons", "list"],
    ["app.example.com", "apps", "list"],
    ["apps", "deployments", "list"],
    ["apps", "daemonsets", "list"],
    ["", "services", "list"],
    ["policy", "poddisruptionbudgets", "list"],
    ["policy", "poddisruptionbudgets", "get"],
    ["", "pods", "list"],
    ["apps", "deployments", "get"],
    ["apps", "daemonsets", "get"],
    ["", "services", "get"],
    // Only an admission plugin checks it: tests/contract/restore.rs.
    ["apps", "deployments", "delete"],
    ["apps", "daemonsets", "delete"],
    // Not namespaced. tests/contract/degraded.rs has an operator that lists them.
    ["", "nodes", "list"],
];

pub type Permissions = BTreeSet<[String; 3]>;

pub fn objects(yaml: &str) -> Vec<Value> {
    serde_yaml_ng::Deserializer::from_str(yaml)
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

/// `Kind namespace/name` of each object.
pub fn names(objects: &[Value]) -> BTreeSet<String> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = |object: &Value| {
        let meta = &object["metadata"];
        format!("{} {}/{}", word(&object["kind"]), word(&meta["namespace"]), word(&meta["name"]))
    };
    objects.iter().map(name).collect()
}

// === The overlays ===

/// Accepts any ServiceMonitor and PrometheusRule, because the Prometheus operator is not installed.
pub fn prometheus_operators_kinds() -> [Value; 3] {
    let schema = json!({"openAPIV3Schema":
        {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let crd = |kind: &str| {
        let plural = format!("{}s", kind.to_lowercase());
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
            "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced",
                "names": {"plural": plural, "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
    };
    ["ServiceMonitor", "PodMonitor", "PrometheusRule"].map(crd)
}

/// The Service, the PodDisruptionBudget, the NetworkPolicy and the ServiceMonitor select the pods.
pub fn what_finds_the_pods_finds_them(plane: &ControlPlane, overlay: &str, replicas: usize) {
    let get = |what: &str, name: &str| -> Value {
        let text = plane.kubectl(&["get", what, name, "-n", SYSTEM, "-o=json"]);
        serde_json::from_str(&text).unwrap()
    };
    let pods = &get("deployment", NAME)["spec"]["template"];
    let labels = pods["metadata"]["labels"].as_object().unwrap();
    let meant = |selector: &Value| {
        selector.as_object().unwrap().iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    let service = get("service", "workload-operator-metrics");
    assert!(meant(&service["spec"]["selector"]), "{overlay}");
    let budget = get("poddisruptionbudget", NAME);
    assert!(meant(&budget["spec"]["selector"]["matchLabels"]), "{overlay}");
    assert_eq!(budget["spec"]["maxUnavailable"], 1, "with {replicas} a node can be drained");
    let policy = get("networkpolicy", NAME);
    assert!(meant(&policy["spec"]["podSelector"]["matchLabels"]), "{overlay}");
    let ports = pods["spec"]["containers"][0]["ports"].as_array().unwrap();
    let target = &service["spec"]["ports"][0]["targetPort"];
    assert!(ports.iter().any(|port| &port["name"] == target), "{overlay}");
    if overlay == "with-prometheus" {
        let monitor = get("servicemonitor", NAME);
        let selector = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
        let labels = service["metadata"]["labels"].as_object().unwrap();
        assert!(selector.iter().all(|(key, value)| labels.get(key) == Some(value)));
        assert_eq!(monitor["spec"]["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]);
        let endpoint = &monitor["spec"]["endpoints"][0];
        assert_eq!(endpoint["scheme"], "https");
        let credentials = &endpoint["authorization"]["credentials"];
        let secret = get("secret", credentials["name"].as_str().unwrap());
        let account = &secret["metadata"]["annotations"]["kubernetes.io/service-account.name"];
        let scraper = format!("--as=system:serviceaccount:{SYSTEM}:{}", account.as_str().unwrap());
        plane.kubectl(&["auth", "can-i", &scraper, "get", "/metrics"]);
        // The Prometheus operator derives the job, which the alerts select, from this label of the Service.
        let rule = get("prometheusrule", NAME)["spec"]["groups"][0]["rules"][0]["expr"].to_string();
        let label = monitor["spec"]["jobLabel"].as_str().unwrap();
        let job = service["metadata"]["labels"][label].as_str().unwrap();
        assert!(rule.contains(&format!(r#"job=\"{job}\""#)), "{rule}");
        let dashboard = get("configmap", "workload-operator-dashboard");
        assert_eq!(dashboard["metadata"]["labels"]["grafana_dashboard"], "1");
        let dashboard = dashboard["data"]["workload-operator.json"].as_str().unwrap();
        assert!(serde_json::from_str::<Value>(dashboard).is_ok());
    }
}

/// Only a certificate of one's own has an authority that the scraper can verify.
#[tokio::test(flavor = "multi_thread")]
async fn the_scraper_verifies_the_certificate_in_the_overlay_for_that() {
    let plane = tokio::task::spawn_blocking(ControlPlane::shared).await.unwrap();
    for (overlay, has_authority) in [("with-prometheus", false), ("metrics-over-tls", true)] {
        let overlay = format!("artifacts/overlays/{overlay}");
        let built = objects(&plane.kubectl(&["kustomize", &overlay]));
        let monitor = built.iter().find(|one| one["kind"] == "ServiceMonitor").unwrap();
        let endpoint = &monitor["spec"]["endpoints"][0];
        assert_eq!(endpoint["scheme"], "https", "{endpoint}");
        assert_eq!(endpoint["tlsConfig"]["ca"].is_object(), has_authority, "{endpoint}");
    }
}

/// `check` finds an installation in another namespace, with other names, and its policy works.
#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_installation_is_found_and_its_policy_works() {
    const OVERLAY: &str = "artifacts/overlays/renamed";
    let plane = ControlPlane::of_this_test(|| ControlPlane::bare("renamed")).await;
    let mut all = objects(&plane.kubectl(&["kustomize", OVERLAY]));
    let monitors = |object: &Value| object["apiVersion"] == "monitoring.coreos.com/v1";
    let monitor = all.iter().find(|one| one["kind"] == "ServiceMonitor").unwrap().clone();
    let secret = all.iter().find(|one| one["kind"] == "Secret").unwrap();
    let credentials = &monitor["spec"]["endpoints"][0]["authorization"]["credentials"];
    assert_eq!(credentials["name"], secret["metadata"]["name"]);
    all.retain(|object| !monitors(object));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        json!({"apiVersion": "v1", "kind": "List", "items": all}).to_string(),
    )
    .unwrap();
    plane.kubectl(&["apply", "--server-side", "-f", file.path().to_str().unwrap()]);
    plane.kubectl(&["rollout", "status", "deployment/eu-workload-operator", "-n", "ops"]);
    let check = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_workload-operator"))
            .args(["check", "--kubeconfig"])
            .arg(plane.kubeconfig())
            .args(arguments)
            .output()
            .unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
    };
    let (found, code) = check(&[]);
    assert!(code == Some(0) && found.contains(" 0 warn  0 fail "), "{found}");
    let account = "--as=system:serviceaccount:ops:eu-workload-operator";
    let evil = ["create", "deployment", "evil", "-n", "kube-system", "--image=a", account];
    let refused = logged(|| plane.try_kubectl(&evil).err()).await;
    assert!(refused.contains("can only write objects that a Memcached"), "{refused}");

    // As without the replacements.
    let expression = "request.userInfo.username == 'system:serviceaccount:workload-operator-system:workload-operator'";
    let patch = json!([{"op": "replace", "path": "/spec/matchConditions/0/expression", "value": expression}]);
    let policy =
        ["patch", "validatingadmissionpolicy", "eu-workload-operator-children", "--type=json"];
    plane.kubectl(&[&policy[..], &[&format!("-p={patch}")]].concat());
    let (found, code) = check(&["-n", "ops"]);
    assert_eq!(code, Some(1), "{found}");
    assert!(found.contains("`system:serviceaccount:ops:eu-workload-operator`"), "{found}");
    assert!(!found.contains("apply -k"), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_namespaced_overlay_grants_permissions_only_in_its_namespace() {
    let plane = tokio::task::spawn_blocking(ControlPlane::shared).await.unwrap();
    let built = |overlay: &str| objects(&plane.kubectl(&["kustomize", overlay]));
    let rules = |objects: &[Value], kind: &str| {
        let found = objects.iter().find(|o| o["kind"] == kind && o["metadata"]["name"] == NAME);
        found.map(|role| role["rules"].clone())
    };
    let (all, one) = (built("artifacts/default"), built("artifacts/overlays/namespaced"));
    assert!(rules(&all, "ClusterRole").is_some());
    // Nodes are not of a namespace.
    let mut of_namespaces = rules(&all, "ClusterRole").unwrap();
    of_namespaces.as_array_mut().unwrap().retain(|rule| rule["resources"] != json!(["nodes"]));
    assert_eq!(rules(&one, "Role"), Some(of_namespaces));
    assert_eq!(rules(&one, "ClusterRole"), None);
    let bound = one.iter().filter(|o| o["kind"] == "ClusterRoleBinding").count();
    assert_eq!(bound, 0, "nothing is bound in the whole cluster");
}

/// Returns a copy of artifacts, and an empty folder in it for an overlay. The source tree can be read-only, and other tests
/// read it.
fn overlay_in_a_copy() -> (tempfile::TempDir, std::path::PathBuf) {
    let copy = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-RL").arg("artifacts").arg(copy.path()).status().unwrap();
    assert!(copied.success());
    let folder = copy.path().join("artifacts/overlay-of-a-test");
    std::fs::create_dir(&folder).unwrap();
    (copy, folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_raises_the_size_of_memcacheds() {
    let plane = tokio::task::spawn_blocking(ControlPlane::shared).await.unwrap();
    let (_copy, folder) = overlay_in_a_copy();
    let overlay = "resources: [../crds]\ncomponents: [../components/memcached-size]\n";
    std::fs::write(folder.join("kustomization.yaml"), overlay).unwrap();
    let built = objects(&plane.kubectl(&["kustomize", folder.to_str().unwrap()]));
    let crd =
        built.iter().find(|o| o["metadata"]["name"] == "memcacheds.cache.example.com").unwrap();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert_eq!(spec["properties"]["size"]["maximum"], 8);
}

/// kustomize replaces names only in fields that it knows.
#[tokio::test(flavor = "multi_thread")]
async fn kustomize_replaces_names_images_and_replicas_in_custom_resources() {
    let plane = tokio::task::spawn_blocking(ControlPlane::shared).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("w.yaml", include_str!("../../artifacts/kustomize/workload-operator.yaml"));
    let key = |name: &str| json!({"name": name, "key": "k"});
    let app = json!({"apiVersion": "app.example.com/v1", "kind": "App", "metadata": {"name": "quiz"}, "spec": {
        "image": "quiz",
        "envs": [{"name": "A", "valueFrom": {"configMapKeyRef": key("settings")}},
            {"name": "B", "valueFrom": {"secretKeyRef": key("login")}}],
        "podTemplate": {"spec": {"serviceAccountName": "quiz", "imagePullSecrets": [{"name": "login"}],
            "containers": [{"name": "sidecar", "image": "quiz", "envFrom": [{"configMapRef": {"name": "settings"}}]}],
            "volumes": [{"name": "c", "configMap": {"name": "settings"}},
                {"name": "s", "secret": {"secretName": "login"}}]}}}});
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "quiz"}});
    write("app.yaml", &app.to_string());
    write("account.yaml", &account.to_string());
    let overlay = json!({"resources": ["app.yaml", "account.yaml"], "configurations": ["w.yaml"],
        "namePrefix": "eu-", "replicas": [{"name": "quiz", "count": 4}],
        "images": [{"name": "quiz", "newName": "registry.example.net/quiz", "newTag": "9"}],
        "configMapGenerator": [{"name": "settings", "literals": ["k=3"]}],
        "secretGenerator": [{"name": "login", "literals": ["k=3"]}]});
    write("kustomization.yaml", &overlay.to_string());
    let built = objects(&plane.kubectl(&["kustomize", folder.path().to_str().unwrap()]));
    let spec = &built.iter().find(|object| object["kind"] == "App").unwrap()["spec"];
    let settings = |name: &Value| name.as_str().unwrap().starts_with("eu-settings-");
    let login = |name: &Value| name.as_str().unwrap().starts_with("eu-login-");
    assert!(settings(&spec["envs"][0]["valueFrom"]["configMapKeyRef"]["name"]), "{spec:#}");
    assert!(login(&spec["envs"][1]["valueFrom"]["secretKeyRef"]["name"]), "{spec:#}");
    let pod = &spec["podTemplate"]["spec"];
    assert!(settings(&pod["volumes"][0]["configMap"]["name"]), "{spec:#}");
    assert!(login(&pod["volumes"][1]["secret"]["secretName"]), "{spec:#}");
    assert!(login(&pod["imagePullSecrets"][0]["name"]), "{spec:#}");
    assert!(settings(&pod["containers"][0]["envFrom"][0]["configMapRef"]["name"]), "{spec:#}");
    assert_eq!(pod["containers"][0]["image"], "registry.example.net/quiz:9");
    assert_eq!(pod["serviceAccountName"], "eu-quiz");
    assert_eq!(
        (&spec["image"], &spec["replicas"]),
        (&json!("registry.example.net/quiz:9"), &json!(4))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_patch_restricts_egress_to_the_api_server() {
    let plane = tokio::task::spawn_blocking(ControlPlane::shared).await.unwrap();
    let page = include_str!("../../docs/SECURITY.md");
    let (_, from) = page.split_once("```yaml\npatches:").expect("SECURITY.md has the patch");
    let (patch, _) = from.split_once("```").unwrap();
    let (_copy, folder) = overlay_in_a_copy();
    let overlay = format!("resources: [../default]\npatches:{patch}");
    std::fs::write(folder.join("kustomization.yaml"), overlay).unwrap();
    let built = objects(&plane.kubectl(&["kustomize", folder.to_str().unwrap()]));
    let policy = built.iter().find(|object| object["kind"] == "NetworkPolicy").unwrap();
    let port = |number: u16| json!([{"port": number, "protocol": "TCP"}]);
    let egress = policy["spec"]["egress"].as_array().unwrap();
    let narrow = json!({"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}], "ports": port(8443)});
    assert_eq!(egress[1..], [narrow, json!({"ports": port(3128)})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_prints_the_default_overlay() {
    let plane = tokio::task::spawn_blocking(ControlPlane::shared).await.unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_workload-operator")).arg("manifests").output().unwrap();
    let printed = objects(&String::from_utf8(output.stdout).unwrap());
    let built = objects(&plane.kubectl(&["kustomize", "artifacts/default"]));
    assert_eq!(names(&printed), names(&built));
    for object in &built {
        assert!(
            printed.contains(object),
            "{} differs",
            names(std::slice::from_ref(object)).first().unwrap()
        );
    }
}

// === The permissions ===

/// Returns the permissions that artifacts/rbac/operator.yaml grants.
pub fn granted() -> Permissions {
    &granted_by("ClusterRole") | &granted_by("Role")
}

/// Returns the permissions that its roles of one kind grant.
pub fn granted_by(kind: &str) -> Permissions {
    granted_in("artifacts/rbac/operator.yaml", kind)
}

/// Returns the permissions that a file's roles of one kind grant.
pub fn granted_in(file: &str, kind: &str) -> Permissions {
    let text = std::fs::read_to_string(file).unwrap();
    let roles = objects(&text).into_iter().filter(|object| object["kind"] == kind);
    roles.flat_map(|role| rights_in(&role["rules"])).collect()
}

/// The permissions that a role's rules grant.
pub fn rights_in(rules: &Value) -> Permissions {
    let words = |value: &Value| -> Vec<String> {
        let words = value.as_array().unwrap().iter();
        words.map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let mut all = Permissions::new();
    for rule in rules.as_array().unwrap() {
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                let permission = |verb| [group.clone(), resource.clone(), verb];
                all.extend(words(&rule["verbs"]).into_iter().map(permission));
            }
        }
    }
    all
}

/// Returns the operator's requests in this world according to the audit log; panics if one was
/// refused.
fn used(world: &World) -> Permissions {
    // Nodes are not namespaced: it asks for permission to list them.
    let is_used = |entry: &Entry| entry.by_operator && entry.resource != "nodes";
    let entries = Audit::from_start().of(world, &world.namespace, is_used);
    let permission = |entry: Entry| {
        assert_ne!(entry.code, 403, "{entry:?}");
        let resource = match entry.subresource.as_str() {
            "" => entry.resource,
            subresource => format!("{}/{subresource}", entry.resource),
        };
        [entry.group, resource, entry.verb]
    };
    entries.into_iter().map(permission).collect()
}

/// Gives the operator's ServiceAccount the permissions to its Lease in this namespace.
pub async fn bind_lease_roles(world: &World) {
    create_lease_roles(world).await;
    let role = ("Role", "workload-operator-leader-election");
    world.grant(role, (&world.namespace, NAME)).await;
}

/// An operator with leader election, with exactly the permissions from the artifacts.
pub async fn start_operator(world: &World) -> OperatorProcess {
    bind_lease_roles(world).await;
    let environment = [
        ("MEMCACHED_IMAGE", MEMCACHED_IMAGE),
        ("LEADER_ELECT", "true"),
        ("LEADER_ELECT_NAMESPACE", &world.namespace),
    ];
    let operator = world.start_operator_with(&environment).await;
    operator.logged("Ready to work").await;
    operator
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_used_permissions_are_granted() {
    let world = World::new("permissions-used", "baseline").await;
    foreign_children(&world).await;
    let operator = start_operator(&world).await;
    a_life_of_all_kinds(&world).await;
    assert_eq!(operator.terminate().await, Some(0));

    let unseen: Permissions = [CHECKED_IMPLICITLY, SELDOM]
        .concat()
        .iter()
        .map(|permission| permission.map(str::to_owned))
        .collect();
    let (granted, used) = (granted(), used(&world));
    assert!(unseen.is_subset(&granted), "not granted: {:?}", &unseen - &granted);
    let missing = &used - &granted;
    assert!(missing.is_empty(), "used and not granted: {missing:?}");
    let idle = &(&granted - &unseen) - &used;
    assert!(idle.is_empty(), "granted and not used: {idle:?}");
}

/// Makes the operator do everything once: it creates, restores, changes and deletes owned objects of each
/// kind, and encounters foreign ones.
pub async fn a_life_of_all_kinds(world: &World) {
    let daemon =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"image": "a:1", "label": "logs"}});
    let app = |name: &str| {
        json!({"metadata": {"name": name}, "spec":
            {"replicas": 1, "image": "a:1", "ports": [{"name": "web", "port": 80}]}})
    };
    for (kind, object) in [
        (MEMCACHED, memcached("one", 1)),
        (GENERIC_DAEMON, daemon("one-agent")),
        (APP, app("one-app")),
    ] {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        world.create(kind, object).await.unwrap();
        world.until(kind, &name, is_ready).await;
    }
    // An object with a name that another client uses is read, but not changed.
    for (kind, object) in [
        (MEMCACHED, memcached("taken", 1)),
        (GENERIC_DAEMON, daemon("taken")),
        (APP, app("taken-service")),
    ] {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        world.create(kind, object).await.unwrap();
        world.until_condition(kind, &name, "Ready", ("False", "ErrResourceExists")).await;
    }
    // The repeated Event is a patch of the first one.
    for replicas in ["7", "8"] {
        let argument = format!("--replicas={replicas}");
        world.kubectl(&["scale", "deployment", "one", &argument]).unwrap();
        world.until(DEPLOYMENT, "one", |d| d["spec"]["replicas"] == 1).await;
    }
    // The pods and Events of a daemon that no longer serves are listed.
    world.forbid("no-pods", "pods").await;
    let pods = world.list(POD).await;
    let of_daemon =
        pods.iter().find(|pod| pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet");
    world.delete(POD, of_daemon.unwrap()["metadata"]["name"].as_str().unwrap()).await;
    world.until_condition(GENERIC_DAEMON, "one-agent", "Ready", ("False", "ReplicaFailure")).await;
    let budget = |budget: Value| json!({"spec": {"podDisruptionBudget": budget}});
    world.patch(APP, "one-app", budget(json!({"maxUnavailable": 1}))).await.unwrap();
    world.until(BUDGET, "one-app", |_| true).await;
    world.patch(APP, "one-app", budget(Value::Null)).await.unwrap();
    world.until_gone(BUDGET, "one-app").await;
    world.patch(APP, "one-app", json!({"spec": {"ports": null}})).await.unwrap();
    world.until_gone(SERVICE, "one-app").await;
    world.delete(MEMCACHED, "one").await;
    world.until_gone(MEMCACHED, "one").await;
}

/// Foreign children with names that the operator needs.
pub async fn foreign_children(world: &World) {
    let labels = json!({"matchLabels": {"who": "else"}});
    let template = json!({"metadata": {"labels": {"who": "else"}},
        "spec": {"containers": [{"name": "a", "image": "a:1"}]}});
    let workload = json!({"metadata": {"name": "taken"},
        "spec": {"selector": labels, "template": template}});
    let service = json!({"metadata": {"name": "taken-service"}, "spec": {"ports": [{"port": 1}]}});
    let all: [(Kind, Value); 3] =
        [(DEPLOYMENT, workload.clone()), (DAEMON_SET, workload), (SERVICE, service)];
    for (kind, object) in all {
        world.create(kind, object).await.unwrap();
    }
}
