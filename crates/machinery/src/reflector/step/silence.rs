//! Longest silence of watches, and the meaning of a longer one.

use std::time::Duration;

use super::limits::{BOOKMARK, IDLE};

/// Duration of the server's silence. The silences of watches that end before they have been
/// silent for too long add up: otherwise a server that ends every watch in time would go unnoticed.
/// Time without a watch does not count.
#[derive(Debug)]
pub(super) struct Silence {
    /// Time for which the watch may be silent, or the next one if there is none.
    patience: Duration,
    /// True if one of the watches before, in this silence, lived long enough to get a bookmark.
    overdue: bool,
    /// True if the server sends bookmarks for this kind and watches live long enough to get them,
    /// so that one without any is not just quiet. The bookmark that ends a streaming list does not
    /// count: a kind without a watch cache has only that one. `None` while unknown.
    bookmarks: Option<bool>,
}

impl Silence {
    pub(super) fn new() -> Silence {
        Silence { patience: IDLE, overdue: false, bookmarks: None }
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// The server was heard.
    pub(super) fn broken(&mut self) {
        self.patience = IDLE;
        self.overdue = false;
    }

    /// Returns whether watches of this kind get no bookmarks.
    pub(super) fn is_without_bookmarks(&self) -> bool {
        self.bookmarks == Some(false)
    }

    /// A bookmark came in the middle of a watch.
    pub(super) fn bookmark(&mut self) {
        self.bookmarks = Some(true);
    }

    /// A watch is over that might have been silent for another `left`.
    pub(super) fn watch_over(&mut self, left: Duration) {
        self.overdue |= self.patience.saturating_sub(left) >= BOOKMARK;
        self.patience = left;
    }

    /// The silence was too long. Returns whether it may hide something. Where no bookmark can be
    /// expected, because none was ever sent or because every watch was cut before the first, it may
    /// do so only once: all quiet kinds would be listed again and again.
    pub(super) fn too_long(&mut self) -> bool {
        self.watch_over(Duration::ZERO);
        let hides = self.bookmarks != Some(false);
        if self.bookmarks.is_none() || !self.overdue {
            self.bookmarks = Some(false);
        }
        self.broken();
        hides
    }
}
