//! Metrics over TLS: the operator asks the API server who may read them, with the rights in
//! artifacts/components/metrics-over-tls.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::http::fetch_over;
use crate::monitoring::{Prometheus, program};
use crate::operator_process::OperatorProcess;
use crate::packaging::objects;
use crate::world::{PATIENCE, SERVICE_ACCOUNT, World};

const CERTIFICATE: &str = "crates/machinery/src/metrics/tls/test-cert.pem";
const KEY: &str = "crates/machinery/src/metrics/tls/test-key.pem";
const AUTH: &str = "workload-operator-metrics-auth";
const READER: &str = "workload-operator-metrics-reader";

/// Starts the operator with a certificate; also returns where it serves.
async fn start(world: &World) -> (OperatorProcess, String) {
    let files = [("METRICS_CERTIFICATE", CERTIFICATE), ("METRICS_KEY", KEY)];
    let operator = world.start_operator_with(&files).await;
    let line = operator.logged("Serving metrics on https://").await;
    let (_, address) = line.split_once("https://").unwrap();
    (operator, address.trim().to_owned())
}

/// Status code and body of a scrape with this token.
async fn scrape(address: &str, token: Option<&str>) -> (u16, String) {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(CERTIFICATE).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    fetch_over(stream, "/metrics", token).await
}

/// Creates a ServiceAccount and returns a token for it.
async fn account(world: &World, name: &str) -> String {
    world.create(SERVICE_ACCOUNT, json!({"metadata": {"name": name}})).await.unwrap();
    let file = world.kubeconfig_of(name).await;
    let config: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    config["users"][0]["user"]["token"].as_str().unwrap().to_owned()
}

fn apply(world: &World, object: &Value) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), object.to_string()).unwrap();
    world.plane().kubectl(&["apply", "--server-side", "-f", file.path().to_str().unwrap()]);
}

/// Gives an account in this namespace a ClusterRole from the component.
fn bind(world: &World, role: &str, account: &str) {
    apply(
        world,
        &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("{role}-{}", world.namespace)},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": world.namespace}]}),
    );
}

/// Waits until the API server has noticed a binding: answers are cached for a minute.
async fn until_may(world: &World, account: &str, what: &[&str]) {
    let who = format!("--as=system:serviceaccount:{}:{account}", world.namespace);
    let question = [&["auth", "can-i", &who][..], what].concat();
    let deadline = Instant::now() + PATIENCE;
    // It exits with 1 as long as the answer is no.
    while world.plane().try_kubectl(&question).is_err() {
        assert!(Instant::now() < deadline, "{account} may not {what:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_only_those_read_the_metrics_whom_the_api_server_lets() {
    let world = World::new("metrics-tls", "restricted").await;
    let text = std::fs::read_to_string("artifacts/components/metrics-over-tls/rbac.yaml").unwrap();
    for role in objects(&text).iter().filter(|object| object["kind"] == "ClusterRole") {
        apply(&world, role);
    }
    let (reader, stranger) = (account(&world, "reader").await, account(&world, "stranger").await);
    bind(&world, READER, "reader");
    until_may(&world, "reader", &["get", "/metrics"]).await;

    // Without its rights it cannot ask, lets no client in, and says what to do.
    let (operator, address) = start(&world).await;
    assert_eq!(scrape(&address, Some(&reader)).await.0, 503);
    let line = operator.logged("Cannot ask who may read metrics").await;
    assert!(line.contains("apply artifacts/components/metrics-over-tls"), "{line}");

    bind(&world, AUTH, "workload-operator");
    for resource in
        ["tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io"]
    {
        until_may(&world, "workload-operator", &["create", resource]).await;
    }
    let (code, metrics) = scrape(&address, Some(&reader)).await;
    assert_eq!(code, 200, "{metrics}");
    assert!(metrics.contains("workload_operator_build_info"), "{metrics}");
    assert_eq!(scrape(&address, Some(&stranger)).await, (403, "Forbidden\n".to_owned()));
    assert_eq!(scrape(&address, Some("nonsense")).await, (401, "Unauthorized\n".to_owned()));
    assert_eq!(scrape(&address, None).await, (401, "Unauthorized\n".to_owned()));
    assert!(!operator.lines().iter().any(|line| line.contains(&reader)), "a token in the log");
    by_prometheus(&address, &reader).await;
}

/// As the component's ServiceMonitor specifies: https, a certificate to trust, a token.
async fn by_prometheus(address: &str, token: &str) {
    let Some(program) = program("prometheus", "a scrape over TLS by a real Prometheus") else {
        return;
    };
    let certificate = Path::new(env!("CARGO_MANIFEST_DIR")).join(CERTIFICATE);
    let scrape = |job: &str, token: &str| {
        json!({"job_name": job, "scrape_interval": "1s", "scheme": "https",
            "static_configs": [{"targets": [address]}],
            "authorization": {"credentials": token},
            "tls_config": {"ca_file": certificate, "server_name": "localhost"}})
    };
    let jobs = [scrape("may", token), scrape("may-not", "nonsense")];
    let prometheus = Prometheus::scraping(&program, &jobs).await;
    prometheus.until_result("workload_operator_build_info{job='may'} and on (job) up == 1").await;
    prometheus.until_result("up{job='may-not'} == 0").await;
}
