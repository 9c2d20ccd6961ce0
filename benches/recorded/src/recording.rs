//! The bytes of one watch, in a file, and an API server that answers a watch with them.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::Response;
use http_body_util::StreamBody;
use hyper::body::Frame;

use crate::sample;

/// Objects in the streaming list that the watch begins with.
pub(crate) const OBJECTS: u64 = 20_000;
/// Changes after that list.
pub(crate) const CHANGES: u64 = 100_000;
/// Objects change in an order in which none comes twice before all have come once.
const STRIDE: u64 = 7919;
/// How many bytes arrive at once, regardless of where events end; about what hyper reads from a
/// socket.
const PIECE: u64 = 16 << 10;

pub(crate) type Piece = Result<Frame<Bytes>, Infallible>;
pub(crate) type Answer = Response<StreamBody<BoxStream<'static, Piece>>>;

/// Writes the recording.
pub(crate) fn write(path: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut frame =
        |kind: &str, object: &str| writeln!(file, r#"{{"type":"{kind}","object":{object}}}"#);
    for i in 0..OBJECTS {
        frame("ADDED", &sample::json(i as usize, 1 + i))?;
    }
    let bookmark = format!(
        r#"{{"kind":"Deployment","apiVersion":"apps/v1","metadata":{{"resourceVersion":"{OBJECTS}","creationTimestamp":null,"annotations":{{"k8s.io/initial-events-end":"true"}}}},"spec":{{"selector":null,"template":{{"metadata":{{"creationTimestamp":null}},"spec":{{"containers":null}}}},"strategy":{{}}}},"status":{{}}}}"#
    );
    frame("BOOKMARK", &bookmark)?;
    for i in 0..CHANGES {
        frame("MODIFIED", &sample::json((i * STRIDE % OBJECTS) as usize, OBJECTS + 1 + i))?;
    }
    file.flush()
}

/// The watch as it was recorded; it then stays open.
pub(crate) fn answer(path: &PathBuf) -> Answer {
    let file = File::open(path).expect("the recording was written before");
    let pieces = stream::iter(Pieces(file)).map(|piece| Ok(Frame::data(piece)));
    Response::new(StreamBody::new(pieces.chain(stream::pending()).boxed()))
}

/// A file in pieces.
pub(crate) struct Pieces(File);

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut piece = Vec::with_capacity(PIECE as usize);
        let read = Read::by_ref(&mut self.0).take(PIECE).read_to_end(&mut piece);
        read.expect("a file can be read");
        (!piece.is_empty()).then(|| piece.into())
    }
}

/// Reads the recording and does nothing with it: the cost that is the same for all.
pub(crate) fn drain(path: &Path) {
    for piece in Pieces(File::open(path).expect("the recording was written before")) {
        std::hint::black_box(piece);
    }
}
