//! The declared views and their informers.

use std::any::{Any, TypeId};
use std::collections::HashSet;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::Shared;
use super::handlers::Filters;
use super::wiring::{WiringError, view};
use crate::client::Client;
use crate::controller::{Handle, Program};
use crate::events::Recorder;
use crate::informer::{BuildError, Builder, Informer};
use crate::object::{ObjectKey, Resource};
use crate::store::{Index, Store};

/// The declared views, in the order of declaration. Two views of one kind have separate stores.
#[derive(Default)]
pub(super) struct Declarations {
    of: Vec<(TypeId, Box<dyn Declared>)>,
    /// Number of references that were declared.
    references: usize,
}

/// The informers of all declared views.
pub(super) struct Informers(Vec<(TypeId, Box<dyn AnyInformer>)>);

/// Adjusts how an informer is built.
type Adjust<V> = Box<dyn FnOnce(Builder<V>) -> Builder<V> + Send>;

/// A declared view.
struct Declaration<V> {
    /// Adjustments by the program, for all controllers.
    by_program: Vec<Adjust<V>>,
    by_controllers: Vec<Adjust<V>>,
}

/// The informer of a declared view.
struct Built<V> {
    informer: Informer<V>,
    is_narrowed: bool,
    is_of_program: bool,
}

/// A [`Declaration`], without the type of its view.
trait Declared: Send {
    fn build(self: Box<Self>, shared: &Shared) -> Box<dyn AnyInformer>;
    fn as_any(&mut self) -> &mut dyn Any;
}

/// A [`Built`], without the type of its view.
trait AnyInformer: Send + Sync {
    fn run_by(&self, program: &mut Program);
    fn synced_except_forbidden(&self) -> Synced;
    fn has_synced_in(&self, namespace: &str) -> bool;
    fn refused(&self) -> Option<&BuildError>;
    /// Returns the view's type, if a controller declares a label or field selector for the informer.
    fn is_narrowed(&self) -> Option<&'static str>;
    /// Returns the view's type, if the program adjusts the informer.
    fn is_of_program(&self) -> Option<&'static str>;
    /// Lists the current state of the API server again.
    fn refresh(&self, term: u64) -> Synced;
    fn as_any(&self) -> &dyn Any;
}

/// Completes when an informer is ready, see [`Informer::synced_except_forbidden`].
pub(super) type Synced = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The parts of a controller: its client, its recorder of Events, its queue, and the stores of its views.
#[derive(Clone)]
pub struct ControllerDeps {
    pub(super) controller: &'static str,
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    /// Empty until the controller has been created.
    pub(super) handle: Arc<OnceLock<Handle>>,
    pub(super) informers: Arc<Informers>,
    pub(super) declared: Arc<[TypeId]>,
    pub(super) filters: Filters,
    /// Owners that lost an owned object and whose existence has not been confirmed with the API server since.
    pub(super) lost_children: Arc<Mutex<HashSet<ObjectKey>>>,
}

// === impl Declarations ===

impl Declarations {
    /// Returns a unique number for an index of references.
    pub(super) fn next_reference(&mut self) -> usize {
        self.references += 1;
        self.references
    }

    fn of<V: Resource>(&mut self) -> &mut Declaration<V> {
        let id = TypeId::of::<V>();
        let at = self.of.iter().position(|(known, _)| *known == id).unwrap_or_else(|| {
            let none = Declaration::<V> { by_program: Vec::new(), by_controllers: Vec::new() };
            self.of.push((id, Box::new(none)));
            self.of.len() - 1
        });
        self.of[at].1.as_any().downcast_mut().expect("it was declared under the ID of its type")
    }

    /// Declares that a controller reads `V`, and returns the ID of `V`.
    pub(super) fn read<V: Resource>(&mut self) -> TypeId {
        let _ = self.of::<V>();
        TypeId::of::<V>()
    }

    /// Declares that objects of `V` are found by their controller `P`.
    pub(super) fn own<P: Resource, V: Resource>(&mut self) -> TypeId {
        self.adjust::<V>(Box::new(|builder| builder.index(Index::by_controller::<P>())));
        TypeId::of::<V>()
    }

    /// Adds a controller's adjustment of the informer of `V`.
    pub(super) fn adjust<V: Resource>(&mut self, adjust: Adjust<V>) {
        self.of::<V>().by_controllers.push(adjust);
    }

    /// Adds the program's adjustment of the informer of `V`.
    pub(super) fn adjust_for_all<V: Resource>(&mut self, adjust: Adjust<V>) {
        self.of::<V>().by_program.push(adjust);
    }

    pub(super) fn build(self, shared: &Shared) -> Informers {
        let build = |(id, declared): (TypeId, Box<dyn Declared>)| (id, declared.build(shared));
        Informers(self.of.into_iter().map(build).collect())
    }
}

impl<V: Resource> Declared for Declaration<V> {
    fn build(self: Box<Self>, shared: &Shared) -> Box<dyn AnyInformer> {
        let mut builder = Informer::<V>::builder(shared.client.clone());
        if V::kind().namespaced {
            builder = builder.namespaces(shared.namespaces.iter().cloned());
        }
        if let Some(observer) = shared.reflector_observer() {
            builder = builder.observer(observer);
        }
        let is_of_program = !self.by_program.is_empty();
        let builder = self.by_program.into_iter().fold(builder, |b, adjust| adjust(b));
        let all = builder.selection();
        let builder = self.by_controllers.into_iter().fold(builder, |b, adjust| adjust(b));
        let is_narrowed = builder.selection() != all;
        let informer = builder.build();
        shared.watch_informer(&informer);
        Box::new(Built { informer, is_narrowed, is_of_program })
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

// === impl Informers ===

impl Informers {
    fn find(&self, id: TypeId) -> Option<&dyn AnyInformer> {
        self.0.iter().find(|(known, _)| *known == id).map(|(_, informer)| &**informer)
    }

    fn get<V: Resource>(&self) -> Option<&Informer<V>> {
        self.find(TypeId::of::<V>())?.as_any().downcast_ref()
    }

    /// Completes when the informers of all `views` are ready, see [`Informer::synced_except_forbidden`].
    pub(super) fn synced_except_forbidden(
        &self,
        views: &[TypeId],
    ) -> impl Future<Output = ()> + Send + use<> {
        let informers: Vec<_> = views.iter().filter_map(|id| self.find(*id)).collect();
        let all = futures::future::join_all(
            informers.into_iter().map(AnyInformer::synced_except_forbidden),
        );
        async move { drop(all.await) }
    }

    /// Returns whether the informers of all `views` have synced in this namespace.
    pub(super) fn have_synced_in(&self, views: &[TypeId], namespace: &str) -> bool {
        views.iter().filter_map(|id| self.find(*id)).all(|it| it.has_synced_in(namespace))
    }

    /// Completes when the informers of all `views` have listed the API server's state at the beginning of this term.
    pub(super) fn refreshed(&self, views: &[TypeId], term: u64) -> Synced {
        let listed: Vec<_> = views.iter().filter_map(|id| self.find(*id)).collect();
        let all =
            futures::future::join_all(listed.into_iter().map(|informer| informer.refresh(term)));
        Box::pin(async move { drop(all.await) })
    }

    /// Returns the faults of informers that cannot work as declared.
    pub(super) fn refused(&self) -> Vec<WiringError> {
        let refusals = self.0.iter().filter_map(|(_, informer)| informer.refused());
        refusals.map(|refusal| refusal.clone().into()).collect()
    }

    /// Returns the faults of shared informers: views that one controller restricts by a selector and another one reads,
    /// and views that the program adjusts and no controller reads. `controllers` maps each name to its views.
    pub(super) fn narrowed(
        &self,
        controllers: &[(&'static str, Arc<[TypeId]>)],
    ) -> Vec<WiringError> {
        let of_informer = |(id, informer): &(TypeId, Box<dyn AnyInformer>)| {
            let names = controllers.iter().filter(|(_, views)| views.contains(id));
            let names: Vec<_> = names.map(|(name, _)| *name).collect();
            let of_program = informer.is_of_program();
            if let (Some(view), true) = (of_program, names.is_empty()) {
                return Some(WiringError(format!(
                    "`Manager::informer` adjusts the informer of {view}, which no controller declares: declare it, such \
                     as with `.reads::<{view}>()`, or remove the call"
                )));
            }
            let view = informer.is_narrowed()?;
            let is_unexpected = names.len() > 1 || of_program.is_some();
            is_unexpected.then(|| {
                WiringError(format!(
                    "the controllers {} read one informer of {view}, and one of them has it select objects or fields \
                     with `.informer::<{view}>(…)`: if all are to see these objects only, call `Manager::informer` in \
                     its place; else declare a second view type of the kind for that one",
                    names.join(", ")
                ))
            })
        };
        self.0.iter().filter_map(of_informer).collect()
    }

    /// Adds all informers to `program`.
    pub(super) fn run_by(&self, program: &mut Program) {
        self.0.iter().for_each(|(_, informer)| informer.run_by(program));
    }
}

impl<V: Resource> AnyInformer for Built<V> {
    fn run_by(&self, program: &mut Program) {
        program.run_informer(&self.informer);
    }

    fn synced_except_forbidden(&self) -> Synced {
        Box::pin(self.informer.synced_except_forbidden())
    }

    fn has_synced_in(&self, namespace: &str) -> bool {
        self.informer.has_synced_in(namespace)
    }

    fn refused(&self) -> Option<&BuildError> {
        self.informer.refused()
    }

    fn is_narrowed(&self) -> Option<&'static str> {
        self.is_narrowed.then(view::<V>)
    }

    fn is_of_program(&self) -> Option<&'static str> {
        self.is_of_program.then(view::<V>)
    }

    fn refresh(&self, term: u64) -> Synced {
        Box::pin(self.informer.refresh(term))
    }

    fn as_any(&self) -> &dyn Any {
        &self.informer
    }
}

// === impl ControllerDeps ===

impl ControllerDeps {
    /// Returns the controller's name.
    pub fn controller(&self) -> &'static str {
        self.controller
    }

    /// Returns the client for the controller's writes. With leader election, it refuses writes while another process
    /// leads.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the recorder of this controller's Events.
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// Returns the controller's queue. Only for handlers: the queue does not exist yet when the reconciler is created.
    pub(super) fn handle(&self) -> Handle {
        self.handle.get().expect("handlers are made after the controller").clone()
    }

    /// Returns the store of a declared view.
    ///
    /// # Errors
    /// A [`WiringError`] if the controller does not declare it.
    pub fn store<R: Resource>(&self) -> Result<Store<R>, WiringError> {
        self.informer().map(Informer::store)
    }

    /// Returns the number of failures in a row of a key; the maximum without a queue.
    pub(super) fn failures(&self, key: &ObjectKey) -> u32 {
        self.handle.get().map_or(u32::MAX, |handle| handle.queue().requeues(key))
    }

    pub(super) fn informer<R: Resource>(&self) -> Result<&Informer<R>, WiringError> {
        let declared = self.declared.contains(&TypeId::of::<R>());
        declared.then(|| self.informers.get()).flatten().ok_or_else(|| {
            let (controller, view) = (self.controller, view::<R>());
            WiringError(format!(
                "the controller {controller} reads {view} but does not declare it: add `.reads::<{view}>()`, \
                 `.owns::<{view}>()` or `.watches::<{view}>(…)`"
            ))
        })
    }
}

impl std::fmt::Debug for ControllerDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerDeps")
            .field("controller", &self.controller)
            .finish_non_exhaustive()
    }
}
