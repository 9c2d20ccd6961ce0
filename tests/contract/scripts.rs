//! Input that the scripts in hack/ refuse, and the messages for it.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::control_plane::ControlPlane;

/// Any user but root.
const SOMEBODY: u32 = 65534;

/// Runs it. Returns its exit status and its output on stderr.
fn run(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A PATH that begins with a program of this name.
fn path_with(program: &str, script: &str, folder: &Path) -> String {
    let file = folder.join(program);
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// Returns a folder of another user: one whose owner was changed, or root's if the test does not run as root.
fn foreign(folder: &Path) -> PathBuf {
    if std::fs::metadata(folder).unwrap().uid() != 0 {
        return "/".into();
    }
    chown(folder, Some(SOMEBODY), None).unwrap();
    folder.into()
}

/// Its kubeconfig could name a program, which would run as the current user.
#[test]
fn the_control_plane_of_another_user_is_not_read_or_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let dir = foreign(folder.path());
    for command in ["status", "stop"] {
        let mut script = Command::new("hack/controlplane.sh");
        let (status, said) = run(script.arg(command).arg("--dir").arg(&dir));
        assert_eq!(status, Some(1), "{command}: {said}");
        assert!(said.contains("belongs to another user"), "{command}: {said}");
    }
}

/// This holds for every name of the installation: this one is like a Helm release `infra` with
/// `nameOverride`.
#[tokio::test(flavor = "multi_thread")]
async fn the_demo_refuses_a_cluster_with_an_installed_operator() {
    let plane = ControlPlane::of_this_test(|| ControlPlane::bare("demo")).await;
    let folder = tempfile::tempdir().unwrap();
    let containers =
        ["sidecar", "workload-operator"].map(|name| json!({"name": name, "image": "x"}));
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "infra-x"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}}});
    let installed = folder.path().join("deployment.json");
    std::fs::write(&installed, deployment.to_string()).unwrap();
    plane.kubectl(&["create", "-f", installed.to_str().unwrap()]);
    let mut demo = Command::new("hack/demo.sh");
    demo.args(["--once", "--kubeconfig"]).arg(plane.kubeconfig());
    // Nothing is built, because the script must terminate before it runs an operator.
    demo.env("PATH", path_with("cargo", "#!/bin/sh\n", folder.path()));
    demo.env("CARGO_TARGET_DIR", folder.path());
    let (status, said) = run(&mut demo);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("installed in this cluster (deployment default/infra-x)"), "{said}");
}

/// A `go` that can build one program, and cannot fetch the sources of others.
const GO: &str = r#"#!/bin/sh
case "$*" in
  env*) echo go1.99.0 ;;
  *cmd/olm) ;;
  *) echo 'Get "https://proxy.example/@v/list": dial tcp: no route to host' >&2; exit 1 ;;
esac
"#;

#[test]
fn sources_that_cannot_be_fetched_are_reported_as_missing() {
    let folder = tempfile::tempdir().unwrap();
    let mut script = Command::new("hack/olm.sh");
    script.arg("build").env_remove("OLM").env("XDG_CACHE_HOME", folder.path());
    script.env("PATH", path_with("go", GO, folder.path()));
    let (status, said) = run(&mut script);
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("the sources of catalog cannot be fetched"), "{said}");
}
