//! The fuzzed functions, one per target: each takes any bytes and panics if a promise is broken.
//!
//! hack/campaigns/fuzz.sh drives them with cargo-fuzz for as long as you like; tests/fuzz.rs drives the same
//! functions on stable Rust with the inputs of `seeds` and a fixed number of mutations of them.

mod wire;
mod scalars;

pub use scalars::{numbers, query};
pub use wire::{list, status, watch};

/// A target.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also the folder of its inputs in `seeds`.
pub const TARGETS: [(&str, Target); 5] =
    [("watch", watch), ("list", list), ("status", status), ("numbers", numbers), ("query", query)];

/// A generator that follows from the input, for what an input does not say itself.
fn rng(data: &[u8]) -> fastrand::Rng {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    fastrand::Rng::with_seed(data.iter().fold(0xcbf2_9ce4_8422_2325, fold))
}

/// Runs to the end, with time that passes at once.
fn run<T>(work: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O needs nothing");
    }
    RUNTIME.with(|runtime| runtime.block_on(work))
}
