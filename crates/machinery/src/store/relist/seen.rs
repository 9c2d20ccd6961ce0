//! Which objects a list has shown.

use std::sync::Arc;

use hashbrown::HashTable;

/// A set of objects by address. Every object in it is also held elsewhere for as long as it
/// matters, so no address is mistaken for another's: what leaves the store during a list leaves it
/// because of an own write, and such keys are examined one by one.
pub(super) struct Seen(HashTable<usize>);

// === impl Seen ===

impl Seen {
    pub(super) fn with_room_for(objects: usize) -> Seen {
        Seen(HashTable::with_capacity(objects))
    }

    pub(super) fn insert<V>(&mut self, object: &Arc<V>) {
        let address = Arc::as_ptr(object).addr();
        if !self.has(object) {
            self.0.insert_unique(scatter(address), address, |address| scatter(*address));
        }
    }

    pub(super) fn remove<V>(&mut self, object: &Arc<V>) {
        let address = Arc::as_ptr(object).addr();
        if let Ok(found) = self.0.find_entry(scatter(address), |known| *known == address) {
            found.remove();
        }
    }

    pub(super) fn has<V>(&self, object: &Arc<V>) -> bool {
        let address = Arc::as_ptr(object).addr();
        self.0.find(scatter(address), |known| *known == address).is_some()
    }
}

/// A hash of an address: Fibonacci hashing, with the high bits, which are the good ones, also put
/// where hashbrown looks for a place.
fn scatter(address: usize) -> u64 {
    let product = (address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    product ^ product >> 32
}
