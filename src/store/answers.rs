//! What the API server answered to the writes of one task.
//!
//! News of a write may be read before its answer, as the two come over different connections. Then
//! nobody can tell yet whose write it was ([`Origin::Unclaimed`]); when the task is over, it can be.
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
    /// The version that it gave the object. None: it removed it.
    version: Option<ResourceVersion>,
}

/// The writes of one task of which the stores were told.
#[derive(Debug, Default)]
pub struct Answers(Vec<Write>);

/// Runs `task`, and notes of which of its writes it told any store, by
/// [`Store::wrote`](super::Store::wrote) or [`Store::removed`](super::Store::removed). What it
/// spawns is not part of it.
pub async fn answers_of<F: Future>(task: F) -> (F::Output, Answers) {
    let noted = async {
        let output = task.await;
        (output, Answers(ANSWERS.with(RefCell::take)))
    };
    ANSWERS.scope(RefCell::default(), noted).await
}

/// The running task has the answer to this write. Outside of [`answers_of`] nobody asks.
pub(super) fn note(write: Write) {
    let _ = ANSWERS.try_with(|answers| answers.borrow_mut().push(write));
}

// === impl Write ===

impl Write {
    /// One that gave an object with this UID a version.
    pub(super) fn at(uid: Uid, version: ResourceVersion) -> Write {
        Write { uid, version: Some(version) }
    }

    /// The one that removed the object with this UID.
    pub(super) fn removal(uid: Uid) -> Write {
        Write { uid, version: None }
    }

    /// The write of which `delta` is the news, if it is one alone and may turn out to be ours.
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
    /// Whether the task was answered for this write.
    pub fn has(&self, write: &Write) -> bool {
        self.0.contains(write)
    }
}
