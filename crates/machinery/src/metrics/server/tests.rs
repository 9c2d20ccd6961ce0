use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::client::{Client, Options};
use crate::metrics::{Build, DelegatedAuthorizer};

struct Running {
    address: SocketAddr,
    ready: HealthChecks,
    stop: tokio::sync::oneshot::Sender<()>,
    served: tokio::task::JoinHandle<()>,
}

async fn start_with(limits: Limits, access: Authorizer) -> Running {
    let (health, ready) = (HealthChecks::default(), HealthChecks::default());
    health.add("ping", || Ok(String::new()));
    let metrics = Metrics::new(&"workload-operator".into(), &Build { version: "1", revision: "r" });
    let routes = Routes {
        health: Some(health),
        ready: Some(ready.clone()),
        metrics: Some((metrics, access)),
    };
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), routes, limits).await.unwrap();
    let address = server.address().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = tokio::spawn(server.run(async { drop(stopped.await) }));
    Running { address, ready, stop, served }
}

async fn start() -> Running {
    start_with(Limits::default(), Authorizer::Open).await
}

impl Running {
    /// Sends `bytes` and reads until the server closes.
    async fn send(&self, bytes: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // A server that refuses may have closed the connection before everything was sent.
        drop(stream.write_all(bytes.as_bytes()).await);
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer).await);
        String::from_utf8(answer).unwrap()
    }

    async fn get(&self, path: &str, headers: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n"))
            .await
    }
}

fn code(answer: &str) -> &str {
    answer.get(9..12).unwrap_or("none")
}

#[tokio::test]
async fn shutdown_does_not_wait_for_idle_connections() {
    let server = start().await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 12];
    idle.read_exact(&mut answer).await.unwrap();
    // Virtual from here on: a wait would show.
    tokio::time::pause();
    let begin = tokio::time::Instant::now();
    drop(server.stop);
    server.served.await.unwrap();
    assert!(begin.elapsed() < LAST_ANSWER, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_probe_returns_ok_or_the_failed_check() {
    let server = start().await;
    let answer = server.get("/readyz", "").await;
    assert!(code(&answer) == "200" && answer.ends_with("\r\n\r\nok"), "{answer}");
    server.ready.add("informer-apps", || Err("Forbidden: cannot list apps".into()));
    let answer = server.get("/readyz", "").await;
    assert_eq!(code(&answer), "503");
    assert!(answer.contains("[-]informer-apps failed: Forbidden: cannot list apps"), "{answer}");
    assert_eq!(code(&server.get("/readyz?exclude=informer-apps", "").await), "200");
    assert_eq!(code(&server.get("/readyz/informer-apps", "").await), "503");
    assert_eq!(code(&server.get("/healthz", "").await), "200", "alive all the same");
    let answer = server.get("/livez?verbose", "").await;
    assert!(answer.ends_with("[+]ping ok\nlivez check passed\n"), "{answer}");
}

#[tokio::test]
async fn metrics_are_in_prometheus_text() {
    let server = start().await;
    let text = server.get("/metrics", "").await;
    assert!(text.contains("content-type: text/plain; version=0.0.4"), "{text}");
    assert!(text.contains("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total "));
    assert!(text.contains("\nworkload_operator_build_info{version=\"1\",revision=\"r\"} 1\n"));
}

#[tokio::test]
async fn unsupported_requests_are_refused() {
    let server = start().await;
    for path in ["/", "/metrics/x", "/readyz/nothing", "/debug/pprof", "/../metrics"] {
        assert_eq!(code(&server.get(path, "").await), "404", "{path}");
    }
    let post = "POST /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert_eq!(code(&server.send(post).await), "405");
    let body = "GET /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\nxxx";
    assert_eq!(code(&server.send(body).await), "413", "and the connection is closed");
    let chunked = "GET /readyz HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\n";
    assert_eq!(code(&server.send(chunked).await), "413");
}

#[tokio::test]
async fn headers_are_bounded_in_size_and_number() {
    let server = start().await;
    let large = format!("x: {}\r\n", "a".repeat(9_000));
    assert!(["431", "400"].contains(&code(&server.get("/readyz", &large).await)));
    let many = "x: a\r\n".repeat(100);
    assert!(["431", "400"].contains(&code(&server.get("/readyz", &many).await)));
}

#[tokio::test]
async fn a_silent_client_is_disconnected() {
    let header_time = Duration::from_millis(300);
    let limits = Limits { connections: 2, header_time, ..Limits::default() };
    let server = start_with(limits, Authorizer::Open).await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET /readyz HTTP/1.1\r\nx: ").await.unwrap();
    // Reading ends when the server closes.
    let mut rest = Vec::new();
    drop(idle.read_to_end(&mut rest).await);
    drop(slow.read_to_end(&mut rest).await);
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
    assert_eq!(code(&server.get("/readyz", "").await), "200", "the place is free again");
}

#[tokio::test]
async fn idle_connections_make_room_for_a_probe() {
    let server = start_with(Limits { connections: 2, ..Limits::default() }, Authorizer::Open).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        stream.read_exact(&mut [0; 12]).await.unwrap();
        open.push(stream);
    }
    for _ in 0..10 {
        assert_eq!(code(&server.get("/readyz", "").await), "200");
    }
    let mut rest = Vec::new();
    drop(open[0].read_to_end(&mut rest).await);
}

#[tokio::test]
async fn shutdown_waits_briefly_for_a_running_response() {
    const LENGTH: usize = 16 << 20; // More than the sockets hold.
    for reads in [true, false] {
        let server = start().await;
        server.ready.add("long", || Err("x".repeat(LENGTH)));
        let mut slow = TcpStream::connect(server.address).await.unwrap();
        slow.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        slow.read_exact(&mut [0]).await.unwrap();
        drop(server.stop);
        let mut answer = Vec::new();
        if reads {
            slow.read_to_end(&mut answer).await.unwrap();
            assert!(answer.len() > LENGTH, "{}", answer.len());
        }
        let bound = LAST_ANSWER + Duration::from_secs(10);
        timeout(bound, server.served).await.expect("it ends").unwrap();
    }
}

/// An API server that admits the bearer of one token, recognizes but refuses another, and fails for a
/// third.
fn reviews() -> Authorizer {
    use serde_json::{Value, json};

    let service = tower::service_fn(|request: Request<Bytes>| async move {
        let mut body: Value = serde_json::from_slice(request.body())?;
        body["status"] = match (body["spec"]["token"].as_str(), body["spec"]["user"].as_str()) {
            (Some("unlucky"), _) => return Err("cannot be reached".into()),
            (Some(name @ ("good" | "other")), _) => {
                json!({"authenticated": true, "user": {"username": name}})
            }
            (_, user) => json!({"allowed": user == Some("good")}),
        };
        let answer = Response::new(body.to_string());
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(answer)
    });
    let client = Client::from_service(service, Options::default());
    Authorizer::Delegated(Arc::new(DelegatedAuthorizer::new(client)))
}

#[tokio::test]
async fn metrics_require_authorization_and_health_does_not() {
    let server = start_with(Limits::default(), reviews()).await;
    for (header, expected) in [
        ("", "401"),
        ("authorization: Basic good\r\n", "401"),
        ("authorization: Bearer bad\r\n", "401"),
        ("authorization: Bearer other\r\n", "403"),
        ("authorization: Bearer unlucky\r\n", "503"),
        ("authorization: bearer good\r\n", "200"),
    ] {
        let answer = server.get("/metrics", header).await;
        assert_eq!(code(&answer), expected, "{header}");
        assert_eq!(answer.contains("build_info"), expected == "200");
    }
    assert_eq!(code(&server.get("/readyz", "").await), "200");
}

#[tokio::test]
async fn tls_clients_are_served_and_http_clients_are_not() {
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    std::fs::write(&certificate, include_str!("../tls/test-cert.pem")).unwrap();
    std::fs::write(&key, include_str!("../tls/test-key.pem")).unwrap();
    let ready = HealthChecks::default();
    let routes = Routes { ready: Some(ready.clone()), ..Routes::default() };
    let any = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(any, routes, Limits::default()).await.unwrap();
    let server = server.with_tls(Tls::load(&certificate, &key).unwrap());
    let address = server.address().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = tokio::spawn(server.run(async { drop(stopped.await) }));

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificate).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let request = b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    drop(stream.read_to_string(&mut answer).await);
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");

    let plain = Running { address, ready, stop, served };
    assert!(!plain.get("/readyz", "").await.contains("200 OK"));
}
