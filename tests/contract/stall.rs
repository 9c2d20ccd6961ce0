//! A wire that can stand still: what is sent waits, and arrives later.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes bytes on, unread, or keeps them. Ends when dropped.
pub struct Stall {
    pub address: SocketAddr,
    stands: Arc<watch::Sender<bool>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stall {
    /// A wire to `far` (`host:port`).
    pub async fn to(far: String) -> Stall {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let stands = Arc::new(watch::Sender::new(false));
        let task = tokio::spawn(accept(listener, far, stands.clone()));
        Stall { address, stands, task }
    }

    /// From now on nothing passes, in neither direction.
    pub fn stand(&self) {
        self.stands.send_replace(true);
    }

    /// All that was kept passes, and what comes.
    pub fn go_on(&self) {
        self.stands.send_replace(false);
    }
}

async fn accept(listener: TcpListener, far: String, stands: Arc<watch::Sender<bool>>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((near, _)) = listener.accept().await else { return };
        let (far, stands) = (far.clone(), stands.clone());
        connections.spawn(async move {
            let Ok(far) = TcpStream::connect(far).await else { return };
            let ((read_near, write_near), (read_far, write_far)) =
                (near.into_split(), far.into_split());
            tokio::select! {
                _ = pass(read_near, write_far, stands.subscribe()) => {}
                _ = pass(read_far, write_near, stands.subscribe()) => {}
            }
        });
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut stands: watch::Receiver<bool>,
) -> Option<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        stands.wait_for(|stands| !stands).await.ok()?;
        to.write_all(buffer.get(..read)?).await.ok()?;
    }
}
