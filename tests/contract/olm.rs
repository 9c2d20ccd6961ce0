//! The OLM bundle: OLM installs it from a catalog, upgrades it, and installs it again after its removal.
//!
//! Both of OLM's operators and the catalog server run as processes outside the cluster, with one difference:
//! the catalog contains the bundle's objects, so no pod must unpack them from an image.

mod catalog;
mod programs;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use self::catalog::{NOT_YET, OLDER, OLDER_IMAGE, bundle, csv_of, name_of};
use self::programs::Programs;
use crate::control_plane::ControlPlane;
use crate::helm::{memcached_threads, runs};
use crate::operator_process::OperatorProcess;
use crate::packaging::{NAME, Permissions, SYSTEM, granted_by, granted_in, rights_in};
use crate::world::{Kind, MEMCACHED, MEMCACHED_IMAGE, Seen, World, is_ready, memcached};

/// OLM takes several seconds for each step.
const MAX_WAIT: Duration = Duration::from_secs(600);

const SHOP: &str = "shop";
const OPERATORS: &str = "operators.coreos.com";
const CATALOG_SOURCE: Kind = Kind::new(OPERATORS, "v1alpha1", "CatalogSource", "catalogsources");
const OPERATOR_GROUP: Kind = Kind::new(OPERATORS, "v1", "OperatorGroup", "operatorgroups");
const SUBSCRIPTION: Kind = Kind::new(OPERATORS, "v1alpha1", "Subscription", "subscriptions");
const INSTALL_PLAN: Kind = Kind::new(OPERATORS, "v1alpha1", "InstallPlan", "installplans");
const CSV: Kind =
    Kind::new(OPERATORS, "v1alpha1", "ClusterServiceVersion", "clusterserviceversions");

// === What an administrator does ===

/// OLM's CRDs, the namespace that the bundle suggests, and one for users.
fn prepare(plane: &ControlPlane, programs: &Programs, bundle: &[Value]) {
    plane.kubectl(&["apply", "--server-side", "-f", &programs.crds()]);
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=600s"]);
    let suggested = &csv_of(bundle)["metadata"]["annotations"]["operatorframework.io/suggested-namespace-template"];
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), suggested.as_str().unwrap()).unwrap();
    plane.kubectl(&["apply", "-f", file.path().to_str().unwrap()]);
    plane.kubectl(&["create", "namespace", SHOP]);
}

/// Waits until OLM assigns the OperatorGroup to this namespace, or to all (an empty name).
async fn until_it_is_for(world: &World, namespace: &str) {
    let is = |group: &Value| group["status"]["namespaces"] == json!([namespace]);
    world.until(OPERATOR_GROUP, "ours", is).await;
}

/// Without a version, subscribes to the newest.
async fn subscribe(world: &World, starting: Option<&str>) {
    let subscription = json!({"metadata": {"name": NAME}, "spec": {"name": NAME,
        "channel": "alpha", "source": "ours", "sourceNamespace": SYSTEM,
        "startingCSV": starting, "installPlanApproval": "Manual"}});
    world.create(SUBSCRIPTION, subscription).await.unwrap();
}

/// Approves the plan that installs this version and waits until OLM reports it as `Succeeded`.
async fn approve(world: &World, version: &str) {
    let plan_of = |subscription: &Value| -> Option<String> {
        let status = &subscription["status"];
        let plan = status["installPlanRef"]["name"].as_str()?;
        (status["currentCSV"] == version).then(|| plan.to_owned())
    };
    let offered = world.until(SUBSCRIPTION, NAME, |it| plan_of(it).is_some()).await;
    let approval = json!({"spec": {"approved": true}});
    let plan = world.patch(INSTALL_PLAN, &plan_of(&offered).unwrap(), approval).await.unwrap();
    assert_eq!(plan["spec"]["clusterServiceVersionNames"], json!([version]));
    // Its steps include the CRDs, which OLM can write after the version has succeeded.
    let plan = plan["metadata"]["name"].as_str().unwrap();
    world.until(INSTALL_PLAN, plan, |plan| plan["status"]["phase"] == "Complete").await;
    let csv = world.until(CSV, version, |csv| csv["status"]["phase"] == "Succeeded").await;
    for needed in csv["status"]["requirementStatus"].as_array().unwrap() {
        assert_eq!(needed["status"], "Present", "{needed}");
    }
}

/// Uninstalls in the order that OLM documents: first the Subscription, then the ClusterServiceVersion.
/// Returns once nothing of it is running and its ServiceAccount has no permissions left.
async fn uninstall(world: &World, version: &str) {
    let plane = world.plane();
    let mut made = vec![
        format!("deployment/{NAME}"),
        format!("serviceaccount/{NAME}"),
        format!("poddisruptionbudget/{NAME}"),
        format!("service/{NAME}-metrics"),
    ];
    for object in &made {
        plane.kubectl(&["get", object, "-n", SYSTEM]);
    }
    for kind in ["clusterrolebinding", "rolebinding"] {
        let bindings = bindings(plane, kind);
        made.extend(bindings.iter().map(|it| format!("{kind}/{}", name_of_binding(it))));
    }
    world.delete(SUBSCRIPTION, NAME).await;
    world.delete(CSV, version).await;
    for object in &made {
        plane.kubectl(&["wait", "--for=delete", object, "-n", SYSTEM, "--timeout=600s"]);
    }
}

// === What OLM made of it ===

fn get(plane: &ControlPlane, arguments: &[&str]) -> Option<Value> {
    let options = ["get", "-o=json", "--ignore-not-found"];
    let text = plane.kubectl(&[&options, arguments].concat());
    (!text.is_empty()).then(|| serde_json::from_str(&text).unwrap())
}

/// The bindings of this kind for the operator's ServiceAccount.
fn bindings(plane: &ControlPlane, kind: &str) -> Vec<Value> {
    let account = json!({"kind": "ServiceAccount", "name": NAME, "namespace": SYSTEM});
    let all = get(plane, &[kind, "--all-namespaces"]).unwrap();
    let names_it = |binding: &&Value| {
        binding["subjects"].as_array().into_iter().flatten().any(|subject| *subject == account)
    };
    all["items"].as_array().unwrap().iter().filter(names_it).cloned().collect()
}

fn name_of_binding(binding: &Value) -> &str {
    binding["metadata"]["name"].as_str().unwrap()
}

/// Returns the permissions that a binding grants, except those to OLM's own kinds.
fn granted_through(plane: &ControlPlane, binding: &Value) -> Permissions {
    let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default();
    let reference = &binding["roleRef"];
    let (kind, name) = (reference["kind"].as_str(), reference["name"].as_str());
    // A replaced release can have lost its role before its binding.
    let role = get(plane, &[kind.unwrap(), name.unwrap(), "-n", namespace]);
    let mut all = role.map_or_else(Permissions::new, |role| rights_in(&role["rules"]));
    all.retain(|[group, _, _]| group != OPERATORS);
    all
}

/// Returns the permissions that bindings of this kind grant to the operator's ServiceAccount.
fn bound(plane: &ControlPlane, kind: &str) -> Permissions {
    let bindings = bindings(plane, kind);
    bindings.iter().flat_map(|binding| granted_through(plane, binding)).collect()
}

/// The permissions of artifacts/rbac: in the cluster only what no namespace has, the rest in the namespaces of the
/// OperatorGroup.
fn the_rights_are_those_of_the_manifests(plane: &ControlPlane) {
    let (in_cluster, in_namespaces) = expected();
    assert_eq!(bound(plane, "clusterrolebinding"), in_cluster);
    assert_eq!(bound(plane, "rolebinding"), in_namespaces);
}

fn expected() -> (Permissions, Permissions) {
    let of_role = granted_by("Role");
    let all = granted_by("ClusterRole");
    let (in_cluster, in_namespaces): (Permissions, Permissions) =
        all.into_iter().partition(|[_, resource, _]| resource == "nodes");
    (&in_cluster | &of_metrics(), &in_namespaces | &of_role)
}

/// The permissions to ask who may read the metrics.
fn of_metrics() -> Permissions {
    granted_in("artifacts/rbac/metrics.yaml", "ClusterRole")
}

/// To an operator for all namespaces, OLM grants in all of them what it is granted in its own, plus
/// reading namespaces.
fn the_rights_are_those_and_what_olm_adds(plane: &ControlPlane, version: &str) {
    for binding in bindings(plane, "rolebinding") {
        let name = name_of_binding(&binding);
        if name.starts_with(version) && !granted_through(plane, &binding).is_empty() {
            let same = format!("clusterrolebinding/{name}");
            plane.kubectl(&["wait", "--for=create", &same, "--timeout=600s"]);
        }
    }
    let mut in_cluster = &(&granted_by("ClusterRole") | &granted_by("Role")) | &of_metrics();
    let read = ["get", "list", "watch"].map(|verb| ["", "namespaces", verb]);
    in_cluster.extend(read.map(|permission| permission.map(str::to_owned)));
    assert_eq!(bound(plane, "clusterrolebinding"), in_cluster);
    assert_eq!(bound(plane, "rolebinding"), expected().1);
}

/// Returns the running image, and its namespaces.
fn running(plane: &ControlPlane) -> [String; 2] {
    runs(plane, NAME, 1);
    let deployment = get(plane, &["deployment", NAME, "-n", SYSTEM]).unwrap();
    let template = &deployment["spec"]["template"];
    let told = &template["metadata"]["annotations"]["olm.targetNamespaces"];
    let image = &template["spec"]["containers"][0]["image"];
    [image, told].map(|value| value.as_str().unwrap().to_owned())
}

// === How it comes and goes ===

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn olm_installs_upgrades_removes_and_reinstalls_the_bundle() {
    let Some(programs) = Programs::find("that OLM installs the bundle") else { return };
    let bundle = bundle();
    let plane = ControlPlane::of_this_test(|| ControlPlane::bare("olm")).await;
    prepare(plane, &programs, &bundle);
    let olm = programs.start(plane, SYSTEM).await;
    let world = World::in_existing(plane, SYSTEM).await.patient(MAX_WAIT);
    let source = json!({"metadata": {"name": "ours"},
        "spec": {"sourceType": "grpc", "address": olm.catalog}});
    world.create(CATALOG_SOURCE, source).await.unwrap();
    world.create(OPERATOR_GROUP, json!({"metadata": {"name": "ours"}})).await.unwrap();
    until_it_is_for(&world, "").await;

    subscribe(&world, Some(OLDER)).await;
    approve(&world, OLDER).await;
    assert_eq!(running(plane), [OLDER_IMAGE, ""]);
    assert_eq!(memcached_threads(plane), "");
    assert!(!bound(plane, "clusterrolebinding").contains(&NOT_YET.map(str::to_owned)));
    let shop = World::in_existing(plane, SHOP).await.patient(MAX_WAIT);
    shop.create(MEMCACHED, memcached("cart", 1)).await.unwrap();

    let (version, image) = (name_of(&bundle), image_of(&bundle));
    the_older_one_is_replaced_by(&world, version).await;
    assert_eq!(running(plane), [image, ""]);
    assert_eq!(memcached_threads(plane), "integer");
    the_rights_are_those_and_what_olm_adds(plane, version);

    // Objects of users outlive it.
    uninstall(&world, version).await;
    assert_eq!(memcached_threads(plane), "integer");
    assert!(shop.get(MEMCACHED, "cart").await.is_some());

    // In a single namespace: what OLM grants and passes to it is enough to work.
    let one = json!({"spec": {"targetNamespaces": [SHOP]}});
    world.patch(OPERATOR_GROUP, "ours", one).await.unwrap();
    until_it_is_for(&world, SHOP).await;
    subscribe(&world, None).await;
    approve(&world, version).await;
    assert_eq!(running(plane), [image, SHOP]);
    the_rights_are_those_of_the_manifests(plane);
    it_serves(&world, &shop).await;
}

fn image_of(bundle: &[Value]) -> &str {
    csv_of(bundle)["metadata"]["annotations"]["containerImage"].as_str().unwrap()
}

async fn the_older_one_is_replaced_by(world: &World, version: &str) {
    let (opened, phases) = (Arc::new(Notify::new()), Arc::new(Mutex::new(Vec::new())));
    let (opens, sees) = (opened.clone(), phases.clone());
    let watch = tokio::spawn(world.each_change(CSV, move |seen| match seen {
        Seen::Opened => opens.notify_one(),
        Seen::Is(csv) if csv["metadata"]["name"] == OLDER => {
            sees.lock().push(csv["status"]["phase"].clone());
        }
        Seen::Is(_) => {}
    }));
    opened.notified().await;
    approve(world, version).await;
    world.until_gone(CSV, OLDER).await;
    watch.abort();
    let phases = phases.lock().clone();
    assert!(phases.contains(&json!("Replacing")), "{phases:?}");
}

/// The shipped program, as the ServiceAccount that OLM created, with the settings from OLM's
/// Deployment.
async fn it_serves(world: &World, shop: &World) {
    let kubeconfig = world.operator_kubeconfig().await;
    let environment = [
        ("MEMCACHED_IMAGE", MEMCACHED_IMAGE),
        ("WATCH_NAMESPACE", SHOP),
        ("LEADER_ELECT_NAMESPACE", SYSTEM),
    ];
    let operator = OperatorProcess::start(&kubeconfig, &["--leader-elect"], &environment);
    shop.until(MEMCACHED, "cart", is_ready).await;
    assert_eq!(operator.terminate().await, Some(0));
}
