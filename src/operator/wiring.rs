//! Who is connected to whom: informers, handlers, queues, controllers.

use std::sync::Arc;

use super::args::{ControllerName, RunArgs};
use super::leading::WhileLeading;
use super::servers;
use super::tasks::Tasks;
use crate::client::Client;
use crate::controller::{Controller, Options, Reconciler, enqueue};
use crate::events::Recorder;
use crate::informer::{self, Informer};
use crate::leader_election::{Leadership, Phase};
use crate::metrics::{Checks, Metrics};
use crate::object::{Kind, ObjectKey, Resource};
use crate::reconcilers::app::{self, App, AppReconciler};
use crate::reconcilers::generic_daemon::{self, GenericDaemon, GenericDaemonReconciler};
use crate::reconcilers::memcached::{self, Memcached, MemcachedReconciler};
use crate::reconcilers::workload::{DaemonSet, Deployment};
use crate::reconcilers::{Hands, Pod, Service, Settings, freed_name};
use crate::shutdown::Shutdown;
use crate::workqueue::WorkQueue;

/// What all controllers are made of.
pub(super) struct Parts {
    pub(super) args: Arc<RunArgs>,
    /// Reads and writes of reconcilers; every write asks for leadership.
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) leadership: Option<Leadership>,
    /// Asked for by a signal.
    pub(super) shutdown: Shutdown,
    pub(super) metrics: Arc<Metrics>,
    /// What readiness asks.
    pub(super) ready: Checks,
    /// Ends the informers, when nobody needs them any more.
    pub(super) stop_informers: Shutdown,
    /// Controllers: they end by themselves after `shutdown`.
    pub(super) controllers: Tasks,
    /// Informers: they end after `stop_informers`.
    pub(super) informers: Tasks,
    /// One for each informer.
    pub(super) synced: Vec<tokio::task::JoinHandle<()>>,
}

impl Parts {
    pub(super) fn new(
        args: RunArgs,
        client: Client,
        recorder: Recorder,
        leadership: Option<Leadership>,
        shutdown: Shutdown,
        metrics: Arc<Metrics>,
        ready: Checks,
    ) -> Parts {
        Parts {
            args: Arc::new(args),
            client,
            recorder,
            leadership,
            shutdown,
            metrics,
            ready,
            stop_informers: Shutdown::manual(),
            controllers: Tasks::default(),
            informers: Tasks::default(),
            synced: Vec::new(),
        }
    }

    /// Wires up the controllers that were asked for.
    pub(super) fn wire(&mut self) {
        let wanted = |name| self.args.controllers.contains(&name);
        let (memcached, daemon, app) = (
            wanted(ControllerName::Memcached),
            wanted(ControllerName::GenericDaemon),
            wanted(ControllerName::App),
        );
        let deployments = (memcached || app).then(|| self.informer::<Deployment>());
        let services = (memcached || app).then(|| self.informer::<Service>());
        if let (Some(deployments), Some(services)) = (&deployments, &services) {
            if memcached {
                self.memcached(deployments, services);
            }
            if app {
                self.app(deployments, services);
            }
        }
        if daemon {
            self.generic_daemon();
        }
        // Handlers first, so that none is late.
        deployments.into_iter().for_each(|informer| self.run_informer(informer));
        services.into_iter().for_each(|informer| self.run_informer(informer));
    }

    fn memcached(&mut self, deployments: &Informer<Deployment>, services: &Informer<Service>) {
        let memcacheds = self.informer::<Memcached>();
        let pods = self
            .informer_builder::<Pod>()
            .labels(Pod::scope(None).labels.unwrap_or_default())
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
        let controller = self.controller("memcached", reconciler);
        let queue = controller.handle().queue().clone();
        memcacheds.handle(enqueue::for_object(queue.clone()));
        own(deployments, &queue, Memcached::KIND);
        own(services, &queue, Memcached::KIND);
        pods.handle(enqueue::for_mapped(queue, |pod: &Pod| pod.memcached().into_iter().collect()));
        let ready =
            synced4(memcacheds.clone(), deployments.clone(), services.clone(), pods.clone());
        self.run_controller("memcached", controller, ready);
        self.run_informer(memcacheds);
        self.run_informer(pods);
    }

    fn generic_daemon(&mut self) {
        let (daemons, daemon_sets) =
            (self.informer::<GenericDaemon>(), self.informer::<DaemonSet>());
        let stores =
            generic_daemon::Stores { daemons: daemons.store(), daemon_sets: daemon_sets.store() };
        let reconciler = GenericDaemonReconciler::new(stores, self.hands("genericdaemon"));
        let controller = self.controller("genericdaemon", reconciler);
        let queue = controller.handle().queue().clone();
        daemons.handle(enqueue::for_object(queue.clone()));
        own(&daemon_sets, &queue, GenericDaemon::KIND);
        let (mine, children) = (daemons.clone(), daemon_sets.clone());
        let ready = async move {
            mine.synced().await;
            children.synced().await;
        };
        self.run_controller("genericdaemon", controller, ready);
        self.run_informer(daemons);
        self.run_informer(daemon_sets);
    }

    fn app(&mut self, deployments: &Informer<Deployment>, services: &Informer<Service>) {
        let apps = self.informer::<App>();
        let stores = app::Stores {
            apps: apps.store(),
            deployments: deployments.store(),
            services: services.store(),
        };
        let reconciler = AppReconciler::new(stores, self.hands("app"));
        let controller = self.controller("app", reconciler);
        let queue = controller.handle().queue().clone();
        apps.handle(enqueue::for_object(queue.clone()));
        own(deployments, &queue, App::KIND);
        own(services, &queue, App::KIND);
        let (mine, first, second) = (apps.clone(), deployments.clone(), services.clone());
        let ready = async move {
            mine.synced().await;
            first.synced().await;
            second.synced().await;
        };
        self.run_controller("app", controller, ready);
        self.run_informer(apps);
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

    fn controller<R: Reconciler>(
        &self,
        name: &'static str,
        reconciler: R,
    ) -> Controller<WhileLeading<R>> {
        let reconciler = WhileLeading {
            reconciler,
            leadership: self.leadership.clone(),
            again: self.args.leader_elect_retry_period,
        };
        let options = Options {
            workers: self.args.workers.into(),
            drain: self.args.shutdown_grace,
            observer: self.metrics.clone(),
            queue_observer: Arc::new(self.metrics.queue_observer(name)),
            ..Options::default()
        };
        let controller = Controller::new(name, reconciler, options);
        self.metrics.watch_queue(name, controller.handle().queue());
        controller
    }

    fn run_informer<V: Resource>(&mut self, informer: Informer<V>) {
        self.metrics.watch_informer(&informer);
        servers::check_informer(&self.ready, &informer);
        let (stop, waiting) = (self.stop_informers.clone(), informer.clone());
        self.synced.push(tokio::spawn(async move { waiting.synced().await }));
        self.informers.start(format!("the informer of {}", V::KIND.resource()), async move {
            informer.run(stop).await.map_err(|error| error.to_string())
        });
    }

    /// Runs a controller once what it reads is known and this process leads for the first time.
    fn run_controller<R: Reconciler>(
        &mut self,
        name: &'static str,
        controller: Controller<R>,
        ready: impl Future<Output = ()> + Send + 'static,
    ) {
        let (shutdown, leadership) = (self.shutdown.clone(), self.leadership.clone());
        self.controllers.start(format!("the controller of {name}"), async move {
            let begin = async {
                ready.await;
                if let Some(leadership) = leadership {
                    leadership.reached(Phase::Leading).await;
                }
            };
            tokio::select! {
                () = shutdown.requested() => return Ok(()),
                () = begin => {}
            }
            controller.run(shutdown.requested()).await;
            Ok(())
        });
    }
}

/// Children wake their owner, and, when they free their name, whoever waits for it.
fn own<V: Resource>(children: &Informer<V>, queue: &WorkQueue<ObjectKey>, kind: Kind) {
    children.handle(enqueue::for_owner(queue.clone(), kind));
    let queue = queue.clone();
    children.handle(move |delta, _| {
        if let Some(key) = freed_name(delta) {
            queue.add(key.clone());
        }
    });
}

async fn synced4<A: Resource, B: Resource, C: Resource, D: Resource>(
    a: Informer<A>,
    b: Informer<B>,
    c: Informer<C>,
    d: Informer<D>,
) {
    a.synced().await;
    b.synced().await;
    c.synced().await;
    d.synced().await;
}
