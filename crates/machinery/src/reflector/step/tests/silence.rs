//! Watches in which nothing comes.

use super::*;

fn asks(run: &Run) -> bool {
    run.has(&Action::AskVersion)
}

#[test]
fn a_silent_watch_is_reopened_without_a_list() {
    let mut run = Run::watching().after(Duration::from_secs(100)).then(bookmark("10"));
    for _ in 0..OVERTAKEN.as_secs() / IDLE.as_secs() - 1 {
        let heard = run.now;
        run = run.at_deadline();
        assert_eq!(run.now - heard, IDLE);
        assert!(asks(&run));
        assert_eq!(run.machine.state, State::Live, "a quiet kind is no fault");
        run = run.then(page_end("17", None));
        assert_eq!(run.watch().version.as_deref(), Some("10"));
        assert!(!run.watch().initial_events);
        run = run.then(Input::Opened);
    }
    let run = run.at_deadline().then(page_end("17", None));
    assert!(run.has(&Action::Begin(Reason::Stuck)), "its watches may hide what is new");
    let mut run = Run::watching();
    for _ in 0..100 {
        run = run.at_deadline().then(page_end("10", None)).then(Input::Opened);
        assert!(run.machine.state == State::Live, "nothing is new");
    }
}

#[test]
fn a_watch_after_an_outage_has_time_for_missed_events() {
    let run = Run::watching().then(Input::Ended).then(failed(Class::Transient));
    let run = run.after(10 * IDLE).then(Input::Deadline).then(Input::Opened);
    assert_eq!(run.pause(), GRACE);
    let run = run.after(Duration::from_secs(1)).then(event(11));
    assert_eq!(run.pause(), IDLE);
}

#[test]
fn opaque_versions_reopen_a_silent_watch_without_a_request() {
    let run = Run::paging().then(page_end("abc", None)).then(Input::Opened).at_deadline();
    assert!(!asks(&run));
    assert_eq!(run.watch().version.as_deref(), Some("abc"));
    assert_eq!(run.then(Input::Opened).pause(), IDLE);
}

#[test]
fn silence_accumulates_over_watches_that_end() {
    for end in [|| Input::Ended, || failed(Class::Transient)] {
        let run = Run::watching().after(Duration::from_secs(120));
        let run = run.then(end()).then(Input::Opened);
        assert_eq!(run.pause(), IDLE - Duration::from_secs(120));
        assert!(asks(&run.at_deadline()));
        let run = Run::watching().after(Duration::from_secs(120)).then(bookmark("10"));
        assert_eq!(run.then(end()).then(Input::Opened).pause(), IDLE, "it was heard");
    }
}

#[test]
fn an_older_server_version_causes_a_list_of_the_newest_state() {
    let run = Run::watching().at_deadline().then(page_end("9", None));
    assert_eq!(run.machine.state, State::Stale);
    let run = run.at_deadline();
    assert!(run.watch().initial_events && run.watch().version.is_none());
}

#[test]
fn a_failed_version_request_reopens_the_watch_after_a_wait() {
    let run = Run::watching().at_deadline().then(failed(Class::Unanswered));
    assert_eq!(run.machine.state, State::Stale);
    assert!(run.wait() >= Duration::from_millis(800));
    assert_eq!(run.at_deadline().watch().version.as_deref(), Some("10"));
    let run = Run::watching().at_deadline().then(failed(Class::NotServed));
    assert!(run.at_deadline().has(&Action::Begin(Reason::Healed)));
}
