//! The client over a real socket.

use super::*;

/// A server on a socket that answers each connection's first request with `answer`; the task
/// returns what was sent to it.
async fn serve(answer: &'static str) -> (http::Uri, tokio::task::JoinHandle<String>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/base", listener.local_addr().unwrap()).parse().unwrap();
    let served = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(socket.read_u8().await.unwrap());
        }
        socket.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(request).unwrap().to_lowercase()
    });
    (url, served)
}

#[tokio::test]
async fn a_request_over_a_socket_carries_the_token_and_no_error_does() {
    let (url, served) =
        serve("HTTP/1.1 401 Unauthorized\r\ncontent-length: 12\r\n\r\nUnauthorized").await;
    let mut config = kube::Config::new(url);
    config.auth_info.token = Some("hunter2".to_owned().into());
    let client = Client::new(config, Options::new(PROGRAM)).await.unwrap();
    let error = client.get::<Thing>(&key()).await.unwrap_err();
    assert_eq!(error.code(), Some(401));
    assert!(!format!("{error} {error:?} {client:?}").contains("hunter2"));
    let request = served.await.unwrap();
    assert!(request.starts_with("get /base/apis/g/v1/namespaces/ns/things/a http/1.1\r\n"));
    assert!(request.contains("authorization: bearer hunter2\r\n"), "{request}");
    assert!(request.contains("user-agent: website/1.2.3"), "{request}");
}

#[tokio::test]
async fn the_error_for_an_unreachable_server_is_readable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: http::Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let client = Client::new(kube::Config::new(url), Options::default()).await.unwrap();
    let error = client.get::<Thing>(&key()).await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }));
    assert!(error.to_string().to_lowercase().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_watch_cut_by_the_network_is_an_error() {
    let (url, _served) = serve(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
         34\r\n{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n\r\n",
    )
    .await;
    let client = Client::new(kube::Config::new(url), Options::default()).await.unwrap();
    let mut events = watch(&client).await;
    assert!(matches!(events.next().await, Some(Ok(WatchEvent::Added(_)))));
    assert!(matches!(events.next().await, Some(Err(Error::Transport { .. }))));
}

#[tokio::test]
async fn the_error_for_an_unusable_proxy_names_it() {
    let mut config = kube::Config::new("https://10.0.0.1".parse().unwrap());
    config.proxy_url = Some("socks4://user:hunter2@proxy:1080".parse().unwrap());
    let error = Client::new(config, Options::default()).await.unwrap_err().to_string();
    assert!(error.contains("proxy-url") && !error.contains("hunter2"), "{error}");
}

/// kube's error contains the output of a plugin.
#[tokio::test]
async fn the_error_for_a_failing_plugin_omits_its_output() {
    for (script, why) in [("echo hunter2; exit 3", "exit status: 3"), ("echo hunter2", "output")] {
        let mut config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
        let exec = serde_json::json!({"command": "sh", "args": ["-c", script], "interactiveMode": "Never"});
        config.auth_info.exec = Some(serde_json::from_value(exec).unwrap());
        let error = Client::new(config, Options::default()).await.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}
