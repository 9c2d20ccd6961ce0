//! How long the store's lock is held while a list of 100,000 objects replaces another, and how long
//! readers wait for it.
//!
//! Each hold is given twice: in processor time of the holding thread, which is what the store is
//! responsible for, and in wall-clock time, which on a busy machine includes the time in which the
//! kernel runs something else.

#![cfg_attr(not(lock_holds), allow(dead_code, unused_imports))]
#![allow(unreachable_pub)] // These are public in the operator.

#[path = "../../../crates/machinery/src/object/mod.rs"]
pub mod object;
#[path = "../../../crates/machinery/src/store/mod.rs"]
pub mod store;

#[cfg(lock_holds)]
mod measured;

/// The operator's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    #[cfg(lock_holds)]
    measured::run();
    #[cfg(not(lock_holds))]
    println!("nothing is clocked; run hack/lock-holds.sh");
}
