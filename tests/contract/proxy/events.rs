//! The events of a watch, told apart: the operator may be killed at one of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;

use super::answer::{Failure, Streamed};
use super::{Moment, Shared};

/// This long after an event was handed over, the operator has received it, or it is in its socket.
const DELIVERED: Duration = Duration::from_millis(5);

struct Lines {
    body: Streamed,
    /// The beginning of an incomplete line.
    rest: BytesMut,
    /// The operator dies at the last line.
    dies: bool,
}

/// The answer to a watch, line by line, if events are counted.
pub(super) fn counted(body: Streamed, resource: String, shared: Arc<Shared>) -> Streamed {
    if shared.state.lock().events.is_none() {
        return body;
    }
    let lines = Lines { body, rest: BytesMut::new(), dies: false };
    let frames = futures::stream::unfold(Some(lines), move |lines| {
        let (resource, shared) = (resource.clone(), shared.clone());
        async move {
            let mut lines = lines?;
            if lines.dies {
                tokio::time::sleep(DELIVERED).await;
                return shared.crash_for_good().await;
            }
            let line = match lines.next().await? {
                Ok(line) => line,
                Err(error) => return Some((Err(error), None)),
            };
            match shared.event(&resource, &line) {
                None => {}
                Some(Moment::After) => lines.dies = true,
                Some(Moment::Before | Moment::AnswerLost) => return shared.crash_for_good().await,
            }
            Some((Ok(Frame::data(line)), Some(lines)))
        }
    });
    StreamBody::new(frames.boxed()).boxed_unsync()
}

impl Lines {
    /// The next line; at the end, whatever is left.
    async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                return Some(Ok(self.rest.split_to(end + 1).freeze()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    self.rest.extend_from_slice(&frame.into_data().unwrap_or_default());
                }
                Some(Err(error)) => return Some(Err(error)),
                None if self.rest.is_empty() => return None,
                None => return Some(Ok(self.rest.split().freeze())),
            }
        }
    }
}

impl Shared {
    /// Counts the event; returns the moment if the operator is to die at it.
    fn event(&self, resource: &str, line: &[u8]) -> Option<Moment> {
        let mut state = self.state.lock();
        if line.starts_with(br#"{"type":"BOOKMARK""#) {
            return None;
        }
        let count = state.events.as_mut()?.entry(resource.to_owned()).or_default();
        *count += 1;
        let number = *count;
        let it = |last: &(String, usize, Moment)| last.0 == resource && last.1 == number;
        let (.., moment) = state.last_event.take_if(|last| it(last))?;
        // Nothing more is passed on for an operator that is about to die.
        state.dead = true;
        Some(moment)
    }

    /// Kills the operator; nothing comes after it.
    async fn crash_for_good<T>(&self) -> T {
        self.crash();
        std::future::pending().await
    }
}
