//! Answers to our own requests, which may come late and in any order.

use super::server::Live;
use super::{NAMES, key};
use crate::object::{Object, Uid};
use crate::store::Store;
use crate::store::tests::{Thing, thing, uid};

#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    Wrote(usize, Live),
    Removed(usize, u64),
    Got(usize, Live),
}

impl Answer {
    pub(super) fn name(&self) -> usize {
        match self {
            Answer::Wrote(name, _) | Answer::Removed(name, _) | Answer::Got(name, _) => *name,
        }
    }

    /// Passes it to the store; returns what the store must no longer show.
    pub(super) fn arrives(self, store: &Store<Thing>) -> Option<Uid> {
        match self {
            Answer::Wrote(name, live) => {
                store.wrote(thing(NAMES[name], live.uid, live.version));
                None
            }
            Answer::Got(name, live) => {
                store.learned(thing(NAMES[name], live.uid, live.version));
                None
            }
            Answer::Removed(name, number) => {
                let held = store.get(&key(name)).is_some_and(|held| held.uid() == uid(number));
                store.removed(&key(name), uid(number));
                held.then(|| uid(number))
            }
        }
    }
}
