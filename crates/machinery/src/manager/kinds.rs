//! The declared views and their informers.

use std::any::{Any, TypeId};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;

use super::Shared;
use super::handlers::Filters;
use super::wiring::{WiringError, view};
use crate::client::Client;
use crate::controller::{Handle, Program};
use crate::events::Recorder;
use crate::informer::{Builder, Informer};
use crate::object::{ObjectKey, Resource};
use crate::store::Store;

/// The declared views, in the order of declaration. Two views of one kind have separate stores.
#[derive(Default)]
pub(super) struct Declarations {
    of: Vec<(TypeId, Box<dyn AnyDeclaration>)>,
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
trait AnyDeclaration: Any + Send {
    /// Returns the type of the view.
    fn view(&self) -> &'static str;
    /// Builds the informer, and adds it to `program`, or why it cannot work as declared to `faults`.
    fn build(
        self: Box<Self>,
        shared: &Shared,
        program: &mut Program,
        faults: &mut Vec<WiringError>,
    ) -> Box<dyn AnyInformer>;
}

/// An informer, without the type of its view.
trait AnyInformer: Any + Send + Sync {
    fn synced(&self) -> Synced;
    fn has_synced_in(&self, namespace: &str) -> bool;
    /// Lists the current state of the API server again.
    fn refresh(&self, term: u64) -> Synced;
}

/// Completes when an informer is ready, see [`Informer::synced`].
pub(super) type Synced = BoxFuture<'static, ()>;

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
        let declaration: &mut dyn Any = &mut *self.of[at].1;
        declaration.downcast_mut().expect("it was declared under the ID of its type")
    }

    /// Declares that a controller reads `V`, and returns the ID of `V`.
    pub(super) fn read<V: Resource>(&mut self) -> TypeId {
        self.of::<V>();
        TypeId::of::<V>()
    }

    /// Adds an adjustment of the informer of `V`.
    pub(super) fn adjust<V: Resource>(&mut self, adjust: Adjust<V>) {
        self.of::<V>().0.push(adjust);
    }

    /// Returns the faults of views that [`Manager::informer`](super::Manager::informer) adjusts and no controller reads.
    pub(super) fn unread(&self, read: &HashSet<TypeId>) -> impl Iterator<Item = WiringError> {
        let unread = self.of.iter().filter(|(id, _)| !read.contains(id));
        unread.map(|(_, declaration)| {
            let view = declaration.view();
            WiringError(format!(
                "`Manager::informer` adjusts the informer of {view}, which no controller declares: declare it, such as \
                 with `.reads::<{view}>()`, or remove the call"
            ))
        })
    }

    /// Builds the informers, and adds them to `program`. Returns also the faults of those that cannot work as declared.
    pub(super) fn build(
        self,
        shared: &Shared,
        program: &mut Program,
    ) -> (Arc<Informers>, Vec<WiringError>) {
        let mut faults = Vec::new();
        let build = |(id, declaration): (TypeId, Box<dyn AnyDeclaration>)| {
            (id, declaration.build(shared, program, &mut faults))
        };
        (Arc::new(Informers(self.of.into_iter().map(build).collect())), faults)
    }
}

impl<V: Resource> AnyDeclaration for Declaration<V> {
    fn view(&self) -> &'static str {
        view::<V>()
    }

    fn build(
        self: Box<Self>,
        shared: &Shared,
        program: &mut Program,
        faults: &mut Vec<WiringError>,
    ) -> Box<dyn AnyInformer> {
        let mut builder = Informer::<V>::builder(shared.client.clone());
        if V::kind().namespaced {
            builder = builder.namespaces(shared.namespaces.iter().cloned());
        }
        let informer = self.0.into_iter().fold(builder, |builder, adjust| adjust(builder)).build();
        shared.watch_informer(&informer);
        program.run_informer(&informer);
        faults.extend(informer.refused().cloned().map(WiringError::from));
        Box::new(informer)
    }
}

// === impl Informers ===

impl Informers {
    /// Returns the informers of these views.
    fn of<'a>(&'a self, views: &'a [TypeId]) -> impl Iterator<Item = &'a dyn AnyInformer> {
        let informers = self.0.iter().filter(|(id, _)| views.contains(id));
        informers.map(|(_, informer)| &**informer)
    }

    fn get<V: Resource>(&self) -> Option<&Informer<V>> {
        self.0.iter().find_map(|(_, informer)| (&**informer as &dyn Any).downcast_ref())
    }

    /// Completes when the informers of all `views` are ready, see [`Informer::synced`].
    pub(super) fn synced(&self, views: &[TypeId]) -> Synced {
        join_all(self.of(views).map(AnyInformer::synced)).map(drop).boxed()
    }

    /// Returns whether the informers of all `views` have synced in this namespace.
    pub(super) fn have_synced_in(&self, views: &[TypeId], namespace: &str) -> bool {
        self.of(views).all(|informer| informer.has_synced_in(namespace))
    }

    /// Completes when the informers of all `views` have listed the API server's state at the beginning of this term.
    pub(super) fn refreshed(&self, views: &[TypeId], term: u64) -> Synced {
        join_all(self.of(views).map(|informer| informer.refresh(term))).map(drop).boxed()
    }
}

impl<V: Resource> AnyInformer for Informer<V> {
    fn synced(&self) -> Synced {
        Informer::synced(self).boxed()
    }

    fn has_synced_in(&self, namespace: &str) -> bool {
        Informer::has_synced_in(self, namespace)
    }

    fn refresh(&self, term: u64) -> Synced {
        Informer::refresh(self, term).boxed()
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
        self.handle.get().map_or(u32::MAX, |handle| handle.queue.requeues(key))
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
