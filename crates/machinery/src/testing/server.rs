//! The server: its state, its settings, and the tower `Service`.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use jiff::{SignedDuration, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::crd::Crd;
use super::deletion;
use super::fault::{Fault, Faults, InjectedFault, Moment};
use super::history::{History, Id, Version};
use super::managers::{Write, Writer};
use super::request::Received;
use super::schema::Type;
use crate::client::{Client, Options};
use crate::clock;

/// The body of a response.
pub(super) type Answer = UnsyncBoxBody<Bytes, io::Error>;

/// 2026-01-01T00:00:00Z, in seconds.
const BEGIN: i64 = 1_767_225_600;

/// An in-memory API server. Cheap to clone; all clones are the same server.
#[derive(Clone)]
pub struct Server {
    state: Arc<Mutex<State>>,
    /// Notified of every change. Unlike a `sync::watch`, it wakes tasks in the order of their waits, so that a run is
    /// reproducible.
    pub(super) changed: Arc<Notify>,
}

/// See [`Server::intercept`].
pub(super) type Interceptor = Arc<dyn Fn(&Received) -> Option<Value> + Send + Sync>;

/// See [`Server::admit`].
pub(super) type Admission = Arc<dyn Fn(&mut Value) -> Result<(), Value> + Send + Sync>;

pub(super) struct State {
    pub(super) history: History,
    /// Number of changes of objects and of other state.
    pub(super) changes: u64,
    /// Watches cannot begin before this version: the window of the watch cache.
    pub(super) window: u64,
    pub(super) rng: fastrand::Rng,
    pub(super) faults: Faults,
    pub(super) streaming: bool,
    /// True if every streaming list is accepted, but contains only an ERROR frame.
    pub(super) streams_break: bool,
    /// True if it chooses at random between permitted behaviors: [`Server::set_variation`].
    pub(super) varies: bool,
    /// Maximum size of a page, whatever limit is requested.
    pub(super) page: usize,
    pub(super) unserved: HashSet<String>,
    pub(super) forbidden: HashSet<String>,
    pub(super) requests: Vec<Received>,
    /// The objects that `until` waits for.
    pub(super) awaited: Vec<Id>,
    collects_garbage: bool,
    /// The number of pods that a [`Cluster`](super::Cluster) has named.
    pub(super) names: u32,
    pub(super) interceptor: Option<Interceptor>,
    pub(super) admission: Option<Admission>,
    /// CustomResourceDefinitions by resource.
    crds: BTreeMap<String, Arc<Crd>>,
}

opaque!(Server);

impl Server {
    /// Creates an empty server without faults. `seed` determines its random choices. From now on, the times in
    /// conditions, Events and Leases follow tokio's clock on this thread, starting at the beginning of 2026.
    pub fn new(seed: u64) -> Server {
        let begin = Timestamp::from_second(BEGIN).unwrap_or(Timestamp::UNIX_EPOCH);
        clock::simulate(begin);
        let state = State {
            history: History::new(),
            changes: 0,
            window: 100,
            rng: fastrand::Rng::with_seed(seed),
            faults: Faults::default(),
            streaming: true,
            streams_break: false,
            varies: true,
            page: 500,
            unserved: HashSet::new(),
            forbidden: HashSet::new(),
            requests: Vec::new(),
            awaited: Vec::new(),
            collects_garbage: false,
            names: 0,
            interceptor: None,
            admission: None,
            crds: BTreeMap::new(),
        };
        Server { state: Arc::new(Mutex::new(state)), changed: Arc::default() }
    }

    /// Returns a client of this server.
    pub fn client(&self, options: Options) -> Client {
        Client::from_service(self.clone(), options)
    }

    /// Serves a CustomResourceDefinition, given as YAML. Applies its defaults, the types of fields and lists, and
    /// keywords such as `required` and `minimum`. CEL rules and patterns are not evaluated.
    ///
    /// # Errors
    ///
    /// If the text is no CustomResourceDefinition, or does not serve exactly one version.
    pub fn crd(&self, yaml: &str) -> Result<(), String> {
        // Runs with many seeds serve the same definition, so it is parsed only once.
        static PARSED: Mutex<BTreeMap<String, Arc<Crd>>> = Mutex::new(BTreeMap::new());
        let parsed = PARSED.lock().get(yaml).cloned();
        let crd = match parsed {
            Some(crd) => crd,
            None => {
                let definition: Value =
                    serde_saphyr::from_str(yaml).map_err(|error| error.to_string())?;
                let crd = Arc::new(Crd::of(&definition)?);
                PARSED.lock().insert(yaml.to_owned(), crd.clone());
                crd
            }
        };
        let mut state = self.lock();
        if !crd.has_status {
            state.history.without_status.insert(crd.resource.clone());
        }
        state.crds.insert(crd.resource.clone(), crd);
        Ok(())
    }

    // === What others do to the objects ===

    /// Increases the version, as a change of another kind does. Returns the new version.
    pub fn bump(&self) -> u64 {
        self.change(|state| {
            state.history.bump();
        })
    }

    /// Returns the current state of an object.
    pub fn get(&self, id: &Id) -> Option<Arc<Value>> {
        self.lock().history.now(id)
    }

    /// Returns the current objects of a resource.
    pub fn objects(&self, resource: &str) -> Vec<(Id, Arc<Value>)> {
        let state = self.lock();
        let now = state.history.version;
        state.history.at(resource, None, now).map(|(id, o)| (id.clone(), o)).collect()
    }

    /// Returns the Events about an object, in the order of their names.
    pub fn events(&self, regarding: &Id) -> Vec<Arc<Value>> {
        let events = self.objects("/apis/events.k8s.io/v1/events").into_iter();
        let is_about_it = |event: &Arc<Value>| {
            let about = &event["regarding"];
            let namespace = about["namespace"].as_str().unwrap_or_default();
            about["apiVersion"] == regarding.api_version()
                && about["name"] == *regarding.name
                && namespace == regarding.namespace
        };
        events.map(|(_, event)| event).filter(is_about_it).collect()
    }

    /// Returns the number of objects that have had this name, one after another.
    pub fn incarnations(&self, id: &Id) -> usize {
        self.lock().history.incarnations(id)
    }

    /// Returns every version of every object so far, in order: what has happened, for a timeline or for a law that each
    /// version must obey.
    pub fn versions(&self) -> Vec<Version> {
        self.lock().history.versions()
    }

    /// Returns the newest version of an object of any other resource: with a Lease, the newest version changes all the
    /// time.
    pub fn version_without(&self, resource: &str) -> u64 {
        self.lock().history.version_without(resource)
    }

    /// Returns the server's time, which follows tokio's clock and starts at the beginning of 2026.
    pub fn now(&self) -> Timestamp {
        self.lock().timestamp()
    }

    /// Sets how many seconds the wall clock of this thread, which the controllers use, is ahead of the server's.
    pub fn set_clock_ahead(&self, seconds: i64) {
        clock::set_ahead(SignedDuration::from_secs(seconds));
    }

    /// Suspends the machine of the controllers on this thread: their Leases age by `time`. No other clock moves, nor does
    /// the server's.
    pub fn suspend(&self, time: Duration) {
        clock::suspend(time);
    }

    /// Returns the newest version.
    pub fn version(&self) -> u64 {
        self.lock().history.version
    }

    // === What happens to the server ===

    /// Removes all old versions: existing continue tokens and watch versions expire.
    pub fn compact(&self) {
        let mut state = self.lock();
        let now = state.history.version;
        state.history.compacted = now;
        state.window = now;
    }

    /// Removes old versions, but not the events that watches can request.
    pub fn compact_history(&self) {
        let mut state = self.lock();
        state.history.compacted = state.history.version;
    }

    /// Sets whether it also shows behavior that the API permits and the current kube-apiserver does not show. It
    /// refuses an old watch in the stream or as a response, and begins a streaming list with an older state.
    pub fn set_variation(&self, varies: bool) {
        self.lock().varies = varies;
    }

    /// Enables the garbage collector. It deletes objects whose owners no longer exist, as in Kubernetes, but at once.
    /// Without it, such objects stay.
    pub fn collect_garbage(&self) {
        self.lock().collects_garbage = true;
    }

    /// Adds faults to the script. The first fault of the script strikes the next request or frame that it fits.
    pub fn script(&self, faults: impl IntoIterator<Item = Fault>) {
        self.change(|state| state.faults.script.extend(faults));
    }

    /// Sets the shares of requests and of frames that random faults strike.
    pub fn faults(&self, of_requests: f64, of_frames: f64) {
        self.lock().faults.rates = (of_requests, of_frames);
    }

    /// Plans a fault for the `number`-th request with this verb from now on; the next request has number 1. Verbs are
    /// those of Kubernetes: `get`, `list`, `watch`, `create`, `update`, `patch` and `delete`; an apply is a `patch`.
    /// `event` stands for an event in a watch.
    ///
    /// ```
    /// # use controller_machinery::testing::{Fault, Server};
    /// # let server = Server::new(1);
    /// server.fault("patch", "/apis/apps/v1/deployments", 2, Fault::LostResponse);
    /// ```
    ///
    /// # Panics
    ///
    /// If there is no such verb, if the fault cannot strike requests with this verb, or if `number` is 0.
    pub fn fault(&self, verb: &'static str, resource: &str, number: u64, fault: Fault) {
        assert!(number > 0, "the next request has the number 1");
        assert!(fault.fits(verb), "{fault:?} never strikes {verb:?}");
        let mut state = self.lock();
        let at = state.faults.later(verb, resource, number);
        state.faults.planned.push(InjectedFault { at, fault });
    }

    /// Removes all planned, scripted and random faults.
    pub fn clear_faults(&self) {
        let mut state = self.lock();
        state.faults.planned.clear();
        state.faults.script.clear();
        state.faults.rates = (0.0, 0.0);
    }

    /// Sets whether it supports streaming lists.
    pub fn set_streaming(&self, streaming: bool) {
        self.lock().streaming = streaming;
    }

    /// Breaks streaming lists: the server accepts each, but sends only an internal error, like an API server whose etcd
    /// does not support them.
    pub fn break_streams(&self) {
        self.lock().streams_break = true;
    }

    /// Sets the maximum size of a page for requests with a limit.
    pub fn set_page(&self, page: usize) {
        self.lock().page = page.max(1);
    }

    /// Sets whether it serves a resource. The watches of a resource that is no longer served end.
    pub fn set_served(&self, resource: &str, served: bool) {
        self.change(|state| {
            if served {
                state.unserved.remove(resource);
            } else {
                state.unserved.insert(resource.to_owned());
            }
        });
    }

    /// Sets whether the client can list and watch a resource.
    pub fn set_allowed(&self, resource: &str, allowed: bool) {
        let mut state = self.lock();
        if allowed {
            state.forbidden.remove(resource);
        } else {
            state.forbidden.insert(resource.to_owned());
        }
    }

    /// Calls `intercept` with each request before it is handled. If `intercept` returns a metav1.Status, for example
    /// from [`refusal`](super::refusal), this is the response. It can change objects on the server, like another client
    /// at that moment.
    pub fn intercept(
        &self,
        intercept: impl Fn(&Received) -> Option<Value> + Send + Sync + 'static,
    ) {
        self.lock().interceptor = Some(Arc::new(intercept));
    }

    /// Calls `admit` with each object that a request creates or changes, as an API server calls its webhooks. `admit`
    /// can change the object; the changed fields have no owner. If it returns an error, a metav1.Status, this is the
    /// response. It is not called for writes of the status subresource, and must not use the server.
    pub fn admit(&self, admit: impl Fn(&mut Value) -> Result<(), Value> + Send + Sync + 'static) {
        self.lock().admission = Some(Arc::new(admit));
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<Received> {
        self.lock().requests.clone()
    }

    /// Returns all requests so far that are not reads.
    pub fn writes(&self) -> Vec<Received> {
        self.requests().into_iter().filter(|request| request.method != "GET").collect()
    }

    /// Returns the number of events that watches have shown so far, by resource.
    pub fn event_counts(&self) -> BTreeMap<String, u64> {
        self.lock().faults.events()
    }

    /// Returns how often each fault was injected.
    pub fn injected(&self) -> BTreeMap<String, u64> {
        self.lock().faults.by_name()
    }

    // === For the other files of this module ===

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes the state and notifies the watches.
    pub(super) fn change(&self, change: impl FnOnce(&mut State)) -> u64 {
        self.change_if(|state| {
            change(state);
            true
        })
    }

    /// Changes the state, and notifies the watches if `change` returns true.
    pub(super) fn change_if(&self, change: impl FnOnce(&mut State) -> bool) -> u64 {
        let (version, has_changed) = {
            let mut state = self.lock();
            let has_changed = change(&mut state);
            if state.collects_garbage && std::mem::take(&mut state.history.has_lost) {
                state.collect();
            }
            state.changes += u64::from(has_changed);
            (state.history.version, has_changed)
        };
        if has_changed {
            self.changed.notify_waiters();
        }
        version
    }
}

impl State {
    /// Creates or replaces an object, including its status.
    pub(super) fn store(&mut self, id: &Id, mut object: Value, by: Writer) {
        if !object.is_object() {
            object = json!({});
        }
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        self.complete(id, &mut object);
        let old = self.history.now(id);
        if old.is_none() {
            deletion::begin(id, &mut object);
        }
        self.write(id, by, |write| write.update(old.as_deref(), &mut object));
        if object["metadata"]["creationTimestamp"].is_null() {
            let created = old.map(|old| old["metadata"]["creationTimestamp"].clone());
            object["metadata"]["creationTimestamp"] = created.unwrap_or_else(|| json!(self.now()));
        }
        self.history.put(id, object);
    }

    /// Returns the server's time in RFC 3339.
    pub(super) fn now(&self) -> String {
        self.timestamp().to_string()
    }

    fn timestamp(&self) -> Timestamp {
        let seconds = i64::try_from(self.history.began.elapsed().as_secs()).unwrap_or_default();
        Timestamp::from_second(BEGIN + seconds).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    pub(super) fn crd(&self, id: &Id) -> Option<Arc<Crd>> {
        self.crds.get(&id.resource).cloned()
    }

    /// Calls `decide` with the properties of a write that determine the owners of its fields.
    pub(super) fn write<T>(&self, id: &Id, by: Writer, decide: impl FnOnce(Write<'_>) -> T) -> T {
        let crd = self.crds.get(&id.resource);
        let kind = Type::of(&id.resource, crd.map(|crd| &crd.schema));
        let has_status = crd.is_none_or(|crd| crd.has_status);
        let api_version = id.api_version();
        decide(Write { kind, api_version, manager: by, has_status, now: &self.now() })
    }

    /// See [`Faults::inject`].
    pub(super) fn inject(&mut self, which: &[Fault], at: &Moment, rate: f64) -> Option<Fault> {
        self.faults.inject(which, at, rate, &mut self.rng)
    }
}

impl tower::Service<Request<Bytes>> for Server {
    type Response = Response<Answer>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Response<Answer>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            super::request::answer(&server, &head, &body).await
        })
    }
}
