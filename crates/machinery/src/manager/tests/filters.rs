//! Filters of what enqueues an object.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::server::Server;
use super::{CHILD, Child, SITE, Site};
use crate::controller::{Action, ReconcileError};
use crate::manager::Manager;
use crate::store::Delta;

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
    let counts = Arc::new(Mutex::new(0));
    let seen = counts.clone();
    let manager = Manager::new("test")
        .controller::<Site>()
        .filter::<Child>(has_another_size)
        .owns::<Child>()
        .reconcile(move |_, _| {
            *seen.lock() += 1;
            async { Ok::<_, ReconcileError>(Action::Done) }
        });
    let test = async {
        sleep(Duration::from_secs(1)).await;
        let mut expected = *counts.lock();
        let mut change = async |change: &dyn Fn(&mut Value), reconciles: i32| {
            let mut child = server.get(CHILD);
            change(&mut child);
            server.put(CHILD, child);
            sleep(Duration::from_secs(1)).await;
            expected += reconciles;
            assert_eq!(*counts.lock(), expected);
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
