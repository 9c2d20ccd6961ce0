//! Order of keys: a line per tenant and priority; tenants take turns within a priority, priorities share the gets.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::arena::{Arena, NONE};
use super::key::{Key, Priority};

/// First and last of a list of slots, linked by `prev` and `next`; NONE if it is empty.
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
    /// None only in a free place.
    name: Option<T>,
    /// Slots that belong to it, plus the rings it is in. At 0 the place is free.
    users: u32,
    lines: [Line; 3],
}

/// All lines.
pub(super) struct FairQueue<K: Key> {
    tenants: Vec<Tenant<K::Tenant>>,
    free: Vec<u32>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
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

    /// Appends a slot.
    fn link<K: Key>(&mut self, arena: &mut Arena<K>, id: u32) {
        let slot = arena.get_mut(id);
        (slot.prev, slot.next) = (self.tail, NONE);
        match self.tail {
            NONE => self.head = id,
            last => arena.get_mut(last).next = id,
        }
        self.tail = id;
    }

    /// Takes out one of its slots.
    fn unlink<K: Key>(&mut self, arena: &mut Arena<K>, id: u32) {
        if id == self.head {
            self.unlink_first(arena);
            return;
        }
        let (prev, next) = (arena.get(id).prev, arena.get(id).next);
        arena.get_mut(prev).next = next;
        match next {
            NONE => self.tail = prev,
            next => arena.get_mut(next).prev = prev,
        }
    }

    /// Takes out its first slot. The next one's `prev` means nothing from then on; writing it would
    /// mean waiting for that slot's memory.
    fn unlink_first<K: Key>(&mut self, arena: &Arena<K>) {
        self.head = arena.get(self.head).next;
        if self.head == NONE {
            self.tail = NONE;
        }
    }
}

// === impl FairQueue ===

impl<K: Key> FairQueue<K> {
    pub(super) fn new(hasher: DefaultHashBuilder) -> FairQueue<K> {
        FairQueue {
            tenants: Vec::new(),
            free: Vec::new(),
            table: HashTable::new(),
            hasher,
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
        let hash = self.hasher.hash_one(name);
        let tenants = &self.tenants;
        let known = self.table.find(hash, |&id| tenants[id as usize].name.as_ref() == Some(name));
        if let Some(&id) = known {
            self.tenants[id as usize].users += 1;
            return id;
        }
        let line = Line { keys: Ends::EMPTY, in_ring: false };
        let tenant = Tenant { name: Some(name.clone()), users: 1, lines: [line; 3] };
        let id = match self.free.pop() {
            Some(id) => {
                self.tenants[id as usize] = tenant;
                id
            }
            None => {
                self.tenants.push(tenant);
                self.tenants.len() as u32 - 1
            }
        };
        let (tenants, hasher) = (&self.tenants, &self.hasher);
        self.table.insert_unique(hash, id, |&id| hash_of(hasher, &tenants[id as usize].name));
        id
    }

    /// Removes a user from a tenant.
    pub(super) fn leave(&mut self, id: u32) {
        let tenant = &mut self.tenants[id as usize];
        tenant.users -= 1;
        if tenant.users > 0 {
            return;
        }
        let name = tenant.name.take();
        let hash = hash_of(&self.hasher, &name);
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == id) {
            entry.remove();
        }
        self.free.push(id);
    }

    /// Appends a slot to its tenant's line in `priority`.
    pub(super) fn push(&mut self, arena: &mut Arena<K>, id: u32, priority: Priority) {
        let slot = arena.get_mut(id);
        let at = slot.tenant;
        let tenant = &mut self.tenants[at as usize];
        let line = &mut tenant.lines[priority.index()];
        slot.priority = priority;
        line.keys.link(arena, id);
        if !line.in_ring {
            line.in_ring = true;
            tenant.users += 1;
            self.rings[priority.index()].push_back(at);
        }
        self.waiting[priority.index()] += 1;
    }

    /// Takes a slot out of its line.
    pub(super) fn remove(&mut self, arena: &mut Arena<K>, id: u32) {
        let slot = arena.get(id);
        let (tenant, priority) = (slot.tenant, slot.priority.index());
        let line = &mut self.tenants[tenant as usize].lines[priority];
        line.keys.unlink(arena, id);
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

    /// Takes the next slot. `retries`: whether it may be one of [`Priority::Retry`].
    pub(super) fn pop(&mut self, arena: &mut Arena<K>, retries: bool) -> Option<u32> {
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
            line.keys.unlink_first(arena);
            if line.keys.head == NONE {
                line.in_ring = false;
                // Its slot is still a user, so the tenant stays.
                self.tenants[at as usize].users -= 1;
            } else {
                self.rings[priority].push_back(at);
            }
            self.left(priority);
            self.prefetch(arena, priority, at);
            return Some(id);
        }
    }

    /// Has the processor fetch what the next calls of `pop` need, so that they need not wait for
    /// memory: the key whose turn is next and, in the line of the tenant whose turn is over, the
    /// second slot. The slots read here were fetched when it was their tenant's turn before.
    fn prefetch(&self, arena: &Arena<K>, priority: usize, at: u32) {
        let first = |at: u32| match self.tenants[at as usize].lines[priority].keys.head {
            NONE => None,
            id => Some(arena.get(id)),
        };
        if let Some(second) = first(at).map(|slot| slot.next).filter(|&id| id != NONE) {
            arena.prefetch(second);
        }
        let next = self.rings[priority].front();
        if let Some(key) = next.and_then(|&at| first(at)?.key.as_ref()) {
            key.prefetch();
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

/// The hash of a tenant's name. Only a free place has none, and the table has no free places.
fn hash_of<T: std::hash::Hash>(hasher: &DefaultHashBuilder, name: &Option<T>) -> u64 {
    name.as_ref().map_or(0, |name| hasher.hash_one(name))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        /// Keys that were to be fetched, in this test.
        static FETCHED: RefCell<Vec<Noted>> = const { RefCell::new(Vec::new()) };
    }

    /// Tenant and name; notes when it is to be fetched.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    struct Noted(u32, u32);

    impl Key for Noted {
        type Tenant = u32;
        fn tenant(&self) -> &u32 {
            &self.0
        }
        fn prefetch(&self) {
            FETCHED.with_borrow_mut(|fetched| fetched.push(*self));
        }
    }

    #[test]
    fn a_key_is_fetched_when_its_turn_is_next() {
        let hasher = DefaultHashBuilder::default();
        let (mut lines, mut arena) = (FairQueue::new(hasher.clone()), Arena::new(hasher));
        for name in 0..12 {
            let key = Noted(name % 3, name);
            let tenant = lines.enter(&key.0);
            let id = arena.insert(u64::from(name), key, tenant);
            lines.push(&mut arena, id, Priority::Low);
        }
        let popped: Vec<u32> = std::iter::from_fn(|| lines.pop(&mut arena, true)).collect();
        let keys: Vec<Noted> = popped.iter().filter_map(|&id| arena.get(id).key).collect();
        assert_eq!(keys.len(), 12);
        assert_eq!(FETCHED.take(), keys[1..], "each during the pop before its own");
    }

    #[test]
    fn tenants_whose_keys_have_left_a_band_do_not_stay_in_its_ring() {
        let hasher = DefaultHashBuilder::default();
        let (mut lines, mut arena) = (FairQueue::new(hasher.clone()), Arena::new(hasher));
        for name in 0..100_u32 {
            let tenant = lines.enter(&name);
            let id = arena.insert(u64::from(name), (name, 0), tenant);
            lines.push(&mut arena, id, Priority::Low);
            lines.remove(&mut arena, id);
            lines.push(&mut arena, id, Priority::High);
            assert_eq!(lines.pop(&mut arena, true), Some(id));
            lines.leave(tenant);
        }
        assert_eq!(lines.tenants.len(), 1, "the place of the one before is taken again");
    }
}
