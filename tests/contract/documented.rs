//! The commands in the README and in the pages on installing, operating and upgrading. All of them run in the
//! order of a reader, except those that a page marks `untested`.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

use crate::control_plane::ControlPlane;
use crate::operator_process::OperatorProcess;
use crate::packaging::{NAME, SYSTEM};
use crate::unchecked::built_by;
use crate::world::{DEPLOYMENT, MAX_WAIT, POD, World};

const README: &str = "README.md";
const QUICKSTART: &str = "docs/QUICKSTART.md";
const INSTALL: &str = "docs/INSTALL.md";
const CONCEPTS: &str = "docs/CONCEPTS.md";
const WORKLOADS: &str = "docs/WORKLOADS.md";
const OPERATING: &str = "docs/OPERATING.md";
const MONITORING: &str = "docs/MONITORING.md";
const SECURITY: &str = "docs/SECURITY.md";
const UPGRADE: &str = "docs/UPGRADE.md";
const BACKUP: &str = "docs/BACKUP.md";
const PAGES: [&str; 10] = [
    README, QUICKSTART, INSTALL, CONCEPTS, WORKLOADS, OPERATING, MONITORING, SECURITY, UPGRADE,
    BACKUP,
];

/// Values for a page's placeholders.
const PLACEHOLDERS: [(&str, &str); 5] = [
    ("REGISTRY", "registry.example.com"),
    ("IMAGE", "registry.example.com/workload-operator"),
    ("KIND", "memcached"),
    ("NAME", "memcached-sample"),
    ("NAMESPACE", "default"),
];

enum Step {
    /// A page's block with this first line, or a command in a sentence or table of the page.
    Of(&'static str, &'static str),
    /// A precondition of a page, or a result that its reader waits for.
    Given(&'static str),
    /// From when the Deployment is available, a process runs in place of the operator's pod.
    Operator,
    NoOperator,
}

use Step::{Given, NoOperator, Of, Operator};

const EXEC: &str = "kubectl -n workload-operator-system exec deployment/workload-operator -- /workload-operator check";
const DELETE_ALL: &str = "kubectl delete --all -A memcacheds.cache.example.com,genericdaemons.mydomain.com,apps.app.example.com";
const NOTHING_IS_LEFT: &str = "
    [[ -z $(kubectl get namespace workload-operator-system --ignore-not-found) ]]
    [[ -z $(kubectl get crd) ]]
    [[ $(kubectl get clusterrole,clusterrolebinding -o name) != */workload-operator* ]]";
/// No node has the label that the last command requires.
const ONE_OF_EACH_AND_A_CART: &str = r#"kubectl apply -f artifacts/examples/syslog.yaml -f artifacts/examples/nginx-app.yaml
    kubectl wait --for=condition=Ready genericdaemon/syslog apps.app.example.com/nginx-app --timeout=5m
    kubectl create namespace shop
    kubectl apply -f - <<'END'
    {"apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached",
      "metadata": {"name": "cart", "namespace": "shop"},
      "spec": {"size": 1, "podTemplate": {"spec": {"nodeSelector": {"disk": "none"}}}}}
END"#;
/// The kubelets of kwok pull nothing.
const THE_REGISTRY_DOES_NOT_HAVE_THE_IMAGE: &str = r#"
    for _ in {1..60}; do
      read -r pod _ <<<"$(kubectl get pods -l app.example.com/v1=shop --field-selector=status.phase=Pending -o name)"
      [[ -z $pod ]] || break
      sleep 0.25
    done
    [[ -n $pod ]]
    kubectl patch "$pod" --subresource=status -p '{"status": {"containerStatuses": [{
      "name": "shop", "image": "nginx:1.72", "imageID": "", "ready": false, "restartCount": 0,
      "state": {"waiting": {"reason": "ImagePullBackOff", "message":
        "Back-off pulling image \"nginx:1.72\": ErrImagePull: docker.io/library/nginx:1.72: not found"}}}]}}'"#;
const A_DEPLOYMENT_THAT_IS_TO_BE_AN_APP: &str = r#"kubectl create deployment shop -n shop --image=nginx:1.27 --replicas=2
    kubectl expose deployment shop -n shop --port=80
    kubectl apply -n shop -f - <<'END'
    {"apiVersion": "app.example.com/v1", "kind": "App", "metadata": {"name": "shop-2"},
      "spec": {"image": "nginx:1.27", "replicas": 2, "ports": [{"port": 80}]}}
END"#;
/// The App `shop` then is the one of the page.
const ONLY_THE_NEW_PODS_SERVE: &str = r#"
    for _ in {1..60}; do
      names=$(kubectl get endpointslices -n shop -l kubernetes.io/service-name=shop \
        -o jsonpath='{range .items[*].endpoints[*]}{.targetRef.name}{"\n"}{end}')
      [[ $(grep -c '^shop-2-' <<<"$names") != 2 || $(wc -l <<<"$names") != 2 ]] || break
      sleep 0.25
    done
    [[ $(wc -l <<<"$names") == 2 ]]
    kubectl delete apps.app.example.com/shop-2 service/shop -n shop
    kubectl apply -n shop -f - <<'END'
    {"apiVersion": "app.example.com/v1", "kind": "App", "metadata": {"name": "shop"},
      "spec": {"image": "nginx:1.27", "ports": [{"port": 80}]}}
END
    kubectl wait --for=condition=Ready apps.app.example.com/shop -n shop --timeout=5m"#;
const UNTIL_THE_OPERATOR_IS_IDLE: &str =
    "for _ in {1..60}; do ! workload-operator plan &>/dev/null || break; sleep 0.25; done";
/// The state that the operator leaves if it terminates too early.
const A_MEMCACHED_THAT_IS_STUCK: &str = r#"kubectl apply -f artifacts/examples/memcached.yaml
    kubectl patch memcached memcached-sample --type=merge \
      -p '{"metadata":{"finalizers":["cache.example.com/finalizer"]}}'
    kubectl delete memcached memcached-sample --wait=false"#;

/// The order in which the commands make sense.
const STORY: &[Step] = &[
    Operator,
    Of(QUICKSTART, "kubectl apply --server-side -k artifacts/default"),
    Of(QUICKSTART, "kubectl apply -f - <<END"),
    Of(QUICKSTART, "$ kubectl get memcached/cart apps.app.example.com/shop"),
    Given("kubectl cordon $(kubectl get nodes -o name)"),
    Of(
        QUICKSTART,
        "$ kubectl patch apps.app.example.com shop --type=merge -p '{\"spec\":{\"image\":\"nginx:1.72\"}}'",
    ),
    Of(QUICKSTART, "$ kubectl get apps.app.example.com shop"),
    Given(THE_REGISTRY_DOES_NOT_HAVE_THE_IMAGE),
    Of(
        QUICKSTART,
        "$ kubectl -n workload-operator-system exec deployment/workload-operator -- /workload-operator status app shop -n default",
    ),
    Given("kubectl wait --for=condition=Degraded apps.app.example.com/shop --timeout=2m"),
    Of(QUICKSTART, "$ kubectl get apps.app.example.com shop -o wide"),
    Given("kubectl uncordon $(kubectl get nodes -o name)"),
    Of(
        QUICKSTART,
        "kubectl patch apps.app.example.com shop --type=merge -p '{\"spec\":{\"image\":\"nginx:1.28\"}}'",
    ),
    Of(QUICKSTART, "kubectl scale deployment shop --replicas=9"),
    Of(QUICKSTART, "$ kubectl get deployment shop"),
    Of(QUICKSTART, "kubectl scale apps.app.example.com shop --replicas=3"),
    Of(QUICKSTART, "kubectl delete memcached/cart apps.app.example.com/shop"),
    Of(README, "kubectl apply --server-side -k artifacts/default"),
    Given(ONE_OF_EACH_AND_A_CART),
    Of(README, "$ kubectl get memcached memcached-sample"),
    Of(README, "$ workload-operator check"),
    Of(INSTALL, "workload-operator check --wait 2m"),
    Given(A_DEPLOYMENT_THAT_IS_TO_BE_AN_APP),
    Of(
        WORKLOADS,
        "kubectl wait --for=condition=Ready apps.app.example.com/shop-2 -n shop --timeout=5m",
    ),
    Given(ONLY_THE_NEW_PODS_SERVE),
    Of(WORKLOADS, "kubectl get apps.app.example.com shop -n shop -o wide"),
    Of(WORKLOADS, "kubectl apply --server-side --field-manager=network -f - <<'END'"),
    Of(OPERATING, "workload-operator check"),
    Of(OPERATING, EXEC),
    Of(OPERATING, "workload-operator status KIND NAME -n NAMESPACE"),
    Of(OPERATING, "kubectl -n workload-operator-system describe lease workload-operator"),
    Of(MONITORING, "kubectl create clusterrolebinding prometheus-reads-workload-operator \\"),
    Of(SECURITY, "kubectl get endpointslices -n default"),
    Of(
        SECURITY,
        "kubectl create rolebinding app-editors -n shop --clusterrole=workload-operator-app-editor --group=shop-developers",
    ),
    Given(UNTIL_THE_OPERATOR_IS_IDLE),
    Of(OPERATING, "workload-operator plan"),
    Of(UPGRADE, "folder=$(mktemp -d) # readable by you only"),
    Of(OPERATING, "kubectl annotate deployment NAME workload-operator.example.com/admitted-"),
    Of(
        SECURITY,
        "kubectl label --overwrite namespace workload-operator-system pod-security.kubernetes.io/enforce=baseline",
    ),
    Of(README, DELETE_ALL),
    NoOperator,
    Given(NOTHING_IS_LEFT),
    // While an object is not ready, its exit code is 1.
    Of(OPERATING, "workload-operator status -A"),
    // Installed again, in the ways that share their field manager.
    Of(README, "kubectl apply --server-side -f artifacts/crds/"),
    Of(INSTALL, "mkdir mine"),
    Of(README, "kubectl apply --server-side -k mine"),
    Of(
        INSTALL,
        "kubectl delete --ignore-not-found clusterrole,clusterrolebinding workload-operator workload-operator-metrics-auth \\",
    ),
    Of(INSTALL, "workload-operator manifests --image IMAGE"),
    Of(INSTALL, "workload-operator manifests -n NAMESPACE"),
    Of(UPGRADE, "workload-operator manifests --image IMAGE | kubectl apply --server-side -f -"),
    Of(
        INSTALL,
        "workload-operator manifests --image REGISTRY/workload-operator:0.1.0 | kubectl apply --server-side -f -",
    ),
    Of(INSTALL, "workload-operator manifests --image REGISTRY/workload-operator:0.1.0 \\"),
    Given(A_MEMCACHED_THAT_IS_STUCK),
    Of(INSTALL, "kubectl get memcacheds.cache.example.com -A"),
    Given("kubectl wait --for=delete memcached/memcached-sample --timeout=5m"),
    Given("kubectl create namespace argocd; kubectl -n argocd create configmap argocd-cm"),
    Of(
        OPERATING,
        "kubectl -n argocd patch configmap argocd-cm --patch-file artifacts/argocd/argocd-cm.yaml",
    ),
    Of(INSTALL, DELETE_ALL),
    Given(NOTHING_IS_LEFT),
    Of(
        README,
        "helm install workload-operator artifacts/helm/workload-operator -n workload-operator-system --create-namespace --set image.repository=REGISTRY/workload-operator",
    ),
    // Otherwise its CRDs belong to this release.
    Given(
        "helm uninstall workload-operator -n workload-operator-system; kubectl delete crd --all
        kubectl delete namespace workload-operator-system",
    ),
    Of(INSTALL, "kubectl create namespace workload-operator-system"),
    Of(INSTALL, "helm uninstall workload-operator -n workload-operator-system"),
];

/// Commands in sentences and tables that no step runs: parts of other commands, and those that need a node, a
/// registry, a release or another test run.
const NOT_RUN: &[&str] = &[
    "kubectl apply",
    "kubectl apply --server-side",
    "kubectl delete",
    "kubectl wait",
    "kubectl logs POD -c shop",
    "kubectl label node NODE logs=true",
    "kubectl label namespace monitoring metrics=enabled",
    "kubectl diff",
    "workload-operator status",
    "kubectl delete -k mine",
    "helm install",
    "helm uninstall",
    "helm upgrade workload-operator artifacts/helm/workload-operator -n workload-operator-system --reset-then-reuse-values --wait",
    "kubectl -n workload-operator-system port-forward deployment/workload-operator 8081",
    "curl 'localhost:8081/readyz?verbose'",
    "kubectl get apps.app.example.com,memcacheds,genericdaemons -A -o yaml | grep -B 20 Template:",
    "oc adm policy add-scc-to-user nonroot-v2 -z default -n NAMESPACE",
    "kind delete cluster",
    "kind load docker-image REGISTRY/workload-operator:0.1.0",
    "hack/bundle.sh target/bundle",
    "cargo test",
    "cargo run --example demo",
    "MEMCACHED_IMAGE=memcached:1.6.38-alpine cargo run",
];

// === The pages ===

struct Commands {
    text: String,
    /// A block of commands with what they print.
    is_console: bool,
    is_untested: bool,
    is_inline: bool,
}

// === impl Commands ===

impl Commands {
    fn first_line(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }

    /// The columns of tables are another test's: `kubectl_prints_what_the_documentation_shows`.
    fn is_compared_elsewhere(&self, page: &str) -> bool {
        page == CONCEPTS && self.is_console && self.text.starts_with("$ kubectl ")
    }
}

/// The commands of a page.
fn commands(page: &str) -> Vec<Commands> {
    let text = std::fs::read_to_string(page).unwrap();
    let mut found = Vec::new();
    let mut prose = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else {
            prose.extend([line, "\n"]);
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let block = lines.by_ref().take_while(|line| line.trim() != "```");
        let block: Vec<&str> = block.map(|line| line.get(indent..).unwrap_or_default()).collect();
        let mut words = info.split(' ');
        let language = words.next().unwrap_or_default();
        if ["sh", "console"].contains(&language) {
            found.push(Commands {
                text: block.join("\n"),
                is_console: language == "console",
                is_untested: words.next() == Some("untested"),
                is_inline: false,
            });
        }
    }
    for span in prose.split('`').skip(1).step_by(2) {
        let words: Vec<&str> = span.split_whitespace().collect();
        let program = words.iter().find(|word| !word.contains('=')).copied().unwrap_or_default();
        let programs = ["kubectl", "helm", "workload-operator", "docker", "kind", "oc", "curl"];
        let is_program = programs.contains(&program)
            || ["make", "cargo", "operator-sdk", "sudo"].contains(&program)
            || program.starts_with("hack/");
        if is_program && words.len() > 1 {
            let text = words.join(" ").replace("\\|", "|");
            found.push(Commands { text, is_console: false, is_untested: false, is_inline: true });
        }
    }
    found
}

#[test]
fn each_documented_command_is_run_or_marked_as_untested() {
    let mut unseen: BTreeSet<&str> = NOT_RUN.iter().copied().collect();
    for page in PAGES {
        let all = commands(page);
        for command in &all {
            let first = command.first_line();
            unseen.remove(first);
            let same = |step: &Step| match step {
                Of(_, line) if command.is_inline => *line == first,
                Of(of, line) => (*of, *line) == (page, first),
                _ => false,
            };
            let is_run = STORY.iter().any(same) || command.is_compared_elsewhere(page);
            let is_named = command.is_inline && NOT_RUN.contains(&first);
            let is_marked = command.is_untested || is_named;
            assert!(is_run != is_marked, "{page}: {first}: run {is_run}, marked {is_marked}");
        }
    }
    assert!(unseen.is_empty(), "on no page: {unseen:?}");
}

// === The reader ===

/// A reader with a checkout, the programs and an administrator's kubeconfig.
struct Reader {
    folder: tempfile::TempDir,
    environment: Vec<(&'static str, String)>,
    has_helm: bool,
}

/// Simulates `kubectl exec` for the operator's pod, because kwok's pods run no process. The binary has the
/// account and the environment of the pod, and no access of the administrator.
const KUBECTL: &str = r#"#!/usr/bin/env bash
set -euo pipefail
[[ " $* " == *" exec "* ]] || exec "$REAL_KUBECTL" "$@"
flags=()
while [[ $1 != exec ]]; do flags+=("$1"); shift; done
[[ $3 == -- && $4 == /workload-operator ]]
pod=$2
shift 4
of_pod() { "$REAL_KUBECTL" "${flags[@]}" get "$pod" -o "jsonpath=$1"; }
account=$(of_pod '{.spec.template.spec.serviceAccountName}')
variables=$(of_pod '{range .spec.template.spec.containers[0].env[?(@.value)]}{.name}={.value}{"\n"}{end}')
mapfile -t variables <<<"$variables"
variables+=("POD_NAMESPACE=$(of_pod '{.metadata.namespace}')")
config=$HOME/pod.kubeconfig
"$REAL_KUBECTL" config view --minify --flatten >"$config"
in_pod() { "$REAL_KUBECTL" --kubeconfig "$config" config "$@" >/dev/null; }
in_pod set-credentials pod --token "$("$REAL_KUBECTL" "${flags[@]}" create token "$account")"
in_pod set-context --current --user pod
in_pod delete-user admin
exec env -i KUBECONFIG="$config" "${variables[@]}" "$OPERATOR" "$@"
"#;

// === impl Reader ===

impl Reader {
    fn new(plane: &ControlPlane) -> Reader {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        std::fs::create_dir(path("bin")).unwrap();
        // Links within the copy point to other files of it.
        let copied =
            std::process::Command::new("cp").args(["-a", "artifacts"]).arg(folder.path()).status();
        assert!(copied.unwrap().success());
        std::fs::write(path("bin/kubectl"), KUBECTL).unwrap();
        let executable = PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path("bin/kubectl"), executable).unwrap();
        let operator = Path::new(env!("CARGO_BIN_EXE_workload-operator"));
        std::os::unix::fs::symlink(operator, path("bin/workload-operator")).unwrap();
        let helm = built_by("hack/helm.sh", "the documented commands of Helm");
        if let Some(helm) = &helm {
            std::os::unix::fs::symlink(helm, path("bin/helm")).unwrap();
        }
        let programs = std::env::var("PATH").unwrap();
        let environment = vec![
            ("PATH", format!("{}:{programs}", text(&path("bin")))),
            ("HOME", text(folder.path())),
            ("KUBECONFIG", text(plane.kubeconfig())),
            ("REAL_KUBECTL", text(&plane.kubectl_path())),
            ("OPERATOR", text(operator)),
        ];
        Reader { folder, environment, has_helm: helm.is_some() }
    }

    async fn bash(&self, script: &str) -> Output {
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", script])
            .current_dir(self.folder.path())
            .env_clear()
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(MAX_WAIT, output).await;
        output.unwrap_or_else(|_| panic!("it takes more than {MAX_WAIT:?}:\n{script}")).unwrap()
    }

    async fn succeeds(&self, script: &str) {
        if script.contains("helm ") && !self.has_helm {
            return;
        }
        let output = self.bash(script).await;
        assert!(output.status.success(), "{script}\n{}", printed(&output));
    }

    /// Runs each command of a block until it prints the expected lines, because the cluster needs several
    /// steps.
    async fn sees(&self, console: &str) {
        for shown in format!("\n{console}").split("\n$ ").skip(1) {
            let (command, lines) = shown.split_once('\n').unwrap();
            let mut last = String::new();
            let mut missing = None;
            for _ in 0..60 {
                last = printed(&self.bash(&filled(command)).await);
                missing = lines.lines().find(|line| !last.lines().any(|ours| is_like(ours, line)));
                if missing.is_none() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            assert_eq!(missing, None, "{command} does not print this, but\n{last}");
        }
    }
}

fn printed(output: &Output) -> String {
    let text = String::from_utf8_lossy;
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// Replaces placeholders that are complete words.
fn filled(command: &str) -> String {
    let mut filled = String::new();
    for part in command.split_inclusive(|letter: char| letter != '_' && !letter.is_alphanumeric()) {
        let word = part.trim_end_matches(|letter: char| letter != '_' && !letter.is_alphanumeric());
        let value = PLACEHOLDERS.iter().find(|(placeholder, _)| *placeholder == word);
        filled.push_str(value.map_or(word, |(_, value)| value));
        filled.push_str(&part[word.len()..]);
    }
    filled
}

/// Returns whether a line is like the one shown, which may end with `…`.
fn is_like(line: &str, shown: &str) -> bool {
    match shown.split_once('…') {
        Some((beginning, _)) => shape(line).starts_with(&shape(beginning)),
        None => shape(line) == shape(shown),
    }
}

/// The line without the numbers, the ages and the hashes of pods' names, which differ from run to run.
fn shape(line: &str) -> String {
    let word = |word: &str| {
        let parts: Vec<&str> = word.split('-').collect();
        if parts.len() > 2 && parts[parts.len() - 1].len() == 5 {
            return parts[..parts.len() - 2].join("-");
        }
        let is_count = word.starts_with(|first: char| first.is_ascii_digit())
            && word.chars().all(|letter| letter.is_ascii_digit() || "smh".contains(letter))
            && word != "0";
        if is_count { "N".to_owned() } else { word.to_owned() }
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

// === The operator ===

/// Runs under the account and name of the Deployment's pod, with its settings, until it is aborted.
async fn work(plane: &'static ControlPlane) {
    let system = World::in_existing(plane, SYSTEM).await;
    let is_available = |d: &serde_json::Value| d["status"]["availableReplicas"].as_i64() >= Some(1);
    let deployment = system.until(DEPLOYMENT, NAME, is_available).await;
    let pods = system.list_with(POD, &format!("app.kubernetes.io/name={NAME}")).await;
    let pod = pods.iter().find(|pod| pod["metadata"]["deletionTimestamp"].is_null()).unwrap();
    let variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array();
    let values = variables.into_iter().flatten();
    let values = values.filter_map(|one| Some((one["name"].as_str()?, one["value"].as_str()?)));
    let name = ("POD_NAME", pod["metadata"]["name"].as_str().unwrap());
    let environment: Vec<_> = values.chain([name, ("LEADER_ELECT_NAMESPACE", SYSTEM)]).collect();
    let kubeconfig = system.operator_kubeconfig().await;
    let _operator = OperatorProcess::start(&kubeconfig, &["--leader-elect"], &environment);
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_commands_work_in_the_order_of_the_pages() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::bare("documented")).await;
    let reader = Reader::new(plane);
    let mut operator = None;
    for step in STORY {
        match step {
            Operator => operator = Some(tokio::spawn(work(plane))),
            NoOperator => {
                let operator = operator.take().unwrap();
                operator.abort();
                assert!(operator.await.unwrap_err().is_cancelled());
            }
            Given(script) => reader.succeeds(script).await,
            Of(page, first) => {
                let all = commands(page);
                let found = all.iter().find(|one| one.first_line() == *first);
                let found = found.unwrap_or_else(|| panic!("{page} has no {first}"));
                if found.is_console {
                    reader.sees(&found.text).await;
                } else {
                    reader.succeeds(&filled(&found.text)).await;
                }
            }
        }
    }
}
