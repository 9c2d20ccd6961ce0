//! What the API server answered to the writes of one task.
//!
//! News of a write may arrive before its answer, as the two come over different connections. At
//! that point nobody can tell whose write it was ([`Origin::Unclaimed`]); once the task is over, it
//! is known.
//!
//! [`Origin::Unclaimed`]: super::Origin::Unclaimed

use std::cell::RefCell;
use std::future::Future;

use super::delta::{Delta, Origin};
use crate::object::{Object, ResourceVersion, Uid};

tokio::task_local! {
    static ANSWERS: RefCell<Vec<Write>>;
}

/// One write to one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    uid: Uid,
    /// The version that it gave the object. `None`: it removed the object.
    version: Option<ResourceVersion>,
}

/// The writes of one task that it passed to stores.
#[derive(Debug, Default)]
pub struct Answers(Vec<Write>);

/// Runs `task` and notes which of its writes it passed to any store, by
/// [`Store::wrote`](super::Store::wrote) or [`Store::removed`](super::Store::removed). Tasks that
/// it spawns are not included.
pub async fn answers_of<F: Future>(task: F) -> (F::Output, Answers) {
    let noted = async {
        let output = task.await;
        (output, Answers(ANSWERS.with(RefCell::take)))
    };
    ANSWERS.scope(RefCell::default(), noted).await
}

/// Notes that the running task has the answer to this write. Outside [`answers_of`] nobody asks.
pub(super) fn note(write: Write) {
    let _ = ANSWERS.try_with(|answers| answers.borrow_mut().push(write));
}

// === impl Write ===

impl Write {
    /// The write that gave the object with this UID a version.
    pub(super) fn at(uid: Uid, version: ResourceVersion) -> Write {
        Write { uid, version: Some(version) }
    }

    /// The write that removed the object with this UID.
    pub(super) fn removal(uid: Uid) -> Write {
        Write { uid, version: None }
    }

    /// The write that `delta` reports, if it is a single one and may turn out to be ours.
    pub fn unclaimed<V: Object>(delta: &Delta<V>) -> Option<Write> {
        let object = delta.object();
        let named = object.uid().is_some() && object.meta().version.is_known();
        if delta.origin() != Origin::Unclaimed || !named {
            return None;
        }
        Some(match delta {
            Delta::Deleted(..) => Write::removal(object.uid()),
            Delta::Added(..) | Delta::Updated { .. } => {
                Write::at(object.uid(), object.meta().version)
            }
        })
    }
}

// === impl Answers ===

impl Answers {
    /// Whether the task got the answer to this write.
    pub fn has(&self, write: &Write) -> bool {
        self.0.contains(write)
    }
}
