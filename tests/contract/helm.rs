//! The Helm chart: helm renders the same objects as kustomize, and it installs, upgrades and uninstalls as
//! promised.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::operator_process::OperatorProcess;
use crate::packaging::{
    NAME, SYSTEM, names, objects, prometheus_operators_kinds, what_finds_the_pods_finds_them,
};
use crate::unchecked::{built_by, not_checked};
use crate::world::{MEMCACHED, MEMCACHED_IMAGE, World, is_ready};

const CHART: &str = "artifacts/helm/workload-operator";

/// The labels that helm's conventions require in addition to those from kustomize.
const HELM_LABELS: [&str; 4] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
];

/// A helm with its own directories.
struct Helm {
    program: PathBuf,
    home: tempfile::TempDir,
}

// === impl Helm ===

impl Helm {
    /// `None`, and a line that no test harness swallows, if there is neither helm nor Go.
    fn find(unchecked: &str) -> Option<Helm> {
        let program = built_by("hack/helm.sh", unchecked)?;
        Some(Helm { program, home: tempfile::tempdir().unwrap() })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for folder in ["CACHE", "CONFIG", "DATA"] {
            command.env(format!("HELM_{folder}_HOME"), self.home.path().join(folder));
        }
        command.env_remove("KUBECONFIG");
        command
    }

    /// The command with these arguments. The chart asks for the image that artifacts/default has.
    fn with(&self, arguments: &[&str]) -> Command {
        let mut command = self.command();
        command.args(arguments);
        let renders = |argument: &&str| ["template", "install", "upgrade"].contains(argument);
        if arguments.iter().any(renders) {
            command.args(IMAGE);
        }
        command
    }

    /// Returns Helm 3, if it was built in addition to Helm 4.
    fn three(&self) -> Option<Helm> {
        let program = self.program.with_file_name("helm3");
        if !program.is_file() {
            not_checked(
                "the chart with Helm 3",
                "hack/helm.sh build makes helm3, and this helm is another",
            );
            return None;
        }
        Some(Helm { program, home: tempfile::tempdir().unwrap() })
    }

    /// `Err` is what it prints if it fails.
    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.with(arguments).output().unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    fn template(&self, arguments: &[&str]) -> Result<Vec<Value>, String> {
        // Without the pod of `helm test`.
        let mut all = vec!["template", NAME, CHART, "--namespace", SYSTEM, "--no-hooks"];
        all.extend(arguments);
        let made = objects(&self.run(&all)?);
        Ok(made.into_iter().filter(|object| !object.is_null()).collect())
    }

    /// Runs it on a control plane; panics if it fails.
    fn on(&self, plane: &ControlPlane, arguments: &[&str]) -> String {
        self.try_on(plane, arguments)
            .unwrap_or_else(|stderr| panic!("helm {}: {stderr}", arguments.join(" ")))
    }

    fn try_on(&self, plane: &ControlPlane, arguments: &[&str]) -> Result<String, String> {
        let kubeconfig = plane.kubeconfig().to_str().unwrap();
        let mut all = vec!["--kubeconfig", kubeconfig, "--namespace", SYSTEM];
        all.extend(arguments);
        self.run(&all)
    }
}

// === What it renders ===

/// The objects without what only helm adds, by `Kind namespace/name`.
fn comparable(all: Vec<Value>) -> BTreeMap<String, Value> {
    let mut compared = BTreeMap::new();
    for mut object in all {
        without_helm_labels(&mut object);
        if object["kind"] == "CustomResourceDefinition" {
            let meta = object["metadata"].as_object_mut().unwrap();
            meta.remove("labels");
            meta.remove("annotations");
        }
        let name = names(std::slice::from_ref(&object)).pop_first().unwrap();
        assert!(compared.insert(name.clone(), object).is_none(), "{name} twice");
    }
    compared
}

/// Removes the labels that distinguish a release from the alerts, because other releases can have the same
/// name.
fn without_release(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(without_release),
        Value::Object(map) => map.values_mut().for_each(without_release),
        Value::String(text) => {
            let own = format!(r#"job="{NAME}",namespace="{SYSTEM}""#);
            *text = text.replace(&own, &format!(r#"job="{NAME}""#));
            let flags = format!(" --operator-namespace={SYSTEM} --operator-name={NAME}");
            *text = text.replace(&flags, "");
        }
        _ => {}
    }
}

fn without_helm_labels(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(without_helm_labels),
        Value::Object(map) => {
            map.retain(|key, _| !HELM_LABELS.contains(&key.as_str()));
            map.values_mut().for_each(without_helm_labels);
        }
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_renders_the_objects_of_each_overlay() {
    let Some(helm) = Helm::find("that the chart renders what the overlays are") else { return };
    let plane = tokio::task::spawn_blocking(ControlPlane::shared).await.unwrap();
    for (overlay, values) in [
        ("artifacts/default", ""),
        ("artifacts/overlays/high-availability", "replicas=2"),
        (
            "artifacts/overlays/with-prometheus",
            "metrics.serviceMonitor.enabled=true,metrics.monitoring.enabled=true,\
             memcachedMonitoring.enabled=true",
        ),
        ("artifacts/overlays/namespaced", "namespaced=true"),
        (
            "artifacts/overlays/metrics-over-tls",
            "metrics.tls.enabled=true,metrics.serviceMonitor.enabled=true,metrics.monitoring.enabled=true",
        ),
    ] {
        let mut built = comparable(objects(&plane.kubectl(&["kustomize", overlay])));
        // Helm creates the namespace itself, with --create-namespace.
        built.remove(&format!("Namespace /{SYSTEM}")).unwrap();
        let mut rendered = comparable(helm.template(&["--set", values]).unwrap());
        if let Some(rule) = rendered.get_mut(&format!("PrometheusRule {SYSTEM}/{NAME}")) {
            let made = rule.to_string();
            without_release(rule);
            assert_ne!(made, rule.to_string(), "its alerts are of this release only");
        }
        let keys = |all: &BTreeMap<String, Value>| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&rendered), keys(&built), "{overlay}");
        for (name, object) in &built {
            assert_eq!(&rendered[name], object, "{overlay}: {name}");
        }
    }
}

#[test]
fn the_alerts_of_a_release_are_about_its_own_job() {
    let Some(helm) = Helm::find("the alerts of a release") else { return };
    let values = "metrics.serviceMonitor.enabled=true,metrics.monitoring.enabled=true";
    let made =
        helm.run(&["template", "one", CHART, "--namespace", "team", "--set", values]).unwrap();
    let rule =
        objects(&made).into_iter().find(|object| object["kind"] == "PrometheusRule").unwrap();
    let rules = rule["spec"]["groups"][0]["rules"].as_array().unwrap();
    assert!(rules.len() > 10, "{rule}");
    for alert in rules {
        let expression = alert["expr"].as_str().unwrap();
        let jobs = expression.matches("job=").count();
        let own = r#"job="workload-operator",namespace="team""#;
        assert!(jobs > 0 && expression.matches(own).count() == jobs, "{expression}");
    }
}

#[test]
fn helm_lint_accepts_the_chart() {
    let Some(helm) = Helm::find("helm lint") else { return };
    for values in [
        "replicas=1",
        "memcachedMonitoring.enabled=true",
        "namespaced=true",
        "metrics.enabled=false",
        "metrics.tls.enabled=true",
        "metrics.secure=false,metrics.serviceMonitor.enabled=true",
        "namespaced=true,metrics.serviceMonitor.enabled=true",
    ] {
        helm.run(&["lint", "--strict", CHART, "--set", values]).unwrap();
    }
}

/// This holds for any flags: a binding to a missing role grants nothing, silently.
#[test]
fn every_role_that_is_bound_is_rendered() {
    let Some(helm) = Helm::find("that bound roles are rendered") else { return };
    for values in
        ["rbac.userRoles=false", "rbac.create=false", "namespaced=true", "metrics.secure=false"]
    {
        let values = format!("{values},metrics.serviceMonitor.enabled=true");
        let all = helm.template(&["--set", &values]).unwrap();
        let role = |kind: &Value, name: &Value| {
            all.iter().any(|o| &o["kind"] == kind && &o["metadata"]["name"] == name)
        };
        for bound in all.iter().map(|object| &object["roleRef"]).filter(|role| role.is_object()) {
            assert!(role(&bound["kind"], &bound["name"]), "{values}: {bound}");
        }
    }
}

#[test]
fn unknown_and_invalid_chart_values_are_refused() {
    let Some(helm) = Helm::find("that the chart refuses wrong values") else { return };
    for (wrong, named) in [
        ("replica=2", "replica"),
        ("replicas=-1", "replicas"),
        ("image.digest=latest", "digest"),
        ("metrics.port=8081", "port"),
        ("metrics.tls.secret=No Name", "secret"),
        ("metrics.serviceMonitor.interval=often", "interval"),
        ("watchNamespaces={shop}", "namespaced"),
        ("serviceAccount.create=false", "serviceAccount"),
        ("crds.keep=perhaps", "keep"),
        ("networkPolicy.apiServerPorts={}", "apiServerPorts"),
        ("extraVolumeMounts[0].name=ca", "mountPath"),
    ] {
        let refused = helm.template(&["--set", wrong]).unwrap_err();
        assert!(refused.contains(named) && refused.contains("schema"), "{wrong}: {refused}");
    }
}

#[test]
fn disabled_objects_are_not_rendered_or_referenced() {
    let Some(helm) = Helm::find("what the chart's switches do") else { return };
    let kinds = |values: &[&str]| {
        let arguments: Vec<_> = values.iter().flat_map(|value| ["--set", value]).collect();
        helm.template(&arguments).unwrap()
    };
    let bare = kinds(&[
        "crds.enabled=false",
        "rbac.create=false",
        "rbac.userRoles=false",
        "serviceAccount.create=false",
        "serviceAccount.name=other",
        "genericDaemonPolicy.enabled=false",
        "appPolicy.enabled=false",
        "memcachedPolicy.enabled=false",
        "childrenPolicy.enabled=false",
        "metrics.enabled=false",
        "metrics.serviceMonitor.enabled=true",
        "metrics.tls.enabled=true",
        "podDisruptionBudget.enabled=false",
        "networkPolicy.enabled=false",
    ]);
    let [deployment] = &bare[..] else { panic!("more than a Deployment: {:?}", names(&bare)) };
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "other");
    let container = &pod["containers"][0];
    assert_eq!(container["ports"], json!([{"name": "health", "containerPort": 8081}]));
    assert!(container["args"].as_array().unwrap().contains(&json!("--metrics-bind-address=0")));

    let whole = kinds(&["appPolicy.wholeSpec=true"]);
    let policy = whole.iter().find(|object| {
        let name = object["metadata"]["name"].as_str().unwrap();
        object["kind"] == "ValidatingAdmissionPolicy" && name.ends_with("-app")
    });
    assert_eq!(policy.expect("an App's policy")["spec"]["variables"][0]["expression"], "true");

    let large = kinds(&["crds.memcachedMaxSize=8"]);
    let crd =
        large.iter().find(|o| o["metadata"]["name"] == "memcacheds.cache.example.com").unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert_eq!(schema["properties"]["size"]["maximum"], 8);

    let narrow = kinds(&[
        "networkPolicy.apiServerCIDRs={10.0.0.1/32}",
        "networkPolicy.extraEgress[0].ports[0].port=3128",
    ]);
    let policy = narrow.iter().find(|object| object["kind"] == "NetworkPolicy").unwrap();
    let egress = policy["spec"]["egress"].as_array().unwrap();
    assert_eq!(egress[1]["to"], json!([{"ipBlock": {"cidr": "10.0.0.1/32"}}]));
    assert_eq!(egress[2], json!({"ports": [{"port": 3128}]}), "a proxy");

    let quiet = kinds(&["metrics.enabled=false"]);
    let policy = quiet.iter().find(|object| object["kind"] == "NetworkPolicy").unwrap();
    assert_eq!(policy["spec"].get("ingress"), None, "nobody may come in");

    for (kept, policy) in [("true", Some("keep")), ("false", None)] {
        let all = kinds(&[&format!("crds.keep={kept}")]);
        let crds = all.iter().filter(|object| object["kind"] == "CustomResourceDefinition");
        let policies: Vec<_> = crds
            .map(|crd| crd["metadata"]["annotations"]["helm.sh/resource-policy"].as_str())
            .collect();
        assert_eq!(policies, [policy; 3]);
    }
}

#[test]
fn given_labels_of_scrapers_replace_the_default() {
    let Some(helm) = Helm::find("the labels of namespaces that may scrape") else { return };
    let values = "networkPolicy.metricsNamespaceLabels.team=metrics";
    let all = helm.template(&["--set", values]).unwrap();
    let policy = all.iter().find(|object| object["kind"] == "NetworkPolicy").unwrap();
    let scrapers = &policy["spec"]["ingress"][0]["from"][0]["namespaceSelector"];
    assert_eq!(scrapers, &json!({"matchLabels": {"team": "metrics"}}));
}

#[test]
fn extra_volumes_are_mounted_next_to_the_certificate() {
    let Some(helm) = Helm::find("the chart's extra volumes") else { return };
    let extra = "extraVolumes[0].name=ca,extraVolumes[0].configMap.name=collector-ca,\
                 extraVolumeMounts[0].name=ca,extraVolumeMounts[0].mountPath=/ca";
    for (certificate, count) in [(false, 1), (true, 2)] {
        let values = format!("{extra},metrics.tls.enabled={certificate}");
        let all = helm.template(&["--set", &values]).unwrap();
        let deployment = all.iter().find(|object| object["kind"] == "Deployment").unwrap();
        let pod = &deployment["spec"]["template"]["spec"];
        let volumes = pod["volumes"].as_array().unwrap();
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        assert_eq!((volumes.len(), mounts.len()), (count, count));
        let volume = json!({"name": "ca", "configMap": {"name": "collector-ca"}});
        assert_eq!(volumes.last(), Some(&volume));
        assert_eq!(mounts.last(), Some(&json!({"name": "ca", "mountPath": "/ca"})));
    }
}

#[test]
fn two_releases_share_no_object_and_no_selector() {
    let Some(helm) = Helm::find("that two releases of the chart share nothing") else { return };
    let render = |release: &str| {
        let fixed = ["template", release, CHART, "--namespace", SYSTEM];
        let values = ["--set", "crds.enabled=false,metrics.tls.enabled=true"];
        let mut all = objects(&helm.run(&[&fixed[..], &values].concat()).unwrap());
        all.retain(|object| !object.is_null());
        all
    };
    let (one, other) = (render("one"), render("other"));
    assert!(names(&one).is_disjoint(&names(&other)), "{:?}", names(&one));
    let selector = |all: &[Value]| {
        let deployment = all.iter().find(|object| object["kind"] == "Deployment").unwrap();
        deployment["spec"]["selector"].clone()
    };
    assert_ne!(selector(&one), selector(&other));
}

#[test]
fn the_chart_requires_the_operators_image() {
    let Some(helm) = Helm::find("that the chart asks for an image") else { return };
    let output = helm.command().args(["template", NAME, CHART]).output().unwrap();
    let refused = String::from_utf8_lossy(&output.stderr);
    assert!(refused.contains("image.repository: "), "{refused}");
}

#[test]
fn helm_3_renders_the_same_objects() {
    let Some(helm) = Helm::find("the chart with Helm 3") else { return };
    let Some(three) = helm.three() else { return };
    let rich = "metrics.serviceMonitor.enabled=true,metrics.monitoring.enabled=true,memcachedMonitoring.enabled=true,replicas=2";
    for values in ["replicas=1", rich, "namespaced=true"] {
        let values = ["--set", values];
        assert_eq!(three.template(&values).unwrap(), helm.template(&values).unwrap(), "{values:?}");
    }
}

// === How it comes and goes ===

/// An older version of the chart, whose Memcached had no number of threads.
fn older_chart(folder: &Path) -> String {
    let chart = folder.join("older");
    let copied = Command::new("cp").arg("-rL").arg(CHART).arg(&chart).status().unwrap();
    assert!(copied.success());
    edit(&chart.join("Chart.yaml"), |chart| chart["version"] = json!("0.0.1"));
    let crd = chart.join("manifests/crds/cache.example.com_memcacheds.yaml");
    edit(&crd, |crd| {
        let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let fields = schema["properties"]["spec"]["properties"].as_object_mut().unwrap();
        fields.remove("threads").unwrap();
    });
    chart.to_str().unwrap().to_owned()
}

fn edit(file: &Path, change: impl Fn(&mut Value)) {
    let text = std::fs::read_to_string(file).unwrap();
    let mut value: Value = serde_yaml_ng::from_str(&text).unwrap();
    change(&mut value);
    std::fs::write(file, serde_yaml_ng::to_string(&value).unwrap()).unwrap();
}

fn there_is(plane: &ControlPlane, what: &str) -> bool {
    let arguments = ["get", what, "-n", SYSTEM, "--ignore-not-found", "-o=name"];
    !plane.kubectl(&arguments).trim().is_empty()
}

fn memcached_threads(plane: &ControlPlane) -> String {
    let path = ".spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.threads.type";
    let output = format!("-o=jsonpath={{{path}}}");
    plane.kubectl(&["get", "crd", "memcacheds.cache.example.com", &output])
}

fn prepare(plane: &ControlPlane, folder: &Path) {
    let file = folder.join("prepared.json");
    let namespace = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name,
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
    };
    let kinds = prometheus_operators_kinds();
    let items: Vec<Value> =
        kinds.into_iter().chain([namespace(SYSTEM), namespace("shop")]).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    std::fs::write(&file, list.to_string()).unwrap();
    plane.kubectl(&["apply", "--server-side", "-f", file.to_str().unwrap()]);
    plane.until_established("--all");
}

/// Waits until the requested pods of the release are available under `restricted`.
fn runs(plane: &ControlPlane, deployment: &str, replicas: usize) {
    let deployment = format!("deployment/{deployment}");
    plane.kubectl(&["rollout", "status", &deployment, "-n", SYSTEM, "--timeout=300s"]);
    let available = "-o=jsonpath={.status.availableReplicas}";
    let available = plane.kubectl(&["get", &deployment, "-n", SYSTEM, available]);
    assert_eq!(available, replicas.to_string());
}

const IMAGE: [&str; 2] = ["--set", "image.repository=workload-operator"];
const INSTALL: [&str; 4] = ["install", NAME, CHART, "--wait"];
const UPGRADE: [&str; 4] = ["upgrade", NAME, CHART, "--wait"];
/// Without `--wait`, which in Helm 4 can miss the deletion of an object (helm/helm#31766).
const UNINSTALL: [&str; 2] = ["uninstall", NAME];
const SHOP: &str = "namespaced=true,watchNamespaces={shop}";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn the_chart_is_installed_upgraded_uninstalled_and_installed_again() {
    let Some(helm) = Helm::find("that the chart can be installed and upgraded") else { return };
    let plane = ControlPlane::of_this_test(|| ControlPlane::bare("helm")).await;
    let folder = tempfile::tempdir().unwrap();
    prepare(plane, folder.path());

    // An older release's CRDs are upgraded with the chart.
    let older = older_chart(folder.path());
    helm.on(plane, &["install", NAME, &older, "--wait", "--timeout=300s"]);
    assert_eq!(memcached_threads(plane), "");
    helm.on(plane, &[&UPGRADE[..], &["--timeout=300s"]].concat());
    assert_eq!(memcached_threads(plane), "integer");
    runs(plane, NAME, 1);

    let values = "replicas=2,metrics.serviceMonitor.enabled=true,\
                  metrics.monitoring.enabled=true";
    helm.on(plane, &[&UPGRADE[..], &["--timeout=300s", "--set", values]].concat());
    runs(plane, NAME, 2);
    what_finds_the_pods_finds_them(plane, "with-prometheus", 2);

    // In a single namespace, without cluster-wide permissions, which suffices for its work.
    assert!(there_is(plane, "clusterrole/workload-operator"));
    helm.on(plane, &[&UPGRADE[..], &["--timeout=300s", "--reset-values", "--set", SHOP]].concat());
    assert!(!there_is(plane, "clusterrole/workload-operator"));
    assert!(!there_is(plane, "servicemonitor/workload-operator"));
    a_memcached_is_served(plane).await;

    // Objects of users outlive the release.
    let shops = || plane.kubectl(&["get", "memcached/cart", "-n", "shop", "-o=name"]);
    helm.on(plane, &UNINSTALL);
    nothing_but_crds_is_left(&helm, plane);
    shops();
    helm.on(plane, &[&INSTALL[..], &["--timeout=300s"]].concat());
    runs(plane, NAME, 1);
    helm.on(plane, &UNINSTALL);

    if let Some(three) = helm.three() {
        let again = ["install", NAME, CHART, "--wait", "--timeout=300s", "--take-ownership"];
        three.on(plane, &again);
        runs(plane, NAME, 1);
        three.on(
            plane,
            &["upgrade", NAME, CHART, "--wait", "--timeout=300s", "--set", "replicas=2"],
        );
        runs(plane, NAME, 2);
        three.on(plane, &UNINSTALL);
        shops();
    }

    // A release of another name must explicitly take them over.
    let other = ["install", "other", CHART, "--wait", "--timeout=300s"];
    let refused = helm.try_on(plane, &other).unwrap_err();
    assert!(refused.contains("ownership"), "{refused}");
    let without = ["--take-ownership", "--set", "crds.keep=false"];
    helm.on(plane, &[&other[..], &without].concat());
    runs(plane, "other-workload-operator", 1);
    shops();

    // Unless the CRDs are not kept.
    finalizer_away(plane);
    helm.on(plane, &["uninstall", "other"]);
    plane.kubectl(&["wait", "--for=delete", "-f", "artifacts/crds/", "--timeout=300s"]);
}

/// The operator serves, with the release's permissions, in its namespace.
async fn a_memcached_is_served(plane: &'static ControlPlane) {
    let system = World::in_existing(plane, SYSTEM).await;
    let shop = World::in_existing(plane, "shop").await;
    let kubeconfig = system.operator_kubeconfig().await;
    let environment = [("MEMCACHED_IMAGE", MEMCACHED_IMAGE), ("LEADER_ELECT_NAMESPACE", SYSTEM)];
    let flags = ["--namespace", "shop", "--leader-elect"];
    let operator = OperatorProcess::start(&kubeconfig, &flags, &environment);
    let cart = json!({"metadata": {"name": "cart"}, "spec": {"size": 1}});
    shop.create(MEMCACHED, cart).await.unwrap();
    shop.until(MEMCACHED, "cart", is_ready).await;
    assert_eq!(operator.terminate().await, Some(0));
}

fn nothing_but_crds_is_left(helm: &Helm, plane: &ControlPlane) {
    for object in helm.template(&[]).unwrap() {
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        let what = format!("{}/{}", kind.as_str().unwrap(), name.as_str().unwrap());
        let left = kind == "CustomResourceDefinition";
        assert_eq!(there_is(plane, &what), left, "{what}");
    }
}

/// No running operator would remove it.
fn finalizer_away(plane: &ControlPlane) {
    let patch = r#"{"metadata": {"finalizers": null}}"#;
    plane.kubectl(&["patch", "memcached/cart", "-n", "shop", "--type=merge", "-p", patch]);
}
