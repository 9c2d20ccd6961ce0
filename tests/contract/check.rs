//! `check` names the fault and nothing else: one fault for each ID.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::control_plane::ControlPlane;
use crate::world::{LEASE, World};

const SYSTEM: &str = "workload-operator-system";

/// A control plane with the operator's Deployment on it; kwok plays its pod.
pub struct Cluster {
    plane: &'static ControlPlane,
    /// The kubeconfig of the operator's own ServiceAccount.
    operator: PathBuf,
    system: World,
}

// === impl Cluster ===

impl Cluster {
    async fn start() -> Cluster {
        Cluster::on(ControlPlane::of_this_test(|| ControlPlane::private("check")).await).await
    }

    /// Installs the operator's manifests on this control plane.
    pub async fn on(plane: &'static ControlPlane) -> Cluster {
        plane.kubectl(&["apply", "--server-side", "--force-conflicts", "-k", "artifacts/default"]);
        let rollout = ["rollout", "status", "deployment/workload-operator", "-n", SYSTEM];
        plane.kubectl(&rollout);
        let system = World::in_existing(plane, SYSTEM).await;
        let lease = json!({
            "metadata": {"name": "workload-operator"},
            "spec": {"holderIdentity": "nobody", "leaseDurationSeconds": 3600,
                "renewTime": format!("{:.6}", jiff::Timestamp::now())},
        });
        system.create(LEASE, lease).await.unwrap();
        let operator = system.operator_kubeconfig().await;
        Cluster { plane, operator, system }
    }

    /// Returns the IDs of checks that are neither `ok` nor skipped, and the exit code; as an administrator,
    /// or as the operator itself.
    fn trips(&self, as_operator: bool) -> (BTreeSet<String>, i32) {
        let kubeconfig = if as_operator { &self.operator } else { self.plane.kubeconfig() };
        let (findings, code) = check(kubeconfig, &[]);
        (wrong(&findings), code)
    }

    /// Waits until exactly these IDs fail, because admission notices policies with a delay.
    pub async fn until_trips(&self, as_operator: bool, expected: &[&str], code: i32) {
        let expected = (expected.iter().map(|id| (*id).to_owned()).collect(), code);
        let mut last = Default::default();
        for _ in 0..60 {
            self.lead();
            last = self.trips(as_operator);
            if last == expected {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        }
        let kubeconfig = if as_operator { &self.operator } else { self.plane.kubeconfig() };
        panic!("expected {expected:?}, got {last:?}: {}", check(kubeconfig, &[]).0);
    }

    /// Lets the newest pod renew the Lease, as its operator would.
    fn lead(&self) {
        let lasts = [
            "get",
            "lease",
            "workload-operator",
            "-n",
            SYSTEM,
            "-o=jsonpath={.spec.leaseDurationSeconds}",
        ];
        // A short one is to expire.
        if self.plane.kubectl(&lasts) == "1" {
            return;
        }
        let pods =
            ["get", "pods", "-n", SYSTEM, "--sort-by=.metadata.creationTimestamp", "-o=name"];
        let pods = self.plane.kubectl(&pods);
        if let Some(pod) = pods.lines().last().and_then(|name| name.strip_prefix("pod/")) {
            let now = format!("{:.6}", jiff::Timestamp::now());
            let patch = json!({"spec": {"holderIdentity": pod, "renewTime": now}}).to_string();
            let lease = ["patch", "lease", "workload-operator", "-n", SYSTEM, "--type=merge", "-p"];
            self.plane.kubectl(&[&lease[..], &[&patch]].concat());
        }
    }

    fn apply(&self, object: &Value) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), object.to_string()).unwrap();
        let path = file.path().to_str().unwrap();
        self.plane.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", path]);
    }

    /// Asserts that `expected` fails while `object` exists, and that nothing fails after its deletion.
    async fn with(&self, object: Value, kind: &str, as_operator: bool, expected: &str, code: i32) {
        self.apply(&object);
        self.until_trips(as_operator, &[expected], code).await;
        self.plane.kubectl(&["delete", kind, object["metadata"]["name"].as_str().unwrap()]);
        self.until_trips(as_operator, &[], 0).await;
    }

    /// Asserts that the ID in `trip` fails while a merge patch is applied to an object, and that nothing
    /// fails afterwards.
    async fn patched(&self, what: &[&str], patch: Value, back: Value, trip: (bool, &str, i32)) {
        let (as_operator, expected, code) = trip;
        let apply = |patch: &Value| {
            let patch = patch.to_string();
            let mut arguments = vec!["patch"];
            arguments.extend(what);
            arguments.extend(["--type=merge", "-p", &patch]);
            self.plane.kubectl(&arguments);
        };
        apply(&patch);
        self.until_trips(as_operator, &[expected], code).await;
        apply(&back);
        self.until_trips(as_operator, &[], 0).await;
    }
}

/// Returns the IDs of checks that are neither `ok` nor skipped.
fn wrong(findings: &Value) -> BTreeSet<String> {
    let all = findings["checks"].as_array().unwrap().iter();
    let wrong = all.filter(|one| !["ok", "skip"].contains(&one["result"].as_str().unwrap()));
    wrong.map(|finding| finding["id"].as_str().unwrap().to_owned()).collect()
}

fn check(kubeconfig: &std::path::Path, arguments: &[&str]) -> (Value, i32) {
    let output = Command::new(env!("CARGO_BIN_EXE_workload-operator"))
        .args(["check", "-o", "json", "--kubeconfig"])
        .arg(kubeconfig)
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let findings = serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    (findings, output.status.code().unwrap())
}

#[test]
fn an_unreachable_server_is_k001_and_exit_code_2() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\nusers: [{name: u, user: {}}]\n\
        clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n\
        contexts: [{name: a, context: {cluster: a, user: u}}]\n";
    std::fs::write(file.path(), text).unwrap();
    for path in [file.path(), std::path::Path::new("/no/such/file")] {
        let (findings, code) = check(path, &[]);
        assert_eq!(code, 2);
        assert_eq!(findings["checks"].as_array().unwrap().len(), 1);
        assert_eq!(findings["checks"][0]["id"], "K001");
        assert_eq!(findings["checks"][0]["result"], "fail");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_fails_its_own_check_and_no_other() {
    let cluster = Cluster::start().await;
    cluster.until_trips(false, &[], 0).await;
    cluster.until_trips(true, &[], 0).await;
    permissions(&cluster).await;
    admission(&cluster).await;
    installation(&cluster).await;
    waiting(&cluster).await;
    surroundings(&cluster).await;
    definitions(&cluster).await;
}

/// With --wait, it repeats the checks until none fails, reports the failures meanwhile, and exits with 0.
async fn waiting(cluster: &Cluster) {
    let lease = ["patch", "lease", "workload-operator", "-n", SYSTEM, "--type=merge", "-p"];
    let lasts = |seconds: i64| {
        let renewed = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(30);
        let spec = json!({"leaseDurationSeconds": seconds, "renewTime": format!("{renewed:.6}")});
        let patch = json!({ "spec": spec }).to_string();
        cluster.plane.kubectl(&[&lease[..], &[&patch]].concat());
    };
    lasts(1);
    let (findings, code) = check(cluster.plane.kubeconfig(), &["--wait=1s"]);
    assert_eq!((code, findings["summary"]["fail"].as_i64()), (1, Some(1)), "{findings}");
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_workload-operator"))
        .args(["check", "--wait=2m", "--kubeconfig"])
        .arg(cluster.plane.kubeconfig())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = said.next_line().await.unwrap().unwrap();
    assert_eq!(line, "workload-operator: waiting for P002");
    lasts(3600);
    let output = child.wait_with_output().await.unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && table.contains("0 fail"), "{table}");
    assert_eq!(said.next_line().await.unwrap(), None, "once is enough");
}

async fn surroundings(cluster: &Cluster) {
    let actions = |action: &str| json!({"spec": {"validationActions": [action]}});
    for policy in ["app", "children", "generic-daemon", "memcached"] {
        let name = format!("workload-operator-{policy}");
        let binding = ["validatingadmissionpolicybinding", name.as_str()];
        let id = if policy == "generic-daemon" { "D003" } else { "D004" };
        cluster.patched(&binding, actions("Audit"), actions("Deny"), (false, id, 1)).await;
    }
    // The policy of another account has no effect, and the hint names the required account.
    let account = |namespace: &str| {
        let name = format!("system:serviceaccount:{namespace}:workload-operator:");
        let expression = format!("request.userInfo.username + ':' == '{name}'");
        json!({"spec": {"matchConditions": [{"name": "the-operator", "expression": expression}]}})
    };
    let policy = ["validatingadmissionpolicy", "workload-operator-children"];
    cluster.patched(&policy, account("ops"), account(SYSTEM), (false, "D004", 1)).await;
}

async fn permissions(cluster: &Cluster) {
    let role = cluster.plane.kubectl(&["get", "clusterrole", "workload-operator", "-o", "json"]);
    let role: Value = serde_json::from_str(&role).unwrap();
    let (rules, what) = (&role["rules"], ["clusterrole", "workload-operator"]);
    let mut fewer = rules.clone();
    fewer[0]["verbs"] = json!(["list", "watch"]);
    let (less, all) = (json!({"rules": fewer}), json!({"rules": rules}));
    cluster.patched(&what, less, all.clone(), (true, "R001", 1)).await;
    let mut more = rules.clone();
    let secrets = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]});
    more.as_array_mut().unwrap().push(secrets);
    cluster.patched(&what, json!({"rules": more}), all.clone(), (true, "R002", 1)).await;
    // An administrator asks about the operator's account.
    cluster.patched(&what, json!({"rules": more}), all, (false, "R002", 1)).await;
    let asks = ["clusterrole", "workload-operator-metrics-auth"];
    let review = json!([{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"],
        "verbs": ["create"]}, {"apiGroups": ["authorization.k8s.io"],
        "resources": ["subjectaccessreviews"], "verbs": ["create"]}]);
    let (one, both) = (json!({"rules": [review[0]]}), json!({"rules": review}));
    cluster.patched(&asks, one, both, (true, "R003", 1)).await;
    // An operator that serves a single namespace, and can write owned objects everywhere.
    let served = ["set", "env", "deployment/workload-operator", "-n", SYSTEM];
    cluster.plane.kubectl(&[&served[..], &["WATCH_NAMESPACE=shop"]].concat());
    cluster.until_trips(true, &["R002"], 1).await;
    cluster.plane.kubectl(&[&served[..], &["WATCH_NAMESPACE-"]].concat());
    cluster.until_trips(true, &[], 0).await;
}

async fn admission(cluster: &Cluster) {
    // A policy that refuses every Memcached.
    let matches = json!({"resourceRules": [{"apiGroups": ["cache.example.com"],
        "apiVersions": ["*"], "resources": ["memcacheds"], "operations": ["CREATE"]}]});
    let name = json!({"name": "in-the-way"});
    let group = "admissionregistration.k8s.io/v1";
    cluster.apply(&json!({"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": name, "spec": {"policyName": "in-the-way", "validationActions": ["Deny"]}}));
    let refuses = json!({"apiVersion": group, "kind": "ValidatingAdmissionPolicy",
        "metadata": name, "spec": {"matchConstraints": matches,
            "validations": [{"expression": "false"}]}});
    cluster.with(refuses, "validatingadmissionpolicy", false, "D001", 1).await;
    // A policy that makes every Memcached valid.
    cluster.apply(&json!({"apiVersion": group, "kind": "MutatingAdmissionPolicyBinding",
        "metadata": name, "spec": {"policyName": "in-the-way"}}));
    let corrects = json!({"apiVersion": group, "kind": "MutatingAdmissionPolicy",
        "metadata": name, "spec": {"matchConstraints": matches, "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression":
                "[JSONPatch{op: 'add', path: '/spec/size', value: 1}]"}}]}});
    cluster.with(corrects, "mutatingadmissionpolicy", false, "D002", 1).await;
}

async fn installation(cluster: &Cluster) {
    let deployment = ["deployment", "workload-operator", "-n", SYSTEM];
    let replicas = |n: i64| json!({"spec": {"replicas": n}});
    cluster.patched(&deployment, replicas(0), replicas(1), (false, "P001", 1)).await;
    // Without an operator, nothing fails, unless one is waited for.
    let there = |arguments: &[&str]| check(cluster.plane.kubeconfig(), arguments);
    let elsewhere = ["--operator-namespace=default"];
    assert_eq!(there(&elsewhere).1, 0);
    let (findings, code) = there(&["--operator-namespace=default", "--wait=1s"]);
    assert!(wrong(&findings).contains("P001") && code == 1, "{findings}");
    // A Helm release with another name is found by its label.
    let json = cluster.plane.kubectl(&[
        "get",
        "deployment",
        "workload-operator",
        "-n",
        SYSTEM,
        "-o",
        "json",
    ]);
    let mut release: Value = serde_json::from_str(&json).unwrap();
    release["metadata"] = json!({"name": "release-operator", "namespace": "default",
        "labels": release["metadata"]["labels"]});
    release["spec"]["replicas"] = json!(0);
    cluster.apply(&release);
    let (findings, _) = there(&elsewhere);
    let found = findings.to_string().contains("Deployment release-operator is scaled to 0");
    assert!(found, "{findings}");
    // It is the only Deployment with the label in the cluster. Its policies do not exist.
    let (findings, code) = there(&["--operator-name=release-operator"]);
    assert!(wrong(&findings).contains("D004") && code == 1, "{findings}");
    // Both serve all namespaces.
    release["spec"]["replicas"] = json!(1);
    cluster.apply(&release);
    let (findings, code) = there(&[]);
    assert!(wrong(&findings).contains("P004") && code == 1, "{findings}");
    cluster.plane.kubectl(&["delete", "deployment", "release-operator", "-n", "default"]);
    let lease = ["lease", "workload-operator", "-n", SYSTEM];
    let old = json!({"spec": {"leaseDurationSeconds": 1}});
    let new = json!({"spec": {"leaseDurationSeconds": 3600}});
    cluster.patched(&lease, old, new, (false, "P002", 1)).await;
    assert!(cluster.system.get(LEASE, "workload-operator").await.is_some());
}

async fn definitions(cluster: &Cluster) {
    let crd = ["crd", "genericdaemons.mydomain.com"];
    let columns = |names: Value| json!({"spec": {"names": {"shortNames": names}}});
    cluster
        .patched(&crd, columns(json!(["gdx"])), columns(json!(["gd"])), (false, "C002", 1))
        .await;
    // An administrator can raise the size of Memcacheds to at most 8.
    let bound = |most: u8| {
        let path =
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum";
        let patch = json!([{"op": "replace", "path": path, "value": most}]).to_string();
        let all = ["patch", "crd", "memcacheds.cache.example.com", "--type=json", "-p", &patch];
        cluster.plane.kubectl(&all);
    };
    bound(9);
    cluster.until_trips(false, &["C002"], 1).await;
    bound(8);
    cluster.until_trips(false, &[], 0).await;
    bound(3);
    cluster.plane.kubectl(&["delete", "crd", "genericdaemons.mydomain.com"]);
    cluster.until_trips(false, &["C001"], 1).await;
}
