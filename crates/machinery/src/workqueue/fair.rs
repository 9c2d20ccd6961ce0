//! The order of keys: a queue per tenant and priority. Tenants are served round robin; the priorities share the gets.
//!
//! Turns are counted in keys. A tenant is *at its share* while a given number of its keys run. It is then skipped while
//! another tenant has a key to serve, so that a tenant with slow keys does not occupy all workers.

use std::collections::VecDeque;

use hashbrown::HashMap;
use slab::Slab;

use super::items::{Items, NONE};
use super::key::{Key, Priority};

/// First and last item of a list linked by `prev` and `next`; NONE if it is empty.
#[derive(Clone, Copy)]
struct Ends {
    head: u32,
    tail: u32,
}

/// Waiting keys of one tenant in one priority, first in, first out.
#[derive(Clone, Copy)]
struct Line {
    keys: Ends,
    /// Number of the keys.
    len: u32,
    /// True if the tenant is in the priority's ring: always while it has keys there. If its last key moved to another
    /// priority, the tenant leaves at its turn or when the priority is empty.
    in_ring: bool,
}

struct Tenant<T> {
    name: T,
    /// Items that belong to it, plus the rings it is in. At 0 the tenant is removed.
    users: u32,
    /// Items that are being processed.
    running: usize,
    queues: [Line; 3],
}

/// The queues of all tenants.
pub(super) struct FairQueue<K: Key> {
    /// Every tenant with a user.
    tenants: Slab<Tenant<K::Tenant>>,
    ids: HashMap<K::Tenant, u32>,
    /// Tenants in the order of their turns, by priority.
    rings: [VecDeque<u32>; 3],
    /// Keys waiting, per priority.
    waiting: [usize; 3],
    /// Gets since a priority was last served, counting only those at which it could have been.
    passed_over: [u32; 3],
    /// A tenant with this many running keys is skipped.
    pub(super) share: usize,
    /// Tenants at their share. With half of the workers as the share, at most three tenants are at it (three workers
    /// with one key each), and at most two while a worker is free.
    at_share: Vec<u32>,
}

// === impl Ends ===

impl Ends {
    const EMPTY: Ends = Ends { head: NONE, tail: NONE };

    /// Appends an item.
    fn link<K: Key>(&mut self, items: &mut Items<K>, id: u32) {
        let item = items.get_mut(id);
        (item.prev, item.next) = (self.tail, NONE);
        match self.tail {
            NONE => self.head = id,
            last => items.get_mut(last).next = id,
        }
        self.tail = id;
    }

    /// Removes one of its items.
    fn unlink<K: Key>(&mut self, items: &mut Items<K>, id: u32) {
        if id == self.head {
            self.unlink_first(items);
            return;
        }
        let (prev, next) = (items.get(id).prev, items.get(id).next);
        items.get_mut(prev).next = next;
        match next {
            NONE => self.tail = prev,
            next => items.get_mut(next).prev = prev,
        }
    }

    /// Removes its first item. The `prev` of the next one is invalid from then on.
    fn unlink_first<K: Key>(&mut self, items: &Items<K>) {
        self.head = items.get(self.head).next;
        if self.head == NONE {
            self.tail = NONE;
        }
    }
}

// === impl FairQueue ===

impl<K: Key> FairQueue<K> {
    pub(super) fn new(share: usize) -> FairQueue<K> {
        FairQueue {
            tenants: Slab::new(),
            ids: HashMap::new(),
            rings: Default::default(),
            waiting: [0; 3],
            passed_over: [0; 3],
            share,
            at_share: Vec::new(),
        }
    }

    /// Returns the number of waiting keys per priority.
    pub(super) fn waiting(&self) -> [usize; 3] {
        self.waiting
    }

    /// Returns the index of a tenant, created if necessary, and adds a user to it.
    pub(super) fn enter(&mut self, name: &K::Tenant) -> u32 {
        if let Some(&id) = self.ids.get(name) {
            self.tenants[id as usize].users += 1;
            return id;
        }
        let line = Line { keys: Ends::EMPTY, len: 0, in_ring: false };
        let tenant = Tenant { name: name.clone(), users: 1, running: 0, queues: [line; 3] };
        let id = self.tenants.insert(tenant) as u32;
        self.ids.insert(name.clone(), id);
        id
    }

    /// Removes a user from a tenant.
    pub(super) fn leave(&mut self, id: u32) {
        let tenant = &mut self.tenants[id as usize];
        tenant.users -= 1;
        if tenant.users == 0 {
            self.ids.remove(&self.tenants.remove(id as usize).name);
        }
    }

    /// Appends an item to its tenant's queue in `priority`.
    pub(super) fn push(&mut self, items: &mut Items<K>, id: u32, priority: Priority) {
        let item = items.get_mut(id);
        let at = item.tenant;
        let tenant = &mut self.tenants[at as usize];
        let line = &mut tenant.queues[priority.index()];
        item.priority = priority;
        line.keys.link(items, id);
        line.len += 1;
        if !line.in_ring {
            line.in_ring = true;
            tenant.users += 1;
            self.rings[priority.index()].push_back(at);
        }
        self.waiting[priority.index()] += 1;
    }

    /// Removes an item from its queue.
    pub(super) fn remove(&mut self, items: &mut Items<K>, id: u32) {
        let item = items.get(id);
        let (tenant, priority) = (item.tenant, item.priority.index());
        let line = &mut self.tenants[tenant as usize].queues[priority];
        line.keys.unlink(items, id);
        line.len -= 1;
        self.left(priority);
    }

    /// Counts a key that left `priority`. After the last one, clears the priority's ring, because it has no further
    /// turns.
    fn left(&mut self, priority: usize) {
        self.waiting[priority] -= 1;
        while self.waiting[priority] == 0
            && let Some(at) = self.rings[priority].pop_front()
        {
            self.tenants[at as usize].queues[priority].in_ring = false;
            self.leave(at);
        }
    }

    /// Counts a run of a tenant that begins.
    pub(super) fn begin(&mut self, tenant: u32) {
        let running = &mut self.tenants[tenant as usize].running;
        *running += 1;
        if *running == self.share {
            self.at_share.push(tenant);
        }
    }

    /// Counts a run of a tenant that ends.
    pub(super) fn end(&mut self, tenant: u32) {
        let running = &mut self.tenants[tenant as usize].running;
        if *running == self.share {
            self.at_share.retain(|other| *other != tenant);
        }
        *running -= 1;
    }

    /// Takes the next item. `retries` permits items of [`Priority::Retry`].
    ///
    /// If all tenants with keys are at their share, they are served in the usual order. So a waiting key can be taken
    /// at any time, and the end of a run need not wake a worker.
    pub(super) fn pop(&mut self, items: &mut Items<K>, retries: bool) -> Option<u32> {
        let below = self.waiting_below_share();
        let chosen = self.choose(below, retries);
        let all = chosen.is_none();
        let priority = chosen.or_else(|| self.choose(self.waiting, retries))?.index();
        let turn = self.turn(priority, all)?;
        let at = self.rings[priority].remove(turn)?;
        let line = &mut self.tenants[at as usize].queues[priority];
        let id = line.keys.head;
        line.keys.unlink_first(items);
        line.len -= 1;
        if line.len == 0 {
            line.in_ring = false;
            // Its item is still a user, so the tenant stays.
            self.tenants[at as usize].users -= 1;
        } else {
            self.rings[priority].push_back(at);
        }
        self.left(priority);
        Some(id)
    }

    /// Counts the waiting keys of tenants below their share, by priority.
    fn waiting_below_share(&self) -> [usize; 3] {
        let mut below = self.waiting;
        for at in &self.at_share {
            let queues = &self.tenants[*at as usize].queues;
            below.iter_mut().zip(queues).for_each(|(below, line)| *below -= line.len as usize);
        }
        below
    }

    /// Returns the position in a ring of the tenant whose turn it is. Tenants without keys ahead of it are removed.
    /// Tenants at their share keep their turns, unless `all` are served. They are few, so this takes amortised constant
    /// time.
    fn turn(&mut self, priority: usize, all: bool) -> Option<usize> {
        let mut turn = 0;
        while let Some(&at) = self.rings[priority].get(turn) {
            let tenant = &mut self.tenants[at as usize];
            let line = &mut tenant.queues[priority];
            if line.len == 0 {
                line.in_ring = false;
                self.rings[priority].remove(turn);
                self.leave(at);
            } else if all || tenant.running < self.share {
                return Some(turn);
            } else {
                turn += 1;
            }
        }
        None
    }

    /// Returns the priority to serve: the highest, unless a lower one has reached its bound. If two have, the more
    /// overdue one. `waiting`: the keys to choose from, by priority.
    fn choose(&mut self, waiting: [usize; 3], retries: bool) -> Option<Priority> {
        let mut chosen: Option<(u32, Priority)> = None;
        for priority in Priority::ALL {
            let at = priority.index();
            if waiting[at] == 0 || (priority == Priority::Retry && !retries) {
                continue;
            }
            self.passed_over[at] += 1;
            // 0: not overdue. The more overdue wins; on a tie, the later, that is higher, priority.
            let overdue = match priority {
                Priority::High => 0,
                _ => (self.passed_over[at] + 1).saturating_sub(Priority::MAX_INTERVALS[at]),
            };
            if chosen.is_none_or(|(most, _)| overdue >= most) {
                chosen = Some((overdue, priority));
            }
        }
        let (_, priority) = chosen?;
        self.passed_over[priority.index()] = 0;
        Some(priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_without_keys_in_a_priority_leave_its_ring() {
        let (mut queues, mut items) = (FairQueue::new(1), Items::new());
        for name in 0..100_u32 {
            let tenant = queues.enter(&name);
            let id = items.insert((name, 0), tenant);
            queues.push(&mut items, id, Priority::Low);
            queues.remove(&mut items, id);
            queues.push(&mut items, id, Priority::High);
            assert_eq!(queues.pop(&mut items, true), Some(id));
            queues.leave(tenant);
        }
        assert!(queues.tenants.is_empty(), "each left with its key");
    }
}
