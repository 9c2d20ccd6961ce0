//! A real control plane, started by hack/controlplane.sh.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::unchecked::not_checked;

/// A running control plane with the operator's CRDs and ClusterRoles in it.
#[derive(Debug)]
pub struct ControlPlane {
    dir: PathBuf,
    kubeconfig: PathBuf,
}

impl ControlPlane {
    /// Returns the one that the tests of this run share.
    pub fn shared() -> &'static ControlPlane {
        static SHARED: OnceLock<ControlPlane> = OnceLock::new();
        SHARED.get_or_init(|| ControlPlane::empty("shared", &[]).with_manifests())
    }

    /// Returns a separate one, for a test that breaks it or counts everything on it.
    pub fn private(name: &str) -> ControlPlane {
        ControlPlane::empty(name, &[]).with_manifests()
    }

    /// Like [`ControlPlane::private`], without any object of the operator.
    pub fn bare(name: &str) -> ControlPlane {
        ControlPlane::empty(name, &[])
    }

    /// Only etcd and the API server, for a test of those two.
    pub fn api_server_alone(name: &str) -> ControlPlane {
        ControlPlane::empty(name, &["--only-api"]).with_manifests()
    }

    /// One of this version of Kubernetes, `1.35`.
    pub fn of_version(version: &str) -> ControlPlane {
        let plane = ControlPlane::empty(version, &["--kubernetes-version", version]);
        plane.with_manifests()
    }

    /// The versions of Kubernetes that hack/controlplane.sh starts, the oldest first.
    pub fn versions() -> Vec<String> {
        let output = Command::new("hack/controlplane.sh").arg("versions").output();
        let output = output.expect("hack/controlplane.sh can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    /// Returns whether the servers of this version are built, and reports the skipped tests if they are not.
    /// A build takes minutes, and `cargo test` builds the newest version only.
    pub fn is_built(version: &str, unchecked: &str) -> bool {
        let mut which = Command::new("hack/controlplane.sh");
        which.args(["which", "kube-apiserver", "--kubernetes-version", version]);
        let output = which.output().expect("hack/controlplane.sh can be run");
        let stderr = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => true,
            Some(3) => {
                not_checked(unchecked, &stderr);
                false
            }
            _ => panic!("hack/controlplane.sh which: {stderr}"),
        }
    }

    /// Starts one for the calling test. It is stopped when the test ends.
    pub async fn of_this_test(
        start: impl FnOnce() -> ControlPlane + Send + 'static,
    ) -> &'static ControlPlane {
        let plane = tokio::task::spawn_blocking(start).await.expect("it starts");
        let plane: &'static ControlPlane = Box::leak(Box::new(plane));
        // The runtime drops its tasks at the end of the test, even after a panic.
        tokio::spawn(async move {
            let _stopped = StoppedOnDrop(plane);
            std::future::pending::<()>().await;
        });
        plane
    }

    fn with_manifests(self) -> ControlPlane {
        self.kubectl(&["apply", "--server-side", "-f", "artifacts/crds/"]);
        self.kubectl(&["apply", "-f", "artifacts/rbac/"]);
        self.until_established("--all");
        self
    }

    /// Waits until the API server serves this kind, or `--all`. `kubectl wait` fails on a new
    /// CustomResourceDefinition whose status still is empty (kubernetes/kubernetes#66439).
    pub fn until_established(&self, crd: &str) {
        let wait = ["wait", "--for=condition=Established", "crd", crd, "--timeout=60s"];
        while let Err(stderr) = self.try_kubectl(&wait) {
            assert!(stderr.contains("conditions accessor error"), "kubectl wait {crd}: {stderr}");
        }
    }

    /// Like [`ControlPlane::bare`], started with these options of hack/controlplane.sh.
    pub fn empty(name: &str, options: &[&str]) -> ControlPlane {
        let pid = std::process::id();
        let dir = std::env::temp_dir().join(format!("workload-operator-test-{pid}-{name}"));
        let output = Command::new("hack/controlplane.sh")
            .args(["start", "--while-pid", &pid.to_string(), "--dir"])
            .arg(&dir)
            .args(options)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .expect("hack/controlplane.sh can be run");
        // A machine without Go runs the other test targets. Almost no test of this one works without a control plane.
        if output.status.code() == Some(3) && Command::new("go").arg("version").output().is_err() {
            not_checked(
                "all tests on a real control plane",
                "there is no Go on PATH: https://go.dev/dl",
            );
            std::process::exit(0);
        }
        assert!(output.status.success(), "hack/controlplane.sh start failed: see above");
        let kubeconfig = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        ControlPlane { dir, kubeconfig }
    }

    /// Runs kubectl as the administrator and returns what it prints. Panics if it fails.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.try_kubectl(arguments);
        output.unwrap_or_else(|stderr| panic!("kubectl {}: {stderr}", arguments.join(" ")))
    }

    /// Runs kubectl as the administrator; `Err` is what it prints if it fails.
    pub fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(self.kubectl_path())
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("kubectl can be run");
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// The kubectl on PATH, otherwise the one that hack/controlplane.sh built.
    pub fn kubectl_path(&self) -> PathBuf {
        static PATH: OnceLock<PathBuf> = OnceLock::new();
        let path = PATH.get_or_init(|| {
            let output = Command::new("hack/controlplane.sh").args(["which", "kubectl"]).output();
            let output = output.expect("hack/controlplane.sh can be run");
            PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
        });
        path.clone()
    }

    /// A client for the administrator. A new one for each test: its connections belong to the
    /// test's runtime.
    pub async fn admin(&self) -> kube::Client {
        kube::Client::try_from(self.config().await).expect("a client")
    }

    /// Like [`ControlPlane::admin`], for another API server at this port.
    pub async fn admin_at(&self, port: u16) -> kube::Client {
        kube::Client::try_from(at(port, self.config().await)).expect("a client")
    }

    /// Like [`ControlPlane::admin`], but does not repeat requests that the API server refuses temporarily.
    pub async fn admin_without_retries(&self) -> kube::Client {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let mut config = config.expect("a usable kubeconfig");
        config.default_retry = false;
        kube::Client::try_from(config).expect("a client")
    }

    /// A client without an identity: it sends the credentials that each request has.
    pub async fn nobody(&self) -> kube::Client {
        kube::Client::try_from(nameless(self.config().await)).expect("a client")
    }

    /// Like [`ControlPlane::nobody`], for another API server at this port.
    pub async fn nobody_at(&self, port: u16) -> kube::Client {
        kube::Client::try_from(at(port, nameless(self.config().await))).expect("a client")
    }

    async fn config(&self) -> kube::Config {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        config.expect("a usable kubeconfig")
    }

    /// Returns the address of the API server: `host:port`.
    pub fn address(&self) -> String {
        let text = std::fs::read_to_string(&self.kubeconfig).expect("a kubeconfig");
        let config: serde_json::Value = serde_yaml_ng::from_str(&text).expect("YAML");
        let server = config["clusters"][0]["cluster"]["server"].as_str().expect("a server");
        server.trim_start_matches("https://").to_owned()
    }

    /// Returns the address of etcd: `host:port`.
    pub fn etcd(&self) -> String {
        let ports = std::fs::read_to_string(self.dir.join("run/etcd.ports")).expect("ports");
        format!("127.0.0.1:{}", ports.split(' ').next().expect("a port"))
    }

    /// Returns its directory, which hack/controlplane.sh describes.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The audit log: every request that the API server answered, as one JSON object per line.
    pub fn audit_log(&self) -> PathBuf {
        self.dir.join("audit.log")
    }
}

/// Stops a control plane without waiting. Each idle one would cost the other tests a twentieth of a
/// processor.
struct StoppedOnDrop(&'static ControlPlane);

impl Drop for StoppedOnDrop {
    fn drop(&mut self) {
        let mut stop = Command::new("hack/controlplane.sh");
        stop.args(["stop", "--dir"]).arg(&self.0.dir).stdin(Stdio::null()).stderr(Stdio::null());
        // Otherwise it ends with the test process.
        let _ = stop.spawn();
    }
}

fn nameless(mut config: kube::Config) -> kube::Config {
    config.auth_info = kube::config::AuthInfo::default();
    config
}

fn at(port: u16, mut config: kube::Config) -> kube::Config {
    config.cluster_url = format!("https://127.0.0.1:{port}/").parse().expect("a URL");
    config
}
