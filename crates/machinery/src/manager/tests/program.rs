//! Settings and tasks of a manager, and controllers with other sources of keys.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::sleep;

use super::{Site, nothing};
use crate::controller::{Action, Problem};
use crate::leader_election::Leadership;
use crate::manager::leading::Lead;
use crate::manager::{Context, Lease, Manager};
use crate::shutdown::Shutdown;
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

/// Says that the task of a leader was dropped.
struct Stopped(&'static str, Log);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.1.lock().push(format!("{} stops", self.0));
    }
}

/// A replica with a task for each process, one for the leader, and a controller.
fn replica(name: &'static str, log: &Log) -> Manager {
    let say = |what: &'static str| {
        let log = log.clone();
        move || log.lock().push(format!("{name} {what}"))
    };
    let (all, leads, works) = (say("runs"), say("leads"), say("works"));
    let (lease, stops) = (Lease::named("test").namespace("ns"), log.clone());
    Manager::new("test")
        .instance(name)
        .leader_election(lease)
        .task("all", async move |_, stop| {
            all();
            stop.requested().await;
        })
        .leader_task("leader", move |_| {
            leads();
            let stopped = Stopped(name, stops.clone());
            async move {
                let _stopped = stopped;
                std::future::pending::<()>().await;
            }
        })
        .controller::<Site>()
        .reconcile(move |_, _| {
            works();
            async { Ok::<_, Problem>(Action::Done) }
        })
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_runs_leader_tasks_and_all_run_the_others() {
    let server = Server::new(1);
    server.set_liberties(false);
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
    assert_eq!((count("a leads"), count("b leads")), (1, 1), "{log:?}");
    assert!(at("b works") < usize::MAX, "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_task_continues_after_an_interruption_and_ends_with_the_term() {
    let (leadership, log) = (Leadership::of_tests(), Log::default());
    let lead = Lead { leadership: Some(leadership.clone()) };
    let (stop, seen) = (Shutdown::manual(), log.clone());
    let running = tokio::spawn(lead.run(stop.clone(), move || {
        seen.lock().push("begins".to_owned());
        let stopped = Stopped("it", seen.clone());
        async move {
            let _stopped = stopped;
            sleep(Duration::from_secs(60)).await;
        }
        .boxed()
    }));
    let lines = async |seconds| {
        sleep(Duration::from_secs(seconds)).await;
        log.lock().join(", ")
    };
    assert_eq!(lines(5).await, "");
    leadership.permit(true);
    assert_eq!(lines(5).await, "begins");
    // The lease was not renewed in time, but before another process acquired it.
    leadership.permit_until(None);
    assert_eq!(lines(5).await, "begins, it stops");
    leadership.permit_until(Some(Duration::MAX));
    assert_eq!(lines(5).await, "begins, it stops, begins");
    assert_eq!(lines(300).await, "begins, it stops, begins, it stops", "it has ended");
    leadership.permit_until(None);
    assert_eq!(lines(5).await, "begins, it stops, begins, it stops", "a suspension");
    leadership.permit_until(Some(Duration::MAX));
    assert_eq!(lines(5).await, "begins, it stops, begins, it stops", "the same term");
    leadership.permit(true);
    assert_eq!(lines(5).await, "begins, it stops, begins, it stops, begins", "another term");
    stop.request();
    running.await.unwrap();
    assert!(lines(0).await.ends_with("it stops"));
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
            async { Err::<Action, _>(Problem::transient("ErrTest", "always")) }
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
                Ok::<_, Problem>(Action::Done)
            }
        });
    server.run(manager, sleep(Duration::from_secs(60))).await;
    // 20 at once, then one a second.
    let reconciles = log.lock().len();
    assert!((60..=85).contains(&reconciles), "{reconciles}");
}
