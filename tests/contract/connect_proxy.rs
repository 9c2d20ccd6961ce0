//! The operator behind a proxy: `HTTPS_PROXY`, or `proxy-url` in the kubeconfig. The API server has
//! a name that only the proxy can resolve.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::operator_process::{OperatorProcess, command};
use crate::world::{MEMCACHED, MEMCACHED_IMAGE, World, is_ready, memcached};

/// The API server's name in its certificate; outside a cluster it cannot be resolved.
const SERVER: &str = "kubernetes.default.svc:6443";
/// `user:p@ss`
const CREDENTIALS: &str = "Basic dXNlcjpwQHNz";

/// A proxy that supports only CONNECT. Ends when dropped.
struct ConnectProxy {
    port: u16,
    /// Targets of its requests, with the response's code.
    asked: Arc<Mutex<Vec<(String, u16)>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ConnectProxy {
    /// A proxy to the world's API server that requires credentials; `tls`: it is reached over TLS.
    async fn start(world: &World, tls: bool) -> ConnectProxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it listens").port();
        let asked: Arc<Mutex<Vec<_>>> = Arc::default();
        let (server, seen) = (world.plane().address(), asked.clone());
        let acceptor = tls.then(|| acceptor(world));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (server, seen, acceptor) = (server.clone(), seen.clone(), acceptor.clone());
                connections.spawn(async move {
                    match acceptor {
                        None => tunnel(stream, server, seen).await,
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => tunnel(stream, server, seen).await,
                            Err(_) => seen.lock().push(("a failed handshake".to_owned(), 0)),
                        },
                    }
                });
            }
        });
        ConnectProxy { port, asked, task }
    }

    fn asked(&self) -> Vec<(String, u16)> {
        self.asked.lock().clone()
    }
}

/// TLS with the API server's own certificate, which the cluster's CA has signed.
pub fn acceptor(world: &World) -> TlsAcceptor {
    let pki = world.plane().dir().join("pki");
    let chain = vec![CertificateDer::from_pem_file(pki.join("server.crt")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(pki.join("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn tunnel(
    mut near: impl AsyncRead + AsyncWrite + Unpin,
    server: String,
    seen: Arc<Mutex<Vec<(String, u16)>>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = near.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let (line, headers) = head.split_once("\r\n").unwrap();
    let target = line.strip_prefix("CONNECT ").and_then(|line| line.strip_suffix(" HTTP/1.1"));
    let admitted = headers.lines().any(|header| {
        header.split_once(": ").is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("proxy-authorization") && value == CREDENTIALS
        })
    });
    let (code, answer) = match admitted {
        true => (200, "HTTP/1.1 200 Connection established\r\n\r\n"),
        false => (407, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"),
    };
    seen.lock().push((target.unwrap_or(line).to_owned(), code));
    if near.write_all(answer.as_bytes()).await.is_err() || !admitted {
        return;
    }
    let mut far = TcpStream::connect(server).await.unwrap();
    drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
}

/// Makes a kubeconfig point to [`SERVER`], through this `proxy-url`. Returns its path.
fn lead(file: PathBuf, proxy_url: Option<&str>) -> PathBuf {
    let text = std::fs::read_to_string(&file).unwrap();
    let mut config: Value = serde_yaml_ng::from_str(&text).unwrap();
    let cluster = &mut config["clusters"][0]["cluster"];
    cluster["server"] = json!(format!("https://{SERVER}"));
    if let Some(proxy) = proxy_url {
        cluster["proxy-url"] = json!(proxy);
    }
    std::fs::write(&file, config.to_string()).unwrap();
    file
}

/// The kubeconfigs of the operator and of the administrator.
struct Kubeconfigs {
    operator: PathBuf,
    admin: PathBuf,
    _folder: tempfile::TempDir,
}

impl Kubeconfigs {
    async fn of(world: &World, proxy_url: Option<&str>) -> Kubeconfigs {
        let folder = tempfile::tempdir().unwrap();
        let admin = folder.path().join("admin");
        std::fs::copy(world.plane().kubeconfig(), &admin).unwrap();
        let operator = lead(world.operator_kubeconfig().await, proxy_url);
        Kubeconfigs { operator, admin: lead(admin, proxy_url), _folder: folder }
    }
}

/// Runs `run`, `check` and `status` in this environment and asserts that each works.
async fn all_commands_work(
    world: &World,
    files: &Kubeconfigs,
    environment: &[(&str, &str)],
    name: &str,
) {
    let with_image = [environment, &[("MEMCACHED_IMAGE", MEMCACHED_IMAGE)]].concat();
    let arguments = ["--namespace", world.namespace.as_str()];
    let mut operator = OperatorProcess::start(&files.operator, &arguments, &with_image);
    operator.logged("Ready to work").await;
    world.create(MEMCACHED, memcached(name, 1)).await.unwrap();
    world.until(MEMCACHED, name, is_ready).await;
    operator.assert_alive();
    let arguments = ["status", "memcached", name, "-n", &world.namespace];
    let status = output(&files.admin, &arguments, environment).await;
    assert!(status.contains("Ready"), "{status}");
    let check = output(&files.admin, &["check"], environment).await;
    assert!(check.lines().any(|line| line.contains("K001") && line.contains("ok")), "{check}");
}

/// Returns the entire output of a command.
async fn output(kubeconfig: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let binary = command(kubeconfig, &[], &[]).as_std().get_program().to_owned();
    let output = tokio::process::Command::new(binary)
        .args(arguments)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let all = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_works_through_a_proxy_or_names_it() {
    let world = World::new("connect-proxy", "restricted").await;
    let files = Kubeconfigs::of(&world, None).await;
    for (tls, scheme) in [(false, "http"), (true, "https")] {
        let proxy = ConnectProxy::start(&world, tls).await;
        let url = format!("{scheme}://user:p%40ss@127.0.0.1:{}", proxy.port);
        let environment = [("HTTPS_PROXY", &*url), ("NO_PROXY", "10.0.0.0/8,example.com")];
        all_commands_work(&world, &files, &environment, scheme).await;
        let asked = proxy.asked();
        assert!(!asked.is_empty());
        assert!(asked.iter().all(|(to, code)| to == SERVER && *code == 200), "{asked:?}");
    }
    let proxy = ConnectProxy::start(&world, false).await;
    let url = format!("http://user:hunter2@127.0.0.1:{}", proxy.port);
    let check = output(&files.admin, &["check"], &[("https_proxy", &url)]).await;
    assert!(check.contains("proxy authorization required"), "{check}");
    assert!(check.contains(&format!("http://127.0.0.1:{} gives no tunnel", proxy.port)), "{check}");
    assert!(!check.contains("hunter2"), "{check}");
    assert_eq!(proxy.asked(), [(SERVER.to_owned(), 407)]);
    // The proxy of the kubeconfig takes precedence.
    let url = format!("http://user:p%40ss@127.0.0.1:{}", proxy.port);
    let files = Kubeconfigs::of(&world, Some(&url)).await;
    let environment = [("HTTPS_PROXY", "socks4://no.such.proxy:1"), ("NO_PROXY", "*")];
    all_commands_work(&world, &files, &environment, "cart").await;
    assert!(proxy.asked().contains(&(SERVER.to_owned(), 200)));
}
