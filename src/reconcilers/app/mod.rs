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
pub use status::{of_deployment, status};
pub use view::{App, Spec, Status};

use super::condition::Time;
use super::custom::{Custom, is_paused, is_told};
use super::error::{Diagnosis, Error, diagnose};
use super::hands::{Hands, Parent, sooner};
use super::reason::Reason;
use super::service::Service;
use super::situation::Situation;
use super::workload::Deployment;
use crate::controller::{Action, Reconciler};
use crate::object::ObjectKey;
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
            if is_told(&*app) {
                return Ok(Action::Done);
            }
            let parent = Parent::new(&*app);
            let deployment = parent.own(&self.stores.deployments);
            self.report_status(&app, &parent, deployment.as_deref(), Situation::Paused).await
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
        let done = |_: &Service| Situation::Done(Reason::AsExpected, String::new());
        let situation = deployment
            .situation(&parent, |child| of_deployment(app, child))
            .and(service.situation(&parent, done));
        let child = deployment.child(&parent, &stores.deployments);
        let reported = self.report_status(app, &parent, child.as_deref(), situation).await?;
        Ok(sooner(reported, sooner(deployment.into_result()?, service.into_result()?)))
    }

    /// Writes the status if it has changed, and publishes trouble that has begun.
    async fn report_status(
        &self,
        app: &App,
        parent: &Parent,
        deployment: Option<&Deployment>,
        situation: Situation,
    ) -> Result<Action, Error> {
        let now = status(app, deployment, &situation, Time::now());
        self.hands.report(parent, &self.stores.apps, app, &now, &situation).await
    }
}

#[cfg(test)]
mod tests;
