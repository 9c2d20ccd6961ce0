//! Reconciles that panic, hang or block, and the reconciles next to them.

use std::sync::Arc;

use tokio::time::{Instant, sleep};

use super::{
    Action, Controller, Does, Duration, ErrorClass, MS, ObjectKey, Options, Outcome,
    ReconcileError, Reconciler, SECOND, ScriptState, start,
};

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_panics_is_counted_and_retried_and_its_worker_lives() {
    let running = start(1, &[("p", Does::Panic)]);
    running.add("p");
    running.add("good");
    sleep(MS).await;
    assert_eq!(running.told.ended.lock().as_slice(), ["good"]);
    sleep(100 * MS).await;
    assert!(running.told.passes("p") >= 4);
    assert_eq!(running.told.outcomes.lock().first(), Some(&Outcome::Panicked));
    assert_eq!(running.stop().await.dropped, 0);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_reconcile_is_dropped_at_its_deadline_and_frees_its_worker() {
    for does in [Does::Hang, Does::PanicWhenDropped] {
        let running = start(1, &[("h", does)]);
        running.add("h");
        sleep(MS).await;
        running.add("good");
        sleep(298 * SECOND).await;
        assert!(running.told.ended.lock().is_empty());
        sleep(2 * SECOND).await;
        assert_eq!(running.told.ended.lock().as_slice(), ["good"], "{does:?}");
        sleep(300 * SECOND).await;
        assert!(running.told.passes("h") >= 2, "{does:?} was not retried");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_that_hang_panic_or_fail_do_not_slow_down_other_keys() {
    let bad = [
        Does::Hang,
        Does::Panic,
        Does::Fail(ErrorClass::Transient),
        Does::Fail(ErrorClass::Conflict),
    ];
    let names: Vec<String> = (0..bad.len()).map(|at| format!("bad-{at}")).collect();
    let script: Vec<(&str, Does)> = names.iter().map(String::as_str).zip(bad).collect();
    let running = start(4, &script);
    names.iter().for_each(|name| running.add(name));
    sleep(MS).await;
    let start = Instant::now();
    for round in 0..100 {
        running.told.set(&format!("good-{round}"), Does::Take(10 * MS));
        running.add(&format!("good-{round}"));
    }
    while running.told.ended.lock().len() < 100 {
        sleep(MS).await;
    }
    // Three workers are left: 100 passes of 10 ms take 340 ms.
    assert!(start.elapsed() < 400 * MS, "{:?}", start.elapsed());
}

/// Both keys are due at the same moment: the worker that is woken takes one and wakes another for
/// the other, on its own thread, and then blocks that thread. A third thread keeps the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_blocking_reconcile_does_not_keep_keys_from_idle_workers() {
    let running = start(3, &[("a", Does::Block), ("b", Does::Block)]);
    for name in ["a", "b"] {
        running.handle.queue.requeue_after(ObjectKey::new("ns", name), 20 * MS);
    }
    // This thread does not belong to the runtime: it watches for blocked threads, and can block itself.
    #[allow(clippy::disallowed_methods)]
    let pause = || std::thread::sleep(MS);
    let both = || running.told.began.lock().len() == 2;
    let limit = 20_000;
    let mut waited = 0;
    while !both() && waited < limit {
        pause();
        waited += 1;
    }
    let taken = both();
    running.told.release();
    assert!(taken, "an idle worker takes the other key");
}

#[tokio::test(start_paused = true)]
async fn a_panicking_delay_function_delays_no_key() {
    struct Bad(Arc<ScriptState>);
    impl Reconciler for Bad {
        async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
            self.0.ended.lock().push(key.name().to_string());
            Ok(Action::Done)
        }
        fn delay(&self, _: &ObjectKey) -> Option<Duration> {
            unreachable!("a bug");
        }
    }
    let told = Arc::new(ScriptState::default());
    let options = Options { workers: 1, ..Options::default() };
    let controller = Controller::new("test", Bad(told.clone()), options);
    controller.handle().queue.add(ObjectKey::new("ns", "a"));
    tokio::spawn(controller.run(std::future::pending()));
    sleep(SECOND).await;
    assert_eq!(told.ended.lock().as_slice(), ["a"]);
}
