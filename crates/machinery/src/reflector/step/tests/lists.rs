//! Streaming lists and pages: the choice between them, rejected lists, and the step after a failure.

use super::*;

#[test]
fn the_first_list_streams_the_newest_state() {
    let run = Run::new().then(Input::Start);
    assert!(run.watch().initial_events && run.watch().version.is_none());
    let run = run.then(Input::Opened).then(event(7)).then(end_of_list("9"));
    assert!(run.has(&Action::Commit(at(9))));
    assert_eq!(run.machine.state, State::Live);
}

#[test]
fn a_server_without_streaming_lists_is_remembered_and_paged() {
    let run = Run::paging();
    assert_eq!(run.page().limit, Some(PAGE));
    let run = run.then(page_end("9", None)).then(Input::Opened).then(failed(Class::Expired));
    assert_eq!(run.page().not_older_than.as_deref(), Some("9"));
}

#[test]
fn a_streaming_list_without_its_bookmark_falls_back_to_pages() {
    let run = Run::new().then(Input::Start).then(Input::Opened).then(event(5)).at_deadline();
    assert!(run.has(&Action::Abandon));
    assert_eq!(run.page().limit, Some(PAGE));
}

#[test]
fn events_do_not_keep_a_streaming_list_alive_indefinitely() {
    let mut run = Run::new().then(Input::Start).then(Input::Opened);
    let began = run.now;
    while run.machine.is_staging() && run.now - began < Duration::from_secs(600) {
        run = run.after(Duration::from_secs(1)).then(event(5));
        if run.machine.deadline().unwrap() <= run.now {
            run = run.then(Input::Deadline);
            assert_eq!(run.page().limit, Some(PAGE));
            return;
        }
    }
    panic!("it was kept alive");
}

#[test]
fn delayed_streaming_lists_fall_back_to_pages() {
    for by_client in [true, false] {
        let unanswered = |run: Run| {
            if by_client { run.then(failed(Class::Unanswered)) } else { run.at_deadline() }
        };
        let mut run = Run::new().then(Input::Start);
        for _ in 1..STREAMS_CUT {
            run = unanswered(run);
            assert!(run.wait() >= Duration::from_millis(800));
            run = run.at_deadline();
            assert!(run.watch().initial_events);
        }
        assert_eq!(unanswered(run).page().limit, Some(PAGE));
    }
}

#[test]
fn an_unserved_kind_is_retried_every_few_seconds() {
    let mut run = Run::new().then(Input::Start);
    for _ in 0..100 {
        run = run.then(failed(Class::NotServed));
        assert!(run.wait() < Duration::from_secs(4), "{:?}", run.wait());
        run = run.at_deadline();
    }
}

#[test]
fn a_list_has_the_version_of_its_first_page() {
    let run = Run::paging().then(page_end("9", Some("t")));
    assert_eq!(run.page().continue_token.as_deref(), Some("t"));
    assert_eq!(run.page().not_older_than, None, "a token carries its own version");
    let run = run.then(page_end("12", None));
    assert!(run.has(&Action::Commit(at(9))));
    assert_eq!(run.watch().version.as_deref(), Some("9"));
}

#[test]
fn an_expired_token_restarts_the_list_in_one_page() {
    let run = Run::paging().then(page_end("9", Some("t"))).then(failed(Class::Expired));
    assert!(run.has(&Action::Abandon), "it counts as a list that broke off");
    assert_eq!((run.page().limit, run.page().continue_token), (None, None));
    assert!(run.has(&Action::Begin(Reason::Expired)));
    let run = run.then(failed(Class::Expired));
    assert!(run.wait() >= Duration::from_millis(800), "no loop without a wait");
}

#[test]
fn a_list_older_than_the_store_is_rejected() {
    let run = Run::watching().then(failed(Class::Expired)).then(Input::Opened);
    let run = run.then(end_of_list("9"));
    assert!(run.has(&Action::Abandon) && !run.has(&Action::Commit(at(9))));
    assert!(run.wait() >= Duration::from_millis(800));
    let run = run.at_deadline().then(Input::Opened).then(end_of_list("10"));
    assert!(run.has(&Action::Commit(at(10))), "the same age will do");
}

#[test]
fn a_lagging_server_is_accepted_after_it_has_caught_up() {
    let run = Run::watching().then(bookmark("9"));
    assert_eq!(run.machine.state, State::Stale, "it says nothing of what happens up to 10");
    let run = run.at_deadline();
    assert_eq!(run.watch().version, None);
    let run = run.then(Input::Opened).then(end_of_list("11"));
    assert!(run.has(&Action::Commit(at(11))));
    assert_eq!(run.machine.state, State::Live);
}

#[test]
fn a_server_with_a_regressed_history_ends_the_reflector() {
    let mut run = Run::watching().then(bookmark("9"));
    let end = ResourceVersionRegressed { held: "10".to_owned(), at: "9".to_owned() };
    for answer in 1..=REWOUND {
        assert!(!run.has(&Action::End(end.clone())), "after {answer} answers");
        run = run.at_deadline().then(Input::Opened).then(end_of_list("9"));
    }
    assert!(run.has(&Action::End(end)));
    assert_eq!(run.machine.held(), ResourceVersion::new(10), "the view does not go back");
}

#[test]
fn only_lists_without_a_bound_prove_a_regression() {
    let mut run = Run::watching().then(failed(Class::Expired));
    assert_eq!(run.watch().version.as_deref(), Some("10"));
    let ended = |run: &Run| run.actions.iter().any(|action| matches!(action, Action::End(_)));
    for _ in 0..REWOUND {
        run = run.then(Input::Opened).then(end_of_list("9"));
        assert!(!ended(&run));
        run = run.at_deadline();
        assert_eq!(run.watch().version, None);
    }
    assert!(ended(&run.then(Input::Opened).then(end_of_list("9"))));
}

#[test]
fn a_refresh_detects_a_regressed_history() {
    let mut run = Run::watching().then(Input::Refresh);
    for _ in 0..REWOUND - 1 {
        run = run.then(Input::Opened).then(end_of_list("9")).at_deadline();
        assert_eq!(run.watch().version, None);
    }
    let run = run.then(Input::Opened).then(end_of_list("9"));
    assert!(run.actions.iter().any(|action| matches!(action, Action::End(_))), "{:?}", run.actions);
}

#[test]
fn a_refresh_honours_retry_after() {
    let mut later = Failure::transient("too many requests");
    later.retry_after = Some(Duration::from_secs(60));
    let run = Run::watching().then(failed(Class::Expired)).then(Input::Failed(later));
    let run = run.then(Input::Refresh);
    assert!(run.actions.is_empty() && run.pause() >= Duration::from_secs(59), "{:?}", run.actions);
    assert_eq!(run.at_deadline().watch().version, None, "it is of the newest state");
}

#[test]
fn a_list_without_a_version_is_rejected() {
    for version in ["", "0"] {
        let run = Run::paging().then(page_end(version, None));
        assert!(run.has(&Action::Abandon), "{version:?}");
    }
}

#[test]
fn five_lagging_responses_drop_the_bound_but_not_the_check() {
    let mut run = Run::watching().after(SHORT).then(failed(Class::Expired));
    for _ in 1..STREAMS_CUT {
        assert_eq!(run.watch().version.as_deref(), Some("10"));
        run = run.then(failed(Class::ServerBehind)).at_deadline();
    }
    run = run.then(failed(Class::ServerBehind));
    for _ in STREAMS_CUT..=TOO_LARGE {
        assert_eq!(run.page().not_older_than.as_deref(), Some("10"));
        run = run.then(failed(Class::ServerBehind)).at_deadline();
    }
    assert_eq!(run.page().not_older_than, None);
    assert!(run.then(page_end("9", None)).has(&Action::Abandon));
}

#[test]
fn interrupted_streaming_lists_fall_back_to_pages() {
    for over in [|| failed(Class::Transient), || Input::Ended] {
        let mut run = Run::new().then(Input::Start).then(Input::Opened);
        for _ in 1..STREAMS_CUT {
            run = run.then(over()).at_deadline().then(Input::Opened);
        }
        assert_eq!(run.then(over()).page().limit, Some(PAGE));
    }
}

/// kube-apiserver answers every streaming list with an ERROR frame with code 500 if its etcd is too
/// old for them, and with one saying "too large resource version" while its watch cache lags.
#[test]
fn streaming_lists_that_always_fail_fall_back_to_pages() {
    for class in [Class::Internal, Class::ServerBehind] {
        for opened in [true, false] {
            let open = |run: Run| if opened { run.then(Input::Opened) } else { run };
            let mut run = open(Run::new().then(Input::Start));
            for _ in 1..STREAMS_CUT {
                run = open(run.then(failed(class)).at_deadline());
            }
            assert_eq!(run.then(failed(class)).page().limit, Some(PAGE), "{class:?}");
        }
    }
}

#[test]
fn a_fallback_to_pages_honours_retry_after() {
    let pause = Duration::from_secs(60);
    for class in [Class::Transient, Class::Internal, Class::ServerBehind, Class::Refused] {
        let asked = || {
            Input::Failed(Failure {
                class,
                is_answered: true,
                retry_after: Some(pause),
                why: "later".to_owned(),
            })
        };
        let mut run = Run::new().then(Input::Start);
        let tries = if class == Class::Refused { 1 } else { STREAMS_CUT };
        for _ in 0..tries {
            assert!(run.watch().initial_events, "{class:?}");
            run = run.then(Input::Opened).then(asked());
            assert!(run.has(&Action::Abandon) && run.wait() >= pause, "{class:?}");
            run = run.at_deadline();
        }
        assert_eq!(run.page().limit, Some(PAGE), "{class:?}");
    }
}

#[test]
fn a_list_that_is_not_accepted_keeps_streaming_enabled() {
    for class in [Class::Forbidden, Class::NotServed, Class::Expired, Class::Transient] {
        let mut run = Run::new().then(Input::Start);
        for _ in 0..2 * STREAMS_CUT {
            run = run.then(failed(class)).at_deadline();
            assert!(run.watch().initial_events, "{class:?}");
        }
    }
}

#[test]
fn a_refresh_requests_the_newest_state_on_every_attempt() {
    let run = Run::watching().then(Input::Opened).then(Input::Refresh);
    assert!(run.watch().initial_events && run.watch().version.is_none(), "no cache may answer");
    let run = run.then(failed(Class::Transient)).at_deadline();
    assert!(run.watch().version.is_none(), "nor at the next attempt");
    let run = run.then(refused());
    assert_eq!(run.page().not_older_than, None, "nor in pages");
    let run = run.then(page_end("20", None)).then(Input::Opened).then(failed(Class::Expired));
    assert_eq!(run.page().not_older_than.as_deref(), Some("20"), "afterwards as before");
}

#[test]
fn the_watch_continues_after_a_failed_refresh() {
    let run = Run::watching().then(Input::Refresh);
    assert!(run.watch().initial_events);
    let run = run.then(failed(Class::Transient));
    assert!(run.has(&Action::Abandon));
    assert!(!run.watch().initial_events, "the view is complete up to its version");
    assert_eq!(run.watch().version.as_deref(), Some("10"));
    let run = run.then(Input::Opened).then(event(11));
    assert_eq!(run.machine.held(), ResourceVersion::new(11));
    let run = run.at_deadline();
    assert!(run.watch().initial_events, "and the list is tried again");
    let run = run.then(Input::Opened).then(end_of_list("12"));
    assert_eq!(run.pause(), IDLE, "once");
}

#[test]
fn the_first_response_after_an_outage_starts_the_backoff_over() {
    let mut run = Run::watching();
    for _ in 0..8 {
        run = run.then(unreachable()).at_deadline();
    }
    let run = run.then(failed(Class::Transient));
    assert!(run.wait() < Duration::from_secs(2), "{:?}", run.wait());
}

#[test]
fn a_refresh_that_breaks_off_falls_back_to_pages_although_the_watch_works() {
    let mut run = Run::watching().then(Input::Refresh);
    for version in 11..10 + u64::from(STREAMS_CUT) {
        run = run.then(Input::Opened).then(failed(Class::Transient));
        assert_eq!(run.machine.state, State::Stale);
        run = run.then(Input::Opened).then(event(version)).at_deadline();
        assert!(run.watch().initial_events);
    }
    let run = run.then(Input::Opened).then(failed(Class::Transient));
    assert_eq!(run.page().limit, Some(PAGE));
}
