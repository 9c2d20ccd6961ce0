//! Watches in which nothing comes.

use super::*;

#[test]
fn a_silent_watch_is_dead_after_two_and_a_half_minutes_and_a_bookmark_keeps_it_alive() {
    let run = Run::watching().after(Duration::from_secs(100)).then(bookmark("10"));
    let heard = run.now;
    let run = run.at_deadline();
    assert_eq!(run.now - heard, IDLE);
    let since = run.actions.iter().find_map(|action| match action {
        Action::State { state: State::Stale, since, .. } => Some(*since),
        _ => None,
    });
    assert_eq!(since, Some(heard), "stale since the server was last heard");
    assert!(run.has(&Action::Begin(Reason::Stuck)));
    assert_eq!(run.watch().version, None, "the newest there is, whatever that is");
}

#[test]
fn silent_watches_that_end_in_good_order_are_silent_together() {
    let run = Run::watching().then(bookmark("10")).after(Duration::from_secs(120));
    let run = run.then(Input::Ended).then(Input::Opened).at_deadline();
    assert!(run.has(&Action::Begin(Reason::Stuck)), "after 150 s in all");
    let run = Run::watching().after(Duration::from_secs(120)).then(bookmark("10"));
    let run = run.then(Input::Ended).then(Input::Opened);
    assert_eq!(run.pause(), IDLE, "a watch that was heard begins anew");
}

/// Each watch ends before it has been silent for too long. Time between two watches does not count
/// as silence: an outage alone must not lead to new lists.
#[test]
fn silent_watches_that_break_off_are_silent_together_and_pauses_do_not_count() {
    let quiet = Duration::from_secs(100);
    let run = Run::watching().then(bookmark("10")).after(quiet).then(failed(Class::Transient));
    let run = run.after(Duration::from_secs(600)).then(failed(Class::Transient));
    let run = run.at_deadline().then(Input::Opened);
    assert_eq!(run.pause(), IDLE - quiet);
    assert!(run.at_deadline().has(&Action::Begin(Reason::Stuck)));
    let run = Run::watching().after(quiet).then(bookmark("10")).then(failed(Class::Transient));
    assert_eq!(run.then(Input::Opened).pause(), IDLE, "it was heard");
}

/// Cuts watches that stay silent after `each`, until the silence is too long.
fn cut_after(each: Duration, mut run: Run) -> Run {
    while run.pause() > each {
        run = run.after(each).then(failed(Class::Transient)).then(Input::Opened);
    }
    run.at_deadline()
}

/// Bookmarks came while the kind was busy. Now that it is quiet, something on the way cuts every
/// watch before the first.
#[test]
fn where_every_watch_is_cut_before_its_first_bookmark_a_quiet_kind_is_listed_once() {
    let silence = |run| cut_after(Duration::from_secs(50), run);
    let mut run = Run::watching().then(bookmark("10"));
    for _ in 0..2 {
        run = silence(run);
        assert!(run.has(&Action::Begin(Reason::Stuck)), "there might have been something");
        run = run.then(Input::Opened).then(end_of_list("10"));
        for _ in 0..3 {
            run = silence(run);
            assert_eq!(run.watch().version.as_deref(), Some("10"), "{:?}", run.actions);
            assert!(!run.watch().initial_events);
            run = run.then(Input::Opened).then(event(10));
        }
        run = run.then(bookmark("10"));
    }
}

#[test]
fn a_server_that_owes_a_bookmark_is_listed_however_its_watches_end() {
    let mut run = Run::watching().then(bookmark("10"));
    for each in [100, 120, 149, 100, 120, 149] {
        run = cut_after(Duration::from_secs(each), run);
        assert!(run.has(&Action::Begin(Reason::Stuck)), "{each} s: {:?}", run.actions);
        run = run.then(Input::Opened).then(end_of_list("10"));
    }
}

/// A kind without a watch cache gets the bookmark that ends a streaming list and no others.
#[test]
fn where_no_bookmarks_are_sent_a_quiet_kind_is_listed_once_and_then_only_watched() {
    let mut run = Run::watching().at_deadline();
    assert!(run.has(&Action::Begin(Reason::Stuck)), "there might have been some");
    run = run.then(Input::Opened).then(end_of_list("10"));
    for _ in 0..3 {
        run = run.at_deadline();
        assert_eq!(run.watch().version.as_deref(), Some("10"), "{:?}", run.actions);
        assert!(!run.watch().initial_events);
        run = run.then(Input::Opened);
    }
    run = run.then(bookmark("10"));
    for _ in 0..3 {
        run = run.at_deadline();
        assert!(run.has(&Action::Begin(Reason::Stuck)), "now it is known that there are some");
        run = run.then(Input::Opened).then(end_of_list("10"));
    }
}
