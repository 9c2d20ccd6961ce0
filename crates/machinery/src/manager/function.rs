//! A reconciler that is a function.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use tokio::time::Instant;

use super::Context;
use super::builder::OnProblem;
use super::children::failed;
use super::context::{ControllerState, Declared};
use super::kinds::ControllerDeps;
use super::wiring::WiringError;
use crate::client;
use crate::controller::{Action, Problem, Reconciler};
use crate::events::Type;
use crate::object::{InternedStr, ObjectKey, Resource};

/// Calls `reconcile` for each object that exists and is not being deleted.
pub(super) struct Function<V, F> {
    controller: Arc<ControllerState<V>>,
    reconcile: F,
    finalizer: Option<Finalizer<V>>,
    on_error: OnProblem<V>,
}

/// Runs `cleanup` before an object is deleted.
pub(super) struct Finalizer<V> {
    name: &'static str,
    cleanup: Cleanup<V>,
    /// True if every object gets it before its first reconcile; otherwise reconciles add it.
    is_always: bool,
}

type Cleanup<V> =
    Box<dyn Fn(Arc<V>, Context<V>) -> BoxFuture<'static, Result<(), Problem>> + Send + Sync>;

// === impl Function ===

impl<V: Resource, F> Function<V, F> {
    pub(super) fn new(
        parts: &ControllerDeps,
        reconcile: F,
        (finalizer, on_error): (Option<Finalizer<V>>, OnProblem<V>),
        declared: Declared,
    ) -> Result<Function<V, F>, WiringError> {
        let controller = Arc::new(ControllerState::new(parts, declared)?);
        Ok(Function { controller, reconcile, finalizer, on_error })
    }

    /// Reports that every reconcile of an object has written something for a long time.
    fn warn_of_writes(&self, key: &ObjectKey) {
        if let Some(object) = self.controller.objects.get(key) {
            let note = "Its reconciles have written something each time for ten minutes: they want something else each \
                        time, or another program changes it. It is reconciled once a second";
            tracing::warn!("{note}");
            Context::new(self.controller.clone(), object).event(
                Type::Warning,
                "WritesRepeatedly",
                note,
            );
        }
    }
}

impl<V, F, P, E> Function<V, F>
where
    V: Resource,
    F: Fn(Arc<V>, Context<V>) -> P + Send + Sync + 'static,
    P: Future<Output = Result<Action, E>> + Send + 'static,
    E: Into<Problem> + 'static,
{
    async fn dispatch(&self, mut object: Arc<V>, cx: &Context<V>) -> Result<Action, Problem> {
        match &self.finalizer {
            None if object.meta().deleting => return Ok(Action::Done),
            Some(finalizer) if object.meta().deleting => {
                if finalizer.is_on(&object) {
                    (finalizer.cleanup)(object, cx.clone()).await?;
                    finalizer.remove(cx).await?;
                }
                return Ok(Action::Done);
            }
            Some(finalizer) if finalizer.is_always && !finalizer.is_on(&object) => {
                object = cx.write_finalizer(finalizer.name).await?;
                if object.meta().deleting {
                    return Ok(Action::Done); // The watch was faster, and has enqueued it.
                }
            }
            Some(_) | None => {}
        }
        let cx = cx.over(object.clone());
        (self.reconcile)(object, cx).await.map_err(Into::into)
    }
}

impl<V, F, P, E> Reconciler for Function<V, F>
where
    V: Resource,
    F: Fn(Arc<V>, Context<V>) -> P + Send + Sync + 'static,
    P: Future<Output = Result<Action, E>> + Send + 'static,
    E: Into<Problem> + 'static,
{
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Problem> {
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
        if let Err(problem) = &outcome
            && problem.api_error().is_some_and(client::Error::is_namespace_terminating)
        {
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

    fn held_for(&self, key: &ObjectKey) -> Option<Duration> {
        let (wait, is_news) = self.controller.pace.wait(key, Instant::now())?;
        if is_news {
            self.warn_of_writes(key);
        }
        Some(wait)
    }
}

/// Returns the outcome of a reconcile that could not create an object because the namespace is being deleted.
fn in_terminating_namespace<V: Resource>(object: &V, problem: &Problem) -> Result<Action, Problem> {
    let created_in = match problem {
        Problem::Call { key, .. } => key.namespace(),
        _ => object.key().namespace(),
    };
    // The object is deleted with its namespace and needs nothing. If it is being deleted, its finalizer may need the
    // object.
    if V::kind().namespaced && !object.meta().deleting && created_in == object.key().namespace() {
        return Ok(Action::Done);
    }
    let told = Problem::forbidden("ErrNamespaceTerminating", problem.to_string());
    Err(if matches!(problem, Problem::Reported(_)) { told.reported() } else { told })
}

// === impl Finalizer ===

impl<V: Resource> Finalizer<V> {
    pub(super) fn new<C, F>(name: &'static str, is_always: bool, cleanup: C) -> Finalizer<V>
    where
        C: Fn(Arc<V>, Context<V>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), Problem>> + Send + 'static,
    {
        let cleanup: Cleanup<V> = Box::new(move |object, cx| cleanup(object, cx).boxed());
        Finalizer { name, cleanup, is_always }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    fn is_on(&self, object: &V) -> bool {
        object.meta().finalizers.iter().any(|name| *name == *self.name)
    }

    pub(super) async fn remove(&self, cx: &Context<V>) -> Result<(), Problem> {
        let object = cx.latest();
        let others = object.meta().finalizers.iter().filter(|name| **name != *self.name);
        let others: Vec<InternedStr> = others.cloned().collect();
        match cx.write_finalizers(&others).await {
            // Not found: another manager removed the finalizer.
            Err(Problem::Call { source, .. }) if source.is_not_found() => {}
            // The watch reports its deletion, which for a Pod comes later.
            written => drop(cx.wrote(written?)),
        }
        Ok(())
    }
}

// === impl Context ===

impl<V: Resource> Context<V> {
    /// Adds the finalizer declared by [`ControllerBuilder::cleanup`](super::ControllerBuilder::cleanup), if the
    /// object lacks it. Call this before creating something that needs cleanup.
    ///
    /// # Errors
    /// `ErrWiring` if the controller does not declare this finalizer, because nothing would remove it; a conflict if
    /// the object has changed since this reconcile read it; all errors of a write.
    pub async fn add_finalizer(&self, name: &str) -> Result<(), Problem> {
        if self.controller.finalizer != Some(name) {
            let what = format!(
                "the controller {} declares no finalizer {name:?}, so that it would never be removed: add \
                 `.cleanup({name:?}, …)`",
                self.controller.parts.controller()
            );
            return Err(Problem::terminal("ErrWiring", what));
        }
        if self.latest().meta().finalizers.iter().any(|other| *other == *name) {
            return Ok(());
        }
        self.write_finalizer(name).await.map(drop)
    }

    async fn write_finalizer(&self, name: &str) -> Result<Arc<V>, Problem> {
        let object = self.latest();
        let mut finalizers: Vec<InternedStr> = object.meta().finalizers.iter().cloned().collect();
        finalizers.push(name.into());
        Ok(self.wrote(self.write_finalizers(&finalizers).await?))
    }

    /// Writes all finalizers. If the object has changed since it was read, this is a conflict, and the next
    /// reconcile sees the change.
    async fn write_finalizers(&self, finalizers: &[InternedStr]) -> Result<V, Problem> {
        let object = self.latest();
        let meta = object.meta();
        let patch = json!({ "metadata": {
            "uid": meta.uid, "resourceVersion": meta.version, "finalizers": finalizers,
        }});
        let written = self.client().merge_patch::<V>(self.key(), &patch).await;
        written.map_err(|error| failed::<V>("update", self.key(), error))
    }
}
