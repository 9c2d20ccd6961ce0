//! The client against services with scripted answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

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
    Deletion, Event, Observer, Page, Preconditions, Scope, Watch, WatchFrom, WriteGate,
};
use crate::object::{Meta, Object, ResourceVersion, Uid};

#[derive(Debug, Deserialize)]
struct Thing {
    metadata: Meta,
    #[serde(default)]
    size: u32,
}

crate::view!(Thing: Kind::namespaced("g", "v1", "Thing", "things"));

type Pieces = Pin<Box<dyn futures::Stream<Item = Result<Frame<Bytes>, BoxError>> + Send>>;

/// What a body does after its pieces: it ends, breaks or hangs.
#[derive(Clone, Copy)]
enum End {
    Good,
    Broken,
    Never,
}

fn body(pieces: &[&str], end: End) -> StreamBody<Pieces> {
    let pieces: Vec<_> = pieces.iter().map(|piece| Bytes::from((*piece).to_owned())).collect();
    let pieces = stream::iter(pieces).map(|piece| Ok(Frame::data(piece)));
    StreamBody::new(match end {
        End::Good => Box::pin(pieces),
        End::Broken => {
            Box::pin(pieces.chain(stream::once(async { Err(BoxError::from("connection reset")) })))
        }
        End::Never => Box::pin(pieces.chain(stream::pending())),
    })
}

/// What was requested.
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

/// A client whose server answers everything with `code` and `pieces`, and what was requested.
fn client(code: u16, pieces: &'static [&'static str], end: End) -> (Client, Arc<Mutex<Asked>>) {
    client_with(code, pieces, end, Options::default())
}

fn client_with(
    code: u16,
    pieces: &'static [&'static str],
    end: End,
    options: Options,
) -> (Client, Arc<Mutex<Asked>>) {
    let asked = Arc::new(Mutex::new(Asked::default()));
    let seen = asked.clone();
    let service = service_fn(move |request: Request<Body>| {
        let seen = seen.clone();
        async move {
            let (head, body) = request.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
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
            let mut answer = Response::new(self::body(pieces, end));
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
        metadata_only: false,
    }
}

async fn watch(client: &Client) -> Watch<Thing> {
    client.watch(&Scope::default(), &from("1")).await.unwrap()
}

#[tokio::test]
async fn a_list_hands_on_its_items_and_a_bad_one_harms_only_itself() {
    let (client, _) = client(
        200,
        &[
            r#"{"kind":"ThingList","metadata":{"resourceVersion":"9","continue":"t"},"items":[{"meta"#,
            r#"data":{"name":"a"},"size":1},{"metadata":{"name":"b","resourceVersion":"4"},"size":"x"},{"#,
            r#""metadata":{"name":"c"}}]}"#,
        ],
        End::Good,
    );
    let (end, items) = list(&client).await;
    let end = end.unwrap();
    assert_eq!((&*end.version, end.continue_token.as_deref()), ("9", Some("t")));
    assert_eq!(items, ["a 1", "b undecodable at 4", "c 0"]);
}

#[tokio::test]
async fn a_list_that_breaks_off_is_an_error() {
    const HEAD: &str = r#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}},"#;
    let (cut, _) = client(200, &[HEAD], End::Good);
    assert!(matches!(list(&cut).await.0, Err(Error::Cut(_))));
    let (broken, _) = client(200, &[HEAD], End::Broken);
    let (end, _) = list(&broken).await;
    assert!(end.unwrap_err().to_string().contains("connection reset"));
}

#[tokio::test(start_paused = true)]
async fn items_are_handed_on_while_the_list_arrives() {
    let item = format!(r#"{{"metadata":{{"name":"a","x":"{}"}}}},"#, "y".repeat(100_000));
    let item: &'static str = item.leak();
    let (client, _) = client(200, vec![r#"{"items":["#, item, item].leak(), End::Never);
    let (end, items) = list(&client).await;
    assert!(matches!(end, Err(Error::Deadline(_))));
    assert_eq!(items, ["a 0", "a 0"]);
}

#[tokio::test]
async fn a_status_instead_of_a_list_is_the_error_it_says() {
    let (client, _) = client(
        200,
        &[r#"{"kind":"Status","metadata":{},"code":410,"#, r#""reason":"Expired"}"#],
        End::Good,
    );
    assert!(list(&client).await.0.unwrap_err().is_expired());
}

#[tokio::test]
async fn an_item_without_a_name_is_no_item() {
    let (client, _) = client(200, &[r#"{"items":[{"size":1}],"metadata":{}}"#], End::Good);
    assert!(matches!(list(&client).await.0, Err(Error::Decode { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_given_up_at_the_deadline() {
    let began = Instant::now();
    let (client, _) = client(200, &[r#"{"items":["#], End::Never);
    assert!(matches!(list(&client).await.0, Err(Error::Deadline(_))));
    assert!(matches!(client.get::<Thing>(&key()).await, Err(Error::Deadline(_))));
    assert_eq!(began.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up_at_the_deadline() {
    let service = service_fn(|_: Request<Body>| async {
        std::future::pending::<()>().await;
        Ok::<_, Infallible>(Response::new(body(&[], End::Good)))
    });
    let client = Client::from_service(service, Options::default());
    let began = Instant::now();
    assert!(matches!(client.get::<Thing>(&key()).await, Err(Error::Deadline(_))));
    let opened = client.watch::<Thing>(&Scope::default(), &from("1")).await;
    assert!(matches!(opened, Err(Error::Deadline(_))));
    assert_eq!(began.elapsed().as_secs(), 20);
}

#[tokio::test]
async fn a_watch_ends_in_good_order_between_events_only() {
    const EVENT: &str = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n";
    let (good, _) = client(200, &[EVENT], End::Good);
    let mut events = watch(&good).await;
    assert!(matches!(events.next().await, Some(Ok(Event::Added(_)))));
    assert!(events.next().await.is_none() && events.next().await.is_none());

    let (cut, _) = client(200, &[EVENT, "{\"type\":"], End::Good);
    let mut events = watch(&cut).await;
    assert!(matches!(events.next().await, Some(Ok(_))));
    assert!(matches!(events.next().await, Some(Err(Error::Cut(_)))));
    assert!(events.next().await.is_none(), "after an error the watch is over");

    let (broken, _) = client(200, &[EVENT], End::Broken);
    let mut events = watch(&broken).await;
    assert!(matches!(events.next().await, Some(Ok(_))));
    assert!(matches!(events.next().await, Some(Err(Error::Transport { .. }))));
}

#[tokio::test]
async fn an_error_frame_ends_the_watch() {
    let (client, asked) = client(
        200,
        &[
            "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n{\"type\":\"ADDED\"",
        ],
        End::Never,
    );
    let mut events = watch(&client).await;
    assert!(events.next().await.unwrap().unwrap_err().is_expired());
    assert!(events.next().await.is_none());
    assert_eq!(asked.lock().encoding, "identity");
    assert_eq!(asked.lock().agent, format!("workload-operator/{}", env!("CARGO_PKG_VERSION")));
}

#[tokio::test(start_paused = true)]
async fn a_watch_loses_no_event_when_waiting_for_it_is_given_up() {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<&'static str>();
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let service = service_fn(move |_: Request<Body>| {
        let receiver = receiver.lock().take().unwrap();
        async move {
            let pieces = stream::unfold(receiver, |mut receiver| async {
                let piece = Bytes::from(receiver.recv().await?);
                Some((Ok::<_, BoxError>(Frame::data(piece)), receiver))
            });
            let body: Pieces = Box::pin(pieces);
            Ok::<_, Infallible>(Response::new(StreamBody::new(body)))
        }
    });
    let client = Client::from_service(service, Options::default());
    let mut events = watch(&client).await;
    sender.send("{\"type\":\"ADDED\",\"object\":{\"meta").unwrap();
    assert!(timeout(Duration::from_millis(1), events.next()).await.is_err());
    sender.send("data\":{\"name\":\"a\"}}}\n{\"type\":").unwrap();
    assert!(
        matches!(events.next().await, Some(Ok(Event::Added(thing))) if *thing.key().name() == *"a")
    );
    assert!(timeout(Duration::from_millis(1), events.next()).await.is_err());
    sender.send("\"DELETED\",\"object\":{\"metadata\":{\"name\":\"b\"}}}\n").unwrap();
    drop(sender);
    assert!(
        matches!(events.next().await, Some(Ok(Event::Deleted(thing))) if *thing.key().name() == *"b")
    );
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn metadata_only_asks_for_metadata_only() {
    let (client, asked) =
        client(200, &[r#"{"items":null,"metadata":{"resourceVersion":"1"}}"#], End::Good);
    let page = Page::default();
    client.list_metadata::<Thing>(&Scope::default(), &page, |_| {}).await.unwrap();
    let as_list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    assert_eq!(asked.lock().accept, as_list);
    let from = WatchFrom { metadata_only: true, ..from("1") };
    client.watch::<Thing>(&Scope::default(), &from).await.unwrap();
    assert_eq!(asked.lock().accept, as_list.replace("List", ""));
}

#[tokio::test]
async fn writes_say_who_writes_what_and_how() {
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
    assert_eq!(took(), expect("POST", "?fieldManager=workload-operator", "json"));
    client.apply::<Thing>(&key(), &object).await.unwrap();
    let applied = "/a?force=true&fieldManager=workload-operator";
    assert_eq!(took(), expect("PATCH", applied, "apply-patch+yaml"));
    assert_eq!(asked.lock().body, object);
    client.apply_new::<Thing>(&key(), &object).await.unwrap();
    assert_eq!(took(), expect("PATCH", applied, "apply-patch+yaml"));
    let new = json!({"apiVersion": "g/v1", "metadata": {"name": "a", "resourceVersion": "1"}});
    assert_eq!(asked.lock().body, new);
    client.merge_patch::<Thing>(&key(), &json!({"x": null})).await.unwrap();
    let patched = expect("PATCH", "/a?fieldManager=workload-operator", "merge-patch+json");
    assert_eq!(took(), patched);
    client.patch_status::<Thing>(&key(), &json!({})).await.unwrap();
    let status = "/a/status?fieldManager=workload-operator";
    assert_eq!(took(), expect("PATCH", status, "merge-patch+json"));
    client.json_patch::<Thing>(&key(), &json!([])).await.unwrap();
    let patched = expect("PATCH", "/a?fieldManager=workload-operator", "json-patch+json");
    assert_eq!(took(), patched);
}

#[tokio::test]
async fn a_delete_means_one_object_and_says_whether_it_is_gone() {
    let uid: Uid = "01234567-89ab-cdef-0123-456789abcdef".parse().unwrap();
    let known = Preconditions { uid, version: ResourceVersion::new(7) };
    let (gone, asked) = client(200, &[r#"{"kind":"Status","status":"Success"}"#], End::Good);
    assert_eq!(gone.delete::<Thing>(&key(), known).await.unwrap(), Deletion::Final);
    assert_eq!(asked.lock().method, "DELETE");
    let body = asked.lock().body.clone();
    assert_eq!(body["preconditions"], json!({"uid": uid, "resourceVersion": "7"}));
    assert_eq!(body["propagationPolicy"], "Background");

    let (begun, asked) = client(200, &[MARKED], End::Good);
    let unknown = Preconditions { uid, version: ResourceVersion::UNKNOWN };
    assert_eq!(begun.delete::<Thing>(&key(), unknown).await.unwrap(), Deletion::Started);
    assert_eq!(asked.lock().body["preconditions"], json!({"uid": uid}));
    // This is how the API server answers for Services.
    let (gone, _) = client(200, &[THING], End::Good);
    assert_eq!(gone.delete::<Thing>(&key(), known).await.unwrap(), Deletion::Final);
    let (unclear, _) = client(200, &["ok"], End::Good);
    assert_eq!(unclear.delete::<Thing>(&key(), known).await.unwrap(), Deletion::Started);
}

struct Closed;

impl WriteGate for Closed {
    fn may_write(&self) -> Result<(), String> {
        Err("another replica leads".to_owned())
    }
}

#[tokio::test]
async fn no_write_passes_a_closed_gate_and_every_read_does() {
    let options = Options { gate: Arc::new(Closed), ..Options::default() };
    let (client, asked) = client_with(200, &[THING], End::Good, options);
    let object = json!({"metadata": {}});
    let unknown = Preconditions { uid: Uid::NONE, version: ResourceVersion::UNKNOWN };
    for refused in [
        client.create::<Thing>(&key(), &object).await.map(drop),
        client.apply::<Thing>(&key(), &object).await.map(drop),
        client.apply_new::<Thing>(&key(), &object).await.map(drop),
        client.merge_patch::<Thing>(&key(), &object).await.map(drop),
        client.patch_status::<Thing>(&key(), &object).await.map(drop),
        client.json_patch::<Thing>(&key(), &object).await.map(drop),
        client.delete::<Thing>(&key(), unknown).await.map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert!(matches!(&refused, Error::NotPermitted(_)));
        assert_eq!(refused.to_string(), "not written: another replica leads");
    }
    assert_eq!(asked.lock().method, "", "something was sent");
    client.get::<Thing>(&key()).await.unwrap();
}

/// Records what is reported to it.
#[derive(Default)]
struct Notes(Mutex<Vec<(&'static str, &'static str, u16, u64)>>);

impl Observer for Notes {
    fn request(&self, verb: &'static str, kind: &Kind, code: u16, took: Duration) {
        self.0.lock().push((verb, kind.plural, code, took.as_secs()));
    }
}

#[tokio::test(start_paused = true)]
async fn the_observer_is_told_of_every_request_once() {
    let notes = Arc::new(Notes::default());
    let options = Options { observer: notes.clone(), ..Options::default() };
    let (refusing, _) = client_with(404, &[], End::Good, options.clone());
    let _ = refusing.get::<Thing>(&key()).await;
    let (hanging, _) = client_with(200, &["{"], End::Never, options.clone());
    let _ = list(&hanging).await;
    let _ = timeout(Duration::from_secs(2), hanging.apply::<Thing>(&key(), &())).await;
    let (good, _) = client_with(200, &[], End::Good, options);
    drop(watch(&good).await);
    let told = [
        ("get", "things", 404, 0),
        ("list", "things", 0, 10),
        ("patch", "things", 0, 2),
        ("watch", "things", 200, 0),
    ];
    assert_eq!(*notes.0.lock(), told);
}

#[tokio::test]
async fn a_refusal_is_an_error_with_all_that_it_says() {
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
async fn an_answer_without_end_is_refused_and_not_kept() {
    static PIECE: std::sync::LazyLock<Bytes> =
        std::sync::LazyLock::new(|| vec![b'x'; 1 << 20].into());
    let endless = || stream::repeat(()).map(|()| Ok::<_, BoxError>(Frame::data(PIECE.clone())));
    for (code, expected) in [(200, None), (500, Some(500))] {
        let service = service_fn(move |_: Request<Body>| async move {
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

/// A server on a socket that answers each connection's first request with `answer`; the task
/// returns what was sent to it.
async fn serve(answer: &'static str) -> (http::Uri, tokio::task::JoinHandle<String>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/base", listener.local_addr().unwrap()).parse().unwrap();
    let served = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(socket.read_u8().await.unwrap());
        }
        socket.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(request).unwrap().to_lowercase()
    });
    (url, served)
}

#[tokio::test]
async fn a_request_over_a_socket_carries_the_token_and_no_error_does() {
    let (url, served) =
        serve("HTTP/1.1 401 Unauthorized\r\ncontent-length: 12\r\n\r\nUnauthorized").await;
    let mut config = kube::Config::new(url);
    config.auth_info.token = Some("hunter2".to_owned().into());
    let client = Client::new(config, Options::default()).unwrap();
    let error = client.get::<Thing>(&key()).await.unwrap_err();
    assert!(error.is_unauthorized());
    assert!(!format!("{error} {error:?} {client:?}").contains("hunter2"));
    let request = served.await.unwrap();
    assert!(request.starts_with("get /base/apis/g/v1/namespaces/ns/things/a http/1.1\r\n"));
    assert!(request.contains("authorization: bearer hunter2\r\n"), "{request}");
    assert!(request.contains("user-agent: workload-operator/"), "{request}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_readable_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: http::Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let client = Client::new(kube::Config::new(url), Options::default()).unwrap();
    let error = client.get::<Thing>(&key()).await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }));
    assert!(error.to_string().to_lowercase().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_watch_cut_by_the_network_is_an_error_and_not_an_end() {
    let (url, _served) = serve(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
         34\r\n{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n\r\n",
    )
    .await;
    let client = Client::new(kube::Config::new(url), Options::default()).unwrap();
    let mut events = watch(&client).await;
    assert!(matches!(events.next().await, Some(Ok(Event::Added(_)))));
    assert!(matches!(events.next().await, Some(Err(Error::Transport { .. }))));
}

#[tokio::test]
async fn a_proxy_is_refused_in_so_many_words() {
    let mut config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    config.proxy_url = Some("http://user:hunter2@proxy:3128".parse().unwrap());
    let error = Client::new(config, Options::default()).unwrap_err().to_string();
    assert!(error.contains("proxy") && !error.contains("hunter2"), "{error}");
}
