//! Bodies of answers: whatever they are and however they are torn, what comes of them is the same,
//! and no panic.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde::Deserialize;
use tower::service_fn;
use workload_operator::client::{Client, Error, Options, Page, Scope, WatchEvent, WatchFrom};
use workload_operator::object::{AllMetadata, Kind, Meta};
use workload_operator::view;

use super::{rng, run};

/// A view of nearly anything.
#[derive(Debug, Deserialize)]
struct Thing {
    metadata: Meta<AllMetadata>,
    #[serde(default)]
    #[allow(dead_code)] // It is read by `Debug`.
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    value: i64,
    text: Option<String>,
    many: Vec<Option<bool>>,
}

view!(Thing { metadata: Meta<AllMetadata> }:
    Kind::namespaced("test.example.com", "v1", "Thing", "things"));

/// The body of a watch: the frames and the decoding of events.
pub fn watch(data: &[u8]) {
    let whole = events(vec![Bytes::copy_from_slice(data)]);
    assert_eq!(events(torn(data)), whole, "it depends on how it is torn");
    assert_eq!(events(single(data)), whole, "it depends on how it is torn");
    let lines = data.split(|byte| *byte == b'\n');
    let frames = lines.filter(|line| !line.iter().all(u8::is_ascii_whitespace)).count();
    assert!(whole.len() <= frames + 1, "more comes out than goes in: {whole:?}");
}

/// The body of a list: finding and decoding its items.
pub fn list(data: &[u8]) {
    let whole = items(vec![Bytes::copy_from_slice(data)]);
    assert_eq!(items(torn(data)), whole, "it depends on how it is torn");
    assert_eq!(items(single(data)), whole, "it depends on how it is torn");
    if is_complete(&whole) {
        let end = rng(data).usize(..=data.len());
        let (begun, rest) = data.split_at(end);
        let ended = is_complete(&items(vec![Bytes::copy_from_slice(begun)]));
        assert!(!ended || rest.iter().all(u8::is_ascii_whitespace), "a part is taken for all");
    }
}

fn is_complete(items: &[String]) -> bool {
    items.last().is_some_and(|end| end.starts_with("end "))
}

/// The body of a refusal. The first byte chooses the code.
pub fn status(data: &[u8]) {
    let (code, body) = data.split_first().unwrap_or((&0, &[]));
    let code = [400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 504][usize::from(*code) % 11];
    let client = client(code, torn(body));
    let page = Page::default();
    let listed = run(client.list::<Thing>(&Scope::default(), &page, |_| panic!("an item")));
    let error = listed.expect_err("a refusal is an error");
    assert!(error.code().is_some(), "{error:?}");
    // All that anybody asks of an error.
    let said = format!("{error} {error:?}");
    assert!(!said.is_empty());
    let verdicts =
        [error.is_expired(), error.is_too_large_version(), error.is_conflict(), error.is_invalid()];
    assert!(verdicts.iter().filter(|is| **is).count() <= 2, "{error:?}");
    assert!(error.retry_after().is_none_or(|after| after > Duration::ZERO), "{error:?}");
}

/// All that comes of a watch, in words.
fn events(pieces: Vec<Bytes>) -> Vec<String> {
    let from = WatchFrom {
        version: Some("1".into()),
        initial_events: false,
        timeout: Duration::from_secs(60),
    };
    let client = client(200, pieces);
    run(async {
        let mut watch =
            client.watch::<Thing>(&Scope::default(), &from).await.expect("it is accepted");
        let mut all = Vec::new();
        while let Some(event) = watch.next().await {
            all.push(match event {
                Ok(WatchEvent::Bookmark { version, initial_events_end }) => {
                    format!("bookmark {version} {initial_events_end}")
                }
                Ok(event) => format!("{event:?}"),
                Err(error) => failure(&error),
            });
        }
        assert!(watch.next().await.is_none(), "it goes on after its end");
        all
    })
}

/// All that comes of a list, in words; what was handed on before an error is not to be used.
fn items(pieces: Vec<Bytes>) -> Vec<String> {
    let client = client(200, pieces);
    let (mut all, page) = (Vec::new(), Page::default());
    let each = |item: Result<Thing, _>| all.push(format!("{item:?}"));
    match run(client.list::<Thing>(&Scope::default(), &page, each)) {
        Ok(end) => {
            all.push(format!("end {} {:?}", end.version, end.continue_token));
            all
        }
        Err(_) => vec!["error".to_owned()],
    }
}

/// Which failure it was; its words may depend on where in the text it was noticed.
fn failure(error: &Error) -> String {
    match error {
        Error::Api { code, reason, .. } => format!("{code} {reason}"),
        Error::Cut(what) => format!("cut in {what}"),
        Error::Decode { .. } => "not understood".to_owned(),
        other => format!("{other:?}"),
    }
}

/// A client whose server answers everything with this.
fn client(code: u16, pieces: Vec<Bytes>) -> Client {
    let service = service_fn(move |_: Request<Bytes>| {
        let pieces = pieces.clone();
        async move {
            let frames = pieces.into_iter().map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
            let body = StreamBody::new(futures::stream::iter(frames));
            let mut answer = Response::new(body);
            *answer.status_mut() = http::StatusCode::from_u16(code).expect("one of ours");
            Ok::<_, Infallible>(answer)
        }
    });
    Client::from_service(service, Options::default())
}

/// In pieces as a network makes them.
fn torn(data: &[u8]) -> Vec<Bytes> {
    let (mut rng, mut rest, mut pieces) = (rng(data), data, Vec::new());
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(rng.usize(1..=rest.len().min(64)));
        pieces.push(Bytes::copy_from_slice(piece));
        rest = more;
    }
    pieces
}

/// Byte by byte, unless that is too many.
fn single(data: &[u8]) -> Vec<Bytes> {
    data.chunks(1.max(data.len() / 512)).map(Bytes::copy_from_slice).collect()
}
