//! What is connected to what: informers, handlers, queues, controllers.

use std::sync::Arc;

use futures::future::join;
use tokio::sync::Notify;

use super::args::{ControllerName, RunArgs};
use super::leading::{WhileLeading, catch_up};
use super::run::own_namespace;
use super::servers;
use crate::client::Client;
use crate::controller::{self, Controller, Handle, Options, Program, Reconciler, enqueue};
use crate::events::Recorder;
use crate::informer::{self, Informer};
use crate::leader_election::{Leadership, Phase};
use crate::metrics::{Checks, Metrics};
use crate::object::{Kind, Resource};
use crate::reconcilers::app::{self, App, AppReconciler};
use crate::reconcilers::generic_daemon::{self, GenericDaemon, GenericDaemonReconciler};
use crate::reconcilers::memcached::{self, Memcached, MemcachedReconciler};
use crate::reconcilers::workload::{DaemonSet, Deployment};
use crate::reconcilers::{Hands, Pod, Service, Settings};
use crate::store::Store;

/// What all controllers are built from.
pub(super) struct Wiring {
    pub(super) args: RunArgs,
    /// For the reads and writes of reconcilers; every write checks leadership.
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) leadership: Option<Leadership>,
    pub(super) metrics: Arc<Metrics>,
    /// Observes passes.
    pub(super) passes: Arc<dyn controller::Observer>,
    /// What readiness depends on.
    pub(super) ready: Checks,
}

impl Wiring {
    /// Adds the requested controllers, and the informers they read from.
    pub(super) fn connect(&self, mut program: Program) -> Program {
        let wanted = |name| self.args.controllers.contains(&name);
        let (memcached, app) = (wanted(ControllerName::Memcached), wanted(ControllerName::App));
        if memcached || app {
            // One informer of each, shared by both kinds.
            let (deployments, services) = (self.informer(), self.informer());
            if memcached {
                program = self.memcached(program, &deployments, &services);
            }
            if app {
                program = self.app(program, &deployments, &services);
            }
            program = self.run(self.run(program, &deployments), &services);
        }
        if wanted(ControllerName::GenericDaemon) {
            program = self.generic_daemon(program);
        }
        program
    }

    fn memcached(
        &self,
        program: Program,
        deployments: &Informer<Deployment>,
        services: &Informer<Service>,
    ) -> Program {
        let memcacheds = self.informer::<Memcached>();
        let pods = Pod::scope(None);
        let pods = self
            .informer_builder::<Pod>()
            .labels(pods.labels.unwrap_or_default())
            .fields(pods.fields.unwrap_or_default())
            .metadata_only()
            .index(Pod::index())
            .build();
        let stores = memcached::Stores {
            memcacheds: memcacheds.store(),
            deployments: deployments.store(),
            services: services.store(),
            pods: pods.store(),
        };
        let image = self.args.memcached_image.as_deref();
        let settings = Settings { memcached_image: image.map(Into::into) };
        let reconciler = MemcachedReconciler::new(stores, self.hands("memcached"), settings);
        let program = self.release(program, reconciler.clone());
        let (program, controller) =
            self.controller(program, "memcached", reconciler, memcacheds.store());
        let children = join(deployments.synced(), services.synced());
        let synced = join(join(memcacheds.synced(), pods.synced()), children);
        let handle = controller.handle();
        let (objects, labelled) = (memcacheds.clone(), pods.clone());
        let (deployments, services) = (deployments.clone(), services.clone());
        let listen = move || {
            objects.handle(enqueue::for_object(handle.clone()));
            own(&deployments, &handle, Memcached::KIND);
            own(&services, &handle, Memcached::KIND);
            let memcached = |pod: &Pod| pod.memcached().into_iter().collect();
            labelled.handle(enqueue::for_mapped(handle, memcached));
        };
        let program = program.controller_after(self.leading_after(synced, listen), controller);
        self.run(self.run(program, &memcacheds), &pods)
    }

    /// Has the process that leads remove finalizers at its end, if its own namespace is going.
    fn release(&self, program: Program, reconciler: MemcachedReconciler) -> Program {
        let (leadership, namespace) = (self.leadership.clone(), own_namespace(&self.args));
        let Some(namespace) = namespace else { return program };
        program.beside("the release of Memcacheds", |stop| async move {
            stop.requested().await;
            if leadership.as_ref().is_none_or(Leadership::is_permitted) {
                reconciler.release(&namespace).await;
            }
        })
    }

    fn generic_daemon(&self, program: Program) -> Program {
        let (daemons, daemon_sets) =
            (self.informer::<GenericDaemon>(), self.informer::<DaemonSet>());
        let stores =
            generic_daemon::Stores { daemons: daemons.store(), daemon_sets: daemon_sets.store() };
        let reconciler = GenericDaemonReconciler::new(stores, self.hands("genericdaemon"));
        let (program, controller) =
            self.controller(program, "genericdaemon", reconciler, daemons.store());
        let synced = join(daemons.synced(), daemon_sets.synced());
        let handle = controller.handle();
        let (objects, children) = (daemons.clone(), daemon_sets.clone());
        let listen = move || {
            objects.handle(enqueue::for_object(handle.clone()));
            own(&children, &handle, GenericDaemon::KIND);
        };
        let program = program.controller_after(self.leading_after(synced, listen), controller);
        self.run(self.run(program, &daemons), &daemon_sets)
    }

    fn app(
        &self,
        program: Program,
        deployments: &Informer<Deployment>,
        services: &Informer<Service>,
    ) -> Program {
        let apps = self.informer::<App>();
        let stores = app::Stores {
            apps: apps.store(),
            deployments: deployments.store(),
            services: services.store(),
        };
        let reconciler = AppReconciler::new(stores, self.hands("app"));
        let (program, controller) = self.controller(program, "app", reconciler, apps.store());
        let synced = join(apps.synced(), join(deployments.synced(), services.synced()));
        let handle = controller.handle();
        let (objects, deployments, services) =
            (apps.clone(), deployments.clone(), services.clone());
        let listen = move || {
            objects.handle(enqueue::for_object(handle.clone()));
            own(&deployments, &handle, App::KIND);
            own(&services, &handle, App::KIND);
        };
        let program = program.controller_after(self.leading_after(synced, listen), controller);
        self.run(program, &apps)
    }

    fn informer<V: Resource>(&self) -> Informer<V> {
        self.informer_builder().build()
    }

    fn informer_builder<V: Resource>(&self) -> informer::Builder<V> {
        Informer::<V>::builder(self.client.clone())
            .namespaces(self.args.namespaces.iter())
            .observer(self.metrics.clone())
    }

    fn hands(&self, controller: &'static str) -> Hands {
        Hands::new(self.client.clone(), self.recorder.for_controller(controller))
    }

    /// A controller of these objects, which works while this process leads, and what it takes to
    /// catch up when it leads again.
    fn controller<R: Reconciler, V: Resource>(
        &self,
        program: Program,
        name: &'static str,
        reconciler: R,
        objects: Store<V>,
    ) -> (Program, Controller<WhileLeading<R>>) {
        let (leadership, skipped) = (self.leadership.clone(), Arc::new(Notify::new()));
        let reconciler =
            WhileLeading { reconciler, leadership: leadership.clone(), skipped: skipped.clone() };
        let options = Options {
            workers: self.args.workers.into(),
            drain: self.args.shutdown_grace,
            reach: Some(self.client.reach().clone()),
            observer: self.passes.clone(),
            queue_observer: Arc::new(self.metrics.queue_observer(name)),
            ..Options::default()
        };
        let controller = Controller::new(name, reconciler, options);
        let queue = controller.handle().queue().clone();
        self.metrics.watch_queue(name, &queue);
        let Some(leadership) = leadership else { return (program, controller) };
        let catch_up = catch_up(leadership, skipped, objects, queue);
        let program = program.beside(format!("the catching up of {name}"), |stop| async move {
            tokio::select! {
                () = stop.requested() => {}
                never = catch_up => match never {},
            }
        });
        (program, controller)
    }

    fn run<V: Resource>(&self, program: Program, informer: &Informer<V>) -> Program {
        self.metrics.watch_informer(informer);
        servers::check_informer(&self.ready, informer);
        program.informer(informer)
    }

    /// Returns once the stores that a controller reads are synced and this process leads for the
    /// first time. `listen` adds the handlers that fill the controller's queue. They are not added
    /// earlier, since nobody would drain what a standby enqueues, or what is enqueued while a kind
    /// is not served. A handler added late is called for everything that is already there.
    fn leading_after<F: Future + Send, L: FnOnce() + Send>(
        &self,
        synced: F,
        listen: L,
    ) -> impl Future<Output = ()> + Send + use<F, L> {
        let leadership = self.leadership.clone();
        async move {
            synced.await;
            if let Some(leadership) = leadership {
                leadership.reached(Phase::Leading).await;
            }
            listen();
        }
    }
}

/// Children wake their owner and, when they free their name, whoever waits for that name.
fn own<V: Resource>(children: &Informer<V>, handle: &Handle, kind: Kind) {
    children.handle(enqueue::for_owner(handle.clone(), kind));
    children.handle(enqueue::for_freed_name(handle.clone()));
}
