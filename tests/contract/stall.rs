//! A connection that is slow or stalled: data waits and arrives later.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// A relay that forwards bytes without reading them, or holds them back. Ends when dropped.
pub struct Stall {
    pub address: SocketAddr,
    mode: Arc<watch::Sender<Mode>>,
    waiting: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

/// The forwarded traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Everything,
    Nothing,
    /// Only data from the far side on existing connections. A connection that the near side uses breaks, and
    /// new connections are accepted but stalled.
    NoRequest,
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

    /// Like [`Stall::to`], with a delay of `delay` towards the far side.
    pub async fn long(far: String, delay: Duration) -> Stall {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let mode = Arc::new(watch::Sender::new(Mode::Everything));
        let waiting = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(accept(listener, far, delay, mode.clone(), waiting.clone()));
        Stall { address, mode, waiting, task }
    }

    /// From now on, nothing is forwarded in either direction.
    pub fn stand(&self) {
        self.mode.send_replace(Mode::Nothing);
    }

    /// From now on, connections break when they are used, new ones are stalled, and watches continue.
    pub fn stand_new(&self) {
        self.mode.send_replace(Mode::NoRequest);
    }

    /// Returns the number of stalled new connections so far.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Forwards all data that was held back, and all later data.
    pub fn go_on(&self) {
        self.mode.send_replace(Mode::Everything);
    }
}

async fn accept(
    listener: TcpListener,
    far: String,
    delay: Duration,
    mode: Arc<watch::Sender<Mode>>,
    waiting: Arc<AtomicUsize>,
) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((near, _)) = listener.accept().await else { return };
        let (far, mode) = (far.clone(), mode.clone());
        if *mode.borrow() == Mode::NoRequest {
            waiting.fetch_add(1, Ordering::Relaxed);
        }
        connections.spawn(async move {
            let opened = mode.subscribe().wait_for(|mode| *mode != Mode::NoRequest).await.is_ok();
            if !opened {
                return;
            }
            let Ok(far) = TcpStream::connect(far).await else { return };
            let ((read_near, write_near), (read_far, write_far)) =
                (near.into_split(), far.into_split());
            tokio::select! {
                _ = pass(read_near, write_far, delay, mode.subscribe(), true) => {}
                _ = pass(read_far, write_near, Duration::ZERO, mode.subscribe(), false) => {}
            }
        });
    }
}

/// Forwards bytes until either end closes. Several pieces can be in transit at the same time.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    delay: Duration,
    mut mode: watch::Receiver<Mode>,
    requests: bool,
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
            let mode = mode.wait_for(|mode| *mode != Mode::Nothing).await.map(|mode| *mode);
            let passes = mode.is_ok_and(|mode| mode == Mode::Everything || !requests);
            if !passes || to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(take, give);
}
