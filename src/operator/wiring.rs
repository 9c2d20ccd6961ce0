//! The controllers: what each owns and watches, and how it reconciles.

use super::args::{ControllerName, RunArgs};
use super::run::own_namespace;
use crate::manager::{ControllerBuilder, Manager};
use crate::reconcilers::app::{self, App};
use crate::reconcilers::generic_daemon::{self, GenericDaemon};
use crate::reconcilers::memcached::{self, Memcached};
use crate::reconcilers::workload::{DaemonSet, Deployment};
use crate::reconcilers::{Custom, Diagnostics, Observer, Pod, Service, Settings, Type, refused};

/// Adds the requested controllers.
pub(super) fn controllers(mut manager: Manager, args: &RunArgs) -> Manager {
    let diagnostics = Diagnostics::default();
    for (name, add) in [
        (ControllerName::Memcached, memcached as fn(Manager, &RunArgs, Observer) -> Manager),
        (ControllerName::App, app),
        (ControllerName::GenericDaemon, generic_daemon),
    ] {
        if args.controllers.contains(&name) {
            manager = add(manager, args, Observer::new(diagnostics.clone()));
        }
    }
    manager
}

fn memcached(manager: Manager, args: &RunArgs, observer: Observer) -> Manager {
    let settings = Settings { memcached_image: args.memcached_image.as_deref().map(Into::into) };
    let own_namespace = own_namespace(args);
    custom::<Memcached>(manager)
        .owns::<Deployment>()
        .owns::<Service>()
        .informer::<Pod>(|pods| {
            let scope = Pod::scope(None);
            pods.labels(scope.labels.unwrap_or_default())
                .fields(scope.fields.unwrap_or_default())
                .metadata_only()
                .index(Pod::index())
        })
        .watches::<Pod>(|pod| pod.memcached().into_iter().collect())
        .cleanup(memcached::FINALIZER, memcached::finalize)
        // If the operator's own namespace is going, it removes finalizers as it ends.
        .at_end("the release of Memcacheds", move |parts| {
            let (memcacheds, client) = (parts.store()?, parts.client());
            Ok(async move {
                if let Some(namespace) = own_namespace {
                    memcached::release(memcacheds, client, &namespace).await;
                }
            })
        })
        .reconcile(move |memcached, cx| {
            let (settings, observer) = (settings.clone(), observer.clone());
            memcached::reconcile(memcached, cx, settings, observer)
        })
}

fn app(manager: Manager, _: &RunArgs, observer: Observer) -> Manager {
    custom::<App>(manager)
        .owns::<Deployment>()
        .owns::<Service>()
        .reconcile(move |app, cx| app::reconcile(app, cx, observer.clone()))
}

fn generic_daemon(manager: Manager, _: &RunArgs, observer: Observer) -> Manager {
    custom::<GenericDaemon>(manager)
        .owns::<DaemonSet>()
        .reconcile(move |daemon, cx| generic_daemon::reconcile(daemon, cx, observer.clone()))
}

/// A controller of a custom resource.
fn custom<V: Custom>(manager: Manager) -> ControllerBuilder<V> {
    manager.controller().conditions(&Type::NAMES).tell_writes().on_problem(refused)
}
