//! Random histories: lists of steps that are played, and shortened if a law breaks.

use std::cell::RefCell;
use std::fmt::{Debug, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;
use tokio::runtime::Builder;

use super::history::Version;
use super::server::Server;

/// Maximum number of runs to find a shorter history.
const RUNS: usize = 400;

/// Time limit of a history, in tokio's time: a month.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// The name of the threads that play histories.
const THREAD: &str = "history";

/// Plays `count` random histories, and a fifth as many whose seeds follow from the day's date, on all cores. `plan`
/// returns the steps of a seed; `play` carries them out on a server with paused time, and panics if something is wrong.
///
/// A history that fails is shortened: steps are removed as long as it still fails. Its seed, these steps and the message
/// of the panic are printed. So a step names all that it needs, and one that no longer makes sense does nothing.
///
/// Environment variables: `HISTORY_SEED` is the first seed (default 1), of `HISTORIES` consecutive ones (default 1). With
/// `HISTORY_TIMELINE`, each version of every object is printed for a history that fails. `HISTORY_FAILURES` is the
/// number of failures after which the rest is left out (default 1).
///
/// ```
/// use controller_machinery::testing::{Id, histories};
/// use serde_json::json;
///
/// #[derive(Debug, Clone)]
/// enum Step {
///     Create(u8),
///     Delete(u8),
/// }
///
/// let plan = |rng: &mut fastrand::Rng| {
///     let step = |rng: &mut fastrand::Rng| match rng.bool() {
///         true => Step::Create(rng.u8(..3)),
///         false => Step::Delete(rng.u8(..3)),
///     };
///     (0..rng.usize(1..20)).map(|_| step(rng)).collect()
/// };
/// histories(20, plan, async |server, steps: &[Step]| {
///     let id = |number| Id::new("/api/v1/configmaps", "shop", format!("settings-{number}"));
///     for step in steps {
///         match step {
///             Step::Create(number) => drop(server.put(&id(number), json!({}))),
///             Step::Delete(number) => server.delete(&id(number)),
///         }
///     }
///     // Laws, for example of a controller that has run meanwhile.
///     assert!(server.objects("/api/v1/configmaps").len() <= 3);
/// });
/// ```
///
/// # Panics
///
/// If a history fails.
#[expect(clippy::panic, reason = "as an assertion, it fails the test")]
pub fn histories<S: Clone + Debug>(
    count: u64,
    plan: impl Fn(&mut Rng) -> Vec<S> + Sync,
    play: impl AsyncFn(Server, &[S]) + Sync,
) {
    silence();
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name}={text} is no number")))
    };
    let seeds = match (number("HISTORY_SEED"), number("HISTORIES")) {
        (None, None) => vec![(1, count), (of_the_day(), count / 5)],
        (first, count) => vec![(first.unwrap_or(1), count.unwrap_or(1))],
    };
    let allowed = number("HISTORY_FAILURES").unwrap_or(1).max(1);
    let seeds: Vec<u64> =
        seeds.into_iter().flat_map(|(first, count)| first..first + count).collect();
    let (next, failures) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        while failures.load(Ordering::Relaxed) < allowed {
            let at = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX);
            let Some(&seed) = seeds.get(at) else { return };
            let steps = plan(&mut Rng::with_seed(seed));
            if let Err(why) = run(seed, &steps, &play).1 {
                failures.fetch_add(1, Ordering::Relaxed);
                report(seed, steps, why, &play);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let spawned =
                std::thread::Builder::new().name(THREAD.to_owned()).spawn_scoped(scope, work);
            drop(spawned.expect("a thread"));
        }
    });
    let failures = failures.into_inner();
    assert!(failures == 0, "{failures} of {} histories fail, printed above", seeds.len());
}

/// Returns the first seed of this day (UTC): 20261129000 and so on.
fn of_the_day() -> u64 {
    let day = Timestamp::now().to_zoned(TimeZone::UTC).strftime("%Y%m%d000").to_string();
    day.parse().unwrap_or_default()
}

thread_local! {
    /// The panics of the history that this thread plays, those of its tasks included.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the message of a panic in a history until the history has been shortened.
fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() == Some(THREAD) {
                PANICS.with_borrow_mut(|all| all.push(panic.to_string()));
            } else {
                before(panic);
            }
        }));
    });
}

/// Plays a history. An error has the messages of its panics, those of its tasks included.
fn run<S>(
    seed: u64,
    steps: &[S],
    play: &impl AsyncFn(Server, &[S]),
) -> (Server, Result<(), String>) {
    // All random values in the library come from the thread's generator.
    fastrand::seed(seed);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O needs nothing");
    let server = runtime.block_on(async { Server::new(seed) });
    let playing = async {
        let played = tokio::time::timeout(LONGEST, play(server.clone(), steps)).await;
        assert!(played.is_ok(), "the history is not over after {LONGEST:?} of tokio's time");
    };
    PANICS.take();
    let played = AssertUnwindSafe(|| runtime.block_on(playing));
    let ended = catch_unwind(played);
    drop(runtime);
    let panics = PANICS.take();
    let outcome = if ended.is_ok() && panics.is_empty() { Ok(()) } else { Err(panics.join("\n")) };
    (server, outcome)
}

#[expect(clippy::print_stderr, reason = "it is read in the output of a test that failed")]
fn report<S: Clone + Debug>(
    seed: u64,
    steps: Vec<S>,
    mut why: String,
    play: &impl AsyncFn(Server, &[S]),
) {
    let steps = shortened(steps, RUNS, |fewer| match run(seed, fewer, play).1 {
        Ok(()) => false,
        Err(message) => {
            why = message;
            true
        }
    });
    // One text, because several threads can print.
    let mut text =
        format!("HISTORY_SEED={seed} repeats a history that fails. These steps suffice:\n");
    for step in &steps {
        let _ = writeln!(text, "- {step:?}");
    }
    if std::env::var_os("HISTORY_TIMELINE").is_some() {
        text += &timeline(&run(seed, &steps, play).0.versions());
    }
    eprintln!("{text}{why}\n");
}

/// Removes items as long as the rest still fails, first many at a time.
pub(super) fn shortened<T: Clone>(
    mut all: Vec<T>,
    most: usize,
    mut fails: impl FnMut(&[T]) -> bool,
) -> Vec<T> {
    let (mut size, mut runs) = (all.len(), 0);
    while size > 0 {
        let mut at = 0;
        while at < all.len() && runs < most {
            let mut fewer = all.clone();
            fewer.drain(at..all.len().min(at + size));
            runs += 1;
            if fails(&fewer) {
                all = fewer;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    all
}

/// Returns a line for each version of an object, with the fields that changed. Leases, Events and ReplicaSets are left
/// out.
pub fn timeline(versions: &[Version]) -> String {
    let mut text = String::new();
    for (at, Version { at: time, id, object }) in versions.iter().enumerate() {
        let kind = id.resource.rsplit('/').next().unwrap_or_default();
        if ["leases", "events", "replicasets"].contains(&kind) {
            continue;
        }
        let before = versions[..at].iter().rev().find(|version| version.id == *id);
        let before = before.and_then(|version| version.object.as_deref()).unwrap_or(&Value::Null);
        let what = match object.as_deref() {
            None => "deleted".to_owned(),
            Some(object) if before.is_null() => format!("created: {}", object["spec"]),
            Some(object) => {
                let mut changes = Vec::new();
                differences("", before, object, &mut changes);
                changes.join(", ")
            }
        };
        let _ = writeln!(
            text,
            "{:>10.3} s  {kind} {}/{}: {what}",
            time.as_secs_f64(),
            id.namespace,
            id.name
        );
    }
    text
}

fn differences(path: &str, before: &Value, after: &Value, into: &mut Vec<String>) {
    let is_noise = ["/managedFields", "/resourceVersion", "/lastUpdateTime"];
    if before == after || is_noise.iter().any(|noise| path.ends_with(noise)) {
        return;
    }
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
                differences(&format!("{path}/{name}"), &before[name], &after[name], into);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (at, (old, new)) in old.iter().zip(new).enumerate() {
                let name = new["type"].as_str().map_or_else(|| at.to_string(), str::to_owned);
                differences(&format!("{path}/{name}"), old, new, into);
            }
        }
        _ => into.push(format!("{path} = {after}")),
    }
}
