//! Leader election: controllers that run only while this process leads.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::kinds::Synced;
use super::wiring::WiringError;
use super::{Error, Manager};
use crate::client::{self, Client};
use crate::controller::{Action, Controller, End, Program, ReconcileError, Reconciler};
use crate::leader_election::{self, Config, Elector, Leadership, Phase};
use crate::object::{InternedStr, ObjectKey};
use crate::shutdown::Shutdown;

/// File with the pod's namespace, from its ServiceAccount volume.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Time after which a new leader reports that its stores have not caught up. A full list takes seconds.
const SLOW: Duration = Duration::from_secs(30);

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
pub(super) struct LeaderGate {
    /// `None` without an election: this process always leads.
    pub(super) leadership: Option<Leadership>,
}

/// The term in which a controller runs. A run begins when the stores show the writes of the last leader: a watch can
/// lag or have died unnoticed, and a reconcile would then use an older spec than the last leader and revert its work.
pub(super) struct Term {
    lead: LeaderGate,
    /// Its number; 0 without an election, and [`NONE`] between two runs.
    number: AtomicU64,
    /// Ends the reconciles of a run.
    closes: Notify,
}

/// No term.
const NONE: u64 = u64::MAX;

/// The election, if there is one.
pub(super) struct Election(Option<(Leadership, Elector, Client)>);

// === impl Manager ===

impl Manager {
    /// Returns the election, and the client options for everything else: each write needs permission. The election
    /// has its own connections, so that renewals do not queue behind other requests. After an outage, the first
    /// client with a response notifies the other.
    pub(super) fn election(
        &self,
        host: &str,
        connect: &impl Fn(client::Options) -> Client,
    ) -> Result<(Election, client::Options), Error> {
        let mut gated = self.client.clone();
        let Some(lease) = &self.lease else { return Ok((Election(None), gated)) };
        let key = lease.key(&self.namespaces).map_err(|fault| Error::Wiring(vec![fault]))?;
        let (leadership, elector) = leader_election::new(key, host, lease.config.clone())?;
        self.observed.watch_lease(&leadership);
        gated.gate = Arc::new(leadership.clone());
        let ungated = connect(self.client.clone());
        Ok((Election(Some((leadership, elector, ungated))), gated))
    }
}

// === impl Election ===

impl Election {
    pub(super) fn lead(&self) -> LeaderGate {
        LeaderGate { leadership: self.0.as_ref().map(|(leadership, ..)| leadership.clone()) }
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

// === impl LeaderGate ===

impl LeaderGate {
    /// Returns whether this process leads now, in this term.
    fn leads_in(&self, term: u64) -> bool {
        self.leadership.as_ref().is_none_or(|it| it.is_permitted() && it.term() == term)
    }

    /// Returns whether this is the current or last term of this process.
    fn is_same(&self, term: u64) -> bool {
        self.leadership.as_ref().is_none_or(|it| it.term() == term)
    }

    /// Completes when this process leads, and returns the term; 0 without an election.
    async fn gained(&self) -> u64 {
        let Some(leadership) = &self.leadership else { return 0 };
        self.until(|| leadership.is_permitted()).await;
        leadership.term()
    }

    /// Completes when this process leads in this term again, or when another process can have led.
    async fn resumed(&self, term: u64) {
        self.until(|| self.leads_in(term) || self.is_over(term)).await;
    }

    /// Returns whether another process can have led since this term began. A suspension ends no term.
    fn is_over(&self, term: u64) -> bool {
        let is_over = |it: &Leadership| it.term() != term || it.status().phase == Phase::Standby;
        self.leadership.as_ref().is_some_and(is_over)
    }

    /// Completes when `condition` holds. Without an election it never changes.
    async fn until(&self, condition: impl Fn() -> bool) {
        let Some(leadership) = &self.leadership else { return std::future::pending().await };
        let mut changes = leadership.changes();
        while !condition() {
            // `leadership` holds the sender. The timeout is no error.
            drop(timeout(NOTICE, changes.changed()).await);
        }
    }
}

// === impl Term ===

impl Term {
    pub(super) fn of(lead: LeaderGate) -> Term {
        Term { lead, number: AtomicU64::new(NONE), closes: Notify::new() }
    }

    /// Runs `controller` in each term, until `stop`. `refresh` lists its views again. `begin` enqueues all objects.
    /// Returns early if a reconcile blocks its thread when its term ends: the key must not be reconciled twice at once.
    pub(super) async fn run<R: Reconciler>(
        &self,
        controller: Controller<R>,
        refresh: impl Fn(u64) -> Synced,
        mut begin: impl FnMut(),
        stop: Shutdown,
    ) {
        let mut stuck = 0;
        while stuck == 0 {
            let term = tokio::select! {
                biased;
                () = stop.requested() => return,
                term = self.begins(controller.name(), &refresh) => term,
            };
            self.number.store(term, Ordering::SeqCst);
            controller.restart();
            begin();
            let end = async {
                tokio::select! {
                    biased;
                    () = stop.requested() => return End::Shutdown,
                    () = self.lead.until(|| self.lead.is_over(term)) => {}
                }
                self.number.store(NONE, Ordering::SeqCst);
                self.closes.notify_waiters();
                End::TermOver
            };
            stuck = controller.run_until(end).await.stuck;
        }
        if !stop.is_requested() {
            tracing::error!(
                controller = controller.name(),
                "A reconcile blocks its thread, so that the controller cannot begin another term: the program ends"
            );
        }
    }

    /// Completes when this process leads and its stores have caught up with the beginning of the term, and returns the
    /// term. There is no time limit: with older stores, a new leader would revert the work of the last one.
    async fn begins(&self, controller: &'static str, refresh: &impl Fn(u64) -> Synced) -> u64 {
        loop {
            let term = self.lead.gained().await;
            if self.lead.leadership.is_none() {
                return term;
            }
            let refreshed = async {
                let mut refreshed = refresh(term);
                if timeout(SLOW, &mut refreshed).await.is_err() {
                    tracing::warn!(
                        controller,
                        "This process leads and has waited {SLOW:?} for lists that show what the last leader wrote; \
                         it reconciles nothing before they are complete (/readyz?verbose names the informer)"
                    );
                    refreshed.await;
                }
            };
            tokio::select! {
                biased;
                () = self.lead.until(|| self.lead.is_over(term)) => {}
                () = refreshed => {
                    tracing::debug!(controller, term, "The stores have caught up");
                    return term;
                }
            }
        }
    }

    /// Returns the outcome of a reconcile. If the term ends before it, the reconcile is dropped, because its decisions
    /// are outdated: another process can have led meanwhile. The next term begins with all objects. While the lease is
    /// not renewed in time, no reconcile begins, and a refused write is no failure.
    pub(super) async fn within(
        &self,
        reconcile: impl Future<Output = Result<Action, ReconcileError>>,
    ) -> Result<Action, ReconcileError> {
        let mut closes = pin!(self.closes.notified());
        closes.as_mut().enable();
        let term = self.number.load(Ordering::SeqCst);
        let mut reconcile = pin!(reconcile);
        let outcome = async {
            if !self.lead.leads_in(term) {
                self.lead.resumed(term).await;
            }
            // Checked at each poll, because the process can have been suspended meanwhile.
            let outcome = poll_fn(|context| match self.lead.is_same(term) {
                true => reconcile.as_mut().poll(context),
                false => Poll::Ready(Ok(Action::Done)),
            })
            .await;
            if outcome.is_ok() || self.lead.leads_in(term) {
                return outcome;
            }
            self.lead.resumed(term).await;
            Ok(Action::RequeueAfter(Duration::ZERO))
        };
        tokio::select! {
            biased;
            () = closes => Ok(Action::Done),
            outcome = outcome => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::time::sleep;

    use super::*;
    use crate::controller::Options;

    /// Virtual time; nothing here waits.
    const MOMENT: Duration = Duration::from_millis(1);
    const MINUTE: Duration = Duration::from_secs(60);

    type Log = Arc<Mutex<Vec<String>>>;

    /// Reconciles for a minute per key, within the term.
    struct Slow(Arc<Term>, Log);

    impl Reconciler for Slow {
        async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
            let reconcile = async {
                self.1.lock().push(format!("{} begins", key.name()));
                sleep(MINUTE).await;
                self.1.lock().push(format!("{} ends", key.name()));
                Ok(Action::Done)
            };
            self.0.within(reconcile).await
        }
    }

    /// A controller of the objects `a` and `b` that runs in terms, and the notification that its lists are complete.
    fn controller() -> (Leadership, Log, Arc<Notify>, Shutdown) {
        let (leadership, log, listed) = (Leadership::of_tests(), Log::default(), Notify::new());
        let (listed, stop) = (Arc::new(listed), Shutdown::manual());
        let term = Arc::new(Term::of(LeaderGate { leadership: Some(leadership.clone()) }));
        let reconciler = Slow(term.clone(), log.clone());
        let controller = Controller::new("test", reconciler, Options::default());
        let handle = controller.handle();
        let begin = move || {
            for name in ["a", "b"] {
                handle.add(&ObjectKey::new("ns", name));
            }
        };
        let lists = listed.clone();
        let refresh = move |_| -> Synced {
            let lists = lists.clone();
            Box::pin(async move { lists.notified().await })
        };
        let end = stop.clone();
        tokio::spawn(async move { term.run(controller, refresh, begin, end).await });
        (leadership, log, listed, stop)
    }

    /// Returns the log after a while, and empties it.
    async fn lines(log: &Log, time: Duration) -> String {
        sleep(time).await;
        let mut lines = std::mem::take(&mut *log.lock());
        lines.sort();
        lines.join(", ")
    }

    /// However long the lists take. In the next term, they are requested again.
    #[tokio::test(start_paused = true)]
    async fn a_term_begins_with_all_objects_when_the_stores_have_caught_up() {
        let (leadership, log, listed, _stop) = controller();
        assert_eq!(lines(&log, 100 * SLOW).await, "");
        leadership.permit(true);
        assert_eq!(lines(&log, 100 * SLOW).await, "");
        leadership.permit(false);
        leadership.permit(true);
        listed.notify_one();
        assert_eq!(lines(&log, 2 * NOTICE).await, "a begins, b begins");
        assert_eq!(lines(&log, MINUTE).await, "a ends, b ends");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_does_not_continue_in_a_later_term() {
        for is_noticed in [true, false] {
            let (leadership, log, listed, _stop) = controller();
            leadership.permit(true);
            listed.notify_one();
            assert_eq!(lines(&log, 2 * NOTICE).await, "a begins, b begins");
            leadership.permit(false);
            if is_noticed {
                assert_eq!(lines(&log, MINUTE).await, "");
            }
            leadership.permit(true);
            listed.notify_one();
            assert_eq!(lines(&log, 2 * NOTICE).await, "a begins, b begins");
        }
    }

    /// A suspension drops no reconcile, begins none, and makes a refused write no failure.
    #[tokio::test(start_paused = true)]
    async fn a_suspended_leader_continues_where_it_was() {
        let (leadership, log, listed, _stop) = controller();
        leadership.permit(true);
        listed.notify_one();
        assert_eq!(lines(&log, 2 * NOTICE).await, "a begins, b begins");
        leadership.permit_until(None);
        assert_eq!(lines(&log, MINUTE).await, "a ends, b ends");
        let term = Term::of(LeaderGate { leadership: Some(leadership.clone()) });
        term.number.store(leadership.term(), Ordering::SeqCst);
        let refused = async { Err(ReconcileError::transient("ErrTest", "refused")) };
        assert!(timeout(MINUTE, term.within(refused)).await.is_err(), "it has begun");
        leadership.permit_until(Some(Duration::MAX));
        let refused = async {
            leadership.permit_until(None);
            Err(ReconcileError::transient("ErrTest", "refused"))
        };
        let (outcome, ()) = tokio::join!(term.within(refused), async {
            sleep(MINUTE).await;
            leadership.permit_until(Some(Duration::MAX));
        });
        assert_eq!(outcome.ok(), Some(Action::RequeueAfter(Duration::ZERO)));
        assert_eq!(lines(&log, MINUTE).await, "", "no run has begun");
    }

    /// Two reconciles of its key could run at once.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_controller_with_a_stuck_reconcile_begins_no_other_term() {
        struct Stuck(Mutex<std::sync::mpsc::Receiver<()>>, Arc<Notify>);
        impl Reconciler for Stuck {
            async fn reconcile(&self, _: &ObjectKey) -> Result<Action, ReconcileError> {
                self.1.notify_one();
                let _ = self.0.lock().recv();
                Ok(Action::Done)
            }
        }
        let (release, released) = std::sync::mpsc::channel();
        let leadership = Leadership::of_tests();
        leadership.permit(true);
        let term = Term::of(LeaderGate { leadership: Some(leadership.clone()) });
        let begun = Arc::new(Notify::new());
        let stuck = Stuck(Mutex::new(released), begun.clone());
        let options = Options { drain: MOMENT, ..Options::default() };
        let controller = Controller::new("test", stuck, options);
        let handle = controller.handle();
        let begin = move || handle.add(&ObjectKey::new("ns", "a"));
        let refresh = |_| -> Synced { Box::pin(std::future::ready(())) };
        let run = term.run(controller, refresh, begin, Shutdown::manual());
        let end = async {
            begun.notified().await;
            leadership.permit(false);
        };
        tokio::join!(run, end);
        release.send(()).unwrap();
    }
}
