//! Credentials of the operator: credential plugins, certificates, and a CA that is replaced.

use std::path::{Path, PathBuf};
use std::process::Command;
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

/// A token for the operator, of the kind that `bound` says.
async fn token(world: &World, bound: Value) -> String {
    let file = "serviceaccounts/workload-operator/token";
    let path = format!("/api/v1/namespaces/{}/{file}", world.namespace);
    let request = json!({"spec": {"expirationSeconds": 3600, "boundObjectRef": bound}});
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

/// The output was previously dropped together with the call that reached its deadline.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_credential_plugin_runs_once_and_is_reported() {
    let world = World::new("slow-plugin", "restricted").await;
    let plugin = Plugin::new(4);
    // The token expires soon, so that each call must check whether it needs another.
    let expiry = jiff::Timestamp::now() + Duration::from_secs(50);
    let token = token(&world, Value::Null).await;
    plugin.prints(json!({"token": token, "expirationTimestamp": expiry.to_string()}));
    let kubeconfig = kubeconfig(&world, plugin.user()).await;
    let operator = start(&world, &kubeconfig, &[("API_DEADLINE", "1s")]);
    operator.logged("The credential plugin sh has not answered after 3 s").await;
    operator.logged("Ready to work").await;
    assert_eq!(plugin.runs(), 1);
    works(&world, "cart").await;
    let log = operator.lines();
    assert!(!log.iter().any(|line| line.contains("API server did not respond")), "{log:#?}");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_of_a_plugin_is_replaced() {
    let world = World::new("refused-plugin", "restricted").await;
    let plugin = Plugin::new(0);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bound"}});
    let secrets = format!("/api/v1/namespaces/{}/secrets", world.namespace);
    let secret = world.post(&secrets, secret).await.unwrap();
    let bound = json!({"kind": "Secret", "apiVersion": "v1", "name": "bound",
        "uid": secret["metadata"]["uid"]});
    plugin.prints(json!({"token": token(&world, bound).await}));
    let kubeconfig = kubeconfig(&world, plugin.user()).await;
    let mut operator = start(&world, &kubeconfig, &[]);
    operator.logged("Ready to work").await;
    works(&world, "before").await;
    let runs = plugin.runs();
    plugin.prints(json!({"token": token(&world, Value::Null).await}));
    // The old token expires with its Secret.
    let path = format!("{secrets}/bound");
    let request = Request::builder().method(Method::DELETE).uri(path).body(Vec::new()).unwrap();
    let _: Value = world.plane().admin().await.request(request).await.unwrap();
    let replaced = async {
        // The API server caches for some seconds that the token was valid.
        for number in 0.. {
            works(&world, &format!("after-{number}")).await;
            if plugin.runs() > runs {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(MAX_WAIT, replaced).await.expect("the plugin is asked again");
    works(&world, "last").await;
    assert_eq!(plugin.runs(), runs + 1);
    operator.assert_alive();
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
async fn client_certificates_of_plugins_and_files_are_replaced() {
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
    // At first, the files contain a certificate of an unknown authority.
    let stranger = "cd \"$1\"; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 \
        -nodes -keyout tls.key -out tls.crt -days 2 -subj /CN=nobody";
    let made = Command::new("sh").args(["-c", stranger, "sh"]).arg(folder).output().unwrap();
    assert!(made.status.success());
    let (tls_crt, tls_key) = (folder.join("tls.crt"), folder.join("tls.key"));
    let file =
        kubeconfig(&world, json!({"client-certificate": tls_crt, "client-key": tls_key})).await;
    let mut operator = start(&world, &file, &[]);
    operator.logged("Unauthorized").await;
    std::fs::write(tls_key, key).unwrap();
    std::fs::write(tls_crt, certificate).unwrap();
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
    config.auth_info.token = Some(token(&world, Value::Null).await.into());
    let client = Client::new(config, Options::default()).unwrap();
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
