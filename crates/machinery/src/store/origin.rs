//! The origin of a write: the controller and the key whose pass made it.
//!
//! The task that runs a pass carries its origin, so that every answer that it passes to a store is
//! attributed without an argument at each call.

use std::cell::Cell;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::object::ObjectKey;

tokio::task_local! {
    static CURRENT: Current;
}

/// The origin of the running task, and what its stores have found out about its answers.
struct Current {
    origin: WriteOrigin,
    outdated: Cell<bool>,
}

/// The identity of a controller in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ControllerId(u64);

/// The controller and key whose pass wrote an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOrigin {
    /// The controller.
    pub controller: ControllerId,
    /// The key that it was reconciling.
    pub key: ObjectKey,
}

// === impl ControllerId ===

impl ControllerId {
    /// An identity that no other controller has.
    #[expect(clippy::new_without_default, reason = "each one is different")]
    pub fn new() -> ControllerId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        ControllerId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

// === impl WriteOrigin ===

impl WriteOrigin {
    /// Runs `task` as this origin: the answers that it passes to stores count as its writes. Tasks
    /// that it spawns are not included. Also returns whether one of the answers was outdated: the
    /// store knew already that its object is gone, so the origin has to look again.
    pub async fn scope<F: Future>(self, task: F) -> (F::Output, bool) {
        let current = Current { origin: self, outdated: Cell::new(false) };
        let noted = async {
            let output = task.await;
            (output, CURRENT.with(|current| current.outdated.get()))
        };
        CURRENT.scope(current, noted).await
    }

    /// The origin of the running task.
    pub(super) fn current() -> Option<WriteOrigin> {
        CURRENT.try_with(|current| current.origin.clone()).ok()
    }

    /// Notes that an answer of the running task is outdated. Without an origin it has no effect.
    pub(super) fn note_outdated() {
        let _ = CURRENT.try_with(|current| current.outdated.set(true));
    }
}
