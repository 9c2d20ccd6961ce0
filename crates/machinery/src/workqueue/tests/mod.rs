//! Tests of the queue as its users see it.

mod scenarios;
mod shutdown;
mod delays;
mod fairness;
mod retries;
mod model;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::{Key, Limits, Priority, WorkItem, WorkQueue};

/// Tenant and name.
pub(super) type Named = (u32, u32);

impl Key for Named {
    type Tenant = u32;
    fn tenant(&self) -> &u32 {
        &self.0
    }
}

/// A queue whose backoffs are exact.
fn exact() -> WorkQueue<Named> {
    WorkQueue::with_workers(
        "test",
        usize::MAX,
        Limits { jitter: 0.0, seed: Some(1), ..Limits::default() },
    )
}

/// Returns what `get` returns at once, if anything: polls it once and drops it.
fn take(queue: &WorkQueue<Named>) -> Option<WorkItem<Named>> {
    match pin!(queue.get()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(taken) => taken,
        Poll::Pending => None,
    }
}

/// Takes and ends runs until none is ready; returns their keys.
fn run_all(queue: &WorkQueue<Named>) -> Vec<Named> {
    std::iter::from_fn(|| take(queue).map(|taken| *taken.key())).collect()
}
