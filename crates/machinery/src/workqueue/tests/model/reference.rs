//! The model: plain lists, searched from end to end.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::super::Retry;
use super::super::super::queue::Nanos;
use super::super::{Named, Priority};
use super::MS;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Known {
    pub(super) queued: Option<usize>,
    /// The number of the take.
    pub(super) processing: Option<u64>,
    pub(super) dirty: Option<Priority>,
    pub(super) retry_due: bool,
    pub(super) held: bool,
    pub(super) priority: Option<Priority>,
    pub(super) failures: u32,
    pub(super) retry: Option<Nanos>,
}

#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) now: Nanos,
    pub(super) workers: usize,
    pub(super) keys: BTreeMap<Named, Known>,
    /// Per priority, the tenants in the order of their turns, with their queues. A queue emptied by other
    /// priorities keeps its turn until the whole priority is empty.
    pub(super) queues: [Vec<(u32, Vec<Named>)>; 3],
    pub(super) passed_over: u32,
    /// Tokens, as nanoseconds' worth, and as of when.
    pub(super) tokens: (Nanos, Nanos),
    pub(super) takes: u64,
    pub(super) closed: bool,
    /// Result of the last take.
    pub(super) taken: Option<(Named, Priority)>,
    /// Result of the last retry.
    pub(super) delay: Option<Duration>,
}

/// The time of one token.
const INTERVAL: Nanos = 20 * MS;
/// The line of retries that wait for a token.
const LATE: usize = 2;

impl Model {
    pub(super) fn new(workers: usize) -> Model {
        Model {
            now: 0,
            workers,
            keys: BTreeMap::new(),
            queues: Default::default(),
            passed_over: 0,
            tokens: (2 * INTERVAL, 0),
            takes: 0,
            closed: false,
            taken: None,
            delay: None,
        }
    }

    pub(super) fn known(&mut self, key: Named) -> &mut Known {
        self.keys.entry(key).or_default()
    }

    pub(super) fn tidy(&mut self) {
        self.keys.retain(|_, known| {
            let Known { queued, processing, dirty, retry_due, retry, .. } = known;
            queued.is_some()
                || processing.is_some()
                || dirty.is_some()
                || *retry_due
                || retry.is_some()
        });
    }

    pub(super) fn push(&mut self, key: Named, line: usize) {
        if let Some(before) = self.known(key).queued {
            let queues = &mut self.queues[before];
            queues.iter_mut().for_each(|(_, line)| line.retain(|other| *other != key));
            leave_if_empty(queues);
        }
        self.known(key).queued = Some(line);
        let queues = &mut self.queues[line];
        match queues.iter_mut().find(|(tenant, _)| *tenant == key.0) {
            Some((_, keys)) => keys.push(key),
            None => queues.push((key.0, vec![key])),
        }
    }

    pub(super) fn mark(&mut self, key: Named, priority: Priority) {
        let known = self.known(key);
        match known.queued {
            Some(before) if before == LATE || priority.index() > before => {
                self.push(key, priority.index());
            }
            Some(_) => {}
            None if known.processing.is_some() || known.held => {
                known.dirty = Some(known.dirty.map_or(priority, |before| before.max(priority)));
            }
            None => self.push(key, priority.index()),
        }
    }

    pub(super) fn push_retry(&mut self, key: Named) {
        let known = self.known(key);
        let line = match known.failures {
            0 => Priority::Low.index(),
            1 => known.priority.unwrap_or(Priority::Low).index(),
            _ => LATE,
        };
        self.push(key, line);
    }

    /// Queues late retries for as many tokens as there are.
    fn let_late_in(&mut self) {
        let (level, as_of) = self.tokens;
        let mut level = (level + self.now - as_of).min(2 * INTERVAL);
        while level >= INTERVAL && !self.queues[LATE].is_empty() {
            level -= INTERVAL;
            let mut queues = std::mem::take(&mut self.queues[LATE]);
            queues.retain(|(_, keys)| !keys.is_empty());
            let (tenant, mut keys) = queues.remove(0);
            let key = keys.remove(0);
            if !keys.is_empty() {
                queues.push((tenant, keys));
            }
            self.queues[LATE] = queues;
            self.known(key).queued = None;
            self.push(key, Priority::Low.index());
        }
        self.tokens = (level, self.now);
    }

    pub(super) fn fire(&mut self) {
        loop {
            let timers = self.keys.iter().filter_map(|(key, known)| Some((known.retry?, *key)));
            let Some((_, key)) = timers.min().filter(|(due, _)| *due <= self.now) else { break };
            let known = self.known(key);
            known.retry = None;
            known.held = false;
            if known.queued.is_some() {
            } else if known.processing.is_some() {
                known.retry_due = true;
            } else if let Some(priority) = known.dirty.take() {
                self.push(key, priority.index());
            } else {
                self.push_retry(key);
            }
        }
        self.let_late_in();
    }

    pub(super) fn retry(&mut self, key: Named, retry: Retry) -> Duration {
        let now = self.now;
        let known = self.known(key);
        if known.queued == Some(LATE) {
            return Duration::ZERO;
        }
        known.retry_due = false;
        // A pending retry without a failure is a requeue.
        if known.retry.is_none() || known.failures == 0 {
            known.failures += 1;
        }
        let n = known.failures - 1;
        let backoff = (retry.backoff.base * 2u32.pow(n.min(30))).min(retry.backoff.max);
        let mut due = now + backoff.as_nanos() as Nanos;
        due = due.min(known.retry.unwrap_or(due));
        let at_least = retry.at_least.as_nanos() as Nanos;
        if at_least > 0 {
            known.held = true;
            due = due.max(now + at_least);
        } else if known.held {
            due = due.max(known.retry.unwrap_or(due));
        }
        known.retry = Some(due);
        Duration::from_nanos(due - now)
    }

    /// Per priority, the places of the queues that could be served, in the order of their turns. Tenants
    /// with half of the workers count only if there are no others.
    fn turns(&self) -> [Vec<usize>; 2] {
        let running = |tenant: u32| self.runs().iter().filter(|key| key.0 == tenant).count();
        let turns = |most: usize| {
            Priority::ALL.map(|priority| {
                let queues = self.queues[priority.index()].iter().enumerate();
                let served = queues
                    .filter(|(_, (tenant, line))| !line.is_empty() && running(*tenant) < most);
                served.map(|(place, _)| place).collect()
            })
        };
        let held = if self.workers < 2 { 1 } else { self.workers / 2 };
        let below: [Vec<usize>; 2] = turns(held);
        if below.iter().all(Vec::is_empty) { turns(usize::MAX) } else { below }
    }

    pub(super) fn take(&mut self) -> Option<(Named, Priority)> {
        let turns = self.turns();
        let [low, high] = [0, 1].map(|priority: usize| !turns[priority].is_empty());
        self.passed_over += u32::from(low);
        let priority = match (low, high) {
            (false, false) => return None,
            (true, true) if self.passed_over < Priority::LOW_INTERVAL => Priority::High,
            (true, _) => Priority::Low,
            (false, true) => Priority::High,
        };
        if priority == Priority::Low {
            self.passed_over = 0;
        }
        let queues = &mut self.queues[priority.index()];
        // Empty queues before the one whose turn it is lose their turns; others keep them.
        let mut later = queues.split_off(turns[priority.index()][0]);
        queues.retain(|(_, line)| !line.is_empty());
        let (tenant, mut line) = later.remove(0);
        queues.append(&mut later);
        let key = line.remove(0);
        if !line.is_empty() {
            queues.push((tenant, line));
        }
        leave_if_empty(queues);
        self.takes += 1;
        let takes = self.takes;
        let known = self.known(key);
        known.queued = None;
        known.processing = Some(takes);
        known.priority = Some(priority);
        Some((key, priority))
    }

    pub(super) fn runs(&self) -> Vec<Named> {
        let mut runs: Vec<(u64, Named)> =
            self.keys.iter().filter_map(|(key, known)| Some((known.processing?, *key))).collect();
        runs.sort_unstable();
        runs.into_iter().map(|(_, key)| key).collect()
    }

    pub(super) fn done(&mut self, key: Named) {
        let known = self.known(key);
        known.processing = None;
        if std::mem::take(&mut known.retry_due) {
            if known.dirty.is_none() {
                self.push_retry(key);
            }
        } else if known.retry.is_none() {
            known.failures = 0;
        }
        self.enqueue_if_dirty(key);
    }

    pub(super) fn requeue(&mut self, key: Named, delay: Nanos) {
        let due = self.now + delay;
        let known = self.known(key);
        if known.queued != Some(LATE) {
            known.retry_due = false;
            known.retry = Some(due);
        }
    }

    /// The run did not begin: it is still to come, in the priority that it was taken from or in a better
    /// one that was asked for meanwhile.
    pub(super) fn put_back(&mut self, key: Named) {
        let closed = self.closed;
        let known = self.known(key);
        known.processing = None;
        if closed {
            return;
        }
        let priority = known.dirty.take().max(known.priority).unwrap_or(Priority::Low);
        self.push(key, priority.index());
    }

    pub(super) fn enqueue_if_dirty(&mut self, key: Named) {
        let known = self.known(key);
        if known.processing.is_none()
            && !known.held
            && let Some(priority) = known.dirty.take()
        {
            self.push(key, priority.index());
        }
    }

    pub(super) fn forget(&mut self, key: Named) {
        let known = self.known(key);
        (known.retry, known.failures) = (None, 0);
        (known.retry_due, known.held) = (false, false);
        self.enqueue_if_dirty(key);
    }

    pub(super) fn shut_down(&mut self) {
        self.closed = true;
        for known in self.keys.values_mut() {
            (known.retry, known.held) = (None, false);
            (known.queued, known.dirty, known.retry_due) = (None, None, false);
        }
        self.queues = Default::default();
    }

    pub(super) fn depth(&self) -> [usize; 3] {
        [0, 1, LATE].map(|priority| self.queues[priority].iter().map(|(_, line)| line.len()).sum())
    }

    pub(super) fn delayed(&self) -> usize {
        self.keys.values().map(|known| known.retry.iter().count()).sum()
    }
}

/// If no key is waiting, no tenant keeps a turn.
fn leave_if_empty(queues: &mut Vec<(u32, Vec<Named>)>) {
    if queues.iter().all(|(_, line)| line.is_empty()) {
        queues.clear();
    }
}
