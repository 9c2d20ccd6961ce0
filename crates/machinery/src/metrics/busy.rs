//! Connections with an answer under way.
//!
//! - A connection is busy from the head of a request until the last byte of its answer is handed to
//!   the operating system. hyper takes an answer before it has sent it.
//! - It is busy no longer if its peer takes none of the answer for [`PATIENCE`]: such peers could hold all
//!   connections, and a probe would find none.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Longest time in which a peer takes none of its answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

const IDLE: u8 = 0;
/// The answer is being made.
const ANSWERING: u8 = 1;
/// hyper has all of the answer, in its buffer or beyond.
const BUFFERED: u8 = 2;

/// The state of one connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Busy(Arc<State>);

#[derive(Debug, Default)]
struct State {
    phase: AtomicU8,
    /// Time since which the peer has taken nothing of what waits for it.
    stuck: Mutex<Option<Instant>>,
}

/// A request under way; its end leaves the answer, if there is one, to be flushed.
pub(super) struct InFlight(Busy);

/// The body of an answer.
pub(super) struct Answer {
    body: Full<Bytes>,
    _under_way: InFlight,
}

/// The stream of a connection. hyper flushes it when its own buffer is empty.
pub(super) struct Sending<S> {
    stream: S,
    busy: Busy,
}

// === impl Busy ===

impl Busy {
    pub(super) fn is_busy(&self) -> bool {
        let is_stuck = self.0.stuck.lock().is_some_and(|since| since.elapsed() >= PATIENCE);
        self.0.phase.load(Ordering::Relaxed) != IDLE && !is_stuck
    }

    /// Marks the connection as busy until the answer is sent.
    pub(super) fn begin(&self) -> InFlight {
        self.0.phase.store(ANSWERING, Ordering::Relaxed);
        InFlight(self.clone())
    }

    /// Notes whether the peer takes what is sent.
    fn sent<T>(&self, sent: Poll<T>) -> Poll<T> {
        let mut stuck = self.0.stuck.lock();
        match sent {
            Poll::Pending => drop(stuck.get_or_insert_with(Instant::now)),
            Poll::Ready(_) => *stuck = None,
        }
        drop(stuck);
        sent
    }

    /// Only the connection's own task changes the state, so that a load and a store suffice.
    fn flushed(&self) {
        // Otherwise nothing was sent, or the next answer is being made.
        if self.0.phase.load(Ordering::Relaxed) == BUFFERED {
            self.0.phase.store(IDLE, Ordering::Relaxed);
        }
    }
}

// === impl InFlight ===

impl InFlight {
    pub(super) fn until_sent(self, body: Full<Bytes>) -> Answer {
        Answer { body, _under_way: self }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.phase.store(BUFFERED, Ordering::Relaxed);
    }
}

// === impl Answer ===

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// === impl Sending ===

impl<S> Sending<S> {
    pub(super) fn new(stream: S, busy: Busy) -> Sending<S> {
        Sending { stream, busy }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Sending<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Sending<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.busy.sent(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.busy.sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        let flushed = self.busy.sent(flushed);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.busy.flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
