//! A controller by its declarations.

use std::any::TypeId;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::context::Declared;
#[cfg(any(test, feature = "testing"))]
use super::context::Pass;
use super::function::{Finalizer, Function};
use super::kinds::{ControllerDeps, Informers, Step};
use super::wiring::{self, WiringError};
use super::{Context, Manager, Shared};
#[cfg(any(test, feature = "testing"))]
use crate::client::Client;
use crate::controller::{Action, Handle, Name, Options, Problem, Program, Reconciler, enqueue};
use crate::informer;
use crate::object::{ObjectKey, Resource};
use crate::store::{Delta, Index};
use crate::workqueue::Priority;

/// Declares a controller of `V`: what it owns, watches and reads, and how it reconciles.
///
/// Each declaration makes the manager list and watch one more view; a pass can read exactly the
/// views that are declared, and no pass begins before they have synced in the namespace of its key. Where the
/// program works in several namespaces and one may not be listed, the others are worked on.
#[must_use = "a controller is added by `reconcile`, `reconciler` or `run`"]
pub struct ControllerBuilder<V> {
    manager: Manager,
    name: &'static str,
    options: Options,
    declared: Vec<TypeId>,
    owned: Vec<TypeId>,
    filter: Option<Filter<V>>,
    /// Handlers that come before a key is enqueued, for [`ControllerBuilder::reconcile`].
    bookkeeping: Vec<Handler>,
    handlers: Vec<Handler>,
    finalizer: Option<Finalizer<V>>,
    conditions: &'static [&'static str],
    tells_writes: bool,
    on_problem: Option<OnProblem<V>>,
    endings: Vec<(&'static str, Ending)>,
    faults: Vec<WiringError>,
}

/// Sees each problem that ends a pass.
pub(super) type OnProblem<V> = fn(&Context<V>, Problem) -> Problem;
/// Returns whether a change of an object is worth a pass.
pub(super) type Filter<V> = Arc<dyn Fn(&Delta<V>) -> bool + Send + Sync>;
/// Makes what runs once the controller has ended.
type Ending =
    Box<dyn FnOnce(&ControllerDeps) -> Result<BoxFuture<'static, ()>, WiringError> + Send>;
/// Makes a handler, once there is a queue.
type Handler = Box<dyn FnOnce(&ControllerDeps) -> Result<Listen, WiringError> + Send>;
/// Adds a handler to its informer.
pub(super) type Listen = Box<dyn FnOnce() + Send>;

/// A declared controller whose kind is not known.
pub(super) struct Registration {
    pub(super) name: &'static str,
    pub(super) faults: Vec<WiringError>,
    /// The views that it declares.
    pub(super) declared: Arc<[TypeId]>,
    /// Adds it to a program.
    pub(super) add: Add,
}

type Add =
    Box<dyn FnOnce(&Shared, &Arc<Informers>, Program) -> Result<Program, WiringError> + Send>;

/// Wakes the keys that wait for the name of an object that nothing controls, when what it says of itself changes:
/// it may have become known ([`EnsureOptions::adopt`](super::EnsureOptions::adopt)).
fn waiting_when_known<W: Resource>(
    handle: Handle,
) -> impl Fn(&Delta<W>, bool) + Send + Sync + 'static {
    move |delta, _| {
        if let Delta::Updated { old, new, .. } = delta
            && let (old, new) = (old.meta(), new.meta())
            && old.owner.is_none()
            && new.owner.is_none()
            && (&old.labels, &old.annotations) != (&new.labels, &new.annotations)
        {
            handle.wake_waiting(Name { kind: W::KIND, key: new.key.clone() });
        }
    }
}

/// Returns whether an object goes or begins to: no filter hides that from a finalizer.
fn ends<V: Resource>(delta: &Delta<V>) -> bool {
    match delta {
        Delta::Added(..) => false,
        Delta::Updated { old, new, .. } => old.meta().deleting != new.meta().deleting,
        Delta::Deleted(..) => true,
    }
}

/// Has a handler that panics enqueue every object of `V`: nobody knows which keys it would have enqueued.
fn or_enqueue_all<V: Resource, W, H: Fn(&Delta<W>, bool)>(
    parts: &ControllerDeps,
    handler: H,
) -> Result<impl Fn(&Delta<W>, bool) + use<V, W, H>, WiringError> {
    let (objects, handle) = (parts.store::<V>()?, parts.handle());
    Ok(move |delta: &Delta<W>, initial| {
        let handled = catch_unwind(AssertUnwindSafe(|| handler(delta, initial)));
        if let Err(panic) = handled {
            for object in objects.list() {
                handle.queue().add_with(object.key(), Priority::Low);
            }
            resume_unwind(panic); // The informer logs and counts it.
        }
    })
}

/// Makes a handler of the changes of `W`.
fn handler_of<W: Resource, H>(
    make: impl FnOnce(&ControllerDeps) -> Result<H, WiringError> + Send + 'static,
) -> Handler
where
    H: Fn(&Delta<W>, bool) + Send + Sync + 'static,
{
    Box::new(|parts| {
        let (informer, handler) = (parts.informer::<W>()?.clone(), make(parts)?);
        Ok(Box::new(move || informer.handle(handler)))
    })
}

// === impl ControllerBuilder ===

impl<V: Resource> ControllerBuilder<V> {
    pub(super) fn new(mut manager: Manager) -> ControllerBuilder<V> {
        let declared = vec![manager.declarations.read::<V>()];
        let options = manager.defaults.clone();
        // Once per controller and process: names are labels, and live as long as it.
        let name = V::KIND.kind.to_ascii_lowercase().leak();
        ControllerBuilder {
            manager,
            name,
            options,
            declared,
            owned: Vec::new(),
            filter: None,
            bookkeeping: Vec::new(),
            handlers: Vec::new(),
            finalizer: None,
            conditions: &[],
            tells_writes: false,
            on_problem: None,
            endings: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// Names it, for metrics, logs, Events and the records on its children. Default: the kind in lower case. A name
    /// that changes has [`Context::prune`] leave the children alone that were applied under the former one.
    pub fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Has only those changes of an object enqueue it that pass `predicate`, such as
    /// [`generation_changed`](informer::predicate::generation_changed): then another controller's status
    /// wakes nothing. What the other declarations enqueue is not filtered, nor is the first list, nor that an
    /// object goes or begins to.
    pub fn filter(mut self, predicate: impl Fn(&Delta<V>) -> bool + Send + Sync + 'static) -> Self {
        self.filter = Some(Arc::new(move |delta| ends(delta) || predicate(delta)));
        self
    }

    /// Sets how many passes run at a time.
    pub fn workers(mut self, workers: usize) -> Self {
        self.options.workers = workers;
        self
    }

    /// Has an Event tell of each child that [`Context::ensure`] creates, changes, restores or adopts and that
    /// [`Context::prune`] deletes: `DeploymentCreated`, `DeploymentUpdated`, `DeploymentRestored` with the
    /// field that somebody had changed, `DeploymentAdopted`, `DeploymentDeleted`. That is one more request for each write.
    pub fn publish_writes(mut self) -> Self {
        self.tells_writes = true;
        self
    }

    /// Has this function see each problem that ends a pass, also one of a finalizer: to report it in its own
    /// way, and to return it as [`Problem::reported`].
    pub fn on_problem(mut self, on_problem: OnProblem<V>) -> Self {
        self.on_problem = Some(on_problem);
        self
    }

    /// Names the types of the conditions that this controller sets: one that a status leaves out goes
    /// ([`Context::patch_status`]). Conditions of other types stay as they are.
    pub fn conditions(mut self, types: &'static [&'static str]) -> Self {
        self.conditions = types;
        self
    }

    /// Changes its options. The manager sets the connection state, and the observers that this leaves open.
    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// Declares that it creates objects of `C` for its own, with [`Context::ensure`]: each change of
    /// one wakes its owner. An object whose pass found the name of a child taken runs again when that
    /// name becomes free, or when what has it may have become a child to adopt ([`EnsureOptions::adopt`](super::EnsureOptions::adopt)).
    pub fn owns<C: Resource>(mut self) -> Self {
        if V::KIND.namespaced && !C::KIND.namespaced {
            let (controller, view) = (self.name, wiring::view::<C>());
            self.faults.push(WiringError::OwnsClusterScoped { controller, view });
        }
        self.owned.push(self.manager.declarations.own::<V, C>());
        let note = |parts: &ControllerDeps| {
            Ok(enqueue::note_bereaved::<C>(parts.bereaved.clone(), V::KIND))
        };
        self.bookkeeping.push(handler_of::<C, _>(note));
        self.handler::<C, _>(|handle| enqueue::for_owner(handle, V::KIND))
            .handler::<C, _>(enqueue::waiting_when_freed)
            .handler::<C, _>(waiting_when_known)
    }

    /// Declares that the objects of `W` concern others: a change of one wakes the keys that `keys`
    /// returns for it and for its previous state.
    pub fn watches<W: Resource>(
        self,
        keys: impl Fn(&W) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.watches_with(|_| Ok(keys))
    }

    /// Like [`ControllerBuilder::watches`], with a mapping that looks into the stores of declared
    /// views: `keys` is given the parts of which it takes them.
    pub fn watches_with<W: Resource, K>(
        self,
        keys: impl FnOnce(&ControllerDeps) -> Result<K, WiringError> + Send + 'static,
    ) -> Self
    where
        K: Fn(&W) -> Vec<ObjectKey> + Send + Sync + 'static,
    {
        self.listen::<W, _>(|parts| Ok(enqueue::for_mapped(parts.handle(), keys(parts)?)))
    }

    /// Declares that the objects of `V` refer to objects of `R`: `keys` returns to which. A change
    /// of one wakes all that refer to it. They need not exist.
    pub fn refers<R: Resource>(
        mut self,
        keys: impl Fn(&V) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        let kind = R::KIND.resource();
        // The controller may be named later, and several refer to one kind.
        let name = format!("references {} to {kind}", self.manager.declarations.next_reference());
        let index = Index::new(&name, move |object: &V, each| {
            keys(object).iter().for_each(|key| each(key.to_string().into()));
        });
        self.informer::<V>(|builder| builder.index(index)).watches_with::<R, _>(move |parts| {
            let objects = parts.store::<V>()?;
            Ok(move |changed: &R| {
                // There is such an index: it was added above.
                let found = objects.by_index(&name, &changed.key().to_string()).unwrap_or_default();
                found.iter().map(|object| object.key().clone()).collect()
            })
        })
    }

    /// Declares that passes read `R`. Its changes wake no key.
    pub fn reads<R: Resource>(mut self) -> Self {
        let id = self.manager.declarations.read::<R>();
        self.declared.push(id);
        self
    }

    /// Adds a handler of the changes of `W`, such as those of [`enqueue`], for what the other
    /// declarations do not say.
    pub fn handler<W: Resource, H>(self, make: impl FnOnce(Handle) -> H + Send + 'static) -> Self
    where
        H: Fn(&Delta<W>, bool) + Send + Sync + 'static,
    {
        self.listen::<W, _>(|parts| Ok(make(parts.handle())))
    }

    fn listen<W: Resource, H>(
        self,
        make: impl FnOnce(&ControllerDeps) -> Result<H, WiringError> + Send + 'static,
    ) -> Self
    where
        H: Fn(&Delta<W>, bool) + Send + Sync + 'static,
    {
        let mut this = self.reads::<W>();
        this.handlers.push(handler_of(|parts| or_enqueue_all::<V, W, _>(parts, make(parts)?)));
        this
    }

    /// Declares how the informer of `W` is built: with a selector, say, or metadata only. All
    /// controllers that declare `W` read the same informer.
    pub fn informer<W: Resource>(
        mut self,
        adjust: impl FnOnce(informer::Builder<W>) -> informer::Builder<W> + Send + 'static,
    ) -> Self {
        self.manager.declarations.adjust::<W>(Box::new(adjust));
        self.reads::<W>()
    }

    /// Has `cleanup` run before an object goes: no object is reconciled before it has the finalizer
    /// `name` (`example.com/website`), and it keeps it until a cleanup has succeeded. A cleanup that
    /// fails is retried like a pass. It may run more than once for one object. A controller has one
    /// finalizer. An object that has it and that the informer of `V` no longer selects, by a label that was
    /// changed, is not deleted before the label is back.
    pub fn finalizer<C, F>(self, name: &'static str, cleanup: C) -> Self
    where
        C: Fn(Arc<V>, Context<V>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), Problem>> + Send + 'static,
    {
        self.finalizes(name, true, cleanup)
    }

    /// Like [`ControllerBuilder::finalizer`], for objects that do not always need it: a pass adds it with
    /// [`Context::add_finalizer`].
    pub fn cleanup<C, F>(self, name: &'static str, cleanup: C) -> Self
    where
        C: Fn(Arc<V>, Context<V>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), Problem>> + Send + 'static,
    {
        self.finalizes(name, false, cleanup)
    }

    fn finalizes<C, F>(mut self, name: &'static str, is_always: bool, cleanup: C) -> Self
    where
        C: Fn(Arc<V>, Context<V>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), Problem>> + Send + 'static,
    {
        if !wiring::is_qualified(name) {
            let (controller, finalizer) = (self.name, name);
            self.faults.push(WiringError::Finalizer { controller, finalizer });
        }
        if let Some(first) = &self.finalizer {
            let (controller, first) = (self.name, first.name());
            self.faults.push(WiringError::SecondFinalizer { controller, first, second: name });
        }
        self.finalizer = Some(Finalizer::new(name, is_always, cleanup));
        self
    }

    /// Has the future that `make` returns run when the controller has ended, and before the lease is
    /// given up. It has a few seconds, and its writes ask for leadership like all others. `name` is
    /// for people.
    pub fn at_end<F>(
        mut self,
        name: &'static str,
        make: impl FnOnce(&ControllerDeps) -> Result<F, WiringError> + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.endings.push((name, Box::new(|parts| Ok(make(parts)?.boxed()))));
        self
    }

    /// Adds the controller: `reconcile` is one pass over an object that exists and is not being
    /// deleted. An error that a person has to know ([`Problem::reason`]) becomes a Warning Event, once as
    /// long as its reason stays the same.
    pub fn reconcile<F, P, E>(mut self, reconcile: F) -> Manager
    where
        F: Fn(Arc<V>, Context<V>) -> P + Send + Sync + 'static,
        P: Future<Output = Result<Action, E>> + Send + 'static,
        E: Into<Problem> + 'static,
    {
        let declared = self.declared_for_passes();
        let finalizer = self.finalizer.take();
        let on_problem = self.on_problem.unwrap_or(|_, problem| problem);
        let first = std::mem::take(&mut self.bookkeeping);
        self.add(first, move |parts| {
            Function::new(parts, reconcile, (finalizer, on_problem), declared)
        })
    }

    fn declared_for_passes(&mut self) -> Declared {
        Declared {
            owned: std::mem::take(&mut self.owned),
            conditions: self.conditions,
            tells_writes: self.tells_writes,
            finalizer: self.finalizer.as_ref().map(Finalizer::name),
        }
    }

    /// Adds the controller with a [`Reconciler`] that is made of its parts; it is also called for
    /// objects that are being deleted, and for keys whose object is gone.
    pub fn reconciler<R: Reconciler>(
        mut self,
        make: impl FnOnce(&ControllerDeps) -> Result<R, WiringError> + Send + 'static,
    ) -> Manager {
        let unused = [
            ("finalizer", self.finalizer.is_some()),
            ("conditions", !self.conditions.is_empty()),
            ("publish_writes", self.tells_writes),
            ("on_problem", self.on_problem.is_some()),
        ];
        let controller = self.name;
        let unused = unused.into_iter().filter(|(_, is_declared)| *is_declared);
        let unused = unused.map(|(declaration, _)| WiringError::Unused { controller, declaration });
        self.faults.extend(unused);
        self.add(Vec::new(), make)
    }

    fn add<R: Reconciler>(
        mut self,
        first: Vec<Handler>,
        make: impl FnOnce(&ControllerDeps) -> Result<R, WiringError> + Send + 'static,
    ) -> Manager {
        let (filter, handlers) = (self.filter.clone(), self.all_handlers(first));
        let ControllerBuilder { mut manager, name, options, declared, .. } = self;
        let (endings, faults) = (self.endings, self.faults);
        let declared: Arc<[TypeId]> = declared.into();
        let views = declared.clone();
        let add: Add = Box::new(move |shared, informers, program| {
            let mut parts = shared.parts(name, informers.clone(), declared.clone());
            let step = Step {
                controller: name,
                is_held_back: AtomicBool::default(),
                informers: informers.clone(),
                views: declared.clone(),
            };
            let (reconciler, informer) = (make(&parts)?, parts.informer::<V>()?);
            let options = shared.observed(name, options);
            let (of_barrier, views) = (informers.clone(), declared.clone());
            let barrier = shared.lead.barrier(name, move |term| of_barrier.refreshed(&views, term));
            let of_objects = (informer, filter);
            let (mut program, controller, first) = shared.lead.control(
                program,
                name,
                (reconciler, step, options),
                of_objects,
                &barrier,
            );
            for (name, ending) in endings {
                let ending = ending(&parts)?;
                program = program.task(name, |stop| async move {
                    stop.requested().await;
                    ending.await;
                });
            }
            shared.watch_queue(name, &controller.handle());
            parts.handle = Some(controller.handle());
            let listens = handlers.into_iter().map(|handler| handler(&parts));
            let listens = listens.collect::<Result<Vec<Listen>, _>>()?;
            let settled = informers.settled(&declared);
            // Not earlier: no worker would drain what a standby enqueues, or what is enqueued while
            // a kind is not served. A handler added late is called for everything already there.
            let ready = async move {
                settled.await;
                barrier.passed().await;
                first();
                listens.into_iter().for_each(|listen| listen());
            };
            Ok(program.controller_after(ready, controller))
        });
        manager.controllers.push(Registration { name, faults, declared: views, add });
        manager
    }

    /// The handlers, in the order in which each change is shown to them.
    fn all_handlers(&mut self, first: Vec<Handler>) -> Vec<Handler> {
        let filter = self.filter.take();
        let enqueue = handler_of::<V, _>(|parts: &ControllerDeps| {
            let enqueue = enqueue::for_object(parts.handle());
            or_enqueue_all::<V, V, _>(parts, move |delta: &Delta<V>, initial| {
                if filter.as_ref().is_none_or(|filter| filter(delta)) {
                    enqueue(delta, initial);
                }
            })
        });
        first.into_iter().chain([enqueue]).chain(std::mem::take(&mut self.handlers)).collect()
    }

    /// The context of a pass over `object`, for unit tests of a reconcile function: its stores are empty
    /// until the test shows them objects ([`Store::apply_read`](crate::store::Store::apply_read)), and `client`
    /// may be one of [`Client::from_service`]. Nothing is listed or watched.
    ///
    /// # Errors
    /// If the manager cannot be wired.
    #[cfg(any(test, feature = "testing"))]
    pub fn context(
        mut self,
        client: Client,
        recorder: crate::events::Recorder,
        object: V,
    ) -> Result<Context<V>, WiringError> {
        let passes = self.declared_for_passes();
        let ControllerBuilder { manager, name, declared, .. } = self;
        let shared = Shared {
            client,
            recorder,
            namespaces: manager.namespaces,
            lead: Default::default(),
            #[cfg(feature = "metrics")]
            observed: manager.observed,
        };
        let informers = Arc::new(manager.declarations.build(&shared));
        let parts = shared.parts(name, informers, declared.into());
        let pass = Pass::new(&parts, passes)?;
        let object = pass.objects.apply_read(object);
        Ok(Context::new(Arc::new(pass), object))
    }

    /// Adds the controller and runs the manager: [`Manager::run`].
    pub async fn run<F, P, E>(self, reconcile: F) -> std::process::ExitCode
    where
        F: Fn(Arc<V>, Context<V>) -> P + Send + Sync + 'static,
        P: Future<Output = Result<Action, E>> + Send + 'static,
        E: Into<Problem> + 'static,
    {
        self.reconcile(reconcile).run().await
    }
}
