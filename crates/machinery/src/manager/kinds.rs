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
use crate::store::Store;

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

/// The adjustments of a declared view.
struct Declaration<V>(Vec<Adjust<V>>);

/// A [`Declaration`], without the type of its view.
trait Declared: Send {
    fn build(self: Box<Self>, shared: &Shared) -> Box<dyn AnyInformer>;
    fn as_any(&mut self) -> &mut dyn Any;
}

/// An informer, without the type of its view.
trait AnyInformer: Send + Sync {
    fn run_by(&self, program: &mut Program);
    fn synced_except_forbidden(&self) -> Synced;
    fn has_synced_in(&self, namespace: &str) -> bool;
    fn refused(&self) -> Option<&BuildError>;
    /// Returns the type of the view.
    fn view(&self) -> &'static str;
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
            self.of.push((id, Box::new(Declaration::<V>(Vec::new()))));
            self.of.len() - 1
        });
        self.of[at].1.as_any().downcast_mut().expect("it was declared under the ID of its type")
    }

    /// Declares that a controller reads `V`, and returns the ID of `V`.
    pub(super) fn read<V: Resource>(&mut self) -> TypeId {
        let _ = self.of::<V>();
        TypeId::of::<V>()
    }

    /// Adds an adjustment of the informer of `V`.
    pub(super) fn adjust<V: Resource>(&mut self, adjust: Adjust<V>) {
        self.of::<V>().0.push(adjust);
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
        let informer = self.0.into_iter().fold(builder, |builder, adjust| adjust(builder)).build();
        shared.watch_informer(&informer);
        Box::new(informer)
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

    /// Returns the faults of views that [`Manager::informer`](super::Manager::informer) adjusts and no controller reads.
    pub(super) fn unread(&self, read: &HashSet<TypeId>) -> Vec<WiringError> {
        let unread = self.0.iter().filter(|(id, _)| !read.contains(id));
        let fault = |view: &str| {
            WiringError(format!(
                "`Manager::informer` adjusts the informer of {view}, which no controller declares: declare it, such as \
                 with `.reads::<{view}>()`, or remove the call"
            ))
        };
        unread.map(|(_, informer)| fault(informer.view())).collect()
    }

    /// Adds all informers to `program`.
    pub(super) fn run_by(&self, program: &mut Program) {
        self.0.iter().for_each(|(_, informer)| informer.run_by(program));
    }
}

impl<V: Resource> AnyInformer for Informer<V> {
    fn run_by(&self, program: &mut Program) {
        program.run_informer(self);
    }

    fn synced_except_forbidden(&self) -> Synced {
        Box::pin(Informer::synced_except_forbidden(self))
    }

    fn has_synced_in(&self, namespace: &str) -> bool {
        Informer::has_synced_in(self, namespace)
    }

    fn refused(&self) -> Option<&BuildError> {
        Informer::refused(self)
    }

    fn view(&self) -> &'static str {
        view::<V>()
    }

    fn refresh(&self, term: u64) -> Synced {
        Box::pin(Informer::refresh(self, term))
    }

    fn as_any(&self) -> &dyn Any {
        self
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
