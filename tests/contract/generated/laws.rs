//! Laws for every visible status and Event.

mod columns;
mod events;
mod status;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use columns::Columns;

use crate::world::{EVENT, Kind, MAX_WAIT, Seen, World};

/// Watches custom resources and Events in a namespace and records violations of laws.
pub struct Laws {
    ledger: Arc<Mutex<Ledger>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Ledger {
    /// By the custom resource's name.
    broken: Vec<(String, String)>,
    seen: usize,
    /// Opened watches; one that is reopened may have missed something.
    opened: usize,
    reopened: bool,
    /// The newest version of each custom resource, by UID.
    last: HashMap<String, Value>,
    /// Number of changes to the status of a custom resource, by kind and name.
    changes: HashMap<(&'static str, String), usize>,
}

impl Laws {
    /// Watches these kinds, and Events, until the test ends; returns once it sees everything.
    pub async fn watch(world: &World, kinds: &[Kind]) -> Laws {
        let laws = Laws { ledger: Arc::default(), changed: Arc::default() };
        for kind in kinds.iter().copied().chain([EVENT]) {
            let (ledger, changed) = (laws.ledger.clone(), laws.changed.clone());
            let columns = (kind != EVENT).then(|| Columns::of(kind));
            let mut opened = false;
            tokio::spawn(world.each_change(kind, move |seen| {
                let mut ledger = ledger.lock();
                match (seen, &columns) {
                    (Seen::Opened, _) => {
                        ledger.opened += usize::from(!opened);
                        ledger.reopened |= std::mem::replace(&mut opened, true);
                    }
                    (Seen::Is(object), Some(columns)) => ledger.look(kind, columns, object),
                    (Seen::Is(event), None) => {
                        ledger.blame("Event", events::breaches(&event), &event);
                    }
                }
                changed.notify_waiters();
            }));
        }
        laws.until(|ledger| ledger.opened > kinds.len()).await.expect("watches");
        laws
    }

    /// Fails if the custom resource of this name, of any kind, has violated a law so far.
    pub fn assert_kept_by(&self, name: &str) {
        let ledger = self.ledger.lock();
        let broken: Vec<_> = ledger.broken.iter().filter(|(who, _)| who == name).collect();
        assert!(broken.is_empty(), "{} breaches, the first: {}", broken.len(), broken[0].1);
    }

    /// Fails if any object has violated a law so far.
    pub fn assert_kept(&self) {
        let broken = &self.ledger.lock().broken;
        assert!(broken.is_empty(), "{} breaches, the first: {}", broken.len(), broken[0].1);
    }

    /// Returns the number of statuses that have been looked at.
    pub fn seen(&self) -> usize {
        self.ledger.lock().seen
    }

    /// Fails if this many writes of this custom resource's status, without those that can be needless, cannot
    /// each have changed it.
    pub async fn assert_each_write_changed_the_status(
        &self,
        kind: Kind,
        name: &str,
        writes: usize,
    ) {
        let of = (kind.name(), name.to_owned());
        let changes = |ledger: &Ledger| ledger.changes.get(&of).copied().unwrap_or_default();
        let all_seen = |ledger: &Ledger| ledger.reopened || changes(ledger) >= writes;
        if self.until(all_seen).await.is_err() {
            let changes = changes(&self.ledger.lock());
            panic!("{writes} writes to the status of {of:?} changed it {changes} times");
        }
    }

    async fn until(
        &self,
        wanted: impl Fn(&Ledger) -> bool,
    ) -> Result<(), tokio::time::error::Elapsed> {
        tokio::time::timeout(MAX_WAIT, async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if wanted(&self.ledger.lock()) {
                    return;
                }
                changed.await;
            }
        })
        .await
    }
}

impl Ledger {
    fn look(&mut self, kind: Kind, columns: &Columns, object: Value) {
        self.seen += 1;
        let (name, uid) = (&object["metadata"]["name"], object["metadata"]["uid"].to_string());
        let name = name.as_str().unwrap_or_default().to_owned();
        let mut broken = status::breaches(kind, &object);
        broken.extend(columns.breaches(&object));
        match self.last.get(&uid) {
            Some(before) if before["status"] != object["status"] => {
                *self.changes.entry((kind.name(), name)).or_default() += 1;
                broken.extend(status::breaches_of_write(kind, before, &object));
            }
            Some(_) => {}
            None if self.reopened => {}
            None => broken.extend(status::breaches_of_birth(kind, &object)),
        }
        self.blame(kind.name(), broken, &object);
        self.last.insert(uid, object);
    }

    fn blame(&mut self, kind: &str, laws: Vec<String>, object: &Value) {
        let name = match &object["regarding"]["name"] {
            Value::String(name) => name.as_str(),
            _ => object["metadata"]["name"].as_str().unwrap_or_default(),
        };
        let told = laws.into_iter().map(|law| format!("{kind} {name}: {law}: {object}"));
        self.broken.extend(told.map(|told| (name.to_owned(), told)));
    }
}
