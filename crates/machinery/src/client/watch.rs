//! Watches, and the frames of their bodies, one per line.

use std::marker::PhantomData;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, HeaderValue};

use super::call::{Client, chunk};
use super::transport::Answer;
use super::types::{Scope, WatchEvent, WatchFrom};
use super::{Error, MAX_OBJECT, event, query};
use crate::object::Resource;

/// An open watch. Dropping it closes its connection.
pub struct Watch<V> {
    body: Answer,
    frames: LineDecoder,
    /// True after the end or an error: nothing more is read.
    over: bool,
    marker: PhantomData<fn() -> V>,
}

// === impl Client ===

impl Client {
    /// Opens a watch. The deadline applies to the head of the response. After that, the watch can be silent for
    /// [`WatchFrom::timeout`].
    ///
    /// # Errors
    /// Any error of a call; [`Error::is_expired`] if the version was compacted.
    pub async fn watch<V: Resource>(
        &self,
        scope: &Scope,
        from: &WatchFrom,
    ) -> Result<Watch<V>, Error> {
        let kind = V::kind();
        let mut request = query::watch(&kind, scope, from)?;
        // From 1.37 on, the API server compresses each event separately, which few clients can read. An uncompressed
        // event is decoded from the read buffer.
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let mut observe = self.observe("watch", &kind);
        let answer = self.open(request, &mut observe).await?;
        observe.code = answer.status().as_u16();
        Ok(Watch {
            body: answer.into_body(),
            frames: LineDecoder::default(),
            over: false,
            marker: PhantomData,
        })
    }
}

// === impl Watch ===

impl<V: Resource> Watch<V> {
    /// Returns the next event; `None` after a normal end. An `ERROR` frame is [`Error::Api`]. An error ends the
    /// watch. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<WatchEvent<V>, Error>> {
        if self.over {
            return None;
        }
        let next = self.read().await.transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }

    async fn read(&mut self) -> Result<Option<WatchEvent<V>>, Error> {
        loop {
            if let Some(frame) = self.frames.next()? {
                return event::decode(&frame).map(Some);
            }
            match chunk(&mut self.body).await? {
                Some(chunk) => self.frames.extend(&chunk),
                None if self.frames.is_empty() => return Ok(None),
                None => return Err(Error::Cut("an event of a watch")),
            }
        }
    }
}

opaque!(Watch<V>);

/// Frame size from which the buffer is released after use. Most objects are far smaller than etcd's limit of 1.5 MiB.
const LARGE: usize = 1 << 20;

/// The received part of a watch's body, without the frames already returned.
#[derive(Debug, Default)]
struct LineDecoder {
    buffer: BytesMut,
    /// Length of the prefix without a newline.
    searched: usize,
}

// === impl LineDecoder ===

impl LineDecoder {
    /// Appends the next chunk of the body.
    fn extend(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// Returns the next complete frame, without its newline; `None` if the frame is incomplete. Skips empty lines.
    ///
    /// # Errors
    /// A frame larger than [`MAX_OBJECT`].
    fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            let end = memchr::memchr(b'\n', rest).map(|end| self.searched + end);
            if end.unwrap_or(self.buffer.len()) > MAX_OBJECT {
                return Err(Error::TooLarge { what: "an event of a watch", limit: MAX_OBJECT });
            }
            let Some(end) = end else {
                self.searched = self.buffer.len();
                return Ok(None);
            };
            self.searched = 0;
            let mut line = self.buffer.split_to(end + 1);
            line.truncate(end);
            if end > LARGE {
                // Releases the buffer of a large object early.
                self.buffer = BytesMut::from(&self.buffer[..]);
            }
            if !blank(&line) {
                return Ok(Some(line.freeze()));
            }
        }
    }

    /// Returns whether the body can end here, without part of another frame.
    fn is_empty(&self) -> bool {
        blank(&self.buffer)
    }
}

fn blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The frames of `chunks`, and whether the body ended between two of them.
    fn frames(chunks: &[&[u8]]) -> Result<(Vec<Vec<u8>>, bool), Error> {
        let (mut frames, mut out) = (LineDecoder::default(), Vec::new());
        for chunk in chunks {
            frames.extend(chunk);
            while let Some(frame) = frames.next()? {
                out.push(frame.to_vec());
            }
        }
        Ok((out, frames.is_empty()))
    }

    #[test]
    fn each_line_is_a_frame() {
        let (all, between) = frames(&[b"{1}\n\n{2}\r\n \n{3}"]).unwrap();
        assert_eq!(all, [b"{1}".to_vec(), b"{2}\r".to_vec()]);
        assert!(!between, "the third was cut");
    }

    #[test]
    fn an_empty_line_split_in_two_leaves_the_next_frame_intact() {
        assert_eq!(frames(&[b" ", b" \n{", b"1}\n"]).unwrap(), (vec![b"{1}".to_vec()], true));
    }

    /// Built-in kinds are stored as protobuf, so etcd's limit says nothing about their size in
    /// JSON, where Go writes six bytes for each `<`, `>` and `&`.
    #[test]
    fn the_largest_object_that_etcd_accepts_fits_a_frame() {
        let args = r"\u003c".repeat(3 << 19);
        let frame = format!(r#"{{"type":"ADDED","object":{{"args":["{args}"]}}}}"#) + "\n";
        let chunks: Vec<&[u8]> = frame.as_bytes().chunks(64 << 10).collect();
        assert_eq!(frames(&chunks).unwrap().0.len(), 1);
    }

    #[test]
    fn an_endless_frame_is_rejected() {
        let (mut frames, chunk) = (LineDecoder::default(), vec![b'x'; 1 << 20]);
        let refused = (0..64).find_map(|_| {
            frames.extend(&chunk);
            frames.next().err()
        });
        assert!(matches!(refused, Some(Error::TooLarge { .. })));
        assert!(frames.buffer.capacity() <= 2 * MAX_OBJECT);
    }

    proptest! {
        #[test]
        fn any_split_of_the_body_gives_the_same_frames(
            lines in prop::collection::vec("[a-c{} ]{0,90}", 0..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let body = lines.join("\n").into_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
            at.extend([0, body.len()]);
            at.sort_unstable();
            let chunks: Vec<&[u8]> = at.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect();
            prop_assert_eq!(frames(&chunks).unwrap(), frames(&[&body]).unwrap());
        }
    }
}
