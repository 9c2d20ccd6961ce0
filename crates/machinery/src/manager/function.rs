//! A reconciler that is a function.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::Context;
use super::children::failed;
use super::context::ControllerState;
use super::kinds::ControllerDeps;
use super::leading::Term;
use crate::client::{self, Patch};
use crate::controller::{Action, ReconcileError, Reconciler};
use crate::events::Type;
use crate::object::{InternedStr, ObjectKey, Resource};

/// Calls `reconcile` for each object that exists and is not being deleted.
pub(super) struct Function<V> {
    pub(super) controller: Arc<ControllerState<V>>,
    pub(super) reconcile: Call<V, Action>,
    pub(super) finalizer: Option<Finalizer<V>>,
    pub(super) on_error: OnProblem<V>,
    pub(super) term: Arc<Term>,
    /// The namespaces in which not all views have synced, and so nothing is reconciled.
    pub(super) held_back: Mutex<HashSet<InternedStr>>,
}

/// Pause before a key of such a namespace is tried again.
const OUT_OF_STEP: Duration = Duration::from_secs(10);

/// Runs `cleanup` before an object is deleted.
pub(super) struct Finalizer<V> {
    pub(super) name: &'static str,
    pub(super) cleanup: Call<V, ()>,
    /// True if it is added to every object before the first reconcile; otherwise reconciles add it.
    pub(super) is_always: bool,
}

/// A function of the program, called with an object.
pub(super) type Call<V, T> =
    Box<dyn Fn(Arc<V>, Context<V>) -> BoxFuture<'static, Result<T, ReconcileError>> + Send + Sync>;
/// Receives each problem that ends a reconcile.
pub(super) type OnProblem<V> =
    Box<dyn Fn(&Context<V>, ReconcileError) -> ReconcileError + Send + Sync>;

// === impl Function ===

impl<V: Resource> Function<V> {
    /// Returns whether all views have synced in this namespace. Otherwise, objects that are not stored yet would be
    /// created twice.
    fn is_in_step(&self, namespace: &InternedStr) -> bool {
        let ControllerDeps { controller, informers, declared, .. } = &self.controller.parts;
        if informers.have_synced_in(declared, namespace) {
            self.held_back.lock().remove(namespace);
            return true;
        }
        if self.held_back.lock().insert(namespace.clone()) {
            tracing::warn!(
                controller,
                %namespace,
                "no object is reconciled here before all kinds that the controller reads can be listed"
            );
        }
        false
    }

    /// Publishes that every reconcile of an object has written something for a long time.
    fn warn_of_writes(&self, key: &ObjectKey) {
        if let Some(object) = self.controller.objects.get(key) {
            let note = "Every reconcile of this object has written for ten minutes. Either the controller computes a \
                        different result each time, or another program changes the object. It is now reconciled once \
                        a second";
            tracing::warn!("{note}");
            let cx = Context::new(self.controller.clone(), object);
            cx.event(Type::Warning, "WritesRepeatedly", note);
        }
    }

    async fn reconcile_key(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(object) = self.controller.objects.get(key) else {
            self.controller.forget(key);
            return Ok(Action::Done);
        };
        self.controller.begins(key);
        let cx = Context::new(self.controller.clone(), object.clone());
        let mut outcome = self.dispatch(object.clone(), &cx).await;
        if cx.has_written() {
            self.controller.pace.wrote(key, Instant::now());
        }
        if let Err(problem) = outcome {
            outcome = in_terminating_namespace(&*object, problem);
        }
        let outcome = outcome.map_err(|problem| (self.on_error)(&cx, problem));
        match &outcome {
            Ok(_) => self.controller.succeeded(key),
            Err(problem) => {
                if let Some(reason) = problem.reason() {
                    cx.warn(reason, &problem.to_string());
                }
                self.controller.failed(key);
            }
        }
        outcome
    }

    async fn dispatch(
        &self,
        mut object: Arc<V>,
        cx: &Context<V>,
    ) -> Result<Action, ReconcileError> {
        match &self.finalizer {
            None if object.meta().is_terminating => return Ok(Action::Done),
            Some(finalizer) if object.meta().is_terminating => {
                if finalizer.is_on(&object) {
                    (finalizer.cleanup)(object, cx.clone()).await?;
                    cx.remove_finalizer(finalizer.name).await?;
                }
                return Ok(Action::Done);
            }
            Some(finalizer) if finalizer.is_always && !finalizer.is_on(&object) => {
                object = cx.write_finalizer(finalizer.name).await?;
                if object.meta().is_terminating {
                    return Ok(Action::Done); // The watch has already enqueued it.
                }
            }
            Some(_) | None => {}
        }
        let cx = cx.over(object.clone());
        (self.reconcile)(object, cx).await
    }
}

impl<V: Resource> Reconciler for Function<V> {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        if !self.is_in_step(key.namespace()) {
            return Ok(Action::RequeueAfter(OUT_OF_STEP));
        }
        self.term.within(self.reconcile_key(key)).await
    }

    fn delay(&self, key: &ObjectKey) -> Option<Duration> {
        let (wait, is_news) = self.controller.pace.wait(key, Instant::now())?;
        if is_news {
            self.warn_of_writes(key);
        }
        Some(wait)
    }
}

/// Returns the outcome of a failed reconcile. If it could not create an object because the namespace is being deleted,
/// this is a success in the namespace of `object`, and a [`ReconcileError::forbidden`] in any other.
fn in_terminating_namespace<V: Resource>(
    object: &V,
    problem: ReconcileError,
) -> Result<Action, ReconcileError> {
    if let ReconcileError::Several(all) = problem {
        let left = all.into_iter().filter_map(|one| in_terminating_namespace(object, one).err());
        return ReconcileError::all(left).map(|()| Action::Done);
    }
    if !problem.api_error().is_some_and(client::Error::is_namespace_terminating) {
        return Err(problem);
    }
    let created_in = match &problem {
        ReconcileError::Call { key, .. } => key.namespace(),
        _ => object.key().namespace(),
    };
    // The object will be deleted with its namespace. If it is already being deleted, its cleanup may need the new
    // object.
    if V::kind().namespaced
        && !object.meta().is_terminating
        && created_in == object.key().namespace()
    {
        return Ok(Action::Done);
    }
    let told = ReconcileError::forbidden("ErrNamespaceTerminating", problem.to_string());
    Err(if matches!(problem, ReconcileError::Reported(_)) { told.reported() } else { told })
}

// === impl Finalizer ===

impl<V: Resource> Finalizer<V> {
    fn is_on(&self, object: &V) -> bool {
        object.meta().finalizers.iter().any(|name| *name == *self.name)
    }
}

// === impl Context ===

impl<V: Resource> Context<V> {
    /// Adds the finalizer declared by [`ControllerBuilder::cleanup`](super::ControllerBuilder::cleanup), if the object
    /// lacks it. Call this before creating anything that needs cleanup.
    ///
    /// # Errors
    /// `ErrWiring` if the controller does not declare this finalizer, because nothing would remove it; a conflict if
    /// the object has changed since this reconcile read it; all errors of a write.
    pub async fn add_finalizer(&self, name: &str) -> Result<(), ReconcileError> {
        if self.controller.declared.finalizer != Some(name) {
            let what = format!(
                "the controller {} declares no finalizer {name:?}, so that it would never be removed: add \
                 `.cleanup({name:?}, …)`",
                self.controller.parts.controller()
            );
            return Err(ReconcileError::terminal("ErrWiring", what));
        }
        if self.latest().meta().finalizers.iter().any(|other| *other == *name) {
            return Ok(());
        }
        self.write_finalizer(name).await.map(drop)
    }

    /// Removes a finalizer, if the object has it. Call this when the object no longer needs cleanup.
    ///
    /// # Errors
    /// A conflict if the object has changed since this reconcile read it; all errors of a write.
    pub async fn remove_finalizer(&self, name: &str) -> Result<(), ReconcileError> {
        let object = self.latest();
        let all = &object.meta().finalizers;
        let others: Vec<InternedStr> =
            all.iter().filter(|other| **other != *name).cloned().collect();
        if others.len() == all.len() {
            return Ok(());
        }
        match self.write_finalizers(&others).await {
            // Another client has removed it, and the object was deleted.
            Err(ReconcileError::Call { source, .. }) if source.is_not_found() => {}
            // The watch reports the deletion; a Pod is deleted later.
            written => drop(self.wrote(written?)),
        }
        Ok(())
    }

    async fn write_finalizer(&self, name: &str) -> Result<Arc<V>, ReconcileError> {
        let object = self.latest();
        let mut finalizers: Vec<InternedStr> = object.meta().finalizers.iter().cloned().collect();
        finalizers.push(name.into());
        Ok(self.wrote(self.write_finalizers(&finalizers).await?))
    }

    /// Writes all finalizers. If the object has changed since it was read, this returns a conflict, and the next
    /// reconcile sees the change.
    async fn write_finalizers(&self, finalizers: &[InternedStr]) -> Result<V, ReconcileError> {
        let object = self.latest();
        let meta = object.meta();
        let patch = json!({ "metadata": {
            "uid": meta.uid, "resourceVersion": meta.version, "finalizers": finalizers,
        }});
        let written = self.client().patch::<V>(self.key(), &Patch::Merge(&patch)).await;
        written.map_err(|error| failed::<V>("update", self.key(), error))
    }
}
