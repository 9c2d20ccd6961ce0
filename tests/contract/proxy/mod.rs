//! A fault proxy between the operator and the real API server.
//!
//! It speaks plain HTTP to the operator and TLS to the API server, forwards the operator's token,
//! numbers its calls, and does to them what a test asked for. All of this can happen to a client in
//! a real cluster; nothing is dropped from inside a live watch.

mod answer;
mod events;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Method, StatusCode, Uri};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

use answer::answer;

use crate::control_plane::ControlPlane;
use crate::world::PATIENCE;

/// A call by the operator.
#[derive(Debug, Clone)]
pub struct Call {
    pub at: Instant,
    /// As RBAC names it.
    pub verb: &'static str,
    /// `resource/name/subresource`, as far as the path says.
    pub object: String,
    /// True if it asks for everything there is: a list, either as a page or as a stream.
    pub lists: bool,
    /// The number of this call among those with the same verb and object, starting at 1.
    pub occurrence: usize,
    /// The status code sent to the operator; `None` as long as there was no answer.
    pub answer: Option<u16>,
}

impl Call {
    pub fn is_write(&self) -> bool {
        !["get", "list", "watch"].contains(&self.verb)
    }
}

/// A fault injected into a call.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// The operator is killed (SIGKILL).
    Crash(Moment),
    /// The API server carries out the request, but the connection breaks before its answer.
    LoseAnswer,
    /// This status code instead of the API server's, which is not asked; with a Retry-After in
    /// seconds.
    Answer(u16, Option<u32>),
    /// 200 with this body instead of what the API server would say.
    Says(&'static str),
    /// A watch that opens and immediately reports that its version is too old.
    Expired,
    /// The API server is asked with this delay.
    Delay(Duration),
    /// The answer breaks off after this many bytes of its body.
    CutAfter(usize),
    /// The answer comes in pieces of this many bytes, with this much time between them.
    Drip(usize, Duration),
}

/// The moment at which the operator dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// Before the API server sees the call.
    Before,
    /// After the API server has carried out the request, before the operator knows.
    AnswerLost,
    /// After the operator has been answered.
    After,
}

struct Rule {
    matches: Box<dyn Fn(&Call) -> bool + Send>,
    fault: Fault,
    left: usize,
}

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    rules: Vec<Rule>,
    occurrences: BTreeMap<(&'static str, String), usize>,
    /// The process that `Fault::Crash` kills.
    operator: Option<u32>,
    /// Set from a crash until the next operator: calls of the old one go nowhere.
    dead: bool,
    /// Number of operators killed and forgotten: identifies the listener of the one that may
    /// make calls.
    forgotten: usize,
    /// Events that were about to be delivered, by resource; `None` if they are not counted.
    events: Option<BTreeMap<String, usize>>,
    /// The event at which the operator dies.
    last_event: Option<(String, usize, Moment)>,
}

/// Cuts and holds of open watches, by resource.
#[derive(Default, Clone)]
struct Watches {
    cuts: BTreeMap<String, usize>,
    held: BTreeSet<String>,
}

struct Shared {
    api_server: Mutex<kube::Client>,
    state: Mutex<State>,
    /// Incremented with every call that arrives or is answered.
    progress: watch::Sender<usize>,
    /// Incremented with every crash.
    crashes: watch::Sender<usize>,
    watches: watch::Sender<Watches>,
}

/// A connection of an operator.
struct Connection {
    /// Its operator: `State::forgotten` at the time its listener was created.
    operator: usize,
    /// True if its operator is killed once the answer is written.
    dies_after: AtomicBool,
}

/// A running proxy. Ends when dropped.
pub struct Proxy {
    shared: Arc<Shared>,
    listener: Mutex<Listener>,
}

/// The listener of one operator. The next one gets another address: otherwise, what the old one
/// sent before it was killed, on a connection that is not accepted yet, would be taken for the
/// new one's.
struct Listener {
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// A proxy that for now only forwards.
    pub async fn start(plane: &ControlPlane) -> Proxy {
        let shared = Arc::new(Shared {
            api_server: Mutex::new(plane.nobody().await),
            state: Mutex::default(),
            progress: watch::Sender::new(0),
            crashes: watch::Sender::new(0),
            watches: watch::Sender::default(),
        });
        let listener = Mutex::new(Listener::start(&shared, 0));
        Proxy { shared, listener }
    }

    /// The server URL for an operator's kubeconfig; after [`Proxy::forget_the_dead`], the next
    /// one's.
    pub fn url(&self) -> String {
        format!("http://{}", self.listener.lock().address)
    }

    /// Applies `fault` to the next `times` calls that match. Earlier rules take precedence.
    pub fn inject(
        &self,
        fault: Fault,
        times: usize,
        matches: impl Fn(&Call) -> bool + Send + 'static,
    ) {
        let rule = Rule { matches: Box::new(matches), fault, left: times };
        self.shared.state.lock().rules.push(rule);
    }

    /// From now on calls are forwarded; what has been done stays done.
    pub fn heal(&self) {
        let mut state = self.shared.state.lock();
        state.rules.clear();
        state.last_event = None;
        drop(state);
        self.shared.watches.send_modify(|watches| watches.held.clear());
    }

    /// Sets the process that a crash kills. It must be set again for each operator, before that one
    /// makes a write at which it is to crash.
    pub fn aim_at(&self, operator: u32) {
        let mut state = self.shared.state.lock();
        state.operator = Some(operator);
    }

    /// Notifies when the operator has been killed. Call it before doing what brings that about.
    pub fn crashes(&self) -> watch::Receiver<usize> {
        self.shared.crashes.subscribe()
    }

    /// Lets the next operator in.
    pub fn forget_the_dead(&self) {
        let mut state = self.shared.state.lock();
        state.dead = false;
        state.operator = None;
        state.forgotten += 1;
        *self.listener.lock() = Listener::start(&self.shared, state.forgotten);
    }

    /// Breaks all open watches of a resource, in the middle of whatever they are sending; what was
    /// held back is never sent.
    pub fn cut(&self, resource: &str) {
        self.shared.watches.send_modify(|watches| {
            watches.held.remove(resource);
            *watches.cuts.entry(resource.to_owned()).or_default() += 1;
        });
    }

    /// Holds back what watches of a resource send, until [`Proxy::cut`] or [`Proxy::heal`].
    pub fn hold(&self, resource: &str) {
        self.shared.watches.send_modify(|watches| {
            watches.held.insert(resource.to_owned());
        });
    }

    /// From now on the events of watches are distinguished and counted, except bookmarks.
    pub fn count_events(&self) {
        self.shared.state.lock().events = Some(BTreeMap::new());
    }

    /// The operator is killed at the event of a resource with this number, starting at 1.
    pub fn crash_at_event(&self, resource: &str, number: usize, moment: Moment) {
        self.shared.state.lock().last_event = Some((resource.to_owned(), number, moment));
    }

    /// Returns the number of events of each resource so far.
    pub fn events(&self) -> BTreeMap<String, usize> {
        self.shared.state.lock().events.clone().unwrap_or_default()
    }

    /// From now on calls go to another API server; open watches stay where they are until they are
    /// cut.
    pub fn switch_to(&self, api_server: kube::Client) {
        *self.shared.api_server.lock() = api_server;
    }

    /// All calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.state.lock().calls.clone()
    }

    /// Counts the matching calls so far.
    pub fn count(&self, matches: impl Fn(&Call) -> bool) -> usize {
        self.shared.state.lock().calls.iter().filter(|call| matches(call)).count()
    }

    /// Waits until there are `count` matching calls.
    pub async fn until(&self, count: usize, matches: impl Fn(&Call) -> bool) {
        self.until_since(0, count, matches).await;
    }

    /// Like [`Proxy::until`], ignoring the first `since` calls.
    pub async fn until_since(&self, since: usize, count: usize, matches: impl Fn(&Call) -> bool) {
        let mut progress = self.shared.progress.subscribe();
        let met = async {
            while self.calls().iter().skip(since).filter(|call| matches(call)).count() < count {
                progress.changed().await.expect("the proxy holds the sender");
            }
        };
        let met = tokio::time::timeout(PATIENCE, met).await;
        met.unwrap_or_else(|_| panic!("not {count} such calls in {:#?}", self.calls()));
    }
}

// === Connections ===

impl Listener {
    fn start(shared: &Arc<Shared>, operator: usize) -> Listener {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        socket.set_nonblocking(true).expect("it is a socket");
        let address = socket.local_addr().expect("it listens");
        let socket = TcpListener::from_std(socket).expect("it does not block");
        Listener { address, task: tokio::spawn(accept(socket, shared.clone(), operator)) }
    }
}

async fn accept(socket: TcpListener, shared: Arc<Shared>, operator: usize) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = socket.accept().await else { return };
        connections.spawn(serve(stream, shared.clone(), operator));
    }
}

/// Serves one connection until it ends or its operator is killed.
async fn serve(stream: TcpStream, shared: Arc<Shared>, operator: usize) {
    let mut crashes = shared.crashes.subscribe();
    let connection = Arc::new(Connection { operator, dies_after: AtomicBool::new(false) });
    let answer = {
        let (shared, connection) = (shared.clone(), connection.clone());
        service_fn(move |request| answer(request, shared.clone(), connection.clone()))
    };
    let served =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
    tokio::select! {
        _ = served => {}
        _ = crashes.changed() => {}
    }
    // The answer's last byte is in the operator's socket now.
    if connection.dies_after.load(Ordering::Relaxed) {
        shared.crash();
    }
}

impl Shared {
    /// Kills the operator, and thereby all its connections.
    fn crash(&self) {
        let operator = {
            let mut state = self.state.lock();
            state.dead = true;
            state.operator.take()
        };
        if let Some(pid) = operator {
            let pid = rustix::process::Pid::from_raw(pid as i32).expect("a pid");
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
        }
        self.crashes.send_modify(|crashes| *crashes += 1);
    }

    /// Records the call and returns what to do to it; `None` if it comes from a dead operator.
    fn enter(
        &self,
        connection: &Connection,
        method: &Method,
        uri: &Uri,
    ) -> Option<(usize, Call, Option<Fault>)> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.dead || connection.operator != state.forgotten {
            return None;
        }
        let (verb, object) = meaning(method, uri);
        let streams = uri.query().is_some_and(|query| query.contains("sendInitialEvents=true"));
        let lists = verb == "list" || streams;
        let occurrence = state.occurrences.entry((verb, object.clone())).or_default();
        *occurrence += 1;
        let occurrence = *occurrence;
        let call = Call { at: Instant::now(), verb, object, lists, occurrence, answer: None };
        state.calls.push(call.clone());
        let rule = state.rules.iter_mut().find(|rule| rule.left > 0 && (rule.matches)(&call));
        let fault = rule.map(|rule| {
            rule.left -= 1;
            rule.fault
        });
        // Nothing more is passed on for an operator that is about to die.
        if let Some(Fault::Crash(_)) = fault {
            state.dead = true;
        }
        let number = state.calls.len() - 1;
        drop(guard);
        self.progress.send_modify(|progress| *progress += 1);
        Some((number, call, fault))
    }

    fn answered(&self, number: usize, status: StatusCode) {
        self.state.lock().calls[number].answer = Some(status.as_u16());
        self.progress.send_modify(|progress| *progress += 1);
    }
}

/// The verb and the object of a request, derived from its path.
fn meaning(method: &Method, uri: &Uri) -> (&'static str, String) {
    let path: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    let rest = match path.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        other => other,
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        other => other,
    };
    let verb = match method.as_str() {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ if uri.query().is_some_and(|query| query.contains("watch=true")) => "watch",
        _ if rest.len() > 1 => "get",
        _ => "list",
    };
    (verb, rest.join("/"))
}
