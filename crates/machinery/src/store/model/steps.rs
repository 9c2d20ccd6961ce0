//! Possible steps, and their frequencies.

use proptest::prelude::*;

use super::NAMES;

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Somebody creates or changes an object; the flag says whether it can be read.
    Write(usize, bool),
    /// Somebody deletes it; the flag says whether its last state can be read.
    Delete(usize, bool),
    /// One of us creates or changes it; the answer is on its way.
    OwnWrite(usize, usize),
    /// One of us deletes it; the answer is on its way.
    OwnDelete(usize, usize),
    /// We read it, or write what changes nothing; the answer is on its way.
    Get(usize),
    /// One of the pending answers arrives.
    Answer(prop::sample::Index),
    /// The next event of the watch arrives.
    Event,
    /// An earlier event arrives again.
    Repeat(prop::sample::Index),
    /// A bookmark for everything that has arrived; the flag says whether it counts changes of other
    /// kinds too.
    Bookmark(bool),
    /// A list begins. It will show the server at some version since the last event.
    Begin(prop::sample::Index),
    /// Half of the current list arrives.
    Half,
    /// The list is complete.
    Commit,
}

/// Random sequences of steps.
pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || 0..NAMES.len();
    let readable = || prop::bool::weighted(0.8);
    let step = prop_oneof![
        4 => (name(), readable()).prop_map(|(name, readable)| Step::Write(name, readable)),
        2 => (name(), readable()).prop_map(|(name, readable)| Step::Delete(name, readable)),
        5 => (name(), 0..3usize).prop_map(|(name, origin)| Step::OwnWrite(name, origin)),
        2 => (name(), 0..3usize).prop_map(|(name, origin)| Step::OwnDelete(name, origin)),
        2 => name().prop_map(Step::Get),
        8 => any::<prop::sample::Index>().prop_map(Step::Answer),
        8 => Just(Step::Event),
        1 => any::<prop::sample::Index>().prop_map(Step::Repeat),
        1 => any::<bool>().prop_map(Step::Bookmark),
        2 => any::<prop::sample::Index>().prop_map(Step::Begin),
        1 => Just(Step::Half),
        2 => Just(Step::Commit),
    ];
    prop::collection::vec(step, 0..60)
}
