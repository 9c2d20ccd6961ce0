use std::collections::VecDeque;

use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::events::{Recorder, Regarding, Type, WRITERS_OF_ONE};
use crate::identity::Identity;
use crate::object::ObjectKey;

/// An API server that gives these answers, then successes.
#[derive(Default)]
struct Fake {
    answers: Mutex<VecDeque<Result<(), Error>>>,
    wrote: Mutex<Vec<String>>,
    /// Never answers.
    hangs: bool,
    /// Never answers about this namespace.
    hanging: &'static str,
}

impl Fake {
    fn answering(answers: impl IntoIterator<Item = Error>) -> Arc<Fake> {
        let answers = answers.into_iter().map(Err).collect();
        Arc::new(Fake { answers: Mutex::new(answers), ..Fake::default() })
    }

    async fn answer(&self, what: String, job: &Job) -> Result<(), Error> {
        self.wrote.lock().push(what);
        if self.hangs || **job.said.regarding.key.namespace() == *self.hanging {
            std::future::pending::<()>().await;
        }
        self.answers.lock().pop_front().unwrap_or(Ok(()))
    }
}

impl Api for Arc<Fake> {
    async fn create(&self, job: &Job, _: &Shared) -> Result<(), Error> {
        self.answer(job.name.clone(), job).await
    }
}

fn api_error(code: u16, reason: &str, message: &str) -> Error {
    Error::api(code, reason, message)
}

fn about(name: &str) -> Regarding {
    let uid = "01234567-89ab-cdef-0123-456789abcdef".parse().unwrap();
    let key = ObjectKey::new("ns", name);
    Regarding { api_version: "apps/v1".into(), kind: "Deployment".into(), key, uid }
}

fn publish(recorder: &Recorder, name: &str) {
    recorder.publish(&about(name), Type::Normal, "Created", "Create", "Created it");
}

/// Publishes one Event, runs the sink to its end, and returns what was lost.
async fn deliver(fake: &Arc<Fake>) -> Vec<Dropped> {
    let (recorder, sink) = crate::events::new("memcached", "pod-1");
    publish(&recorder, "web");
    sink.run_with(fake, std::future::ready(())).await;
    std::mem::take(&mut recorder.shared.lost.lock())
}

#[tokio::test(start_paused = true)]
async fn events_published_while_the_sink_waits_are_written() {
    let fake = Fake::answering([]);
    let (recorder, sink) = crate::events::new("memcached", "pod-1");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = {
        let fake = fake.clone();
        tokio::spawn(async move { sink.run_with(&fake, async { drop(stopped.await) }).await })
    };
    tokio::task::yield_now().await;
    publish(&recorder, "web");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(fake.wrote.lock().len(), 1);
    publish(&recorder, "web");
    drop(stop);
    running.await.unwrap();
    let wrote = fake.wrote.lock();
    assert!(wrote.len() == 2 && wrote[0] != wrote[1], "{wrote:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_response_creates_no_second_event() {
    let fake = Fake::answering([
        Error::Deadline(Duration::from_secs(1)),
        api_error(409, "AlreadyExists", "exists"),
    ]);
    assert_eq!(deliver(&fake).await, []);
    let wrote = fake.wrote.lock();
    assert_eq!(wrote.len(), 2);
    assert_eq!(wrote[0], wrote[1], "the same name both times");
}

#[tokio::test(start_paused = true)]
async fn a_hanging_namespace_does_not_delay_others() {
    let fake = Arc::new(Fake { hanging: "stuck", ..Fake::default() });
    let (recorder, sink) = crate::events::new("memcached", "pod-1");
    let publish_in = |namespace: &str, name: String| {
        let regarding = Regarding { key: ObjectKey::new(namespace, &*name), ..about("web") };
        recorder.publish(&regarding, Type::Normal, "Created", "Create", "Created it");
    };
    for i in 0..20 {
        publish_in("stuck", format!("web-{i}"));
    }
    publish_in("other", "web".to_owned());
    sink.run_with(&fake, sleep(Duration::from_secs(1))).await;
    assert_eq!(fake.wrote.lock().len(), WRITERS_OF_ONE + 1);
}

#[tokio::test(start_paused = true)]
async fn a_failing_write_is_tried_three_times_and_counted_as_lost() {
    let trouble = || api_error(500, "InternalError", "etcd");
    let fake = Fake::answering([trouble(), trouble(), trouble()]);
    // Three tries take three seconds of pauses; the flush must not cut them short here.
    let (recorder, sink) = crate::events::new("memcached", "pod-1");
    publish(&recorder, "web");
    sink.run_with(&fake, sleep(Duration::from_secs(60))).await;
    assert_eq!(*recorder.shared.lost.lock(), [Dropped::Failed]);
    assert_eq!(fake.wrote.lock().len(), TRIES as usize);
}

#[tokio::test(start_paused = true)]
async fn each_refusal_is_tried_once_and_named() {
    let ending = "unable to create new content in namespace ns because it is being terminated";
    for (error, why) in [
        (api_error(403, "Forbidden", "cannot create events"), Dropped::Forbidden),
        (api_error(403, "Forbidden", ending), Dropped::NamespaceGone),
        (api_error(404, "NotFound", "namespaces \"ns\" not found"), Dropped::NamespaceGone),
        (api_error(422, "Invalid", "no"), Dropped::Failed),
        (Error::NotPermitted("not leading".into()), Dropped::NotLeading),
    ] {
        let fake = Fake::answering([error]);
        assert_eq!(deliver(&fake).await, [why]);
        assert_eq!(fake.wrote.lock().len(), 1, "{why:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unresponsive_server_delays_shutdown_by_the_flush_at_most() {
    let fake = Arc::new(Fake { hangs: true, ..Fake::default() });
    let (recorder, sink) = crate::events::new("memcached", "pod-1");
    for i in 0..10 {
        publish(&recorder, &format!("web-{i}"));
    }
    let begin = Instant::now();
    sink.run_with(&fake, std::future::ready(())).await;
    assert_eq!(begin.elapsed(), FLUSH);
    assert_eq!(*recorder.shared.lost.lock(), [Dropped::Shutdown; 10]);
    publish(&recorder, "late");
    assert_eq!(
        recorder.shared.lost.lock().len(),
        11,
        "after the end everything is counted as lost"
    );
}

#[test]
fn the_body_is_what_events_k8s_io_v1_accepts() {
    let program = Identity::new("memcached", "example.com");
    let (recorder, sink) = crate::events::new(program, "pod-1");
    let cluster_scoped = Regarding {
        api_version: "v1".into(),
        kind: "Node".into(),
        key: ObjectKey::new("", "node-0"),
        uid: Uid::NONE,
    };
    publish(&recorder, "web");
    recorder.publish(&cluster_scoped, Type::Warning, "Gone", "Delete", "It\nis gone");
    let take = || sink.shared.correlator.lock().as_mut().unwrap().take().unwrap();
    let (job, node) = (take(), take());
    let body = serde_json::to_value(event_body(&job, &sink.shared.program, "pod-1")).unwrap();
    let time = body["eventTime"].as_str().unwrap();
    assert!(time.len() == 27 && time.ends_with('Z'), "{time}");
    let expected = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": job.name, "namespace": "ns"},
        "eventTime": time, "type": "Normal", "reason": "Created", "action": "Create",
        "note": "Created it",
        "reportingController": "example.com/memcached",
        "reportingInstance": "pod-1",
        "regarding": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "ns",
            "name": "web", "uid": "01234567-89ab-cdef-0123-456789abcdef"},
    });
    assert_eq!(body, expected);
    let body = serde_json::to_value(event_body(&node, &sink.shared.program, "pod-1")).unwrap();
    assert_eq!(body["metadata"]["namespace"], "default");
    assert_eq!(body["regarding"], json!({"apiVersion": "v1", "kind": "Node", "name": "node-0"}));
    assert_eq!(body["note"], "It is gone");
}
