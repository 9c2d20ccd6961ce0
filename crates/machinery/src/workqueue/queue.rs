//! The queue, without locks and clocks.
//!
//! | a key is …     | state                  | an add …                         | leaves by        |
//! |----------------|------------------------|----------------------------------|------------------|
//! | unknown        | no item                | queues it                        | –                |
//! | queued         | `queued`               | can only raise its priority      | `take`           |
//! | in process     | `is_running`           | makes it dirty                   | `done`: unknown  |
//! | … and dirty    | `is_running`, `dirty`  | can only raise its next priority | `done`: queued   |
//! | held           | `is_held`, a timer     | makes it dirty                   | the timer        |
//! | delayed        | a timer                | queues it                        | the timer        |
//! | late           | `queued` in [`LATE`]   | queues it                        | the overall rate |
//!
//! Turns are counted in keys. A tenant is *at its share* while a given number of its keys run. It is then skipped while
//! another tenant has a key to serve, so that a tenant with slow keys does not occupy all workers.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use slab::Slab;

use super::request::{Key, Limits, Priority, Retry};

/// Nanoseconds since the queue was created: enough for 584 years.
pub(super) type Nanos = u64;

/// The line of retries that wait for the overall rate, beside those of the priorities. From there, the tenants' keys
/// enter that of [`Priority::Low`] in turn.
const LATE: usize = 2;

/// A run that a worker received.
pub(super) struct Next<K> {
    pub(super) id: u32,
    pub(super) key: K,
    pub(super) priority: Priority,
    /// Time since the run was requested.
    pub(super) waited: Duration,
}

/// State of one key.
struct Item<K> {
    key: K,
    tenant: u32,
    /// Time of the first request for the wanted run.
    queued_since: Nanos,
    /// Due time of its retry or requeue.
    due: Option<Nanos>,
    /// Consecutive failures, each after the backoff of the previous one.
    failures: u8,
    /// While it waits, its line and the ticket of its entry there. Entries with another ticket are void.
    queued: Option<(u8, u32)>,
    is_running: bool,
    /// The priority of a request while it was running or held: it is queued when that ends.
    dirty: Option<Priority>,
    /// Its retry came due while it was running: unless forgotten, it is queued when that ends.
    is_retry_due: bool,
    /// A Retry-After applies: requests do not run before the retry is due.
    is_held: bool,
    /// The priority that it was taken from.
    priority: Priority,
}

/// Waiting keys of one tenant in one priority, or [`LATE`]; first in, first out.
#[derive(Default)]
struct Line {
    /// Items and tickets.
    entries: VecDeque<(u32, u32)>,
    /// Number of the entries that are not void.
    len: usize,
    /// True if the tenant is in the priority's ring: always while it has keys there. If its last key moved to another
    /// priority, the tenant leaves at its turn or when the priority is empty.
    in_ring: bool,
}

struct Tenant<T> {
    name: T,
    /// Keys with state. Without any, and in no ring, the tenant is removed.
    items: usize,
    running: usize,
    lines: [Line; 3],
}

/// The whole queue.
pub(super) struct Queue<K: Key> {
    /// Every item, by its key.
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
    items: Slab<Item<K>>,
    tenant_ids: HashMap<K::Tenant, u32>,
    tenants: Slab<Tenant<K::Tenant>>,
    /// Tenants in the order of their turns, by priority.
    rings: [VecDeque<u32>; 3],
    /// Keys waiting, by line.
    waiting: [usize; 3],
    /// Gets since [`Priority::Low`] was last served, counting only those at which it could have been.
    passed_over: u32,
    /// A tenant with this many running keys is skipped.
    share: usize,
    /// Tenants at their share. With half of the workers as the share, at most three tenants are at it (three workers
    /// with one key each), and at most two while a worker is free.
    saturated: Vec<u32>,
    /// Items being processed and when their runs began.
    runs: Vec<(u32, Nanos)>,
    /// Due time and item of every timer.
    timers: BTreeSet<(Nanos, u32)>,
    tickets: u32,
    /// The time at which the overall rate permits another retry.
    next_token: Nanos,
    limits: Limits,
    limiter: RateLimiter<NotKeyed, InMemoryState, GivenTime, NoOpMiddleware<Duration>>,
    random: fastrand::Rng,
    is_shut_down: bool,
    /// The latest time seen. Clocks are read before the lock is taken, so times can arrive out of order.
    now: Nanos,
    /// Runs requested since the start.
    adds: u64,
    /// Delays requested since the start.
    retries: u64,
}

/// The state of a queue at one moment. client-go's names are given where they exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Runs requested so far, without repeated requests (`workqueue_adds_total`). A retry or timer counts when it is
    /// due.
    pub adds: u64,
    /// Delays and retries requested so far (`workqueue_retries_total`).
    pub retries: u64,
    /// Runs requested that have not begun, in the order of [`Priority::ALL`] (their sum: `workqueue_depth`): keys ready
    /// to be taken and, as in client-go, keys requested again while being processed.
    pub depth: [usize; 2],
    /// Timers set: backoffs, requeues, and retries that wait for the overall rate.
    pub delayed: usize,
    /// Keys being processed.
    pub processing: usize,
    /// Keys with state in the queue.
    pub known: usize,
    /// Total age of all running runs (`workqueue_unfinished_work_seconds`).
    pub unfinished: Duration,
    /// Age of the longest run (`workqueue_longest_running_processor_seconds`).
    pub longest: Duration,
}

/// A clock that returns the time it was given.
struct GivenTime(Cell<Duration>);

// === impl Queue ===

impl<K: Key> Queue<K> {
    /// Creates a queue for this number of workers. While another tenant waits, one tenant gets at most half of them.
    pub(super) fn new(limits: Limits, workers: usize) -> Queue<K> {
        let at_least_one = |number: u32| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_second(at_least_one(limits.retries_per_second))
            .allow_burst(at_least_one(limits.retry_burst));
        let clock = GivenTime(Cell::new(Duration::ZERO));
        Queue {
            ids: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            items: Slab::new(),
            tenant_ids: HashMap::new(),
            tenants: Slab::new(),
            rings: Default::default(),
            waiting: [0; 3],
            passed_over: 0,
            share: (workers / 2).max(1),
            saturated: Vec::new(),
            runs: Vec::new(),
            timers: BTreeSet::new(),
            tickets: 0,
            next_token: 0,
            limiter: RateLimiter::direct_with_clock(quota, clock),
            random: limits.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed),
            limits,
            is_shut_down: false,
            now: 0,
            adds: 0,
            retries: 0,
        }
    }

    /// Requests a run.
    pub(super) fn add(&mut self, now: Nanos, key: &K, priority: Priority) {
        let now = self.promote_due(now);
        if !self.is_shut_down {
            let id = self.get_or_insert(key);
            self.request(now, id, priority);
        }
    }

    /// Requests a run later, without a failure.
    pub(super) fn requeue(&mut self, now: Nanos, key: &K, delay: Duration) {
        let now = self.promote_due(now);
        if self.is_shut_down {
            return;
        }
        self.retries += 1;
        let id = self.get_or_insert(key);
        if self.is_late(id) {
            return;
        }
        // The retry of an earlier run that came due during this one is superseded.
        self.items[id as usize].is_retry_due = false;
        self.set_timer(id, after(now, delay));
    }

    /// Counts a failure and schedules a retry after a backoff. Returns its length.
    pub(super) fn retry(&mut self, now: Nanos, key: &K, retry: Retry) -> Duration {
        let now = self.promote_due(now);
        if self.is_shut_down {
            return Duration::ZERO;
        }
        self.retries += 1;
        let id = self.get_or_insert(key);
        if self.is_late(id) {
            return Duration::ZERO;
        }
        let item = &mut self.items[id as usize];
        item.is_retry_due = false;
        // A run that outside events caused before the backoff had passed does not count. A pending timer without a
        // failure is a requeue.
        if item.due.is_none() || item.failures == 0 {
            item.failures = item.failures.saturating_add(1);
        }
        let backoff = retry.backoff.delay(u32::from(item.failures - 1));
        let jitter = 1.0 + self.limits.jitter.clamp(0.0, 1.0) * self.random.f64();
        // A backoff that overflows never ends.
        let stretched = Duration::try_from_secs_f64(backoff.as_secs_f64() * jitter);
        let mut due = after(now, stretched.unwrap_or(Duration::MAX));
        due = item.due.map_or(due, |pending| pending.min(due));
        if retry.at_least > Duration::ZERO {
            item.is_held = true;
            due = due.max(after(now, retry.at_least));
        } else if item.is_held {
            due = due.max(item.due.unwrap_or(due));
        }
        self.set_timer(id, due);
        Duration::from_nanos(due - now)
    }

    /// Ends the failure streak: cancels the pending retry and resets the count.
    pub(super) fn forget(&mut self, now: Nanos, key: &K) {
        self.promote_due(now);
        let Some(id) = self.find(key) else { return };
        self.cancel_timer(id);
        let item = &mut self.items[id as usize];
        (item.failures, item.is_retry_due, item.is_held) = (0, false, false);
        self.enqueue_if_dirty(id);
        self.remove_if_idle(id);
    }

    /// Returns the number of consecutive failures.
    pub(super) fn requeues(&self, key: &K) -> u32 {
        self.find(key).map_or(0, |id| u32::from(self.items[id as usize].failures))
    }

    /// Takes the next key.
    pub(super) fn take(&mut self, now: Nanos) -> Option<Next<K>> {
        let now = self.promote_due(now);
        let (id, priority) = self.pop()?;
        self.runs.push((id, now));
        let item = &mut self.items[id as usize];
        (item.is_running, item.priority) = (true, priority);
        let tenant = &mut self.tenants[item.tenant as usize];
        tenant.running += 1;
        if tenant.running == self.share {
            self.saturated.push(item.tenant);
        }
        let waited = Duration::from_nanos(now.saturating_sub(item.queued_since));
        Some(Next { id, key: item.key.clone(), priority, waited })
    }

    /// Ends a run. Returns how long it took.
    pub(super) fn done(&mut self, now: Nanos, id: u32) -> Duration {
        let now = self.promote_due(now);
        let took = self.end_run(now, id);
        let item = &mut self.items[id as usize];
        if std::mem::take(&mut item.is_retry_due) {
            if item.dirty.is_none() {
                self.enqueue_retry(now, id);
            }
        } else if item.due.is_none() {
            // No retry was requested: the failure streak is over, forgotten or not.
            item.failures = 0;
        }
        self.enqueue_if_dirty(id);
        self.remove_if_idle(id);
        took
    }

    /// Puts back a key that was taken but not run. Counts neither a run nor a failure. The key keeps its priority, or a
    /// higher one requested meanwhile.
    pub(super) fn put_back(&mut self, now: Nanos, id: u32) {
        let now = self.promote_due(now);
        self.end_run(now, id);
        if self.is_shut_down {
            return self.remove_if_idle(id);
        }
        let item = &mut self.items[id as usize];
        item.is_retry_due = false;
        let priority = item.dirty.take().map_or(item.priority, |dirty| dirty.max(item.priority));
        self.push(id, priority.index());
    }

    /// Queues the keys whose timers are due. Every operation that has the time calls it first, to keep the order.
    /// Returns the time to continue with.
    #[inline]
    pub(super) fn promote_due(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now);
        if self.next_deadline().is_some_and(|due| due <= self.now) {
            self.promote_all_due();
            self.admit_late_retries();
        }
        self.now
    }

    /// Queues late retries, one of each tenant in turn, as far as the overall rate permits.
    fn admit_late_retries(&mut self) {
        while self.waiting[LATE] > 0 && self.next_token <= self.now {
            self.limiter.clock().0.set(Duration::from_nanos(self.now));
            match self.limiter.check() {
                Err(until) => self.next_token = until.earliest_possible().as_nanos() as Nanos,
                Ok(()) => {
                    let Some(id) = self.pop_from(LATE, true) else { return };
                    self.items[id as usize].queued_since = self.now;
                    self.adds += 1;
                    self.push(id, Priority::Low.index());
                }
            }
        }
    }

    /// Out of line, since usually no timer is due.
    #[cold]
    fn promote_all_due(&mut self) {
        while let Some(&(due, id)) = self.timers.first().filter(|(due, _)| *due <= self.now) {
            self.cancel_timer(id);
            let item = &mut self.items[id as usize];
            item.is_held = false;
            if item.queued.is_some() {
                // Another request came before the retry.
            } else if item.is_running {
                item.is_retry_due = true;
            } else if item.dirty.is_some() {
                // The time of a Retry-After does not count as waiting in the queue.
                item.queued_since = due;
                self.enqueue_if_dirty(id);
            } else {
                self.enqueue_retry(due, id);
            }
        }
    }

    /// Queues a retry or requeue that is due. After the second failure in a row, it waits for the overall rate.
    fn enqueue_retry(&mut self, due: Nanos, id: u32) {
        let item = &self.items[id as usize];
        match item.failures {
            // A requeue is a timer: no user waits for this key.
            0 => self.request(due, id, Priority::Low),
            1 => self.request(due, id, item.priority),
            _ if item.queued.is_none() && item.dirty.is_none() => self.push(id, LATE),
            _ => {}
        }
    }

    fn is_late(&self, id: u32) -> bool {
        self.items[id as usize].queued.is_some_and(|(line, _)| usize::from(line) == LATE)
    }

    /// Returns when the next timer is due, or the overall rate permits another retry.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let timer = self.timers.first().map(|(due, _)| *due);
        let token = (self.waiting[LATE] > 0).then_some(self.next_token);
        [timer, token].into_iter().flatten().min()
    }

    /// Returns the number of keys that can be taken now.
    pub(super) fn ready(&self) -> usize {
        self.waiting[..LATE].iter().sum()
    }

    /// Returns the current state.
    pub(super) fn snapshot(&mut self, now: Nanos) -> Snapshot {
        let now = self.promote_due(now);
        let age = |began: Nanos| Duration::from_nanos(now.saturating_sub(began));
        let [low, high, late] = self.waiting;
        let mut depth = [low, high];
        for item in
            self.runs.iter().map(|(id, _)| &self.items[*id as usize]).filter(|item| !item.is_held)
        {
            if let Some(priority) = item.dirty {
                depth[priority.index()] += 1;
            }
        }
        Snapshot {
            adds: self.adds,
            retries: self.retries,
            depth,
            delayed: self.timers.len() + late,
            processing: self.runs.len(),
            known: self.items.len(),
            unfinished: self.runs.iter().map(|(_, began)| age(*began)).sum(),
            longest: self.runs.iter().map(|(_, began)| age(*began)).max().unwrap_or_default(),
        }
    }

    /// Shuts the queue down: no key is accepted or returned, and no timer fires.
    pub(super) fn shut_down(&mut self, now: Nanos) {
        self.promote_due(now);
        self.is_shut_down = true;
        let all: Vec<u32> = self.ids.iter().copied().collect();
        for id in all {
            self.cancel_timer(id);
            self.unqueue(id);
            let item = &mut self.items[id as usize];
            (item.dirty, item.is_retry_due, item.is_held) = (None, false, false);
            self.remove_if_idle(id);
        }
    }

    /// Accepts keys again after a shutdown.
    pub(super) fn restart(&mut self) {
        self.is_shut_down = false;
    }

    pub(super) fn is_shut_down(&self) -> bool {
        self.is_shut_down
    }

    /// Returns the waiting keys, timers, runs and keys with state.
    #[cfg(test)]
    pub(super) fn counts(&self) -> ([usize; 3], usize, usize, usize) {
        (self.waiting, self.timers.len(), self.runs.len(), self.items.len())
    }

    fn find(&self, key: &K) -> Option<u32> {
        let is_it = |id: &u32| self.items[*id as usize].key == *key;
        self.ids.find(self.hasher.hash_one(key), is_it).copied()
    }

    /// Returns the item of a key, created if necessary. The caller queues it or sets a timer.
    fn get_or_insert(&mut self, key: &K) -> u32 {
        if let Some(id) = self.find(key) {
            return id;
        }
        let tenant = self.tenant_ids.get(key.tenant()).copied().unwrap_or_else(|| {
            let name = key.tenant().clone();
            let tenant =
                Tenant { name: name.clone(), items: 0, running: 0, lines: Default::default() };
            let id = self.tenants.insert(tenant) as u32;
            self.tenant_ids.insert(name, id);
            id
        });
        self.tenants[tenant as usize].items += 1;
        let id = self.items.insert(Item {
            key: key.clone(),
            tenant,
            queued_since: 0,
            due: None,
            failures: 0,
            queued: None,
            is_running: false,
            dirty: None,
            is_retry_due: false,
            is_held: false,
            priority: Priority::Low,
        }) as u32;
        let (items, hasher) = (&self.items, &self.hasher);
        let hash = |id: &u32| hasher.hash_one(&items[*id as usize].key);
        self.ids.insert_unique(hasher.hash_one(key), id, hash);
        id
    }

    /// Removes the item of a key that has no run, request or timer.
    fn remove_if_idle(&mut self, id: u32) {
        let Item { queued, is_running, dirty, is_retry_due, due, .. } = &self.items[id as usize];
        let is_wanted = queued.is_some() || dirty.is_some() || *is_retry_due || due.is_some();
        if is_wanted || *is_running {
            return;
        }
        let Item { key, tenant, .. } = self.items.remove(id as usize);
        let hash = self.hasher.hash_one(&key);
        if let Ok(entry) = self.ids.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
        self.tenants[tenant as usize].items -= 1;
        self.remove_tenant_if_idle(tenant);
    }

    /// Removes a tenant that has no keys and is in no ring.
    fn remove_tenant_if_idle(&mut self, tenant: u32) {
        let Tenant { items, lines, .. } = &self.tenants[tenant as usize];
        if *items == 0 && !lines.iter().any(|line| line.in_ring) {
            self.tenant_ids.remove(&self.tenants.remove(tenant as usize).name);
        }
    }

    /// Requests a run of an item.
    fn request(&mut self, now: Nanos, id: u32, priority: Priority) {
        let item = &mut self.items[id as usize];
        match item.queued {
            Some((line, _)) if is_below(usize::from(line), priority) => {
                if usize::from(line) == LATE {
                    item.queued_since = now;
                    self.adds += 1;
                }
                self.unqueue(id);
                self.push(id, priority.index());
            }
            Some(_) => {}
            None if item.is_running || item.is_held => {
                if item.dirty.is_none() {
                    item.queued_since = now;
                    self.adds += 1;
                }
                item.dirty = item.dirty.max(Some(priority));
            }
            None => {
                item.queued_since = now;
                self.adds += 1;
                self.push(id, priority.index());
            }
        }
    }

    /// Queues a key that was requested while it could not be queued, if it can be now.
    fn enqueue_if_dirty(&mut self, id: u32) {
        let item = &mut self.items[id as usize];
        if !(item.is_running || item.is_held)
            && let Some(priority) = item.dirty.take()
        {
            self.push(id, priority.index());
        }
    }

    /// Appends an item to one of its tenant's lines.
    fn push(&mut self, id: u32, line: usize) {
        let item = &mut self.items[id as usize];
        self.tickets = self.tickets.wrapping_add(1);
        item.queued = Some((line as u8, self.tickets));
        let its = &mut self.tenants[item.tenant as usize].lines[line];
        its.entries.push_back((id, self.tickets));
        its.len += 1;
        if !its.in_ring {
            its.in_ring = true;
            self.rings[line].push_back(item.tenant);
        }
        self.waiting[line] += 1;
    }

    /// Makes the entry of an item void, if it has one.
    fn unqueue(&mut self, id: u32) {
        let item = &mut self.items[id as usize];
        let Some((line, _)) = item.queued.take() else { return };
        let line = usize::from(line);
        let its = &mut self.tenants[item.tenant as usize].lines[line];
        its.len -= 1;
        if its.entries.len() > 2 * its.len + 64 {
            let items = &self.items;
            its.entries.retain(|(id, ticket)| is_valid(items, *id, line, *ticket));
        }
        self.forget_place(line);
    }

    /// Counts a key that left a line. After the last one, clears the line's ring, because it has no further turns.
    fn forget_place(&mut self, line: usize) {
        self.waiting[line] -= 1;
        while self.waiting[line] == 0
            && let Some(tenant) = self.rings[line].pop_front()
        {
            self.tenants[tenant as usize].lines[line] = Line::default();
            self.remove_tenant_if_idle(tenant);
        }
    }

    /// Removes the next item from its line, and returns its priority.
    ///
    /// If all tenants with keys are at their share, they are served in the usual order. So a waiting key can be taken
    /// at any time, and the end of a run need not wake a worker.
    fn pop(&mut self) -> Option<(u32, Priority)> {
        let mut below = [self.waiting[0], self.waiting[1]];
        for tenant in &self.saturated {
            let lines = &self.tenants[*tenant as usize].lines;
            below.iter_mut().zip(lines).for_each(|(below, line)| *below -= line.len);
        }
        let all = below == [0; 2];
        let priority = match if all { [self.waiting[0], self.waiting[1]] } else { below } {
            [0, 0] => return None,
            [0, _] => Priority::High,
            [_, high] => {
                self.passed_over += 1;
                let is_due = high == 0 || self.passed_over >= Priority::LOW_INTERVAL;
                if is_due { Priority::Low } else { Priority::High }
            }
        };
        if priority == Priority::Low {
            self.passed_over = 0;
        }
        Some((self.pop_from(priority.index(), all)?, priority))
    }

    /// Removes the first item of the tenant whose turn it is. Tenants at their share keep their turns, unless `all` are
    /// served.
    fn pop_from(&mut self, line: usize, all: bool) -> Option<u32> {
        let turn = self.turn(line, all)?;
        let tenant = self.rings[line].remove(turn)?;
        let its = &mut self.tenants[tenant as usize].lines[line];
        let id = loop {
            let (id, ticket) = its.entries.pop_front()?;
            if is_valid(&self.items, id, line, ticket) {
                break id;
            }
        };
        its.len -= 1;
        if its.len == 0 {
            its.in_ring = false;
            its.entries.clear();
        } else {
            self.rings[line].push_back(tenant);
        }
        self.items[id as usize].queued = None;
        self.forget_place(line);
        Some(id)
    }

    /// Returns the position in a ring of the tenant whose turn it is. Tenants without keys ahead of it are removed.
    /// Tenants at their share are few, so this takes amortised constant time.
    fn turn(&mut self, line: usize, all: bool) -> Option<usize> {
        let mut turn = 0;
        while let Some(&id) = self.rings[line].get(turn) {
            let tenant = &mut self.tenants[id as usize];
            let its = &mut tenant.lines[line];
            if its.len == 0 {
                *its = Line::default();
                self.rings[line].remove(turn);
                self.remove_tenant_if_idle(id);
            } else if all || tenant.running < self.share {
                return Some(turn);
            } else {
                turn += 1;
            }
        }
        None
    }

    /// Ends a run and returns its duration. The caller must then queue or release the item.
    fn end_run(&mut self, now: Nanos, id: u32) -> Duration {
        let Some(at) = self.runs.iter().position(|(run, _)| *run == id) else {
            return Duration::ZERO;
        };
        let (_, began) = self.runs.swap_remove(at);
        let item = &mut self.items[id as usize];
        item.is_running = false;
        let tenant = &mut self.tenants[item.tenant as usize];
        if tenant.running == self.share {
            self.saturated.retain(|other| *other != item.tenant);
        }
        tenant.running -= 1;
        Duration::from_nanos(now.saturating_sub(began))
    }

    /// Sets the timer of an item, or moves it.
    fn set_timer(&mut self, id: u32, due: Nanos) {
        self.cancel_timer(id);
        self.items[id as usize].due = Some(due);
        self.timers.insert((due, id));
    }

    /// Cancels the timer of an item, if it is set.
    fn cancel_timer(&mut self, id: u32) {
        if let Some(due) = self.items[id as usize].due.take() {
            self.timers.remove(&(due, id));
        }
    }
}

/// Returns whether a request with this priority takes a key out of the line.
fn is_below(line: usize, priority: Priority) -> bool {
    line == LATE || line < priority.index()
}

/// Returns whether an entry of a line is that of a waiting item.
fn is_valid<K>(items: &Slab<Item<K>>, id: u32, line: usize, ticket: u32) -> bool {
    items.get(id as usize).is_some_and(|item| item.queued == Some((line as u8, ticket)))
}

/// Returns `now` plus `delay`, at most the end of time.
fn after(now: Nanos, delay: Duration) -> Nanos {
    now.saturating_add(Nanos::try_from(delay.as_nanos()).unwrap_or(Nanos::MAX))
}

// === impl GivenTime ===

impl Clock for GivenTime {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.get()
    }
}
