//! Runs against a scripted API server, in paused time.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use Answer::{Busy, Cut, Down, Ended, Held, Page as Listed, Refused, RetryAfter, Silent};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::json;

use super::*;
use crate::client::Options;
use crate::object::fixtures::Thing;
use crate::object::{Kind, Meta};
use crate::store;

/// The response to one request.
#[derive(Clone, Copy)]
enum Answer {
    /// The connection is refused.
    Down,
    /// No response.
    Silent,
    /// An error with this code.
    Refused(u16),
    /// 429 and a wait in seconds.
    RetryAfter(u64),
    /// A page at this version, and the token of the next page.
    Page(&'static str, &'static str),
    /// Frames of a stream, which then stays open.
    Held(&'static str),
    /// Frames of a stream, which then ends.
    Ended(&'static str),
    /// An object each second, and no end.
    Busy,
    /// Frames of a stream, whose connection then breaks after a second.
    Cut(&'static str),
}

/// A request: its time since the last response, and what it asks for, such as `stream`, `pages >=10`, `watch 10`.
struct Asked {
    after: Duration,
    what: String,
}

/// A reflector of a scripted server.
struct Run {
    /// Number of scripted answers.
    answers: usize,
    asked: Arc<Mutex<Vec<Asked>>>,
    health: HealthHandle,
    relist: Relist,
    client: Client,
    task: tokio::task::JoinHandle<Result<(), ResourceVersionRegressed>>,
}

/// Frames, from words such as `+7` (an object at version 7), `-8` (its deletion), `.9` (a bookmark), `=10` (the end of a
/// list) and `!500` (an error).
fn frames(words: &str) -> String {
    let frame = |word: &str| {
        let (kind, version) = word.split_at(1);
        let name = format!("thing-{version}");
        let uid = format!("00000000-0000-4000-8000-{:0>12}", version.len());
        let end = json!({"k8s.io/initial-events-end": "true"});
        let object = match kind {
            "!" => return json!({"type": "ERROR", "object": status(version.parse().unwrap())}),
            "+" | "-" => {
                json!({"metadata": {"name": name, "uid": uid, "resourceVersion": version}})
            }
            "." => json!({"metadata": {"resourceVersion": version}}),
            _ => json!({"metadata": {"resourceVersion": version, "annotations": end}}),
        };
        let kind = match kind {
            "+" => "ADDED",
            "-" => "DELETED",
            _ => "BOOKMARK",
        };
        json!({"type": kind, "object": object})
    };
    words.split_whitespace().map(|word| format!("{}\n", frame(word))).collect()
}

/// An error. 1504 is that of a server whose newest version is older than the requested one.
fn status(code: u16) -> serde_json::Value {
    let message = if code == 1504 { "Too large resource version: 10, current: 9" } else { "why" };
    json!({"kind": "Status", "code": code % 1000, "message": message, "reason": "Other"})
}

fn what(uri: &http::Uri) -> String {
    let query = uri.query().unwrap_or_default();
    let value = |name: &str| {
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).unwrap_or("")
    };
    let bound = match value("resourceVersion") {
        "" => String::new(),
        version => format!(" >={version}"),
    };
    match (value("sendInitialEvents"), value("continue"), value("limit")) {
        ("true", ..) => format!("stream{bound}"),
        _ if query.contains("watch=") => format!("watch {}", value("resourceVersion")),
        (_, "", "1") => "version".to_owned(),
        (_, "", "") => format!("whole{bound}"),
        (_, "", _) => format!("pages{bound}"),
        (_, token, _) => format!("page {token}"),
    }
}

type Body = StreamBody<stream::BoxStream<'static, io::Result<Frame<Bytes>>>>;

async fn respond(answer: Answer) -> io::Result<Response<Body>> {
    let broken = || io::Error::other("connection reset");
    let (code, text) = match answer {
        Down => return Err(broken()),
        Silent => std::future::pending().await,
        Refused(code) => (code % 1000, status(code).to_string()),
        RetryAfter(_) => (429, status(429).to_string()),
        Listed(version, token) => {
            let meta = json!({"resourceVersion": version, "continue": token});
            (200, json!({"kind": "ThingList", "metadata": meta, "items": []}).to_string())
        }
        Held(words) | Ended(words) | Cut(words) => (200, frames(words)),
        Busy => (200, frames("+1")),
    };
    let text = stream::iter([Ok(Frame::data(Bytes::from(text)))]);
    let body = match answer {
        Held(_) => text.chain(stream::pending()).boxed(),
        Busy => {
            let more = stream::unfold(2, |version| async move {
                tokio::time::sleep(SHORT).await;
                Some((Ok(Frame::data(Bytes::from(frames(&format!("+{version}"))))), version + 1))
            });
            text.chain(more).boxed()
        }
        Cut(_) => text
            .chain(stream::once(async move {
                tokio::time::sleep(SHORT).await;
                Err(broken())
            }))
            .boxed(),
        _ => text.boxed(),
    };
    let mut response = Response::builder().status(code);
    if let RetryAfter(seconds) = answer {
        response = response.header("Retry-After", seconds);
    }
    Ok(response.body(StreamBody::new(body)).unwrap())
}

impl Run {
    /// Begins a run. After the script, the server is silent.
    fn of(script: &[Answer]) -> Run {
        Run::of_view::<Thing>(script)
    }

    fn of_view<V: Resource>(script: &[Answer]) -> Run {
        let answers = Arc::new(Mutex::new(VecDeque::from(script.to_vec())));
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (log, last) = (asked.clone(), Arc::new(Mutex::new(Instant::now())));
        let service = tower::service_fn(move |request: Request<Bytes>| {
            // Probes during an outage.
            if request.uri().path() == "/readyz" {
                return respond(Down);
            }
            let after = std::mem::replace(&mut *last.lock(), Instant::now()).elapsed();
            log.lock().push(Asked { after, what: what(request.uri()) });
            respond(answers.lock().pop_front().unwrap_or(Silent))
        });
        let client = Client::from_service(service, Options::default());
        let (writer, _) = store::new::<V>(Vec::new());
        let reflector = Reflector::new(client.clone(), Scope::default(), writer);
        let (health, relist) = (reflector.health(), reflector.relist());
        let task = tokio::spawn(reflector.run(Shutdown::manual()));
        Run { answers: script.len(), asked, health, relist, client, task }
    }

    /// A run whose store is complete up to version 10, and whose watch was cut after a second.
    fn watching(script: &[Answer]) -> Run {
        Run::of(&[&[Cut("=10")], script].concat())
    }

    /// Waits for the request that follows the script. Returns all requests.
    async fn requests(&self) -> Vec<String> {
        let began = Instant::now();
        while self.asked.lock().len() <= self.answers {
            assert!(began.elapsed() < Duration::from_secs(7200), "no request follows the script");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.asked.lock().iter().map(|asked| asked.what.clone()).collect()
    }

    /// Returns the requests that follow those of [`Run::watching`], joined.
    async fn then(&self) -> String {
        self.requests().await[1..].join(", ")
    }

    /// Returns the time before the last request.
    async fn last_wait(&self) -> Duration {
        self.requests().await;
        self.asked.lock()[self.answers].after
    }
}

async fn then(script: &[Answer]) -> String {
    Run::watching(script).then().await
}

const FIRST: Duration = Duration::from_millis(800);

/// A kind that one test uses, with a field that its objects lack.
#[derive(Debug, serde::Deserialize)]
struct Counted {
    metadata: Meta,
    #[expect(dead_code, reason = "no object has it")]
    missing: u8,
}

crate::view!(Counted: Kind::namespaced("example.com", "v1", "Counted", "counted"));

#[tokio::test(start_paused = true)]
async fn lists_and_watches_are_counted() {
    let script = [Refused(500), Ended("+7 =10"), Cut(".11"), Ended("")];
    Run::of_view::<Counted>(&script).last_wait().await;
    let resource = || ["counted.example.com"];
    let all = [&LISTS, &LIST_FAILURES, &WATCHES, &SHORT_WATCHES, &UNDECODABLE];
    assert_eq!(all.map(|series| series.with(resource()).get()), [2, 1, 3, 1, 1]);
    let mut text = String::new();
    let mut registry = Registry::default();
    crate::instruments::register(&mut registry, "test");
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for counted in [
        "reflector_items_per_list_sum{name=\"counted.example.com\"} 1.0",
        "reflector_items_per_watch_count{name=\"counted.example.com\"} 3",
        "reflector_list_duration_seconds_count{name=\"counted.example.com\"} 1",
        "reflector_watch_duration_seconds_count{name=\"counted.example.com\"} 3",
    ] {
        assert!(text.contains(counted), "{counted}: {text}");
    }
}

// === Lists ===

#[tokio::test(start_paused = true)]
async fn the_first_list_streams_and_continues_as_a_watch() {
    let run = Run::of(&[Ended("+7 =10 +12 .15")]);
    assert_eq!(run.requests().await, ["stream", "watch 15"]);
    assert_eq!(run.last_wait().await, Duration::ZERO, "a normal end");
    assert!(run.health.get().version == ResourceVersion::new(15) && run.health.has_synced());
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_paged_for_an_hour() {
    let script = [Refused(422), Listed("9", "t"), Listed("12", ""), Refused(410)];
    let asked = Run::of(&script).requests().await;
    assert_eq!(asked, ["stream", "pages", "page t", "watch 9", "pages >=9"]);
}

/// kube-apiserver answers every streaming list with an ERROR frame with code 500 if its etcd is too old for them, and
/// with one saying "too large resource version" while its watch cache lags.
#[tokio::test(start_paused = true)]
async fn streaming_lists_that_always_fail_fall_back_to_pages() {
    for answer in
        [Silent, Cut("+7"), Ended("+7"), Ended("!500"), Ended("!1504"), Refused(500), Refused(1504)]
    {
        let asked = Run::of(&[answer, answer, answer]).requests().await;
        assert_eq!(asked, ["stream", "stream", "stream", "pages"]);
    }
}

#[tokio::test(start_paused = true)]
async fn events_do_not_keep_a_streaming_list_alive() {
    assert_eq!(Run::of(&[Busy]).requests().await, ["stream", "pages"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_not_accepted_keeps_streaming_enabled() {
    for answer in [Down, Refused(403), Refused(404), Refused(410), Refused(503)] {
        let asked = Run::of(&[answer; 8]).requests().await;
        assert!(asked.iter().all(|what| what == "stream"), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fallback_to_pages_honours_retry_after() {
    let run = Run::of(&[RetryAfter(60)]);
    assert!(run.last_wait().await >= Duration::from_secs(60));
    let run = Run::of(&[Ended("!500"), Ended("!500"), Ended("!500"), RetryAfter(60)]);
    assert_eq!(run.requests().await[3..], ["pages", "pages"]);
    assert!(run.last_wait().await >= Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn an_expired_token_restarts_the_list_in_one_page() {
    let run = Run::of(&[Refused(422), Listed("9", "t"), Refused(410), Refused(410)]);
    assert_eq!(run.requests().await, ["stream", "pages", "page t", "whole", "pages"]);
    assert!(run.last_wait().await >= FIRST, "no loop without a wait");
}

#[tokio::test(start_paused = true)]
async fn a_list_without_a_version_is_refused() {
    for version in ["", "0"] {
        let run = Run::of(&[Refused(422), Listed(version, "")]);
        assert_eq!(run.requests().await[2], "pages");
        assert!(!run.health.has_synced());
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_older_than_the_store_is_refused_and_the_newest_requested() {
    let run = Run::watching(&[Refused(410), Held("=9"), Held("=11 .12")]);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(run.health.get().version, ResourceVersion::new(12));
    assert_eq!(run.then().await, "watch 10, stream >=10, stream, version");
    assert_eq!(then(&[Refused(410), Ended("=10")]).await, "watch 10, stream >=10, watch 10");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_lags_behind_is_listed_again() {
    let lagging = [Held(".9"), Held("=11")];
    assert_eq!(then(&lagging).await, "watch 10, stream, version");
}

#[tokio::test(start_paused = true)]
async fn only_three_lists_without_a_bound_prove_a_regression() {
    let run = Run::watching(&[Refused(410), Held("=9"), Held("=9"), Held("=9")]);
    assert_eq!(run.then().await, "watch 10, stream >=10, stream, stream, stream");
    let run = Run::watching(&[Held(".9"), Held("=9"), Held("=9"), Held("=9")]);
    let end = ResourceVersionRegressed { held: "10".to_owned(), at: "9".to_owned() };
    assert_eq!(run.task.await.unwrap(), Err(end));
    assert_eq!(run.health.get().version, ResourceVersion::new(10), "the view does not go back");
}

#[tokio::test(start_paused = true)]
async fn five_lagging_responses_drop_the_bound() {
    let script = [[Refused(410)].as_slice(), &[Refused(1504); 6]].concat();
    let asked = then(&script).await;
    let streams = "stream >=10, stream >=10, stream >=10, pages >=10, pages >=10, pages >=10";
    assert_eq!(asked, format!("watch 10, {streams}, pages"));
}

// === Watches ===

#[tokio::test(start_paused = true)]
async fn a_cut_watch_resumes_at_once_and_a_refused_one_after_a_wait() {
    let run = Run::watching(&[Down]);
    assert_eq!(run.then().await, "watch 10, watch 10");
    assert_eq!(run.asked.lock()[1].after, SHORT, "that is when it was cut");
    assert!(run.last_wait().await >= FIRST);
    assert_eq!(run.health.get().state, State::Stale);
}

#[tokio::test(start_paused = true)]
async fn the_version_never_moves_back() {
    let run = Run::watching(&[Ended("+12 -11 .12")]);
    assert_eq!(run.then().await, "watch 10, watch 12");
}

#[tokio::test(start_paused = true)]
async fn a_late_visible_object_causes_a_list_after_a_growing_wait() {
    let run = Run::watching(&[Held("+7"), Ended("=10 +8"), Ended("=10 +8"), Ended("=10 +8")]);
    assert_eq!(run.then().await, "watch 10, stream >=10, stream >=10, stream >=10, stream >=10");
    let asked = run.asked.lock();
    assert!(asked[5].after > 3 * asked[2].after && asked[2].after >= FIRST);
}

#[tokio::test(start_paused = true)]
async fn watches_that_deliver_nothing_lead_to_lists() {
    for answer in [Ended(""), Silent, Ended("!500"), Refused(500)] {
        let script = [[answer; 5].as_slice(), &[Held("=10"), Refused(410)]].concat();
        let run = Run::watching(&script[..6]);
        let watches = "watch 10, watch 10, watch 10, watch 10, watch 10";
        assert_eq!(run.then().await, format!("{watches}, stream >=10, version"));
        let run = Run::watching(&[&script[..5], &[Ended("=10"), answer, Down]].concat());
        let asked = run.then().await;
        assert!(asked.ends_with("stream >=10, watch 10, stream >=10, stream >=10"), "{asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_is_a_failure_only_if_a_list_did_not_help() {
    let run = Run::watching(&[Refused(410), Cut("=10"), Refused(410)]);
    assert_eq!(run.then().await, "watch 10, stream >=10, watch 10, stream >=10");
    assert_eq!(run.asked.lock()[2].after, Duration::ZERO);
    assert!(run.last_wait().await >= FIRST);
}

#[tokio::test(start_paused = true)]
async fn only_news_start_the_waits_over() {
    for (last, starts_over) in [(".10", false), ("+10", false), (".11", true), ("+11", true)] {
        // The broken connections are not failures: these watches lived for a second.
        let mut script = vec![Down; 6];
        script.extend([Cut(last), Down]);
        let wait = Run::watching(&script).last_wait().await;
        assert_eq!(wait < 2 * FIRST, starts_over, "{last}: {wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn forbidden_and_not_served_keep_the_view_until_a_list_succeeds() {
    for (code, state) in [(403, State::Forbidden), (404, State::NotServed)] {
        let run = Run::watching(&[Refused(code), Down]);
        assert_eq!(run.then().await, "watch 10, stream >=10, stream >=10");
        assert_eq!(run.health.get().state, state, "what requires manual action stays visible");
        assert!(run.health.has_synced());
    }
}

// === Silence ===

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_reopened_without_a_list() {
    let quiet = [Held(""), Listed("17", ""), Held(""), Listed("10", "")];
    let run = Run::watching(&quiet);
    assert_eq!(run.then().await, "watch 10, version, watch 10, version, watch 10");
    assert_eq!(run.asked.lock()[2].after, IDLE - SHORT, "counted from the last sign");
    let behind = [Held(""), Listed("9", "")];
    assert_eq!(then(&behind).await, "watch 10, version, stream");
    for (code, next) in [(500, "watch 10"), (404, "stream >=10")] {
        let asked = then(&[Held(""), Refused(code)]).await;
        assert_eq!(asked, format!("watch 10, version, {next}"));
    }
    let ended = [Cut(""), Held("")];
    let run = Run::watching(&ended);
    assert_eq!(run.then().await, "watch 10, watch 10, version");
    assert_eq!(run.last_wait().await, IDLE - 2 * SHORT, "silence adds up over watches that end");
}

#[tokio::test(start_paused = true)]
async fn a_watch_after_an_outage_has_time_for_missed_events() {
    let script = [[Down; 20].as_slice(), &[Held("")]].concat();
    assert_eq!(Run::watching(&script).last_wait().await, GRACE);
}

#[tokio::test(start_paused = true)]
async fn opaque_versions_reopen_a_silent_watch_without_a_request() {
    let run = Run::of(&[Refused(422), Listed("abc", ""), Held("")]);
    assert_eq!(run.requests().await, ["stream", "pages", "watch abc", "watch abc"]);
    assert_eq!(run.last_wait().await, IDLE);
}

// === Outages and refreshes ===

#[tokio::test(start_paused = true)]
async fn a_returning_server_ends_the_wait_unless_it_requested_it() {
    for (answer, is_short) in [(Down, true), (RetryAfter(120), false)] {
        let run = Run::watching(&[[Down; 8].as_slice(), &[answer]].concat());
        while run.asked.lock().len() < 10 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        run.client.api_server_health().failed();
        tokio::time::sleep(Duration::from_secs(6)).await;
        run.client.api_server_health().responded(200);
        let wait = run.last_wait().await;
        assert_eq!(wait < Duration::from_secs(8), is_short, "{wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_response_after_an_outage_starts_the_waits_over() {
    let script = [[Down; 8].as_slice(), &[Refused(503)]].concat();
    assert!(Run::watching(&script).last_wait().await < 2 * FIRST);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_requests_the_newest_state_until_a_list_succeeds() {
    let run = Run::watching(&[Held("+11"), Down, Held("+12"), Held("=13")]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    run.relist.request(1);
    let done = tokio::spawn(run.relist.done(1));
    // The watch works meanwhile.
    assert_eq!(run.then().await, "watch 10, stream, watch 11, stream, version");
    done.await.unwrap();
    assert_eq!(run.health.get().version, ResourceVersion::new(13));
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_breaks_off_falls_back_to_pages_although_the_watch_works() {
    let script = [Held(""), Ended("+1"), Held("+11"), Ended("+1"), Held("+12"), Ended("+1")];
    let run = Run::watching(&script);
    tokio::time::sleep(Duration::from_secs(10)).await;
    run.relist.request(1);
    let asked = "watch 10, stream, watch 10, stream, watch 11, stream, pages";
    assert_eq!(run.then().await, asked);
}

#[tokio::test(start_paused = true)]
async fn a_due_list_does_not_wait_for_an_accepted_watch() {
    let run = Run::watching(&[Held(""), Refused(503), Refused(503), Held("=13")]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    run.relist.request(1);
    assert_eq!(run.then().await, "watch 10, stream, watch 10, stream, version");
}

#[tokio::test(start_paused = true)]
async fn a_refresh_detects_a_regressed_history() {
    let run = Run::watching(&[Held(""), Held("=9"), Held("=9"), Held("=9")]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    run.relist.request(1);
    assert!(run.task.await.unwrap().is_err());
    let asked: Vec<String> = run.asked.lock().iter().map(|asked| asked.what.clone()).collect();
    assert_eq!(asked[2..], ["stream", "stream", "stream"], "no watch in between");
}

#[tokio::test(start_paused = true)]
async fn a_refresh_honours_retry_after() {
    let run = Run::watching(&[RetryAfter(60)]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    run.relist.request(1);
    assert_eq!(run.then().await, "watch 10, stream");
    assert!(run.last_wait().await >= Duration::from_secs(60));
}
