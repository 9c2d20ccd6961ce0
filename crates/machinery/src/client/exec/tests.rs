//! Plugins that are shell scripts. One that is slow waits until the test writes into a pipe.

use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

/// A folder with a plugin that logs each run in `runs` and then does `what`.
fn plugin(what: &str) -> (TempDir, Plugin) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let script = format!("cd {}; echo run >> runs; {what}", folder.path().display());
    std::fs::write(path("plugin"), script).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap();
    assert!(pipe.success());
    let exec = ExecConfig {
        command: Some("sh".to_owned()),
        args: Some(vec![path("plugin").display().to_string()]),
        ..serde_json::from_str("{}").unwrap()
    };
    (folder, Plugin::new(exec).unwrap())
}

fn runs(folder: &TempDir) -> usize {
    let runs = std::fs::read_to_string(folder.path().join("runs")).unwrap_or_default();
    runs.lines().count()
}

/// Lets one waiting plugin go on.
async fn release(folder: &TempDir) {
    let pipe: PathBuf = folder.path().join("pipe");
    tokio::task::spawn_blocking(move || std::fs::write(pipe, "\n").unwrap()).await.unwrap();
}

/// Returns a command that prints a token, with `rest` in its status.
fn print(token: &str, rest: &str) -> String {
    format!(r#"echo '{{"kind":"ExecCredential","status":{{{rest}"token":"{token}"}}}}'"#)
}

fn token(plugin: &Plugin) -> HeaderValue {
    plugin.last().expect("a credential").header.expect("a token")
}

/// Time passes for timers only.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn one_run_serves_all_callers_and_outlives_their_deadlines() {
    let (folder, plugin) = plugin(&format!("read _ < pipe; {}", print("t", "")));
    let brief = Duration::from_millis(1);
    for _ in 0..3 {
        let waits = timeout(brief, plugin.answered()).await;
        assert!(waits.is_err(), "the caller's deadline was shorter");
    }
    let error = plugin.ready().await.unwrap_err();
    let said = error.to_string();
    assert!(said.contains("the credential plugin sh has been running for"), "{said}");
    release(&folder).await;
    let clone = plugin.clone();
    let (one, other) = tokio::join!(plugin.answered(), clone.answered());
    one.and(other).unwrap();
    assert_eq!(token(&plugin), "Bearer t");
    assert_eq!(runs(&folder), 1);
}

#[test]
fn a_run_that_ended_with_its_runtime_is_repeated() {
    let (folder, plugin) = plugin(&format!("[ -e again ] || read _ < pipe; {}", print("t", "")));
    let on_a_runtime = |waits| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { timeout(waits, plugin.answered()).await })
    };
    assert!(on_a_runtime(Duration::from_millis(1)).is_err(), "it waits for the pipe");
    std::fs::write(folder.path().join("again"), "").unwrap();
    on_a_runtime(Duration::from_secs(60)).expect("it runs again").unwrap();
    assert_eq!(token(&plugin), "Bearer t");
}

#[tokio::test]
async fn a_token_without_expiry_is_replaced_once_it_is_refused() {
    let (folder, plugin) = plugin(&print("t'$(wc -l < runs)'", ""));
    plugin.ready().await.unwrap();
    assert_eq!(token(&plugin), "Bearer t1");
    let first = plugin.last().unwrap();
    plugin.refused(&first);
    plugin.ready().await.unwrap();
    assert_eq!(runs(&folder), 1, "it has just been issued");
    pass(Duration::from_secs(3600)).await;
    plugin.ready().await.unwrap();
    assert_eq!(runs(&folder), 1, "nobody refuses it");
    plugin.refused(&first);
    plugin.ready().await.unwrap();
    assert_eq!(token(&plugin), "Bearer t2");
    plugin.refused(&first);
    plugin.ready().await.unwrap();
    assert_eq!(runs(&folder), 2, "a late answer to the old token");
}

#[tokio::test]
async fn an_expiring_token_is_used_until_the_next_is_fetched() {
    let in_an_hour = Timestamp::now() + Duration::from_secs(3600);
    let expiry = format!(r#""expirationTimestamp":"{in_an_hour}","#);
    let wait = "[ $(wc -l < runs) = 1 ] || read _ < pipe; ";
    let (folder, plugin) = plugin(&format!("{wait}{}", print("t", &expiry)));
    plugin.ready().await.unwrap();
    let first = plugin.last().unwrap().issued;
    pass(Duration::from_secs(3545)).await;
    plugin.ready().await.unwrap();
    assert_eq!(plugin.last().unwrap().issued, first, "the old one is still good");
    let mut state = plugin.0.state.subscribe();
    release(&folder).await;
    state.wait_for(|state| state.running.is_none()).await.unwrap();
    assert!(plugin.last().unwrap().issued > first);
    assert_eq!(runs(&folder), 2);
}

#[tokio::test]
async fn a_failed_plugin_is_paused_and_its_error_omits_the_output() {
    let (folder, plugin) = plugin("echo hunter2; echo hunter2 >&2; exit 3");
    for _ in 0..3 {
        let said = plugin.ready().await.unwrap_err().to_string();
        assert_eq!(said, "no credentials: the credential plugin sh failed: exit status: 3");
    }
    assert_eq!(runs(&folder), 1);
    pass(PAUSE).await;
    plugin.ready().await.unwrap_err();
    assert_eq!(runs(&folder), 2);
    for (prints, why) in [("echo hunter2: {", "understood"), ("echo 'status: {}'", "neither")] {
        let (_folder, plugin) = self::plugin(prints);
        let said = plugin.ready().await.unwrap_err().to_string();
        assert!(said.contains(why) && !said.contains("hunter2"), "{said}");
    }
}

#[tokio::test]
async fn the_error_for_a_missing_program_contains_the_hint() {
    let exec = ExecConfig {
        command: Some("/no/such/plugin".to_owned()),
        install_hint: Some("Install it".to_owned()),
        ..serde_json::from_str("{}").unwrap()
    };
    let said = Plugin::new(exec).unwrap().ready().await.unwrap_err().to_string();
    assert!(said.contains("/no/such/plugin") && said.ends_with("Install it"), "{said}");
}

#[tokio::test]
async fn yaml_and_certificates_are_accepted() {
    let printed = "status:\n  clientCertificateData: |\n    CERT\n  clientKeyData: KEY";
    let (_folder, plugin) = plugin(&format!("echo '{printed}'"));
    plugin.ready().await.unwrap();
    let printed = plugin.last().unwrap();
    let identity = printed.identity.expect("a certificate");
    assert_eq!((&*identity.certificate, &*identity.key), (&b"CERT\n"[..], &b"KEY"[..]));
    assert!(printed.header.is_none());
}

/// A call that finds the plugin slow fails early and says so; siblings share the plugin.
#[tokio::test]
async fn a_failed_call_names_the_plugin_and_siblings_share_its_run() {
    use crate::client::{Client, Options};
    let (folder, plugin) = plugin(&format!("read _ < pipe; {}", print("t", "")));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut config = kube::Config::new(url.parse().unwrap());
    config.auth_info.exec = Some(plugin.0.exec.clone());
    let client = Client::new(config, Options::default()).unwrap();
    let sibling = client.sibling(Options::default()).unwrap();
    let (one, other) = tokio::join!(client.read_path("/version"), sibling.read_path("/version"));
    for error in [one.unwrap_err(), other.unwrap_err()] {
        assert!(matches!(error, Error::Credentials(_)), "{error}");
    }
    release(&folder).await;
    sibling.log_in().await.unwrap();
    assert_eq!(runs(&folder), 1);
    let service =
        hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
            assert_eq!(request.headers()["authorization"], "Bearer t");
            Ok::<_, std::convert::Infallible>(http::Response::new("{}".to_owned()))
        });
    let served = async {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = hyper_util::rt::TokioIo::new(stream);
        hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await
    };
    tokio::select! {
        answer = client.read_path("/version") => drop(answer.unwrap()),
        served = served => panic!("the connection ended: {served:?}"),
    }
}

#[tokio::test]
async fn processes_that_a_run_started_end_with_it() {
    let (folder, plugin) =
        plugin("mkfifo alive; echo >> ready; (exec 3> alive; read _ < pipe); true");
    drop(timeout(Duration::from_millis(1), plugin.answered()).await);
    while !folder.path().join("ready").exists() {
        sleep(Duration::from_millis(1)).await;
    }
    let alive = folder.path().join("alive");
    // It can be opened once the plugin's own child has it open, and ends with that child.
    let mut open =
        tokio::task::spawn_blocking(move || std::fs::File::open(alive).unwrap()).await.unwrap();
    let (ends, ended) = tokio::sync::oneshot::channel();
    // Not of the runtime, which would wait for it if the child did not end.
    std::thread::spawn(move || ends.send(std::io::copy(&mut open, &mut std::io::sink())));
    pass(LIMIT).await;
    assert!(plugin.answered().await.is_err());
    let ended = timeout(Duration::from_secs(60), ended).await.expect("the child is ended");
    ended.unwrap().unwrap();
}

#[tokio::test]
async fn a_refused_credential_is_used_again_if_the_plugin_fails() {
    let script = format!("if test -e printed; then exit 1; fi; touch printed; {}", print("t", ""));
    let (folder, plugin) = plugin(&script);
    plugin.answered().await.unwrap();
    pass(YOUNG).await;
    plugin.refused(&plugin.last().unwrap());
    plugin.answered().await.unwrap();
    assert_eq!((runs(&folder), token(&plugin).to_str().unwrap()), (2, "Bearer t"));
    // Until it is refused once more.
    plugin.refused(&plugin.last().unwrap());
    assert!(plugin.answered().await.is_err());
}
