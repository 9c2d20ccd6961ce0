//! Order of keys: a line per tenant and priority; tenants take turns within a priority, priorities share the gets.

use std::collections::VecDeque;

use hashbrown::HashMap;
use slab::Slab;

use super::items::{Items, NONE};
use super::key::{Key, Priority};

/// First and last of a list of items, linked by `prev` and `next`; NONE if it is empty.
#[derive(Clone, Copy)]
struct Ends {
    head: u32,
    tail: u32,
}

/// Keys of one tenant that wait in one priority, first come, first served.
#[derive(Clone, Copy)]
struct Line {
    keys: Ends,
    /// True if the tenant is in the priority's ring: always while the line has keys and, if its last
    /// key was moved to another priority, until its turn comes or the priority is empty.
    in_ring: bool,
}

struct Tenant<T> {
    name: T,
    /// Items that belong to it, plus the rings it is in. At 0 it is forgotten.
    users: u32,
    lines: [Line; 3],
}

/// All lines.
pub(super) struct FairQueue<K: Key> {
    /// Every tenant with a user.
    tenants: Slab<Tenant<K::Tenant>>,
    ids: HashMap<K::Tenant, u32>,
    /// Tenants in the order of their turns, per priority.
    rings: [VecDeque<u32>; 3],
    /// Keys waiting, per priority.
    waiting: [usize; 3],
    /// Gets since a priority was last served, counting only those at which it could have been.
    passed_over: [u32; 3],
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

    /// Takes out one of its items.
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

    /// Takes out its first item. The next one's `prev` means nothing from then on.
    fn unlink_first<K: Key>(&mut self, items: &Items<K>) {
        self.head = items.get(self.head).next;
        if self.head == NONE {
            self.tail = NONE;
        }
    }
}

// === impl FairQueue ===

impl<K: Key> FairQueue<K> {
    pub(super) fn new() -> FairQueue<K> {
        FairQueue {
            tenants: Slab::new(),
            ids: HashMap::new(),
            rings: Default::default(),
            waiting: [0; 3],
            passed_over: [0; 3],
        }
    }

    /// Keys waiting, per priority.
    pub(super) fn waiting(&self) -> [usize; 3] {
        self.waiting
    }

    /// The place of a tenant; adds a user to it.
    pub(super) fn enter(&mut self, name: &K::Tenant) -> u32 {
        if let Some(&id) = self.ids.get(name) {
            self.tenants[id as usize].users += 1;
            return id;
        }
        let line = Line { keys: Ends::EMPTY, in_ring: false };
        let tenant = Tenant { name: name.clone(), users: 1, lines: [line; 3] };
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

    /// Appends an item to its tenant's line in `priority`.
    pub(super) fn push(&mut self, items: &mut Items<K>, id: u32, priority: Priority) {
        let item = items.get_mut(id);
        let at = item.tenant;
        let tenant = &mut self.tenants[at as usize];
        let line = &mut tenant.lines[priority.index()];
        item.priority = priority;
        line.keys.link(items, id);
        if !line.in_ring {
            line.in_ring = true;
            tenant.users += 1;
            self.rings[priority.index()].push_back(at);
        }
        self.waiting[priority.index()] += 1;
    }

    /// Takes an item out of its line.
    pub(super) fn remove(&mut self, items: &mut Items<K>, id: u32) {
        let item = items.get(id);
        let (tenant, priority) = (item.tenant, item.priority.index());
        let line = &mut self.tenants[tenant as usize].lines[priority];
        line.keys.unlink(items, id);
        self.left(priority);
    }

    /// A key has left `priority`. If it was the last, tenants still in the priority's ring leave it too,
    /// since their turn will not come.
    fn left(&mut self, priority: usize) {
        self.waiting[priority] -= 1;
        while self.waiting[priority] == 0
            && let Some(at) = self.rings[priority].pop_front()
        {
            self.tenants[at as usize].lines[priority].in_ring = false;
            self.leave(at);
        }
    }

    /// Takes the next item. `retries`: whether it may be one of [`Priority::Retry`].
    pub(super) fn pop(&mut self, items: &mut Items<K>, retries: bool) -> Option<u32> {
        let priority = self.choose(retries)?.index();
        loop {
            let at = self.rings[priority].pop_front()?;
            let line = &mut self.tenants[at as usize].lines[priority];
            let id = line.keys.head;
            if id == NONE {
                line.in_ring = false;
                self.leave(at);
                continue;
            }
            line.keys.unlink_first(items);
            if line.keys.head == NONE {
                line.in_ring = false;
                // Its item is still a user, so the tenant stays.
                self.tenants[at as usize].users -= 1;
            } else {
                self.rings[priority].push_back(at);
            }
            self.left(priority);
            return Some(id);
        }
    }

    /// The priority whose turn it is: the highest, unless a lower one was passed over as often as its
    /// bound allows. If there are two of those, the one further beyond its bound.
    fn choose(&mut self, retries: bool) -> Option<Priority> {
        let mut chosen: Option<(u32, Priority)> = None;
        for priority in Priority::ALL {
            let at = priority.index();
            if self.waiting[at] == 0 || (priority == Priority::Retry && !retries) {
                continue;
            }
            self.passed_over[at] += 1;
            // 0: not overdue. The more overdue wins; on a tie, the later, that is higher, priority.
            let overdue = match priority {
                Priority::High => 0,
                _ => (self.passed_over[at] + 1).saturating_sub(Priority::EVERY[at]),
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn tenants_whose_keys_have_left_a_priority_do_not_stay_in_its_ring() {
        let (mut lines, mut items) = (FairQueue::new(), Items::new());
        for name in 0..100_u32 {
            let tenant = lines.enter(&name);
            let id = items.insert((name, 0), tenant);
            lines.push(&mut items, id, Priority::Low);
            lines.remove(&mut items, id);
            lines.push(&mut items, id, Priority::High);
            assert_eq!(lines.pop(&mut items, true), Some(id));
            lines.leave(tenant);
        }
        assert!(lines.tenants.is_empty(), "each left with its key");
    }
}
