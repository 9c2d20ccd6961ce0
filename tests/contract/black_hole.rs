//! A connection to the API server whose packets can vanish.

use std::net::SocketAddr;
use std::sync::Arc;

use socket2::{SockFilter, SockRef};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A relay that forwards bytes without reading them, because the TLS is the API server's own. Ends when
/// dropped.
pub struct Wire {
    address: SocketAddr,
    /// Incremented when all existing connections become black holes.
    swallowed: Arc<watch::Sender<usize>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Wire {
    /// A wire to `api_server` (`host:port`).
    pub async fn to(api_server: String) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let swallowed = Arc::new(watch::Sender::new(0));
        let task = tokio::spawn(accept(listener, api_server, swallowed.clone()));
        Wire { address, swallowed, task }
    }

    /// The server URL for a kubeconfig.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// From now on, nothing sent over the existing connections arrives, not even an acknowledgement, and none
    /// of them is closed. New connections work.
    pub fn swallow(&self) {
        self.swallowed.send_modify(|times| *times += 1);
    }
}

async fn accept(listener: TcpListener, api_server: String, swallowed: Arc<watch::Sender<usize>>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((near, _)) = listener.accept().await else { return };
        connections.spawn(pass(near, api_server.clone(), swallowed.subscribe()));
    }
}

async fn pass(mut near: TcpStream, api_server: String, mut swallowed: watch::Receiver<usize>) {
    let Ok(mut far) = TcpStream::connect(api_server).await else { return };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => return,
        _ = swallowed.changed() => {}
    }
    // A filter that keeps 0 bytes of a packet: the kernel drops it before TCP sees it, so nothing
    // is acknowledged and no keepalive probe is answered.
    let (code, return_constant) = (0, 6);
    let nothing = [SockFilter::new(return_constant, 0, 0, code)];
    SockRef::from(&near).attach_filter(&nothing).expect("a filter needs no right");
    // Both sockets remain open until the wire is dropped.
    std::future::pending::<()>().await;
}
