//! Cuts the body of a watch into frames, one per line: pure.

use bytes::{Buf, Bytes};

use super::{Error, MAX_OBJECT};

/// The body of a watch as far as it has arrived.
///
/// A frame that arrived in one piece is lent from that piece; only others are assembled in `begun`.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The part of the last piece that has not been lent yet.
    piece: Bytes,
    /// The beginning of a frame whose end has not arrived yet; while `lent`, the whole frame that
    /// was lent last.
    begun: Vec<u8>,
    /// The last frame lent was in `begun`, which must be cleared.
    lent: bool,
}

// === impl Frames ===

impl Frames {
    /// Takes the next piece of the body. Call it only after [`Frames::next`] has returned `None`.
    pub(super) fn arrived(&mut self, piece: Bytes) {
        debug_assert!(self.piece.is_empty(), "the piece before was not used up");
        self.piece = piece;
    }

    /// The next complete frame, without its newline; `None` if the rest has yet to arrive. Empty
    /// lines are skipped.
    ///
    /// # Errors
    /// A frame larger than [`MAX_OBJECT`].
    pub(super) fn next(&mut self) -> Result<Option<Frame<'_>>, Error> {
        if std::mem::take(&mut self.lent) {
            self.begun.clear();
            self.begun.shrink_to(KEPT);
        }
        loop {
            let Some(end) = newline(&self.piece) else {
                let rest = std::mem::take(&mut self.piece);
                bounded(self.begun.len() + rest.len())?;
                self.begun.extend_from_slice(&rest);
                return Ok(None);
            };
            bounded(self.begun.len() + end)?;
            let line = self.piece.split_to(end);
            self.piece.advance(1);
            if self.begun.is_empty() {
                if !blank(&line) {
                    return Ok(Some(Frame::Whole(line)));
                }
                continue;
            }
            self.begun.extend_from_slice(&line);
            if blank(&self.begun) {
                self.begun.clear();
                continue;
            }
            self.lent = true;
            return Ok(Some(Frame::Joined(&self.begun)));
        }
    }

    /// Returns whether the body may end here: nothing of another frame has arrived.
    pub(super) fn is_between(&self) -> bool {
        self.lent || blank(&self.begun)
    }
}

/// Capacity of the buffer for joined frames that is kept for the next one, in bytes.
const KEPT: usize = 16 << 10;

/// A frame.
pub(super) enum Frame<'a> {
    /// In the buffer it was read into.
    Whole(Bytes),
    /// Assembled from pieces.
    Joined(&'a [u8]),
}

impl std::ops::Deref for Frame<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Frame::Whole(bytes) => bytes,
            Frame::Joined(bytes) => bytes,
        }
    }
}

fn bounded(length: usize) -> Result<(), Error> {
    if length > MAX_OBJECT {
        return Err(Error::TooLarge { what: "an event of a watch", limit: MAX_OBJECT });
    }
    Ok(())
}

fn blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

/// The position of the first newline. Blocks are first tested as a whole, which compiles to vector
/// instructions.
fn newline(bytes: &[u8]) -> Option<usize> {
    const BLOCK: usize = 64;
    let mut at = 0;
    for block in bytes.chunks_exact(BLOCK) {
        if block.iter().fold(false, |found, &byte| found | (byte == b'\n')) {
            break;
        }
        at += BLOCK;
    }
    let rest = bytes.get(at..)?;
    Some(at + rest.iter().position(|&byte| byte == b'\n')?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The frames of `pieces`, and whether the body ended between two of them.
    fn frames(pieces: &[&[u8]]) -> Result<(Vec<Vec<u8>>, bool), Error> {
        let (mut frames, mut out) = (Frames::default(), Vec::new());
        for piece in pieces {
            frames.arrived(Bytes::copy_from_slice(piece));
            while let Some(frame) = frames.next()? {
                out.push(frame.to_vec());
            }
        }
        Ok((out, frames.is_between()))
    }

    #[test]
    fn frames_are_lines() {
        let (all, between) = frames(&[b"{1}\n\n{2}\r\n \n{3}"]).unwrap();
        assert_eq!(all, [b"{1}".to_vec(), b"{2}\r".to_vec()]);
        assert!(!between, "the third was cut");
    }

    #[test]
    fn an_empty_line_that_comes_in_two_pieces_takes_nothing_of_the_next_frame_along() {
        assert_eq!(frames(&[b" ", b" \n{", b"1}\n"]).unwrap(), (vec![b"{1}".to_vec()], true));
    }

    /// Built-in kinds are stored as protobuf, so etcd's limit says nothing about their size in
    /// JSON, where Go writes six bytes for each `<`, `>` and `&`.
    #[test]
    fn an_object_that_etcd_takes_is_no_too_large_frame_whatever_is_in_it() {
        let args = r"\u003c".repeat(3 << 19);
        let frame = format!(r#"{{"type":"ADDED","object":{{"args":["{args}"]}}}}"#) + "\n";
        let pieces: Vec<&[u8]> = frame.as_bytes().chunks(64 << 10).collect();
        assert_eq!(frames(&pieces).unwrap().0.len(), 1);
    }

    #[test]
    fn a_frame_without_end_is_refused_and_not_kept_for_ever() {
        let (mut frames, piece) = (Frames::default(), Bytes::from(vec![b'x'; 1 << 20]));
        let refused = (0..64).find_map(|_| {
            frames.arrived(piece.clone());
            frames.next().err()
        });
        assert!(matches!(refused, Some(Error::TooLarge { .. })));
        assert!(frames.begun.capacity() <= 2 * MAX_OBJECT);
    }

    #[test]
    fn a_frame_in_one_piece_is_not_copied() {
        let piece = Bytes::from_static(b"{1}\n{2}\n");
        let mut frames = Frames::default();
        frames.arrived(piece.clone());
        match frames.next().unwrap() {
            Some(Frame::Whole(frame)) => assert_eq!(frame.as_ptr(), piece.as_ptr()),
            _ => panic!("it was joined"),
        }
    }

    proptest! {
        #[test]
        fn every_way_to_cut_the_body_gives_the_same_frames(
            lines in prop::collection::vec("[a-c{} ]{0,90}", 0..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let body = lines.join("\n").into_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
            at.extend([0, body.len()]);
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect();
            prop_assert_eq!(frames(&pieces).unwrap(), frames(&[&body]).unwrap());
        }
    }
}
