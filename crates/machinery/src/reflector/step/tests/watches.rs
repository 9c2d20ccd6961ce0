//! Watches: from where they go on, and how they and their failures end.

use super::*;

#[test]
fn synthetic_events_do_not_move_the_version() {
    let run = Run::new().then(Input::Start).then(Input::Opened).then(event(70));
    assert!(!run.machine.held().is_known());
}

#[test]
fn a_normal_end_resumes_the_watch_at_once() {
    let run = Run::watching().then(event(12)).then(bookmark("15")).then(Input::Ended);
    assert_eq!(run.watch().version.as_deref(), Some("15"));
    assert!(!run.watch().initial_events);
    assert_eq!(run.machine.state, State::Live);
}

#[test]
fn the_version_never_moves_back() {
    let run = Run::watching().then(event(12)).then(event(11)).then(bookmark("3"));
    assert_eq!(run.machine.held(), ResourceVersion::new(12));
    assert!(!run.machine.is_news(ResourceVersion::new(12)));
    assert!(run.machine.is_news(ResourceVersion::new(13)));
}

#[test]
fn a_late_visible_object_causes_a_list_after_a_growing_wait() {
    let late = || Input::OutOfOrder(ResourceVersion::new(7));
    let mut run = Run::watching().then(late());
    let mut waits = Vec::new();
    for _ in 0..4 {
        waits.push(run.wait());
        run = run.at_deadline();
        assert_eq!(run.watch().version.as_deref(), Some("10"));
        run = run.then(Input::Opened).then(end_of_list("10")).then(late());
    }
    assert!(waits[0] >= Duration::from_millis(800) && waits[3] > 3 * waits[0], "{waits:?}");
}

#[test]
fn a_watch_that_ends_at_once_without_progress_is_a_failure() {
    let run = Run::watching().then(Input::Ended).then(Input::Opened).then(event(10));
    let run = run.then(Input::Ended);
    assert!(run.has(&Action::ShortWatch) && run.wait() >= Duration::from_millis(800));
    let long = Run::watching().then(Input::Ended).then(Input::Opened);
    assert!(!long.after(SHORT).then(Input::Ended).has(&Action::ShortWatch));
}

#[test]
fn a_broken_watch_resumes_from_the_same_version() {
    let run = Run::watching().then(failed(Class::Transient));
    assert_eq!(run.machine.state, State::Stale);
    let run = run.at_deadline();
    assert_eq!(run.watch().version.as_deref(), Some("10"));
    assert!(!run.watch().initial_events);
    assert_eq!(run.then(Input::Opened).machine.state, State::Live);
}

#[test]
fn a_watch_that_was_cut_after_a_while_resumes_at_once() {
    let run = Run::watching().after(SHORT).then(failed(Class::Transient));
    assert_eq!(run.watch().version.as_deref(), Some("10"));
    assert_eq!(run.machine.state, State::Live, "nothing was missed for long");
    let run = run.then(failed(Class::Transient));
    assert_eq!(run.machine.state, State::Stale, "the server did not accept the next one");
    assert!(run.wait() >= Duration::from_millis(800));
}

#[test]
fn an_expired_version_causes_a_list_not_older_than_the_store() {
    let run = Run::watching().after(SHORT).then(failed(Class::Expired));
    assert!(run.has(&Action::Begin(Reason::Expired)));
    assert!(run.watch().initial_events);
    assert_eq!(run.watch().version.as_deref(), Some("10"));
}

/// A machine whose watch has failed so often that it waits for a long time.
fn weary() -> Run {
    let mut run = Run::watching();
    for _ in 0..6 {
        run = run.then(failed(Class::Transient)).at_deadline().then(Input::Opened);
    }
    run
}

#[test]
fn an_expired_version_is_not_a_failure_even_after_many_failures() {
    let run = weary().then(failed(Class::Expired));
    assert!(run.has(&Action::Begin(Reason::Expired)), "{:?}", run.actions);
    assert!(run.watch().initial_events);
}

#[test]
fn watches_that_expire_after_every_list_back_off() {
    let again =
        |run: Run| run.then(Input::Opened).then(end_of_list("10")).then(failed(Class::Expired));
    let mut run = again(Run::watching().then(failed(Class::Expired)));
    let mut waits = vec![run.wait()];
    for _ in 0..4 {
        run = again(run.at_deadline());
        waits.push(run.wait());
    }
    assert!(waits[4] > waits[0] * 4, "{waits:?}");
    let mut paged = Run::paging().then(page_end("9", None)).then(Input::Opened);
    for _ in 0..2 {
        paged = paged.then(failed(Class::Expired));
        if matches!(paged.actions.last(), Some(Action::Wait)) {
            return;
        }
        paged = paged.then(page_end("9", None)).then(Input::Opened);
    }
    panic!("the second list followed the first at once");
}

#[test]
fn new_events_reset_the_backoff_and_repeated_events_do_not() {
    let wait = |run: Run| run.then(failed(Class::Transient)).wait();
    assert!(wait(weary()) > Duration::from_secs(10));
    assert!(wait(weary().then(event(11))) < Duration::from_millis(1600));
    assert!(wait(weary().then(bookmark("11"))) < Duration::from_millis(1600));
    assert!(wait(weary().then(event(10)).then(bookmark("10"))) > Duration::from_secs(10));
}

#[test]
fn forbidden_and_not_served_keep_the_view_until_a_list_succeeds() {
    for (class, state) in
        [(Class::Forbidden, State::Forbidden), (Class::NotServed, State::NotServed)]
    {
        let run = Run::watching().then(failed(class));
        assert_eq!(run.machine.state, state);
        assert!(!run.actions.iter().any(|action| matches!(action, Action::Commit(_))));
        let run = run.at_deadline();
        assert!(run.has(&Action::Begin(Reason::Healed)));
        let run = run.then(failed(Class::Transient));
        assert_eq!(run.machine.state, state, "what a person must mend stays in sight");
        let run = run.at_deadline().then(Input::Opened).then(end_of_list("11"));
        assert_eq!(run.machine.state, State::Live);
    }
}

#[test]
fn a_returning_server_ends_the_wait_and_resets_the_backoff() {
    let mut run = Run::watching();
    for _ in 0..8 {
        run = run.then(failed(Class::Transient)).at_deadline();
    }
    let run = run.then(failed(Class::Transient));
    assert!(run.wait() >= Duration::from_secs(15));
    let run = run.then(Input::Returned);
    assert!(run.pause() <= Duration::from_secs(1));
    let run = run.at_deadline().then(failed(Class::Transient));
    assert!(run.wait() < Duration::from_secs(2));
}

#[test]
fn a_retry_after_is_kept_when_the_server_returns() {
    let asked = Failure { retry_after: Some(Duration::from_secs(60)), ..Failure::transient("429") };
    let run = Run::watching().then(Input::Failed(asked)).then(Input::Returned);
    assert!(run.pause() >= Duration::from_secs(60));
}

#[test]
fn a_version_at_which_watches_keep_failing_causes_a_list() {
    let mut run = Run::watching();
    for _ in 1..STUCK {
        run = run.then(failed(Class::Internal)).at_deadline().then(Input::Opened);
    }
    let run = run.then(failed(Class::Internal)).at_deadline();
    assert!(run.has(&Action::Begin(Reason::Stuck)));
}

#[test]
fn a_kind_whose_watches_deliver_nothing_is_listed_periodically() {
    let ends_at_once = |run: Run| run.then(Input::Opened).then(Input::Ended);
    let is_held_back = |run: Run| run.then(failed(Class::Unanswered));
    for fails in [ends_at_once, is_held_back] {
        let mut run = Run::watching().after(SHORT).then(Input::Ended);
        for _ in 1..STUCK {
            run = fails(run).at_deadline();
            assert_eq!(run.watch().version.as_deref(), Some("10"));
        }
        let run = fails(run).at_deadline();
        assert!(run.has(&Action::Begin(Reason::Stuck)));
        let run = run.then(refused()).then(page_end("10", None));
        let run = fails(run).at_deadline();
        assert!(run.has(&Action::Begin(Reason::Stuck)), "as long as none does");
        let run = run.then(page_end("10", None)).then(Input::Opened).then(event(11));
        let run = fails(run.then(failed(Class::Transient)).at_deadline()).at_deadline();
        assert_eq!(run.watch().version.as_deref(), Some("11"));
    }
}

#[test]
fn watch_timeouts_are_spread_between_two_and_four_minutes() {
    let timeouts: std::collections::BTreeSet<_> = (0..50)
        .map(|seed| {
            let rng = fastrand::Rng::with_seed(seed);
            Machine::new(rng, Instant::now()).timeout(TIMEOUT)
        })
        .collect();
    assert!(timeouts.len() > 25, "{timeouts:?}");
    assert!(timeouts.iter().all(|t| TIMEOUT.contains(&t.as_secs())));
}
