//! The Makefile: the targets of kubebuilder and operator-sdk projects, and what each runs.

use std::process::Command;

use crate::unchecked::not_checked;

/// Each target, and the last line that it runs with `IMG=registry/image:1`.
const TARGETS: [(&str, &str); 21] = [
    ("build", "cargo build --release --locked"),
    ("run", "cargo run --locked"),
    ("test", "cargo test --locked"),
    ("test-quick", ".ci/quick"),
    ("test-e2e", "hack/e2e.sh"),
    ("lint", "cargo clippy --locked --all-targets -- -D warnings"),
    ("fmt", "cargo fmt --all"),
    ("generate", "hack/update-codegen.sh"),
    ("manifests", "hack/update-codegen.sh"),
    ("docs", "hack/book.sh"),
    ("install", "kubectl apply --server-side -f artifacts/crds/"),
    ("uninstall", "kubectl delete --ignore-not-found -f artifacts/crds/"),
    (
        "deploy",
        "cargo run --quiet --locked -- manifests --image registry/image:1 | kubectl apply --server-side -f -",
    ),
    (
        "undeploy",
        "cargo run --quiet --locked -- manifests --image registry/image:1 | kubectl delete --ignore-not-found -f -",
    ),
    (
        "docker-build",
        r#"docker build --build-arg REVISION="$(git rev-parse --short=12 HEAD)" -t registry/image:1 ."#,
    ),
    ("docker-push", "docker push registry/image:1"),
    ("bundle", "cargo test --locked --test artifacts operator_verify"),
    (
        "bundle-build",
        "docker build -f target/bundle/bundle.Dockerfile -t workload-operator-bundle:latest target/bundle",
    ),
    (
        "build-installer",
        "cargo run --quiet --locked -- manifests --image registry/image:1 >dist/install.yaml.part \
         && mv dist/install.yaml.part dist/install.yaml",
    ),
    ("release", "hack/release.sh 1.2.3"),
    ("help", ""),
];

/// The output of make; `None` if there is no make.
fn make(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("make");
    command.args(["-C", env!("CARGO_MANIFEST_DIR"), "--no-print-directory"]).args(arguments);
    for variable in ["CARGO", "KUBECTL", "CONTAINER_TOOL", "IMG", "BUNDLE_IMG", "KEY", "MAKEFLAGS"]
    {
        command.env_remove(variable);
    }
    let Ok(output) = command.output() else {
        not_checked("the Makefile", "no make");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn each_target_runs_the_command_that_the_documents_name() {
    for (target, expected) in TARGETS {
        let Some(lines) = make(&["--dry-run", "IMG=registry/image:1", "VERSION=1.2.3", target])
        else {
            return;
        };
        if !expected.is_empty() {
            assert_eq!(lines.lines().last(), Some(expected), "make {target}");
        }
    }
}

#[test]
fn help_lists_every_target_and_no_other() {
    let Some(help) = make(&["help"]) else { return };
    let listed = help.lines().filter_map(|line| line.strip_prefix("  "));
    let mut listed: Vec<&str> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    let mut known = TARGETS.map(|(target, _)| target);
    listed.sort_unstable();
    known.sort_unstable();
    assert_eq!(listed, known);
}

#[test]
fn custom_resources_are_deleted_before_the_operator() {
    let Some(lines) = make(&["--dry-run", "undeploy"]) else { return };
    let first = lines.lines().next().unwrap();
    for (name, _) in crate::crd_files() {
        let kind = name.trim_end_matches(".yaml").split_once('_').unwrap();
        let kind = format!("{}.{}", kind.1, kind.0);
        assert!(first.contains(&kind), "{first} does not delete {kind}");
    }
}
