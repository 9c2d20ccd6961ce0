//! Diagnostic lists: pods, Events and nodes, listed on demand to explain why a workload is not ready. None of
//! them are watched.
//!
//! Guarantees
//! - A list takes at most [`DEADLINE`], and at most [`AT_ONCE`] run at the same time. If a list cannot run, the
//!   result is [`Answer::Failed`] within half a second, with the time of the next attempt.
//! - The process explains at most [`RATE`] workloads a second, after a burst of [`BURST`], whatever the
//!   number of workloads that are not ready and of their events. An explanation takes one to three lists: of
//!   live pods, of evicted pods, of Events. A workload that must wait reserves the time of its next list.
//! - A result is used again for [`FRESH`], while the owned object has the same generation. A result that
//!   explains nothing is used for [`UNEXPLAINED`] only, because the cause can show soon.
//! - Nodes are listed by the labels that a daemon selects, one list at a time. All GenericDaemons with the same
//!   labels share the result. The more nodes it has, the longer it is used ([`OF_EACH`]).
//! - Pods and nodes come from the API server's watch cache (`resourceVersion=0`). It has no cache of Events.
//! - After a failed list of pods or Events, the workload is not explained for a pause that doubles each time. Other
//!   workloads are. After a failed list of nodes, the same applies to all lists of nodes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::child::Child;
use super::condition::Time;
use super::evidence::{Answer, Evidence};
use super::health::Workload;
use super::labels::selector_text;
use super::pod_state::{NodeState, PodState};
use crate::client::{Client, Error, Page, Scope};
use crate::object::{InternedStr, Kind, Meta, NoMetadata, Object, Resource, Uid};

/// Maximum duration of a list.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// Maximum number of concurrent lists. It is less than the default number of workers of each controller, so
/// that lists that hang leave workers for objects that need none.
pub const AT_ONCE: usize = 2;
/// Explanations a second.
pub const RATE: u32 = 10;
/// Explanations that can follow each other at once after an idle time.
pub const BURST: u32 = 20;
/// Time for which a result that explains something is used.
pub const FRESH: Duration = Duration::from_secs(30);
/// Time for which a result that explains nothing is used.
pub const UNEXPLAINED: Duration = Duration::from_secs(5);
/// Time without the same list after its first failure.
pub const PAUSE: Duration = Duration::from_secs(5);
/// Maximum time without the list.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Maximum duration of a list of nodes: a node is 10 to 15 kB.
const DEADLINE_OF_NODES: Duration = Duration::from_secs(30);
/// Time for which a result is used in addition, for each listed node or pod: 5,000 nodes are listed every five
/// and a half minutes.
pub const OF_EACH: Duration = Duration::from_millis(60);
/// Time between two lists of the nodes of a daemon without a problem.
pub const SELDOM: Duration = Duration::from_secs(120);

/// Maximum time for which a worker waits for another worker's list.
const SOON: Duration = Duration::from_millis(500);

/// Maximum number of pods that are kept from a list.
const PODS: usize = 500;

/// Age in seconds from which an Event belongs to an earlier problem: the DaemonSet controller repeats a failed
/// creation after at most 1000 s (`DefaultControllerRateLimiter` in client-go,
/// util/workqueue/default_rate_limiters.go).
const OLD_EVENT: i64 = 1_200;

/// Field selector of the pods that have not ended.
const LIVE: &str = "status.phase!=Failed,status.phase!=Succeeded";

/// Diagnostic lists of the whole process. Clones share everything.
#[derive(Debug, Clone)]
pub struct Diagnostics {
    running: Arc<Semaphore>,
    nodes: Arc<tokio::sync::Mutex<()>>,
    state: Arc<Mutex<State>>,
}

/// The lists that explain a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// The pods.
    Pods,
    /// The pods, and the Events that report why some cannot be created.
    PodsAndEvents,
    /// The nodes, or the pods if listing nodes is not permitted.
    Nodes,
}

#[derive(Debug, Default)]
struct State {
    bucket: Bucket,
    entries: HashMap<Subject, Entry>,
    /// Failed lists of nodes.
    nodes: Failures,
    swept: Option<Instant>,
}

/// The last result for one subject.
#[derive(Debug, Clone, Default)]
struct Entry {
    evidence: Evidence,
    /// Time of the result.
    since: Option<Instant>,
    /// Time until which the result is used.
    until: Option<Instant>,
    /// Reserved time of the next list.
    turn: Option<Instant>,
    failed: Failures,
}

/// Lists that failed since the last success, and the end of the pause after them.
#[derive(Debug, Clone, Copy, Default)]
struct Failures {
    number: u32,
    until: Option<Instant>,
}

/// A token bucket with reservations.
#[derive(Debug, Default)]
struct Bucket {
    /// Virtual time of the next token. If it is in the future, tokens have been reserved.
    next: Option<Instant>,
}

/// An Event of the core group. Only this group can select Events by the fields that identify their object in
/// every supported version.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventState {
    #[serde(rename = "metadata")]
    meta: Meta<NoMetadata>,
    #[serde(default)]
    message: InternedStr,
    #[serde(default)]
    last_timestamp: Option<Time>,
    #[serde(default)]
    event_time: Option<Time>,
}

crate::view!(EventState { meta: Meta<NoMetadata> }: Kind::namespaced("", "v1", "Event", "events"));

// === impl Failures ===

impl Failures {
    /// Returns the end of the pause, if it is not over at `now`.
    fn paused(self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }

    /// Counts a failure at `now`. Returns the end of the pause.
    fn count(&mut self, now: Instant) -> Instant {
        let until = now + (PAUSE * 2_u32.pow(self.number.min(10))).min(LONGEST_PAUSE);
        *self = Failures { number: self.number + 1, until: Some(until) };
        until
    }
}

// === impl Bucket ===

impl Bucket {
    /// Takes a token. If there is none, reserves the next one and sets `turn` to its time. An earlier
    /// reservation is kept.
    fn take(&mut self, turn: &mut Option<Instant>, now: Instant) -> Result<(), Instant> {
        let interval = Duration::from_secs(1) / RATE;
        let token = turn.take().unwrap_or_else(|| {
            // An idle bucket is full.
            let full = now.checked_sub(interval * (BURST - 1)).unwrap_or(now);
            let token = self.next.map_or(full, |next| next.max(full));
            self.next = Some(token + interval);
            token
        });
        if token <= now {
            return Ok(());
        }
        *turn = Some(token);
        Err(token)
    }
}

// === impl State ===

/// Result of a cache lookup for a subject.
enum Known {
    /// A fresh result, and the time until which it is used.
    Fresh(Evidence, Instant),
    /// No fresh result; a list can be sent now.
    ListNow,
    /// No fresh result; no list can be sent before this time.
    Wait(Instant),
}

/// The subject of a result.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subject {
    /// An owned object, by UID and generation.
    Child(Uid, i64),
    /// The nodes with these labels.
    Nodes(String),
}

impl State {
    /// Returns a result that can be used now, and the time until which it is used. A result without a problem
    /// is used for at least `enough`. Nodes that do not show why so many are `misscheduled` are outdated soon.
    fn fresh(
        &self,
        subject: &Subject,
        enough: Duration,
        misscheduled: usize,
        now: Instant,
    ) -> Option<(Evidence, Instant)> {
        let entry = self.entries.get(subject)?;
        let is_well = !entry.evidence.explains(1);
        let enough = entry.since.map(|since| since + enough).filter(|_| is_well);
        let mut until = entry.until.max(enough)?;
        if !entry.evidence.explains(misscheduled) {
            // The result of a longer list can be used for longer.
            until = until.checked_sub(FRESH - UNEXPLAINED).unwrap_or(until);
        }
        (now < until).then(|| (entry.evidence.clone(), until))
    }

    /// Looks up a subject in the cache.
    fn look_up(
        &mut self,
        subject: &Subject,
        enough: Duration,
        misscheduled: usize,
        now: Instant,
    ) -> Known {
        self.sweep(now);
        if let Some((evidence, until)) = self.fresh(subject, enough, misscheduled, now) {
            return Known::Fresh(evidence, until);
        }
        let is_of_nodes = matches!(subject, Subject::Nodes(_));
        let entry = self.entries.entry(subject.clone()).or_default();
        let failed = if is_of_nodes { self.nodes } else { entry.failed };
        if let Some(until) = failed.paused(now) {
            return Known::Wait(until);
        }
        match self.bucket.take(&mut entry.turn, now) {
            Ok(()) => Known::ListNow,
            Err(at) => Known::Wait(at),
        }
    }

    /// Stores a result. A failed result is not stored, and pauses the list.
    fn answered(&mut self, subject: &Subject, evidence: &Evidence, now: Instant) -> Instant {
        let is_of_nodes = matches!(subject, Subject::Nodes(_));
        let entry = self.entries.entry(subject.clone()).or_default();
        let failed = if is_of_nodes { &mut self.nodes } else { &mut entry.failed };
        if evidence.has_failed() {
            return failed.count(now);
        }
        *failed = Failures::default();
        let explains = evidence.of_pods(None).is_some()
            || matches!(evidence.refusal, Answer::Found(Some(_)))
            || matches!(evidence.pods, Answer::NotPermitted);
        let fresh = if is_of_nodes || explains { FRESH } else { UNEXPLAINED };
        let until = now + fresh + OF_EACH * evidence.listed;
        (entry.evidence, entry.since, entry.until) = (evidence.clone(), Some(now), Some(until));
        until
    }

    /// Removes entries that have not been used lately.
    fn sweep(&mut self, now: Instant) {
        let swept = *self.swept.get_or_insert(now);
        if now.duration_since(swept) < FRESH {
            return;
        }
        self.entries.retain(|subject, entry| {
            // The nodes of daemons without a problem are used again.
            let again = if matches!(subject, Subject::Nodes(_)) { SELDOM } else { Duration::ZERO };
            let is_of_use = |at: Option<Instant>| at.is_some_and(|at| now < at + again + FRESH);
            is_of_use(entry.until) || is_of_use(entry.turn) || is_of_use(entry.failed.until)
        });
        self.entries.shrink_to_fit();
        self.swept = Some(now);
    }
}

// === impl Diagnostics ===

impl Default for Diagnostics {
    fn default() -> Diagnostics {
        let running = Arc::new(Semaphore::new(AT_ONCE));
        Diagnostics { running, nodes: Arc::default(), state: Arc::default() }
    }
}

impl Diagnostics {
    /// Returns the evidence of why `child` is not ready, from the cache or listed with `client`, and the time
    /// of the next list. That is sooner than [`FRESH`] if the evidence explains nothing or a list failed.
    /// `labels` select the nodes of a daemon.
    pub async fn explain<S: Workload>(
        &self,
        client: &Client,
        child: &Child<S>,
        ask: Ask,
        labels: Option<&str>,
    ) -> (Evidence, Instant) {
        if ask == Ask::Nodes {
            let misscheduled = S::misscheduled(child);
            let nodes = self.of_nodes(client, labels, Duration::ZERO, misscheduled).await;
            if !matches!(nodes.0.nodes, Answer::NotPermitted) {
                return nodes;
            }
            let (mut pods, until) = self.of_child(client, child, false).await;
            pods.nodes = Answer::NotPermitted;
            return (pods, until);
        }
        self.of_child(client, child, ask == Ask::PodsAndEvents).await
    }

    /// Returns the nodes with these labels, listed less than `enough` ago, and the time of the next list.
    pub(crate) async fn of_nodes(
        &self,
        client: &Client,
        labels: Option<&str>,
        enough: Duration,
        misscheduled: usize,
    ) -> (Evidence, Instant) {
        let subject = Subject::Nodes(labels.unwrap_or_default().to_owned());
        let now = Instant::now();
        if let Some(known) = self.state.lock().fresh(&subject, enough, misscheduled, now) {
            return known;
        }
        // Concurrent callers share the result.
        let Ok(turn) = timeout(SOON, self.nodes.lock()).await else {
            return (Evidence::failed(), Instant::now() + PAUSE);
        };
        let list = Evidence::of_nodes(client, labels);
        let fresh = (enough, misscheduled);
        let (nodes, until) = self.answer(&subject, fresh, DEADLINE_OF_NODES, list).await;
        drop(turn);
        let soon = self.state.lock().fresh(&subject, enough, misscheduled, Instant::now());
        soon.unwrap_or((nodes, until))
    }

    async fn of_child<S: Workload>(
        &self,
        client: &Client,
        child: &Child<S>,
        events: bool,
    ) -> (Evidence, Instant) {
        let subject = Subject::Child(child.meta.uid, child.meta.generation);
        let list = Evidence::of_child(client, child, events, Time::now());
        self.answer(&subject, (Duration::ZERO, 0), DEADLINE, list).await
    }

    /// Removes an owned object that is ready or deleted. Its next problem is a new one.
    pub fn forget<S: Workload>(&self, child: &Child<S>) {
        let subject = Subject::Child(child.meta.uid, child.meta.generation);
        self.state.lock().entries.remove(&subject);
    }

    async fn answer(
        &self,
        subject: &Subject,
        (enough, misscheduled): (Duration, usize),
        deadline: Duration,
        list: impl Future<Output = Evidence>,
    ) -> (Evidence, Instant) {
        let now = Instant::now();
        match self.state.lock().look_up(subject, enough, misscheduled, now) {
            Known::Fresh(evidence, until) => return (evidence, until),
            Known::Wait(until) => return (Evidence::failed(), until),
            Known::ListNow => {}
        }
        let Ok(Ok(_running)) = timeout(SOON, self.running.acquire()).await else {
            return (Evidence::failed(), Instant::now() + PAUSE);
        };
        let evidence = timeout(deadline, list).await.unwrap_or_else(|_| {
            tracing::debug!("A diagnostic list took too long");
            Evidence::failed()
        });
        let until = self.state.lock().answered(subject, &evidence, Instant::now());
        (evidence, until)
    }
}

// === Lists ===

/// Lists the evidence of why `child` is not ready, without cache or rate limit. `labels` select the nodes of a
/// daemon.
pub async fn evidence<S: Workload>(
    client: &Client,
    child: &Child<S>,
    labels: Option<&str>,
) -> Evidence {
    let ask = S::ask(child);
    let nodes = match ask {
        Ask::Nodes => Evidence::of_nodes(client, labels).await.nodes,
        _ => Answer::NotAsked,
    };
    let events = ask == Ask::PodsAndEvents;
    Evidence { nodes, ..Evidence::of_child(client, child, events, Time::now()).await }
}

/// Lists all pods of `child` that have not ended. Returns none if the list fails.
pub async fn all_pods<S: Workload>(client: &Client, child: &Child<S>) -> Vec<PodState> {
    let selector = selector_text(child.spec.selector());
    let all = pods(client, child.key().namespace(), &selector, LIVE, |_| true).await;
    all.map(|pods| pods.to_vec()).unwrap_or_default()
}

impl Evidence {
    /// Returns the evidence of failed lists.
    pub(crate) fn failed() -> Evidence {
        let (pods, refusal, nodes) = (Answer::Failed, Answer::Failed, Answer::Failed);
        Evidence { pods, refusal, nodes, ..Evidence::default() }
    }

    /// Lists the pods that can show why `child` is not ready at `now`. With `events`, also lists the newest
    /// reason why its pods could not be created.
    pub(crate) async fn of_child<S: Workload>(
        client: &Client,
        child: &Child<S>,
        events: bool,
        now: Time,
    ) -> Evidence {
        let namespace = child.key().namespace();
        let selector = selector_text(child.spec.selector());
        // A pod that is being deleted can be ready until it ends.
        let keep = |pod: &PodState| !pod.is_ready() || pod.is_terminating();
        let (mut listed, mut youngest) = (0_u32, None);
        let count = |pod: &PodState| {
            listed = listed.saturating_add(1);
            youngest = youngest.max(pod.created());
            keep(pod)
        };
        let pods = pods(client, namespace, &selector, LIVE, count).await;
        let mut evidence =
            Evidence { pods: of(pods), listed, at: Some(now), ..Evidence::default() };
        let starting = evidence.pods.found().is_some_and(|pods| !pods.is_empty());
        if starting && evidence.of_pods(None).is_none() {
            let evicted = |pod: &PodState| pod.evicted().is_some();
            match self::pods(client, namespace, &selector, "status.phase=Failed", evicted).await {
                Ok(ended) => {
                    let live = evidence.pods.found().map(|pods| pods.to_vec());
                    let mut all = live.unwrap_or_default();
                    all.extend_from_slice(&ended);
                    evidence.pods = Answer::Found(all.into());
                }
                Err(error) => evidence.pods = of(Err(error)),
            }
        }
        if events {
            // An Event from before the last successful creation is about an earlier problem.
            let since = youngest.max(Some(now.plus(-OLD_EVENT)));
            evidence.refusal = of(refusal(client, child, since).await);
        }
        evidence
    }

    /// Lists the nodes with these labels, or all nodes.
    pub(crate) async fn of_nodes(client: &Client, labels: Option<&str>) -> Evidence {
        let mut found = Vec::new();
        let each = |node: NodeState| found.push(node);
        let scope = Scope { labels: labels.map(str::to_owned), ..Scope::default() };
        let listed = list(client, &scope, true, each).await;
        let count = u32::try_from(found.len()).unwrap_or(u32::MAX);
        let nodes = of(listed.map(|()| found.into()));
        Evidence { nodes, listed: count, ..Evidence::default() }
    }
}

fn of<T>(answer: Result<T, Error>) -> Answer<T> {
    match answer {
        Ok(found) => Answer::Found(found),
        Err(error) if error.is_forbidden() => {
            tracing::debug!(%error, "A diagnostic list is not permitted");
            Answer::NotPermitted
        }
        Err(error) => {
            tracing::debug!(%error, "A diagnostic list failed");
            Answer::Failed
        }
    }
}

/// Lists the pods that match the selectors, by name, and keeps those for which `keep` is true.
pub(crate) async fn pods(
    client: &Client,
    namespace: &InternedStr,
    selector: &str,
    fields: &str,
    mut keep: impl FnMut(&PodState) -> bool + Send,
) -> Result<Arc<[PodState]>, Error> {
    let (labels, fields) = (Some(selector.to_owned()), Some(fields.to_owned()));
    let scope = Scope { namespace: Some(namespace.clone()), labels, fields, ..Scope::default() };
    let mut pods: Vec<PodState> = Vec::new();
    let each = |pod: PodState| {
        if keep(&pod) && pods.len() < PODS {
            pods.push(pod);
        }
    };
    list(client, &scope, true, each).await?;
    pods.sort_by(|a, b| a.name().cmp(b.name()));
    Ok(pods.into())
}

/// Returns the newest reason why a pod of `child` could not be created, if its Events report one of `since` or later.
async fn refusal<S: Workload>(
    client: &Client,
    child: &Child<S>,
    since: Option<Time>,
) -> Result<Option<String>, Error> {
    let uid = child.meta.uid;
    let fields = format!("involvedObject.uid={uid},type=Warning,reason=FailedCreate");
    let namespace = Some(child.key().namespace().clone());
    let scope = Scope { namespace, fields: Some(fields), ..Scope::default() };
    let mut newest: Option<(Option<Time>, EventState)> = None;
    let each = |event: EventState| {
        let at = event.last_timestamp.max(event.event_time);
        if newest.as_ref().is_none_or(|(newest, _)| *newest <= at) {
            newest = Some((at, event));
        }
    };
    list(client, &scope, false, each).await?;
    let recent = newest.filter(|(at, _)| *at >= since);
    Ok(recent.map(|(_, event)| without_generated_names(&event.message, child.key().name())))
}

/// Lists the objects, page by page, or all at once from the watch cache. Objects that cannot be decoded are
/// left out.
async fn list<V: Resource>(
    client: &Client,
    scope: &Scope,
    cached: bool,
    mut each: impl FnMut(V) + Send,
) -> Result<(), Error> {
    let not_older_than = cached.then(|| "0".to_owned());
    let mut page = Page { limit: Some(500), not_older_than, ..Page::default() };
    loop {
        let item = |object: Result<V, _>| {
            if let Ok(object) = object {
                each(object);
            }
        };
        let end = client.list(scope, &page, item).await?;
        match end.continue_token {
            Some(token) => page.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}

/// Returns the message without the suffixes of generated pod names, which differ each time: of `"agent-x7k2p"`
/// it leaves `"agent-"`.
fn without_generated_names(message: &str, name: &str) -> String {
    let start = format!("\"{name}-");
    let mut parts = message.split(start.as_str());
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(&start);
        text.push_str(part.find('"').map_or(part, |end| &part[end..]));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http::{Request, Response};
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;
    use crate::client::Options;
    use crate::generic_daemon::{self, GenericDaemon};
    use crate::workload::DaemonSetSpec;
    use crate::workload::Reason;
    use crate::workload::fixtures::{child, custom, uid, wire};

    fn found(pods: Vec<PodState>) -> Evidence {
        Evidence { pods: Answer::Found(pods.into()), ..Evidence::default() }
    }

    fn crashing() -> Evidence {
        found(vec![
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "a", "namespace": "n"},
                "status": {"phase": "Running", "containerStatuses": [{"name": "c", "image": "i",
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}))
            .unwrap(),
        ])
    }

    const NOT: Duration = Duration::ZERO;

    fn lists(state: &mut State, (uid, generation): (Uid, i64), now: Instant) -> bool {
        let subject = Subject::Child(uid, generation);
        matches!(state.look_up(&subject, NOT, 0, now), Known::ListNow)
    }

    fn of_child(uid: Uid) -> Subject {
        Subject::Child(uid, 1)
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_of_lists_does_not_grow_with_the_number_of_objects() {
        let (mut state, start) = (State::default(), Instant::now());
        let mut turns: Vec<Instant> = vec![start; 200];
        let mut sent = Vec::new();
        // Each object asks again at its reserved time.
        while let Some(now) = turns.iter().min().copied().filter(|now| *now < start + FRESH) {
            let n = turns.iter().position(|turn| *turn == now).unwrap();
            let subject = of_child(uid(n as u8));
            match state.look_up(&subject, NOT, 0, now) {
                Known::ListNow => {
                    sent.push(now);
                    turns[n] = state.answered(&subject, &crashing(), now);
                }
                Known::Wait(turn) => turns[n] = turn,
                Known::Fresh(_, until) => turns[n] = until,
            }
        }
        let within = |seconds: f64| {
            let end = start + Duration::from_secs_f64(seconds);
            sent.iter().filter(|at| **at < end).count()
        };
        assert_eq!(within(0.05), BURST as usize, "a burst");
        assert!(within(10.0) <= (BURST + 10 * RATE) as usize, "{}", within(10.0));
        assert_eq!(within(18.5), 200, "each has its turn");
    }

    #[test]
    fn a_result_is_reused_until_it_expires_or_the_object_changes() {
        let (mut state, start) = (State::default(), Instant::now());
        let (first, later) = ((uid(1), 1), |seconds| start + Duration::from_secs(seconds));
        assert!(lists(&mut state, first, start));
        state.answered(&of_child(uid(1)), &crashing(), start);
        assert!(!lists(&mut state, first, later(29)));
        assert!(lists(&mut state, (uid(1), 2), later(29)), "another generation");
        assert!(lists(&mut state, first, later(30)));
        state.answered(&of_child(uid(1)), &found(Vec::new()), later(60));
        assert!(lists(&mut state, first, later(66)), "it explained nothing");
    }

    #[test]
    fn a_failed_list_pauses_only_itself_with_backoff() {
        let (mut state, start) = (State::default(), Instant::now());
        assert!(lists(&mut state, (uid(1), 1), start));
        let until = state.answered(&of_child(uid(1)), &Evidence::failed(), start);
        assert_eq!(until, start + PAUSE);
        let soon = start + Duration::from_secs(1);
        assert!(!lists(&mut state, (uid(1), 1), soon));
        assert!(lists(&mut state, (uid(2), 1), soon), "another workload");
        assert!(lists(&mut state, (uid(1), 1), until));
        let next = state.answered(&of_child(uid(1)), &Evidence::failed(), until);
        assert_eq!(next, until + 2 * PAUSE);
    }

    #[test]
    fn the_more_pods_a_workload_has_the_longer_a_list_is_used() {
        let (mut state, start) = (State::default(), Instant::now());
        assert!(lists(&mut state, (uid(1), 1), start));
        let many = Evidence { listed: 5000, ..crashing() };
        state.answered(&of_child(uid(1)), &many, start);
        assert!(!lists(&mut state, (uid(1), 1), start + Duration::from_secs(329)));
        assert!(lists(&mut state, (uid(1), 1), start + Duration::from_secs(330)));
    }

    fn node() -> NodeState {
        serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap()
    }

    #[test]
    fn daemons_with_the_same_labels_share_one_list_of_nodes() {
        let (mut state, start) = (State::default(), Instant::now());
        let (logs, disks) = (Subject::Nodes("logs".into()), Subject::Nodes("disk=ssd".into()));
        assert!(matches!(state.look_up(&logs, NOT, 0, start), Known::ListNow));
        let of = |count| Answer::Found(vec![node(); count].into());
        state.answered(&logs, &Evidence { nodes: of(0), ..Evidence::default() }, start);
        for second in 0..30 {
            let at = start + Duration::from_secs(second);
            assert!(matches!(state.look_up(&logs, NOT, 0, at), Known::Fresh(..)), "{second} s");
        }
        assert!(matches!(state.look_up(&logs, NOT, 0, start + FRESH), Known::ListNow));
        assert!(
            matches!(state.look_up(&logs, SELDOM, 0, start + FRESH), Known::Fresh(..)),
            "enough"
        );
        let start = start + FRESH;
        assert!(matches!(state.look_up(&disks, NOT, 0, start), Known::ListNow), "other nodes");
        let many = Evidence { nodes: of(1), listed: 5000, ..Evidence::default() };
        state.answered(&disks, &many, start);
        let later = start + Duration::from_secs(329);
        assert!(matches!(state.look_up(&disks, NOT, 0, later), Known::Fresh(..)), "they are many");
    }

    #[test]
    fn failed_node_lists_pause_only_node_lists_with_backoff() {
        let (mut state, mut now) = (State::default(), Instant::now());
        let (all, some) = (Subject::Nodes(String::new()), Subject::Nodes("a".into()));
        let failed = Evidence::failed();
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert!(matches!(state.look_up(&all, NOT, 0, now), Known::ListNow));
            let until = state.answered(&all, &failed, now);
            assert!(matches!(state.look_up(&some, NOT, 0, now), Known::Wait(at) if at == until));
            assert!(lists(&mut state, (uid(1), 1), now));
            pauses.push(until.duration_since(now).as_secs());
            now = until;
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300]);
    }

    /// The queries of the lists that explain a DaemonSet with these pods and Events, and the resulting
    /// evidence.
    async fn explained(pods: Vec<Value>, events: Vec<Value>) -> (Vec<String>, Evidence) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let service = service_fn(move |request: Request<Bytes>| {
            let (path, query) = (request.uri().path().to_owned(), request.uri().query());
            seen.lock().push(query.unwrap_or_default().to_owned());
            let live = request.uri().query().is_some_and(|query| query.contains("phase%21"));
            let items = match path.ends_with("/events") {
                true => events.clone(),
                false if live => pods.clone(),
                false => Vec::new(),
            };
            let list = json!({"kind": "List", "apiVersion": "v1",
                "metadata": {"resourceVersion": "1"}, "items": items});
            async move { Ok::<_, Infallible>(Response::new(list.to_string())) }
        });
        let client = Client::from_service(service, Options::default());
        let daemon: GenericDaemon = custom(include_str!("../../artifacts/examples/syslog.yaml"));
        let child = child::<DaemonSetSpec>(&wire(&daemon, &generic_daemon::desired(&daemon)));
        let now: Time = serde_json::from_value(json!("2026-01-01T12:00:00Z")).unwrap();
        let evidence = Evidence::of_child(&client, &child, true, now).await;
        (asked.lock().clone(), evidence)
    }

    fn event(at: &str, message: &str) -> Value {
        json!({"metadata": {"name": message, "namespace": "default"}, "message": message,
            "lastTimestamp": format!("2026-01-01T{at}:00Z")})
    }

    #[tokio::test]
    async fn lists_select_live_pods_from_the_cache_and_events_by_uid() {
        let (queries, _) = explained(Vec::new(), Vec::new()).await;
        let [pods, events] = &queries[..] else { panic!("{queries:?}") };
        assert!(pods.contains("resourceVersion=0&"), "{pods}");
        assert!(pods.contains("status.phase%21%3DFailed%2Cstatus.phase%21%3DSucceeded"), "{pods}");
        assert!(events.contains(&format!("involvedObject.uid%3D{}", uid(99))), "{events}");
    }

    #[tokio::test]
    async fn unready_and_terminating_pods_are_kept() {
        let pod = |name: &str, ready: &str, deleted: bool| {
            let mut pod = json!({"metadata": {"name": name, "namespace": "n"}, "spec":
                {"terminationGracePeriodSeconds": 600}, "status": {"phase": "Running",
                "conditions": [{"type": "Ready", "status": ready}]}});
            if deleted {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:00Z");
            }
            pod
        };
        let all = vec![pod("a", "True", false), pod("b", "False", false), pod("c", "True", true)];
        let (_, evidence) = explained(all, Vec::new()).await;
        let kept: Vec<_> = evidence.pods.found().unwrap().iter().map(PodState::name).collect();
        assert_eq!(kept, ["b", "c"]);
        let hangs = evidence.of_pods(None).map(|trouble| trouble.reason);
        assert_eq!(hangs, Some(Reason::PodsTerminating));
    }

    #[tokio::test]
    async fn the_newest_event_counts_unless_it_is_old() {
        let recent = vec![event("11:45", "new"), event("11:41", "older"), event("08:00", "old")];
        let (_, evidence) = explained(Vec::new(), recent).await;
        assert_eq!(evidence.refusal, Answer::Found(Some("new".to_owned())));
        let (_, evidence) = explained(Vec::new(), vec![event("11:30", "old")]).await;
        assert_eq!(evidence.refusal, Answer::Found(None));
        let created = "2026-01-01T11:50:00Z";
        let pod = json!({"metadata": {"name": "a", "namespace": "n", "creationTimestamp": created},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let (_, evidence) = explained(vec![pod], vec![event("11:45", "new")]).await;
        assert_eq!(evidence.refusal, Answer::Found(None), "a pod was created since");
    }

    #[test]
    fn unused_results_are_removed() {
        let (mut state, start) = (State::default(), Instant::now());
        for n in 0..100 {
            state.look_up(&of_child(uid(n)), NOT, 0, start);
            state.answered(&of_child(uid(n)), &crashing(), start);
        }
        state.look_up(&of_child(uid(0)), NOT, 0, start + 3 * FRESH);
        assert_eq!(state.entries.len(), 1);
    }

    #[test]
    fn generated_names_are_left_out_of_messages() {
        let message = "Error creating: pods \"agent-x7k2p\" is forbidden: exceeded quota";
        let expected = "Error creating: pods \"agent-\" is forbidden: exceeded quota";
        assert_eq!(without_generated_names(message, "agent"), expected);
    }
}
