//! The builder of a controller.

use std::any::TypeId;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use parking_lot::Mutex;

use super::context::{ControllerState, Declared, Labelled};
use super::function::{Call, Finalizer, Function, OnProblem};
use super::handlers::{Filter, Handlers, ends, enqueue_all, filtered, handler_of, or_enqueue_all};
use super::kinds::{ControllerDeps, Informers};
use super::leading::Term;
use super::wiring::{self, WiringError};
use super::{Context, Manager, Shared};
#[cfg(any(test, feature = "testing"))]
use crate::client::Client;
use crate::controller::{Action, Controller, Handle, Options, Program, ReconcileError, enqueue};
use crate::object::{MetadataFilter, ObjectKey, Resource, leak};
use crate::store::{Delta, Index};

/// Declares a controller of `V`: what it owns, watches and reads, and how it reconciles.
///
/// The manager lists and watches every declared view. A reconcile can read only these views, and begins after they have
/// synced in the namespace of its key. If one of several namespaces cannot be listed, the others are still reconciled.
#[must_use = "a controller is added by `reconcile` or `run`"]
pub struct ControllerBuilder<V> {
    manager: Manager,
    name: &'static str,
    options: Vec<Change>,
    /// The views that it reads.
    views: Vec<TypeId>,
    declared: Declared,
    handlers: Handlers,
    finalizer: Option<Finalizer<V>>,
    on_error: OnProblem<V>,
    endings: Vec<(&'static str, Ending)>,
}

/// Creates the future that runs after the controller has ended.
type Ending =
    Box<dyn FnOnce(&ControllerDeps) -> Result<BoxFuture<'static, ()>, WiringError> + Send>;
/// A declared controller, without the type of its kind.
pub(super) struct Registration {
    pub(super) name: &'static str,
    /// The views that it reads.
    pub(super) views: Arc<[TypeId]>,
    /// Adds it to a program.
    pub(super) add: Add,
}

/// Changes the options of a controller.
type Change = Box<dyn FnOnce(&mut Options) + Send>;

type Add =
    Box<dyn FnOnce(&Shared, &Arc<Informers>, Program) -> Result<Program, WiringError> + Send>;

opaque!(ControllerBuilder<V>);

// === impl ControllerBuilder ===

impl<V: Resource> ControllerBuilder<V> {
    pub(super) fn new(mut manager: Manager) -> ControllerBuilder<V> {
        let views = vec![manager.declarations.read::<V>()];
        let kind = Some(V::kind().kind).filter(|kind| !kind.is_empty());
        let name = kind.unwrap_or_else(wiring::view::<V>).to_ascii_lowercase();
        ControllerBuilder {
            manager,
            name: leak(name),
            options: Vec::new(),
            views,
            declared: Declared::default(),
            handlers: Handlers { filtered: vec![TypeId::of::<V>()], ..Handlers::default() },
            finalizer: None,
            on_error: Box::new(|_, problem| problem),
            endings: Vec::new(),
        }
    }

    /// Sets the controller's name for metrics, logs, Events and the records on its owned objects. Default: the kind
    /// in lower case. After a rename, [`Context::prune`] ignores objects that were applied under the old name.
    pub fn named(mut self, name: impl AsRef<str>) -> Self {
        self.name = leak(name);
        self
    }

    /// Ignores changes of `W` that do not pass `predicate`. For example, `.filter::<Foo>(generation_changed)` ignores
    /// status updates ([`generation_changed`](crate::informer::predicate::generation_changed)). `W` is the controller's own
    /// kind, or a kind that it owns, watches or refers to; [`ControllerBuilder::handler`] is not filtered. The start
    /// and the end of a deletion and a change of the owner pass every filter. If a kind has several filters, a change
    /// must pass all of them.
    pub fn filter<W: Resource>(
        mut self,
        predicate: impl Fn(&Delta<W>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let before = self.handlers.filters.of::<W>();
        let both: Filter<W> =
            Arc::new(move |delta| ends(delta) || (before(delta) && predicate(delta)));
        let filter = (wiring::view::<W>(), Arc::new(both) as _);
        self.handlers.filters.0.insert(TypeId::of::<W>(), filter);
        self
    }

    /// Sets the number of concurrent reconciles.
    pub fn workers(self, workers: usize) -> Self {
        self.options(move |options| options.workers = workers)
    }

    /// Publishes an Event for each owned object that [`Context::ensure`] creates, changes, restores or adopts, and for
    /// each that [`Context::prune`] deletes: `DeploymentCreated`, `DeploymentUpdated`, `DeploymentRestored` with the
    /// changed field, `DeploymentAdopted`, `DeploymentDeleted`. Each Event costs one request. A write whose response is
    /// lost has no Event.
    pub fn publish_writes(mut self) -> Self {
        self.declared.publishes_writes = true;
        self
    }

    /// Calls this function with each problem that ends a reconcile or a cleanup. The function can report the problem
    /// itself and return it as [`ReconcileError::reported`].
    pub fn on_error(
        mut self,
        on_error: impl Fn(&Context<V>, ReconcileError) -> ReconcileError + Send + Sync + 'static,
    ) -> Self {
        self.on_error = Box::new(on_error);
        self
    }

    /// Declares the condition types that this controller sets. [`Context::patch_status`] removes conditions of these
    /// types that the new status lacks, and keeps all others.
    pub fn conditions(mut self, types: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.declared.conditions = types.into_iter().map(leak).collect();
        self
    }

    /// Changes its options. The manager sets `api_server_health`.
    pub fn options(mut self, change: impl FnOnce(&mut Options) + Send + 'static) -> Self {
        self.options.push(Box::new(change));
        self
    }

    /// Declares that it creates objects of `C` with [`Context::ensure`]: each change of one enqueues its owner. An
    /// owner that needs a taken name is enqueued when the name becomes free. It is also enqueued when the object with
    /// that name changes and may have become adoptable ([`EnsureOptions::adopt`](super::EnsureOptions::adopt)).
    ///
    /// ```
    /// # use controller_machinery::{manager::ControllerBuilder, object::Typed};
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # fn example(controller: ControllerBuilder<Typed<ConfigMap>>) {
    /// let controller = controller.owns::<Typed<Secret>>();
    /// # drop(controller);
    /// # }
    /// ```
    pub fn owns<C: Resource>(mut self) -> Self {
        if V::kind().namespaced && !C::kind().namespaced {
            let (controller, view) = (self.name, wiring::view::<C>());
            self.manager.faults.push(WiringError(format!(
                "the controller {controller} owns {view}, but its own kind is namespaced and that of {view} is not: the \
                 garbage collector would delete such children; use `.watches::<{view}>(…)`"
            )));
        }
        self.owns_once::<C>();
        self.loses::<C, _>(|_| {
            Ok(|child: &C| enqueue::owner(&V::kind(), child).into_iter().collect())
        });
        self.index::<C>(Index::by_controller::<V>())
            .enqueues::<C, _>(|parts| Ok(enqueue::for_owner(parts.handle(), V::kind())))
            .handler::<C, _>(enqueue::waiting_when_freed)
    }

    /// Like [`ControllerBuilder::owns`], for objects that cannot have an owner reference because they are
    /// cluster-scoped or in other namespaces. The label `label` contains the UID of their owner. [`Context::ensure`]
    /// reads the namespace from their metadata and sets the label. The garbage collector does not delete them, so the
    /// controller needs a finalizer: `.finalizer(NAME, async |_, cx| cx.prune::<C>(|_| false).await)`.
    ///
    /// Objects without the label, or with that of a former owner, are not changed
    /// ([`EnsureOptions::adopt`](super::EnsureOptions::adopt) does not apply). A copy with the label that a user
    /// creates belongs to the owner, too. Each controller needs its own label.
    pub fn owns_labelled<C: Resource>(mut self, label: impl AsRef<str>) -> Self {
        let label = leak(label);
        if !C::MetadataFilter::label(label) {
            let (controller, view) = (self.name, wiring::view::<C>());
            self.manager.faults.push(WiringError(format!(
                "the controller {controller} owns {view} by the label {label:?}, which its view does not keep: use \
                 `Meta<AllMetadata>`, a `MetadataFilter` with this label, or `Typed`"
            )));
        }
        // Unique, because several controllers can own a view by different labels.
        let mut index_of = |what: &str| {
            format!("{what} by {label} {}", self.manager.declarations.next_reference())
        };
        let (children, owners) = (index_of("owned"), index_of("owners"));
        let uid = |child: &C| child.meta().labels.get(label).cloned();
        let index =
            Index::new(&children, move |child: &C, each| uid(child).into_iter().for_each(each));
        let by_uid = Index::new(&owners, |owner: &V, each| each(owner.uid().to_string().into()));
        self.owns_once::<C>();
        self.declared.labelled.push(Labelled { view: TypeId::of::<C>(), label, index: children });
        self.handlers.filtered.push(TypeId::of::<C>());
        let owners_of = move |parts: &ControllerDeps| -> Result<_, WiringError> {
            let (objects, owners) = (parts.store::<V>()?, owners.clone());
            Ok(move |child: &C| {
                let uid = child.meta().labels.get(label);
                // The index always exists: it is added below.
                let found = uid.and_then(|uid| objects.by_index(&owners, uid).ok());
                found.into_iter().flatten().map(|owner| owner.key().clone()).collect::<Vec<_>>()
            })
        };
        self.loses::<C, _>(owners_of.clone());
        self.index::<C>(index)
            .index::<V>(by_uid)
            .listen::<C, _>(move |parts| {
                let enqueue = enqueue::for_mapped(parts.handle(), owners_of(parts)?);
                let passes = parts.filters.of::<C>();
                Ok(move |delta: &Delta<C>, initial: bool| {
                    let is_of_another =
                        matches!(delta, Delta::Updated { old, new } if uid(old) != uid(new));
                    if is_of_another || passes(delta) {
                        enqueue(delta, initial);
                    }
                })
            })
            .handler::<C, _>(enqueue::waiting_when_freed)
    }

    fn owns_once<C: Resource>(&mut self) {
        if self.declared.owned.contains(&TypeId::of::<C>()) {
            let (controller, view) = (self.name, wiring::view::<C>());
            self.manager.faults.push(WiringError(format!(
                "the controller {controller} owns {view} twice: keep one of `.owns` and `.owns_labelled`, or declare a \
                 second view of the kind"
            )));
        }
        self.declared.owned.push(TypeId::of::<C>());
    }

    /// Records the owners of each object of `C` that is deleted.
    fn loses<C: Resource, K>(
        &mut self,
        owners_of: impl FnOnce(&ControllerDeps) -> Result<K, WiringError> + Send + 'static,
    ) where
        K: Fn(&C) -> Vec<ObjectKey> + Send + Sync + 'static,
    {
        self.handlers.recording.push(handler_of(move |parts| {
            let (owners, lost_children) = (owners_of(parts)?, parts.lost_children.clone());
            Ok(move |delta: &Delta<C>, _: bool| {
                if let Delta::Deleted(gone) = delta {
                    lost_children.lock().extend(owners(gone));
                }
            })
        }));
    }

    /// Enqueues the keys that `keys` returns for the old and the new state of each object of `W` that changes.
    ///
    /// ```
    /// # use controller_machinery::{manager::ControllerBuilder, object::{Object, Typed}};
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # fn example(controller: ControllerBuilder<Typed<ConfigMap>>) {
    /// // The ConfigMap of the same name.
    /// let controller = controller.watches::<Typed<Secret>>(|secret| vec![secret.key().clone()]);
    /// # drop(controller);
    /// # }
    /// ```
    pub fn watches<W: Resource>(
        self,
        keys: impl Fn(&W) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.watches_with(|_| Ok(keys))
    }

    /// Like [`ControllerBuilder::watches`], for a mapping that reads the stores of declared views. `keys` receives the
    /// parts that contain them.
    pub fn watches_with<W: Resource, K>(
        self,
        keys: impl FnOnce(&ControllerDeps) -> Result<K, WiringError> + Send + 'static,
    ) -> Self
    where
        K: Fn(&W) -> Vec<ObjectKey> + Send + Sync + 'static,
    {
        self.enqueues::<W, _>(|parts| Ok(enqueue::for_mapped(parts.handle(), keys(parts)?)))
    }

    /// Declares that the objects of `V` refer to objects of `R`. `keys` returns the keys of the latter, which can be
    /// missing. A change of one enqueues all objects that refer to it.
    pub fn references<R: Resource>(
        mut self,
        keys: impl Fn(&V) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        let kind = R::kind().resource();
        // Unique, because the controller can be renamed and several can refer to one kind.
        let name = format!("references {} to {kind}", self.manager.declarations.next_reference());
        let index = Index::new(&name, move |object: &V, each| {
            keys(object).iter().for_each(|key| each(key.to_string().into()));
        });
        self.index::<V>(index).watches_with::<R, _>(move |parts| {
            let objects = parts.store::<V>()?;
            Ok(move |changed: &R| {
                // The index always exists: it was added above.
                let found = objects.by_index(&name, &changed.key().to_string()).unwrap_or_default();
                found.iter().map(|object| object.key().clone()).collect()
            })
        })
    }

    /// Declares that reconciles read `R`. Its changes enqueue nothing.
    pub fn reads<R: Resource>(mut self) -> Self {
        let id = self.manager.declarations.read::<R>();
        self.views.push(id);
        self
    }

    /// Adds a handler of the changes of `W`, such as those of [`enqueue`], for cases that no other declaration
    /// covers.
    pub fn handler<W: Resource, H>(self, make: impl FnOnce(Handle) -> H + Send + 'static) -> Self
    where
        H: Fn(&Delta<W>, bool) + Send + Sync + 'static,
    {
        self.listen::<W, _>(|parts| Ok(make(parts.handle())))
    }

    /// Adds a handler of the changes that pass the filters of `W`.
    fn enqueues<W: Resource, H>(
        self,
        make: impl FnOnce(&ControllerDeps) -> Result<H, WiringError> + Send + 'static,
    ) -> Self
    where
        H: Fn(&Delta<W>, bool) + Send + Sync + 'static,
    {
        let mut this = self;
        this.handlers.filtered.push(TypeId::of::<W>());
        this.listen::<W, _>(|parts| Ok(filtered(parts, make(parts)?)))
    }

    fn listen<W: Resource, H>(
        self,
        make: impl FnOnce(&ControllerDeps) -> Result<H, WiringError> + Send + 'static,
    ) -> Self
    where
        H: Fn(&Delta<W>, bool) + Send + Sync + 'static,
    {
        let mut this = self.reads::<W>();
        let handler = handler_of(|parts| or_enqueue_all::<V, W, _>(parts, make(parts)?));
        this.handlers.enqueuing.push(handler);
        this
    }

    /// Declares that reconciles read `W`, and adds an index to its informer.
    fn index<W: Resource>(mut self, index: Index<W>) -> Self {
        self.manager.declarations.adjust::<W>(Box::new(|builder| builder.index(index)));
        self.reads::<W>()
    }

    /// Runs `cleanup` before an object is deleted. The finalizer `name` (`example.com/website`) is added before the
    /// first reconcile and removed after a cleanup has succeeded. A failed cleanup is retried like a reconcile, and a
    /// cleanup can run more than once. A controller has at most one finalizer. The program's account needs the
    /// permission to `patch` objects of `V`.
    ///
    /// If an object with the finalizer stops matching the informer's selector, its cleanup does not run, and its
    /// deletion hangs until it matches again.
    ///
    /// ```
    /// # use controller_machinery::{manager::ControllerBuilder, object::{Object, Typed}};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # fn example(controller: ControllerBuilder<Typed<ConfigMap>>) {
    /// let controller = controller.finalizer("example.com/bucket", async |config, _| {
    ///     println!("{} goes: its bucket is deleted", config.key());
    ///     Ok(())
    /// });
    /// # drop(controller);
    /// # }
    /// ```
    pub fn finalizer<C, F>(self, name: impl AsRef<str>, cleanup: C) -> Self
    where
        C: Fn(Arc<V>, Context<V>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), ReconcileError>> + Send + 'static,
    {
        self.finalizes(leak(name), true, Box::new(move |object, cx| cleanup(object, cx).boxed()))
    }

    /// Like [`ControllerBuilder::finalizer`], for objects that do not always need it: a reconcile adds it with
    /// [`Context::add_finalizer`].
    pub fn cleanup<C, F>(self, name: impl AsRef<str>, cleanup: C) -> Self
    where
        C: Fn(Arc<V>, Context<V>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), ReconcileError>> + Send + 'static,
    {
        self.finalizes(leak(name), false, Box::new(move |object, cx| cleanup(object, cx).boxed()))
    }

    fn finalizes(mut self, name: &'static str, is_always: bool, cleanup: Call<V, ()>) -> Self {
        if !wiring::is_qualified(name) {
            let (controller, finalizer) = (self.name, name);
            // Of a custom resource, the API server only warns, and existing objects can have the name.
            match wiring::is_custom(V::kind().group) {
                true => tracing::warn!(
                    controller,
                    finalizer,
                    "The name of the finalizer is not qualified; Kubernetes recommends a name such as \
                     example.com/{finalizer}"
                ),
                // The API server refuses it.
                false => self.manager.faults.push(WiringError(format!(
                    "the controller {controller} has a finalizer {finalizer:?}: its name must be qualified, \
                     `.finalizer(\"example.com/{controller}\", …)`"
                ))),
            }
        }
        if let Some(first) = self.declared.finalizer.replace(name) {
            let controller = self.name;
            self.manager.faults.push(WiringError(format!(
                "the controller {controller} has the finalizers {first:?} and {name:?}: declare one, whose cleanup does \
                 both"
            )));
        }
        self.finalizer = Some(Finalizer { name, cleanup, is_always });
        self
    }

    /// Runs the future that `make` returns after the controller has ended and before the lease is released. It has a
    /// few seconds, and its writes require leadership like all others. `name` appears in messages only.
    pub fn on_shutdown<F: Future<Output = ()> + Send + 'static>(
        mut self,
        name: impl AsRef<str>,
        make: impl FnOnce(&ControllerDeps) -> Result<F, WiringError> + Send + 'static,
    ) -> Self {
        self.endings.push((leak(name), Box::new(|parts| Ok(make(parts)?.boxed()))));
        self
    }

    /// Adds the controller. `reconcile` is called for objects that exist and are not being deleted. An error with a
    /// reason ([`ReconcileError::reason`]) is published as a Warning Event, once while its sentence stays the same.
    pub fn reconcile<F, P, E>(mut self, reconcile: F) -> Manager
    where
        F: Fn(Arc<V>, Context<V>) -> P + Send + Sync + 'static,
        P: Future<Output = Result<Action, E>> + Send + 'static,
        E: Into<ReconcileError> + 'static,
    {
        let controller = self.name;
        if !self.declared.labelled.is_empty() && self.finalizer.is_none() {
            self.manager.faults.push(WiringError(format!(
                "the controller {controller} owns objects by a label, which the garbage collector does not delete: add \
                 `.finalizer(\"example.com/{controller}\", async |_, cx| cx.prune::<VIEW>(|_| false).await)`"
            )));
        }
        let idle = self.handlers.filters_of_nothing();
        self.manager.faults.extend(idle.map(|view| {
            WiringError(format!(
                "the controller {controller} has a `.filter::<{view}>(…)`, but no change of {view} enqueues anything: add \
                 `.owns::<{view}>()`, `.watches::<{view}>(…)` or `.references::<{view}>(…)`, or remove the filter"
            ))
        }));
        self.register(Box::new(move |object, cx| reconcile(object, cx).map_err(E::into).boxed()))
    }

    fn register(mut self, reconcile: Call<V, Action>) -> Manager {
        let (name, views) = (self.name, Arc::<[TypeId]>::from(self.views));
        let read = views.clone();
        let add: Add = Box::new(move |shared, informers, mut program| {
            let filters = self.handlers.filters.clone();
            let parts = shared.parts(name, informers.clone(), views.clone(), filters);
            let term = Arc::new(Term::of(shared.lead.clone()));
            let state = Arc::new(ControllerState::new(&parts, self.declared)?);
            let function = Function {
                controller: state.clone(),
                reconcile,
                finalizer: self.finalizer,
                on_error: self.on_error,
                term: term.clone(),
                held_back: Mutex::default(),
            };
            let mut all = shared.options.clone();
            self.options.into_iter().for_each(|change| change(&mut all));
            let api_server_health = Some(shared.client.api_server_health().clone());
            let controller = Controller::new(name, function, Options { api_server_health, ..all });
            let handle = controller.handle();
            // Until the term begins.
            handle.queue.shut_down();
            for (name, ending) in self.endings {
                let ending = ending(&parts)?;
                program = program.task(name, |stop| async move {
                    stop.requested().await;
                    ending.await;
                });
            }
            if let Some(metrics) = &shared.observed.metrics {
                metrics.watch_queue(name, &handle.queue);
            }
            // The handle is of this controller, so this cannot fail.
            let _ = parts.handle.set(handle.clone());
            let mut listens = Some(self.handlers.listens::<V>(&parts)?);
            // Adding handlers earlier would fill the queue without a worker, on a standby or while a kind is not
            // served. A handler that is added late receives all stored objects.
            let begin = move || match listens.take() {
                Some(listens) => listens.into_iter().for_each(|listen| listen()),
                None => {
                    state.forget_deleted();
                    enqueue_all(&state.objects, &handle);
                }
            };
            let synced = informers.synced(&views);
            let informers = informers.clone();
            Ok(program.controller_run(name, |stop| async move {
                tokio::select! {
                    biased;
                    () = stop.requested() => return,
                    () = synced => {}
                }
                let refresh = |number| informers.refreshed(&views, number);
                term.run(controller, refresh, begin, stop).await;
            }))
        });
        self.manager.controllers.push(Registration { name, views: read, add });
        self.manager
    }

    /// Returns a context over `object` for unit tests of a reconcile function. Nothing is listed or watched: the stores
    /// are empty until the test adds objects ([`Store::apply_read`](crate::store::Store::apply_read)). `client` can
    /// come from [`Client::from_service`].
    ///
    /// # Errors
    /// If the manager cannot be wired.
    #[cfg(any(test, feature = "testing"))]
    pub fn context(
        self,
        client: Client,
        recorder: crate::events::Recorder,
        object: V,
    ) -> Result<Context<V>, WiringError> {
        let ControllerBuilder { manager, name, views, declared, handlers, .. } = self;
        let shared = Shared {
            client,
            recorder,
            namespaces: manager.namespaces,
            options: manager.defaults,
            lead: Default::default(),
            observed: manager.observed,
        };
        let (informers, _) = manager.declarations.build(&shared, &mut Program::new());
        let parts = shared.parts(name, informers, views.into(), handlers.filters);
        let controller = ControllerState::new(&parts, declared)?;
        let object = controller.objects.apply_read(object);
        Ok(Context::new(Arc::new(controller), object))
    }

    /// Adds the controller and runs the manager: [`Manager::run`].
    pub async fn run<F, P, E>(self, reconcile: F) -> std::process::ExitCode
    where
        F: Fn(Arc<V>, Context<V>) -> P + Send + Sync + 'static,
        P: Future<Output = Result<Action, E>> + Send + 'static,
        E: Into<ReconcileError> + 'static,
    {
        self.reconcile(reconcile).run().await
    }
}
