//! Deduplication and rate limits of Events. Pure: the time is an argument.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use jiff::Timestamp;
use lru::LruCache;
use tokio::time::Instant;

use super::{
    AGAIN, BURST, Dropped, MEMORY, QUEUE, QUEUE_OF_ONE, REFILL, RESERVE, Regarding, Type, text,
};
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

/// What is published, without the time. Equal occurrences are one Event for a while.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Said {
    pub(super) group: Group,
    pub(super) note: Arc<str>,
}

/// The result of an occurrence.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A new Event waits to be written.
    New,
    /// It equals a recent Event.
    Repeated,
    /// It was dropped.
    Dropped(Dropped),
}

/// An Event to be created.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) said: Arc<Said>,
    /// metadata.name.
    pub(super) name: String,
    /// The time of the occurrence.
    pub(super) at: Timestamp,
}

/// Decides which Events are written. Its maps and its queue are bounded.
pub(super) struct Correlator {
    queue: VecDeque<Job>,
    recent: LruCache<Arc<Said>, Accepted>,
    budgets: LruCache<(Regarding, Type), Budget>,
    names: Names,
    /// Number of waiting and running writes, by namespace.
    busy: HashMap<InternedStr, usize>,
}

/// The last time that something was accepted.
struct Accepted {
    at: Instant,
    /// True until its write has ended.
    is_busy: bool,
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

// === impl Correlator ===

impl Correlator {
    /// Creates a correlator. `instance` distinguishes the names of this process's Events from those of other processes.
    pub(super) fn new(instance: u32) -> Correlator {
        Correlator {
            queue: VecDeque::new(),
            // Without a limit of their own, because a limit would be allocated at once.
            recent: LruCache::unbounded(),
            budgets: LruCache::unbounded(),
            names: Names { instance, stamp: 0 },
            busy: HashMap::new(),
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
        let said = Arc::new(Said { group, note: note.into() });
        let before = self.recent.get_mut(&said);
        let least = if before.is_some() { RESERVE + 1 } else { 1 };
        if before.is_some_and(|it| it.is_busy || now.duration_since(it.at) < AGAIN) {
            return Verdict::Repeated;
        }
        if !self.has_room(said.namespace()) {
            return Verdict::Dropped(Dropped::QueueFull);
        }
        if !self.pay(&said.group, least, now) {
            return Verdict::Dropped(Dropped::Spam);
        }
        self.recent.put(said.clone(), Accepted { at: now, is_busy: true });
        if self.recent.len() > MEMORY {
            self.recent.pop_lru();
        }
        *self.busy.entry(said.namespace().clone()).or_default() += 1;
        let name = self.names.next(&said, wall);
        self.queue.push_back(Job { said, name, at: wall });
        Verdict::New
    }

    /// Returns the next write in a namespace that `may` have one. Report its end to [`Correlator::finish`].
    pub(super) fn take(&mut self, may: impl Fn(&InternedStr) -> bool) -> Option<Job> {
        let first = self.queue.iter().position(|job| may(job.said.namespace()))?;
        self.queue.remove(first)
    }

    /// Handles the end of a write. After a failure, the next occurrence is written.
    pub(super) fn finish(&mut self, said: &Arc<Said>, is_written: bool) {
        match self.recent.get_mut(said) {
            Some(accepted) if is_written => accepted.is_busy = false,
            _ => drop(self.recent.pop(said)),
        }
        if let Some(count) = self.busy.get_mut(said.namespace()) {
            *count -= 1;
        }
        self.busy.retain(|_, count| *count > 0);
    }

    /// Returns the number of waiting and running writes.
    pub(super) fn busy(&self) -> usize {
        self.busy.values().sum()
    }

    /// Returns what waits, without taking it.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Arc<Said>> {
        self.queue.iter().map(|job| &job.said)
    }

    /// Returns whether another write can wait. A namespace whose webhook hangs must not fill the queue.
    fn has_room(&self, namespace: &InternedStr) -> bool {
        let of_one = self.busy.get(namespace);
        self.busy() < QUEUE && of_one.is_none_or(|count| *count < QUEUE_OF_ONE)
    }

    /// Takes one token, if at least `least` are left.
    fn pay(&mut self, group: &Group, least: u32, now: Instant) -> bool {
        let key = (group.regarding.clone(), group.kind);
        let is_paid = self.budgets.get_or_insert_mut(key, || Budget::new(now)).take(least, now);
        if self.budgets.len() > MEMORY {
            self.budgets.pop_lru();
        }
        is_paid
    }
}

impl Said {
    pub(super) fn namespace(&self) -> &InternedStr {
        self.group.regarding.key.namespace()
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
    fn next(&mut self, said: &Said, wall: Timestamp) -> String {
        // Microseconds since 1970, or one more than the last stamp.
        let micros = u64::try_from(wall.as_microsecond()).unwrap_or_default();
        self.stamp = micros.max(self.stamp + 1);
        text::name(said.group.regarding.key.name(), self.instance, self.stamp)
    }
}
