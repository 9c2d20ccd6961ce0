//! Spans as a collector receives them: `cargo test --features otel --test contract traces`.

use std::convert::Infallible;
use std::net::SocketAddr;

use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use prost::Message;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::operator_process::OperatorProcess;
use crate::world::{APP, MAX_WAIT, MEMCACHED, MEMCACHED_IMAGE, World, is_ready, memcached};

/// A marker in fields where users can write private data.
const PRIVATE: &str = "not-for-traces";

/// A collector that receives the exported spans over OTLP/HTTP. Ends when dropped.
struct Collector {
    address: SocketAddr,
    received: watch::Receiver<Vec<ExportTraceServiceRequest>>,
    task: JoinHandle<()>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Collector {
    async fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, received) = watch::channel(Vec::new());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sender = sender.clone();
                let service = service_fn(move |request| take(request, sender.clone()));
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
            }
        });
        Collector { address, received, task }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns all spans so far, once `wanted` holds for them.
    async fn until(&mut self, what: &str, wanted: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let found = self.received.wait_for(|received| wanted(&spans(received)));
        let outcome = timeout(MAX_WAIT, found).await.map(|found| spans(&found.unwrap()));
        outcome.unwrap_or_else(|_| {
            panic!("no {what} in {:#?}", readable(&spans(&self.received.borrow())))
        })
    }
}

async fn take(
    request: Request<Incoming>,
    sender: watch::Sender<Vec<ExportTraceServiceRequest>>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    assert_eq!(request.uri().path(), "/v1/traces");
    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let export = ExportTraceServiceRequest::decode(body).unwrap();
    sender.send_modify(|received| received.push(export));
    // An ExportTraceServiceResponse with nothing set.
    Ok(Response::new(Empty::new()))
}

fn spans(received: &[ExportTraceServiceRequest]) -> Vec<Span> {
    let scopes = received.iter().flat_map(|one| &one.resource_spans).flat_map(|r| &r.scope_spans);
    scopes.flat_map(|scope| scope.spans.clone()).collect()
}

fn attribute(attributes: &[KeyValue], key: &str) -> Value {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|found| found.value.clone()).and_then(|value| value.value) {
        Some(any_value::Value::StringValue(text)) => json!(text),
        Some(any_value::Value::IntValue(number)) => json!(number),
        None => Value::Null,
        other => panic!("{key} is {other:?}"),
    }
}

/// Returns a readable form for failure messages.
fn readable(spans: &[Span]) -> Vec<String> {
    let one = |span: &Span| {
        let attributes =
            span.attributes.iter().map(|a| (&a.key, attribute(&span.attributes, &a.key)));
        format!("{}: {:?}", span.name, attributes.collect::<Vec<_>>())
    };
    spans.iter().map(one).collect()
}

fn is(span: &Span, expected: &[(&str, &str)]) -> bool {
    expected.iter().all(|(key, value)| attribute(&span.attributes, key) == *value)
}

/// Starts the operator, exporting to `endpoint`; returns when its informers are synced.
async fn exporting(world: &World, endpoint: &str, more: &[(&str, &str)]) -> OperatorProcess {
    let mut environment =
        vec![("MEMCACHED_IMAGE", MEMCACHED_IMAGE), ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)];
    environment.extend(more);
    let operator = world.start_operator_with(&environment).await;
    operator.logged("Ready to work").await;
    operator
}

#[tokio::test(flavor = "multi_thread")]
async fn each_reconcile_is_a_span_with_its_requests_as_children() {
    let mut collector = Collector::start().await;
    let world = World::new("traces", "restricted").await;
    let soon = [("OTEL_BSP_SCHEDULE_DELAY", "100"), ("RUST_LOG", "error")];
    let mut operator = exporting(&world, &collector.url(), &soon).await;
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    world.until(MEMCACHED, "cart", is_ready).await;
    let pass = [("controller", "memcached"), ("namespace", "traces"), ("object", "cart")];
    let child_of = |span: &Span, pass: &Span| {
        span.parent_span_id == pass.span_id && span.trace_id == pass.trace_id
    };
    let made = |span: &Span, pass: &Span| {
        child_of(span, pass) && is(span, &[("verb", "patch"), ("resource", "deployments.apps")])
    };
    let all = collector
        .until("pass that makes the Deployment", |spans| {
            let mut passes = spans.iter().filter(|span| is(span, &pass));
            passes.any(|pass| spans.iter().any(|span| made(span, pass)))
        })
        .await;
    let (pass, request) = all
        .iter()
        .filter(|span| is(span, &pass))
        .find_map(|pass| Some((pass, all.iter().find(|span| made(span, pass))?)))
        .unwrap();
    // It checks again in case the Deployment controller does not act.
    assert!(is(pass, &[("result", "requeue_after")]), "{pass:#?}");
    assert_eq!(attribute(&pass.attributes, "id").as_str().map(str::len), Some(16), "{pass:#?}");
    assert_eq!((pass.name.as_str(), pass.parent_span_id.len()), ("reconcile", 0), "{pass:#?}");
    assert_eq!(request.name, "patch deployments.apps");
    assert_eq!(request.kind(), SpanKind::Client);
    assert_eq!(attribute(&request.attributes, "http.response.status_code"), json!(201));
    assert!(pass.start_time_unix_nano <= request.start_time_unix_nano, "{request:#?}");
    assert!(request.end_time_unix_nano <= pass.end_time_unix_nano, "{request:#?}");
    // Calls outside a reconcile have no span: lists, watches, Events.
    let roots = all.iter().filter(|span| span.parent_span_id.is_empty());
    assert!(roots.clone().all(|span| span.name == "reconcile"), "{:#?}", roots.collect::<Vec<_>>());
    let resource = collector.received.borrow()[0].resource_spans[0].resource.clone().unwrap();
    assert_eq!(attribute(&resource.attributes, "service.name"), "workload-operator");
    operator.assert_alive();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_reconcile_has_its_class_and_spans_contain_no_user_data() {
    let mut collector = Collector::start().await;
    let world = World::new("traces-failed", "restricted").await;
    world.forbid("none", "count/deployments.apps").await;
    let mine = [("OTEL_BSP_SCHEDULE_DELAY", "100"), ("OTEL_SERVICE_NAME", "mine")];
    let mut operator = exporting(&world, &collector.url(), &mine).await;
    let shop = json!({
        "metadata": {"name": "shop", "annotations": {"note": PRIVATE}, "labels": {"team": PRIVATE}},
        "spec": {"image": format!("nginx:{PRIVATE}"), "envs": [{"name": "PASSWORD", "value": PRIVATE}]},
    });
    world.create(APP, shop).await.unwrap();
    let failed = [("object", "shop"), ("result", "error"), ("error.type", "Forbidden")];
    let all = collector
        .until("pass that is forbidden", |spans| spans.iter().any(|span| is(span, &failed)))
        .await;
    let failed = all.iter().find(|span| is(span, &failed)).unwrap();
    assert_eq!(failed.status.as_ref().unwrap().code(), StatusCode::Error);
    let refused = all.iter().find(|span| {
        span.parent_span_id == failed.span_id
            && attribute(&span.attributes, "http.response.status_code") == json!(403)
    });
    assert_eq!(refused.expect("the request").status.as_ref().unwrap().code(), StatusCode::Error);
    let kubeconfig = std::fs::read_to_string(world.operator_kubeconfig().await).unwrap();
    let kubeconfig: Value = serde_json::from_str(&kubeconfig).unwrap();
    let token = kubeconfig["users"][0]["user"]["token"].as_str().unwrap();
    let sent = format!("{:?}", collector.received.borrow());
    assert!(sent.contains("shop") && sent.contains("\"mine\""), "{sent}");
    for private in [PRIVATE, token, "quota", "nginx"] {
        assert!(!sent.contains(private), "{private} is in {sent}");
    }
    operator.assert_alive();
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_spans_are_sent_at_shutdown() {
    let mut collector = Collector::start().await;
    let world = World::new("traces-flushed", "restricted").await;
    let never = [("OTEL_BSP_SCHEDULE_DELAY", "3600000")];
    let operator = exporting(&world, &collector.url(), &never).await;
    world.create(MEMCACHED, memcached("cart", 1)).await.unwrap();
    world.until(MEMCACHED, "cart", is_ready).await;
    assert!(collector.received.borrow().is_empty(), "it sends before it has to");
    assert_eq!(operator.terminate().await, Some(0));
    collector.until("span", |spans| spans.iter().any(|span| is(span, &[("object", "cart")]))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_hanging_collector_delays_neither_work_nor_shutdown() {
    let world = World::new("traces-away", "restricted").await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // Bound, so that no other process gets the port, but not listening.
    let away = TcpSocket::new_v4().unwrap();
    away.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let [silent_url, away_url] =
        [silent.local_addr(), away.local_addr()].map(|at| format!("http://{}", at.unwrap()));
    // Ten minutes: a wait for a response would not finish within this test.
    let patient = [("OTEL_BSP_SCHEDULE_DELAY", "100"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")];
    for (name, endpoint) in [("silent", silent_url), ("away", away_url)] {
        let mut operator = exporting(&world, &endpoint, &patient).await;
        world.create(MEMCACHED, memcached(name, 1)).await.unwrap();
        world.until(MEMCACHED, name, is_ready).await;
        if name == "away" {
            let line = operator.logged("Spans are not exported").await;
            assert!(line.contains("WARN") && line.contains("refused"), "{line}");
        }
        operator.assert_alive();
        assert_eq!(operator.terminate().await, Some(0), "{name}");
    }
}
