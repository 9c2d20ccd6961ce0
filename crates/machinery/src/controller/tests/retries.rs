//! Consequences of the outcome of a reconcile.

use tokio::time::sleep;

use super::{Does, ErrorClass, MS, Options, SECOND, child, start, start_with};
use crate::client::ApiServerHealth;

#[tokio::test(start_paused = true)]
async fn a_conflict_is_retried_soon_and_less_often_if_it_persists() {
    let running = start(1, &[("c", Does::Fail(ErrorClass::Conflict))]);
    running.add("c");
    sleep(3600 * SECOND).await;
    let gaps = running.told.gaps("c");
    assert!(gaps[..9].iter().all(|gap| *gap <= 1002), "{gaps:?}");
    assert!(gaps.len() > 110 && gaps.len() < 150, "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap <= 30_002), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_key_is_retried_slowly_and_heals_within_two_minutes() {
    let running = start(1, &[("f", Does::Fail(ErrorClass::Forbidden))]);
    running.add("f");
    sleep(3600 * SECOND).await;
    let gaps = running.told.gaps("f");
    assert!(gaps[0] >= 1000, "the first retry came after {} ms", gaps[0]);
    assert!(gaps.len() > 30 && gaps.iter().all(|gap| *gap <= 120_002));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_retried_within_half_a_minute() {
    let running = start(1, &[("n", Does::Fail(ErrorClass::NotServed))]);
    running.add("n");
    sleep(3600 * SECOND).await;
    let gaps = running.told.gaps("n");
    assert!(gaps[0] >= 1000 && gaps[3] >= 8000, "{gaps:?}");
    assert!(gaps.len() > 100 && gaps.iter().all(|gap| *gap <= 30_002), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn other_failures_do_not_reset_the_backoff_of_refusals() {
    use ErrorClass::{Conflict, Forbidden, Transient};
    let running = start(1, &[("f", Does::Fail(Forbidden))]);
    running.add("f");
    for class in [Transient, Forbidden, Conflict, Forbidden].into_iter().cycle().take(24) {
        let before = running.told.passes("f");
        running.told.set("f", Does::Fail(class));
        while running.told.passes("f") == before {
            sleep(100 * MS).await;
        }
    }
    assert!(running.told.gaps("f").into_iter().max() > Some(100_000));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_an_outage_has_the_backoff_of_a_first_one() {
    let running = start(1, &[("f", Does::Fail(ErrorClass::Transient))]);
    running.add("f");
    sleep(20 * SECOND).await;
    running.told.set("f", Does::Fail(ErrorClass::Forbidden));
    let before = running.told.passes("f");
    while running.told.passes("f") == before {
        sleep(MS).await;
    }
    sleep(1500 * MS).await;
    assert_eq!(running.told.passes("f"), before + 2, "one second after the first refusal");
}

#[tokio::test(start_paused = true)]
async fn other_failures_between_two_refusals_do_not_make_the_second_wait_longer() {
    let running = start(1, &[("f", Does::Fail(ErrorClass::Forbidden))]);
    running.add("f");
    sleep(MS).await;
    running.told.set("f", Does::Fail(ErrorClass::Transient));
    sleep(60 * SECOND).await;
    running.told.set("f", Does::Fail(ErrorClass::Forbidden));
    let before = running.told.passes("f");
    while running.told.passes("f") == before {
        sleep(MS).await;
    }
    sleep(2500 * MS).await;
    assert_eq!(running.told.passes("f"), before + 2, "two seconds after the second refusal");
}

#[tokio::test(start_paused = true)]
async fn a_free_name_enqueues_only_the_keys_that_wait_for_it() {
    let script = [
        ("x", Does::Wait("child")),
        ("y", Does::Wait("other")),
        ("z", Does::Fail(ErrorClass::Forbidden)),
    ];
    let running = start(1, &script);
    script.iter().for_each(|(name, _)| running.add(name));
    sleep(600 * SECOND).await;
    script.iter().for_each(|(name, _)| running.told.set(name, Does::Succeed));
    running.handle.wake_waiting(&child("child"));
    sleep(MS).await;
    assert_eq!(running.told.ended.lock().as_slice(), ["x"]);
    running.handle.wake_waiting(&child("child"));
    sleep(MS).await;
    assert_eq!(running.told.ended.lock().len(), 1, "a key that is well was woken");
}

#[tokio::test(start_paused = true)]
async fn a_name_freed_during_the_reconcile_that_needs_it_is_not_missed() {
    let running = start(1, &[("x", Does::WaitAfter(SECOND, "child"))]);
    running.add("x");
    sleep(SECOND / 2).await;
    running.handle.wake_waiting(&child("child"));
    sleep(SECOND / 2 + 100 * MS).await;
    assert_eq!(running.told.passes("x"), 2, "at once, not after a second");
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_failed_keys_are_retried_at_once_without_their_streak() {
    let api_server_health = ApiServerHealth::default();
    let options = Options {
        workers: 1,
        api_server_health: Some(api_server_health.clone()),
        ..Options::default()
    };
    let script = [
        ("away", Does::Fail(ErrorClass::Transient)),
        ("asked", Does::Refuse(120 * SECOND)),
        ("forbidden", Does::Fail(ErrorClass::Forbidden)),
    ];
    let running = start_with(options, &script);
    for (name, _) in script {
        running.add(name);
        // Long enough for its pauses to grow, and into the middle of one.
        sleep(45 * SECOND).await;
    }
    api_server_health.failed();
    sleep(6 * SECOND).await;
    let passes = |name| running.told.passes(name);
    let before = script.map(|(name, _)| passes(name));
    api_server_health.responded(200);
    sleep(MS).await;
    assert_eq!(script.map(|(name, _)| passes(name)), [before[0] + 1, before[1], before[2]]);
    sleep(200 * MS).await;
    assert!(passes("away") > before[0] + 4, "5, 10, 20 … ms");
}

/// A short Retry-After late in an outage used to hold the key for the whole pause.
#[tokio::test(start_paused = true)]
async fn the_end_of_an_outage_shortens_a_backoff_to_the_retry_after() {
    let api_server_health = ApiServerHealth::default();
    let options = Options {
        workers: 1,
        api_server_health: Some(api_server_health.clone()),
        ..Options::default()
    };
    let running = start_with(options, &[("r", Does::Fail(ErrorClass::Transient))]);
    running.add("r");
    sleep(60 * SECOND).await;
    api_server_health.failed();
    running.told.set("r", Does::Refuse(10 * SECOND));
    let before = running.told.passes("r");
    while running.told.passes("r") == before {
        sleep(MS).await;
    }
    running.told.set("r", Does::Succeed);
    sleep(5 * SECOND).await;
    api_server_health.responded(200);
    sleep(4900 * MS).await;
    assert_eq!(running.told.passes("r"), before + 1, "it asked for ten seconds");
    running.add("r");
    sleep(50 * MS).await;
    assert_eq!(running.told.passes("r"), before + 1, "a change does not cut them short");
    sleep(100 * MS).await;
    assert_eq!(running.told.passes("r"), before + 2, "and not for the pause of 30 s");
}

#[tokio::test(start_paused = true)]
async fn a_terminal_error_is_not_retried_until_the_object_changes() {
    let running = start(1, &[("t", Does::Fail(ErrorClass::Terminal))]);
    running.add("t");
    sleep(3600 * SECOND).await;
    assert_eq!(running.told.passes("t"), 1);
    running.add("t");
    sleep(SECOND).await;
    assert_eq!(running.told.passes("t"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_known_pause_ends_when_the_object_changes() {
    let running = start(1, &[("p", Does::Pause(30 * SECOND))]);
    running.add("p");
    sleep(SECOND).await;
    assert_eq!(running.told.passes("p"), 1);
    running.add("p");
    sleep(SECOND).await;
    assert_eq!(running.told.passes("p"), 2, "the change waited for the pause");
    running.told.set("p", Does::Succeed);
    sleep(33 * SECOND).await;
    assert_eq!(running.told.passes("p"), 3, "it is tried again after the pause");
}

#[tokio::test(start_paused = true)]
async fn the_last_reconcile_replaces_the_timer_of_the_former_one() {
    let running = start(1, &[("a", Does::Again(100 * SECOND))]);
    running.add("a");
    sleep(SECOND).await;
    assert_eq!(running.told.passes("a"), 1);
    running.told.set("a", Does::Succeed);
    running.add("a");
    sleep(1000 * SECOND).await;
    assert_eq!(running.told.passes("a"), 2, "the timer of the former reconcile was not cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_failure_before_a_requeue_is_due_counts_as_the_first() {
    let running = start(1, &[("a", Does::Again(100 * SECOND))]);
    running.add("a");
    sleep(SECOND).await;
    running.told.set("a", Does::Fail(ErrorClass::Transient));
    running.add("a");
    sleep(60 * SECOND).await;
    assert_eq!(running.told.gaps("a")[1..4], [5, 10, 20]);
}

#[tokio::test(start_paused = true)]
async fn requeue_after_zero_does_not_busy_loop() {
    let running = start(1, &[("a", Does::Again(std::time::Duration::ZERO))]);
    running.add("a");
    sleep(10 * SECOND).await;
    let passes = running.told.passes("a");
    assert!((80..=101).contains(&passes), "{passes}");
}

#[tokio::test(start_paused = true)]
async fn requeue_after_adds_at_most_a_tenth_and_at_most_a_minute() {
    for (seconds, most) in [(100, 10_001), (86_400, 60_001)] {
        let running = start(1, &[("a", Does::Again(seconds * SECOND))]);
        running.add("a");
        sleep(10 * seconds * SECOND).await;
        let (gaps, least) = (running.told.gaps("a"), u128::from(seconds) * 1000);
        let late: Vec<_> = gaps.iter().map(|gap| gap.saturating_sub(least)).collect();
        assert!(late.len() >= 9 && late.iter().all(|late| *late <= most), "{gaps:?}");
        assert!(late.iter().any(|late| *late > 1), "no jitter in {gaps:?}");
    }
}
