//! Objects in other namespaces, which a label assigns to their owner.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::Site;
use crate::controller::{Action, ErrorClass, ReconcileError};
use crate::manager::{Context, Manager};
use crate::object::{Object, Typed};
use crate::testing::{Id, Server, seeds};

type Config = Typed<ConfigMap>;

const SITE_OF: &str = "example.com/site";
const QUIET: Duration = Duration::from_secs(120);

/// Gives a site a ConfigMap in each namespace that it names.
async fn copies(site: Arc<Site>, cx: Context<Site>) -> Result<Action, ReconcileError> {
    let namespaces = site.spec["to"].as_array().cloned().unwrap_or_default();
    let is_wanted = |copy: &Config| namespaces.contains(&json!(copy.key().namespace()));
    cx.prune::<Config>(is_wanted).await?;
    let mut problems = Vec::new();
    for namespace in &namespaces {
        let metadata = json!({"name": "a", "namespace": namespace});
        let copy = json!({"metadata": metadata, "data": {"text": site.spec["text"]}});
        match cx.ensure::<Config>(copy).await {
            Err(problem) if problem.class() == ErrorClass::Transient => return Err(problem),
            copied => problems.extend(copied.err()),
        }
    }
    ReconcileError::all(problems).map(|()| Action::Done)
}

fn manager() -> Manager {
    Manager::new("test")
        .controller::<Site>()
        .owns_labelled::<Config>(SITE_OF)
        .finalizer("example.com/site", async |_, cx| cx.prune::<Config>(|_| false).await)
        .reconcile(copies)
}

fn site() -> Id {
    Id::new("/apis/example.com/v1/sites", "ns", "a")
}

fn copy(namespace: &str) -> Id {
    Id::new("/api/v1/configmaps", namespace, "a")
}

fn put(server: &Server, spec: &Value) {
    for namespace in ["x", "y", "z"] {
        server.put(&Id::new("/api/v1/namespaces", "", namespace), json!({}));
    }
    server.put(&site(), json!({ "spec": spec }));
}

#[test]
fn copies_follow_their_owner_whatever_fails() {
    seeds(100, async |server: Server| {
        put(&server, &json!({"to": ["x", "y"], "text": "one"}));
        let test = async {
            sleep(QUIET).await;
            server.patch(&site(), &json!({"spec": {"to": ["y", "z"]}})).unwrap();
        };
        server.run(manager(), test).await;
        let is = |text: &'static str| move |it: &Value| it["data"]["text"] == text;
        let test = async {
            sleep(QUIET).await;
            server.clear_faults();
            server.until(&copy("z"), is("one")).await;
            sleep(QUIET).await;
            assert!(server.get(&copy("x")).is_none(), "it is no longer wanted");
            server.remove(&copy("y"));
            server.until(&copy("y"), is("one")).await;
            server.patch(&copy("z"), &json!({"data": {"text": "by hand"}})).unwrap();
            server.until(&copy("z"), is("one")).await;
            server.settled(QUIET).await;
            server.delete(&site());
            server.until_gone(&site().resource).await;
            assert!(server.objects(&copy("").resource).is_empty(), "they go with their owner");
        };
        server.run(manager(), test).await;
    });
}

#[tokio::test(start_paused = true)]
async fn all_conflicting_names_are_reported_and_each_is_used_when_free() {
    let server = Server::new(1);
    server.set_variation(false);
    put(&server, &json!({"to": ["x", "y", "z"], "text": "one"}));
    for taken in ["x", "z"] {
        server.put(&copy(taken), json!({"data": {"text": "of somebody else"}}));
    }
    let test = async {
        server.until(&copy("y"), |it| it["data"]["text"] == "one").await;
        sleep(QUIET).await;
        let taken = |namespace: &str| {
            format!("ConfigMap {namespace}/a already exists and is not managed by Site")
        };
        let notes = || -> Vec<String> {
            let events = server.events(&site());
            events.iter().map(|event| event["note"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(notes(), [format!("{}; {}", taken("x"), taken("z"))]);
        server.remove(&copy("z"));
        let freed = Instant::now();
        server.until(&copy("z"), |it| it["data"]["text"] == "one").await;
        assert!(freed.elapsed() < Duration::from_secs(1), "{:?}", freed.elapsed());
        sleep(QUIET).await;
        assert_eq!(notes()[1..], [taken("x")]);
        assert_eq!(server.get(&copy("x")).unwrap()["data"]["text"], "of somebody else");
    };
    server.run(manager(), test).await;
}

#[test]
fn the_most_urgent_problem_decides_and_three_are_reported() {
    let problem = |class: ErrorClass, what: &str| ReconcileError::Custom {
        class,
        reason: "ErrSome".into(),
        message: what.to_owned(),
    };
    assert!(ReconcileError::all([]).is_ok());
    let one = ReconcileError::all([problem(ErrorClass::Forbidden, "a")]).unwrap_err();
    assert_eq!(one.to_string(), "a");
    let many = [
        (ErrorClass::Terminal, "a"),
        (ErrorClass::Waiting, "b"),
        (ErrorClass::Transient, "c"),
        (ErrorClass::Waiting, "d"),
    ];
    let many = ReconcileError::all(many.map(|(class, what)| problem(class, what))).unwrap_err();
    assert_eq!(
        (many.class(), many.to_string()),
        (ErrorClass::Transient, "c; b; d; and 1 more".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_in_an_unwatched_or_unlisted_namespace() {
    let server = Server::new(1);
    server.set_variation(false);
    put(&server, &json!({"to": ["x", "y"], "text": "one"}));
    let test = async {
        server.until(&copy("x"), |it| it["data"]["text"] == "one").await;
        sleep(QUIET).await;
        assert!(server.get(&copy("y")).is_none(), "nothing would delete it");
        let event = server.events(&site());
        assert_eq!(event[0]["reason"], "ErrNotWatched");
        let note = "ConfigMap y/a is in a namespace that the program does not watch";
        assert_eq!(event[0]["note"], note);
    };
    server.run(manager().namespaces(["ns", "x"]), test).await;

    server.set_allowed(&copy("").resource, false);
    server.delete(&site());
    let test = async {
        sleep(QUIET).await;
        assert!(server.get(&site()).is_some() && server.get(&copy("x")).is_some());
        server.set_allowed(&copy("").resource, true);
        server.until_gone(&site().resource).await;
        assert!(server.objects(&copy("").resource).is_empty());
    };
    server.run(manager().namespaces(["ns", "x", "y"]), test).await;
}
