//! Operations of the work queue: a byte each, and time that passes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::FutureExt;
use workload_operator::workqueue::{Key, Priority, Retry, WorkItem, WorkQueue};

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Name(u8);

impl Key for Name {
    type Tenant = u8;
    fn tenant(&self) -> &u8 {
        // Eight keys, two of each tenant.
        const TENANTS: [u8; 8] = [0, 0, 1, 1, 2, 2, 3, 3];
        &TENANTS[usize::from(self.0 % 8)]
    }
}

/// Longer than any backoff that these few failures lead to.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// No key is in process twice, none comes without a request, and in the end none was lost.
pub fn queue(data: &[u8]) {
    super::run(async {
        let queue = WorkQueue::new();
        let mut run =
            Run { queue, held: Vec::new(), owed: BTreeSet::new(), later: BTreeMap::new() };
        for operation in data.iter().take(512) {
            run.perform(*operation).await;
        }
        run.held.clear();
        tokio::time::advance(LONG).await;
        while run.take() {
            run.held.clear();
        }
        assert_eq!(run.owed, BTreeSet::new(), "asked for and never run");
        assert!(run.queue.is_empty());
    });
}

struct Run {
    queue: WorkQueue<Name>,
    held: Vec<WorkItem<Name>>,
    /// Asked for without a delay since it was last taken: must come.
    owed: BTreeSet<Name>,
    /// Number of requests for later: so often it may come besides.
    later: BTreeMap<Name, u32>,
}

impl Run {
    async fn perform(&mut self, operation: u8) {
        let key = Name(operation % 8);
        match operation / 8 {
            0..8 => {
                let priorities = [Priority::High, Priority::Low];
                self.queue.add_with(&key, priorities[usize::from(operation / 8 % 2)]);
                self.owed.insert(key);
            }
            8..11 => {
                self.queue.requeue_after(&key, Duration::from_millis(u64::from(operation)));
                *self.later.entry(key).or_default() += 1;
            }
            11..14 => {
                self.queue.add_rate_limited(&key, Retry::default());
                *self.later.entry(key).or_default() += 1;
            }
            14..17 => self.queue.forget(&key),
            17..25 => drop(self.take()),
            25..29 if !self.held.is_empty() => {
                let which = usize::from(key.0) % self.held.len();
                drop(self.held.swap_remove(which));
            }
            _ => tokio::time::advance(Duration::from_millis(1 << (operation % 16))).await,
        }
    }

    /// Takes a key if one is ready.
    fn take(&mut self) -> bool {
        let Some(taken) = self.queue.get().now_or_never() else { return false };
        let taken = taken.expect("it was not shut down");
        let key = taken.key();
        assert!(self.held.iter().all(|held| held.key() != key), "{key:?} is in process twice");
        if !self.owed.remove(key) {
            let wishes = self.later.get_mut(key).filter(|wishes| **wishes > 0);
            *wishes.unwrap_or_else(|| panic!("{key:?} was not asked for")) -= 1;
        }
        self.held.push(taken);
        true
    }
}
