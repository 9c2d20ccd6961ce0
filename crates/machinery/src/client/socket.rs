//! A TCP connection that is polled while it receives bulk data, as Linux polls a network card (NAPI).
//!
//! The API server sends each object of a streaming list separately. To wake up for each takes as long as to decode it.
//!
//! Guarantees
//! - A socket that receives less than [`BULK`] for twice [`POLLED_WINDOW`] passes on data when it arrives.
//! - While the socket is polled, data waits for at most one pause.

use std::io::{self, ErrorKind, Read as _};
use std::net::TcpStream as StdStream;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tower::ServiceExt;
use tower::util::MapResponse;

/// The rate of bulk data, in bytes per millisecond. A watch of many changes stays below it.
const BULK: u128 = 4_000;
/// The time over which the rate is measured.
const WINDOW: Duration = Duration::from_millis(10);
/// The same while the socket is polled: an API server that collects its garbage sends nothing for some milliseconds.
const POLLED_WINDOW: Duration = Duration::from_millis(50);
/// The pause before the next read of bulk data. tokio's timer makes it 1 to 2 ms.
const PAUSE: Duration = Duration::from_millis(1);
/// The size of a read, in bytes: what rustls usually requests.
const READ: usize = 4 << 10;
/// The size of a read of bulk data, in bytes.
const BULK_READ: usize = 64 << 10;

/// A service that opens connections.
pub(super) type Connector = MapResponse<HttpConnector, fn(TokioIo<TcpStream>) -> Socket>;

/// A connection to the API server or its proxy.
pub(super) struct Socket {
    mode: Mode,
    buffer: Vec<u8>,
    /// The part of the buffer that has not been passed on.
    unread: Range<usize>,
    /// The begin of the window, and the number of bytes received in it.
    window: (Instant, u128),
}

enum Mode {
    /// The runtime wakes the task when data arrives.
    Evented(TcpStream),
    /// The runtime does not know the socket.
    Polled { stream: StdStream, pause: Option<Pin<Box<Sleep>>> },
    /// The mode could not be changed.
    Broken,
}

// === impl Socket ===

impl Socket {
    pub(super) fn connector(http: HttpConnector) -> Connector {
        http.map_response(Socket::new)
    }

    fn new(stream: TokioIo<TcpStream>) -> Socket {
        Socket {
            mode: Mode::Evented(stream.into_inner()),
            buffer: Vec::new(),
            unread: 0..0,
            window: (Instant::now(), 0),
        }
    }

    /// Fills the empty buffer.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let size = if matches!(self.mode, Mode::Evented(_)) { READ } else { BULK_READ };
            if self.buffer.len() != size {
                self.buffer = vec![0; size];
            }
            let read = match &mut self.mode {
                Mode::Evented(stream) => {
                    let mut buffer = ReadBuf::new(&mut self.buffer);
                    ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
                    buffer.filled().len()
                }
                Mode::Polled { stream, pause } => {
                    if let Some(pause) = pause {
                        ready!(pause.as_mut().poll(cx));
                    }
                    *pause = None;
                    match stream.read(&mut self.buffer) {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            *pause = Some(Box::pin(sleep(PAUSE)));
                            self.received(0, Instant::now())?;
                            continue;
                        }
                        Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                        read => read?,
                    }
                }
                Mode::Broken => return Poll::Ready(Err(ErrorKind::NotConnected.into())),
            };
            self.unread = 0..read;
            return Poll::Ready(self.received(read, Instant::now()));
        }
    }

    /// Counts received bytes. At the end of a window, selects the mode by the rate.
    fn received(&mut self, bytes: usize, now: Instant) -> io::Result<()> {
        let (since, received) = self.window;
        self.window.1 += bytes as u128;
        let elapsed = now - since;
        let window = if matches!(self.mode, Mode::Polled { .. }) { POLLED_WINDOW } else { WINDOW };
        if elapsed < window {
            return Ok(());
        }
        self.window = (now, bytes as u128);
        if received >= BULK * elapsed.as_millis() {
            self.polled()
        } else {
            self.evented().map(drop)
        }
    }

    fn polled(&mut self) -> io::Result<()> {
        self.mode = match std::mem::replace(&mut self.mode, Mode::Broken) {
            Mode::Evented(stream) => Mode::Polled { stream: stream.into_std()?, pause: None },
            mode => mode,
        };
        Ok(())
    }

    /// Returns the stream to write to. A read that waits for the end of a pause is repeated, because the pause ends.
    fn writable(&mut self, cx: &Context<'_>) -> io::Result<&mut TcpStream> {
        if matches!(self.mode, Mode::Polled { .. }) {
            cx.waker().wake_by_ref();
        }
        self.evented()
    }

    fn evented(&mut self) -> io::Result<&mut TcpStream> {
        self.mode = match std::mem::replace(&mut self.mode, Mode::Broken) {
            Mode::Polled { stream, .. } => Mode::Evented(TcpStream::from_std(stream)?),
            mode => mode,
        };
        match &mut self.mode {
            Mode::Evented(stream) => Ok(stream),
            _ => Err(ErrorKind::NotConnected.into()),
        }
    }
}

impl Read for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut space: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.unread.is_empty() {
            ready!(this.poll_fill(cx))?;
        }
        let unread = &this.buffer[this.unread.clone()];
        let length = unread.len().min(space.remaining());
        space.put_slice(&unread[..length]);
        this.unread.start += length;
        Poll::Ready(Ok(()))
    }
}

impl Write for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.get_mut().writable(cx)?).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().writable(cx)?).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.get_mut().writable(cx)?).poll_write_vectored(cx, slices)
    }
}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        match &self.mode {
            Mode::Evented(stream) => stream.connected(),
            _ => Connected::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    /// Returns a socket and its peer.
    async fn connected() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Socket::new(TokioIo::new(stream)), listener.accept().await.unwrap().0)
    }

    fn is_polled(socket: &Socket) -> bool {
        matches!(socket.mode, Mode::Polled { .. })
    }

    #[tokio::test]
    async fn the_rate_selects_the_mode() {
        let (mut socket, _peer) = connected().await;
        let mut now = socket.window.0;
        let mut receives = |bytes: usize| {
            // The window ends with the second read, which is counted in the next one.
            socket.received(bytes, now).unwrap();
            now += if is_polled(&socket) { POLLED_WINDOW } else { WINDOW };
            socket.received(0, now).unwrap();
            is_polled(&socket)
        };
        assert!(!receives(39_999));
        assert!(receives(40_000));
        assert!(receives(1_000_000));
        assert!(!receives(1_000));
    }

    #[tokio::test]
    async fn a_polled_socket_passes_on_each_byte() {
        let (mut socket, mut peer) = connected().await;
        socket.polled().unwrap();
        let mut socket = TokioIo::new(socket);
        let sent: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut received = vec![0; sent.len()];
        let (wrote, read) = tokio::join!(peer.write_all(&sent), socket.read_exact(&mut received));
        wrote.unwrap();
        read.unwrap();
        assert!(received == sent);
    }

    #[tokio::test]
    async fn a_polled_socket_without_data_waits_for_events() {
        let (mut socket, mut peer) = connected().await;
        socket.polled().unwrap();
        let mut socket = TokioIo::new(socket);
        let mut received = [0; 5];
        let nothing = timeout(2 * POLLED_WINDOW, socket.read_exact(&mut received)).await;
        assert!(nothing.is_err() && !is_polled(socket.inner()));
        peer.write_all(b"later").await.unwrap();
        socket.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"later");
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_pause_of_the_peer_does_not_end_the_polling() {
        let (mut socket, mut peer) = connected().await;
        socket.polled().unwrap();
        let mut socket = TokioIo::new(socket);
        let bulk = vec![0; 500_000];
        let mut received = bulk.clone();
        let (wrote, read) = tokio::join!(peer.write_all(&bulk), socket.read_exact(&mut received));
        wrote.unwrap();
        read.unwrap();
        timeout(10 * PAUSE, socket.read_exact(&mut received)).await.unwrap_err();
        assert!(is_polled(socket.inner()));
        timeout(2 * POLLED_WINDOW, socket.read_exact(&mut received)).await.unwrap_err();
        assert!(!is_polled(socket.inner()));
    }

    #[tokio::test]
    async fn a_polled_socket_writes_and_sees_the_end() {
        let (mut socket, mut peer) = connected().await;
        socket.polled().unwrap();
        let mut socket = TokioIo::new(socket);
        socket.write_all(b"request").await.unwrap();
        let mut received = [0; 7];
        peer.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"request");
        socket.inner_mut().polled().unwrap();
        drop(peer);
        assert_eq!(socket.read(&mut received).await.unwrap(), 0);
    }
}
