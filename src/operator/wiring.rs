//! The controllers: what each owns and watches, and what it is made of.

use super::args::{ControllerName, RunArgs};
use super::run::own_namespace;
use crate::controller::enqueue;
use crate::manager::{ControllerBuilder, Manager, Parts, WiringError};
use crate::object::Resource;
use crate::reconcilers::app::{self, App, AppReconciler};
use crate::reconcilers::generic_daemon::{self, GenericDaemon, GenericDaemonReconciler};
use crate::reconcilers::memcached::{self, Memcached, MemcachedReconciler};
use crate::reconcilers::workload::{DaemonSet, Deployment};
use crate::reconcilers::{Diagnostics, Hands, Pod, Service, Settings};

/// Adds the requested controllers.
pub(super) fn controllers(mut manager: Manager, args: &RunArgs) -> Manager {
    let diagnostics = Diagnostics::default();
    for (name, add) in [
        (ControllerName::Memcached, memcached as fn(Manager, &RunArgs, Diagnostics) -> Manager),
        (ControllerName::App, app),
        (ControllerName::GenericDaemon, generic_daemon),
    ] {
        if args.controllers.contains(&name) {
            manager = add(manager, args, diagnostics.clone());
        }
    }
    manager
}

fn memcached(manager: Manager, args: &RunArgs, diagnostics: Diagnostics) -> Manager {
    let settings = Settings { memcached_image: args.memcached_image.as_deref().map(Into::into) };
    let controller = manager.controller::<Memcached>().informer::<Pod>(|pods| {
        let scope = Pod::scope(None);
        pods.labels(scope.labels.unwrap_or_default())
            .fields(scope.fields.unwrap_or_default())
            .metadata_only()
            .index(Pod::index())
    });
    let controller = own::<_, Service>(own::<_, Deployment>(controller));
    let controller = controller.watches::<Pod>(|pod| pod.memcached().into_iter().collect());
    let make = move |parts: &Parts| -> Result<MemcachedReconciler, WiringError> {
        let stores = memcached::Stores {
            memcacheds: parts.store()?,
            deployments: parts.store()?,
            services: parts.store()?,
            pods: parts.store()?,
        };
        Ok(MemcachedReconciler::new(stores, hands(parts, &diagnostics), settings.clone()))
    };
    // If the operator's own namespace is going, it removes finalizers as it ends.
    let (namespace, at_end) = (own_namespace(args), make.clone());
    let controller = controller.at_end("the release of Memcacheds", move |parts| {
        let reconciler = at_end(parts)?;
        Ok(async move {
            if let Some(namespace) = namespace {
                reconciler.release(&namespace).await;
            }
        })
    });
    controller.reconciler(make)
}

fn app(manager: Manager, _: &RunArgs, diagnostics: Diagnostics) -> Manager {
    own::<App, Service>(own::<_, Deployment>(manager.controller())).reconciler(move |parts| {
        let stores = app::Stores {
            apps: parts.store()?,
            deployments: parts.store()?,
            services: parts.store()?,
        };
        Ok(AppReconciler::new(stores, hands(parts, &diagnostics)))
    })
}

fn generic_daemon(manager: Manager, _: &RunArgs, diagnostics: Diagnostics) -> Manager {
    own::<GenericDaemon, DaemonSet>(manager.controller()).reconciler(move |parts| {
        let stores =
            generic_daemon::Stores { daemons: parts.store()?, daemon_sets: parts.store()? };
        Ok(GenericDaemonReconciler::new(stores, hands(parts, &diagnostics)))
    })
}

/// Children wake their owner and, when they free their name, the object of that name: it may have
/// been waiting.
fn own<V: Resource, C: Resource>(controller: ControllerBuilder<V>) -> ControllerBuilder<V> {
    controller
        .handler::<C, _>(|handle| enqueue::for_owner(handle, V::KIND))
        .handler::<C, _>(enqueue::for_freed_name)
}

fn hands(parts: &Parts, diagnostics: &Diagnostics) -> Hands {
    Hands::new(parts.client(), parts.recorder(), diagnostics.clone())
}
