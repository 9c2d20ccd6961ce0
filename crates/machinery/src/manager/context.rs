//! What a pass works with.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::fights::Fights;
use super::kinds::Parts;
use super::wiring::WiringError;
use crate::client::Client;
use crate::controller::Problem;
use crate::events::{Regarding, Type};
use crate::object::{Object, ObjectKey, Resource};
use crate::store::Store;

/// What one pass works with: the object, the stores of the declared views, the client, and what
/// every controller needs. Cheap to clone.
pub struct Context<V> {
    pub(super) pass: Arc<Pass<V>>,
    pub(super) object: Arc<V>,
}

/// What all passes of a controller share.
pub(super) struct Pass<V> {
    pub(super) parts: Parts,
    pub(super) objects: Store<V>,
    pub(super) owned: Vec<TypeId>,
    pub(super) fights: Fights,
    /// Objects whose status the API server stores in another form than it was written, by its schema: the
    /// form.
    accepted: Mutex<HashMap<ObjectKey, u64>>,
    /// Why the last pass over a key failed, if a person was told, and when that was.
    told: Mutex<HashMap<ObjectKey, (&'static str, Instant)>>,
    /// True if an Event tells of each write of a child.
    tells_writes: bool,
}

/// How long a problem that stays is not told again. Events are kept for an hour.
const AGAIN: Duration = Duration::from_secs(30 * 60);

// === impl Pass ===

impl<V: Resource> Pass<V> {
    pub(super) fn new(
        parts: &Parts,
        owned: Vec<TypeId>,
        tells_writes: bool,
    ) -> Result<Pass<V>, WiringError> {
        let objects = parts.store()?;
        Ok(Pass {
            parts: parts.clone(),
            objects,
            owned,
            fights: Fights::default(),
            accepted: Mutex::default(),
            told: Mutex::default(),
            tells_writes,
        })
    }

    /// Returns whether this form of the status was accepted.
    pub(super) fn accepts(&self, key: &ObjectKey, form: u64) -> bool {
        self.accepted.lock().get(key) == Some(&form)
    }

    /// Accepts a form of the status, or none.
    pub(super) fn accept(&self, key: &ObjectKey, form: Option<u64>) {
        let mut accepted = self.accepted.lock();
        match form {
            Some(form) => drop(accepted.insert(key.clone(), form)),
            None => drop(accepted.remove(key)),
        }
    }

    /// Returns whether to tell a person why a pass over `key` failed: once, as long as the reason
    /// stays the same.
    pub(super) fn is_news(&self, key: &ObjectKey, reason: &'static str, now: Instant) -> bool {
        let mut told = self.told.lock();
        let is_known = told
            .get(key)
            .is_some_and(|(known, at)| *known == reason && now.duration_since(*at) < AGAIN);
        if !is_known {
            told.insert(key.clone(), (reason, now));
        }
        !is_known
    }

    /// A pass over `key` has succeeded.
    pub(super) fn succeeded(&self, key: &ObjectKey) {
        self.told.lock().remove(key);
    }

    /// The object under `key` is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.accepted.lock().remove(key);
        self.parts.bereaved.lock().remove(key);
        self.told.lock().remove(key);
    }
}

// === impl Context ===

impl<V: Resource> Context<V> {
    /// The key that is reconciled.
    pub fn key(&self) -> &ObjectKey {
        self.object.key()
    }

    /// The object as it was when the pass began.
    pub fn object(&self) -> &Arc<V> {
        &self.object
    }

    /// The client. What it writes should be shown to the store ([`Store::wrote`]), as
    /// [`Context::ensure`] and [`Context::patch_status`] do.
    pub fn client(&self) -> Client {
        self.pass.parts.client()
    }

    /// The object of a declared view under `key`.
    ///
    /// # Errors
    /// If the controller does not declare `R`.
    pub fn get<R: Resource>(&self, key: &ObjectKey) -> Result<Option<Arc<R>>, Problem> {
        Ok(self.store::<R>()?.get(key))
    }

    /// The store of a declared view.
    ///
    /// # Errors
    /// If the controller does not declare `R`.
    pub fn store<R: Resource>(&self) -> Result<Store<R>, Problem> {
        Ok(self.pass.parts.store()?)
    }

    /// Publishes an Event about a write of a child, such as `DeploymentCreated`, if the controller tells of
    /// its writes.
    pub(super) fn tell_write<C: Resource>(&self, what: &'static str, note: &str) {
        if self.pass.tells_writes {
            self.event(Type::Normal, reason(C::KIND.kind, what), note);
        }
    }

    /// Publishes an Event about the object. `reason` is one CamelCase word, `note` a sentence.
    pub fn event(&self, kind: Type, reason: &'static str, note: &str) {
        let regarding = Regarding::object(&*self.object);
        self.pass.parts.recorder().publish(&regarding, kind, reason, "Reconcile", note);
    }
}

/// The reason `DeploymentCreated` of a kind and what was done; one copy for each pair.
fn reason(kind: &'static str, what: &'static str) -> &'static str {
    static KNOWN: Mutex<BTreeMap<(&str, &str), &str>> = Mutex::new(BTreeMap::new());
    KNOWN.lock().entry((kind, what)).or_insert_with(|| format!("{kind}{what}").leak())
}

impl<V> Clone for Context<V> {
    fn clone(&self) -> Self {
        Context { pass: self.pass.clone(), object: self.object.clone() }
    }
}

impl<V: Object> std::fmt::Debug for Context<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("key", self.object.key()).finish_non_exhaustive()
    }
}

/// A pass needs what is not declared: no pass can mend that.
impl From<WiringError> for Problem {
    fn from(error: WiringError) -> Problem {
        Problem::terminal("ErrWiring", error.to_string())
    }
}
