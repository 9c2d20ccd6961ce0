//! The manager against an API server in memory.

mod filters;
mod labelled;
mod program;
mod server;
mod typed;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::server::Server;
use super::*;
use crate::controller::{Action, ErrorClass, ReconcileError};
use crate::object::{Kind, Meta, MetadataFilter, NoMetadata, ObjectKey, Typed};
use crate::store::{Delta, Index};
use tokio::time::sleep;

#[derive(Debug, Serialize, Deserialize)]
struct Site {
    metadata: Meta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

#[derive(Debug, Serialize, Deserialize)]
struct Child {
    metadata: Meta,
    #[serde(default)]
    spec: ChildSpec,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct ChildSpec {
    size: Option<i32>,
    limit: Option<i32>,
    zone: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Secret {
    metadata: Meta,
}

#[derive(Debug, Serialize, Deserialize)]
struct Node {
    metadata: Meta,
}

crate::view!(Site: Kind::namespaced("example.com", "v1", "Site", "sites"));
crate::view!(Child: Kind::namespaced("example.com", "v1", "Child", "children"));
crate::view!(Secret: Kind::namespaced("", "v1", "Secret", "secrets"));
crate::view!(Node: Kind::cluster_scoped("", "v1", "Node", "nodes"));

async fn nothing(_: Arc<Site>, _: Context<Site>) -> Result<Action, ReconcileError> {
    Ok(Action::Done)
}

/// Returns the reason for which `manager` is refused.
async fn refused(manager: Manager) -> String {
    let connect = |options| Server::default().client(options);
    manager.program(connect).await.expect_err("it is refused").to_string()
}

// === Wiring ===

#[tokio::test]
async fn each_wiring_fault_is_refused_before_the_start_with_its_fix() {
    let empty = || Manager::new("test");
    let sites = || empty().controller::<Site>();
    let index = || Index::new("size", |site: &Site, each| each(site.metadata.key.name().clone()));
    let faults: [(Manager, &[&str]); 8] = [
        (empty(), &["add `manager.controller::<KIND>().reconcile(FUNCTION)`"]),
        (sites().named("My Sites").reconcile(nothing), &["cannot be named \"My Sites\""]),
        (
            sites().reconcile(nothing).informer::<Site>(move |it| it.index(index()).index(index())),
            &["sites.example.com has two indexes named \"size\""],
        ),
        // Its type decodes complete objects.
        (
            sites()
                .reads::<Typed<ConfigMap>>()
                .reconcile(nothing)
                .informer::<Typed<ConfigMap>>(|it| it.metadata_only()),
            &["configmaps requests metadata only", "declare a view"],
        ),
        (
            sites().reconcile(nothing).informer::<Secret>(|all| all.labels("a=b")),
            &["Secret, which no controller declares"],
        ),
        (
            empty().leader_election(Lease::named("test")).controller::<Site>().reconcile(nothing),
            &["Lease::named(\"test\").namespace(\"…\")"],
        ),
        (
            sites().filter::<Node>(|_| true).reads::<Node>().reconcile(nothing),
            &["but no change of Node enqueues anything"],
        ),
        (
            sites().owns_labelled::<Child>("example.com/site").reconcile(nothing),
            &[
                "the controller site owns Child by the label \"example.com/site\", which its view does not keep",
                "which the garbage collector does not delete: add `.finalizer(\"example.com/site\"",
            ],
        ),
    ];
    for (manager, sentences) in faults {
        let why = refused(manager).await;
        assert!(sentences.iter().all(|sentence| why.contains(sentence)), "{sentences:?}: {why}");
    }
}

#[tokio::test]
async fn all_wiring_faults_are_reported_at_once_with_their_fixes() {
    let manager = Manager::new("test").controller::<Site>().owns::<Node>().reconcile(nothing);
    let manager = manager.controller::<Site>().finalizer("clean", |_, _| async { Ok(()) });
    let manager = manager.cleanup("example.com/second", |_, _| async { Ok(()) });
    let manager = manager.reconcile(nothing);
    // The API server refuses the name only for a built-in kind.
    let manager = manager
        .controller::<Secret>()
        .finalizer("clean", |_, _| async { Ok(()) })
        .reconcile(|_, _| async { Ok::<_, ReconcileError>(Action::Done) });
    let why = refused(manager).await;
    for fault in [
        "two controllers are named site: give one of them another name with `.named(\"…\")`",
        "use `.watches::<Node>(…)`",
        "`.finalizer(\"example.com/secret\", …)`",
        "finalizers \"clean\" and \"example.com/second\": declare one",
    ] {
        assert!(why.contains(fault), "{why}");
    }
}

/// Another view of the sites.
#[derive(Debug, Deserialize)]
struct SiteName {
    metadata: Meta,
}

crate::view!(SiteName: Kind::namespaced("example.com", "v1", "Site", "sites"));

#[tokio::test]
async fn two_views_of_an_owner_share_the_index_of_owned_objects() {
    async fn names(_: Arc<SiteName>, _: Context<SiteName>) -> Result<Action, ReconcileError> {
        Ok(Action::Done)
    }
    let manager = Manager::new("test").controller::<Site>().owns::<Child>().reconcile(nothing);
    let manager = manager.controller::<SiteName>().named("names").owns::<Child>().reconcile(names);
    let connect = |options| Server::default().client(options);
    assert!(manager.program(connect).await.is_ok());
}

#[tokio::test]
async fn two_views_of_a_kind_have_one_series_and_two_checks() {
    let build = crate::metrics::Build { version: "1", revision: "a" };
    let metrics = crate::metrics::Metrics::new(&"test".into(), &build);
    let ready = crate::metrics::HealthChecks::default();
    let manager = Manager::new("test").metrics(metrics.clone()).readiness(ready.clone());
    let manager = manager.controller::<Site>().reads::<SiteName>().reconcile(nothing);
    let connect = |options| Server::default().client(options);
    let _program = manager.program(connect).await.expect("it is wired well");
    let text = metrics.encode();
    let series = text.matches("informer_live{resource=\"sites.example.com\"}").count();
    assert_eq!(series, 1, "{text}");
    for check in ["informer-sites.example.com", "informer-sites.example.com-2"] {
        assert!(ready.one(check).is_some(), "{check}");
    }
}

// === Passes ===

#[tokio::test(start_paused = true)]
async fn reading_an_undeclared_view_fails_and_names_the_missing_line() {
    let server = Server::default();
    server.put("/apis/example.com/v1/namespaces/ns/sites/a", json!({}));
    let (sender, mut problems) = tokio::sync::mpsc::unbounded_channel();
    let manager = Manager::new("test").controller::<Site>().reconcile(move |_, cx| {
        let sender = sender.clone();
        async move {
            let problem = cx.get::<Secret>(cx.key()).unwrap_err();
            sender.send((problem.class(), problem.to_string())).unwrap();
            let problem = cx.prune::<Child>(|_| true).await.unwrap_err();
            sender.send((problem.class(), problem.to_string())).unwrap();
            Ok::<_, ReconcileError>(Action::Done)
        }
    });
    server
        .run(manager, async move {
            let (class, text) = problems.recv().await.unwrap();
            assert!(text.contains("add `.reads::<Secret>()`"), "{text}");
            assert_eq!(class, ErrorClass::Terminal);
            let (_, text) = problems.recv().await.unwrap();
            assert!(text.contains("add `.owns::<Child>()`"), "{text}");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn metrics_count_reconciles_and_read_the_queue() {
    let server = Server::default();
    server.put("/apis/example.com/v1/namespaces/ns/sites/a", json!({}));
    let (sender, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let reconcile = move |_, _| {
        sender.send(()).unwrap();
        async { Ok::<_, ReconcileError>(Action::Done) }
    };
    let build = crate::metrics::Build { version: "1", revision: "a" };
    let metrics = crate::metrics::Metrics::new(&"test".into(), &build);
    // All managers of the process count in the same metrics.
    let manager = Manager::new("test").controller::<Site>().named("counted").reconcile(reconcile);
    let manager = manager.metrics(metrics.clone());
    server.run(manager, async move { begun.recv().await.unwrap() }).await;
    let text = metrics.encode();
    for counted in [
        "controller_runtime_reconcile_total{controller=\"counted\",result=\"success\"} 1",
        "controller_runtime_active_workers{controller=\"counted\"} 0",
        "workqueue_queue_duration_seconds_count{name=\"counted\",controller=\"counted\"} 1",
        "workqueue_adds_total{name=\"counted\",controller=\"counted\"} 1",
    ] {
        assert!(text.contains(counted), "{counted}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_controllers_share_one_informer_and_referring_objects_are_enqueued() {
    let server = Server::default();
    for (name, refers) in [("a", "s"), ("b", "other"), ("c", "s")] {
        let path = format!("/apis/example.com/v1/namespaces/ns/sites/{name}");
        server.put(&path, json!({"spec": {"secret": refers}}));
    }
    let (sender, mut passes) = tokio::sync::mpsc::unbounded_channel();
    let other = sender.clone();
    let manager = Manager::new("test")
        .controller::<Site>()
        .references::<Secret>(|site| {
            site.spec["secret"]
                .as_str()
                .map(|name| site.metadata.key.sibling(name))
                .into_iter()
                .collect()
        })
        .reconcile(move |_, cx| {
            sender.send(cx.key().name().to_string()).unwrap();
            async { Ok::<_, ReconcileError>(Action::Done) }
        });
    let manager = manager.controller::<Site>().named("second").reconcile(move |_, _| {
        drop(other.send("second".to_owned()));
        async { Ok::<_, ReconcileError>(Action::Done) }
    });
    let seen = server.clone();
    server
        .run(manager, async move {
            let mut first = Vec::new();
            for _ in 0..6 {
                first.push(passes.recv().await.unwrap());
            }
            first.sort();
            assert_eq!(first, ["a", "b", "c", "second", "second", "second"]);
            seen.put("/api/v1/namespaces/ns/secrets/s", json!({}));
            let mut woken = [passes.recv().await.unwrap(), passes.recv().await.unwrap()];
            woken.sort();
            assert_eq!(woken, ["a", "c"]);
        })
        .await;
    let lists = server.requests();
    let lists = lists.iter().filter(|it| it.uri.contains("/sites?"));
    let lists = lists.filter(|it| it.uri.contains("sendInitialEvents=true")).count();
    assert_eq!(lists, 1);
}

#[tokio::test(start_paused = true)]
async fn another_controllers_status_does_not_enqueue_a_filtering_controller() {
    let server = Server::default();
    let site = json!({"metadata": {"generation": 1}});
    server.put(SITE, site.clone());
    let (sender, mut passes) = tokio::sync::mpsc::unbounded_channel();
    let manager = Manager::new("test")
        .controller::<Site>()
        .filter::<Site>(informer::predicate::generation_changed)
        .reconcile(move |site, _| {
            sender.send((site.metadata.generation, site.status.clone())).unwrap();
            async { Ok::<_, ReconcileError>(Action::Done) }
        });
    let seen = server.clone();
    server
        .run(manager, async move {
            assert_eq!(passes.recv().await, Some((1, Value::Null)));
            let mut other = seen.get(SITE);
            other["status"] = json!({"pods": 1});
            seen.put(SITE, other.clone());
            sleep(Duration::from_secs(1)).await;
            other["metadata"]["generation"] = json!(2);
            other["status"] = json!({"pods": 2});
            seen.put(SITE, other);
            assert_eq!(
                passes.recv().await,
                Some((2, json!({"pods": 2}))),
                "no reconcile over the first"
            );
        })
        .await;
}

#[test]
fn the_program_can_add_its_own_metrics() {
    let build = crate::metrics::Build { version: "1", revision: "a" };
    let announced = prometheus_client::metrics::counter::Counter::<u64>::default();
    announced.inc();
    let metrics = crate::metrics::Metrics::with(&"test".into(), &build, |registry| {
        registry.register("websites_announced", "Websites announced", announced.clone());
    });
    let text = metrics.encode();
    assert!(text.contains("websites_announced_total 1"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_exists_from_the_first_reconcile_until_a_cleanup_succeeds() {
    let server = Server::default();
    let path = "/apis/example.com/v1/namespaces/ns/sites/a";
    server.put(path, json!({"metadata": {"finalizers": ["other.org/x"]}}));
    let (sender, mut steps) = tokio::sync::mpsc::unbounded_channel();
    let (cleaned, failures, at) = (sender.clone(), Arc::new(Mutex::new(2)), server.clone());
    let manager =
        Manager::new("test")
            .controller::<Site>()
            .finalizer("example.com/site", move |_, _| {
                let mut left = failures.lock();
                *left -= 1;
                let fails = *left >= 0;
                let has = &at.get(path)["metadata"]["finalizers"];
                cleaned.send(format!("{} {has}", if fails { "fails" } else { "cleans" })).unwrap();
                async move {
                    if fails { Err(ReconcileError::transient("ErrAway", "away")) } else { Ok(()) }
                }
            })
            .reconcile(move |site, _| {
                sender.send(format!("{:?}", site.metadata.finalizers)).unwrap();
                async { Ok::<_, ReconcileError>(Action::Done) }
            });
    let seen = server.clone();
    server
        .run(manager, async move {
            let reconciled = r#"["other.org/x", "example.com/site"]"#;
            assert_eq!(steps.recv().await.unwrap(), reconciled);
            // The write of the finalizer is followed by another.
            assert_eq!(steps.recv().await.unwrap(), reconciled);
            let mut site = seen.get(path);
            site["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            seen.put(path, site);
            for step in ["fails", "fails", "cleans"] {
                let kept = r#"["other.org/x","example.com/site"]"#;
                assert_eq!(steps.recv().await.unwrap(), format!("{step} {kept}"));
            }
            while seen.get(path)["metadata"]["finalizers"] != json!(["other.org/x"]) {
                sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_adds_its_finalizer_and_writes_the_status_after_it() {
    let server = Server::default();
    server.put(SITE, json!({}));
    let (sender, mut steps) = tokio::sync::mpsc::unbounded_channel();
    let cleaned = sender.clone();
    let manager = Manager::new("test")
        .controller::<Site>()
        .cleanup("example.com/site", move |_, cx| {
            let cleaned = cleaned.clone();
            async move {
                cx.patch_status(json!({"pods": 0})).await?;
                cx.patch_status(json!({"pods": -1})).await?;
                cleaned.send("cleaned").unwrap();
                Ok(())
            }
        })
        .reconcile(move |site, cx| {
            let sender = sender.clone();
            async move {
                assert!(site.status["pods"] == 1 || site.metadata.finalizers.is_empty());
                cx.add_finalizer("example.com/site").await?;
                cx.patch_status(json!({"pods": 1})).await?;
                let _ = sender.send("reconciled");
                Ok::<_, ReconcileError>(Action::Done)
            }
        });
    let seen = server.clone();
    server
        .run(manager, async move {
            assert_eq!(steps.recv().await, Some("reconciled"));
            let mut site = seen.get(SITE);
            assert_eq!(site["metadata"]["finalizers"], json!(["example.com/site"]));
            site["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            seen.put(SITE, site);
            while steps.recv().await.unwrap() != "cleaned" {}
            while seen.find(SITE).is_some() {
                sleep(Duration::from_millis(1)).await;
            }
            let all = seen.requests();
            let status = all.iter().filter(|request| request.uri.contains("/status?"));
            let written: Vec<_> = status.map(|request| &request.body["status"]["pods"]).collect();
            assert_eq!(written[..3], [1, 0, -1]);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_warning_with_a_new_sentence_is_published() {
    let server = Server::default();
    let cx = context(&server);
    let news = |notes: &[&'static str]| {
        cx.controller.begins(cx.key());
        let is_news = |it: &&'static str| cx.controller.is_news(&cx.object, "Taken", Some(it));
        let news: Vec<_> = notes.iter().copied().filter(is_news).collect();
        cx.controller.succeeded(cx.key());
        news
    };
    cx.note("Taken");
    assert!(news(&["in ns-a"]).is_empty(), "the status said so");
    assert_eq!(news(&["in ns-a", "in ns-b"]), ["in ns-b"]);
    assert!(news(&["in ns-a", "in ns-b"]).is_empty());
    assert!(news(&["in ns-b"]).is_empty());
    assert_eq!(news(&["in ns-a"]), ["in ns-a"], "it was over");
    let numbers: [&'static str; 9] = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let told = numbers.iter().filter(|number| !news(&[number]).is_empty()).count();
    assert_eq!(told, 2, "five in half an hour");
    tokio::time::advance(Duration::from_secs(1800)).await;
    assert_eq!(news(&["10"]), ["10"]);
}

#[tokio::test(start_paused = true)]
async fn two_problems_of_one_reconcile_are_each_published_once() {
    let server = Server::default();
    let cx = context(&server);
    let pass = |reasons: &[&'static str], fails: bool| {
        cx.controller.begins(cx.key());
        let is_news = |it: &&'static str| cx.controller.is_news(&cx.object, it, None);
        let news: Vec<_> = reasons.iter().copied().filter(is_news).collect();
        if fails {
            cx.controller.failed(cx.key());
        } else {
            cx.controller.succeeded(cx.key());
        }
        news
    };
    assert_eq!(pass(&["A", "B"], true), ["A", "B"]);
    assert!(pass(&["A", "B"], true).is_empty());
    assert!(pass(&[], true).is_empty(), "an outage shows nothing");
    assert!(pass(&["A"], true).is_empty());
    assert_eq!(pass(&["A", "B"], false), ["B"], "it was over");
}

#[tokio::test(start_paused = true)]
async fn in_a_terminating_namespace_a_reconcile_succeeds_and_a_cleanup_fails() {
    let server = Server::default();
    server.put(SITE, json!({}));
    server.terminate("ns");
    let (sender, mut passes) = tokio::sync::mpsc::unbounded_channel();
    let cleaned = sender.clone();
    let manager = Manager::new("test")
        .controller::<Site>()
        .owns::<Child>()
        .cleanup("example.com/site", move |_, cx| {
            let cleaned = cleaned.clone();
            async move {
                let created = cx.ensure::<Child>(desired(&json!({"size": 1}))).await;
                cleaned.send("cleanup").unwrap();
                created.map(drop)
            }
        })
        .reconcile(move |_, cx| {
            let sender = sender.clone();
            async move {
                cx.add_finalizer("example.com/site").await?;
                let created = cx.ensure::<Child>(desired(&json!({"size": 1}))).await;
                sender.send("pass").unwrap();
                created.map(|_| Action::Done)
            }
        });
    let seen = server.clone();
    server
        .run(manager, async move {
            assert_eq!(passes.recv().await, Some("pass"));
            assert_eq!(passes.recv().await, Some("pass"), "for the finalizer");
            sleep(Duration::from_secs(60)).await;
            assert!(passes.try_recv().is_err(), "it is not retried");
            let mut site = seen.get(SITE);
            site["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            seen.put(SITE, site);
            for _ in 0..3 {
                assert_eq!(passes.recv().await, Some("cleanup"));
            }
        })
        .await;
    let told = |request: &crate::testing::Received| {
        request.uri.contains("/events") && request.body["reason"] == "ErrNamespaceTerminating"
    };
    assert!(server.requests().iter().any(told), "{:?}", server.requests());
}

#[tokio::test]
async fn a_finalizer_that_nothing_would_remove_is_not_added() {
    let server = Server::default();
    let cx = context(&server);
    let problem = cx.add_finalizer("example.com/sites").await.unwrap_err();
    assert_eq!((problem.class(), problem.reason()), (ErrorClass::Terminal, Some("ErrWiring")));
    assert!(problem.to_string().contains(".cleanup(\"example.com/sites\", …)"), "{problem}");
    assert!(server.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lasting_problem_is_published_once_and_again_after_a_success() {
    let server = Server::default();
    server.put(SITE, json!({}));
    let (sender, mut passes) = tokio::sync::mpsc::unbounded_channel();
    let outcomes = Mutex::new(["ErrA", "ErrA", "ErrB", "", "ErrA"].into_iter());
    let manager = Manager::new("test").controller::<Site>().reconcile(move |_, _| {
        let reason = outcomes.lock().next().unwrap_or_default();
        sender.send(reason).unwrap();
        async move {
            match reason {
                "" => Ok(Action::RequeueAfter(events::AGAIN)),
                reason => Err(ReconcileError::forbidden(reason, "it stays like that")),
            }
        }
    });
    server
        .run(manager, async move {
            for _ in 0..6 {
                passes.recv().await.unwrap();
            }
            sleep(Duration::from_secs(10)).await;
        })
        .await;
    let events = server.requests().into_iter().filter(|it| it.uri.contains("/events"));
    let told: Vec<String> = events.map(|event| event.method).collect();
    // The third is the first one once more.
    assert_eq!(told, ["POST", "POST", "POST"]);
}

// === Owned objects and status ===

/// Returns a context of the site `ns/a`, which owns objects.
fn context(server: &Server) -> Context<Site> {
    context_of(server, |controller| controller)
}

fn context_of(
    server: &Server,
    declare: impl FnOnce(ControllerBuilder<Site>) -> ControllerBuilder<Site>,
) -> Context<Site> {
    let (recorder, _) = events::new("test", "here");
    let site = server.find(SITE).unwrap_or_else(|| server.put(SITE, json!({})));
    let controller = Manager::new("test").controller::<Site>().owns::<Child>().publish_writes();
    let controller = declare(controller);
    let client = server.client(client::Options::new("test".into()));
    controller.context(client, recorder, serde_json::from_value(site).unwrap()).unwrap()
}

const SITE: &str = "/apis/example.com/v1/namespaces/ns/sites/a";
const CHILD: &str = "/apis/example.com/v1/namespaces/ns/children/x";

fn desired(spec: &Value) -> Value {
    json!({"metadata": {"name": "x"}, "spec": spec})
}

#[tokio::test]
async fn a_child_is_created_once_and_then_applied_only_when_something_differs() {
    let server = Server::default();
    let cx = context(&server);
    let ensure = async |spec: Value| cx.ensure::<Child>(desired(&spec)).await.map(drop);
    let (first, other) = (json!({"size": 1, "unseen": "x"}), json!({"size": 1}));
    ensure(first.clone()).await.unwrap();
    assert_eq!(server.writes(), [format!("PATCH {CHILD}")]);
    let body = server.requests().pop().unwrap().body;
    assert_eq!(body["metadata"]["resourceVersion"], "1", "it only creates");
    assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], json!(cx.object.metadata.uid));
    ensure(first).await.unwrap();
    assert_eq!(server.writes().len(), 1, "all is as desired");
    // A field that the view does not show is no longer set.
    ensure(other.clone()).await.unwrap();
    assert_eq!(server.writes().len(), 2);
    let body = server.requests().pop().unwrap().body;
    assert_eq!(body["metadata"]["uid"], server.get(CHILD)["metadata"]["uid"], "no namesake");
    // Another client changes a field that the view shows.
    let mut changed = server.get(CHILD);
    changed["spec"]["size"] = json!(9);
    let changed = server.put(CHILD, changed);
    cx.store::<Child>().unwrap().apply_read(serde_json::from_value(changed).unwrap());
    ensure(other.clone()).await.unwrap();
    ensure(other).await.unwrap();
    assert_eq!(server.writes().len(), 3);
    assert_eq!(server.get(CHILD)["spec"]["size"], 1);
}

#[tokio::test]
async fn changes_by_admission_are_accepted_after_one_attempt() {
    let server = Server::default();
    let cx = context(&server);
    server.admit(|object| object["spec"]["size"] = json!(5));
    for _ in 0..3 {
        cx.ensure::<Child>(desired(&json!({"size": 1}))).await.unwrap();
    }
    assert_eq!(server.writes().len(), 2, "an apply, and the record of what came of it");
    // Another process accepts it, too.
    let next = context(&server);
    shows(&next, &server);
    next.ensure::<Child>(desired(&json!({"size": 1}))).await.unwrap();
    assert_eq!(server.writes().len(), 2);
    next.ensure::<Child>(desired(&json!({"size": 2}))).await.unwrap();
    assert_eq!(server.writes().len(), 3, "something else is desired; the same came of it");
    server.admit(|_| {});
    next.ensure::<Child>(desired(&json!({"size": 3}))).await.unwrap();
    assert_eq!(
        server.get(CHILD)["metadata"]["annotations"]["controller-machinery/admitted"],
        json!(null)
    );
}

#[tokio::test]
async fn an_object_is_ensured_only_with_its_name_owner_and_record() {
    let server = Server::default();
    let cx = context(&server);
    let desired = desired(&json!({"size": 1}));
    cx.ensure::<Child>(desired.clone()).await.unwrap();
    let is_ensured = |place: &str, value: Value| {
        let mut child = server.get(CHILD);
        *child.pointer_mut(place).unwrap() = value;
        let child: Child = serde_json::from_value(child).unwrap();
        cx.is_ensured(desired.clone(), EnsureOptions::default(), &child).unwrap()
    };
    assert!(is_ensured("/spec/size", json!(1)));
    assert!(!is_ensured("/spec/size", json!(2)));
    assert!(!is_ensured("/metadata/name", json!("a-copy")));
    let owner = "/metadata/ownerReferences/0";
    assert!(!is_ensured(&format!("{owner}/uid"), json!("00000000-0000-4000-8000-0000000000ff")));
    assert!(!is_ensured(&format!("{owner}/blockOwnerDeletion"), json!(false)));
    let record = NoMetadata::APPLIED.replace('/', "~1");
    assert!(!is_ensured(&format!("/metadata/annotations/{record}"), json!("site/0")));
}

#[tokio::test]
async fn a_change_seen_before_the_response_does_not_count_as_admission() {
    let server = Server::default();
    let cx = context(&server);
    let desired = desired(&json!({"size": 1}));
    cx.ensure::<Child>(desired.clone()).await.unwrap();
    let answer = serde_json::from_value(server.get(CHILD)).unwrap();
    let mut changed = server.get(CHILD);
    changed["spec"]["size"] = json!(7);
    server.put(CHILD, changed);
    shows(&cx, &server);
    let (children, wanted) =
        (cx.children::<Child>().unwrap(), cx.desired::<Child>(desired.clone()));
    let wanted = wanted.unwrap();
    cx.applied(&children, &wanted, EnsureOptions::default(), (answer, false)).await.unwrap();
    assert_eq!(server.writes().len(), 1, "nothing is recorded");
    cx.ensure::<Child>(desired).await.unwrap();
    assert_eq!(server.get(CHILD)["spec"]["size"], 1);
}

/// Shows the owned object's current state to the store.
fn shows(cx: &Context<Site>, server: &Server) {
    cx.store::<Child>().unwrap().apply_read(serde_json::from_value(server.get(CHILD)).unwrap());
}

#[tokio::test]
async fn a_terminating_object_or_one_of_a_former_owner_is_awaited_silently() {
    let (server, size) = (Server::default(), desired(&json!({"size": 1})));
    let cx = context(&server);
    cx.ensure::<Child>(size.clone()).await.unwrap();
    let made = server.get(CHILD);
    let mut deleting = made.clone();
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut former = made;
    former["metadata"]["ownerReferences"][0]["uid"] = json!("00000000-0000-4000-8000-00000000000f");
    for child in [deleting, former] {
        server.put(CHILD, child);
        shows(&cx, &server);
        let writes = server.writes().len();
        let awaiting = cx.ensure::<Child>(size.clone()).await.unwrap_err();
        assert!(matches!(awaiting, ReconcileError::Terminating(_)), "{awaiting}");
        assert_eq!((awaiting.class(), awaiting.reason()), (ErrorClass::Waiting, None));
        assert_eq!(server.writes().len(), writes);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reverted_field_or_record_is_applied_few_times_a_minute_and_named() {
    // A second installation with other settings is found by its record.
    let record = format!("/metadata/annotations/{}", NoMetadata::APPLIED.replace('/', "~1"));
    let of_a_second = format!("metadata.annotations.{}", NoMetadata::APPLIED);
    for (place, value, name) in [
        ("/spec/size", json!(9), "spec.size"),
        (&*record, json!("foo/0123456789abcdef"), &*of_a_second),
    ] {
        let server = Server::default();
        let cx = context(&server);
        let ensure =
            async |size| cx.ensure::<Child>(desired(&json!({"size": size}))).await.map(drop);
        ensure(1).await.unwrap();
        let change = || {
            let mut changed = server.get(CHILD);
            *changed.pointer_mut(place).unwrap() = value.clone();
            server.put(CHILD, changed);
            shows(&cx, &server);
        };
        for _ in 0..5 {
            change();
            ensure(1).await.unwrap();
        }
        change();
        let contested = ensure(1).await.unwrap_err();
        let ReconcileError::Contested { field: Some(field), .. } = &contested else {
            panic!("{contested:?}")
        };
        assert_eq!(field, name);
        assert!(contested.to_string().contains("keeps reverting Child \"x\""), "{contested}");
        assert_eq!(contested.retry_in(), Some(Duration::from_secs(60)));
        assert_eq!(server.get(CHILD).pointer(place), Some(&value));
        ensure(2).await.unwrap();
        assert_eq!(server.get(CHILD)["spec"]["size"], 2, "something else is desired");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_deleted_each_time_is_created_few_times_a_minute() {
    let server = Server::default();
    let cx = context(&server);
    let ensure = async || cx.ensure::<Child>(desired(&json!({"size": 1}))).await;
    for _ in 0..6 {
        let child = ensure().await.unwrap();
        server.remove(CHILD);
        cx.controller.parts.lost_children.lock().insert(cx.key().clone());
        cx.store::<Child>().unwrap().apply_delete(&child.metadata.key, child.metadata.uid);
    }
    let contested = ensure().await.unwrap_err();
    assert!(matches!(contested, ReconcileError::Contested { field: None, .. }), "{contested:?}");
    assert!(server.find(CHILD).is_none());
    tokio::time::advance(Duration::from_secs(60)).await;
    ensure().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn objects_that_the_controller_itself_replaces_are_not_throttled() {
    let server = Server::default();
    let cx = context(&server);
    for number in 0..20 {
        let name = ["x", "y"][number % 2];
        // As the watch does that shows the end of the other child.
        cx.controller.parts.lost_children.lock().insert(cx.key().clone());
        cx.ensure::<Child>(json!({"metadata": {"name": name}})).await.unwrap();
        cx.prune::<Child>(|child| *child.metadata.key.name() == *name).await.unwrap();
    }
    for size in 0..20 {
        let child = cx.ensure::<Child>(desired(&json!({"size": size}))).await.unwrap();
        server.remove(CHILD);
        cx.controller.parts.lost_children.lock().insert(cx.key().clone());
        cx.store::<Child>().unwrap().apply_delete(&child.metadata.key, child.metadata.uid);
    }
}

#[tokio::test]
async fn objects_that_another_controller_applied_are_not_pruned() {
    let server = Server::default();
    let (first, second) = (context(&server), context_of(&server, |it| it.named("second")));
    first.ensure::<Child>(desired(&json!({"size": 1}))).await.unwrap();
    let seen = serde_json::from_value(server.get(CHILD)).unwrap();
    second.store::<Child>().unwrap().apply_read(seen);
    second.prune::<Child>(|_| false).await.unwrap();
    assert!(server.find(CHILD).is_some());
    // A record of an earlier version names no controller.
    let mut child = server.get(CHILD);
    let record = child["metadata"]["annotations"]["controller-machinery/applied"].clone();
    let (_, hash) = record.as_str().unwrap().split_once('/').unwrap();
    child["metadata"]["annotations"]["controller-machinery/applied"] = json!(hash);
    server.put(CHILD, child);
    shows(&first, &server);
    let writes = server.writes().len();
    first.ensure::<Child>(desired(&json!({"size": 1}))).await.unwrap();
    assert_eq!(server.writes().len(), writes, "it is as desired");
    first.prune::<Child>(|_| false).await.unwrap();
    assert!(server.find(CHILD).is_none());
}

/// The context of a Node, which is not in a namespace and owns children.
fn context_of_node(server: &Server) -> Context<Node> {
    let (recorder, _) = events::new("test", "here");
    let controller = Manager::new("test").controller::<Node>().owns::<Child>();
    let client = server.client(client::Options::new("test".into()));
    let node = json!({"metadata": {"name": "n", "resourceVersion": "1",
        "uid": "00000000-0000-4000-8000-00000000000e"}});
    controller.context(client, recorder, serde_json::from_value(node).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_throttle_distinguishes_objects_by_namespace() {
    let server = Server::default();
    let cx = context_of_node(&server);
    for number in 0..10 {
        let namespace = format!("ns-{number}");
        let child = json!({"metadata": {"name": "x", "namespace": namespace}});
        let children = "/apis/example.com/v1/namespaces";
        cx.ensure::<Child>(child.clone()).await.unwrap();
        // Another client deletes all of them.
        let key = ObjectKey::new(&*namespace, "x");
        let there = cx.get::<Child>(&key).unwrap().unwrap();
        server.remove(&format!("{children}/{namespace}/children/x"));
        cx.store::<Child>().unwrap().apply_delete(&key, there.metadata.uid);
        server.put("/api/v1/nodes/n", json!({"metadata": {"uid": cx.object.metadata.uid}}));
        cx.controller.parts.lost_children.lock().insert(cx.key().clone());
        cx.ensure::<Child>(child).await.unwrap();
    }
}

#[tokio::test]
async fn an_owned_object_needs_a_name_and_the_namespace_of_its_owner() {
    let server = Server::default();
    let (site, node) = (context(&server), context_of_node(&server));
    let unusable = async |metadata: Value| {
        let problem = site.ensure::<Child>(json!({"metadata": metadata})).await.unwrap_err();
        assert_eq!((problem.class(), problem.reason()), (ErrorClass::Terminal, Some("ErrUnnamed")));
        problem.to_string()
    };
    let why = unusable(json!({"name": "x", "namespace": "other"})).await;
    assert_eq!(
        why,
        "a Child to be ensured has the namespace \"other\", but owned objects of a Site must be in its own, \"ns\""
    );
    for name in [json!(""), json!("a/b"), json!(7), Value::Null] {
        unusable(json!({"name": name})).await;
    }
    let nowhere = node.ensure::<Child>(json!({"metadata": {"name": "x"}})).await.unwrap_err();
    assert!(nowhere.to_string().contains("name one in its metadata"), "{nowhere}");
    site.ensure::<Child>(json!({"metadata": {"name": "x", "namespace": "ns"}})).await.unwrap();
    assert_eq!(server.writes(), [format!("PATCH {CHILD}")]);
}

#[tokio::test]
async fn a_missing_namespace_is_reported_to_the_user() {
    let server = Server::default();
    let node = context_of_node(&server);
    server.has_no("ns");
    let child = json!({"metadata": {"name": "x", "namespace": "ns"}});
    let problem = node.ensure::<Child>(child).await.unwrap_err();
    assert_eq!(
        (problem.class(), problem.reason()),
        (ErrorClass::Forbidden, Some("ErrNoNamespace"))
    );
    assert_eq!(problem.to_string(), "the namespace of Child ns/x does not exist: create it");
}

#[tokio::test]
async fn a_missing_status_subresource_is_reported_to_the_user() {
    let server = Server::default();
    let cx = context(&server);
    server.has_no("status");
    let problem = cx.patch_status(json!({"pods": 0})).await.unwrap_err();
    assert_eq!(
        (problem.class(), problem.reason()),
        (ErrorClass::Forbidden, Some("ErrNoStatusSubresource"))
    );
    server.remove(SITE);
    let gone = cx.patch_status(json!({"pods": 0})).await.unwrap_err();
    assert_eq!((gone.class(), gone.reason()), (ErrorClass::Conflict, None));
}

#[tokio::test]
async fn an_object_in_place_of_a_status_is_refused() {
    let server = Server::default();
    let cx = context(&server);
    let problem = cx.patch_status(json!({"status": {"pods": 0}})).await.unwrap_err();
    assert!(problem.to_string().contains("leave out `status`"), "{problem}");
    assert!(server.writes().is_empty());
}

#[derive(Debug, serde::Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Login {
    metadata: Meta,
    #[serde(default)]
    string_data: Value,
}

crate::view!(Login: Kind::namespaced("", "v1", "Secret", "secrets"));

#[tokio::test]
async fn a_secret_with_string_data_is_refused() {
    let cx = context(&Server::default());
    let secret = |field: &str| json!({"metadata": {"name": "login"}, field: {"user": "aGk="}});
    let why = cx.desired::<Login>(secret("stringData")).err().unwrap().to_string();
    assert!(why.contains("use `data`"), "{why}");
    assert!(cx.desired::<Login>(secret("data")).is_ok());
}

/// Neither a limit nor a zone is wanted.
fn unwanted(child: &Child) -> Vec<Value> {
    let path = |field: &str| format!("/spec/{field}");
    let there = [("limit", child.spec.limit.is_some()), ("zone", child.spec.zone.is_some())];
    let going = there.into_iter().filter(|(_, there)| *there);
    going.map(|(field, _)| json!({"op": "remove", "path": path(field)})).collect()
}

#[tokio::test]
async fn conflicting_fields_of_other_managers_are_removed() {
    let server = Server::default();
    let cx = context(&server);
    let options = || EnsureOptions::default().unwanted(&unwanted);
    let ensure = async |size| {
        let desired = desired(&json!({"size": size}));
        cx.ensure_with::<Child>(desired, options()).await.map(drop)
    };
    ensure(1).await.unwrap();
    server.refuse(|child| {
        child["spec"]["size"].as_i64() > child["spec"]["limit"].as_i64()
            && child["spec"]["limit"].is_i64()
    });
    let mut limited = server.get(CHILD);
    limited["spec"]["limit"] = json!(2);
    server.put(CHILD, limited);
    shows(&cx, &server);
    ensure(3).await.unwrap();
    assert_eq!(server.get(CHILD)["spec"], json!({"size": 3}));
    // The desired state is invalid by itself.
    server.refuse(|child| child["spec"]["size"] == 4);
    let before = server.get(CHILD);
    for _ in 0..10 {
        assert_eq!(ensure(4).await.unwrap_err().class(), ErrorClass::Forbidden, "no fight");
    }
    assert_eq!(server.get(CHILD), before);
    // A zone is not refused, and goes all the same.
    let mut zoned = before;
    zoned["spec"]["zone"] = json!("a");
    server.put(CHILD, zoned);
    shows(&cx, &server);
    ensure(3).await.unwrap();
    assert_eq!(server.get(CHILD)["spec"], json!({"size": 3}));
}

/// Otherwise it would stay, because the patch owns it, too.
#[tokio::test]
async fn a_field_that_was_patched_is_removed_when_it_is_no_longer_desired() {
    fn all(_: &Child) -> Vec<Value> {
        let replaced = |field, value| json!({"op": "replace", "path": format!("/spec/{field}"), "value": value});
        vec![replaced("limit", json!(5)), replaced("zone", json!("b"))]
    }
    let server = Server::default();
    let cx = context(&server);
    let ensure = async |spec: Value, unwanted| {
        let options = EnsureOptions::default().unwanted(unwanted);
        cx.ensure_with::<Child>(desired(&spec), options).await.map(drop)
    };
    server.refuse(|child| child["spec"]["limit"] == 2 && child["spec"]["size"] == 3);
    ensure(json!({"size": 1, "zone": "a"}), &|_| Vec::new()).await.unwrap();
    let mut limited = server.get(CHILD);
    limited["spec"]["limit"] = json!(2);
    server.put(CHILD, limited);
    shows(&cx, &server);
    ensure(json!({"size": 3, "zone": "b"}), &all).await.unwrap();
    assert_eq!(server.get(CHILD)["spec"], json!({"size": 3, "zone": "b", "limit": 5}));
    ensure(json!({"size": 3}), &|_| Vec::new()).await.unwrap();
    assert_eq!(server.get(CHILD)["spec"], json!({"size": 3, "limit": 5}));
}

#[tokio::test(start_paused = true)]
async fn an_overwritten_status_is_written_few_times_a_minute() {
    let server = Server::default();
    let first = context(&server);
    let overwrite = || {
        let mut site = server.get(SITE);
        site["status"] = json!({"pods": 9});
        let site = serde_json::from_value(server.put(SITE, site)).unwrap();
        Context::new(first.controller.clone(), first.controller.objects.apply_read(site))
    };
    first.patch_status(json!({"pods": 0})).await.unwrap();
    for pods in 1..6 {
        overwrite().patch_status(json!({"pods": pods})).await.unwrap();
    }
    let contested = overwrite().patch_status(json!({"pods": 7})).await.unwrap_err();
    assert!(matches!(contested, ReconcileError::Contested { .. }), "{contested:?}");
    // A status of a new generation undoes nothing.
    let mut site = server.get(SITE);
    site["metadata"]["generation"] = json!(2);
    server.put(SITE, site);
    overwrite().patch_status(json!({"pods": 7})).await.unwrap();
}

#[tokio::test]
async fn an_apply_meant_for_a_namesake_is_a_conflict() {
    let server = Server::default();
    let cx = context(&server);
    cx.ensure::<Child>(desired(&json!({"size": 1}))).await.unwrap();
    // It is deleted and created again, and the watch has not shown that.
    let mut other = server.get(CHILD);
    other["metadata"]["uid"] = json!(null);
    server.put(CHILD, other);
    let late = cx.ensure::<Child>(desired(&json!({"size": 2}))).await.unwrap_err();
    assert_eq!((late.class(), late.reason()), (ErrorClass::Conflict, None), "{late}");
}

#[tokio::test]
async fn nothing_is_recreated_for_a_deleted_owner() {
    let server = Server::default();
    let cx = context(&server);
    let create = async || cx.ensure::<Child>(desired(&json!({"size": 1}))).await.map(drop);
    cx.controller.parts.lost_children.lock().insert(cx.key().clone());
    let owner = server.get(SITE);
    server.remove(SITE);
    assert!(matches!(create().await.unwrap_err(), ReconcileError::Terminating(_)));
    let mut namesake = owner.clone();
    namesake["metadata"]["uid"] = json!(null);
    server.put(SITE, namesake);
    assert!(matches!(create().await.unwrap_err(), ReconcileError::Terminating(_)));
    assert!(server.writes().is_empty(), "{:?}", server.writes());
    server.put(SITE, owner);
    create().await.unwrap();
    assert!(cx.controller.parts.lost_children.lock().is_empty());
}

#[tokio::test]
async fn an_undecodable_object_is_reported() {
    let server = Server::default();
    let cx = context(&server);
    server.put(CHILD, json!({"spec": {"size": "large"}}));
    let problem = cx.ensure::<Child>(desired(&json!({"size": 1}))).await.unwrap_err();
    assert_eq!(problem.reason(), Some("ErrUndecodable"));
    assert!(
        problem.to_string().contains("large") || problem.to_string().contains("size"),
        "{problem}"
    );
}

#[tokio::test]
async fn an_unowned_object_is_not_changed_even_if_the_store_lacks_it() {
    let server = Server::default();
    let cx = context(&server);
    let before = server.put(CHILD, json!({"spec": {"size": 7}}));
    let problem = cx.ensure::<Child>(desired(&json!({"size": 1}))).await.unwrap_err();
    assert_eq!(
        (problem.reason(), problem.class()),
        (Some("ErrResourceExists"), ErrorClass::Waiting)
    );
    assert_eq!(problem.to_string(), "Child ns/x already exists and is not managed by Site");
    assert_eq!(server.get(CHILD), before);
    let again = cx.ensure::<Child>(desired(&json!({"size": 1}))).await.unwrap_err();
    assert_eq!(again.reason(), Some("ErrResourceExists"));
    assert_eq!(server.writes().len(), 1, "the store knows it now");
}

#[tokio::test(start_paused = true)]
async fn an_unwatched_object_is_reported_and_a_relabelled_one_is_restored() {
    let server = Server::default();
    let labels = Arc::new(Mutex::new(json!({"app": "other"})));
    let wanted = labels.clone();
    let problems = Arc::<Mutex<Vec<String>>>::default();
    let found = problems.clone();
    let site = server.put(SITE, json!({}));
    let manager = Manager::new("test")
        .informer::<Child>(|builder| builder.labels("app=child"))
        .controller::<Site>()
        .owns::<Child>()
        .reconcile(move |_: Arc<Site>, cx: Context<Site>| {
            let (labels, found) = (wanted.lock().clone(), found.clone());
            async move {
                let child = json!({"metadata": {"name": "x", "labels": labels}});
                let ensured = cx.ensure::<Child>(child).await;
                found.lock().extend(ensured.as_ref().err().map(ReconcileError::to_string));
                ensured.map(|_| Action::Done)
            }
        });
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Site", "name": "a",
        "uid": site["metadata"]["uid"], "controller": true});
    server.put(CHILD, json!({"metadata": {"ownerReferences": [owner]}}));
    let label = |value: &str| {
        let mut child = server.get(CHILD);
        child["metadata"]["labels"]["app"] = json!(value);
        server.put(CHILD, child);
    };
    let test = async {
        sleep(Duration::from_secs(1800)).await;
        let told = problems.lock().len();
        assert!((3..60).contains(&told), "{told} tries in half an hour");
        let sentence = "Child \"x\" exists, but is not among those that the controller watches";
        assert!(problems.lock()[0].starts_with(sentence), "{:?}", problems.lock());
        *labels.lock() = json!({"app": "child"});
        sleep(Duration::from_secs(1200)).await;
        for other in ["child", "other"] {
            label(other);
            sleep(Duration::from_secs(1)).await;
            assert_eq!(server.get(CHILD)["metadata"]["labels"]["app"], "child");
        }
    };
    server.run(manager, test).await;
}

/// Changes a field of the owned object's metadata, and shows the object to the store.
fn has(cx: &Context<Site>, server: &Server, field: &str, value: Value) {
    let mut child = server.get(CHILD);
    child["metadata"][field] = value;
    server.put(CHILD, child);
    shows(cx, server);
}

fn is_a_child(_: &Child) -> bool {
    true
}

#[tokio::test]
async fn a_known_uncontrolled_object_is_adopted() {
    let server = Server::default();
    let cx = context(&server);
    let wanted = || desired(&json!({"size": 1}));
    let options = || EnsureOptions::default().adopt(&is_a_child);
    let made = cx.ensure::<Child>(wanted()).await.unwrap();
    let owners = server.get(CHILD)["metadata"]["ownerReferences"].clone();
    has(&cx, &server, "ownerReferences", Value::Null);
    let taken = cx.ensure::<Child>(wanted()).await.unwrap_err();
    assert!(
        matches!(taken, ReconcileError::NotOwned { .. }),
        "nothing says that it is known: {taken}"
    );
    let unknown = EnsureOptions::default().adopt(&|_: &Child| false);
    assert!(matches!(
        cx.ensure_with(wanted(), unknown).await,
        Err(ReconcileError::NotOwned { .. })
    ));
    assert_eq!(server.writes().len(), 1);
    let there = cx.get::<Child>(&made.metadata.key).unwrap().unwrap();
    assert!(!cx.is_ensured(wanted(), options(), &*there).unwrap());

    let adopted = cx.ensure_with(wanted(), options()).await.unwrap();
    assert_eq!(adopted.metadata.uid, made.metadata.uid);
    assert!(adopted.metadata.is_controlled_by(cx.object.metadata.uid));
    assert_eq!(server.get(CHILD)["metadata"]["ownerReferences"], owners);
    let body = server.requests().pop().unwrap().body;
    assert_eq!(body["metadata"]["uid"], json!(made.metadata.uid), "no namesake");
    assert!(cx.is_ensured(wanted(), options(), &*adopted).unwrap());
    cx.ensure_with(wanted(), options()).await.unwrap();
    assert_eq!(server.writes().len(), 2);
}

#[tokio::test]
async fn an_owned_unrecorded_or_terminating_object_is_not_adopted() {
    let server = Server::default();
    let cx = context(&server);
    let ensure = async || {
        let options = EnsureOptions::default().adopt(&is_a_child);
        cx.ensure_with(desired(&json!({"size": 1})), options).await.map(drop).unwrap_err()
    };
    cx.ensure::<Child>(desired(&json!({"size": 1}))).await.unwrap();
    let other = json!([{"apiVersion": "example.com/v1", "kind": "Other", "name": "a",
        "uid": "00000000-0000-4000-8000-00000000000f", "controller": true}]);
    has(&cx, &server, "ownerReferences", other);
    assert!(matches!(ensure().await, ReconcileError::NotOwned { .. }));
    has(&cx, &server, "ownerReferences", Value::Null);
    has(&cx, &server, "deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    assert!(matches!(ensure().await, ReconcileError::Terminating(_)));
    has(&cx, &server, "deletionTimestamp", Value::Null);
    // The object is being deleted, and leaves its children behind.
    let mut site = server.get(SITE);
    site["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    server.put(SITE, site);
    assert!(matches!(ensure().await, ReconcileError::Terminating(_)));
    has(&cx, &server, "annotations", Value::Null);
    assert!(matches!(ensure().await, ReconcileError::NotOwned { .. }));
    assert_eq!(server.writes().len(), 1);
}

/// An admission policy may ask for the owner after each write.
#[tokio::test]
async fn the_first_write_to_an_adopted_object_sets_its_owner() {
    let server = Server::default();
    let cx = context(&server);
    cx.ensure::<Child>(desired(&json!({"size": 1, "zone": "a"}))).await.unwrap();
    has(&cx, &server, "ownerReferences", Value::Null);
    // A restore knows no fields of ours.
    let restored = json!([{"manager": "restore", "operation": "Update", "apiVersion": "example.com/v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:limit": {}}}}]);
    has(&cx, &server, "managedFields", restored);
    let options = EnsureOptions::default().unwanted(&unwanted).adopt(&is_a_child);
    let before = server.writes().len();
    cx.ensure_with(desired(&json!({"size": 2})), options).await.unwrap();
    let all = server.requests();
    let mut writes = all.iter().filter(|it| it.method == "PATCH").skip(before);
    let first = &writes.next().unwrap().body;
    let sets_owner = |operation: &Value| operation["path"] == "/metadata/ownerReferences";
    assert!(first.as_array().unwrap().iter().any(sets_owner), "{first}");
    let claims = |operation: &Value| operation["path"] == "/metadata/managedFields/-";
    assert!(first.as_array().unwrap().iter().any(claims), "others keep what is theirs: {first}");
    let second = &writes.next().unwrap().body;
    assert_eq!(second["metadata"]["ownerReferences"][0]["uid"], json!(cx.object.metadata.uid));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_becomes_adoptable_enqueues_the_waiting_owner() {
    let server = Server::default();
    server.put(SITE, json!({}));
    server.put(CHILD, json!({"spec": {"size": 1}}));
    let (sender, mut passes) = tokio::sync::mpsc::unbounded_channel();
    let manager =
        Manager::new("test").controller::<Site>().owns::<Child>().reconcile(move |_, cx| {
            let sender = sender.clone();
            async move {
                let options = EnsureOptions::default().adopt(&is_a_child);
                let ensured = cx.ensure_with(desired(&json!({"size": 1})), options).await;
                sender.send(ensured.is_ok()).unwrap();
                ensured.map(|_| Action::Done)
            }
        });
    let seen = server.clone();
    server
        .run(manager, async move {
            assert_eq!(passes.recv().await, Some(false));
            let mut child = seen.get(CHILD);
            child["metadata"]["annotations"] = json!({"controller-machinery/applied": "x"});
            seen.put(CHILD, child);
            assert_eq!(passes.recv().await, Some(true));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn no_filter_hides_that_an_object_is_being_deleted() {
    let server = Server::default();
    server.put(SITE, json!({"metadata": {"finalizers": ["example.com/site"]}}));
    let (sender, mut came) = tokio::sync::mpsc::unbounded_channel();
    let reconciled = sender.clone();
    let manager = Manager::new("test").controller::<Site>();
    let manager = manager.filter::<Site>(|delta| matches!(delta, Delta::Added(..)));
    let manager = manager.finalizer("example.com/site", move |_, _| {
        sender.send("cleaned up").unwrap();
        async { Ok(()) }
    });
    let manager = manager.reconcile(move |_, _| {
        reconciled.send("reconciled").unwrap();
        async { Ok::<_, ReconcileError>(Action::Done) }
    });
    let deleting = server.clone();
    server
        .run(manager, async move {
            assert_eq!(came.recv().await, Some("reconciled"));
            let mut site = deleting.get(SITE);
            site["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            deleting.put(SITE, site);
            assert_eq!(came.recv().await, Some("cleaned up"));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_unlistable_namespace_does_not_delay_cluster_scoped_objects() {
    let server = Server::default();
    server.put("/api/v1/nodes/n", json!({}));
    server.forbid("/namespaces/b/");
    let (sender, mut passes) = tokio::sync::mpsc::unbounded_channel();
    let manager = Manager::new("test").namespaces(["a", "b"]).controller::<Node>();
    let manager = manager.owns::<Child>().reconcile(move |_, _| {
        sender.send(()).unwrap();
        async { Ok::<_, ReconcileError>(Action::Done) }
    });
    server.run(manager, async move { passes.recv().await.unwrap() }).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_panic_of_a_mapping_all_objects_are_reconciled() {
    let server = Server::default();
    server.put(SITE, json!({}));
    let (sender, mut passes) = tokio::sync::mpsc::unbounded_channel();
    let manager = Manager::new("test").controller::<Site>();
    let manager = manager.watches::<Secret>(|_| panic!("as the test wants it"));
    let manager = manager.reconcile(move |_, _| {
        sender.send(()).unwrap();
        async { Ok::<_, ReconcileError>(Action::Done) }
    });
    let changing = server.clone();
    server
        .run(manager, async move {
            passes.recv().await.unwrap();
            changing.put("/api/v1/namespaces/ns/secrets/s", json!({}));
            passes.recv().await.unwrap();
        })
        .await;
}

#[tokio::test]
async fn objects_that_are_not_kept_are_pruned() {
    let server = Server::default();
    let cx = context(&server);
    for name in ["x", "y"] {
        cx.ensure::<Child>(json!({"metadata": {"name": name}})).await.unwrap();
    }
    cx.prune::<Child>(|child| *child.metadata.key.name() == *"y").await.unwrap();
    assert_eq!(server.writes().last().unwrap(), &format!("DELETE {CHILD}"));
    let options = server.requests().pop().unwrap().body;
    assert!(options["preconditions"]["uid"].is_string(), "{options}");
    assert!(cx.get::<Child>(&ObjectKey::new("ns", "x")).unwrap().is_none());
    assert!(cx.get::<Child>(&ObjectKey::new("ns", "y")).unwrap().is_some());
}

#[tokio::test]
async fn a_different_status_is_patched_if_the_object_is_unchanged() {
    let server = Server::default();
    let cx = context(&server);
    cx.patch_status(json!({"pods": 0})).await.unwrap();
    let crate::testing::Received { method, uri: path, body, .. } = server.requests().pop().unwrap();
    let asked = "/apis/example.com/v1/namespaces/ns/sites/a/status?&fieldManager=test";
    assert_eq!((&*method, &*path), ("PATCH", asked));
    assert_eq!(body["status"], json!({"pods": 0}));
    assert_eq!(body["metadata"]["resourceVersion"], json!(cx.object.metadata.version));
    let next = Context::new(cx.controller.clone(), cx.controller.objects.get(cx.key()).unwrap());
    next.patch_status(json!({"pods": 0})).await.unwrap();
    assert_eq!(server.writes().len(), 1);
    next.patch_status(json!({"pods": 1})).await.unwrap();
    assert_eq!(server.writes().len(), 2);
    // `cx` was read before that write.
    let late = cx.patch_status(json!({"pods": 2})).await.unwrap_err();
    assert_eq!(late.class(), ErrorClass::Conflict);
}
