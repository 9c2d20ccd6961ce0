//! Requests that arrive while a pass over their key is under way, and may be echoes of its own
//! writes.
//!
//! The news of a write may be read before the answer to it. If it went into the queue, the key
//! would run again because of what the pass itself did. So it waits here until the pass is over and
//! we know which writes were its own. All the others then go into the queue, and their waiting time
//! counts from that moment.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::object::ObjectKey;
use crate::store::{Answers, Write};
use crate::workqueue::{Band, WorkQueue};

/// At most this many changes are held back per key; any more simply queue the key again.
const MOST: usize = 64;

/// For each key with a pass under way: the requests that arrived meanwhile.
#[derive(Clone, Default)]
pub(super) struct Underway(Arc<Mutex<HashMap<ObjectKey, Vec<Wish>>>>);

/// The news of one write, and the band to queue it in.
#[derive(Debug, Clone, Copy)]
struct Wish {
    write: Write,
    band: Band,
}

/// A pass under way. Dropping this ends it, and however it ends, no request is lost: those that
/// arrived go into the queue, and later ones go there directly. It must be dropped before the run
/// is done, so that they count for the next run.
pub(super) struct Begun<'a> {
    underway: &'a Underway,
    queue: &'a WorkQueue<ObjectKey>,
    key: &'a ObjectKey,
    /// The answers to the pass's writes; unknown for a pass that panicked or was dropped.
    pub(super) answers: Answers,
}

// === impl Underway ===

impl Underway {
    /// Begins a pass over `key` that has not read anything yet.
    pub(super) fn begin<'a>(
        &'a self,
        queue: &'a WorkQueue<ObjectKey>,
        key: &'a ObjectKey,
    ) -> Begun<'a> {
        self.0.lock().insert(key.clone(), Vec::new());
        Begun { underway: self, queue, key, answers: Answers::default() }
    }

    /// Keeps a request for `key` until its pass is over. False if no pass is under way or it keeps
    /// too many already: then the request belongs in the queue.
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
                self.queue.add_with(self.key, band);
            }
        }
    }
}
