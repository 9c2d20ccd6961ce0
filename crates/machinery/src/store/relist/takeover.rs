//! A complete list takes over: it is shown, settled, and confirmed where we have written.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Item, Relist};
use crate::object::{Object, ObjectKey, ResourceVersion};
use crate::store::delta::Delta;
use crate::store::memory;
use crate::store::state::State;
use crate::store::writer::Writer;

/// How many times own writes that come while the list is being put in place are re-examined one by
/// one; after that, all are with the lock held, however many they are.
const ROUNDS: usize = 8;

impl<V: Object> Writer<V> {
    /// Shows the list. Returns what to report of a first one, which needs no settling.
    pub(super) fn show(&mut self, relist: &mut Relist<V>, version: ResourceVersion) -> Vec<Arc<V>> {
        let shared = self.store.shared();
        let is_first = |state: &State<V>| state.base.table().is_empty() && state.memory.is_empty();
        // Done now, because later readers would wait for it.
        let first = is_first(&shared.state.read());
        let mut listed: Option<Vec<Arc<V>>> =
            first.then(|| relist.added.table().iter().cloned().collect());
        shared.state.write().touched = Some(Vec::new());
        for shard in 0..memory::SHARDS {
            let keys = shared.state.read().memory.keys_of(shard);
            self.resolve(relist, &keys, version);
        }
        let mut keys = Vec::new();
        for round in 0.. {
            self.resolve(relist, &keys, version);
            let mut state = shared.state.write();
            keys = state.touched.replace(Vec::new()).unwrap_or_default();
            if keys.len() > 1 && round < ROUNDS {
                continue;
            }
            for key in &keys {
                relist.resolve(&state, shared.hashing.hash(key), key, version);
            }
            state.touched = None;
            state.lists += 1;
            if version.is_known() {
                state.seen = version;
                state.listed = version;
            }
            let state = &mut *state;
            if let Some(listed) = listed.take_if(|_| is_first(state)) {
                std::mem::swap(&mut state.base, &mut relist.added);
                return listed;
            }
            std::mem::swap(&mut state.added, &mut relist.added);
            std::mem::swap(&mut state.changed, &mut relist.changed);
            std::mem::swap(&mut state.gone, &mut relist.gone);
            break;
        }
        Vec::new()
    }

    /// Decides what keys with own writes in flight will show, locking for each key separately.
    fn resolve(&self, relist: &mut Relist<V>, keys: &[ObjectKey], version: ResourceVersion) {
        let shared = self.store.shared();
        for key in keys {
            relist.resolve(&shared.state.read(), shared.hashing.hash(key), key, version);
        }
    }

    /// Moves what is shown into `base`, object by object, and reports it. Each step looks for
    /// removals first, because we may have deleted some of what is still to be changed in the
    /// meantime.
    pub(super) fn settle(&mut self, tell: &mut dyn FnMut(Delta<V>)) {
        let hashing = self.store.shared().hashing.clone();
        let mut more = true;
        while more {
            let settle = |state: &mut State<V>, out: &mut Vec<Delta<V>>| {
                more = state.settle_gone(&hashing, out)
                    || state.settle_changed(&hashing, out)
                    || state.settle_added(&hashing, out);
            };
            self.change(settle, &mut *tell);
        }
    }

    /// Reports what the list says about keys with own writes in flight; forgets the writes up to
    /// it.
    pub(super) fn confirm(
        &mut self,
        items: HashMap<ObjectKey, Item<V>>,
        version: ResourceVersion,
        tell: &mut dyn FnMut(Delta<V>),
    ) {
        let hashing = self.store.shared().hashing.clone();
        for (key, item) in items {
            let hash = hashing.hash(&key);
            self.change(|state, out| state.confirm(hash, &key, item, version, out), &mut *tell);
        }
    }
}
