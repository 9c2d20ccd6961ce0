//! Compares the queue with a model of it that uses plain lists and no tables or links.
//!
//! Runs every operation, on a virtual clock, in any order; after each, the two must agree on
//! everything visible. Times never tie: every operation happens a nanosecond after the previous
//! one, and all delays are whole milliseconds.

mod reference;

use std::time::Duration;

use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};

use super::super::queue::{Nanos, Queue};
use super::super::{Backoff, Retry};
use super::{Limits, Named, Priority};
use reference::Model;

const MS: Nanos = 1_000_000;

/// Exact backoffs, and a burst so small that the overall rate matters within a few operations.
fn limits() -> Limits {
    Limits { jitter: 0.0, retry_burst: 2, seed: Some(0), ..Limits::default() }
}

#[derive(Debug, Clone)]
enum Op {
    Add(Named, Priority),
    Retry(Named, Retry),
    RequeueAfter(Named, u64),
    Forget(Named),
    Take,
    /// Ends the run that began first, second, …
    Done(usize),
    /// Gives back what was taken first, second, …: its run did not begin.
    PutBack(usize),
    Pass(u64),
    ShutDown,
}

impl ReferenceStateMachine for Model {
    type State = Model;
    type Transition = Op;

    fn init_state() -> proptest::strategy::BoxedStrategy<Model> {
        prop_oneof![Just(1), Just(4), Just(usize::MAX)].prop_map(Model::new).boxed()
    }

    fn transitions(state: &Model) -> proptest::strategy::BoxedStrategy<Op> {
        let key = || (0..3u32, 0..3u32);
        let priority = prop_oneof![Just(Priority::High), Just(Priority::Low)];
        let retry = (0..3u32, any::<bool>()).prop_map(|(hold, soon)| Retry {
            backoff: if soon {
                let base = Duration::from_millis(5);
                Backoff { base, max: 4 * base }
            } else {
                Backoff::DEFAULT
            },
            at_least: Duration::from_millis(if hold == 0 { 30 } else { 0 }),
        });
        let in_process = state.keys.values().filter(|known| known.processing.is_some()).count();
        prop_oneof![
            12 => (key(), priority).prop_map(|(key, priority)| Op::Add(key, priority)),
            6 => (key(), 0..50u64).prop_map(|(key, delay)| Op::RequeueAfter(key, delay)),
            12 => (key(), retry).prop_map(|(key, retry)| Op::Retry(key, retry)),
            4 => key().prop_map(Op::Forget),
            24 => Just(Op::Take),
            18 => (0..in_process.max(1)).prop_map(Op::Done),
            6 => (0..in_process.max(1)).prop_map(Op::PutBack),
            12 => (0..60u64).prop_map(Op::Pass),
            if state.takes > 60 { 1 } else { 0 } => Just(Op::ShutDown),
        ]
        .boxed()
    }

    /// A run that has not begun has not failed.
    fn preconditions(state: &Model, op: &Op) -> bool {
        let Op::PutBack(at) = op else { return true };
        let known = state.runs().get(*at).map(|key| &state.keys[key]);
        known.is_none_or(|known| known.retry.is_none() && !known.held && !known.retry_due)
    }

    fn apply(mut state: Model, op: &Op) -> Model {
        state.now += 1;
        if let Op::Pass(time) = op {
            state.now += time * MS;
        }
        // Shutdown drops the timers, so nothing fires afterwards.
        state.fire();
        state.taken = None;
        state.delay = None;
        match op.clone() {
            Op::Add(key, priority) if !state.closed => state.mark(key, priority),
            Op::Retry(key, retry) if !state.closed => state.delay = Some(state.retry(key, retry)),
            Op::RequeueAfter(key, delay) if !state.closed => state.requeue(key, delay * MS),
            Op::Forget(key) => state.forget(key),
            Op::Take => state.taken = state.take(),
            Op::Done(at) => {
                if let Some(key) = state.runs().get(at).copied() {
                    state.done(key);
                }
            }
            Op::PutBack(at) => {
                if let Some(key) = state.runs().get(at).copied() {
                    state.put_back(key);
                }
            }
            Op::ShutDown => state.shut_down(),
            Op::Pass(_) | Op::Add(..) | Op::Retry(..) | Op::RequeueAfter(..) => {}
        }
        state.fire();
        state.tidy();
        state
    }
}

struct Real {
    queue: Queue<Named>,
    now: Nanos,
    /// Items being processed, oldest first.
    runs: Vec<u32>,
}

impl StateMachineTest for Real {
    type SystemUnderTest = Real;
    type Reference = Model;

    fn init_test(model: &Model) -> Real {
        Real { queue: Queue::new(limits(), model.workers), now: 0, runs: Vec::new() }
    }

    fn apply(mut real: Real, model: &Model, op: Op) -> Real {
        real.now += 1;
        let Real { queue, now, runs } = &mut real;
        match op {
            Op::Add(key, priority) => queue.add(*now, &key, priority),
            Op::Retry(key, retry) => {
                let delay = queue.retry(*now, &key, retry);
                assert_eq!(delay, model.delay.unwrap_or_default(), "the delay of a retry");
            }
            Op::RequeueAfter(key, delay) => {
                queue.requeue(*now, &key, Duration::from_millis(delay));
            }
            Op::Forget(key) => queue.forget(*now, &key),
            Op::Take => {
                let next = queue.take(*now);
                let taken = next.as_ref().map(|next| (next.key, next.priority));
                assert_eq!(taken, model.taken, "what was taken");
                runs.extend(next.map(|next| next.id));
            }
            Op::Done(at) => {
                if at < runs.len() {
                    queue.done(*now, runs.remove(at));
                }
            }
            Op::PutBack(at) => {
                if at < runs.len() {
                    queue.put_back(*now, runs.remove(at));
                }
            }
            Op::Pass(time) => *now += time * MS,
            Op::ShutDown => queue.shut_down(*now),
        }
        queue.promote_due(*now);
        real
    }

    fn check_invariants(real: &Real, model: &Model) {
        let queue = &real.queue;
        let seen = queue.counts();
        assert_eq!(seen, (model.depth(), model.delayed(), model.runs().len(), model.keys.len()));
        for tenant in 0..3 {
            for name in 0..3 {
                let key = (tenant, name);
                let failures = model.keys.get(&key).map_or(0, |known| known.failures);
                assert_eq!(queue.requeues(&key), failures, "failures of {key:?}");
            }
        }
        let [low, high, late] = model.depth();
        let ready = low + high;
        assert_eq!(queue.ready(), ready, "keys ready");
        assert_eq!(queue.is_shut_down(), model.closed);
        if model.closed || (ready + late == 0 && model.delayed() == 0) {
            return;
        }
        // Whatever waits has a deadline or is ready: nothing can be lost forever.
        assert!(ready > 0 || queue.next_deadline().is_some_and(|deadline| deadline > real.now));
    }
}

proptest_state_machine::prop_state_machine! {
    #![proptest_config(proptest::test_runner::Config {
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn the_queue_behaves_like_its_model(sequential 1..300 => Real);
}
