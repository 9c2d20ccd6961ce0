//! The server: what it did, and what it has.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Live {
    pub(super) uid: u64,
    pub(super) version: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) name: usize,
    pub(super) uid: u64,
    pub(super) deleted: bool,
    /// Which of us did it; `None`: another client.
    pub(super) origin: Option<usize>,
    /// True if the object can be read as it is after it, or as it was before it was deleted.
    pub(super) readable: bool,
}

#[derive(Default)]
pub(super) struct Server {
    /// Its changes, in order; versions are 2, 4, 6, … The others are of other kinds: lists and
    /// bookmarks have them too.
    pub(super) log: Vec<Change>,
    uids: u64,
}

impl Server {
    /// Its objects at a version.
    pub(super) fn at(&self, version: u64) -> BTreeMap<usize, Live> {
        let mut objects = BTreeMap::new();
        for change in self.log.iter().take_while(|change| change.version <= version) {
            if change.deleted {
                objects.remove(&change.name);
            } else {
                objects.insert(change.name, Live { uid: change.uid, version: change.version });
            }
        }
        objects
    }

    pub(super) fn now(&self) -> u64 {
        2 * self.log.len() as u64
    }

    /// The changes up to a version.
    pub(super) fn until(&self, version: u64) -> usize {
        (version / 2) as usize
    }

    pub(super) fn is_readable(&self, live: &Live) -> bool {
        self.log[self.until(live.version) - 1].readable
    }

    /// Creates, changes or deletes an object. `None` if there is nothing to delete.
    pub(super) fn change(
        &mut self,
        name: usize,
        deleted: bool,
        readable: bool,
        origin: Option<usize>,
    ) -> Option<Live> {
        let live = self.at(self.now()).get(&name).copied();
        if deleted && live.is_none() {
            return None;
        }
        let uid = live.map_or_else(
            || {
                self.uids += 1;
                self.uids
            },
            |live| live.uid,
        );
        let version = self.now() + 2;
        self.log.push(Change { version, name, uid, deleted, origin, readable });
        Some(Live { uid, version })
    }
}
