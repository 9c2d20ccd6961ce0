//! Metrics over TLS: the operator authorizes clients with the API server, with the permissions in
//! artifacts/rbac/metrics.yaml.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::http::fetch_over;
use crate::monitoring::{Prometheus, program};
use crate::operator_process::OperatorProcess;
use crate::packaging::objects;
use crate::world::{MAX_WAIT, SERVICE_ACCOUNT, World};

const CERTIFICATE: &str = "crates/machinery/src/metrics/tls/test-cert.pem";
const KEY: &str = "crates/machinery/src/metrics/tls/test-key.pem";
const AUTH: &str = "workload-operator-metrics-auth";
const READER: &str = "workload-operator-metrics-reader";

/// Accepts every certificate, like a scraper with `insecureSkipVerify`.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Starts the operator with this environment; also returns where it serves.
async fn start(world: &World, environment: &[(&str, &str)]) -> (OperatorProcess, String) {
    let operator = world.start_operator_with(environment).await;
    let line = operator.logged("Serving metrics on https://").await;
    let (_, address) = line.split_once("https://").unwrap();
    (operator, address.trim().to_owned())
}

/// Status code and body of a scrape with this token, by a client that trusts the test's certificate or any.
async fn scrape_trusting(any: bool, address: &str, token: Option<&str>) -> (u16, String) {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(CERTIFICATE).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    if any {
        config.dangerous().set_certificate_verifier(Arc::new(AnyCertificate));
    }
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    fetch_over(stream, "/metrics", token).await
}

async fn scrape(address: &str, token: Option<&str>) -> (u16, String) {
    scrape_trusting(false, address, token).await
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

/// Waits until the API server has noticed a binding: responses are cached for a minute.
async fn until_may(world: &World, account: &str, what: &[&str]) {
    let who = format!("--as=system:serviceaccount:{}:{account}", world.namespace);
    let question = [&["auth", "can-i", &who][..], what].concat();
    let deadline = Instant::now() + MAX_WAIT;
    // It exits with 1 while access is denied.
    while world.plane().try_kubectl(&question).is_err() {
        assert!(Instant::now() < deadline, "{account} may not {what:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_clients_that_the_api_server_authorizes_can_read_secure_metrics() {
    let world = World::new("metrics-tls", "restricted").await;
    for file in ["artifacts/rbac/metrics.yaml", "artifacts/rbac/metrics-reader.yaml"] {
        let text = std::fs::read_to_string(file).unwrap();
        let is_ours =
            |role: &&Value| [AUTH, READER].iter().any(|it| role["metadata"]["name"] == *it);
        let roles = objects(&text);
        for role in roles.iter().filter(|object| object["kind"] == "ClusterRole").filter(is_ours) {
            apply(&world, role);
        }
    }
    let (reader, stranger) = (account(&world, "reader").await, account(&world, "stranger").await);
    bind(&world, READER, "reader");
    until_may(&world, "reader", &["get", "/metrics"]).await;

    // Without its permissions, it cannot authorize clients, so it refuses all and reports the remedy.
    let files = [("METRICS_CERTIFICATE", CERTIFICATE), ("METRICS_KEY", KEY)];
    let (operator, address) = start(&world, &files).await;
    assert_eq!(scrape(&address, Some(&reader)).await.0, 503);
    let line = operator.logged("Cannot authorize metrics requests").await;
    assert!(line.contains("grant its account to create tokenreviews"), "{line}");

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
    by_prometheus(
        &address,
        &reader,
        &json!({"ca_file": file_of(CERTIFICATE), "server_name": "localhost"}),
    )
    .await;

    // Without a certificate it signs one itself.
    let (_operator, address) = start(&world, &[("METRICS_SECURE", "true")]).await;
    assert_eq!(scrape_trusting(true, &address, Some(&reader)).await.0, 200);
    assert_eq!(scrape_trusting(true, &address, None).await.0, 401);
    by_prometheus(&address, &reader, &json!({"insecure_skip_verify": true})).await;
}

fn file_of(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Scrapes as the ServiceMonitors specify: https, the certificate to trust if there is one, a token.
async fn by_prometheus(address: &str, token: &str, tls: &Value) {
    let Some(program) = program("prometheus", "a scrape over TLS by a real Prometheus") else {
        return;
    };
    let scrape = |job: &str, token: &str| {
        json!({"job_name": job, "scrape_interval": "1s", "scheme": "https",
            "static_configs": [{"targets": [address]}],
            "authorization": {"credentials": token},
            "tls_config": tls})
    };
    let jobs = [scrape("may", token), scrape("may-not", "nonsense")];
    let prometheus = Prometheus::scraping(&program, &jobs).await;
    prometheus.until_result("workload_operator_build_info{job='may'} and on (job) up == 1").await;
    prometheus.until_result("up{job='may-not'} == 0").await;
}
