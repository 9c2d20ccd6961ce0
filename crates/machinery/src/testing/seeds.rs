//! Random faults from a seed.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use tokio::runtime::Builder;

use super::fault::{Faults, InjectedFault};
use super::histories;
use super::server::Server;

/// Shares of requests and of events in watches that a fault strikes.
const RATES: (f64, f64) = (0.1, 0.05);

/// Maximum number of runs to find a shorter list of faults.
const RUNS: usize = 200;

/// The panic of a run that failed.
type Failure = Box<dyn Any + Send>;

/// Runs `world` with a server for each of `count` seeds, with paused time and random faults until [`Server::clear_faults`]. If
/// a run panics, the seed is printed with as few faults as are necessary for the failure, and the panic continues.
/// While faults strike, wait with `tokio::time::sleep`, because [`Server::settled`] may never complete.
///
/// The environment variable `SEED` selects a single seed. A run is reproducible if `world` has no other source of
/// randomness or time.
///
/// ```
/// use controller_machinery::testing::{Id, seeds};
/// # use controller_machinery::manager::{Context, Manager};
/// # use controller_machinery::{controller::{Action, ReconcileError}, object::{Kind, Meta}, view};
/// # #[derive(Debug, serde::Deserialize, serde::Serialize)]
/// # struct Website { metadata: Meta }
/// # view!(Website: Kind::namespaced("example.com", "v1", "Website", "websites"));
/// # async fn reconcile(_: std::sync::Arc<Website>, cx: Context<Website>) -> Result<Action, ReconcileError> {
/// #     cx.patch_status(serde_json::json!({"url": "https://a.example.com/"})).await?;
/// #     Ok(Action::Done)
/// # }
///
/// seeds(20, async |server| {
///     let id = Id::new("/apis/example.com/v1/websites", "shop", "front");
///     server.put(&id, serde_json::json!({}));
///     let manager = Manager::new("websites").controller::<Website>().reconcile(reconcile);
///     let test = async {
///         tokio::time::sleep(std::time::Duration::from_secs(60)).await;
///         server.clear_faults();
///         server.until(&id, |site| site["status"]["url"] == "https://a.example.com/").await;
///     };
///     server.run(manager, test).await;
/// });
/// ```
///
/// # Panics
///
/// As `world`.
pub fn seeds(count: u64, world: impl AsyncFn(Server)) {
    let only = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let all = only.map_or(0..count, |seed| seed..seed + 1);
    for seed in all {
        let (server, outcome) = run(seed, &world, |faults| faults.rates = RATES);
        if let Err(failure) = outcome {
            let injected = server.lock().faults.injected.clone();
            match shortened(seed, injected.clone(), &world) {
                Some(plan) => report(seed, "It fails with these faults alone", &plan),
                None => report(seed, "These faults were injected", &injected),
            }
            resume_unwind(failure);
        }
    }
}

/// Runs `world` once, with a new server.
fn run(
    seed: u64,
    world: &impl AsyncFn(Server),
    faults: impl FnOnce(&mut Faults),
) -> (Server, Result<(), Failure>) {
    // All random values in the library come from the thread's generator.
    fastrand::seed(seed);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O needs nothing");
    let server = runtime.block_on(async { Server::new(seed) });
    faults(&mut server.lock().faults);
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(world(server.clone()))));
    (server, outcome)
}

/// Removes faults as long as the run still fails, first many at a time. `None` if the run does not fail again with the
/// same faults, because it depends on another random choice of the server.
fn shortened(
    seed: u64,
    injected: Vec<InjectedFault>,
    world: &impl AsyncFn(Server),
) -> Option<Vec<InjectedFault>> {
    let fails = |plan: &[InjectedFault]| {
        let (_, outcome) = run(seed, world, |faults| faults.planned = plan.to_vec());
        outcome.is_err()
    };
    fails(&injected).then(|| histories::shortened(injected, RUNS, fails))
}

#[expect(clippy::print_stderr, reason = "it is read in the output of a test that failed")]
fn report(seed: u64, which: &str, plan: &[InjectedFault]) {
    eprintln!("seed {seed} failed; SEED={seed} repeats it. {which}:");
    plan.iter().for_each(|strike| eprintln!("- {strike}"));
    if plan.is_empty() {
        eprintln!("- none");
    }
}
