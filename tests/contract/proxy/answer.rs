//! Handling of a single call.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use kube::client::Body;
use serde_json::json;
use tokio::sync::watch;

use super::{Call, Fault, Shared, Watches};

pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<Streamed>;
pub(super) type Streamed = UnsyncBoxBody<Bytes, Failure>;

/// Applies a fault to the call, and responds to it or not.
pub(super) async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Answer, Failure> {
    let (number, call, fault) = shared.enter(request.method(), request.uri());
    let answer = match fault {
        None => pass_on(request, &shared, &call).await?,
        Some(Fault::LoseAnswer) => {
            complete(pass_on(request, &shared, &call).await?).await?;
            return Err("the answer is lost".into());
        }
        Some(Fault::Answer(code, retry_after)) => refuse(code, retry_after)?,
        Some(Fault::Says(text)) => ok_with(text.to_owned()),
        Some(Fault::CutAfter(bytes)) => {
            pass_on(request, &shared, &call).await?.map(|b| cut(b, bytes))
        }
        Some(Fault::Drip(bytes, pause)) => {
            pass_on(request, &shared, &call).await?.map(|body| dripping(body, bytes, pause))
        }
    };
    shared.answered(number, answer.status());
    Ok(answer)
}

async fn pass_on(
    request: Request<Incoming>,
    shared: &Arc<Shared>,
    call: &Call,
) -> Result<Answer, Failure> {
    let (mut parts, body) = request.into_parts();
    without_hop_by_hop(&mut parts.headers);
    let body = body.collect().await?.to_bytes();
    let request = Request::from_parts(parts, Body::from(body.to_vec()));
    let api_server = shared.api_server.lock().clone();
    let answer = async move { api_server.send(request).await };
    let answer = match call.is_write() {
        // A request that the API server has received is carried out, and logged, even if the operator
        // terminates.
        true => tokio::spawn(answer).await?,
        false => answer.await,
    };
    let (mut parts, body) = answer?.into_parts();
    without_hop_by_hop(&mut parts.headers);
    let body = if call.verb == "watch" {
        let resource = call.object.split('/').next().unwrap_or_default().to_owned();
        watched(body, resource, shared.watches.subscribe())
    } else {
        body.map_err(Failure::from).boxed_unsync()
    };
    Ok(Response::from_parts(parts, body))
}

fn without_hop_by_hop(headers: &mut HeaderMap) {
    for name in [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING] {
        headers.remove(name);
    }
}

/// Returns the response with its complete body.
async fn complete(answer: Answer) -> Result<Answer, Failure> {
    let (parts, body) = answer.into_parts();
    let body = Full::new(body.collect().await?.to_bytes());
    Ok(Response::from_parts(parts, body.map_err(|never| match never {}).boxed_unsync()))
}

fn refuse(code: u16, retry_after: Option<u32>) -> Result<Answer, Failure> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "message": "so the fault proxy wants it", "reason": match code {
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            _ => "InternalError",
        },
    });
    let mut answer =
        Response::builder().status(code).header(header::CONTENT_TYPE, "application/json");
    if let Some(seconds) = retry_after {
        answer = answer.header(header::RETRY_AFTER, seconds);
    }
    let body = Full::new(Bytes::from(status.to_string()));
    Ok(answer.body(body.map_err(|never| match never {}).boxed_unsync())?)
}

fn ok_with(text: String) -> Answer {
    let body = Full::new(Bytes::from(text));
    Response::new(body.map_err(|never| match never {}).boxed_unsync())
}

/// Breaks off after this many bytes.
fn cut(body: Streamed, bytes: usize) -> Streamed {
    let frames = futures::stream::unfold(Some((body, bytes)), |open| async move {
        let (mut body, left) = open?;
        if left == 0 {
            return Some((Err(Failure::from("the answer is cut")), None));
        }
        let mut data = match body.frame().await?.map(Frame::into_data) {
            Ok(Ok(data)) => data,
            Ok(Err(_)) => return None,
            Err(error) => return Some((Err(error), None)),
        };
        data.truncate(left);
        let left = left - data.len();
        Some((Ok(Frame::data(data)), Some((body, left))))
    });
    StreamBody::new(frames.boxed()).boxed_unsync()
}

/// Sends pieces of this many bytes, one after each pause.
fn dripping(body: Streamed, bytes: usize, pause: Duration) -> Streamed {
    let frames =
        futures::stream::unfold((body, Bytes::new()), move |(mut body, mut rest)| async move {
            while rest.is_empty() {
                match body.frame().await?.map(Frame::into_data) {
                    Ok(Ok(data)) => rest = data,
                    Ok(Err(_)) => return None,
                    Err(error) => return Some((Err(error), (body, rest))),
                }
            }
            tokio::time::sleep(pause).await;
            let piece = rest.split_to(bytes.min(rest.len()));
            Some((Ok(Frame::data(piece)), (body, rest)))
        });
    StreamBody::new(frames.boxed()).boxed_unsync()
}

/// Returns the response to a watch, which can be held and cut.
fn watched(body: Body, resource: String, watches: watch::Receiver<Watches>) -> Streamed {
    let cuts = |watches: &Watches, resource: &str| watches.cuts.get(resource).copied();
    let open = cuts(&watches.borrow(), &resource);
    let frames = futures::stream::unfold(Some((body, watches)), move |watch| {
        let resource = resource.clone();
        async move {
            let (mut body, mut watches) = watch?;
            loop {
                let now = watches.borrow_and_update().clone();
                if cuts(&now, &resource) != open {
                    return Some((Err(Failure::from("the watch is cut")), None));
                }
                let held = now.held.contains(&resource);
                tokio::select! {
                    biased;
                    change = watches.changed() => change.ok()?,
                    frame = body.frame(), if !held => {
                        let frame: Result<Frame<Bytes>, Failure> = frame?.map_err(Into::into);
                        return Some((frame, Some((body, watches))));
                    }
                }
            }
        }
    });
    StreamBody::new(frames.boxed()).boxed_unsync()
}
