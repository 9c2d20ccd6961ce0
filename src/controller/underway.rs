//! Wishes that come while a pass over their key is under way, and may be echoes of its own writes.
//!
//! The news of a write may be read before the answer to it. Put into the queue, they would have the
//! key run again for what the pass itself did. So they wait here until the pass is over and it is
//! known which writes were its own; all others then go into the queue, where their waiting counts
//! from that moment.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::object::ObjectKey;
use crate::store::{Answers, Write};
use crate::workqueue::{Band, WorkQueue};

/// At most this many changes are held back per key; beyond that the key is simply queued again.
const MOST: usize = 64;

/// By the keys over which passes are under way: what came meanwhile.
#[derive(Clone, Default)]
pub(super) struct Underway(Arc<Mutex<HashMap<ObjectKey, Vec<Wish>>>>);

/// The news of one write, and how soon they are to be looked at.
#[derive(Debug, Clone, Copy)]
struct Wish {
    write: Write,
    band: Band,
}

/// A pass under way. Dropping it ends it, and no wish is lost, however it ends: those that came in
/// go into the queue, and those that come from here on go there themselves. To be dropped before the
/// run is done, so that they are for the next.
pub(super) struct Begun<'a> {
    underway: &'a Underway,
    queue: &'a WorkQueue<ObjectKey>,
    key: &'a ObjectKey,
    /// What the pass was answered; of one that panicked or was dropped nothing is known.
    pub(super) answers: Answers,
}

// === impl Underway ===

impl Underway {
    /// A pass over `key` begins, which has not read anything yet.
    pub(super) fn begin<'a>(
        &'a self,
        queue: &'a WorkQueue<ObjectKey>,
        key: &'a ObjectKey,
    ) -> Begun<'a> {
        self.0.lock().insert(key.clone(), Vec::new());
        Begun { underway: self, queue, key, answers: Answers::default() }
    }

    /// Keeps a wish for `key` until its pass is over. False if there is none, or it keeps too many:
    /// then the wish belongs into the queue.
    pub(super) fn keeps(&self, key: &ObjectKey, write: Write, band: Band) -> bool {
        match self.0.lock().get_mut(key) {
            Some(wishes) if wishes.len() < MOST => {
                wishes.push(Wish { write, band });
                true
            }
            _ => false,
        }
    }
}

// === impl Begun ===

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let wishes = self.underway.0.lock().remove(self.key).unwrap_or_default();
        for Wish { write, band } in wishes {
            if !self.answers.has(&write) {
                self.queue.add_with(self.key.clone(), band);
            }
        }
    }
}
