//! The informers of a client: which are read, and whether anything runs them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// State of the informers of one client.
#[derive(Default)]
pub(crate) struct Feeds(Mutex<Vec<Arc<Feed>>>);

/// State of one informer.
pub(crate) struct Feed {
    /// `secrets`.
    resource: String,
    read: AtomicBool,
    run: AtomicBool,
}

// === impl Feeds ===

impl Feeds {
    /// Adds an informer. Forgets those that are gone and whose store has no holder.
    pub(crate) fn add(&self, resource: String) -> Arc<Feed> {
        let (read, run) = (AtomicBool::new(false), AtomicBool::new(false));
        let feed = Arc::new(Feed { resource, read, run });
        let mut feeds = self.0.lock();
        feeds.retain(|feed| !feed.is_run() && (feed.is_read() || Arc::strong_count(feed) > 1));
        feeds.push(feed.clone());
        feed
    }

    /// The resources of the informers that are read but not run.
    pub(crate) fn stale(&self) -> Vec<String> {
        let feeds = self.0.lock();
        let stale = feeds.iter().filter(|feed| feed.is_read() && !feed.is_run());
        stale.map(|feed| feed.resource.clone()).collect()
    }
}

// === impl Feed ===

impl Feed {
    /// Somebody reads it.
    pub(crate) fn read(&self) {
        self.read.store(true, Ordering::Relaxed);
    }

    /// Something runs it.
    pub(crate) fn run(&self) {
        self.run.store(true, Ordering::Relaxed);
    }

    fn is_read(&self) -> bool {
        self.read.load(Ordering::Relaxed)
    }

    fn is_run(&self) -> bool {
        self.run.load(Ordering::Relaxed)
    }
}
