//! Slots whose runs ended recently, found without the table.
//!
//! The key requested is usually one that is being processed or was just done, because of the news
//! of what its run wrote. In a table of a million keys, each lookup waits for memory twice.

use super::arena::NONE;

/// Several times the number of workers and idle slots, so that few slots share a place; 2 KiB,
/// which stay in the first-level cache. Few in tests, so that models see places being shared.
const PLACES: usize = if cfg!(any(test, loom, shuttle)) { 4 } else { 256 };

/// Only hints: a slot named here may be free by now, or belong to another key.
pub(super) struct Recent(Box<[Place; PLACES]>);

/// A slot, and the upper half of its key's hash, so that hardly any lookup of a slot is in vain.
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

    /// Notes a slot that is likely to be requested soon; `hash` is its key's hash.
    pub(super) fn remember(&mut self, hash: u64, id: u32) {
        self.0[place(hash)] = Place { upper: upper(hash), id };
    }

    /// The slot that a key with this hash had, if it is still known.
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
