//! Settings and tasks of a manager, and controllers with other sources of keys.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio::time::sleep;

use super::{Site, nothing};
use crate::controller::{Action, ReconcileError};
use crate::manager::{Context, Lease, Manager};
use crate::testing::{Id, Server};

type Log = Arc<Mutex<Vec<String>>>;

fn site() -> Id {
    Id::new("/apis/example.com/v1/sites", "ns", "a")
}

#[tokio::test(start_paused = true)]
async fn settings_do_not_depend_on_the_order_of_calls() {
    for is_own in [false, true] {
        let server = Server::new(1);
        let controller = Manager::new("test").controller::<Site>().named("with-settings");
        let controller = if is_own { controller.workers(3) } else { controller };
        let manager = controller.reconcile(nothing).options(|options| options.workers = 7);
        server.run(manager, sleep(Duration::from_secs(1))).await;
        let workers = crate::instruments::WORKERS.with(["with-settings"]).get();
        assert_eq!(workers, if is_own { 3 } else { 7 });
    }
}

/// Says that a task was dropped.
struct Stopped(&'static str, Log);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.1.lock().push(format!("{} stops", self.0));
    }
}

/// A replica with a task and a controller.
fn replica(name: &'static str, log: &Log) -> Manager {
    let say = |what: &'static str| {
        let log = log.clone();
        move || log.lock().push(format!("{name} {what}"))
    };
    let (all, leads, works) = (say("runs"), say("leads"), say("works"));
    let stopped = Stopped(name, log.clone());
    Manager::new("test")
        .instance(name)
        .leader_election(Lease::named("test").namespace("ns"))
        .task("all", async move |client, stop| {
            let _stopped = stopped;
            all();
            while !stop.is_requested() {
                if client.options().gate.may_write().is_ok() {
                    leads();
                }
                tokio::select! {
                    () = stop.requested() => {}
                    () = sleep(Duration::from_secs(5)) => {}
                }
            }
        })
        .controller::<Site>()
        .reconcile(move |_, _| {
            works();
            async { Ok::<_, ReconcileError>(Action::Done) }
        })
}

#[tokio::test(start_paused = true)]
async fn tasks_run_in_all_processes_and_know_whether_theirs_leads() {
    let server = Server::new(1);
    server.set_variation(false);
    server.put(&site(), json!({}));
    let log = Log::default();
    let until = async |seconds| sleep(Duration::from_secs(seconds)).await;
    let second = async {
        until(10).await;
        server.run(replica("b", &log), until(300)).await;
    };
    tokio::join!(server.run(replica("a", &log), until(100)), second);
    let log = log.lock().clone();
    let at = |what: &str| log.iter().position(|line| line == what).unwrap_or(usize::MAX);
    let count = |what: &str| log.iter().filter(|line| *line == what).count();
    assert!(at("b runs") < at("a stops"), "{log:?}");
    assert!(at("a stops") < at("b leads") && at("a stops") < at("b works"), "{log:?}");
    assert!(count("a leads") > 10 && count("b leads") > 10, "{log:?}");
    assert!(at("b works") < usize::MAX, "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_knows_how_often_it_has_failed_in_a_row() {
    let server = Server::new(1);
    server.put(&site(), json!({}));
    let log = Log::default();
    let seen = log.clone();
    let manager =
        Manager::new("test").controller::<Site>().reconcile(move |_, cx: Context<Site>| {
            seen.lock().push(cx.failures().to_string());
            async { Err::<Action, _>(ReconcileError::transient("ErrTest", "always")) }
        });
    server.run(manager, sleep(Duration::from_secs(60))).await;
    assert_eq!(log.lock()[..3], ["0", "1", "2"]);
}

/// Without a limit, each write of the status enqueues the object again at once.
#[tokio::test(start_paused = true)]
async fn reconciles_that_only_write_the_status_are_limited() {
    let server = Server::new(1);
    server.put(&site(), json!({}));
    let log = Log::default();
    let seen = log.clone();
    let manager =
        Manager::new("test").controller::<Site>().reconcile(move |_, cx: Context<Site>| {
            seen.lock().push(String::new());
            let pods = seen.lock().len();
            async move {
                cx.patch_status(json!({ "pods": pods })).await?;
                Ok::<_, ReconcileError>(Action::Done)
            }
        });
    server.run(manager, sleep(Duration::from_secs(60))).await;
    // 20 at once, then one a second.
    let reconciles = log.lock().len();
    assert!((60..=85).contains(&reconciles), "{reconciles}");
}
