//! The recorder, which publishes Events for other modules.

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::correlate::Correlator;
use super::text;
use crate::clock;
use crate::identity::Identity;
use crate::instruments::{EVENTS_DROPPED, EVENTS_PUBLISHED};
use crate::object::{InternedStr, ObjectKey, Resource, Uid, leak};

/// The type of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// Information about an expected change.
    Normal,
    /// A problem that a healthy cluster does not have.
    Warning,
}

/// The object that an Event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Regarding {
    /// apiVersion.
    pub api_version: InternedStr,
    /// Kind.
    pub kind: InternedStr,
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID; `kubectl describe` shows only Events that carry the object's own.
    pub uid: Uid,
}

/// A recorder of one controller's Events. Never blocks, never fails; cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    pub(super) shared: Arc<Shared>,
    pub(super) controller: &'static str,
}

/// Reason for the loss of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dropped {
    /// Too many Events were waiting.
    QueueFull,
    /// Too many Events were about one object.
    Spam,
    /// The API server refused it or did not respond.
    Failed,
    /// RBAC does not allow it.
    Forbidden,
    /// This process has no permission to write, for example because it does not lead.
    NotLeading,
    /// The namespace is being deleted or does not exist.
    NamespaceGone,
    /// The process ended first.
    Shutdown,
}

/// What was published, without the time. Equal occurrences are one Event for a while.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Event {
    /// The controller.
    pub controller: &'static str,
    /// The object it is about.
    pub regarding: Regarding,
    /// Normal or Warning.
    pub kind: Type,
    /// The reason, one word.
    pub reason: InternedStr,
    /// The action that was taken.
    pub action: InternedStr,
    /// The note, as it will be sent.
    pub note: String,
}

/// Shared by every recorder and the sink.
pub(super) struct Shared {
    /// `None` after shutdown: no Event is written any more.
    pub(super) correlator: Mutex<Option<Correlator>>,
    /// Notified when an Event is waiting.
    pub(super) wake: Notify,
    /// The Events that were lost.
    #[cfg(test)]
    pub(super) lost: Mutex<Vec<Dropped>>,
    pub(super) program: Identity,
    pub(super) instance: String,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(program: Identity, instance: &str) -> Arc<Shared> {
        for why in Dropped::ALL {
            drop(EVENTS_DROPPED.with([why.as_str()]));
        }
        let instance = text::instance(instance);
        // Two processes with the same name (a restarted container of a pod) have different stamps.
        let correlator = Mutex::new(Some(Correlator::new(text::fingerprint(&instance))));
        Arc::new(Shared {
            correlator,
            wake: Notify::new(),
            program,
            instance,
            #[cfg(test)]
            lost: Mutex::default(),
        })
    }

    /// Counts a lost Event.
    pub(super) fn dropped(&self, why: Dropped) {
        EVENTS_DROPPED.with([why.as_str()]).inc();
        #[cfg(test)]
        self.lost.lock().push(why);
    }
}

// === impl Type, Dropped ===

words!(Type: Normal, Warning);
words!(Dropped: QueueFull, Spam, Failed, Forbidden, NotLeading, NamespaceGone, Shutdown);

// === impl Regarding ===

impl Regarding {
    /// Returns a reference to this object.
    pub fn object<V: Resource>(object: &V) -> Regarding {
        Regarding {
            api_version: V::kind().api_version().into(),
            kind: V::kind().kind.into(),
            key: object.key().clone(),
            uid: object.uid(),
        }
    }
}

// === impl Recorder ===

impl Recorder {
    /// Returns a recorder for another controller, with [`event_source`](Identity::event_source) as
    /// `reportingController`. At most 63 letters, digits and dashes. Each name is kept in memory for ever.
    pub fn for_controller(&self, controller: impl AsRef<str>) -> Recorder {
        Recorder { shared: self.shared.clone(), controller: leak(controller) }
    }

    /// Publishes an Event. `reason` and `action`: one CamelCase word each of at most 128 bytes, from a
    /// fixed set: the reason is a label of a metric.
    /// `note`: a sentence, cut at 1,024 bytes.
    pub fn publish(
        &self,
        regarding: &Regarding,
        kind: Type,
        reason: impl Into<InternedStr>,
        action: impl Into<InternedStr>,
        note: &str,
    ) {
        let (reason, action) = (reason.into(), action.into());
        debug_assert!(is_word(&reason) && is_word(&action), "{reason:?}, {action:?}");
        let (controller, regarding) = (self.controller, regarding.clone());
        let note = text::note(note);
        let said = Event { controller, regarding, kind, reason: reason.clone(), action, note };
        let verdict = match &mut *self.shared.correlator.lock() {
            Some(open) => open.observe(said, Instant::now(), clock::now()),
            None => Err(Dropped::Shutdown),
        };
        match verdict {
            Ok(true) => {
                let values =
                    [controller.into(), kind.as_str().into(), Cow::from(reason.to_string())];
                EVENTS_PUBLISHED.with(values).inc();
                self.shared.wake.notify_one();
            }
            Ok(false) => {}
            Err(why) => self.shared.dropped(why),
        }
    }

    /// Returns the Events that wait to be written, oldest first, for tests of code that publishes. Without a running
    /// sink, these are all.
    pub fn waiting(&self) -> Vec<Event> {
        let correlator = self.shared.correlator.lock();
        correlator.iter().flat_map(Correlator::waiting).map(|said| (**said).clone()).collect()
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("controller", &self.controller).finish_non_exhaustive()
    }
}

/// Returns whether this is one CamelCase word, as the API requires for reason and action.
fn is_word(word: &str) -> bool {
    (1..=128).contains(&word.len())
        && word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.chars().all(|c| c.is_ascii_alphanumeric())
}
