//! The ends of the operation in progress, normal or not.

use tokio::time::Instant;

use super::limits::{NOT_SERVED, OPEN, RETURNED, SHORT, STREAMS_CUT, STUCK, TOO_LARGE};
use super::{Machine, Next, Phase};
use crate::object::ResourceVersion;
use crate::reflector::action::{Action, Reason};
use crate::reflector::failure::{Class, Failure};
use crate::reflector::state::State;

impl Machine {
    pub(super) fn ended(&mut self, now: Instant) -> Vec<Action> {
        match &self.phase {
            Phase::Streaming { .. } => {
                let why = "the streaming list ended before the bookmark that completes it";
                self.failed(&Failure::transient(why), now)
            }
            Phase::Watching { began, progressed, .. } => {
                if *progressed || now.saturating_duration_since(*began) >= SHORT {
                    return self.watch(now);
                }
                let failure = Failure::transient("the API server ends every watch at once");
                let next = self.next_of_stuck();
                let wait = self.back_off(&failure, next, now);
                std::iter::once(Action::ShortWatch).chain(wait).collect()
            }
            Phase::Paging { .. } | Phase::Asking | Phase::Waiting { .. } => Vec::new(),
        }
    }

    pub(super) fn failed(&mut self, failure: &Failure, now: Instant) -> Vec<Action> {
        if failure.is_answered {
            // After an outage, what the server answers first is over soon, such as 429 while it initializes.
            if self.unanswered > 1 {
                self.backoff.start_over();
            }
            self.unanswered = 0;
        } else {
            self.unanswered += 1;
        }
        match &self.phase {
            Phase::Streaming { opened, .. } => {
                let cut = match failure.class {
                    // Not accepted: the server is down, too busy, or has no watch cache yet. This is temporary, and
                    // pages would cost the server more.
                    Class::Transient => *opened,
                    // This is the response of an API server whose etcd is too old for streaming lists, or whose watch
                    // cache lags. Pages can still work, also through a proxy that delays the beginning of a stream.
                    Class::Internal | Class::ServerBehind | Class::Unanswered => true,
                    Class::Expired | Class::Refused | Class::Forbidden | Class::NotServed => false,
                };
                self.failures.streams_cut += u32::from(cut);
                if failure.class == Class::Refused || self.failures.streams_cut >= STREAMS_CUT {
                    if failure.retry_after.is_none() {
                        return self.fall_back(now);
                    }
                    // The pages wait for as long as the server requested.
                    self.no_streaming(now);
                }
                self.list_failed(failure, now)
            }
            Phase::Paging { token, whole, .. } => {
                let mid_list = token.is_some() && !whole;
                if mid_list && failure.class == Class::Expired {
                    // A restart at page 1 could expire again indefinitely: request everything in one page.
                    let whole = self.page_from_start(true, Reason::Expired);
                    return std::iter::once(Action::Abandon).chain(whole).collect();
                }
                self.list_failed(failure, now)
            }
            Phase::Watching { began, opened, .. } => {
                let lived = *opened && now.saturating_duration_since(*began) >= SHORT;
                // Proxies cut idle connections, perhaps every few seconds. If the API server is down, the next watch is
                // not accepted, which is a failure.
                let cut = failure.class == Class::Transient && failure.retry_after.is_none();
                if lived && cut {
                    return self.watch(now);
                }
                self.watch_failed(failure, now)
            }
            Phase::Asking => self.watch_failed(failure, now),
            Phase::Waiting { .. } => Vec::new(),
        }
    }

    fn list_failed(&mut self, failure: &Failure, now: Instant) -> Vec<Action> {
        let reason = match failure.class {
            Class::Forbidden | Class::NotServed if self.held.is_some() => Reason::Healed,
            _ => self.retry(),
        };
        match failure.class {
            Class::Expired | Class::Refused => self.unbounded = true,
            Class::ServerBehind => drop(self.lagging()),
            Class::Forbidden | Class::NotServed => {}
            Class::Internal | Class::Unanswered | Class::Transient => {}
        }
        let next = Next::List(reason);
        let can_watch = !matches!(
            failure.class,
            Class::Forbidden | Class::NotServed | Class::Expired | Class::Refused
        );
        let mut actions = vec![Action::Abandon];
        actions.extend(self.back_off(failure, next, now));
        if let (Some(_), Phase::Waiting { until, .. }) = (self.refresh, &self.phase)
            && can_watch
            && self.held.is_some()
        {
            // The view is complete up to `held`, and a watch from there still works.
            self.refresh = Some(*until);
            actions.extend(self.watch(now));
        }
        actions
    }

    pub(super) fn retry(&self) -> Reason {
        if self.held.is_some() { Reason::Retry } else { Reason::Start }
    }

    fn watch_failed(&mut self, failure: &Failure, now: Instant) -> Vec<Action> {
        let next = match failure.class {
            // A 410 is the server's way to request a list. It is a failure only if a list did not help.
            Class::Expired if !self.failures.relisted => return self.stale_then_list(failure, now),
            Class::Expired => Next::List(Reason::Expired),
            Class::Refused => {
                self.unbounded = true;
                Next::List(Reason::Refused)
            }
            Class::Forbidden | Class::NotServed => Next::List(Reason::Healed),
            Class::ServerBehind if self.lagging() => Next::List(Reason::Refused),
            Class::Internal | Class::Unanswered => self.next_of_stuck(),
            Class::ServerBehind | Class::Transient => Next::Watch,
        };
        self.back_off(failure, next, now)
    }

    /// Returns the step after a watch that delivers nothing and perhaps never will. Lists can still work.
    fn next_of_stuck(&mut self) -> Next {
        self.failures.stuck += 1;
        if self.failures.stuck >= STUCK { Next::List(Reason::Stuck) } else { Next::Watch }
    }

    /// Counts a "too large resource version" response. Returns whether to drop the bound.
    fn lagging(&mut self) -> bool {
        self.failures.too_large += 1;
        self.unbounded |= self.failures.too_large >= TOO_LARGE;
        self.unbounded
    }

    /// Requests the newest version from a server that reports an older one than ours. If it lags, it catches up;
    /// otherwise the history has changed.
    pub(super) fn in_the_past(&mut self, behind: &Failure, now: Instant) -> Vec<Action> {
        self.unbounded = true;
        self.back_off(behind, Next::List(Reason::Refused), now)
    }

    /// Handles an object that is not stored and is older than the watch. Either it was sent before and deleted since,
    /// or it has just become visible, as OpenShift's projects do for a new member. A list decides which. The list
    /// follows after a wait, because a server can repeat this.
    pub(super) fn out_of_order(&mut self, version: ResourceVersion, now: Instant) -> Vec<Action> {
        if !matches!(self.phase, Phase::Watching { .. }) {
            return Vec::new();
        }
        let why = format!("the watch shows an object at version {version}, which it has passed");
        self.back_off(&Failure::transient(why), Next::List(Reason::OutOfOrder), now)
    }

    pub(super) fn deadline_reached(&mut self, now: Instant) -> Vec<Action> {
        match &self.phase {
            Phase::Watching { .. } if self.refresh.is_some_and(|refresh| refresh <= now) => {
                self.list(Reason::Refresh, now)
            }
            Phase::Streaming { opened: false, .. } | Phase::Watching { opened: false, .. } => {
                let why = format!("no response to a watch within {OPEN:?}");
                let (class, is_answered) = (Class::Unanswered, false);
                self.failed(&Failure { class, is_answered, retry_after: None, why }, now)
            }
            Phase::Streaming { .. } => self.fall_back(now),
            // A quiet kind without bookmarks is silent, too, and would be listed again and again. The next watch
            // uses another connection and delivers whatever a dead one hid.
            Phase::Watching { .. } if !self.held().is_known() => {
                self.heard = now; // No server version can be compared.
                self.watch(now)
            }
            Phase::Watching { .. } => {
                self.phase = Phase::Asking;
                vec![Action::AskVersion]
            }
            Phase::Waiting { next: Next::List(reason), .. } => self.list(*reason, now),
            Phase::Waiting { next: Next::Watch, .. } => self.watch(now),
            Phase::Paging { .. } | Phase::Asking => Vec::new(),
        }
    }

    /// Shortens the wait, unless the server requested it, because the cause of the failure is over. The next failure
    /// counts as the first.
    pub(super) fn returned(&mut self, now: Instant) -> Vec<Action> {
        if let Phase::Waiting { until, asked: false, .. } = &mut self.phase {
            *until = now + RETURNED.mul_f64(self.rng.f64()).min(*until - now);
            self.backoff.start_over();
        }
        Vec::new()
    }

    pub(super) fn stale_then_list(&mut self, failure: &Failure, now: Instant) -> Vec<Action> {
        self.failures.relisted = true;
        let mut actions = self.enter(State::Stale, now, Some(failure.why.clone()));
        actions.extend(self.list(Reason::Expired, now));
        actions
    }

    pub(super) fn back_off(&mut self, failure: &Failure, next: Next, now: Instant) -> Vec<Action> {
        let until = match (failure.class, failure.retry_after) {
            (Class::NotServed, None) => {
                self.backoff.start_over();
                now + NOT_SERVED.mul_f64(1.0 + self.rng.f64())
            }
            (_, retry_after) => self.backoff.after_failure(now, retry_after),
        };
        self.phase = Phase::Waiting { until, next, asked: failure.retry_after.is_some() };
        let state = match (failure.class, self.state) {
            (Class::Forbidden, _) => State::Forbidden,
            (Class::NotServed, _) => State::NotServed,
            // Other failures do not hide a problem that needs manual action.
            (_, State::Forbidden | State::NotServed) => self.state,
            _ if self.held.is_some() => State::Stale,
            _ => State::Listing,
        };
        let mut actions = self.enter(state, now, Some(failure.why.clone()));
        actions.push(Action::Wait);
        actions
    }

    /// Enters a state. [`State::Stale`] counts from the last response of the server.
    pub(super) fn enter(&mut self, state: State, now: Instant, why: Option<String>) -> Vec<Action> {
        if self.state == state && why.is_none() {
            return Vec::new();
        }
        self.state = state;
        let since = if state == State::Stale { self.heard } else { now };
        vec![Action::State { state, since, why }]
    }
}
