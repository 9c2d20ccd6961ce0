//! The end of a controller.

use tokio::time::{Instant, sleep, timeout};

use super::{Does, MS, Options, Outcome, SECOND, Summary, start, start_with};

#[tokio::test(start_paused = true)]
async fn at_shutdown_running_reconciles_end_and_no_other_begins() {
    let running = start(2, &[("a", Does::Take(6 * SECOND)), ("b", Does::Take(12 * SECOND))]);
    for name in ["a", "b", "c", "d"] {
        running.add(name);
    }
    sleep(SECOND).await;
    let (told, start) = (running.told.clone(), Instant::now());
    let summary = running.stop().await;
    assert_eq!(told.ended.lock().as_slice(), ["a", "b"]);
    assert_eq!(summary, Summary { reconciles: 2, dropped: 0, stuck: 0 });
    assert_eq!(start.elapsed().as_secs(), 11);
}

#[tokio::test(start_paused = true)]
async fn shutdown_drops_a_reconcile_that_does_not_end_in_time() {
    let running = start(2, &[("h", Does::Hang), ("a", Does::Take(10 * SECOND))]);
    running.add("h");
    running.add("a");
    sleep(SECOND).await;
    let (told, start) = (running.told.clone(), Instant::now());
    let summary = timeout(60 * SECOND, running.stop()).await.unwrap();
    assert_eq!(summary, Summary { reconciles: 1, dropped: 1, stuck: 0 });
    assert_eq!(start.elapsed().as_secs(), 15);
    assert!(told.outcomes.lock().contains(&Outcome::Dropped));
}

#[tokio::test(start_paused = true)]
async fn an_idle_controller_stops_at_once() {
    let running = start(4, &[]);
    let start = Instant::now();
    running.stop().await;
    assert!(start.elapsed() < 10 * MS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_abandons_and_reports_a_reconcile_that_blocks_its_thread() {
    let options = Options { workers: 2, drain: MS, ..Options::default() };
    let running = start_with(options, &[("b", Does::Block)]);
    running.add("b");
    while running.told.passes("b") == 0 {
        sleep(MS).await;
    }
    let told = running.told.clone();
    assert_eq!(running.stop().await, Summary { reconciles: 0, dropped: 0, stuck: 1 });
    told.release();
}
