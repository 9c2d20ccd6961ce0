use std::sync::Arc;

use parking_lot::Mutex;

use super::*;
use crate::controller::{Action, Options, ReconcileError};
use crate::object::ObjectKey;

/// A pass that lasts until the shutdown, and a while longer.
struct Slow(Shutdown, Arc<Mutex<Vec<&'static str>>>);

impl Reconciler for Slow {
    async fn reconcile(&self, _: &ObjectKey) -> Result<Action, ReconcileError> {
        self.0.request();
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.1.lock().push("pass");
        Ok(Action::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_are_stopped_after_the_last_reconcile_has_ended() {
    let (shutdown, told) = (Shutdown::manual(), Arc::default());
    let slow = Slow(shutdown.clone(), Arc::clone(&told));
    let controller = Controller::new("slow", slow, Options::default());
    controller.handle().queue.add(ObjectKey::new("ns", "a"));
    let beside = Arc::clone(&told);
    let program = Program::new().controller(controller).task("a sink", |stop| async move {
        stop.requested().await;
        beside.lock().push("sink");
    });
    program.run(shutdown).await.unwrap();
    assert_eq!(*told.lock(), ["pass", "sink"]);
}

#[tokio::test(start_paused = true)]
async fn tasks_stop_in_the_order_added_and_outer_tasks_stop_last() {
    let (shutdown, ended) = (Shutdown::manual(), Arc::new(Mutex::new(Vec::new())));
    // The first takes longest: none is asked before the previous one has ended.
    let task = |name, seconds| {
        let ended = Arc::clone(&ended);
        move |stop: Shutdown| async move {
            stop.requested().await;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            ended.lock().push(name);
        }
    };
    let program = Program::new()
        .outer_task("a server", task("server", 0))
        .task("a sink", task("sink", 2))
        .task("an election", task("election", 1));
    shutdown.request();
    program.run(shutdown).await.unwrap();
    assert_eq!(*ended.lock(), ["sink", "election", "server"]);
}

#[tokio::test(start_paused = true)]
async fn a_controller_starts_when_its_own_condition_is_met() {
    let (shutdown, told) = (Shutdown::manual(), Arc::default());
    let slow = Slow(shutdown.clone(), Arc::clone(&told));
    let controller = Controller::new("slow", slow, Options::default());
    controller.handle().queue.add(ObjectKey::new("ns", "a"));
    let (met, condition) = tokio::sync::oneshot::channel::<()>();
    let begun = Arc::clone(&told);
    let program = Program::new().controller_run("slow", |stop| async move {
        condition.await.unwrap();
        controller.run(stop.requested()).await;
    });
    let program = program.task("a clock", |stop| async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        begun.lock().push("met");
        met.send(()).unwrap();
        stop.requested().await;
    });
    program.run(shutdown).await.unwrap();
    assert_eq!(*told.lock(), ["met", "pass"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ends_early_ends_the_program_and_is_named() {
    let shutdown = Shutdown::manual();
    let program = Program::new()
        .task("a sink", |_| async {})
        .task("another", |stop| async move { stop.requested().await });
    let died = program.run(shutdown.clone()).await.unwrap_err();
    assert_eq!(died.to_string(), "a sink died: it ended");
    assert!(shutdown.is_requested());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ends_on_shutdown_is_no_error() {
    // Often enough to meet both orders, whichever of the two is polled first.
    for _ in 0..64 {
        let shutdown = Shutdown::manual();
        let (program, stop) = (Program::new(), shutdown.clone());
        let program = program.task("a sink", |stop| async move { stop.requested().await });
        let slow = Slow(Shutdown::manual(), Arc::default());
        let program = program.controller(Controller::new("idle", slow, Options::default()));
        tokio::spawn(async move { stop.request() });
        program.run(shutdown).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_reported_with_its_task_and_message() {
    let program = Program::new().task("a sink", |_| async { panic!("as the test wants it") });
    let died = program.run(Shutdown::manual()).await.unwrap_err();
    assert_eq!(died.to_string(), "a sink died: it panicked: as the test wants it");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_does_not_stop_is_dropped_after_a_timeout() {
    let (shutdown, (alive, gone)) = (Shutdown::manual(), tokio::sync::oneshot::channel::<()>());
    shutdown.request();
    let program = Program::new().task("a rock", |_| async move {
        let _alive = alive;
        std::future::pending::<()>().await;
    });
    program.run(shutdown).await.unwrap();
    let gone = timeout(Duration::from_secs(1), gone).await;
    assert!(gone.is_ok_and(|gone| gone.is_err()), "it still runs");
}

#[tokio::test(start_paused = true)]
async fn a_program_that_is_dropped_leaves_nothing_running() {
    let (alive, gone) = tokio::sync::oneshot::channel::<()>();
    let program = Program::new().task("a rock", |_| async move {
        let _alive = alive;
        std::future::pending::<()>().await;
    });
    let ran = timeout(Duration::from_secs(1), program.run(Shutdown::manual())).await;
    assert!(ran.is_err(), "it ended by itself");
    let gone = timeout(Duration::from_secs(1), gone).await;
    assert!(gone.is_ok_and(|gone| gone.is_err()), "it still runs");
}

#[tokio::test(start_paused = true)]
async fn two_controllers_of_one_name_are_refused_before_anything_begins() {
    let slow = || Slow(Shutdown::manual(), Arc::default());
    let program = Program::new()
        .controller(Controller::new("foo", slow(), Options::default()))
        .controller_run("foo", |stop| async move { stop.requested().await });
    let shutdown = Shutdown::manual();
    shutdown.request();
    let refused = program.run(shutdown).await.unwrap_err();
    assert!(matches!(refused, ProgramError::SameName("foo")), "{refused}");
    assert!(refused.to_string().contains("two controllers are called \"foo\""), "{refused}");
}

#[test]
fn main_prints_an_error_as_a_sentence() {
    let died = ProgramError::Died { name: "a sink".into(), why: "it ended".into() };
    assert_eq!(format!("{:?}", ExitError::from(died)), "a sink died: it ended");
}
