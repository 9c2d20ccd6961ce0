//! Reads and writes of single objects.

use tracing::instrument::WithSubscriber;
use tracing_subscriber::fmt::format::FmtSpan;

use super::*;
use crate::client::{Patch, PropagationPolicy};

#[tokio::test(start_paused = true)]
async fn a_call_without_a_response_fails_at_the_deadline() {
    let service = service_fn(|_: Request<Bytes>| async {
        std::future::pending::<()>().await;
        Ok::<_, Infallible>(Response::new(body(&[], End::Good)))
    });
    let client = Client::from_service(service, Options::default());
    let began = Instant::now();
    assert!(matches!(client.get::<Thing>(&key()).await, Err(Error::Deadline(_))));
    let opened = client.watch::<Thing>(&Scope::default(), &from("1")).await;
    assert!(matches!(opened, Err(Error::Deadline(_))));
    assert_eq!(began.elapsed().as_secs(), 40);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_can_be_as_long_as_a_duration() {
    let most = Duration::MAX;
    let deadlines =
        Options { deadline: most, list_deadline: most, write_deadline: most, ..Options::default() };
    let (client, _) = client_with(200, &[THING], End::Good, deadlines);
    client.get::<Thing>(&key()).await.unwrap();
    client.patch::<Thing>(&key(), &Patch::Apply(&json!({}))).await.unwrap();
}

/// The API server queues a call for up to 15 s, and gives up a request after 60 s.
#[tokio::test(start_paused = true)]
async fn an_overloaded_server_has_time_to_respond() {
    let service = service_fn(|request: Request<Bytes>| async move {
        let lists = request.uri().path().ends_with("/things");
        let queued = Duration::from_secs(if lists { 61 } else { 16 });
        tokio::time::sleep(queued).await;
        let text = if lists { r#"{"metadata":{"resourceVersion":"9"},"items":[]}"# } else { THING };
        Ok::<_, Infallible>(Response::new(body(&[text], End::Good)))
    });
    let client = Client::from_service(service, Options::default());
    client.get::<Thing>(&key()).await.unwrap();
    client.patch::<Thing>(&key(), &Patch::Apply(&json!({}))).await.unwrap();
    list(&client).await.0.unwrap();
    let kind = Thing::kind();
    client.read_all(&kind, &Scope::default()).await.unwrap();
}

#[tokio::test]
async fn writes_carry_field_manager_type_and_body() {
    let (client, asked) = client(200, &[THING], End::Good);
    let object = json!({"apiVersion": "g/v1", "metadata": {"name": "a", "uid": "u"}});
    let base = "/apis/g/v1/namespaces/ns/things";
    let took = || {
        let asked = asked.lock().clone();
        (asked.method, asked.url, asked.content)
    };
    let expect = |method: &str, url: &str, content: &str| {
        (method.to_owned(), format!("{base}{url}"), format!("application/{content}"))
    };

    assert_eq!(client.create::<Thing>(&key(), &object).await.unwrap().size, 3);
    assert_eq!(took(), expect("POST", "?&fieldManager=website", "json"));
    client.patch::<Thing>(&key(), &Patch::Apply(&object)).await.unwrap();
    let applied = "/a?&force=true&fieldManager=website";
    assert_eq!(took(), expect("PATCH", applied, "apply-patch+yaml"));
    assert_eq!(asked.lock().body, object);
    client.apply_new::<Thing>(&key(), &object).await.unwrap();
    assert_eq!(took(), expect("PATCH", applied, "apply-patch+yaml"));
    let new = json!({"apiVersion": "g/v1", "metadata": {"name": "a", "resourceVersion": "1"}});
    assert_eq!(asked.lock().body, new);
    client.patch::<Thing>(&key(), &Patch::Merge(&json!({"x": null}))).await.unwrap();
    let patched = expect("PATCH", "/a?&fieldManager=website", "merge-patch+json");
    assert_eq!(took(), patched);
    client.patch_status::<Thing>(&key(), &Patch::Merge(&json!({}))).await.unwrap();
    let status = "/a/status?&fieldManager=website";
    assert_eq!(took(), expect("PATCH", status, "merge-patch+json"));
    client.json_patch::<Thing>(&key(), &json!([])).await.unwrap();
    let patched = expect("PATCH", "/a?&fieldManager=website", "json-patch+json");
    assert_eq!(took(), patched);
}

#[tokio::test]
async fn a_delete_selects_one_object_and_returns_its_effect() {
    let uid: Uid = "01234567-89ab-cdef-0123-456789abcdef".parse().unwrap();
    let known = Preconditions { uid, version: ResourceVersion::new(7) };
    let (gone, asked) = client(200, &[r#"{"kind":"Status","status":"Success"}"#], End::Good);
    assert_eq!(
        gone.delete::<Thing>(&key(), known, PropagationPolicy::Background).await.unwrap(),
        Deletion::Deleted
    );
    assert_eq!(asked.lock().method, "DELETE");
    let body = asked.lock().body.clone();
    assert_eq!(body["preconditions"], json!({"uid": uid, "resourceVersion": "7"}));
    assert_eq!(body["propagationPolicy"], "Background");

    let (begun, asked) = client(200, &[MARKED], End::Good);
    let unknown = Preconditions { uid, version: ResourceVersion::UNKNOWN };
    assert_eq!(
        begun.delete::<Thing>(&key(), unknown, PropagationPolicy::Background).await.unwrap(),
        Deletion::Terminating
    );
    assert_eq!(asked.lock().body["preconditions"], json!({"uid": uid}));
    // For Services, the API server responds in this way.
    let (gone, _) = client(200, &[THING], End::Good);
    assert_eq!(
        gone.delete::<Thing>(&key(), known, PropagationPolicy::Background).await.unwrap(),
        Deletion::Deleted
    );
    let (unclear, _) = client(200, &["ok"], End::Good);
    assert_eq!(
        unclear.delete::<Thing>(&key(), known, PropagationPolicy::Background).await.unwrap(),
        Deletion::Terminating
    );
}

#[tokio::test]
async fn each_write_of_a_dry_run_is_marked_and_reported() {
    #[derive(Default)]
    struct Reports(Mutex<Vec<String>>);
    impl DryRun for Reports {
        fn answered(&self, write: DryWrite) {
            let is_there = |object: Option<&serde_json::Value>| object.is_some();
            let (before, after) = (is_there(write.before.as_ref()), write.after.unwrap());
            let line = format!("{} {before} {}", write.verb, is_there(after.as_ref()));
            self.0.lock().push(format!("{line} {}", write.subresource));
        }
    }
    let reports = Arc::new(Reports::default());
    // No gate is asked: nothing is stored.
    let (gate, dry_run) = (Arc::new(Closed), Some(reports.clone() as Arc<dyn DryRun>));
    let options = Options { gate, dry_run, ..Options::default() };
    const ANSWER: &str = r#"{"metadata":{"name":"a","resourceVersion":"5"},"size":3,"items":[{"metadata":{"name":"other"}},{"metadata":{"name":"a"}}]}"#;
    let (client, asked) = client_with(200, &[ANSWER], End::Good, options);
    let object = json!({"metadata": {}});
    let is_dry_run = || asked.lock().url.contains("dryRun=All");
    client.create::<Thing>(&key(), &object).await.unwrap();
    assert!(is_dry_run());
    client.patch::<Thing>(&key(), &Patch::Apply(&object)).await.unwrap();
    assert!(is_dry_run());
    client.patch_status::<Thing>(&key(), &Patch::Merge(&object)).await.unwrap();
    assert!(is_dry_run());
    let unknown = Preconditions { uid: Uid::NONE, version: ResourceVersion::UNKNOWN };
    client.delete::<Thing>(&key(), unknown, PropagationPolicy::Background).await.unwrap();
    assert!(is_dry_run() && asked.lock().body["dryRun"] == json!(["All"]));
    assert_eq!(
        *reports.0.lock(),
        ["create false true ", "patch true true ", "patch true true status", "delete true false "]
    );
}

struct Closed;

impl WriteGate for Closed {
    fn may_write(&self) -> Result<Duration, String> {
        Err("another replica leads".to_owned())
    }
}

#[tokio::test]
async fn a_closed_gate_stops_writes_but_not_reads() {
    let options = Options { gate: Arc::new(Closed), ..Options::default() };
    let (client, asked) = client_with(200, &[THING], End::Good, options);
    let object = json!({"metadata": {}});
    let unknown = Preconditions { uid: Uid::NONE, version: ResourceVersion::UNKNOWN };
    for refused in [
        client.create::<Thing>(&key(), &object).await.map(drop),
        client.patch::<Thing>(&key(), &Patch::Apply(&object)).await.map(drop),
        client.apply_new::<Thing>(&key(), &object).await.map(drop),
        client.patch::<Thing>(&key(), &Patch::Merge(&object)).await.map(drop),
        client.patch_status::<Thing>(&key(), &Patch::Merge(&object)).await.map(drop),
        client.json_patch::<Thing>(&key(), &object).await.map(drop),
        client.delete::<Thing>(&key(), unknown, PropagationPolicy::Background).await.map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert!(matches!(&refused, Error::NotPermitted(_)));
        assert_eq!(refused.to_string(), "not written: another replica leads");
    }
    assert_eq!(asked.lock().method, "", "something was sent");
    client.get::<Thing>(&key()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_request_is_counted_once() {
    let counted = |verb: &'static str, code: &'static str| {
        REQUESTS_BY_RESOURCE.with([verb, "widgets.example.com", code]).get()
    };
    let (refusing, _) = client_with(404, &[], End::Good, Options::default());
    let _ = refusing.get::<Widget>(&key()).await;
    let (hanging, _) = client_with(200, &["{"], End::Never, Options::default());
    let _ = hanging.list::<Widget>(&Scope::default(), &Page::default(), drop).await;
    let _ =
        timeout(Duration::from_secs(2), hanging.patch::<Widget>(&key(), &Patch::Apply(&()))).await;
    let (good, _) = client_with(200, &[], End::Good, Options::default());
    drop(good.watch::<Widget>(&Scope::default(), &from("1")).await);
    for (verb, code) in
        [("get", "404"), ("list", "<error>"), ("patch", "<error>"), ("watch", "200")]
    {
        assert_eq!(counted(verb, code), 1, "{verb} {code}");
    }
}

/// The spans of `work` as JSON, in the order in which they end.
async fn spans(work: impl Future<Output = ()>) -> Vec<serde_json::Value> {
    let written = Written::default();
    let writer = written.clone();
    // While only one subscriber exists, tracing asks the thread that registers a span for its
    // subscriber. That can be the thread of another test, which has none.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::DEBUG)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || writer.clone())
        .finish();
    work.with_subscriber(subscriber).await;
    let lines = written.0.lock();
    let lines = serde_json::Deserializer::from_slice(&lines).into_iter::<serde_json::Value>();
    lines.map(|line| line.unwrap()["span"].take()).collect()
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn each_request_has_a_span_with_its_outcome() {
    let (good, _) = client(200, &[THING], End::Good);
    let (refusing, _) = client(404, &[], End::Good);
    let (hanging, _) = client(200, &["{"], End::Never);
    good.get::<Thing>(&key()).await.unwrap();
    let ended = spans(async {
        good.get::<Thing>(&key()).await.unwrap();
        refusing.get::<Thing>(&key()).await.unwrap_err();
        hanging.get::<Thing>(&key()).await.unwrap_err();
    });
    let span = |more: serde_json::Value| {
        let mut span = json!({
            "name": "request", "verb": "get", "resource": "things.g",
            "otel.name": "get things.g", "otel.kind": "client",
        });
        span.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        span
    };
    let failed = |why: &str| json!({"otel.status_code": "ERROR", "otel.status_description": why});
    let mut refused = span(failed("404"));
    refused["http.response.status_code"] = 404.into();
    let good = span(json!({"http.response.status_code": 200}));
    assert_eq!(ended.await, [good, refused, span(failed("no answer"))]);
}

#[tokio::test]
async fn a_refusal_is_an_error_with_every_status_field() {
    let (client, _) = client(
        429,
        &[r#"{"kind":"Status","code":429,"reason":"TooManyRequests","#, r#""message":"slow"}"#],
        End::Good,
    );
    let error = client.get::<Thing>(&key()).await.unwrap_err();
    assert_eq!(
        (error.code(), error.reason(), error.to_string().as_str()),
        (Some(429), "TooManyRequests", "slow")
    );
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
}

#[tokio::test]
async fn an_endless_response_is_rejected() {
    static PIECE: std::sync::LazyLock<Bytes> =
        std::sync::LazyLock::new(|| vec![b'x'; 1 << 20].into());
    let endless = || stream::repeat(()).map(|()| Ok::<_, BoxError>(Frame::data(PIECE.clone())));
    for (code, expected) in [(200, None), (500, Some(500))] {
        let service = service_fn(move |_: Request<Bytes>| async move {
            let body: Pieces = Box::pin(endless());
            let mut answer = Response::new(StreamBody::new(body));
            *answer.status_mut() = code.try_into().unwrap();
            Ok::<_, Infallible>(answer)
        });
        let client = Client::from_service(service, Options::default());
        let error = client.get::<Thing>(&key()).await.unwrap_err();
        assert_eq!(error.code(), expected);
        assert!(matches!(error, Error::TooLarge { .. } | Error::Api { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn an_unserved_kind_is_distinguished_from_a_missing_object() {
    let (client, _) = client(404, &["404 page not found\n"], End::Good);
    let error = client.create::<Thing>(&key(), &json!({})).await.unwrap_err();
    assert!(error.is_not_served(), "{error:?}");
    let expected = "the API server does not serve things.g: apply its CustomResourceDefinition";
    assert_eq!(error.to_string(), expected);
    const MISSING: &str = r#"{"kind":"Status","reason":"NotFound","message":"no a","code":404}"#;
    let (client, _) = self::client(404, &[MISSING], End::Good);
    let error = client.get::<Thing>(&key()).await.unwrap_err();
    assert!(error.is_not_found() && !error.is_not_served(), "{error:?}");
    assert_eq!(error.to_string(), "no a");
}

/// Permits writes until then, and counts those that had no answer.
struct Until {
    until: Instant,
    unanswered: Mutex<usize>,
}

impl WriteGate for Until {
    fn may_write(&self) -> Result<Duration, String> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err("it is over".to_owned()) } else { Ok(left) }
    }

    fn unanswered(&self) {
        *self.unanswered.lock() += 1;
    }
}

fn until(seconds: u64) -> (Arc<Until>, Options) {
    let until = Instant::now() + Duration::from_secs(seconds);
    let gate = Arc::new(Until { until, unanswered: Mutex::default() });
    (gate.clone(), Options { gate, ..Options::default() })
}

#[tokio::test(start_paused = true)]
async fn a_write_takes_no_longer_than_the_gate_permits() {
    for (permitted, expected) in [(3, 3), (100, 65)] {
        let service = service_fn(|_: Request<Bytes>| async {
            std::future::pending::<()>().await;
            Ok::<_, Infallible>(Response::new(body(&[], End::Good)))
        });
        let (gate, options) = until(permitted);
        let client = Client::from_service(service, options);
        let began = Instant::now();
        let ended = client.patch::<Thing>(&key(), &Patch::Apply(&json!({}))).await;
        assert!(matches!(ended, Err(Error::Deadline(_))), "{ended:?}");
        assert_eq!(began.elapsed().as_secs(), expected);
        assert_eq!(*gate.unanswered.lock(), 1, "it may be carried out yet");
    }
}

#[tokio::test]
async fn only_a_server_failure_leaves_a_write_unanswered() {
    for (code, unanswered) in [(200, 0), (409, 0), (429, 0), (500, 1), (502, 1), (504, 1)] {
        let (gate, options) = until(60);
        let (client, _) = client_with(code, &[THING], End::Good, options);
        drop(client.patch::<Thing>(&key(), &Patch::Apply(&json!({}))).await);
        assert_eq!(*gate.unanswered.lock(), unanswered, "{code}");
    }
}
