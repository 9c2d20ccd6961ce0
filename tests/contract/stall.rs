//! A connection that is slow or stalled: what is sent waits and arrives later.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// Passes bytes on without reading them, or holds them back. Ends when dropped.
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
    /// A connection to `far` (`host:port`).
    pub async fn to(far: String) -> Stall {
        Stall::long(far, Duration::ZERO).await
    }

    /// Like [`Stall::to`], but what is sent there arrives later by `delay`.
    pub async fn long(far: String, delay: Duration) -> Stall {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let stands = Arc::new(watch::Sender::new(false));
        let task = tokio::spawn(accept(listener, far, delay, stands.clone()));
        Stall { address, stands, task }
    }

    /// From now on nothing passes in either direction.
    pub fn stand(&self) {
        self.stands.send_replace(true);
    }

    /// Passes everything that was held back, and whatever comes next.
    pub fn go_on(&self) {
        self.stands.send_replace(false);
    }
}

async fn accept(
    listener: TcpListener,
    far: String,
    delay: Duration,
    stands: Arc<watch::Sender<bool>>,
) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((near, _)) = listener.accept().await else { return };
        let (far, stands) = (far.clone(), stands.clone());
        connections.spawn(async move {
            let Ok(far) = TcpStream::connect(far).await else { return };
            let ((read_near, write_near), (read_far, write_far)) =
                (near.into_split(), far.into_split());
            tokio::select! {
                _ = pass(read_near, write_far, delay, stands.subscribe()) => {}
                _ = pass(read_far, write_near, Duration::ZERO, stands.subscribe()) => {}
            }
        });
    }
}

/// Passes bytes on until either end closes. Several pieces can be under way at the same time.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    delay: Duration,
    mut stands: watch::Receiver<bool>,
) {
    let (sender, mut under_way) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let take = async move {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            let bytes = buffer.get(..read).unwrap_or_default().to_vec();
            if sender.send((Instant::now() + delay, bytes)).is_err() {
                return;
            }
        }
    };
    let give = async move {
        while let Some((at, bytes)) = under_way.recv().await {
            sleep_until(at).await;
            let goes = stands.wait_for(|stands| !stands).await.is_ok();
            if !goes || to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(take, give);
}
