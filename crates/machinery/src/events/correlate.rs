//! Deduplication and rate limits of Events. Pure: the time is an argument.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use lru::LruCache;
use tokio::time::Instant;

use super::{
    AGAIN, BURST, Dropped, Event, MEMORY, QUEUE, QUEUE_OF_ONE, REFILL, RESERVE, Regarding, Type,
    WRITERS, WRITERS_OF_ONE, text,
};
use crate::object::InternedStr;

/// An Event to be created.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) said: Arc<Event>,
    /// metadata.name.
    pub(super) name: String,
    /// The time of the occurrence.
    pub(super) at: Timestamp,
}

/// Decides which Events are written. Its maps and its queue are bounded.
pub(super) struct Correlator {
    queue: VecDeque<Job>,
    running: Vec<Arc<Event>>,
    recent: LruCache<Arc<Event>, Accepted>,
    /// Token buckets, each as the time at which it is full.
    budgets: LruCache<(Regarding, Type), Instant>,
    /// Distinguishes this process's names from those of others.
    instance: u32,
    /// Stamp of the last name. It increases strictly, so that no two Events get the same name.
    stamp: u64,
}

/// The last time that something was accepted.
struct Accepted {
    at: Instant,
    /// The time of its last occurrence.
    seen: Instant,
    /// True until its write has ended.
    is_busy: bool,
}

// === impl Correlator ===

impl Correlator {
    /// Creates a correlator. `instance` distinguishes the names of this process's Events from those of other processes.
    pub(super) fn new(instance: u32) -> Correlator {
        Correlator {
            queue: VecDeque::new(),
            running: Vec::with_capacity(WRITERS),
            // Without a limit of their own, because a limit would be allocated at once.
            recent: LruCache::unbounded(),
            budgets: LruCache::unbounded(),
            instance,
            stamp: 0,
        }
    }

    /// Adds an occurrence at `now`, with `wall` as its time in the Event. Returns whether it is a new Event, or why it is
    /// dropped.
    pub(super) fn observe(
        &mut self,
        said: Event,
        now: Instant,
        wall: Timestamp,
    ) -> Result<bool, Dropped> {
        self.forget(now);
        let said = Arc::new(said);
        let before = self.recent.get_mut(&said);
        let least = if before.is_some() { RESERVE + 1 } else { 1 };
        let is_recent = before.is_some_and(|it| {
            it.seen = now;
            it.is_busy || now.duration_since(it.at) < AGAIN
        });
        if is_recent {
            return Ok(false);
        }
        if !self.has_room(said.namespace()) {
            return Err(Dropped::QueueFull);
        }
        if !self.pay(&said, least, now) {
            return Err(Dropped::Spam);
        }
        self.recent.put(said.clone(), Accepted { at: now, seen: now, is_busy: true });
        if self.recent.len() > MEMORY {
            self.recent.pop_lru();
        }
        // Microseconds since 1970, or one more than the last stamp.
        let micros = u64::try_from(wall.as_microsecond()).unwrap_or_default();
        self.stamp = micros.max(self.stamp + 1);
        // Every attempt to write the Event uses this name.
        let name = text::name(said.regarding.key.name(), self.instance, self.stamp);
        self.queue.push_back(Job { said, name, at: wall });
        Ok(true)
    }

    /// Returns the next write whose namespace has a free writer. Report its end to [`Correlator::finish`].
    pub(super) fn take(&mut self) -> Option<Job> {
        if self.running.len() == WRITERS {
            return None;
        }
        let is_free = |job: &Job| count(&self.running, job.said.namespace()) < WRITERS_OF_ONE;
        let first = self.queue.iter().position(is_free)?;
        let job = self.queue.remove(first)?;
        self.running.push(job.said.clone());
        Some(job)
    }

    /// Handles the end of a write. After a failure, the next occurrence is written.
    pub(super) fn finish(&mut self, said: &Arc<Event>, is_written: bool) {
        match self.recent.get_mut(said) {
            Some(accepted) if is_written => accepted.is_busy = false,
            _ => drop(self.recent.pop(said)),
        }
        self.running.retain(|running| !Arc::ptr_eq(running, said));
    }

    /// Returns the number of waiting and running writes.
    pub(super) fn busy(&self) -> usize {
        self.queue.len() + self.running.len()
    }

    /// Returns what waits, without taking it.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.queue.iter().map(|job| &job.said)
    }

    /// Returns whether another write can wait. A namespace whose webhook hangs must not fill the queue.
    fn has_room(&self, namespace: &InternedStr) -> bool {
        self.busy() < QUEUE && count(self.waiting().chain(&self.running), namespace) < QUEUE_OF_ONE
    }

    /// Forgets full buckets, and Events that were last seen before any bucket could have been emptied and refilled. Both
    /// maps begin with what was used longest ago.
    fn forget(&mut self, now: Instant) {
        let is_old = |it: &Accepted| !it.is_busy && now.duration_since(it.seen) > REFILL * BURST;
        while self.recent.peek_lru().is_some_and(|(_, it)| is_old(it)) {
            self.recent.pop_lru();
        }
        while self.budgets.peek_lru().is_some_and(|(_, full_at)| *full_at <= now) {
            self.budgets.pop_lru();
        }
    }

    /// Takes one token, if at least `least` are left.
    fn pay(&mut self, said: &Event, least: u32, now: Instant) -> bool {
        let full_at = self.budgets.get_or_insert_mut((said.regarding.clone(), said.kind), || now);
        let missing = full_at.saturating_duration_since(now);
        let is_paid = missing <= REFILL * (BURST - least);
        if is_paid {
            *full_at = now + missing + REFILL;
        }
        if self.budgets.len() > MEMORY {
            self.budgets.pop_lru();
        }
        is_paid
    }
}

impl Event {
    fn namespace(&self) -> &InternedStr {
        self.regarding.key.namespace()
    }
}

/// Returns how many of these are about objects of this namespace.
fn count<'a>(all: impl IntoIterator<Item = &'a Arc<Event>>, namespace: &InternedStr) -> usize {
    all.into_iter().filter(|said| said.namespace() == namespace).count()
}
