//! Filters of what enqueues an object, and the data of the program.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::server::Server;
use super::{CHILD, Child, Node, SITE, Site, refused};
use crate::controller::{Action, Problem};
use crate::manager::{Context, Manager};
use crate::store::Delta;

/// Counts the reconciles, and what else happened.
#[derive(Default)]
struct Counts(Mutex<Vec<&'static str>>);

async fn reconcile(site: Arc<Site>, cx: Context<Site, Counts>) -> Result<Action, Problem> {
    cx.data().0.lock().push("reconcile");
    match site.spec["fails"] {
        Value::Null => Ok(Action::Done),
        _ => Err(Problem::terminal("ErrFails", "it fails")),
    }
}

fn has_another_size(delta: &Delta<Child>) -> bool {
    !matches!(delta, Delta::Updated { old, new } if old.spec.size == new.spec.size)
}

#[tokio::test(start_paused = true)]
async fn a_filter_of_an_owned_kind_drops_changes_but_not_deletions() {
    let server = Server::default();
    let site = server.put(SITE, json!({}));
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Site", "name": "a",
        "uid": site["metadata"]["uid"], "controller": true});
    server.put(CHILD, json!({"metadata": {"ownerReferences": [owner]}, "spec": {"size": 1}}));
    let counts = Arc::new(Counts::default());
    let seen = counts.clone();
    let manager = Manager::new("test")
        .controller::<Site>()
        .filter::<Child>(has_another_size)
        .owns::<Child>()
        .reconcile(move |_, _| {
            seen.0.lock().push("reconcile");
            async { Ok::<_, Problem>(Action::Done) }
        });
    let test = async {
        sleep(Duration::from_secs(1)).await;
        let mut expected = counts.0.lock().len();
        let mut change = async |change: &dyn Fn(&mut Value), reconciles: usize| {
            let mut child = server.get(CHILD);
            change(&mut child);
            server.put(CHILD, child);
            sleep(Duration::from_secs(1)).await;
            expected += reconciles;
            assert_eq!(counts.0.lock().len(), expected);
        };
        change(&|child| child["spec"]["limit"] = json!(1), 0).await;
        change(&|child| child["spec"]["size"] = json!(2), 1).await;
        // It is lost, and found again by its UID.
        change(&|child| drop(child["metadata"]["ownerReferences"][0]["controller"].take()), 1)
            .await;
        change(&|child| child["metadata"]["ownerReferences"][0]["controller"] = json!(true), 1)
            .await;
        let deletion = "2026-01-01T00:00:00Z";
        change(&|child| child["metadata"]["deletionTimestamp"] = json!(deletion), 1).await;
    };
    server.run(manager, test).await;
}

#[tokio::test]
async fn a_filter_of_a_view_that_is_not_declared_is_refused() {
    let manager = Manager::new("test").controller::<Site>().filter::<Node>(|_| true);
    let why = refused(manager.reads::<Node>().reconcile(super::nothing)).await;
    assert!(why.contains("but no change of Node enqueues anything"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn each_function_of_a_controller_has_its_data() {
    let server = Server::default();
    server.put(SITE, json!({"spec": {"fails": true}}));
    let counts = Arc::new(Mutex::new(Vec::new()));
    let (before, after) = (counts.clone(), counts.clone());
    let manager = Manager::new("test")
        .controller::<Site>()
        // What is declared before the data goes without it.
        .on_error(move |cx, problem| {
            before.lock().push(cx.key().name().to_string());
            problem
        })
        .data(Counts::default())
        .finalizer("example.com/site", move |_, cx: Context<Site, Counts>| {
            let reconciles = cx.data().0.lock().len();
            after.lock().push(format!("{reconciles} reconciles"));
            async { Ok(()) }
        })
        .reconcile(reconcile);
    let test = async {
        sleep(Duration::from_secs(1)).await;
        server.delete(SITE);
        sleep(Duration::from_secs(1)).await;
    };
    server.run(manager, test).await;
    assert_eq!(*counts.lock(), ["a", "a", "2 reconciles"], "the second is for the finalizer");
}
