//! The context of a reconcile.

use std::any::TypeId;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::compared::hash;
use super::kinds::ControllerDeps;
use super::throttle::{LastStatuses, Pace, WriteThrottle};
use super::wiring::WiringError;
use crate::client::Client;
use crate::controller::ReconcileError;
use crate::events::{Regarding, Type};
use crate::object::{InternedStr, Object, ObjectKey, Resource, Uid};
use crate::store::Store;

/// The context of one reconcile: the object, the stores of the declared views, and the client. Cheap to clone.
pub struct Context<V> {
    pub(super) controller: Arc<ControllerState<V>>,
    pub(super) object: Arc<V>,
    /// The object after the last write of this reconcile.
    written: Arc<Mutex<Arc<V>>>,
    /// The client for all writes of this reconcile.
    client: Client,
}

/// The state that all reconciles of a controller share.
pub(super) struct ControllerState<V> {
    pub(super) parts: ControllerDeps,
    pub(super) objects: Store<V>,
    pub(super) declared: Declared,
    pub(super) throttle: WriteThrottle,
    pub(super) statuses: LastStatuses,
    pub(super) pace: Pace,
    /// Hash of the desired and the stored status, for objects whose schema makes the API server change a written
    /// status.
    accepted: Mutex<HashMap<ObjectKey, u64>>,
    /// Reported problems, until a reconcile no longer finds them.
    reported: Mutex<HashMap<ObjectKey, Vec<Reported>>>,
}

/// Problems with one reason that were reported.
struct Reported {
    uid: Uid,
    reason: InternedStr,
    notes: Vec<Note>,
    /// Events with this reason since `since`.
    events: u32,
    since: Instant,
}

/// A sentence about a problem.
struct Note {
    /// Its hash; `None` if only the reason is known.
    hash: Option<u64>,
    /// Time of its last Event; `None` if the limit of Events was reached.
    at: Option<Instant>,
    /// True if the current reconcile has found it.
    is_found: bool,
}

/// A view whose objects a label assigns to their owner.
pub(super) struct Labelled {
    pub(super) view: TypeId,
    /// The label with the UID of the owner.
    pub(super) label: &'static str,
    /// Name of the index by this label.
    pub(super) index: String,
}

/// The declarations of a controller that its reconciles use.
#[derive(Default)]
pub(super) struct Declared {
    pub(super) owned: Vec<TypeId>,
    pub(super) labelled: Vec<Labelled>,
    /// The types of the conditions that this controller sets.
    pub(super) conditions: Vec<&'static str>,
    /// True if each write of an owned object is published as an Event.
    pub(super) publishes_writes: bool,
    pub(super) finalizer: Option<&'static str>,
}

/// Time before a lasting problem is reported again. The API server keeps Events for an hour.
const AGAIN: Duration = Duration::from_secs(30 * 60);
/// Maximum number of Events with one reason within [`AGAIN`]. The sentence of some problems changes each time, because
/// it contains a number or an ID from the API server or a webhook.
const EVENTS: u32 = 5;

// === impl ControllerState ===

impl<V: Resource> ControllerState<V> {
    pub(super) fn new(parts: &ControllerDeps, declared: Declared) -> Result<Self, WiringError> {
        Ok(ControllerState {
            objects: parts.store()?,
            parts: parts.clone(),
            declared,
            throttle: WriteThrottle::default(),
            statuses: LastStatuses::default(),
            pace: Pace::default(),
            accepted: Mutex::default(),
            reported: Mutex::default(),
        })
    }

    /// Returns whether this form of the status was accepted.
    pub(super) fn accepts(&self, key: &ObjectKey, form: u64) -> bool {
        self.accepted.lock().get(key) == Some(&form)
    }

    /// Stores the accepted form of the status, or removes it.
    pub(super) fn accept(&self, key: &ObjectKey, form: Option<u64>) {
        let mut accepted = self.accepted.lock();
        match form {
            Some(form) => drop(accepted.insert(key.clone(), form)),
            None => drop(accepted.remove(key)),
        }
    }

    /// Returns whether to report a problem of an object. It is reported once while reconciles find it and describe it
    /// in the same sentence.
    pub(super) fn is_news(&self, object: &V, reason: &str, note: Option<&str>) -> bool {
        let (hash, now) = (note.map(|note| hash(&note)), Instant::now());
        let mut reported = self.reported.lock();
        let problems = reported.entry(object.key().clone()).or_default();
        problems.retain(|known| known.uid == object.uid());
        let at = problems.iter().position(|known| known.reason == *reason).unwrap_or_else(|| {
            let (uid, reason, notes) = (object.uid(), reason.into(), Vec::new());
            problems.push(Reported { uid, reason, notes, events: 0, since: now });
            problems.len() - 1
        });
        let known = &mut problems[at];
        if now.duration_since(known.since) >= AGAIN {
            (known.events, known.since) = (0, now);
        }
        let is_same = |one: &&Note| hash.is_none() || one.hash.is_none() || one.hash == hash;
        let same = known.notes.iter().position(|note| is_same(&note)).unwrap_or_else(|| {
            known.notes.push(Note { hash, at: None, is_found: true });
            known.notes.len() - 1
        });
        let same = &mut known.notes[same];
        same.is_found = true;
        same.hash = hash.or(same.hash);
        let is_due = same.at.is_none_or(|at| now.duration_since(at) >= AGAIN);
        let is_news = is_due && known.events < EVENTS;
        if is_news {
            known.events += 1;
            same.at = Some(now);
        }
        is_news
    }

    /// Records that a reconcile of `key` begins.
    pub(super) fn begins(&self, key: &ObjectKey) {
        let mut reported = self.reported.lock();
        let known = reported.get_mut(key).into_iter().flatten();
        known.flat_map(|known| &mut known.notes).for_each(|note| note.is_found = false);
    }

    /// Records that a reconcile of `key` succeeded: problems that it did not find are solved.
    pub(super) fn succeeded(&self, key: &ObjectKey) {
        let mut reported = self.reported.lock();
        if let Some(problems) = reported.get_mut(key) {
            problems.iter_mut().for_each(|known| known.notes.retain(|note| note.is_found));
            problems.retain(|known| !known.notes.is_empty());
            if problems.is_empty() {
                reported.remove(key);
            }
        }
    }

    /// Records that a reconcile of `key` failed. If it found a problem, those that it did not find are solved. If it
    /// found none, as in an outage, nothing changes.
    pub(super) fn failed(&self, key: &ObjectKey) {
        let found_any = |problems: &Vec<Reported>| {
            problems.iter().flat_map(|known| &known.notes).any(|note| note.is_found)
        };
        let has_found = self.reported.lock().get(key).is_some_and(found_any);
        if has_found {
            self.succeeded(key);
        }
    }

    /// Removes the state of objects that were deleted while another process led.
    pub(super) fn forget_deleted(&self) {
        let exists = |key: &ObjectKey| self.objects.get(key).is_some();
        self.accepted.lock().retain(|key, _| exists(key));
        self.parts.lost_children.lock().retain(exists);
        self.reported.lock().retain(|key, _| exists(key));
    }

    /// Removes all state of a deleted object.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.accepted.lock().remove(key);
        self.parts.lost_children.lock().remove(key);
        self.reported.lock().remove(key);
    }
}

// === impl Context ===

impl<V> Context<V> {
    pub(super) fn new(controller: Arc<ControllerState<V>>, object: Arc<V>) -> Context<V> {
        let written = Arc::new(Mutex::new(object.clone()));
        let client = controller.parts.client().noting_writes();
        Context { controller, object, written, client }
    }
}

impl<V: Resource> Context<V> {
    /// Returns the context of the same reconcile with a newer object.
    pub(super) fn over(&self, object: Arc<V>) -> Context<V> {
        let written = Arc::new(Mutex::new(object.clone()));
        Context { object, written, ..self.clone() }
    }

    /// Returns whether this reconcile has written something.
    pub(super) fn has_written(&self) -> bool {
        self.client.has_written()
    }

    /// Returns the number of reconciles of this object that have failed in a row before this one. In the context of a
    /// unit test, which has no queue, and in a dry run, it is the maximum.
    pub fn failures(&self) -> u32 {
        if self.client.is_dry_run() { u32::MAX } else { self.controller.parts.failures(self.key()) }
    }

    /// Returns the object as this reconcile last read or wrote it.
    pub(super) fn latest(&self) -> Arc<V> {
        self.written.lock().clone()
    }

    /// Sets the state of the object that later writes of this reconcile are based on: the response of a write.
    pub(super) fn build_on(&self, object: Arc<V>) {
        *self.written.lock() = object;
    }

    /// Stores the response of a write of the object. Returns the object as stored.
    pub(super) fn wrote(&self, answer: V) -> Arc<V> {
        let version = answer.meta().version;
        let object = self.controller.objects.apply_response(answer);
        // If the store has a newer version, this reconcile has not seen it, and its next write conflicts.
        if object.meta().version.is_same_as(version) {
            self.build_on(object.clone());
        }
        object
    }

    /// Returns the context of the next reconcile, with the object from the store; `None` if it was deleted. For unit
    /// tests with [`ControllerBuilder::context`](super::ControllerBuilder::context).
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn next_reconcile(&self) -> Option<Context<V>> {
        self.controller.begins(self.key());
        let object = self.controller.objects.get(self.key())?;
        Some(Context::new(self.controller.clone(), object))
    }

    /// Returns the key of the object.
    pub fn key(&self) -> &ObjectKey {
        self.object.key()
    }

    /// Returns the object as it was when the reconcile began.
    pub fn object(&self) -> &Arc<V> {
        &self.object
    }

    /// Returns the client, for reads from the API server and for requests that the context has no method for. The store
    /// shows the client's writes only after the watch reports them.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the stored object of a declared view.
    ///
    /// # Errors
    /// If the controller does not declare `R`.
    pub fn get<R: Resource>(&self, key: &ObjectKey) -> Result<Option<Arc<R>>, ReconcileError> {
        Ok(self.store::<R>()?.get(key))
    }

    /// Returns the store of a declared view.
    ///
    /// # Errors
    /// If the controller does not declare `R`.
    pub fn store<R: Resource>(&self) -> Result<Store<R>, ReconcileError> {
        Ok(self.controller.parts.store()?)
    }

    /// Publishes an Event about a write of an owned object, such as `DeploymentCreated`, if the controller publishes
    /// them.
    pub(super) fn publish_write<C: Resource>(&self, what: &'static str, note: &str) {
        if self.controller.declared.publishes_writes {
            let action = match what {
                "Created" => "Create",
                "Deleted" => "Delete",
                _ => "Update",
            };
            self.publish(Type::Normal, format!("{}{what}", C::kind().kind), action, note);
        }
    }

    /// Publishes a Warning about a problem of the object. While reconciles find the problem, the Warning is repeated
    /// only when its sentence changes (at most five times in half an hour) or after half an hour. `reason` is one CamelCase
    /// word of a fixed set, because it is a label of a metric. A problem that
    /// `reconcile` returns as an error is published in the same way.
    pub fn warn(&self, reason: impl AsRef<str>, note: &str) {
        if self.controller.is_news(&self.object, reason.as_ref(), Some(note)) {
            self.event(Type::Warning, reason.as_ref(), note);
        }
    }

    /// Marks a problem as already reported, so that [`Context::warn`] does not publish it. For example, the status may
    /// show that an earlier process reported it.
    pub fn note(&self, reason: impl AsRef<str>) {
        self.controller.is_news(&self.object, reason.as_ref(), None);
    }

    /// Publishes an Event about the object. `reason` is one CamelCase word, `note` a sentence. Events are sent in the
    /// background, so a later write of the same reconcile can arrive earlier.
    pub fn event(&self, kind: Type, reason: impl Into<InternedStr>, note: &str) {
        self.publish(kind, reason, "Reconcile", note);
    }

    /// Publishes an Event about another object, such as an owned one. Otherwise like [`Context::event`].
    pub fn event_about<R: Resource>(
        &self,
        object: &R,
        kind: Type,
        reason: impl Into<InternedStr>,
        note: &str,
    ) {
        let regarding = Regarding::object(object);
        self.controller.parts.recorder().publish(&regarding, kind, reason, "Reconcile", note);
    }

    fn publish(&self, kind: Type, reason: impl Into<InternedStr>, action: &str, note: &str) {
        let regarding = Regarding::object(&*self.object);
        self.controller.parts.recorder().publish(&regarding, kind, reason, action, note);
    }
}

impl<V> Clone for Context<V> {
    fn clone(&self) -> Self {
        Context {
            controller: self.controller.clone(),
            object: self.object.clone(),
            written: self.written.clone(),
            client: self.client.clone(),
        }
    }
}

impl<V: Object> std::fmt::Debug for Context<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("key", self.object.key()).finish_non_exhaustive()
    }
}

/// Terminal, because a retry cannot fix an undeclared view.
impl From<WiringError> for ReconcileError {
    fn from(error: WiringError) -> ReconcileError {
        ReconcileError::terminal("ErrWiring", error.to_string())
    }
}
