//! Leader election: controllers that run only while this process leads.

use std::collections::HashSet;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::handlers::{Filter, Listen};
use super::kinds::Synced;
use super::wiring::WiringError;
use super::{Error, Manager};
use crate::client::{self, Client};
use crate::controller::{Action, Problem, Program, Reconciler};
use crate::informer::Informer;
use crate::leader_election::{self, Boottime, Config, Elector, Leadership};
use crate::object::{InternedStr, Object, ObjectKey, Resource};
use crate::shutdown::Shutdown;
use crate::store::{Delta, Store};
use crate::workqueue::{Priority, WorkQueue};

/// File with the pod's namespace, from its ServiceAccount volume.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Time after which a new leader reports that its stores have not caught up. A full list takes seconds.
const SLOW: Duration = Duration::from_secs(30);

/// Number of keys of deleted objects stored until this process leads again.
const GONE_MAX: usize = 100_000;

/// Longest delay until this process notices that it has lost and regained leadership between two wakeups.
const NOTICE: Duration = Duration::from_secs(1);

/// The Lease by which the processes of one program elect a leader.
#[derive(Debug, Clone)]
pub struct Lease {
    name: InternedStr,
    namespace: Option<InternedStr>,
    pub(super) config: Config,
}

/// Leadership of this process.
#[derive(Clone, Default)]
pub(super) struct Lead {
    /// `None` without an election: this process always leads.
    pub(super) leadership: Option<Leadership>,
}

/// A barrier that opens when the stores of a new leader show the writes of the last leader. A watch can lag or have
/// died unnoticed. Then a reconcile would use an older spec than the last leader and revert its work.
#[derive(Clone)]
pub(super) struct Barrier {
    /// `None` without an election.
    leadership: Option<Leadership>,
    /// The last term for which the stores have caught up.
    caught_up: watch::Sender<u64>,
    refresh: Arc<dyn Fn(u64) -> Synced + Send + Sync>,
    controller: &'static str,
    skipped: Arc<Skipped>,
}

/// The election, if there is one.
pub(super) struct Election(Option<(Leadership, Elector, Client)>);

// === impl Manager ===

impl Manager {
    /// Returns the election, and the client options for everything else: each write needs permission. The election
    /// has its own connections, so that renewals do not queue behind other requests. After an outage, the first
    /// client with a response notifies the other.
    #[cfg_attr(not(feature = "metrics"), allow(clippy::redundant_clone))]
    pub(super) fn election(
        &self,
        host: &str,
        connect: &impl Fn(client::Options) -> Client,
    ) -> Result<(Election, client::Options), Error> {
        let mut gated = self.client.clone();
        let Some(lease) = &self.lease else { return Ok((Election(None), gated)) };
        let key = lease.key(&self.namespaces).map_err(|fault| Error::Wiring(vec![fault]))?;
        let (clock, observer) = (Arc::new(Boottime), self.lease_observer());
        let (leadership, elector) =
            leader_election::new(key.clone(), host, lease.config.clone(), clock, observer)?;
        #[cfg(feature = "metrics")]
        self.observed.watch_lease(key.name(), &leadership);
        gated.gate = Arc::new(leadership.clone());
        let ungated = connect(self.client.clone());
        Ok((Election(Some((leadership, elector, ungated))), gated))
    }

    #[cfg(feature = "metrics")]
    fn lease_observer(&self) -> Arc<dyn leader_election::Observer> {
        match &self.observed.metrics {
            Some(metrics) => metrics.clone(),
            None => Arc::new(()),
        }
    }

    #[cfg(not(feature = "metrics"))]
    fn lease_observer(&self) -> Arc<dyn leader_election::Observer> {
        Arc::new(())
    }
}

// === impl Election ===

impl Election {
    pub(super) fn lead(&self) -> Lead {
        Lead { leadership: self.0.as_ref().map(|(leadership, ..)| leadership.clone()) }
    }

    /// Adds the election, which releases the lease after the last write.
    pub(super) fn after(self, program: Program) -> Program {
        let Some((_, elector, client)) = self.0 else { return program };
        program.task("the leader election", |stop| async move {
            elector.run(client, stop.requested()).await;
        })
    }
}

// === impl Lease ===

impl Lease {
    /// Creates a Lease of this name in the pod's own namespace, or else in the first of
    /// [`Manager::namespaces`](super::Manager::namespaces).
    pub fn named(name: impl Into<InternedStr>) -> Lease {
        Lease { name: name.into(), namespace: None, config: Config::default() }
    }

    /// Sets its namespace.
    pub fn namespace(mut self, namespace: impl Into<InternedStr>) -> Lease {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the timing of the election.
    pub fn config(mut self, config: Config) -> Lease {
        self.config = config;
        self
    }

    pub(super) fn key(&self, namespaces: &[InternedStr]) -> Result<ObjectKey, WiringError> {
        let namespace = self.namespace.clone().or_else(|| {
            let own = std::fs::read_to_string(POD_NAMESPACE).ok();
            own.map(|text| text.trim().into()).or_else(|| namespaces.first().cloned())
        });
        match namespace {
            Some(namespace) => Ok(ObjectKey::new(namespace, self.name.clone())),
            None => Err(WiringError(format!(
                "the namespace of the Lease {0} is not known outside of a pod: add \
                 `.leader_election(Lease::named({0:?}).namespace(\"…\"))`",
                self.name.as_str()
            ))),
        }
    }
}

// === impl Lead ===

impl Lead {
    /// Returns whether this process leads now.
    pub(super) fn leads(&self) -> bool {
        self.leadership.as_ref().is_none_or(Leadership::is_permitted)
    }

    /// Runs the task that `make` returns while this process leads. After an interruption, a new task starts; a task
    /// that has ended is started again in the next term.
    pub(super) async fn run(self, stop: Shutdown, make: impl Fn() -> BoxFuture<'static, ()>) {
        tokio::select! {
            biased;
            () = stop.requested() => {}
            never = self.keep_running(make) => match never {},
        }
    }

    async fn keep_running(self, make: impl Fn() -> BoxFuture<'static, ()>) -> Infallible {
        let Some(leadership) = &self.leadership else {
            make().await;
            return std::future::pending().await;
        };
        let mut changes = leadership.changes();
        let leads_in = |term: u64| leadership.is_permitted() && leadership.term() == term;
        let mut ended = None;
        loop {
            let term = leadership.term();
            if !leads_in(term) || ended == Some(term) {
                // `leadership` holds the sender. The timeout is no error.
                drop(timeout(NOTICE, changes.changed()).await);
                continue;
            }
            let mut task = make();
            // Checked at each poll of the task, because the process can have been suspended meanwhile.
            let task = poll_fn(|context| match leads_in(term) {
                true => task.as_mut().poll(context).map(|()| true),
                false => Poll::Ready(false),
            });
            let interrupted = async {
                while leads_in(term) {
                    drop(timeout(NOTICE, changes.changed()).await);
                }
            };
            tokio::select! {
                biased;
                () = interrupted => {}
                is_done = task => ended = is_done.then_some(term),
            }
        }
    }

    /// Returns the barrier of `controller`; `refresh` lists its views again.
    pub(super) fn barrier(
        &self,
        controller: &'static str,
        refresh: impl Fn(u64) -> Synced + Send + Sync + 'static,
    ) -> Barrier {
        let (leadership, refresh) = (self.leadership.clone(), Arc::new(refresh));
        let (caught_up, skipped) = (watch::Sender::new(0), Arc::default());
        Barrier { leadership, caught_up, refresh, controller, skipped }
    }
}

// === impl Barrier ===

impl Barrier {
    /// Adds the tasks that open the barrier and enqueue skipped keys for a new leader. Also returns the function that
    /// adds the handler for deleted objects. Call it before adding any other handler.
    pub(super) fn attach<V: Resource>(
        &self,
        program: Program,
        informer: Informer<V>,
        passes: Filter<V>,
        queue: &WorkQueue<ObjectKey>,
    ) -> (Program, Listen) {
        if self.leadership.is_none() {
            return (program, Box::new(|| {}));
        }
        let (name, keep) = (self.controller, self.clone().keep());
        let program = program.task(format!("the barrier of {name}"), |stop| async move {
            tokio::select! {
                biased;
                () = stop.requested() => {}
                never = keep => match never {},
            }
        });
        let catch_up = self.clone().catch_up(informer.store(), queue.clone());
        let program = program.task(format!("the catching up of {name}"), |stop| async move {
            tokio::select! {
                biased;
                () = stop.requested() => {}
                never = catch_up => match never {},
            }
        });
        let skipped = self.skipped.clone();
        let note = move |delta: &Delta<V>, _| {
            if passes(delta) {
                skipped.note(delta);
            }
        };
        (program, Box::new(move || informer.handle(note)))
    }

    /// Returns a function to call for a key that is not enqueued because this process cannot write at the moment.
    pub(super) fn missed(&self) -> Arc<dyn Fn() + Send + Sync> {
        let skipped = self.skipped.clone();
        Arc::new(move || skipped.any.notify_one())
    }

    /// Returns the current term, if this process leads and its stores have caught up. 0 without an election.
    fn open_term(&self) -> Option<u64> {
        let Some(leadership) = &self.leadership else { return Some(0) };
        // The term is read first, because the process can be suspended between these two lines.
        let term = leadership.term();
        (leadership.is_permitted() && *self.caught_up.borrow() == term).then_some(term)
    }

    /// Returns the current or last term of this process; 0 without an election.
    fn term(&self) -> u64 {
        self.leadership.as_ref().map_or(0, Leadership::term)
    }

    /// Completes when this process leads for the first time and its stores have caught up.
    pub(super) async fn caught_up(self) {
        if self.leadership.is_some() {
            // `self` holds the sender, so this cannot fail.
            drop(self.caught_up.subscribe().wait_for(|term| *term > 0).await);
        }
    }

    /// Completes when this process leads and its stores have caught up.
    async fn opened(&self) {
        let Some(leadership) = &self.leadership else { return };
        let (mut caught_up, mut changes) = (self.caught_up.subscribe(), leadership.changes());
        while self.open_term().is_none() {
            // The senders are in `self`, so neither can fail.
            tokio::select! {
                biased;
                _ = caught_up.changed() => {}
                _ = changes.changed() => {}
                () = sleep(NOTICE) => {}
            }
        }
    }

    /// Opens the barrier in each term, when the stores have caught up with the beginning of the term.
    async fn keep(self) -> Infallible {
        let Some(leadership) = self.leadership.clone() else { return std::future::pending().await };
        let mut changes = leadership.changes();
        loop {
            let term = leadership.term();
            if term == *self.caught_up.borrow() || !leadership.is_permitted() {
                // `leadership` holds the sender. The timeout is no error.
                drop(timeout(NOTICE, changes.changed()).await);
                continue;
            }
            // A process that has lost the lease waits for the stores of its next term.
            let lost = async {
                while leadership.term() == term {
                    drop(timeout(NOTICE, changes.changed()).await);
                }
            };
            tokio::select! {
                biased;
                () = self.refreshed(term) => {
                    self.caught_up.send_replace(term);
                    tracing::debug!(controller = self.controller, term, "The stores have caught up");
                }
                () = lost => {}
            }
        }
    }

    /// Completes when the stores have caught up with the beginning of the term. There is no time limit: with older
    /// stores, a new leader would revert the work of the last one.
    async fn refreshed(&self, term: u64) {
        let mut refreshed = (self.refresh)(term);
        if timeout(SLOW, &mut refreshed).await.is_err() {
            tracing::warn!(
                controller = self.controller,
                "This process leads and has waited {SLOW:?} for lists that show what the last leader wrote; it \
                 reconciles nothing before they are complete (/readyz?verbose names the informer)"
            );
            refreshed.await;
        }
    }

    /// Enqueues every object, and every deleted key that was not reconciled yet, when this process has regained the
    /// lease. Skipped keys are not kept in the queue, where they would be retried for as long as another process leads.
    async fn catch_up<V: Object>(
        self,
        objects: Store<V>,
        queue: WorkQueue<ObjectKey>,
    ) -> Infallible {
        loop {
            self.skipped.any.notified().await;
            self.opened().await;
            let gone: Vec<_> = self.skipped.gone.lock().iter().cloned().collect();
            gone.iter().for_each(|key| queue.add_with(key, Priority::Low));
            for object in objects.list() {
                queue.add_with(object.key(), Priority::Low);
            }
        }
    }
}

/// A reconciler that skips reconciles while another process leads. Every write checks leadership anyway, but such a
/// refusal is no failure and must not increase the key's backoff.
pub(super) struct WhileLeading<R> {
    pub(super) reconciler: R,
    pub(super) barrier: Barrier,
}

/// The reconciles that were skipped while another process led.
#[derive(Default)]
struct Skipped {
    any: Notify,
    /// The keys of deleted objects, until a reconcile of them has succeeded: a list of all objects lacks them.
    gone: Mutex<HashSet<ObjectKey>>,
}

impl<R: Reconciler> Reconciler for WhileLeading<R> {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Problem> {
        let Some(term) = self.barrier.open_term() else {
            self.barrier.skipped.any.notify_one();
            return Ok(Action::Done);
        };
        // The key is removed first, because the reconcile does not cover a later deletion.
        let taken = self.barrier.skipped.gone.lock().take(key);
        let mut taken = SkippedDeletion { key: taken, skipped: &self.barrier.skipped };
        let Some(action) = self.within_term(term, self.reconciler.reconcile(key)).await else {
            self.barrier.skipped.any.notify_one();
            return Ok(Action::Done);
        };
        // An error after the loss of leadership is no failure: the catch-up repeats the reconcile.
        if action.is_err() && self.barrier.open_term() != Some(term) {
            self.barrier.skipped.any.notify_one();
            return Ok(Action::Done);
        }
        let action = action?;
        taken.key = None;
        Ok(action)
    }

    fn held_for(&self, key: &ObjectKey) -> Option<Duration> {
        self.reconciler.held_for(key)
    }
}

impl<R> WhileLeading<R> {
    /// Returns the outcome of a reconcile; `None` if another term begins before it ends. Then its decisions are
    /// outdated, because another process has led meanwhile.
    async fn within_term<T>(&self, term: u64, reconcile: impl Future<Output = T>) -> Option<T> {
        let mut reconcile = pin!(reconcile);
        poll_fn(|context| match self.barrier.term() == term {
            true => reconcile.as_mut().poll(context).map(Some),
            false => Poll::Ready(None),
        })
        .await
    }
}

/// The key of a deleted object. Drop stores it again unless the reconcile succeeded.
struct SkippedDeletion<'a> {
    key: Option<ObjectKey>,
    skipped: &'a Skipped,
}

impl Drop for SkippedDeletion<'_> {
    fn drop(&mut self) {
        self.skipped.gone.lock().extend(self.key.take());
    }
}

impl Skipped {
    fn note<V: Object>(&self, delta: &Delta<V>) {
        let Delta::Deleted(gone) = delta else { return };
        let (mut keys, key) = (self.gone.lock(), gone.key());
        if keys.len() < GONE_MAX {
            keys.insert(key.clone());
        } else if !keys.contains(key) {
            tracing::debug!(%key, "Deleted while another process leads, and not kept: {GONE_MAX} are");
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use crate::controller::{Controller, Options, Problem};
    use crate::object::{Kind, Meta};
    use crate::store;

    /// Virtual time; nothing here waits.
    const MOMENT: Duration = Duration::from_millis(1);

    #[derive(Debug, serde::Deserialize)]
    struct Thing {
        metadata: Meta,
    }

    crate::view!(Thing: Kind::namespaced("example.com", "v1", "Thing", "things"));

    #[derive(Clone, Default)]
    struct Reconciled(Arc<Mutex<Vec<ObjectKey>>>);

    impl Reconciler for Reconciled {
        async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Problem> {
            self.0.lock().push(key.clone());
            Ok(Action::Done)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn skipped_reconciles_are_repeated_when_this_process_leads_again() {
        let leadership = Leadership::of_tests();
        let (mut writer, objects) = store::new(Vec::new());
        let keys = ["a", "b"].map(|name| ObjectKey::new("ns", name));
        for key in &keys {
            writer.apply(Thing { metadata: Meta::named(key.clone()) });
        }
        let reconciled = Reconciled::default();
        let lead = Lead { leadership: Some(leadership.clone()) };
        let barrier = lead.barrier("test", |_| Box::pin(std::future::ready(())));
        tokio::spawn(barrier.clone().keep());
        let reconciler = WhileLeading { reconciler: reconciled.clone(), barrier: barrier.clone() };
        let controller = Controller::new("test", reconciler, Options::default());
        let queue = controller.handle().queue().clone();
        tokio::spawn(controller.run(std::future::pending()));
        let deleted = barrier.skipped.clone();
        tokio::spawn(barrier.catch_up(objects, queue.clone()));

        queue.add(&keys[0]);
        sleep(Duration::from_secs(3600)).await;
        assert!(reconciled.0.lock().is_empty(), "{:?}", reconciled.0.lock());
        let seen = queue.snapshot();
        assert_eq!((seen.adds, seen.delayed), (1, 0), "it has come round");

        for _ in 0..2 {
            leadership.permit(true);
            sleep(MOMENT).await;
            let mut caught_up = std::mem::take(&mut *reconciled.0.lock());
            caught_up.sort();
            assert_eq!(caught_up, keys, "each object once");
            leadership.permit(false);
            for key in &keys {
                queue.add(key);
                sleep(MOMENT).await;
            }
        }

        let thing = Arc::new(Thing { metadata: Meta::named(keys[1].clone()) });
        deleted.note(&Delta::Deleted(thing));
        writer.deleted(Thing { metadata: Meta::named(keys[1].clone()) });
        queue.add(&keys[1]);
        sleep(MOMENT).await;
        leadership.permit(true);
        sleep(MOMENT).await;
        let mut caught_up = std::mem::take(&mut *reconciled.0.lock());
        caught_up.sort();
        assert_eq!(caught_up, keys, "the key of the object that has gone, too");
        assert!(deleted.gone.lock().is_empty(), "it has had its reconcile");
    }

    /// Its first reconcile fails; during the second, the object is deleted once more.
    struct Deletes(Arc<Skipped>, Mutex<u32>);

    impl Reconciler for Deletes {
        async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Problem> {
            *self.1.lock() += 1;
            match *self.1.lock() {
                1 => Err(Problem::transient("ErrTest", "a failure")),
                2 => {
                    let thing = Arc::new(Thing { metadata: Meta::named(key.clone()) });
                    self.0.note(&Delta::Deleted(thing));
                    Ok(Action::Done)
                }
                _ => Ok(Action::Done),
            }
        }
    }

    /// A reconcile that waits for something, and then writes.
    struct Waits(Arc<Notify>, Arc<Mutex<u32>>);

    impl Reconciler for Waits {
        async fn reconcile(&self, _: &ObjectKey) -> Result<Action, Problem> {
            self.0.notified().await;
            *self.1.lock() += 1;
            Ok(Action::Done)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_does_not_continue_in_a_later_term() {
        for other in [false, true] {
            let leadership = Leadership::of_tests();
            let lead = Lead { leadership: Some(leadership.clone()) };
            let barrier = lead.barrier("test", |_| Box::pin(std::future::ready(())));
            let skipped = barrier.skipped.clone();
            tokio::spawn(barrier.clone().keep());
            leadership.permit(true);
            sleep(MOMENT).await;
            let (answer, writes) = (Arc::new(Notify::new()), Arc::default());
            let reconciler = Waits(answer.clone(), Arc::clone(&writes));
            let reconciler = WhileLeading { reconciler, barrier };
            let key = ObjectKey::new("ns", "a");
            let reconcile = tokio::spawn(async move { reconciler.reconcile(&key).await });
            sleep(MOMENT).await;
            if other {
                leadership.permit(false);
                leadership.permit(true);
            }
            answer.notify_one();
            reconcile.await.unwrap().unwrap();
            assert_eq!(*writes.lock(), u32::from(!other));
            let is_made_up_for = timeout(MOMENT, skipped.any.notified()).await.is_ok();
            assert_eq!(is_made_up_for, other);
        }
    }

    /// However long the lists take.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_reconciled_before_the_stores_have_caught_up() {
        let (leadership, listed) = (Leadership::of_tests(), Arc::new(Notify::new()));
        let lead = Lead { leadership: Some(leadership.clone()) };
        let lists = listed.clone();
        let barrier = lead.barrier("test", move |_| {
            let listed = lists.clone();
            Box::pin(async move { listed.notified().await })
        });
        tokio::spawn(barrier.clone().keep());
        leadership.permit(true);
        sleep(100 * SLOW).await;
        assert_eq!(barrier.open_term(), None);
        // In the next term, the lists are requested again.
        leadership.permit(false);
        leadership.permit(true);
        sleep(2 * NOTICE).await;
        assert_eq!(barrier.open_term(), None);
        listed.notify_one();
        sleep(MOMENT).await;
        assert_eq!(barrier.open_term(), Some(leadership.term()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_of_a_source_during_a_suspension_is_made_up_for() {
        let leadership = Leadership::of_tests();
        let lead = Lead { leadership: Some(leadership.clone()) };
        let barrier = lead.barrier("test", |_| Box::pin(std::future::ready(())));
        barrier.missed()();
        assert!(timeout(MOMENT, barrier.skipped.any.notified()).await.is_ok());
    }

    #[tokio::test]
    async fn a_reconcile_does_not_cover_a_deletion_during_it() {
        let barrier = Lead::default().barrier("test", |_| Box::pin(std::future::ready(())));
        let (skipped, key) = (barrier.skipped.clone(), ObjectKey::new("ns", "a"));
        let reconciler = Deletes(skipped.clone(), Mutex::default());
        let reconciler = WhileLeading { reconciler, barrier };
        skipped.gone.lock().insert(key.clone());
        for left in [true, true, false] {
            let _ = reconciler.reconcile(&key).await;
            assert_eq!(skipped.gone.lock().contains(&key), left);
        }
    }
}
