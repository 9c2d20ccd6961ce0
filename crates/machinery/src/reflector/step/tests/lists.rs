//! Streaming lists and pages: which is asked for, what is refused, and what comes after a failure.

use super::*;

#[test]
fn the_first_list_is_a_streaming_one_of_the_newest_state() {
    let run = Run::new().then(Input::Start);
    assert!(run.watch().initial_events && run.watch().version.is_none());
    let run = run.then(Input::Opened).then(event(7)).then(end_of_list("9"));
    assert!(run.has(&Action::Commit(at(9))));
    assert_eq!(run.machine.state, State::Live);
}

#[test]
fn a_server_without_streaming_lists_is_asked_for_pages_and_not_bothered_again() {
    let run = Run::paging();
    assert_eq!(run.page().limit, Some(PAGE));
    let run = run.then(page_end("9", None)).then(Input::Opened).then(failed(Class::Expired));
    assert_eq!(run.page().not_older_than.as_deref(), Some("9"));
}

#[test]
fn a_streaming_list_without_its_bookmark_is_given_up_for_pages() {
    let run = Run::new().then(Input::Start).then(Input::Opened).then(event(5)).at_deadline();
    assert!(run.has(&Action::Abandon));
    assert_eq!(run.page().limit, Some(PAGE));
}

#[test]
fn events_do_not_keep_a_streaming_list_alive_for_ever() {
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
fn streaming_lists_that_are_held_back_give_way_to_pages() {
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
fn a_kind_that_is_not_served_is_asked_for_every_few_seconds_however_long() {
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
fn an_expired_token_starts_the_list_once_more_in_one_page() {
    let run = Run::paging().then(page_end("9", Some("t"))).then(failed(Class::Expired));
    assert!(run.has(&Action::Abandon), "it counts as a list that broke off");
    assert_eq!((run.page().limit, run.page().continue_token), (None, None));
    assert!(run.has(&Action::Begin(Reason::Expired)));
    let run = run.then(failed(Class::Expired));
    assert!(run.wait() >= Duration::from_millis(800), "no loop without a wait");
}

#[test]
fn an_answer_older_than_what_is_held_is_refused() {
    let run = Run::watching().then(failed(Class::Expired)).then(Input::Opened);
    let run = run.then(end_of_list("9"));
    assert!(run.has(&Action::Abandon) && !run.has(&Action::Commit(at(9))));
    assert!(run.wait() >= Duration::from_millis(800));
    let run = run.at_deadline().then(Input::Opened).then(end_of_list("10"));
    assert!(run.has(&Action::Commit(at(10))), "the same age will do");
}

#[test]
fn a_server_that_is_in_the_past_is_asked_for_the_newest_and_believed_once_it_has_caught_up() {
    let run = Run::watching().then(bookmark("9"));
    assert_eq!(run.machine.state, State::Stale, "it says nothing of what happens up to 10");
    let run = run.at_deadline();
    assert_eq!(run.watch().version, None);
    let run = run.then(Input::Opened).then(end_of_list("11"));
    assert!(run.has(&Action::Commit(at(11))));
    assert_eq!(run.machine.state, State::Live);
}

#[test]
fn a_server_whose_newest_is_older_than_what_is_held_has_lost_its_history_and_this_is_the_end() {
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
fn an_old_answer_to_a_list_with_a_bound_is_no_proof_but_those_without_are() {
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
fn a_refresh_notices_that_the_history_is_lost() {
    let mut run = Run::watching().then(Input::Refresh);
    for _ in 0..REWOUND - 1 {
        run = run.then(Input::Opened).then(end_of_list("9")).at_deadline();
        assert_eq!(run.watch().version, None);
    }
    let run = run.then(Input::Opened).then(end_of_list("9"));
    assert!(run.actions.iter().any(|action| matches!(action, Action::End(_))), "{:?}", run.actions);
}

#[test]
fn a_refresh_waits_for_as_long_as_the_server_asked() {
    let mut later = Failure::transient("too many requests");
    later.retry_after = Some(Duration::from_secs(60));
    let run = Run::watching().then(failed(Class::Expired)).then(Input::Failed(later));
    let run = run.then(Input::Refresh);
    assert!(run.actions.is_empty() && run.pause() >= Duration::from_secs(59), "{:?}", run.actions);
    assert_eq!(run.at_deadline().watch().version, None, "it is of the newest state");
}

#[test]
fn a_list_without_a_version_is_refused() {
    for version in ["", "0"] {
        let run = Run::paging().then(page_end(version, None));
        assert!(run.has(&Action::Abandon), "{version:?}");
    }
}

#[test]
fn after_five_lags_the_bound_is_dropped_and_the_answer_still_checked() {
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
fn streaming_lists_that_always_break_off_give_way_to_pages() {
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
fn streaming_lists_that_are_always_answered_with_an_error_give_way_to_pages() {
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
fn pages_that_take_over_from_streaming_lists_wait_for_as_long_as_the_server_asked() {
    let pause = Duration::from_secs(60);
    for class in [Class::Transient, Class::Internal, Class::ServerBehind, Class::Refused] {
        let asked =
            || Input::Failed(Failure { class, retry_after: Some(pause), why: "later".to_owned() });
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
fn a_list_that_is_not_accepted_says_nothing_of_streaming_lists() {
    for class in [Class::Forbidden, Class::NotServed, Class::Expired, Class::Transient] {
        let mut run = Run::new().then(Input::Start);
        for _ in 0..2 * STREAMS_CUT {
            run = run.then(failed(class)).at_deadline();
            assert!(run.watch().initial_events, "{class:?}");
        }
    }
}

#[test]
fn a_refresh_lists_what_the_server_has_now_whatever_becomes_of_the_first_attempt() {
    let run = Run::watching().then(Input::Opened).then(Input::Refresh);
    assert!(run.watch().initial_events && run.watch().version.is_none(), "no cache may answer");
    let run = run.then(failed(Class::Transient)).at_deadline();
    assert!(run.watch().version.is_none(), "nor at the next attempt");
    let run = run.then(refused());
    assert_eq!(run.page().not_older_than, None, "nor in pages");
    let run = run.then(page_end("20", None)).then(Input::Opened).then(failed(Class::Expired));
    assert_eq!(run.page().not_older_than.as_deref(), Some("20"), "afterwards as before");
}
