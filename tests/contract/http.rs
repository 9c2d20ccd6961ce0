//! A minimal HTTP client: one request, one answer, as text.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// Status code and body of a GET at `host:port`, with a bearer token if there is one.
pub async fn fetch(address: &str, path: &str, token: Option<&str>) -> (u16, String) {
    let stream = TcpStream::connect(address).await.expect("somebody listens");
    fetch_over(stream, path, token).await
}

/// Like [`fetch`], over an existing connection. HTTP/1.0: the answer ends with the connection.
pub async fn fetch_over(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
    token: Option<&str>,
) -> (u16, String) {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n{token}\r\n");
    stream.write_all(request.as_bytes()).await.expect("it listens");
    stream.flush().await.expect("it listens");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("an answer");
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.split(' ').nth(1).unwrap().parse().expect("a status"), body.to_owned())
}

/// Percent-encodes a value for a URL's query.
pub fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
