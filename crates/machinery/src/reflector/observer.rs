//! Observer of reflectors, for metrics.

use std::time::Duration;

use crate::object::{Kind, ObjectKey};

/// Observes reflectors, for metrics. Every method has an empty default, runs in the reflector's task and must not
/// block. Current values (version, staleness, quarantined) are read from the [`HealthHandle`](super::HealthHandle).
pub trait Observer: Send + Sync + 'static {
    /// A list begins.
    fn list_began(&self, kind: &Kind) {
        let _ = kind;
    }

    /// A list with this many items was committed; it took this long in total.
    fn listed(&self, kind: &Kind, items: usize, took: Duration) {
        let _ = (kind, items, took);
    }

    /// A list was abandoned or refused.
    fn list_failed(&self, kind: &Kind) {
        let _ = kind;
    }

    /// The server accepted a watch.
    fn watch_opened(&self, kind: &Kind) {
        let _ = kind;
    }

    /// A watch ended after this time, having delivered this many objects.
    fn watch_ended(&self, kind: &Kind, took: Duration, items: u64) {
        let _ = (kind, took, items);
    }

    /// A watch ended early without progress.
    fn short_watch(&self, kind: &Kind) {
        let _ = kind;
    }

    /// An object became undecodable. Later undecodable versions of it are not reported until it was decodable, deleted
    /// or missing from a complete list. If thousands of objects are undecodable and lists fail, one can be reported
    /// again.
    fn decode_error(&self, kind: &Kind, key: &ObjectKey, why: &str) {
        let _ = (kind, key, why);
    }
}

/// Observes nothing.
impl Observer for () {}
