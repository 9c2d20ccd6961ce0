//! An allocator that counts when told to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

pub(crate) struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

/// What was allocated since [`on`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) allocations: u64,
    pub(crate) bytes: u64,
    pub(crate) live: u64,
    pub(crate) peak: u64,
}

/// Starts counting. Afterwards, no significant amount of what was allocated before may be freed.
pub(crate) fn on() {
    ON.store(true, Relaxed);
}

pub(crate) fn counts() -> Counts {
    let (bytes, freed) = (BYTES.load(Relaxed), FREED.load(Relaxed));
    Counts {
        allocations: ALLOCATIONS.load(Relaxed),
        bytes,
        live: bytes.saturating_sub(freed),
        peak: PEAK.load(Relaxed),
    }
}

fn allocated(size: usize) {
    if ON.load(Relaxed) {
        ALLOCATIONS.fetch_add(1, Relaxed);
        let bytes = BYTES.fetch_add(size as u64, Relaxed) + size as u64;
        PEAK.fetch_max(bytes.saturating_sub(FREED.load(Relaxed)), Relaxed);
    }
}

fn freed(size: usize) {
    if ON.load(Relaxed) {
        FREED.fetch_add(size as u64, Relaxed);
    }
}

// A block that grows or shrinks counts as one allocated and one freed.
//
// SAFETY: the system's allocator does all the work; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        freed(layout.size());
        allocated(size);
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        freed(layout.size());
        unsafe { System.dealloc(block, layout) }
    }
}
