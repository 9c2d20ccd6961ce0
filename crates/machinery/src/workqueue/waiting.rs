//! Workers that wait, and whom to wake: what the shell's lock guards.
//!
//! Wake-ups follow one rule, checked when the lock is given back (`unlock`): while more keys are
//! ready than workers have been notified, notify one more; and one waiting worker, the timekeeper,
//! sleeps until the next deadline. A worker that was notified and goes away passes it on.

use std::collections::VecDeque;
use std::task::Waker;

use super::key::Key;
use super::rate_limited::RateLimited;
use super::sync::{MutexGuard, Nanos};

/// The queue, and those who wait for it.
pub(super) struct State<K: Key> {
    pub(super) queue: RateLimited<K>,
    /// Workers waiting to be notified, longest first.
    waiting: VecDeque<(u64, Waker)>,
    /// Workers that were notified (and so left `waiting`) but have not looked yet.
    notified: usize,
    /// The waiting worker that has a timer, and when it ends. It may have been notified already.
    timekeeper: Option<(u64, Nanos)>,
    /// Number of the next worker to wait.
    number: u64,
    /// Those waiting for the end.
    pub(super) drained: Vec<Waker>,
}

/// Those to wake.
struct Wakes {
    /// A worker, for a key.
    worker: Option<Waker>,
    /// Those who were waiting for the end, once it has come.
    drained: Vec<Waker>,
}

// === impl State ===

impl<K: Key> State<K> {
    pub(super) fn new(queue: RateLimited<K>) -> State<K> {
        State {
            queue,
            waiting: VecDeque::new(),
            notified: 0,
            timekeeper: None,
            number: 0,
            drained: Vec::new(),
        }
    }

    /// Returns the tasks to wake after a change. Usually none is waiting.
    #[inline]
    fn wakes(&mut self) -> Option<Wakes> {
        if self.waiting.is_empty() && self.drained.is_empty() {
            return None;
        }
        let worker = if self.waiting.is_empty() { None } else { self.notify() };
        let ended = !self.drained.is_empty() && self.queue.is_drained();
        let drained = if ended { std::mem::take(&mut self.drained) } else { Vec::new() };
        Some(Wakes { worker, drained })
    }

    /// The worker to notify, if any. At most one: it looks at the queue, and looking wakes the
    /// next.
    fn notify(&mut self) -> Option<Waker> {
        let deadline = self.queue.next_deadline();
        let watched = match (deadline, self.timekeeper) {
            (None, _) => true,
            (Some(deadline), Some((_, until))) => until <= deadline,
            (Some(_), None) => false,
        };
        // A notified worker will look, and become timekeeper if there is nothing else to do.
        let unnoticed = self.queue.ready() > self.notified || (!watched && self.notified == 0);
        if !unnoticed && !self.queue.is_shut_down() {
            return None;
        }
        self.notified += 1;
        self.waiting.pop_front().map(|(_, waker)| waker)
    }

    /// A worker stops waiting.
    pub(super) fn leave(&mut self, number: u64) {
        match self.waiting.iter().position(|(waiting, _)| *waiting == number) {
            Some(at) => drop(self.waiting.remove(at)),
            None => self.notified -= 1,
        }
        if self.timekeeper.is_some_and(|(keeper, _)| keeper == number) {
            self.timekeeper = None;
        }
    }

    /// A worker waits. If it has to keep the time, also returns until when.
    pub(super) fn wait(&mut self, waker: Waker) -> (u64, Option<Nanos>) {
        let number = self.number;
        self.number += 1;
        self.waiting.push_back((number, waker));
        let deadline = self.queue.next_deadline().filter(|deadline| match self.timekeeper {
            Some((_, until)) => *deadline < until,
            None => true,
        });
        if let Some(deadline) = deadline {
            self.timekeeper = Some((number, deadline));
        }
        (number, deadline)
    }
}

/// Gives the lock back after a change, then wakes those affected: without the lock, so that no
/// thread wakes up only to wait for it. Returns whether a worker was woken.
pub(super) fn unlock<K: Key>(mut state: MutexGuard<'_, State<K>>) -> bool {
    let wakes = state.wakes();
    drop(state);
    let Some(Wakes { worker, drained }) = wakes else { return false };
    let woken = worker.is_some();
    worker.into_iter().chain(drained).for_each(Waker::wake);
    woken
}
