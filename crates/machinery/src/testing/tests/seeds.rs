//! Three wrong reconcilers, which random faults find, and a right one.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client::{Patch, Preconditions, PropagationPolicy};
use crate::controller::{Action, ReconcileError};
use crate::manager::{Context, Lease, Manager};
use crate::object::{Kind, Meta, ObjectKey, ResourceVersion};
use crate::testing::{Id, Received, Server, seeds};
use crate::view;

#[derive(Debug, Serialize, Deserialize)]
struct Site {
    metadata: Meta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

#[derive(Debug, Serialize, Deserialize)]
struct Page {
    metadata: Meta,
    #[serde(default)]
    spec: Value,
}

view!(Site: Kind::namespaced("example.com", "v1", "Site", "sites"));
view!(Page: Kind::namespaced("example.com", "v1", "Page", "pages"));

const QUIET: Duration = Duration::from_secs(120);

fn site() -> Id {
    Id::new("/apis/example.com/v1/sites", "ns", "a")
}

fn page() -> Id {
    Id::new("/apis/example.com/v1/pages", "ns", "a")
}

fn pages(server: &Server) -> usize {
    server.objects(&page().resource).len()
}

async fn right(site: Arc<Site>, cx: Context<Site>) -> Result<Action, ReconcileError> {
    let spec = json!({"text": site.spec["text"]});
    cx.ensure::<Page>(json!({"metadata": {"name": "a"}, "spec": spec})).await?;
    cx.patch_status(json!({"text": site.spec["text"]})).await?;
    Ok(Action::Done)
}

fn manager_of_pages() -> Manager {
    Manager::new("sites").controller::<Site>().owns::<Page>().reconcile(right)
}

/// A site is created and edited, and its page edited by hand. Then the controller is restarted.
async fn edits(server: Server) {
    server.put(&site(), json!({"spec": {"text": "one"}}));
    let test = async {
        tokio::time::sleep(QUIET).await;
        server.put(&site(), json!({"spec": {"text": "two"}}));
    };
    server.run(manager_of_pages(), test).await;
    let test = async {
        tokio::time::sleep(QUIET).await;
        if let Some(page_now) = server.get(&page()) {
            let mut edited = (*page_now).clone();
            edited["spec"]["text"] = json!("by hand");
            server.put(&page(), edited);
        }
        server.clear_faults();
        server.until(&page(), |page| page["spec"]["text"] == "two").await;
        server.until(&site(), |site| site["status"]["text"] == "two").await;
        tokio::time::sleep(QUIET).await;
        assert_eq!(pages(&server), 1);
    };
    server.run(manager_of_pages(), test).await;
}

#[test]
fn a_correct_reconcile_survives_all_faults() {
    seeds(200, edits);
}

#[test]
fn a_second_replica_takes_over() {
    seeds(50, async |server| {
        let replica = |name: &'static str| {
            let lease = Lease::named("sites").namespace("ns");
            let manager = Manager::new("sites").instance(name.to_owned()).leader_election(lease);
            manager.controller::<Site>().owns::<Page>().reconcile(right)
        };
        server.put(&site(), json!({"spec": {"text": "one"}}));
        let test = async {
            tokio::time::sleep(2 * QUIET).await;
            server.clear_faults();
            server.put(&site(), json!({"spec": {"text": "two"}}));
            server.until(&page(), |page| page["spec"]["text"] == "two").await;
            tokio::time::sleep(QUIET).await;
            assert_eq!(pages(&server), 1);
        };
        let first = server.run(replica("first"), tokio::time::sleep(QUIET));
        tokio::join!(first, server.run(replica("second"), test));
    });
}

#[test]
fn a_seed_determines_every_request() {
    let runs = Mutex::new(Vec::<Vec<Received>>::new());
    for _ in 0..2 {
        seeds(50, async |server| {
            edits(server.clone()).await;
            runs.lock().push(server.requests());
        });
    }
    let runs = runs.into_inner();
    let (first, second) = runs.split_at(runs.len() / 2);
    for (seed, (one, other)) in first.iter().zip(second).enumerate() {
        for (number, (one, other)) in one.iter().zip(other).enumerate() {
            assert_eq!(format!("{one:?}"), format!("{other:?}"), "seed {seed}, request {number}");
        }
        assert_eq!(one.len(), other.len(), "seed {seed}");
    }
}

/// It creates another page if it is repeated before the name was stored.
async fn not_idempotent(site: Arc<Site>, cx: Context<Site>) -> Result<Action, ReconcileError> {
    if site.status["page"].is_null() {
        let name = format!("page-{}", fastrand::u32(..));
        let body = json!({"apiVersion": "example.com/v1", "kind": "Page",
            "metadata": {"name": name}, "spec": site.spec});
        cx.client().create::<Page>(&ObjectKey::new("ns", &name), &body).await?;
        cx.patch_status(json!({"page": name})).await?;
    }
    Ok(Action::Done)
}

/// With many objects of a kind, whose first reconciles begin in the order of the store.
#[test]
fn a_seed_determines_the_order_of_twenty_objects() {
    let runs = Mutex::new(Vec::new());
    for _ in 0..2 {
        seeds(1, async |server| {
            for number in 0..20 {
                let id = Id::new(site().resource, "ns", format!("site-{number}"));
                server.put(&id, json!({"spec": {"text": "one"}}));
            }
            let controller = Manager::new("sites").controller::<Site>();
            let test = async { tokio::time::sleep(QUIET).await };
            server.run(controller.reconcile(not_idempotent), test).await;
            let paths = server.requests().into_iter().map(|request| request.uri);
            runs.lock().push(paths.filter(|path| path.contains("site-")).collect::<Vec<_>>());
        });
    }
    let runs = runs.into_inner();
    assert!(runs[0].len() >= 20, "{:?}", runs[0]);
    assert_eq!(runs[0], runs[1]);
}

#[test]
#[should_panic(expected = "one page")]
fn a_create_under_a_random_name_is_found() {
    seeds(1000, async |server| {
        server.put(&site(), json!({"spec": {"text": "one"}}));
        let controller = Manager::new("sites").controller::<Site>();
        let test = async {
            tokio::time::sleep(QUIET).await;
            server.clear_faults();
            tokio::time::sleep(QUIET).await;
            assert_eq!(pages(&server), 1, "one page");
        };
        server.run(controller.reconcile(not_idempotent), test).await;
    });
}

/// It reads a page that it does not watch, so it does not learn of a later one.
async fn status_of_a_stale_read(_: Arc<Site>, cx: Context<Site>) -> Result<Action, ReconcileError> {
    let page = cx.get::<Page>(&ObjectKey::new("ns", "a"))?;
    let text = page.map(|page| page.spec["text"].clone());
    cx.patch_status(json!({"text": text})).await?;
    Ok(Action::Done)
}

#[test]
#[should_panic(expected = "the newest text")]
fn a_status_from_a_stale_read_is_found() {
    seeds(1000, async |server| {
        server.put(&page(), json!({"spec": {"text": "one"}}));
        server.put(&site(), json!({}));
        let controller = Manager::new("sites").controller::<Site>().reads::<Page>();
        let test = async {
            tokio::time::sleep(QUIET).await;
            server.put(&page(), json!({"spec": {"text": "two"}}));
            tokio::time::sleep(Duration::from_secs(1)).await;
            server.put(&site(), json!({"spec": {"text": "look again"}}));
            tokio::time::sleep(QUIET).await;
            server.clear_faults();
            tokio::time::sleep(10 * QUIET).await;
            let site = server.get(&site()).unwrap();
            assert_eq!(site["status"]["text"], "two", "the newest text");
        };
        server.run(controller.reconcile(status_of_a_stale_read), test).await;
    });
}

async fn apply_page(_: Arc<Site>, cx: Context<Site>) -> Result<Action, ReconcileError> {
    let body = json!({"apiVersion": "example.com/v1", "kind": "Page", "metadata": {"name": "a"}});
    cx.client().patch::<Page>(&ObjectKey::new("ns", "a"), &Patch::Apply(&body)).await?;
    Ok(Action::Done)
}

/// It lets the site go whether or not the page was deleted.
async fn finalize_too_early(_: Arc<Site>, cx: Context<Site>) -> Result<(), ReconcileError> {
    let page = ObjectKey::new("ns", "a");
    if let Ok(Some(found)) = cx.client().find::<Page>(&page).await {
        let only = Preconditions { uid: found.metadata.uid, version: ResourceVersion::default() };
        drop(cx.client().delete::<Page>(&page, only, PropagationPolicy::Background).await);
    }
    Ok(())
}

#[test]
#[should_panic(expected = "no page is left")]
fn a_finalizer_that_is_removed_too_early_is_found() {
    seeds(1000, async |server| {
        server.put(&site(), json!({}));
        let controller = Manager::new("sites").controller::<Site>();
        let controller = controller.finalizer("example.com/page", finalize_too_early);
        let test = async {
            tokio::time::sleep(QUIET).await;
            server.delete(&site());
            tokio::time::sleep(QUIET).await;
            server.clear_faults();
            tokio::time::sleep(QUIET).await;
            assert_eq!(pages(&server), 0, "no page is left");
        };
        server.run(controller.reconcile(apply_page), test).await;
    });
}
