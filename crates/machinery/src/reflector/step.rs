//! The state machine. It decides the next actions, without I/O and without its own clock.

mod limits;
mod begin;
mod trouble;
#[cfg(test)]
mod tests;

use tokio::time::Instant;

use self::limits::{
    GRACE, IDLE, OPEN, OVERTAKEN, PAGE, REWOUND, STREAM_PER_OBJECT, STREAM_PROGRESS, STUCK,
};
use super::action::{Action, Input, Reason};
use super::backoff::Backoff;
use super::failure::Failure;
use super::position::Position;
use super::regressed::ResourceVersionRegressed;
use super::state::State;
use crate::client::Page;
use crate::object::ResourceVersion;

/// The phase of the reflector.
#[derive(Debug)]
enum Phase {
    /// A streaming list: objects arrive as events until its final bookmark. `opened` as in `Watching`.
    Streaming { opened: bool, progress_by: Instant, end_by: Instant },
    /// Pages are requested. The list has the version of its first page (`first`, as sent). `token` leads to the current
    /// page. `whole`: all items are requested in one page, after a token expired.
    Paging { first: Option<String>, token: Option<String>, whole: bool },
    /// The view is complete up to `held`, and the watch continues from there. `opened`: the server has accepted the
    /// watch. `progressed`: this watch has moved `held`.
    Watching { began: Instant, opened: bool, progressed: bool },
    /// A watch was silent for too long: the server's current version is requested.
    Asking,
    /// After a failure: waits until `until`, then continues with `next`. `asked`: the server requested the wait.
    Waiting { until: Instant, next: Next, asked: bool },
}

#[derive(Debug, Clone, Copy)]
enum Next {
    List(Reason),
    Watch,
}

/// Failures since a watch last made progress.
#[derive(Debug, Default)]
struct Failures {
    /// Number of streaming lists that broke off, failed or timed out since the last complete list.
    streams_cut: u32,
    /// Number of "too large resource version" responses since the last complete list.
    too_large: u32,
    /// Number of lists without a lower bound, since the last complete list, that were older than `held`.
    regressed: u32,
    /// Number of watches without events: internal errors, immediate ends, timeouts.
    stuck: u32,
    /// A list followed an expired version.
    relisted: bool,
}

/// Makes all decisions of a reflector.
#[derive(Debug)]
pub(super) struct Machine {
    phase: Phase,
    /// The version of the committed view; it only grows. `None` before the first commit.
    held: Option<Position>,
    /// Last time at which the view was known to be current.
    heard: Instant,
    state: State,
    /// The end of the time for which the server is assumed to lack streaming lists.
    no_streaming_until: Option<Instant>,
    /// True if the next list has no lower bound: the server refused the bound, or the response must come from etcd
    /// instead of a lagging watch cache. The response is still refused if it is older than `held`.
    unbounded: bool,
    failures: Failures,
    /// A list of the current state was requested and is not complete. If it fails, the watch continues, and the list
    /// is tried again at this time.
    refresh: Option<Instant>,
    /// Number of failures in a row without any response.
    unanswered: u32,
    /// Start of the silence of the watches while the server has newer versions.
    overtaken_since: Option<Instant>,
    backoff: Backoff,
    rng: fastrand::Rng,
}

impl Machine {
    pub(super) fn new(mut rng: fastrand::Rng, now: Instant) -> Machine {
        Machine {
            phase: Phase::Waiting { until: now, next: Next::List(Reason::Start), asked: false },
            held: None,
            heard: now,
            state: State::Starting,
            no_streaming_until: None,
            unbounded: false,
            failures: Failures::default(),
            refresh: None,
            unanswered: 0,
            overtaken_since: None,
            backoff: Backoff::new(rng.fork()),
            rng,
        }
    }

    /// Returns the time at which [`Input::Deadline`] is due without another input.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Streaming { progress_by, end_by, .. } => Some(*progress_by.min(end_by)),
            // The client enforces a deadline on lists.
            Phase::Paging { .. } | Phase::Asking => None,
            Phase::Watching { began, opened, .. } => {
                let silent = match opened {
                    false => *began + OPEN,
                    true => (self.heard + IDLE).max(*began + GRACE),
                };
                Some(self.refresh.map_or(silent, |refresh| refresh.min(silent)))
            }
            Phase::Waiting { until, .. } => Some(*until),
        }
    }

    /// Returns the version up to which the view is complete.
    pub(super) fn held(&self) -> ResourceVersion {
        self.held.as_ref().map_or(ResourceVersion::UNKNOWN, Position::number)
    }

    /// Returns the time of the server's last list, event, bookmark or version.
    pub(super) fn heard(&self) -> Instant {
        self.heard
    }

    /// Returns whether events are staged (true) or applied at once.
    pub(super) fn is_staging(&self) -> bool {
        matches!(self.phase, Phase::Streaming { .. } | Phase::Paging { .. })
    }

    /// Takes a step.
    pub(super) fn step(&mut self, input: Input, now: Instant) -> Vec<Action> {
        match input {
            Input::Start => self.list(Reason::Start, now),
            Input::Page { version, continue_token } => self.page(version, continue_token, now),
            Input::Opened => self.opened(now),
            Input::Event(version) => self.event(version, now),
            Input::OutOfOrder(version) => self.out_of_order(version, now),
            Input::Bookmark { version, initial_events_end } => {
                self.bookmark(Position::parse(version), initial_events_end, now)
            }
            Input::Ended => self.ended(now),
            Input::Failed(failure) => self.failed(&failure, now),
            Input::Returned => self.returned(now),
            Input::Refresh => self.refresh(now),
            Input::Deadline => self.deadline_reached(now),
        }
    }

    /// Lists now, or after the wait that the server requested.
    fn refresh(&mut self, now: Instant) -> Vec<Action> {
        self.unbounded = true;
        self.refresh = Some(now);
        if let Phase::Waiting { next, asked: true, .. } = &mut self.phase {
            *next = Next::List(Reason::Refresh);
            return Vec::new();
        }
        self.list(Reason::Refresh, now)
    }

    // === Successful operations ===

    fn page(&mut self, version: String, next: Option<String>, now: Instant) -> Vec<Action> {
        if matches!(self.phase, Phase::Asking) {
            let newest = Position::parse(version);
            return match self.behind(newest.as_ref()) {
                Some(behind) => self.in_the_past(&behind, now),
                None => self.asked(newest.as_ref(), now),
            };
        }
        let Phase::Paging { first, token, .. } = &mut self.phase else { return Vec::new() };
        let first = first.get_or_insert(version).clone();
        *token = next.clone();
        match next {
            Some(_) => {
                // A continue token contains its version and allows no other.
                let page = Page { limit: Some(PAGE), continue_token: next, not_older_than: None };
                vec![Action::List(page)]
            }
            None => match self.commit(Position::parse(first), now) {
                Ok(mut actions) => {
                    actions.extend(self.watch(now));
                    actions
                }
                Err(refused) => refused,
            },
        }
    }

    /// Handles the server's newest version after a silent watch. Either the kind has not changed, or the watches hide
    /// changes.
    fn asked(&mut self, newest: Option<&Position>, now: Instant) -> Vec<Action> {
        let is_newer = newest.is_some_and(|at| at.number().is_newer_than(self.held()));
        let since = *self.overtaken_since.get_or_insert(self.heard);
        if !is_newer {
            self.overtaken_since = None;
        }
        self.heard = now;
        if is_newer && now.saturating_duration_since(since) >= OVERTAKEN {
            self.unbounded = true;
            return self.list(Reason::Stuck, now);
        }
        self.watch(now)
    }

    fn opened(&mut self, now: Instant) -> Vec<Action> {
        match &mut self.phase {
            Phase::Streaming { opened, progress_by, .. } => {
                *opened = true;
                *progress_by = now + STREAM_PROGRESS;
                Vec::new()
            }
            Phase::Watching { opened, .. } => {
                *opened = true;
                // While a list is due, the view is not known to be current.
                if self.refresh.is_some() {
                    return Vec::new();
                }
                self.enter(State::Live, now, None)
            }
            Phase::Paging { .. } | Phase::Asking | Phase::Waiting { .. } => Vec::new(),
        }
    }

    fn event(&mut self, version: ResourceVersion, now: Instant) -> Vec<Action> {
        match &mut self.phase {
            Phase::Streaming { progress_by, end_by, .. } => {
                *progress_by = now + STREAM_PROGRESS;
                *end_by += STREAM_PER_OBJECT;
            }
            Phase::Watching { .. } => {
                (self.heard, self.overtaken_since) = (now, None);
                // A version that is not a number is progress, too, but cannot be a position to continue from.
                let moved =
                    if version.is_known() { self.advance(Position::Number(version)) } else { true };
                self.progress(moved);
            }
            Phase::Paging { .. } | Phase::Asking | Phase::Waiting { .. } => {}
        }
        Vec::new()
    }

    /// Returns whether an event at this version is new. Watches send events in order: an event that is not after `held`
    /// is a repetition. Applying it would restore an object that was deleted since. Deletions are always applied.
    pub(super) fn is_news(&self, version: ResourceVersion) -> bool {
        !version.is_known() || !self.held().is_known() || version.is_newer_than(self.held())
    }

    fn bookmark(&mut self, at: Option<Position>, end: bool, now: Instant) -> Vec<Action> {
        let behind = self.behind(at.as_ref());
        match &mut self.phase {
            Phase::Streaming { .. } if end => match self.commit(at, now) {
                Ok(actions) => {
                    // The same stream continues with changes.
                    self.phase = Phase::Watching { began: now, opened: true, progressed: true };
                    let live = self.enter(State::Live, now, None);
                    actions.into_iter().chain(live).collect()
                }
                Err(refused) => refused,
            },
            Phase::Watching { .. } => {
                if let Some(behind) = behind {
                    return self.in_the_past(&behind, now);
                }
                (self.heard, self.overtaken_since) = (now, None);
                let moved = at.is_some_and(|at| self.advance(at));
                self.progress(moved);
                Vec::new()
            }
            // A streaming list makes no progress by other bookmarks: they carry no object.
            Phase::Streaming { .. }
            | Phase::Paging { .. }
            | Phase::Asking
            | Phase::Waiting { .. } => Vec::new(),
        }
    }

    /// Returns a failure if a bookmark shows that the server is behind the stored version.
    fn behind(&self, at: Option<&Position>) -> Option<Failure> {
        let (at, held) = (at?, self.held.as_ref()?);
        let why = || format!("the API server is at version {at}, older than {held} which is held");
        at.is_older_than(held).then(|| Failure::transient(why()))
    }

    /// Moves `held` forward to `at`, never back. Returns whether it moved.
    fn advance(&mut self, at: Position) -> bool {
        let moved = match &self.held {
            Some(held) if held.number().is_known() && at.number().is_known() => {
                held.is_older_than(&at)
            }
            Some(held) => *held != at,
            None => true,
        };
        if moved {
            self.held = Some(at);
        }
        moved
    }

    /// Records progress of the watch, if `moved`.
    fn progress(&mut self, moved: bool) {
        if let (true, Phase::Watching { progressed, .. }) = (moved, &mut self.phase) {
            *progressed = true;
            // While a list is due, its failures count, although the watch works.
            if self.refresh.is_none() {
                self.failures = Failures::default();
                self.backoff.start_over();
            }
        }
    }

    /// Completes the list at `at`. `Err`: it was refused; these are the actions to take.
    fn commit(&mut self, at: Option<Position>, now: Instant) -> Result<Vec<Action>, Vec<Action>> {
        let (held, mut regressed) = (self.held.clone(), None);
        let why = match (at, held) {
            (None, _) => "the API server sent a list without a resourceVersion".to_owned(),
            (Some(at), Some(held)) if at.is_older_than(&held) => {
                self.failures.regressed += u32::from(self.unbounded);
                // The server ignores the bound, so the next list has none.
                self.unbounded = true;
                if self.failures.regressed >= REWOUND {
                    regressed = Some(ResourceVersionRegressed {
                        held: held.to_string(),
                        at: at.to_string(),
                    });
                }
                format!(
                    "the API server answered with version {at}, older than {held} which is held"
                )
            }
            (Some(at), _) => {
                self.held = Some(at.clone());
                self.refresh = None;
                (self.heard, self.overtaken_since) = (now, None);
                self.unbounded = false;
                // The next watch without events leads to a list again.
                let stuck = self.failures.stuck.min(STUCK - 1);
                self.failures =
                    Failures { stuck, relisted: self.failures.relisted, ..Failures::default() };
                return Ok(vec![Action::Commit(at)]);
            }
        };
        let wait = self.back_off(&Failure::transient(why), Next::List(self.retry()), now);
        let end = regressed.map(Action::End);
        Err(std::iter::once(Action::Abandon).chain(wait).chain(end).collect())
    }
}
