//! The client against services with scripted answers.

mod lists;
mod watches;
mod calls;
mod sockets;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tower::service_fn;

use super::*;
use crate::client::{
    Deletion, DryRun, DryWrite, Page, Preconditions, Scope, Watch, WatchEvent, WatchFrom, WriteGate,
};
use crate::identity::Identity;
use crate::object::{Meta, Object, ResourceVersion, Uid};

#[derive(Debug, Deserialize)]
struct Thing {
    metadata: Meta,
    #[serde(default)]
    size: u32,
}

crate::view!(Thing: Kind::namespaced("g", "v1", "Thing", "things"));

/// A kind that one test uses.
#[derive(Debug, Deserialize)]
struct Widget {
    metadata: Meta,
}

crate::view!(Widget: Kind::namespaced("example.com", "v1", "Widget", "widgets"));

const PROGRAM: Identity = Identity::new("website", "example.com").version("1.2.3");

type Pieces = Pin<Box<dyn futures::Stream<Item = Result<Frame<Bytes>, BoxError>> + Send>>;

/// Behaviour of a body after its chunks: it ends, breaks or hangs.
#[derive(Clone, Copy)]
enum End {
    Good,
    Broken,
    Never,
}

fn body(chunks: &[&str], end: End) -> StreamBody<Pieces> {
    let chunks: Vec<_> = chunks.iter().map(|chunk| Bytes::from((*chunk).to_owned())).collect();
    let chunks = stream::iter(chunks).map(|chunk| Ok(Frame::data(chunk)));
    StreamBody::new(match end {
        End::Good => Box::pin(chunks),
        End::Broken => {
            Box::pin(chunks.chain(stream::once(async { Err(BoxError::from("connection reset")) })))
        }
        End::Never => Box::pin(chunks.chain(stream::pending())),
    })
}

/// The last request that the server received.
#[derive(Debug, Clone, Default)]
struct Asked {
    method: String,
    url: String,
    content: String,
    accept: String,
    encoding: String,
    agent: String,
    body: serde_json::Value,
}

/// A client whose server answers everything with `code` and `chunks`, and what was requested.
fn client(code: u16, chunks: &'static [&'static str], end: End) -> (Client, Arc<Mutex<Asked>>) {
    client_with(code, chunks, end, Options::new(PROGRAM))
}

fn client_with(
    code: u16,
    chunks: &'static [&'static str],
    end: End,
    options: Options,
) -> (Client, Arc<Mutex<Asked>>) {
    let asked = Arc::new(Mutex::new(Asked::default()));
    let seen = asked.clone();
    let service = service_fn(move |request: Request<Bytes>| {
        let seen = seen.clone();
        async move {
            let (head, bytes) = request.into_parts();
            let header = |name: &str| {
                let value = head.headers.get(name);
                value.map_or("", |value| value.to_str().unwrap()).to_owned()
            };
            *seen.lock() = Asked {
                method: head.method.to_string(),
                url: head.uri.to_string(),
                content: header("content-type"),
                accept: header("accept"),
                encoding: header("accept-encoding"),
                agent: header("user-agent"),
                body: serde_json::from_slice(&bytes).unwrap_or_default(),
            };
            let mut answer = Response::new(body(chunks, end));
            *answer.status_mut() = code.try_into().unwrap();
            answer.headers_mut().insert("retry-after", "3".parse().unwrap());
            Ok::<_, Infallible>(answer)
        }
    });
    (Client::from_service(service, options), asked)
}

fn key() -> ObjectKey {
    ObjectKey::new("ns", "a")
}

const THING: &str = r#"{"metadata":{"name":"a","namespace":"ns","resourceVersion":"5"},"size":3}"#;

/// [`THING`], marked for deletion.
const MARKED: &str = r#"{"metadata":{"name":"a","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;

async fn list(client: &Client) -> (Result<crate::client::PageEnd, Error>, Vec<String>) {
    let mut items = Vec::new();
    let end = client
        .list::<Thing>(&Scope::default(), &Page::default(), |item| {
            items.push(match item {
                Ok(thing) => format!("{} {}", thing.key(), thing.size),
                Err(bad) => format!("{} undecodable at {}", bad.key, bad.version),
            });
        })
        .await;
    (end, items)
}

fn from(version: &str) -> WatchFrom {
    WatchFrom {
        version: Some(version.into()),
        initial_events: false,
        timeout: Duration::from_secs(60),
    }
}

async fn watch(client: &Client) -> Watch<Thing> {
    client.watch(&Scope::default(), &from("1")).await.unwrap()
}
