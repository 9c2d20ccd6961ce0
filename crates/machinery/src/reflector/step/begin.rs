//! The start of lists and watches.

use std::ops::Range;
use std::time::Duration;

use tokio::time::Instant;

use super::limits::{OPEN, PAGE, STREAM_RETRY, STREAM_TIMEOUT, STREAM_TOTAL, TIMEOUT};
use super::{Machine, Phase};
use crate::client::{Page, WatchFrom};
use crate::reflector::action::{Action, Reason};
use crate::reflector::position::Position;
use crate::reflector::state::State;

impl Machine {
    pub(super) fn list(&mut self, reason: Reason, now: Instant) -> Vec<Action> {
        let mut actions = if self.held.is_none() && self.state == State::Starting {
            self.enter(State::Listing, now, None)
        } else {
            Vec::new()
        };
        if self.no_streaming_until.is_some_and(|until| now < until) {
            actions.extend(self.page_from_start(false, reason));
            return actions;
        }
        let (progress_by, end_by) = (now + OPEN, now + STREAM_TOTAL);
        self.phase = Phase::Streaming { opened: false, progress_by, end_by };
        let from = WatchFrom {
            version: self.bound(),
            initial_events: true,
            timeout: self.timeout(STREAM_TIMEOUT),
        };
        actions.extend([Action::Begin(reason), Action::Watch(from)]);
        actions
    }

    /// Falls back to pages, and remembers that a streaming list was not available.
    pub(super) fn fall_back(&mut self, now: Instant) -> Vec<Action> {
        self.no_streaming(now);
        let mut actions = vec![Action::Abandon];
        actions.extend(self.page_from_start(false, Reason::NoStreaming));
        actions
    }

    /// Uses paged lists for a while.
    pub(super) fn no_streaming(&mut self, now: Instant) {
        self.no_streaming_until = Some(now + STREAM_RETRY);
    }

    pub(super) fn page_from_start(&mut self, whole: bool, reason: Reason) -> Vec<Action> {
        self.phase = Phase::Paging { first: None, token: None, whole };
        let page = Page {
            limit: (!whole).then_some(PAGE),
            continue_token: None,
            not_older_than: self.bound(),
        };
        vec![Action::Begin(reason), Action::List(page)]
    }

    fn bound(&self) -> Option<String> {
        self.held.as_ref().filter(|_| !self.unbounded).map(Position::to_string)
    }

    pub(super) fn watch(&mut self, now: Instant) -> Vec<Action> {
        let Some(held) = &self.held else { return self.list(Reason::Start, now) };
        let version = Some(held.to_string());
        self.phase = Phase::Watching { began: now, opened: false, progressed: false };
        let timeout = self.timeout(TIMEOUT);
        vec![Action::Watch(WatchFrom { version, initial_events: false, timeout })]
    }

    pub(super) fn timeout(&mut self, seconds: Range<u64>) -> Duration {
        Duration::from_secs(self.rng.u64(seconds))
    }
}
