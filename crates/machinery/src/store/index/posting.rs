//! The objects that an index has under one value.

use std::sync::Arc;

use hashbrown::HashTable;

use crate::object::Object;
use crate::store::table::{Hashing, Table};

/// The objects under one value.
#[derive(Debug)]
pub(super) enum Posting<V> {
    /// The usual case, an owner's only child; needs no allocation.
    One(Arc<V>),
    /// Several, by key, so that removing one is as quick from many as from few. Boxed, because it
    /// would otherwise double the size of every index entry.
    Few(Box<HashTable<Arc<V>>>),
    /// More than [`FEW`].
    Many(Box<Table<V>>),
}

/// A posting of more objects than this is a [`Table`], which never moves all of them at once.
const FEW: usize = 256;

// === impl Posting ===

impl<V> Clone for Posting<V> {
    fn clone(&self) -> Posting<V> {
        match self {
            Posting::One(object) => Posting::One(object.clone()),
            Posting::Few(objects) => Posting::Few(objects.clone()),
            Posting::Many(objects) => Posting::Many(objects.clone()),
        }
    }
}

impl<V: Object> Posting<V> {
    pub(super) fn insert(&mut self, hash: u64, object: &Arc<V>, hashing: &Hashing) {
        let rehash = |held: &Arc<V>| hashing.hash(held.key());
        match self {
            // An object may name a value twice.
            Posting::One(held) if Arc::ptr_eq(held, object) => {}
            Posting::One(held) => {
                let mut few = Box::new(HashTable::with_capacity(2));
                few.insert_unique(rehash(held), held.clone(), rehash);
                few.insert_unique(hash, object.clone(), rehash);
                *self = Posting::Few(few);
            }
            Posting::Few(few) if few.len() < FEW => {
                if few.find(hash, |held| Arc::ptr_eq(held, object)).is_none() {
                    few.insert_unique(hash, object.clone(), rehash);
                }
            }
            Posting::Few(few) => {
                let mut many = Box::new(Table::new(hashing.clone()));
                for held in few.drain() {
                    many.insert(rehash(&held), held);
                }
                many.insert(hash, object.clone());
                *self = Posting::Many(many);
            }
            Posting::Many(many) => drop(many.insert(hash, object.clone())),
        }
    }

    /// Removes exactly this object; returns whether nothing is left.
    pub(super) fn remove(&mut self, hash: u64, object: &Arc<V>) -> bool {
        let last = match self {
            Posting::One(held) => return Arc::ptr_eq(held, object),
            Posting::Few(few) => {
                if let Ok(found) = few.find_entry(hash, |held| Arc::ptr_eq(held, object)) {
                    found.remove();
                }
                if few.len() > 1 {
                    return false;
                }
                few.iter().next().cloned()
            }
            Posting::Many(many) => {
                // Its successor under the same key may already have taken its place.
                if many.find(hash, object.key()).is_some_and(|held| Arc::ptr_eq(held, object)) {
                    many.remove(hash, object.key());
                }
                if many.len() > 1 {
                    return false;
                }
                many.iter().next().cloned()
            }
        };
        match last {
            Some(last) => {
                *self = Posting::One(last);
                false
            }
            None => true,
        }
    }
}
