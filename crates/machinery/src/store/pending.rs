//! Answers that the watch has yet to confirm.

use crate::object::{ResourceVersion, Uid};

/// The number of unconfirmed writes to one object that are remembered. The watch's repetition of a
/// forgotten one counts as a foreign change, which wakes a key for nothing.
const WRITES: usize = 16;
/// The number of tombstones under one name. An object whose tombstone is forgotten may be seen once
/// more, until its deletion comes over the watch.
const TOMBSTONES: usize = 16;
/// A tombstone is forgotten after this many bookmarks, which come about once a minute: the object
/// was one that this watch does not show. A watch that is further behind than that may show a
/// deleted object once more, until its deletion comes.
pub(super) const BOOKMARKS: u8 = 3;

/// Writes to the objects under one key that were answered and reported, but that the watch has not
/// shown yet.
#[derive(Debug, Default)]
pub(super) struct PendingWrites {
    /// The writes, oldest first.
    writes: Vec<(Uid, ResourceVersion)>,
    /// The newest write there ever was.
    newest: ResourceVersion,
    /// Objects that were deleted for good, and their last known versions.
    tombstones: Vec<(Uid, ResourceVersion)>,
    /// The object that is held because of an answer and that the watch has never shown.
    pub(super) unseen: Uid,
    /// The held object was changed in a way that could not be decoded: the next answer includes a
    /// foreign change.
    pub(super) unread: bool,
    bookmarks: u8,
}

// === impl PendingWrites ===

impl PendingWrites {
    /// Records a write.
    pub(super) fn wrote(&mut self, uid: Uid, version: ResourceVersion) {
        let at = self.writes.partition_point(|(_, known)| known.is_older_than(version));
        self.writes.insert(at, (uid, version));
        if !self.newest.is_newer_than(version) {
            self.newest = version;
        }
        if self.writes.len() > WRITES {
            self.writes.remove(0);
        }
    }

    /// Returns whether this write was reported already.
    pub(super) fn has_written(&self, version: ResourceVersion) -> bool {
        self.writes.iter().any(|(_, known)| known.is_same_as(version))
    }

    /// The watch has passed `version`: forgets the writes up to it. Returns whether it is one of
    /// them.
    pub(super) fn confirm(&mut self, version: ResourceVersion) -> bool {
        let written = self.has_written(version);
        self.writes.retain(|(_, known)| known.is_newer_than(version));
        written
    }

    /// Returns whether there are writes that the watch has yet to show.
    pub(super) fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Records that the object, last known at this version, was deleted for good.
    pub(super) fn bury(&mut self, uid: Uid, version: ResourceVersion) {
        if self.tombstones.len() == TOMBSTONES {
            self.tombstones.remove(0);
        }
        self.tombstones.push((uid, version));
        self.bookmarks = 0;
    }

    /// Returns whether the object was deleted for good.
    pub(super) fn has_buried(&self, uid: Uid) -> bool {
        self.tombstones.iter().any(|(known, _)| *known == uid)
    }

    /// Returns whether a state of an object must no longer be seen: the object was deleted, or
    /// something newer was written under its name.
    pub(super) fn is_past(&self, uid: Uid, version: ResourceVersion) -> bool {
        self.has_buried(uid) || version.is_older_than(self.newest)
    }

    /// The watch has shown the deletion of `uid`, or of something that it does not identify:
    /// forgets the tombstone. Returns whether there was one.
    pub(super) fn unbury(&mut self, uid: Uid) -> bool {
        let before = self.tombstones.len();
        let writes = &self.writes;
        let is_due = |known: Uid| match uid.is_some() {
            true => known == uid,
            false => !writes.iter().any(|(written, _)| *written == known),
        };
        self.tombstones.retain(|(known, _)| !is_due(*known));
        self.tombstones.len() < before
    }

    /// The object under this key that a list of this version has, if it has the one that was held
    /// when it was read. `held`: the one that is held now.
    pub(super) fn held_at(
        &self,
        held: Option<(Uid, ResourceVersion)>,
        version: ResourceVersion,
    ) -> Option<Uid> {
        let known = self.tombstones.iter().chain(&self.writes).copied().chain(held);
        let known = known.filter(|(_, at)| !at.is_newer_than(version));
        known.max_by_key(|(_, at)| at.number()).map(|(uid, _)| uid)
    }

    /// A list was taken over that does not have what `is_listed` denies: forgets its tombstones,
    /// unless the watch has yet to show the object.
    pub(super) fn unbury_unlisted(&mut self, is_listed: impl Fn(Uid) -> bool) {
        let writes = &self.writes;
        let awaited = |uid: Uid| writes.iter().any(|(written, _)| *written == uid);
        self.tombstones.retain(|(uid, _)| is_listed(*uid) || awaited(*uid));
    }

    /// A bookmark came: forgets tombstones that are too old.
    pub(super) fn age(&mut self) {
        self.bookmarks = self.bookmarks.saturating_add(1);
        if self.bookmarks >= BOOKMARKS {
            self.tombstones.clear();
        }
    }

    /// Returns whether nothing is left to remember.
    pub(super) fn is_idle(&self) -> bool {
        self.writes.is_empty() && self.tombstones.is_empty() && !self.unread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_without_a_uid_leaves_tombstones_of_writes_not_yet_seen() {
        let uid = |text: &str| text.parse::<Uid>().unwrap();
        let written = uid("00000000-0000-4000-8000-000000000001");
        let other = uid("00000000-0000-4000-8000-000000000002");
        let version = ResourceVersion::new;
        let mut unconfirmed = PendingWrites::default();
        unconfirmed.wrote(written, version(5));
        unconfirmed.bury(written, version(5));
        unconfirmed.bury(other, version(6));
        assert!(unconfirmed.unbury(Uid::NONE));
        assert!(unconfirmed.has_buried(written) && !unconfirmed.has_buried(other));
    }

    #[test]
    fn a_tombstone_is_forgotten_with_the_third_bookmark() {
        let uid = "00000000-0000-4000-8000-000000000001".parse::<Uid>().unwrap();
        let mut unconfirmed = PendingWrites::default();
        unconfirmed.bury(uid, ResourceVersion::new(5));
        let forgotten: Vec<bool> = (0..BOOKMARKS)
            .map(|_| {
                unconfirmed.age();
                !unconfirmed.has_buried(uid)
            })
            .collect();
        assert_eq!(forgotten, [false, false, true]);
    }
}
