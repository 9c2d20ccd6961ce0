//! App: a Deployment and, while there are ports, a Service, both with its name.
//!
//! Has to be wired to
//! - informer of [`App`]: enqueue the object itself;
//! - informer of `Deployment`, of all of them (a foreign one may have the name): enqueue the
//!   controlling App (`enqueue::for_owner`), and the one that waits for its name
//!   (`enqueue::for_freed_name`);
//! - informer of `Service`: the same.

mod view;
mod desired;
mod status;

pub use desired::{Children, desired};
pub use status::{Found, status};
pub use view::{App, Spec, Status};

use super::child::{Decision, decide};
use super::condition::Time;
use super::custom::{Custom, is_paused};
use super::error::{Diagnosis, Error, diagnose};
use super::hands::{Hands, Looking, Outcome, Parent, sooner};
use super::health::{Health, completed};
use super::reason::Reason;
use super::service::Service;
use super::workload::Deployment;
use crate::controller::{Action, Reconciler};
use crate::object::{ObjectKey, Resource};
use crate::store::Store;

/// The stores that the reconciler reads.
#[derive(Clone)]
pub struct Stores {
    /// Apps.
    pub apps: Store<App>,
    /// Deployments.
    pub deployments: Store<Deployment>,
    /// Services.
    pub services: Store<Service>,
}

/// Reconciles Apps.
#[derive(Clone)]
pub struct AppReconciler {
    stores: Stores,
    hands: Hands,
}

impl Reconciler for AppReconciler {
    type Error = Error;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(app) = self.stores.apps.get(key) else { return Ok(Action::Done) };
        let pass = if app.meta.deleting {
            // The garbage collector does the rest.
            Ok(Action::Done)
        } else if is_paused(&app.meta) {
            let parent = Parent::new(&*app);
            let deployment = parent.own(&self.stores.deployments);
            let owner = app.as_owner();
            let as_desired = deployment.as_deref().is_some_and(|child| {
                decide(&owner, &desired(&app).deployment, Some(child)) == Decision::Nothing
            });
            let deployment = deployment.as_deref();
            let health = Health::paused(completed(&*app));
            let found = Found { deployment, as_desired, health };
            self.report_status(&app, &parent, found).await
        } else {
            self.bring_about(&app).await
        };
        match pass {
            Err(error) if diagnose(&error.source) == Diagnosis::NamespaceGoing => Ok(Action::Done),
            Err(error) => Err(error),
            Ok(action) => Ok(action),
        }
    }
}

impl AppReconciler {
    /// A reconciler over these stores.
    pub fn new(stores: Stores, hands: Hands) -> AppReconciler {
        AppReconciler { stores, hands }
    }

    async fn bring_about(&self, app: &App) -> Result<Action, Error> {
        let carried_out = app.is_observed();
        let parent = Parent::new(app).carried_out(carried_out);
        let (hands, stores, children) = (&self.hands, &self.stores, desired(app));
        let child_missing = stores.deployments.get(&parent.key).is_none()
            || children.service.is_some() && stores.services.get(&parent.key).is_none();
        if carried_out && child_missing && !hands.is_still(&stores.apps, app).await? {
            return Ok(Action::Done);
        }
        let deployment = hands.settle(&parent, &stores.deployments, &children.deployment).await?;
        let service = match &children.service {
            Some(service) => hands.settle(&parent, &stores.services, service).await?,
            None => hands.remove(&parent, &stores.services, Reason::ServiceDeleted).await?,
        };
        let (settled, again) = match &deployment {
            Outcome::Settled(child) => hands.observe(app, child, Looking::default()).await,
            _ => (Health::paused(false), Action::Done),
        };
        let health = deployment
            .health(&parent, settled)
            .and(service.health(&parent, Health::ready(Reason::AsExpected, "")));
        let child = deployment.child(&parent, &stores.deployments);
        let as_desired = matches!(deployment, Outcome::Settled(_));
        let found = Found { deployment: child.as_deref(), as_desired, health };
        let reported = sooner(self.report_status(app, &parent, found).await?, again);
        Ok(sooner(reported, sooner(deployment.into_result()?, service.into_result()?)))
    }

    /// Writes the status if it has changed, and publishes trouble that has begun.
    async fn report_status(
        &self,
        app: &App,
        parent: &Parent,
        found: Found<'_>,
    ) -> Result<Action, Error> {
        let now = status(app, &found, Time::now());
        self.hands.report(parent, &self.stores.apps, app, &now, &found.health).await
    }
}

#[cfg(test)]
mod tests;
