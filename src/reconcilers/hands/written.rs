//! Remembers what the operator has said, to notice when somebody else says something different.

use std::collections::HashMap;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

use super::contest::WINDOW;
use crate::object::Uid;
use crate::reconcilers::applied::fnv1a;
use crate::reconcilers::reason::Reason;

/// A status that was written, in few bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    hash: u64,
    /// The trouble that it tells of.
    pub(super) trouble: Option<Reason>,
}

/// The status last written to each custom resource. One written longer ago than [`WINDOW`] takes no
/// memory: who undoes it that late does not race.
#[derive(Debug, Default)]
pub(super) struct Written(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// What was written, and when. Some may be up to two windows old.
    last: HashMap<Uid, (Words, Instant)>,
    /// When the old ones were last removed.
    swept: Option<Instant>,
}

// === impl Words ===

impl Words {
    pub(super) fn of(status: &impl Serialize, trouble: Option<Reason>) -> Words {
        Words { hash: hash(status), trouble }
    }

    /// Returns whether this is the status that was written.
    pub(super) fn are(&self, status: &impl Serialize) -> bool {
        self.hash == hash(status)
    }
}

fn hash(status: &impl Serialize) -> u64 {
    let text = serde_json::to_vec(status);
    fnv1a(&text.expect("structs with string keys are representable as JSON"))
}

// === impl Written ===

impl Written {
    /// What was last written to the object, if that was within [`WINDOW`].
    pub(super) fn last(&self, object: Uid, now: Instant) -> Option<Words> {
        let state = self.0.lock();
        let (words, at) = state.last.get(&object)?;
        (now.duration_since(*at) < WINDOW).then_some(*words)
    }

    pub(super) fn wrote(&self, object: Uid, words: Words, now: Instant) {
        let mut state = self.0.lock();
        state.last.insert(object, (words, now));
        let swept = *state.swept.get_or_insert(now);
        if now.duration_since(swept) >= WINDOW {
            state.last.retain(|_, (_, at)| now.duration_since(*at) < WINDOW);
            state.last.shrink_to_fit();
            state.swept = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcilers::fixtures::uid;

    #[test]
    fn the_last_words_are_remembered_for_a_while() {
        let (written, start) = (Written::default(), Instant::now());
        for status in ["a", "b"] {
            written.wrote(uid(1), Words::of(&status, Some(Reason::Contested)), start);
        }
        let last = written.last(uid(1), start + WINDOW / 2).unwrap();
        assert!(last.are(&"b") && !last.are(&"a"));
        assert_eq!(last.trouble, Some(Reason::Contested));
        assert!(written.last(uid(2), start).is_none());
        assert!(written.last(uid(1), start + WINDOW).is_none());
    }

    #[test]
    fn what_is_old_takes_no_memory() {
        let (written, start) = (Written::default(), Instant::now());
        for n in 0..100 {
            written.wrote(uid(n), Words::of(&n, None), start);
        }
        written.wrote(uid(0), Words::of(&0, None), start + WINDOW);
        assert_eq!(written.0.lock().last.len(), 1);
    }
}
