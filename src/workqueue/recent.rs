//! Slots that ended a run lately, found without the table.
//!
//! What is asked for is as a rule a key that is being worked on or was just done: news of what its
//! run wrote. In the table of a million keys each look waits for memory twice.

use super::slots::NONE;

/// Places. Several times as many as workers and idle slots, so that few slots share one; 2 KiB,
/// which stay in the processor's first cache. Few in tests, so that models see them being shared.
const PLACES: usize = if cfg!(any(test, loom, shuttle)) { 4 } else { 256 };

/// Hints only: a slot that is named here may be free by now, or another key's.
pub(super) struct Recent(Box<[Place; PLACES]>);

/// A slot, and the upper half of the hash of its key, so that hardly any slot is looked at in vain.
#[derive(Clone, Copy)]
struct Place {
    upper: u32,
    id: u32,
}

// === impl Recent ===

impl Recent {
    pub(super) fn new() -> Recent {
        Recent(Box::new([Place { upper: 0, id: NONE }; PLACES]))
    }

    /// A slot that is likely to be asked for soon; `hash` is that of its key.
    pub(super) fn remember(&mut self, hash: u64, id: u32) {
        self.0[place(hash)] = Place { upper: upper(hash), id };
    }

    /// The slot that a key of this hash had, if it is still known.
    pub(super) fn look(&self, hash: u64) -> Option<u32> {
        let Place { upper: known, id } = self.0[place(hash)];
        (known == upper(hash) && id != NONE).then_some(id)
    }
}

fn place(hash: u64) -> usize {
    hash as usize % PLACES
}

fn upper(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_of_two_slots_that_share_a_place_is_known() {
        let mut recent = Recent::new();
        let (one, other) = (0x1_0000_0000, 0x2_0000_0000);
        recent.remember(one, 7);
        assert_eq!((recent.look(one), recent.look(other)), (Some(7), None));
        recent.remember(other, 8);
        assert_eq!((recent.look(one), recent.look(other)), (None, Some(8)));
    }

    #[test]
    fn of_a_hash_of_nothing_but_zeros_nothing_is_known_at_first() {
        assert_eq!(Recent::new().look(0), None);
    }
}
