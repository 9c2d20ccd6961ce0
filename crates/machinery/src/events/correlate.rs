//! Deduplication and rate limits of Events. Pure: the time is an argument.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use jiff::Timestamp;
use tokio::time::Instant;

use super::recent::Recent;
use super::{BURST, Dropped, MEMORY, QUEUE, QUEUE_OF_ONE, REFILL, RESERVE, Regarding, Type, text};
use crate::object::InternedStr;

/// Attributes that similar occurrences share: all but the note.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub(super) controller: &'static str,
    pub(super) regarding: Regarding,
    pub(super) kind: Type,
    pub(super) reason: &'static str,
    pub(super) action: &'static str,
}

/// Attributes of equal occurrences, which share one Event object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Series {
    pub(super) group: Group,
    pub(super) note: Arc<str>,
}

/// The result of an occurrence.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A new Event waits to be written.
    New,
    /// It was added to the count of an existing Event.
    Repeated,
    /// It was dropped.
    Dropped(Dropped),
}

/// One write.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) series: Arc<Series>,
    /// metadata.name.
    pub(super) name: String,
    /// The first occurrence.
    pub(super) first: Timestamp,
    /// The last occurrence.
    pub(super) last: Timestamp,
    /// Number of occurrences.
    pub(super) count: u32,
    /// True if the API server has the Event: its count is raised instead of creating it.
    pub(super) exists: bool,
}

/// Outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The API server has the Event.
    Written,
    /// The Event has expired on the API server.
    Expired,
    /// The write failed.
    Failed,
}

/// Decides which Events are written. Its maps and its queue are bounded.
pub(super) struct Correlator {
    /// The keys of all entries of `series` in state `Queued`, each exactly once. Only `Idle` entries are removed from
    /// `series`.
    queue: VecDeque<Arc<Series>>,
    series: Recent<Arc<Series>, Entry>,
    budgets: Recent<(Regarding, Type), Budget>,
    names: Names,
    /// Number of entries that are not `Idle`.
    busy: usize,
    /// Number of entries that are not `Idle`, by namespace.
    by_namespace: HashMap<InternedStr, usize>,
}

/// A token bucket.
struct Budget {
    tokens: f64,
    at: Instant,
}

struct Names {
    /// Distinguishes this process's names from those of others.
    instance: u32,
    /// Stamp of the last name. It increases strictly, so that no two Events get the same name.
    stamp: u64,
}

struct Entry {
    name: String,
    first: Timestamp,
    last: Timestamp,
    count: u32,
    /// The count that the API server has; 0 if it has no such Event.
    written: u32,
    /// The count in the current write.
    sent: u32,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No write is due, but `count` can be ahead of `written`.
    Idle,
    /// In the queue.
    Queued,
    /// A write is running.
    Writing,
    /// A write is running, and another one is due after it.
    WritingAgain,
}

// === impl Correlator ===

impl Correlator {
    /// Creates a correlator. `instance` distinguishes the names of this process's Events from those of other processes.
    pub(super) fn new(instance: u32) -> Correlator {
        Correlator {
            queue: VecDeque::new(),
            series: Recent::new(MEMORY),
            budgets: Recent::new(MEMORY),
            names: Names { instance, stamp: 0 },
            busy: 0,
            by_namespace: HashMap::new(),
        }
    }

    /// Adds an occurrence at `now`, with `wall` as its time in the Event. `note` is already clean.
    pub(super) fn observe(
        &mut self,
        group: Group,
        note: &str,
        now: Instant,
        wall: Timestamp,
    ) -> Verdict {
        let series = Arc::new(Series { group, note: note.into() });
        if self.series.get_mut(&series).is_some() {
            self.repeat(&series, now, wall);
            return Verdict::Repeated;
        }
        self.create(&series, now, wall)
    }

    /// Returns the next write. Report its end to [`Correlator::finish`].
    pub(super) fn take(&mut self, may: impl Fn(&Series) -> bool) -> Option<Job> {
        let first = self.queue.iter().position(|series| may(series))?;
        let series = self.queue.remove(first)?;
        let entry = self.series.get_mut(&series)?;
        entry.state = State::Writing;
        entry.sent = entry.count;
        Some(Job {
            name: entry.name.clone(),
            first: entry.first,
            last: entry.last,
            count: entry.count,
            exists: entry.written > 0,
            series,
        })
    }

    /// Handles the end of a write.
    pub(super) fn finish(&mut self, series: &Arc<Series>, outcome: Outcome) {
        let Some(entry) = self.series.get_mut(series) else { return };
        let again = entry.state == State::WritingAgain;
        entry.state = State::Idle;
        self.busy -= 1;
        if let Some(count) = self.by_namespace.get_mut(series.group.regarding.key.namespace()) {
            *count -= 1;
        }
        self.by_namespace.retain(|_, count| *count > 0);
        match outcome {
            Outcome::Written => entry.written = entry.sent,
            Outcome::Expired => {
                // The expired Event contains the rest of the count.
                entry.count = (entry.count - entry.written).max(1);
                entry.written = 0;
                entry.first = entry.last;
                entry.name = self.names.next(series, entry.last);
            }
            // The next occurrence sends the count.
            Outcome::Failed => {}
        }
        if again || outcome == Outcome::Expired {
            self.enqueue(series);
        }
    }

    /// Returns the number of waiting and running writes.
    pub(super) fn busy(&self) -> usize {
        self.busy
    }

    /// Returns the waiting series, without taking them.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Arc<Series>> {
        self.queue.iter()
    }

    fn repeat(&mut self, series: &Arc<Series>, now: Instant, wall: Timestamp) {
        let Some(entry) = self.series.get_mut(series) else { return };
        entry.count = entry.count.saturating_add(1);
        // A wall clock can be set back, but the times of a series must increase.
        entry.last = entry.last.max(wall);
        match entry.state {
            State::Queued | State::WritingAgain => {}
            State::Idle | State::Writing => {
                let idle = entry.state == State::Idle;
                let least = if entry.written == 0 { 1 } else { RESERVE + 1 };
                if (idle && !self.has_room(series)) || !self.pay(&series.group, least, now) {
                    // The next permitted write sends the count.
                } else if idle {
                    self.enqueue(series);
                } else if let Some(entry) = self.series.get_mut(series) {
                    entry.state = State::WritingAgain;
                }
            }
        }
    }

    fn create(&mut self, series: &Arc<Series>, now: Instant, wall: Timestamp) -> Verdict {
        if !self.has_room(series) {
            return Verdict::Dropped(Dropped::QueueFull);
        }
        if !self.pay(&series.group, 1, now) {
            return Verdict::Dropped(Dropped::Spam);
        }
        let entry = Entry {
            name: self.names.next(series, wall),
            first: wall,
            last: wall,
            count: 1,
            written: 0,
            sent: 0,
            state: State::Idle,
        };
        self.series.insert(series.clone(), entry, |entry| entry.state != State::Idle);
        self.enqueue(series);
        Verdict::New
    }

    fn enqueue(&mut self, series: &Arc<Series>) {
        if let Some(entry) = self.series.get_mut(series) {
            entry.state = State::Queued;
            self.busy += 1;
            let namespace = series.group.regarding.key.namespace();
            *self.by_namespace.entry(namespace.clone()).or_default() += 1;
            self.queue.push_back(series.clone());
        }
    }

    /// Returns whether another write can wait. A namespace whose webhook hangs must not fill the queue.
    fn has_room(&self, series: &Series) -> bool {
        let of_one = self.by_namespace.get(series.group.regarding.key.namespace());
        self.busy < QUEUE && of_one.is_none_or(|count| *count < QUEUE_OF_ONE)
    }

    /// Takes one token, if at least `least` are left.
    fn pay(&mut self, group: &Group, least: u32, now: Instant) -> bool {
        let key = (group.regarding.clone(), group.kind);
        if self.budgets.get_mut(&key).is_none() {
            self.budgets.insert(key.clone(), Budget::new(now), |_| false);
        }
        self.budgets.get_mut(&key).is_some_and(|budget| budget.take(least, now))
    }
}

impl Budget {
    /// Creates a full budget.
    pub(super) fn new(now: Instant) -> Budget {
        Budget { tokens: f64::from(BURST), at: now }
    }

    /// Takes one token, if at least `least` are left.
    pub(super) fn take(&mut self, least: u32, now: Instant) -> bool {
        let earned = now.duration_since(self.at).as_secs_f64() / REFILL.as_secs_f64();
        self.tokens = (self.tokens + earned).min(f64::from(BURST));
        self.at = now;
        let enough = self.tokens >= f64::from(least);
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }
}

impl Names {
    /// Returns a unique name for an Event. Every attempt to write the Event uses the same name.
    fn next(&mut self, series: &Series, wall: Timestamp) -> String {
        // Microseconds since 1970, or one more than the last stamp.
        let micros = u64::try_from(wall.as_microsecond()).unwrap_or_default();
        self.stamp = micros.max(self.stamp + 1);
        text::name(series.group.regarding.key.name(), self.instance, self.stamp)
    }
}
