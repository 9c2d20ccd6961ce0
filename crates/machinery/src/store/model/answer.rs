//! Answers to our own requests, which may come late and in any order.

use futures::FutureExt;

use super::server::Live;
use super::{NAMES, key};
use crate::object::{Object, ObjectKey, Uid};
use crate::store::tests::{Thing, thing, uid};
use crate::store::{ControllerId, Store, WriteOrigin};

#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    Wrote(usize, Live, usize),
    Removed(usize, u64, usize),
    Got(usize, Live),
}

/// Two keys of one controller and one of another, which all depend on all objects.
pub(super) fn authors() -> Vec<WriteOrigin> {
    let controllers = [ControllerId::new(), ControllerId::new()];
    let origin = |(controller, name): (usize, &str)| WriteOrigin {
        controller: controllers[controller],
        key: ObjectKey::new("ns", name),
    };
    [(0, "one"), (0, "two"), (1, "one")].into_iter().map(origin).collect()
}

impl Answer {
    pub(super) fn name(&self) -> usize {
        match self {
            Answer::Wrote(name, ..) | Answer::Removed(name, ..) | Answer::Got(name, _) => *name,
        }
    }

    pub(super) fn origin(&self) -> Option<usize> {
        match self {
            Answer::Wrote(.., origin) | Answer::Removed(.., origin) => Some(*origin),
            Answer::Got(..) => None,
        }
    }

    /// Passes it to the store as its origin. Returns what the store must no longer show, and whether
    /// the origin was notified to look again.
    pub(super) fn arrives(
        self,
        store: &Store<Thing>,
        authors: &[WriteOrigin],
    ) -> (Option<Uid>, bool) {
        let Some(origin) = self.origin() else {
            let Answer::Got(name, live) = self else { unreachable!("it has no author") };
            store.apply_read(thing(NAMES[name], live.uid, live.version));
            return (None, false);
        };
        let arrives = async {
            match self {
                Answer::Removed(name, number, _) => {
                    let held = store.get(&key(name)).is_some_and(|held| held.uid() == uid(number));
                    store.apply_delete(&key(name), uid(number));
                    held.then(|| uid(number))
                }
                Answer::Wrote(name, live, _) | Answer::Got(name, live) => {
                    store.apply_response(thing(NAMES[name], live.uid, live.version));
                    None
                }
            }
        };
        authors[origin].clone().scope(arrives).now_or_never().expect("nothing in it waits")
    }
}
