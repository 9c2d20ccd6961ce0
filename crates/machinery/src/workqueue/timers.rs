//! A heap of timers. A slot knows where its own timers are, so any of them can be moved or
//! cancelled in O(log n): nothing is left behind, and nothing fires that is no longer wanted.

use super::arena::{Arena, NONE};
use super::key::Key;
use super::sync::Nanos;

/// Purpose of a timer. A slot has at most one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timer {
    /// Requested by `add_after`.
    After = 0,
    /// The retry after a failure; for a key in the line of retries, the end of its patience with
    /// the overall limit.
    Retry = 1,
}

/// Children per node: four siblings share a cache line.
const ARITY: usize = 4;

/// The top bit of `Entry::who` is the kind.
const RETRY_BIT: u32 = 1 << 31;

/// 12 bytes; fields are only ever copied out, never borrowed.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Entry {
    due: Nanos,
    who: u32,
}

/// The heap, earliest first.
pub(super) struct Timers {
    heap: Vec<Entry>,
}

// === impl Timers ===

impl Timers {
    pub(super) fn new() -> Timers {
        Timers { heap: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns the due time of the first timer.
    pub(super) fn first(&self) -> Option<Nanos> {
        self.heap.first().map(|entry| entry.due)
    }

    /// Returns the due time of the timer of a slot, if it has one.
    pub(super) fn due<K: Key>(&self, arena: &Arena<K>, id: u32, timer: Timer) -> Option<Nanos> {
        match arena.get(id).timers[timer as usize] {
            NONE => None,
            at => self.heap.get(at as usize).map(|entry| entry.due),
        }
    }

    /// Sets the timer of a slot, or moves it.
    pub(super) fn set<K: Key>(&mut self, arena: &mut Arena<K>, id: u32, timer: Timer, due: Nanos) {
        let at = match arena.get(id).timers[timer as usize] {
            NONE => {
                let kind = if timer == Timer::Retry { RETRY_BIT } else { 0 };
                if self.heap.len() == self.heap.capacity() {
                    // By a quarter instead of doubling: the heap is most of what a delay costs.
                    self.heap.reserve_exact((self.heap.len() / 4).max(64));
                }
                self.heap.push(Entry { due, who: id | kind });
                self.heap.len() - 1
            }
            at => {
                self.heap[at as usize].due = due;
                at as usize
            }
        };
        self.sift(arena, at);
    }

    /// Removes a slot's timer. Returns whether it had one.
    pub(super) fn cancel<K: Key>(&mut self, arena: &mut Arena<K>, id: u32, timer: Timer) -> bool {
        match arena.get(id).timers[timer as usize] {
            NONE => false,
            at => {
                self.remove(arena, at as usize);
                true
            }
        }
    }

    /// Takes the first timer that is due.
    pub(super) fn pop<K: Key>(
        &mut self,
        arena: &mut Arena<K>,
        now: Nanos,
    ) -> Option<(Nanos, u32, Timer)> {
        let first = self.heap.first().copied().filter(|entry| entry.due <= now)?;
        self.remove(arena, 0);
        Some((first.due, first.slot(), first.timer()))
    }

    /// Takes any timer.
    pub(super) fn pop_any<K: Key>(&mut self, arena: &mut Arena<K>) -> Option<u32> {
        let last = self.heap.last().copied()?;
        self.remove(arena, self.heap.len() - 1);
        Some(last.slot())
    }

    fn remove<K: Key>(&mut self, arena: &mut Arena<K>, at: usize) {
        let gone = self.heap.swap_remove(at);
        arena.get_mut(gone.slot()).timers[gone.timer() as usize] = NONE;
        if at < self.heap.len() {
            self.sift(arena, at);
        }
    }

    /// Moves the entry at `at` to where it belongs, up or down, and updates every slot whose timer
    /// moved.
    fn sift<K: Key>(&mut self, arena: &mut Arena<K>, mut at: usize) {
        let entry = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.heap[parent].due <= entry.due {
                break;
            }
            self.place(arena, at, self.heap[parent]);
            at = parent;
        }
        loop {
            let first = at * ARITY + 1;
            let children = first..(first + ARITY).min(self.heap.len());
            let Some(child) = children.min_by_key(|&child| self.heap[child].due) else { break };
            if self.heap[child].due >= entry.due {
                break;
            }
            self.place(arena, at, self.heap[child]);
            at = child;
        }
        self.place(arena, at, entry);
    }

    fn place<K: Key>(&mut self, arena: &mut Arena<K>, at: usize, entry: Entry) {
        self.heap[at] = entry;
        arena.get_mut(entry.slot()).timers[entry.timer() as usize] = at as u32;
    }
}

// === impl Entry ===

impl Entry {
    fn slot(self) -> u32 {
        self.who & !RETRY_BIT
    }

    fn timer(self) -> Timer {
        if self.who & RETRY_BIT == 0 { Timer::After } else { Timer::Retry }
    }
}
