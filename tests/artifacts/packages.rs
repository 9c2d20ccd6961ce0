//! The Helm chart and the OLM bundle agree with the manifests that kustomize builds from.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Value, json};

const CHART: &str = "artifacts/helm/workload-operator";
const BUNDLE: &str = "artifacts/olm";
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    std::fs::read_to_string(&path).unwrap_or_default()
}

fn yaml(file: &str) -> Value {
    serde_yaml_ng::from_str(&read(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn documents(file: &str) -> Vec<Value> {
    let text = read(file);
    let all = serde_yaml_ng::Deserializer::from_str(&text);
    all.map(|document| Value::deserialize(document).unwrap()).collect()
}

/// The only object of a kind in artifacts/rbac/operator.yaml.
fn of_operator(kind: &str) -> Value {
    let mut all = documents("artifacts/rbac/operator.yaml");
    all.retain(|object| object["kind"] == kind);
    all.pop().unwrap()
}

/// Checks that the file has this text; with `UPDATE_ARTIFACTS=1` writes it first.
pub(crate) fn is_or_becomes(file: &str, text: &str) {
    if std::env::var_os("UPDATE_ARTIFACTS").is_some() && read(file) != text {
        // Written atomically, because another test can read the file at the same time.
        let whole = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::write(whole.path(), text).unwrap();
        std::fs::set_permissions(whole.path(), Permissions::from_mode(0o644)).unwrap();
        whole.persist(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    }
    assert!(read(file) == text, "{file} is out of date: run hack/update-codegen.sh");
}

pub(crate) fn names_in(folder: impl AsRef<Path>) -> BTreeSet<String> {
    let entries = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
    let name = |entry: Result<std::fs::DirEntry, _>| entry.unwrap().file_name();
    entries.map(|entry| name(entry).into_string().unwrap()).collect()
}

// === The chart ===

/// Helm follows links; hack/release.sh packs files in their place.
#[test]
fn the_chart_links_to_the_manifests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap();
    let folder = root.join(CHART).join("manifests");
    let crds = names_in(folder.join("crds"));
    let expected: BTreeSet<_> = crate::crd_files().into_iter().map(|(name, _)| name).collect();
    assert_eq!(crds, expected);
    let crds = crds.into_iter().map(|name| format!("crds/{name}"));
    for name in names_in(&folder).into_iter().filter(|name| name != "crds").chain(crds) {
        let link = folder.join(name);
        assert!(link.read_link().is_ok_and(|target| target.is_relative()), "{link:?} is no link");
        let target = link.canonicalize().unwrap();
        assert!(target.is_file() && target.starts_with(root.join("artifacts")), "{target:?}");
        assert!(!target.starts_with(root.join(CHART)), "{target:?}");
    }
}

#[test]
fn chart_and_bundle_have_the_version_of_the_program() {
    let chart = yaml(&format!("{CHART}/Chart.yaml"));
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(VERSION), &json!(VERSION)));
    let csv = service_version();
    assert_eq!(csv["spec"]["version"], VERSION);
    assert_eq!(csv["metadata"]["name"], format!("workload-operator.v{VERSION}"));
}

/// `values.yaml` shows exactly what the schema knows.
#[test]
fn the_values_of_the_chart_match_its_schema() {
    let schema: Value =
        serde_json::from_str(&read(&format!("{CHART}/values.schema.json"))).unwrap();
    let mut known = BTreeSet::new();
    closed(&schema, "", &mut known);
    // Helm's own values, the one that a parent chart's condition names, and one that only some resources
    // have.
    for free in ["global", "enabled", "resources.claims"] {
        assert!(known.remove(free), "{free}");
    }
    let mut shown = BTreeSet::new();
    keys(&yaml(&format!("{CHART}/values.yaml")), &schema, "", &mut shown);
    assert_eq!(known, shown);
}

#[test]
fn a_broken_operator_pod_blocks_no_drain() {
    let budget = yaml("artifacts/default/pod-disruption-budget.yaml");
    assert_eq!(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow");
}

/// Collects the fields of an object that allows no others.
fn closed(schema: &Value, path: &str, into: &mut BTreeSet<String>) {
    let Some(fields) = schema["properties"].as_object() else { return };
    assert_eq!(schema["additionalProperties"], false, "{path:?} takes what it does not know");
    for (name, field) in fields {
        let path = format!("{path}{name}");
        closed(field, &format!("{path}."), into);
        into.insert(path);
    }
}

fn keys(values: &Value, schema: &Value, path: &str, into: &mut BTreeSet<String>) {
    for (name, value) in values.as_object().into_iter().flatten() {
        let path = format!("{path}{name}");
        let field = &schema["properties"][name];
        // A map with arbitrary keys has no known fields.
        if field.get("properties").is_some() {
            keys(value, field, &format!("{path}."), into);
        }
        into.insert(path);
    }
}

// === The bundle ===

const CSV: &str = "manifests/workload-operator.clusterserviceversion.yaml";

/// Writes the bundle with the date 1970, by hack/bundle.sh.
pub(crate) fn write_bundle(folder: &Path, image: &[&str]) {
    let mut script = std::process::Command::new("hack/bundle.sh");
    let written = script.arg(folder).args(image).env("SOURCE_DATE_EPOCH", "0").status();
    assert!(written.unwrap().success(), "hack/bundle.sh");
}

/// Returns one bundle for all tests that only read it, because cargo can delay each run of the script.
fn bundle() -> &'static Path {
    static WRITTEN: LazyLock<&Path> = LazyLock::new(|| {
        let folder = Path::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/bundle"));
        write_bundle(folder, &[]);
        folder
    });
    &WRITTEN
}

fn service_version() -> Value {
    yaml(bundle().join(CSV).to_str().unwrap())
}

/// The only deployment that the bundle installs.
fn installed() -> Value {
    service_version()["spec"]["install"]["spec"]["deployments"][0].take()
}

pub(crate) fn crds() -> Vec<Value> {
    let crd = |(_, text): &(String, String)| serde_yaml_ng::from_str(text).unwrap();
    crate::crd_files().iter().map(crd).collect()
}

#[test]
fn the_bundle_installs_the_deployment_and_permissions_of_the_manifests() {
    let csv = service_version();
    let install = &csv["spec"]["install"]["spec"];
    let deployment = yaml("artifacts/default/deployment.yaml");
    let installed = installed();
    assert_eq!(installed["label"], deployment["metadata"]["labels"]);
    let mut spec = installed["spec"].clone();
    let variables = &mut spec["template"]["spec"]["containers"][0]["env"];
    let last = variables.as_array_mut().unwrap().pop().unwrap();
    let path = "metadata.annotations['olm.targetNamespaces']";
    let namespaces = json!({"fieldRef": {"fieldPath": path}});
    assert_eq!(last, json!({"name": "WATCH_NAMESPACE", "valueFrom": namespaces}));
    let mut wanted = deployment["spec"].clone();
    let arguments = wanted["template"]["spec"]["containers"][0]["args"].as_array_mut().unwrap();
    arguments.retain(|argument| argument != "--allow-templates"); // OLM installs no policies.
    assert_eq!(spec, wanted);

    let granted = |field: &str| {
        let [one] = &install[field].as_array().unwrap()[..] else { panic!("{field}") };
        assert_eq!(one["serviceAccountName"], spec["template"]["spec"]["serviceAccountName"]);
        one["rules"].as_array().unwrap()
    };
    let rules = |object: Value| object["rules"].as_array().unwrap().clone();
    let (mut in_cluster, mut in_namespaces): (Vec<_>, Vec<_>) = rules(of_operator("ClusterRole"))
        .into_iter()
        .partition(|rule| rule["resources"] == json!(["nodes"]));
    in_cluster.extend(rules(documents("artifacts/rbac/metrics.yaml").swap_remove(0)));
    in_namespaces.extend(rules(of_operator("Role")));
    assert_eq!(granted("clusterPermissions"), &in_cluster);
    assert_eq!(granted("permissions"), &in_namespaces);
}

#[test]
fn the_bundle_shows_examples_and_describes_each_field() {
    let csv = service_version();
    let examples = csv["metadata"]["annotations"]["alm-examples"].as_str().unwrap();
    let files = ["memcached", "syslog", "nginx-app"];
    let expected = files.map(|name| yaml(&format!("artifacts/examples/{name}.yaml")));
    assert_eq!(serde_json::from_str::<Value>(examples).unwrap(), json!(expected));
    for crd in crds() {
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"] {
            let described = owned(&csv, &crd)[format!("{part}Descriptors")].as_array().unwrap();
            let fields = schema[part]["properties"].as_object().unwrap();
            assert_eq!(described.len(), fields.len());
            for (one, (path, field)) in described.iter().zip(fields) {
                assert_eq!(&one["path"], path);
                let words = field["description"].as_str().unwrap().replace('\n', " ");
                assert_eq!(one["description"], words);
                let title = one["displayName"].as_str().unwrap();
                assert_eq!(title.replace(' ', "").to_lowercase(), path.to_lowercase());
            }
        }
    }
}

#[test]
fn the_image_of_a_bundle_is_in_every_place() {
    let folder = tempfile::tempdir().unwrap();
    let image = "registry/image:1";
    let default = yaml("artifacts/default/deployment.yaml");
    let default = &default["spec"]["template"]["spec"]["containers"][0]["image"];
    write_bundle(folder.path(), &[image]);
    let [written, other] = [folder.path(), bundle()].map(|folder| folder.join(CSV));
    let [written, other] = [written, other].map(|file| read(file.to_str().unwrap()));
    assert_eq!(written, other.replace(default.as_str().unwrap(), image));
}

#[test]
fn the_bundle_contains_exactly_the_objects_of_the_manifests() {
    let written = names_in(bundle().join("manifests")).into_iter().map(|name| {
        let text = std::fs::read_to_string(bundle().join("manifests").join(&name)).unwrap();
        (name, serde_yaml_ng::from_str(&text).unwrap())
    });
    let mut expected = BTreeMap::new();
    for (name, text) in crate::crd_files() {
        expected.insert(name, serde_yaml_ng::from_str(&text).unwrap());
    }
    // OLM takes one object per file, and puts it into the namespace of its choice.
    let user_roles = documents("artifacts/rbac/user-roles.yaml");
    let beside = ["service", "pod-disruption-budget"];
    let beside = beside.map(|name| yaml(&format!("artifacts/default/{name}.yaml")));
    let reader = documents("artifacts/rbac/metrics-reader.yaml");
    for mut object in user_roles.into_iter().chain(reader).chain(beside) {
        object["metadata"].as_object_mut().unwrap().remove("namespace");
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        let (kind, name) = (kind.as_str().unwrap(), name.as_str().unwrap());
        let file = format!("{name}_{}.yaml", kind.to_lowercase());
        expected.insert(file, object);
    }
    let mut written: BTreeMap<String, Value> = written.collect();
    let csv = written.remove(CSV.trim_start_matches("manifests/"));
    assert_eq!(csv, Some(service_version()));
    assert_eq!(written, expected);
}

/// Returns the entry of a ClusterServiceVersion for a CRD.
fn owned<'a>(csv: &'a Value, crd: &Value) -> &'a Value {
    let owned = csv["spec"]["customresourcedefinitions"]["owned"].as_array().unwrap();
    owned.iter().find(|one| one["name"] == crd["metadata"]["name"]).unwrap()
}

#[test]
fn the_bundle_owns_each_crd_and_names_its_resources() {
    let csv = service_version();
    let all = &csv["spec"]["customresourcedefinitions"]["owned"];
    assert_eq!(all.as_array().unwrap().len(), crds().len());
    for crd in crds() {
        let (name, one) = (&crd["metadata"]["name"], owned(&csv, &crd));
        assert_eq!(one["version"], crd["spec"]["versions"][0]["name"], "{name}");
        assert_eq!(one["kind"], crd["spec"]["names"]["kind"], "{name}");
        for words in ["description", "displayName"] {
            assert!(one[words].as_str().is_some_and(|text| !text.is_empty()), "{name} {words}");
        }
        assert!(!one["resources"].as_array().unwrap().is_empty(), "{name}");
    }
}

/// Every place that names the oldest or the newest version of Kubernetes names the versions that
/// hack/controlplane.sh can start, on which the tests run.
#[test]
fn the_documented_kubernetes_versions_are_the_tested_ones() {
    let modules = names_in("hack/controlplane").into_iter();
    let mut versions: Vec<String> =
        modules.filter_map(|name| Some(name.strip_prefix("kubernetes-")?.to_owned())).collect();
    // Minor versions have two digits until 1.99.
    versions.sort();
    let (oldest, newest) = (versions.first().unwrap(), versions.last().unwrap());
    assert_eq!(service_version()["spec"]["minKubeVersion"], format!("{oldest}.0"));
    let chart = yaml("artifacts/helm/workload-operator/Chart.yaml");
    assert_eq!(chart["kubeVersion"], format!(">= {oldest}.0-0"));
    let range = format!("Kubernetes {oldest} to {newest}");
    for (file, text) in [
        ("README.md", &range),
        ("docs/INSTALL.md", &range),
        ("docs/CHECKS.md", &format!("({oldest} or newer, tested up to {newest})")),
    ] {
        assert!(read(file).contains(text), "{file} does not say {text:?}");
    }
    let install = read("docs/INSTALL.md");
    for version in versions {
        let module = read(&format!("hack/controlplane/kubernetes-{version}/go.mod"));
        let pinned = module.lines().find_map(|line| {
            line.trim().trim_start_matches("require ").strip_prefix("k8s.io/kubernetes ")
        });
        let pinned = pinned.and_then(|rest| rest.split(' ').next()).unwrap();
        let row = format!("| {version} | {pinned} |");
        assert!(install.contains(&row), "the table of docs/INSTALL.md has no row {row}");
    }
}

/// The rules by which a catalog refuses a bundle or warns about it.
#[test]
fn the_bundle_meets_the_rules_of_a_catalog() {
    let csv = service_version();
    let spec = &csv["spec"];
    let words = ["displayName", "description", "minKubeVersion", "maturity"];
    for field in words {
        assert!(spec[field].as_str().is_some_and(|text| !text.is_empty()), "{field}");
    }
    assert!(spec["provider"]["name"].as_str().is_some_and(|name| !name.is_empty()));
    for field in ["maintainers", "links", "keywords"] {
        assert!(!spec[field].as_array().unwrap().is_empty(), "{field}");
    }
    for maintainer in spec["maintainers"].as_array().unwrap() {
        assert!(maintainer["email"].as_str().is_some_and(|email| email.contains('@')));
    }
    let modes = spec["installModes"].as_array().unwrap().iter();
    let modes: Vec<_> =
        modes.map(|mode| (mode["type"].as_str().unwrap(), &mode["supported"])).collect();
    let all = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];
    assert_eq!(modes, all.map(|mode| (mode, &json!(true))));
    let levels =
        ["Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"];
    let level = csv["metadata"]["annotations"]["capabilities"].as_str().unwrap();
    assert!(levels.contains(&level));
    // Every image that a disconnected cluster must mirror.
    let installed = installed();
    let container = &installed["spec"]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array().unwrap().iter();
    let images = variables
        .filter(|variable| variable["name"].as_str().is_some_and(|name| name.ends_with("_IMAGE")));
    let needed: BTreeSet<&str> = images
        .map(|variable| &variable["value"])
        .chain([&container["image"]])
        .filter_map(Value::as_str)
        .collect();
    let related = spec["relatedImages"].as_array().unwrap().iter();
    assert_eq!(
        related.filter_map(|image| image["image"].as_str()).collect::<BTreeSet<_>>(),
        needed
    );
    let annotations = &csv["metadata"]["annotations"];
    assert_eq!(annotations["containerImage"], container["image"]);
    assert_eq!(annotations["createdAt"], "1970-01-01T00:00:00Z");
}

#[test]
fn the_labels_of_the_bundles_image_are_its_annotations() {
    let annotations = yaml(&format!("{BUNDLE}/metadata/annotations.yaml"));
    let annotations = annotations["annotations"].as_object().unwrap();
    let said: BTreeSet<String> = annotations
        .iter()
        .map(|(key, value)| format!("LABEL {key}={}", value.as_str().unwrap()))
        .collect();
    let file = read(&format!("{BUNDLE}/bundle.Dockerfile"));
    let labels = file.lines().filter(|line| line.starts_with("LABEL "));
    assert_eq!(labels.map(str::to_owned).collect::<BTreeSet<_>>(), said);
    for key in annotations.keys().filter(|key| {
        key.ends_with(".manifests.v1") || key.ends_with("metadata.v1") || key.ends_with("config.v1")
    }) {
        let folder = annotations[key].as_str().unwrap().trim_end_matches('/');
        assert!(!names_in(bundle().join(folder)).is_empty(), "{folder}");
        assert!(file.lines().any(|line| line == format!("COPY {folder} /{folder}/")), "{folder}");
    }
}
