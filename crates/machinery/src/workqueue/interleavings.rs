//! The shell under model checkers: `hack/campaigns/interleavings.sh`.
//!
//! Invariants of every schedule: no key is processed twice at once; the last request for a key
//! is followed by a run that began later; every worker ends after shutdown; a key that a worker takes
//! and gives back keeps its failures and its priority. A lost wake-up shows up as a deadlock, which both
//! tools report.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

#[cfg(shuttle)]
use super::Priority;
use super::{Key, Limits, WorkItem, WorkQueue};

#[cfg(loom)]
use loom::{future::block_on, thread};
#[cfg(shuttle)]
use shuttle::{future::block_on, thread};

type Named = (u8, u8);

impl Key for Named {
    type Tenant = u8;
    fn tenant(&self) -> &u8 {
        &self.0
    }
}

/// Checked state of one key. Not modelled: these never add schedules of their own.
#[derive(Default)]
struct Seen {
    asked: AtomicU32,
    answered: AtomicU32,
    busy: AtomicBool,
}

#[derive(Clone)]
struct Case {
    queue: WorkQueue<Named>,
    seen: Arc<[Seen; 3]>,
}

impl Case {
    fn new() -> Case {
        let limits = Limits { seed: Some(1), jitter: 0.0, ..Limits::default() };
        // However many work, at one key a tenant counts as holding its share.
        Case { queue: WorkQueue::with_workers(2, limits, ()), seen: Arc::default() }
    }

    fn add(&self, name: u8) {
        self.seen[usize::from(name)].asked.fetch_add(1, SeqCst);
        self.queue.add((name % 2, name));
    }

    fn run(&self, taken: &WorkItem<Named>, during: impl FnOnce(&Named)) {
        let seen = &self.seen[usize::from(taken.1)];
        assert!(!seen.busy.swap(true, SeqCst), "{taken:?} is in process twice");
        seen.answered.fetch_max(seen.asked.load(SeqCst), SeqCst);
        thread::yield_now();
        during(taken.key());
        seen.busy.store(false, SeqCst);
    }

    fn work(&self) -> thread::JoinHandle<()> {
        let case = self.clone();
        thread::spawn(move || {
            let mut next = block_on(case.queue.get());
            while let Some(taken) = next {
                case.run(&taken, |_| {});
                next = block_on(case.queue.done_and_get(taken));
            }
        })
    }

    fn check(&self) {
        for (name, seen) in self.seen.iter().enumerate() {
            assert_eq!(seen.asked.load(SeqCst), seen.answered.load(SeqCst), "key {name} was lost");
        }
        assert_eq!(self.queue.snapshot().known, 0);
    }
}

#[cfg(loom)]
fn every_interleaving(preemptions: usize, case: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(preemptions));
    model.check(case);
}

#[cfg(loom)]
#[test]
fn two_workers_lose_no_key_between_two_adds_and_a_shutdown() {
    every_interleaving(3, || {
        let case = Case::new();
        let workers = [case.work(), case.work()];
        case.add(0);
        case.add(1);
        case.queue.shut_down();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        block_on(case.queue.drained());
        case.check();
    });
}

#[cfg(loom)]
#[test]
fn a_key_added_again_while_in_process_runs_again_in_every_interleaving() {
    every_interleaving(4, || {
        let case = Case::new();
        let worker = case.work();
        case.add(0);
        case.add(0);
        case.queue.shut_down();
        worker.join().unwrap();
        case.check();
    });
}

#[cfg(loom)]
#[test]
fn a_get_that_is_dropped_passes_its_wake_up_on_in_every_interleaving() {
    every_interleaving(3, || {
        let case = Case::new();
        let impatient = {
            let case = case.clone();
            thread::spawn(move || {
                // Waits, or is notified, and goes away; or takes a key.
                let taken = poll_once(&case.queue).flatten();
                taken.map(|taken| case.run(&taken, |_| {})).is_some()
            })
        };
        let worker = {
            let case = case.clone();
            thread::spawn(move || {
                let taken = block_on(case.queue.get()).expect("not shut down");
                case.run(&taken, |_| {});
            })
        };
        case.add(0);
        if impatient.join().unwrap() {
            case.add(1);
        }
        // Nothing else will wake it.
        worker.join().unwrap();
        case.check();
    });
}

#[cfg(loom)]
#[test]
fn a_delay_wakes_a_worker_although_the_timekeeper_may_have_left() {
    every_interleaving(3, || {
        let case = Case::new();
        case.seen[0].asked.store(1, SeqCst);
        case.queue.add_after((0, 0), Duration::from_nanos(10));
        let impatient = {
            let queue = case.queue.clone();
            thread::spawn(move || drop(poll_once(&queue)))
        };
        let worker = {
            let case = case.clone();
            thread::spawn(move || {
                let taken = block_on(case.queue.get()).expect("not shut down");
                case.run(&taken, |_| {});
            })
        };
        impatient.join().unwrap();
        case.queue.advance(10);
        worker.join().unwrap();
        case.check();
    });
}

/// Polls a `get` once and drops it, as `select!` does with the branch that loses.
fn poll_once(queue: &WorkQueue<Named>) -> Option<Option<WorkItem<Named>>> {
    let mut get = Box::pin(queue.get());
    block_on(std::future::poll_fn(|context| {
        use std::task::Poll;
        match get.as_mut().poll(context) {
            Poll::Ready(taken) => Poll::Ready(Some(taken)),
            Poll::Pending => Poll::Ready(None),
        }
    }))
}

#[cfg(shuttle)]
fn random_schedules(case: impl Fn() + Send + Sync + 'static) {
    let schedules = std::env::var("SHUTTLE_SCHEDULES").ok().and_then(|n| n.parse().ok());
    let scheduler =
        shuttle::scheduler::RandomScheduler::new_from_seed(0x5eed, schedules.unwrap_or(50_000));
    shuttle::Runner::new(scheduler, shuttle::Config::default()).run(case);
}

#[cfg(shuttle)]
#[test]
fn eight_workers_and_four_adders_lose_no_key_in_random_schedules() {
    random_schedules(|| {
        let case = Case::new();
        let workers: Vec<_> = (0..8).map(|_| case.work()).collect();
        let adders: Vec<_> = (0..4)
            .map(|at| {
                let case = case.clone();
                thread::spawn(move || {
                    for round in 0..4 {
                        case.add((at + round) % 3);
                        if let Some(Some(taken)) =
                            (round == 2).then(|| poll_once(&case.queue)).flatten()
                        {
                            case.run(&taken, |_| {});
                        }
                    }
                })
            })
            .collect();
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        case.queue.shut_down();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        block_on(case.queue.drained());
        case.check();
    });
}

#[cfg(shuttle)]
#[test]
fn eight_workers_with_failures_and_delays_lose_no_key_in_random_schedules() {
    random_schedules(|| {
        let case = Case::new();
        let ended = Arc::new(AtomicU32::new(0));
        let runs: Arc<[AtomicU32; 3]> = Arc::default();
        let workers: Vec<_> = (0..8)
            .map(|_| {
                let (case, ended, runs) = (case.clone(), ended.clone(), runs.clone());
                thread::spawn(move || {
                    // One that is dropped after its first poll may have taken a key.
                    let next = |queue| poll_once(queue).unwrap_or_else(|| block_on(queue.get()));
                    while let Some(taken) = next(&case.queue) {
                        case.run(&taken, |key| {
                            let run = runs[usize::from(key.1)].fetch_add(1, SeqCst);
                            if fails_twice_and_succeeds_twice(&case.queue, &taken, run) {
                                ended.fetch_or(1 << key.1, SeqCst);
                            }
                        });
                    }
                })
            })
            .collect();
        case.add(0);
        case.add(1);
        case.seen[2].asked.fetch_add(1, SeqCst);
        case.queue.add_after((0, 2), Duration::from_millis(3));
        // Every key must succeed after enough time; otherwise no thread watched a deadline.
        while ended.load(SeqCst) != 0b111 {
            case.queue.advance(1_000_000);
            thread::yield_now();
        }
        case.queue.shut_down();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        case.check();
    });
}

/// The run of this number, from 0. Returns whether it is the last.
#[cfg(shuttle)]
fn fails_twice_and_succeeds_twice(
    queue: &WorkQueue<Named>,
    taken: &WorkItem<Named>,
    run: u32,
) -> bool {
    let (key, priority) = (taken.key(), taken.priority());
    // Key 2 was added with a delay.
    let first = if key.1 == 2 { Priority::Low } else { Priority::High };
    assert_eq!(queue.requeues(key), run % 3, "failures of {key:?} before run {run}");
    match run {
        0 | 1 => {
            assert_eq!(priority, first, "{key:?} in run {run}");
            queue.add_rate_limited(*key);
        }
        2 => {
            // It waits for the overall rate, until its patience is over.
            assert_ne!(priority, Priority::High, "{key:?} in run {run}");
            queue.forget(key);
            queue.requeue_after(*key, Duration::from_millis(2));
        }
        _ => {
            assert_eq!((run, priority), (3, Priority::Low), "{key:?} was requeued once");
            queue.forget(key);
        }
    }
    run == 3
}
