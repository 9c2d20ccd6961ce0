//! Frames of a watch, read as they arrive: an API server cuts off clients that do not read.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::Value;
use tokio::sync::watch;
use tower::BoxError;

/// The frames of a watch so far, and whether it has ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Frames {
    pub(super) all: Vec<Value>,
    pub(super) ended: bool,
}

/// A watch under way.
#[derive(Debug)]
pub(super) struct Stream {
    frames: watch::Receiver<Frames>,
    reading: tokio::task::JoinHandle<()>,
}

impl Stream {
    pub(super) fn of(body: UnsyncBoxBody<Bytes, BoxError>) -> Stream {
        let (sender, frames) = watch::channel(Frames::default());
        Stream { frames, reading: tokio::spawn(read(body, sender)) }
    }

    /// Returns what has arrived so far.
    pub(super) fn now(&self) -> Frames {
        self.frames.borrow().clone()
    }

    /// Waits until a frame satisfies `so` or the watch has ended; returns the frames.
    pub(super) async fn until(&self, max_wait: Duration, so: impl Fn(&Value) -> bool) -> Frames {
        let mut frames = self.frames.clone();
        let reached = frames.wait_for(|frames| frames.ended || frames.all.iter().any(&so));
        match tokio::time::timeout(max_wait, reached).await {
            Ok(frames) => frames.expect("the reader ends with a word").clone(),
            Err(_) => panic!("a watch does not show what was done: {:#?}", self.frames.borrow()),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

async fn read(mut body: UnsyncBoxBody<Bytes, BoxError>, frames: watch::Sender<Frames>) {
    let mut text = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        text.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let line = serde_json::from_slice(&line).expect("a frame is JSON");
            frames.send_modify(|frames| frames.all.push(line));
        }
    }
    frames.send_modify(|frames| frames.ended = true);
}
