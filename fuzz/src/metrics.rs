//! Requests that anybody may send to the server of health and metrics.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use workload_operator::metrics::{Limits, Routes, Server};

/// Whatever is sent, the connection ends, what comes back is HTTP, and the next one is answered.
pub fn metrics(data: &[u8]) {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
    }
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let anywhere = ([127, 0, 0, 1], 0).into();
            let server =
                Server::bind(anywhere, Routes::default(), Limits::default()).await.expect("a port");
            let address = server.address().expect("an address");
            let serving = tokio::spawn(server.run(std::future::pending()));
            let answer = exchange(address, data, true).await;
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{answer:?}");
            let good = b"GET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            let after = exchange(address, good, false).await;
            assert!(after.starts_with(b"HTTP/1.1 404"), "{}", String::from_utf8_lossy(&after));
            assert!(!serving.is_finished(), "the server has ended");
            serving.abort();
        });
    });
}

/// Sends all of it, says that there is no more if `closes`, and reads to the end. A connection that is
/// cut off is at its end too.
async fn exchange(address: SocketAddr, data: &[u8], closes: bool) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let mut answer = Vec::new();
    let (mut reads, mut writes) = stream.split();
    let write = async {
        let _ = writes.write_all(data).await;
        if closes {
            let _ = writes.shutdown().await;
        }
    };
    let read = async {
        let _ = reads.read_to_end(&mut answer).await;
    };
    let both = async { tokio::join!(write, read) };
    tokio::time::timeout(Duration::from_secs(60), both).await.expect("the connection ends");
    answer
}
