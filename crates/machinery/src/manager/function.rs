//! A reconciler that is a function.

use std::any::TypeId;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use tokio::time::Instant;

use super::Context;
use super::context::Pass;
use super::kinds::Parts;
use super::wiring::WiringError;
use crate::controller::{Action, Problem, Reconciler};
use crate::events::Type;
use crate::object::{ObjectKey, Resource, Text};

/// Calls `reconcile` for each object that exists and is not being deleted.
pub(super) struct Function<V, F> {
    pass: Arc<Pass<V>>,
    reconcile: F,
    finalizer: Option<Finalizer<V>>,
}

/// Runs `cleanup` before an object goes.
pub(super) struct Finalizer<V> {
    name: &'static str,
    cleanup: Cleanup<V>,
}

type Cleanup<V> =
    Box<dyn Fn(Arc<V>, Context<V>) -> BoxFuture<'static, Result<(), Problem>> + Send + Sync>;

// === impl Function ===

impl<V: Resource, F> Function<V, F> {
    pub(super) fn new(
        parts: &Parts,
        reconcile: F,
        finalizer: Option<Finalizer<V>>,
        owned: Vec<TypeId>,
        tells_writes: bool,
    ) -> Result<Function<V, F>, WiringError> {
        let pass = Arc::new(Pass::new(parts, owned, tells_writes)?);
        Ok(Function { pass, reconcile, finalizer })
    }

    fn context(&self, object: &Arc<V>) -> Context<V> {
        Context { pass: self.pass.clone(), object: object.clone() }
    }
}

impl<V, F, P, E> Function<V, F>
where
    V: Resource,
    F: Fn(Arc<V>, Context<V>) -> P + Send + Sync + 'static,
    P: Future<Output = Result<Action, E>> + Send + 'static,
    E: Into<Problem> + 'static,
{
    async fn pass(&self, mut object: Arc<V>) -> Result<Action, Problem> {
        let cx = self.context(&object);
        match &self.finalizer {
            None if object.meta().deleting => return Ok(Action::Done),
            Some(finalizer) if object.meta().deleting => {
                if finalizer.is_on(&object) {
                    (finalizer.cleanup)(object, cx.clone()).await?;
                    finalizer.remove(&cx).await?;
                }
                return Ok(Action::Done);
            }
            Some(finalizer) if !finalizer.is_on(&object) => object = finalizer.add(&cx).await?,
            Some(_) | None => {}
        }
        let cx = self.context(&object);
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
    type Error = Problem;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Problem> {
        let Some(object) = self.pass.objects.get(key) else {
            self.pass.forget(key);
            return Ok(Action::Done);
        };
        let outcome = self.pass(object.clone()).await;
        match &outcome {
            Ok(_) => self.pass.succeeded(key),
            Err(problem) => {
                if let Some(reason) = problem.reason()
                    && self.pass.is_news(key, reason, Instant::now())
                {
                    self.context(&object).event(Type::Warning, reason, &problem.to_string());
                }
            }
        }
        outcome
    }
}

// === impl Finalizer ===

impl<V: Resource> Finalizer<V> {
    pub(super) fn new<C, F>(name: &'static str, cleanup: C) -> Finalizer<V>
    where
        C: Fn(Arc<V>, Context<V>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), Problem>> + Send + 'static,
    {
        Finalizer { name, cleanup: Box::new(move |object, cx| cleanup(object, cx).boxed()) }
    }

    fn is_on(&self, object: &V) -> bool {
        object.meta().finalizers.iter().any(|name| *name == *self.name)
    }

    async fn add(&self, cx: &Context<V>) -> Result<Arc<V>, Problem> {
        let mut finalizers: Vec<Text> = cx.object.meta().finalizers.iter().cloned().collect();
        finalizers.push(self.name.into());
        self.write(cx, &finalizers).await
    }

    async fn remove(&self, cx: &Context<V>) -> Result<(), Problem> {
        let others = cx.object.meta().finalizers.iter().filter(|name| **name != *self.name);
        match self.write(cx, &others.cloned().collect::<Vec<_>>()).await {
            // It is gone: somebody else removed the finalizer.
            Err(Problem::Api(error)) if error.is_not_found() => Ok(()),
            written => written.map(drop),
        }
    }

    /// Writes all finalizers, unless the object has changed since it was read: a conflict, and the
    /// next pass sees what has changed.
    async fn write(&self, cx: &Context<V>, finalizers: &[Text]) -> Result<Arc<V>, Problem> {
        let meta = cx.object.meta();
        let patch = json!({ "metadata": {
            "uid": meta.uid, "resourceVersion": meta.version, "finalizers": finalizers,
        }});
        let written = cx.client().merge_patch::<V>(cx.key(), &patch).await?;
        Ok(cx.pass.objects.wrote(written))
    }
}
