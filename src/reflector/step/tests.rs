use std::time::Duration;

use super::limits::{REWOUND, SHORT, STREAMS_CUT, STUCK, TIMEOUT, TOO_LARGE};
use super::*;
use crate::client::WatchFrom;
use crate::reflector::failure::Class;

/// A machine, its clock, and the last actions.
struct Run {
    machine: Machine,
    now: Instant,
    actions: Vec<Action>,
}

impl Run {
    fn new() -> Run {
        let now = Instant::now();
        let machine = Machine::new(false, fastrand::Rng::with_seed(3), now);
        Run { machine, now, actions: Vec::new() }
    }

    /// A machine whose server has no streaming lists; it has asked for its first page.
    fn paging() -> Run {
        Run::new().then(Input::Start).then(refused())
    }

    /// A machine that watches from version 10.
    fn watching() -> Run {
        Run::new().then(Input::Start).then(Input::Opened).then(end_of_list("10"))
    }

    fn then(mut self, input: Input) -> Run {
        self.actions = self.machine.step(input, self.now);
        self
    }

    fn after(mut self, wait: Duration) -> Run {
        self.now += wait;
        self
    }

    /// Lets time pass until the deadline.
    fn at_deadline(mut self) -> Run {
        self.now = self.machine.deadline().unwrap();
        self.then(Input::Deadline)
    }

    fn wait(&self) -> Duration {
        assert!(matches!(self.actions.last(), Some(Action::Wait)), "{:?}", self.actions);
        self.machine.deadline().unwrap() - self.now
    }

    /// How long nothing will be done from now on.
    fn pause(&self) -> Duration {
        self.machine.deadline().expect("it waits") - self.now
    }

    fn watch(&self) -> WatchFrom {
        match self.actions.last() {
            Some(Action::Watch(from)) => from.clone(),
            _ => panic!("no watch: {:?}", self.actions),
        }
    }

    fn page(&self) -> Page {
        match self.actions.last() {
            Some(Action::List(page)) => page.clone(),
            _ => panic!("no list: {:?}", self.actions),
        }
    }

    fn has(&self, wanted: &Action) -> bool {
        let wanted = format!("{wanted:?}");
        self.actions.iter().any(|action| format!("{action:?}") == wanted)
    }
}

fn failed(class: Class) -> Input {
    Input::Failed(Failure { class, retry_after: None, why: "why".into() })
}

fn refused() -> Input {
    failed(Class::Refused)
}

fn event(version: u64) -> Input {
    Input::Event(ResourceVersion::new(version))
}

fn bookmark(version: &str) -> Input {
    Input::Bookmark { version: version.into(), initial_events_end: false }
}

fn end_of_list(version: &str) -> Input {
    Input::Bookmark { version: version.into(), initial_events_end: true }
}

fn page_end(version: &str, token: Option<&str>) -> Input {
    Input::Page { version: version.into(), continue_token: token.map(Into::into) }
}

fn at(version: u64) -> Position {
    Position::Number(ResourceVersion::new(version))
}

#[test]
fn the_first_list_is_a_streaming_one_of_the_newest_state() {
    let run = Run::new().then(Input::Start);
    assert!(run.watch().initial_events && run.watch().version.is_none());
    let run = run.then(Input::Opened).then(event(7)).then(end_of_list("9"));
    assert!(run.has(&Action::Commit(at(9))));
    assert_eq!(run.machine.state, State::Live);
}

#[test]
fn synthetic_events_do_not_move_the_version() {
    let run = Run::new().then(Input::Start).then(Input::Opened).then(event(70));
    assert!(!run.machine.held().is_known());
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
    let ended = Run::new().then(Input::Start).then(Input::Opened).then(Input::Ended);
    assert_eq!(ended.page().limit, Some(PAGE));
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
fn a_hanging_server_is_not_taken_for_one_without_streaming_lists() {
    let mut run = Run::new().then(Input::Start);
    for _ in 0..2 * STREAMS_CUT {
        run = run.at_deadline();
        assert!(run.wait() >= Duration::from_millis(800));
        run = run.at_deadline();
        assert!(run.watch().initial_events, "however often");
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
fn a_clean_end_watches_on_from_the_last_version_at_once() {
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
fn a_watch_that_ends_at_once_without_progress_is_a_failure() {
    let run = Run::watching().then(Input::Ended).then(Input::Opened).then(event(10));
    let run = run.then(Input::Ended);
    assert!(run.has(&Action::ShortWatch) && run.wait() >= Duration::from_millis(800));
    let long = Run::watching().then(Input::Ended).then(Input::Opened);
    assert!(!long.after(SHORT).then(Input::Ended).has(&Action::ShortWatch));
}

#[test]
fn a_broken_connection_is_watched_again_from_the_same_version() {
    let run = Run::watching().then(failed(Class::Transient));
    assert_eq!(run.machine.state, State::Stale);
    let run = run.at_deadline();
    assert_eq!(run.watch().version.as_deref(), Some("10"));
    assert!(!run.watch().initial_events);
    assert_eq!(run.then(Input::Opened).machine.state, State::Live);
}

#[test]
fn an_expired_version_is_listed_again_never_older_than_what_is_held() {
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
fn an_expired_version_is_no_failure_however_many_came_before() {
    let run = weary().then(failed(Class::Expired));
    assert!(run.has(&Action::Begin(Reason::Expired)), "{:?}", run.actions);
    assert!(run.watch().initial_events);
}

#[test]
fn a_server_that_lists_well_and_expires_every_watch_is_not_asked_in_a_loop() {
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
fn what_a_watch_delivers_starts_the_waits_over_and_what_it_repeats_does_not() {
    let wait = |run: Run| run.then(failed(Class::Transient)).wait();
    assert!(wait(weary()) > Duration::from_secs(10));
    assert!(wait(weary().then(event(11))) < Duration::from_millis(1600));
    assert!(wait(weary().then(bookmark("11"))) < Duration::from_millis(1600));
    assert!(wait(weary().then(event(10)).then(bookmark("10"))) > Duration::from_secs(10));
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
    let end = Rewound { held: "10".to_owned(), at: "9".to_owned() };
    for answer in 1..=REWOUND {
        assert!(!run.has(&Action::End(end.clone())), "after {answer} answers");
        run = run.at_deadline().then(Input::Opened).then(end_of_list("9"));
    }
    assert!(run.has(&Action::End(end)));
    assert_eq!(run.machine.held(), ResourceVersion::new(10), "the view does not go back");
}

#[test]
fn an_old_answer_to_a_list_with_a_bound_does_not_tell_that_the_history_is_lost() {
    let mut run = Run::watching().then(failed(Class::Expired));
    for _ in 0..2 * REWOUND {
        run = run.then(Input::Opened).then(end_of_list("9")).at_deadline();
        assert_eq!(run.watch().version.as_deref(), Some("10"));
    }
    assert!(!run.actions.iter().any(|action| matches!(action, Action::End(_))));
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
fn forbidden_and_not_served_keep_the_view_and_list_again_when_they_heal() {
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
fn when_the_server_is_back_a_pause_ends_within_a_second_and_pauses_start_over() {
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
fn a_pause_that_the_server_asked_for_is_kept_when_it_is_back() {
    let asked = Failure { retry_after: Some(Duration::from_secs(60)), ..Failure::transient("429") };
    let run = Run::watching().then(Input::Failed(asked)).then(Input::Returned);
    assert!(run.pause() >= Duration::from_secs(60));
}

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
    let run = run.at_deadline().after(Duration::from_secs(600)).then(failed(Class::Transient));
    let run = run.at_deadline().then(Input::Opened);
    assert_eq!(run.pause(), IDLE - quiet);
    assert!(run.at_deadline().has(&Action::Begin(Reason::Stuck)));
    let run = Run::watching().after(quiet).then(bookmark("10")).then(failed(Class::Transient));
    assert_eq!(run.at_deadline().then(Input::Opened).pause(), IDLE, "it was heard");
}

/// What comes of the silence of watches that live for `each` if nothing is said in them.
fn cut_after(each: Duration, mut run: Run) -> Run {
    while run.pause() > each {
        run = run.after(each).then(failed(Class::Transient)).at_deadline().then(Input::Opened);
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

#[test]
fn a_version_the_server_cannot_get_past_is_listed_anew() {
    let mut run = Run::watching();
    for _ in 1..STUCK {
        run = run.then(failed(Class::Internal)).at_deadline().then(Input::Opened);
    }
    let run = run.then(failed(Class::Internal)).at_deadline();
    assert!(run.has(&Action::Begin(Reason::Stuck)));
}

#[test]
fn streaming_lists_that_always_break_off_give_way_to_pages() {
    let mut run = Run::new().then(Input::Start).then(Input::Opened);
    for _ in 1..STREAMS_CUT {
        run = run.then(failed(Class::Transient)).at_deadline().then(Input::Opened);
    }
    assert_eq!(run.then(failed(Class::Transient)).page().limit, Some(PAGE));
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
fn watch_timeouts_are_spread_between_two_and_four_minutes() {
    let timeouts: std::collections::BTreeSet<_> = (0..50)
        .map(|seed| {
            let rng = fastrand::Rng::with_seed(seed);
            Machine::new(false, rng, Instant::now()).timeout()
        })
        .collect();
    assert!(timeouts.len() > 25, "{timeouts:?}");
    assert!(timeouts.iter().all(|t| TIMEOUT.contains(&t.as_secs())));
}

#[test]
fn no_sequence_of_inputs_panics_or_leaves_it_without_a_way_on() {
    for seed in 0..2000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut run = Run::new().then(Input::Start);
        for _ in 0..60 {
            let version = rng.u64(0..30);
            run = match rng.u8(0..13) {
                0 => run.then(page_end(&version.to_string(), None)),
                1 => run.then(page_end(&version.to_string(), Some("t"))),
                2 | 3 => run.then(Input::Opened),
                4 | 5 => run.then(event(version)),
                6 => run.then(bookmark(&version.to_string())),
                7 => run.then(end_of_list(["", "opaque", "17"][rng.usize(..3)])),
                8 => run.then(Input::Ended),
                9 => run.then(failed(
                    [Class::Expired, Class::ServerBehind, Class::Refused, Class::Internal]
                        [rng.usize(..4)],
                )),
                10 => run.then(failed(
                    [Class::Forbidden, Class::NotServed, Class::Transient][rng.usize(..3)],
                )),
                11 => run.then(Input::Returned),
                _ if run.machine.deadline().is_some() => run.at_deadline(),
                _ => run,
            };
            let pages = matches!(run.machine.phase, Phase::Paging { .. });
            assert!(pages || run.machine.deadline().is_some(), "seed {seed}: stuck");
        }
    }
}
