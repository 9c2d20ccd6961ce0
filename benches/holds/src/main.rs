//! How long the store's lock is held while a list of 100,000 objects takes the place of another, and
//! how long readers wait for it.
//!
//! Each hold is given twice: in processor time of the thread that holds, which is what the store can
//! answer for, and by the clock on the wall, which on a busy machine is also the time in which the
//! kernel lets somebody else run.

#![cfg_attr(not(lock_holds), allow(dead_code, unused_imports))]
#![allow(unreachable_pub)] // These are public in the operator.

#[path = "../../../src/object/mod.rs"]
pub mod object;
#[path = "../../../src/store/mod.rs"]
pub mod store;

#[cfg(lock_holds)]
mod measured;

/// The operator's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    #[cfg(lock_holds)]
    measured::run();
    #[cfg(not(lock_holds))]
    println!("nothing is clocked; run hack/lock-holds.sh");
}
