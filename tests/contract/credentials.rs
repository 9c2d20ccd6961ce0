//! Credentials of the operator: credential plugins, certificates, and a CA that is replaced.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{Method, Request};
use serde_json::{Value, json};
use tempfile::TempDir;
use workload_operator::client::{Client, Error, Options};

use crate::operator_process::OperatorProcess;
use crate::world::{
    MAX_WAIT, MEMCACHED, MEMCACHED_IMAGE, ROLE_BINDING, World, is_ready, memcached,
};

/// A credential plugin: a shell script that logs each run and prints a file.
struct Plugin {
    folder: TempDir,
}

impl Plugin {
    /// One that takes this many seconds.
    fn new(seconds: u32) -> Plugin {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().display();
        let script = format!("cd {here}; echo run >> runs; sleep {seconds}; cat printed");
        std::fs::write(folder.path().join("plugin"), script).unwrap();
        Plugin { folder }
    }

    /// From now on it prints this status.
    fn prints(&self, status: Value) {
        let printed = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": status,
        });
        std::fs::write(self.folder.path().join("printed"), printed.to_string()).unwrap();
    }

    fn runs(&self) -> usize {
        let runs = std::fs::read_to_string(self.folder.path().join("runs")).unwrap_or_default();
        runs.lines().count()
    }

    /// The user of a kubeconfig that uses it.
    fn user(&self) -> Value {
        json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": [self.folder.path().join("plugin")],
            "interactiveMode": "Never",
        }})
    }
}

/// The operator's kubeconfig with another user.
async fn kubeconfig(world: &World, user: Value) -> PathBuf {
    let file = world.operator_kubeconfig().await;
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    config["users"][0]["user"] = user;
    std::fs::write(&file, config.to_string()).unwrap();
    file
}

/// A token for the operator.
async fn token(world: &World) -> String {
    let file = "serviceaccounts/workload-operator/token";
    let path = format!("/api/v1/namespaces/{}/{file}", world.namespace);
    let request = json!({"spec": {"expirationSeconds": 3600}});
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header("content-type", "application/json")
        .body(request.to_string().into_bytes())
        .unwrap();
    let answer: Value = world.plane().admin().await.request(request).await.unwrap();
    answer["status"]["token"].as_str().unwrap().to_owned()
}

fn start(world: &World, kubeconfig: &Path, environment: &[(&str, &str)]) -> OperatorProcess {
    let environment = [environment, &[("MEMCACHED_IMAGE", MEMCACHED_IMAGE)]].concat();
    OperatorProcess::start(kubeconfig, &["--namespace", &world.namespace], &environment)
}

async fn works(world: &World, name: &str) {
    world.create(MEMCACHED, memcached(name, 1)).await.unwrap();
    world.until(MEMCACHED, name, is_ready).await;
}

/// kube runs a plugin again for the calls of the minute before its token expires.
#[tokio::test(flavor = "multi_thread")]
async fn a_credential_plugin_renews_its_token() {
    let world = World::new("renewed-token", "restricted").await;
    let plugin = Plugin::new(0);
    let expiry = jiff::Timestamp::now() + Duration::from_secs(50);
    let token = token(&world).await;
    plugin.prints(json!({"token": "invalid", "expirationTimestamp": expiry.to_string()}));
    let kubeconfig = kubeconfig(&world, plugin.user()).await;
    let operator = start(&world, &kubeconfig, &[]);
    operator.logged("Running the credential plugin sh").await;
    operator.logged("Unauthorized").await;
    plugin.prints(json!({"token": token, "expirationTimestamp": expiry.to_string()}));
    operator.logged("Ready to work").await;
    works(&world, "cart").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_the_operator_while_it_fetches_credentials() {
    let world = World::new("endless-plugin", "restricted").await;
    let plugin = Plugin::new(600);
    let kubeconfig = kubeconfig(&world, plugin.user()).await;
    let operator = OperatorProcess::start(&kubeconfig, &["--namespace", &world.namespace], &[]);
    let deadline = tokio::time::Instant::now() + MAX_WAIT;
    while plugin.runs() == 0 {
        assert!(tokio::time::Instant::now() < deadline, "the plugin has not run");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(operator.terminate().await, Some(0));
}

/// Returns a certificate that the API server accepts for the operator, and its key.
async fn certificate(world: &World) -> (String, String) {
    let binding = json!({
        "metadata": {"name": "by-certificate"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "workload-operator"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "kube-apiserver"}],
    });
    world.create(ROLE_BINDING, binding).await.unwrap();
    let pki = world.plane().dir().join("pki");
    let read = |name: &str| std::fs::read_to_string(pki.join(name)).unwrap();
    (read("server.crt"), read("server.key"))
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificates_of_plugins_and_files_are_used() {
    let world = World::new("certificates", "restricted").await;
    let plugin = Plugin::new(0);
    let folder = plugin.folder.path();
    let (certificate, key) = certificate(&world).await;
    plugin.prints(json!({"clientCertificateData": certificate, "clientKeyData": key}));
    let file = kubeconfig(&world, plugin.user()).await;
    let operator = start(&world, &file, &[]);
    operator.logged("Ready to work").await;
    works(&world, "plugin").await;
    operator.kill().await;
    let (tls_crt, tls_key) = (folder.join("tls.crt"), folder.join("tls.key"));
    std::fs::write(&tls_key, key).unwrap();
    std::fs::write(&tls_crt, certificate).unwrap();
    let user = json!({"client-certificate": tls_crt, "client-key": tls_key});
    let file = kubeconfig(&world, user).await;
    let mut operator = start(&world, &file, &[]);
    operator.logged("Ready to work").await;
    works(&world, "files").await;
    operator.assert_alive();
}

/// A pod's CA is a file that the kubelet replaces; kube reads it again after a minute.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn a_replaced_ca_of_a_pod_is_trusted_within_minutes() {
    let world = World::new("rotated-ca", "restricted").await;
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.crt");
    std::fs::copy("crates/machinery/src/metrics/tls/test-cert.pem", &ca).unwrap();
    let server = format!("https://{}", world.plane().address());
    let mut config = kube::Config::new(server.parse().unwrap());
    // As kube::Config::incluster sets it.
    config.root_cert = Some(Vec::new());
    config.root_cert_file = Some(ca.clone());
    config.auth_info.token = Some(token(&world).await.into());
    let client = Client::new(config, Options::default()).await.unwrap();
    let refused = client.read_path("/version").await.unwrap_err();
    assert!(refused.to_string().contains("UnknownIssuer"), "{refused}");
    std::fs::copy(world.plane().dir().join("pki/ca.crt"), &ca).unwrap();
    let trusted = async {
        while let Err(error) = client.read_path("/version").await {
            assert!(matches!(error, Error::Transport { .. }), "{error}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(MAX_WAIT, trusted).await.expect("the new CA is trusted");
}
