mod lists;
mod watches;
mod silence;

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
        let machine = Machine::new(fastrand::Rng::with_seed(3), now);
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

    /// Returns the time from now on in which nothing will be done.
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
    let is_answered = class != Class::Unanswered;
    Input::Failed(Failure { class, is_answered, retry_after: None, why: "why".into() })
}

/// A connection that cannot be made.
fn unreachable() -> Input {
    let (class, is_answered) = (Class::Transient, false);
    Input::Failed(Failure { class, is_answered, retry_after: None, why: "refused".into() })
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
fn no_sequence_of_inputs_panics_or_stalls_the_machine() {
    for seed in 0..2000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut run = Run::new().then(Input::Start);
        for _ in 0..60 {
            let version = rng.u64(0..30);
            run = match rng.u8(0..14) {
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
                12 => run.then(Input::Refresh),
                _ if run.machine.deadline().is_some() => run.at_deadline(),
                _ => run,
            };
            let pages = matches!(run.machine.phase, Phase::Paging { .. } | Phase::Asking);
            assert!(pages || run.machine.deadline().is_some(), "seed {seed}: stuck");
        }
    }
}
