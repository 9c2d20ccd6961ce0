//! Random histories of the three kinds: users, nodes, pods, faults and two processes of the operator, from one seed.
//!
//! Laws, of each version of every object
//! - The conditions of a status agree with each other and with their generation ([`crate::generated::status`]).
//! - Ready means that the cluster's own counts have said so since the last change.
//! - Only the process that holds the Lease writes.
//!
//! Laws, after the last problem has ended
//! - Each custom resource becomes Ready, and its owned objects are as the spec says, and like those of a new object.
//! - Nothing is written while nothing changes.
//! - After the deletion, nothing is left.
//!
//! A seed determines a history. `HISTORY_SEED` is the first (default 1), `HISTORIES` the number of consecutive ones. A
//! history that fails is shortened to a few steps and printed.

mod laws;
mod play;
mod steps;
mod timeline;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use controller_machinery::testing::Server;
use fastrand::Rng;
use parking_lot::Mutex;

use self::play::Play;
use self::steps::{Step, plan};

/// Number of histories by default.
const HISTORIES: u64 = 30;

/// The name of the threads that play histories.
const THREAD: &str = "history";

/// Maximum number of runs to find a shorter history.
const RUNS: usize = 400;

#[test]
fn every_history_ends_well() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let (first, count) = (number("HISTORY_SEED", 1), number("HISTORIES", HISTORIES));
    let next = AtomicU64::new(first);
    // The message of a panic is printed after the history has been shortened.
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() != Some(THREAD) {
            before(panic);
        }
    }));
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let worker = || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count
                        || failures.lock().len() >= number("FAILURES", 1) as usize
                    {
                        return;
                    }
                    let steps = plan(&mut Rng::with_seed(seed));
                    if let Err(why) = play(seed, &steps) {
                        failures.lock().push(seed);
                        let (steps, why) = if number("SHORTEN", 1) == 1 {
                            shortened(seed, steps, why)
                        } else {
                            (steps, why)
                        };
                        eprintln!(
                            "\nHISTORY_SEED={seed} HISTORIES=1 repeats it. These steps suffice:"
                        );
                        steps.iter().for_each(|step| eprintln!("  {step:?}"));
                        if std::env::var("HISTORY_TIMELINE").is_ok() {
                            let versions = play_on(seed, &steps).0.versions();
                            eprintln!("{}", timeline::timeline(&versions));
                        }
                        eprintln!("{why}\n");
                    }
                }
            };
            std::thread::Builder::new()
                .name(THREAD.to_owned())
                .spawn_scoped(scope, worker)
                .unwrap();
        }
    });
    assert_eq!(*failures.lock(), [0; 0], "these seeds fail");
}

/// Plays a history. An error is the message of its panic.
fn play(seed: u64, steps: &[Step]) -> Result<(), String> {
    play_on(seed, steps).1
}

/// Like [`play`], with the server.
fn play_on(seed: u64, steps: &[Step]) -> (Server, Result<(), String>) {
    // All random values in the library come from the thread's generator.
    fastrand::seed(seed);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let server = runtime.block_on(async { Server::new(seed) });
    let history = AssertUnwindSafe(|| {
        runtime.block_on(Play::run(server.clone(), seed, steps, laws::check));
    });
    let outcome = catch_unwind(history).map_err(|panic| text_of(&*panic));
    (server, outcome)
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}

/// Removes steps as long as the history still fails, first many at a time.
fn shortened(seed: u64, mut steps: Vec<Step>, mut why: String) -> (Vec<Step>, String) {
    let (mut size, mut runs) = (steps.len() / 2, 0);
    while size > 0 && runs < RUNS {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..steps.len().min(at + size));
            runs += 1;
            match play(seed, &fewer) {
                Err(other) => (steps, why) = (fewer, other),
                Ok(()) => at += size,
            }
        }
        size /= 2;
    }
    (steps, why)
}
