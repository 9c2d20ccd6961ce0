//! The informers of a client: which are read, and whether anything runs them.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// State of the informers of one client.
#[derive(Default)]
pub(crate) struct Feeds(Mutex<Vec<Arc<Feed>>>);

/// Something that lives as long as anybody holds a store.
pub(crate) type Held = Weak<dyn Any + Send + Sync>;

/// State of one informer.
pub(crate) struct Feed {
    /// `secrets`.
    resource: String,
    /// Its store.
    store: Held,
    read: AtomicBool,
    run: AtomicBool,
}

// === impl Feeds ===

impl Feeds {
    /// Adds an informer. Forgets those that run, and those whose store nobody holds any more.
    pub(crate) fn add(&self, resource: String, store: Held) -> Arc<Feed> {
        let (read, run) = (AtomicBool::new(false), AtomicBool::new(false));
        let feed = Arc::new(Feed { resource, store, read, run });
        let mut feeds = self.0.lock();
        feeds.retain(|feed| !feed.is_run() && feed.is_held());
        feeds.push(feed.clone());
        feed
    }

    /// The resources of the informers that are read but not run.
    pub(crate) fn stale(&self) -> Vec<String> {
        let feeds = self.0.lock();
        let stale = feeds.iter().filter(|feed| feed.is_read() && !feed.is_run() && feed.is_held());
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

    fn is_held(&self) -> bool {
        self.store.strong_count() > 0
    }

    fn is_read(&self) -> bool {
        self.read.load(Ordering::Relaxed)
    }

    fn is_run(&self) -> bool {
        self.run.load(Ordering::Relaxed)
    }
}
