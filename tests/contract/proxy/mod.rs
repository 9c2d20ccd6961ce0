//! A fault proxy between the operator and the real API server.
//!
//! It uses plain HTTP to the operator and TLS to the API server, forwards the operator's token, numbers its
//! calls, and applies the faults of a test. All of these faults can occur in a real cluster. No event inside
//! a live watch is dropped.

mod answer;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode, Uri};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use answer::answer;

use crate::control_plane::ControlPlane;
use crate::world::MAX_WAIT;

/// A call by the operator.
#[derive(Debug, Clone)]
pub struct Call {
    pub at: Instant,
    /// As RBAC names it.
    pub verb: &'static str,
    /// `resource/name/subresource`, as far as the path contains them.
    pub object: String,
    /// True if it requests all objects: a list, as a page or as a stream.
    pub lists: bool,
    /// The status code sent to the operator; `None` while there is no response.
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
    /// The API server carries out the request, but the connection breaks before its response.
    LoseAnswer,
    /// This status code in place of the API server's, which gets no request; with a Retry-After in seconds.
    Answer(u16, Option<u32>),
    /// 200 with this body in place of the API server's response.
    Says(&'static str),
    /// The response breaks off after this many bytes of its body.
    CutAfter(usize),
    /// The response has pieces of this many bytes, with this much time between them.
    Drip(usize, Duration),
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
    watches: watch::Sender<Watches>,
}

/// A running proxy. Ends when dropped.
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// Starts a proxy that only forwards.
    pub async fn start(plane: &ControlPlane) -> Proxy {
        let shared = Arc::new(Shared {
            api_server: Mutex::new(plane.nobody().await),
            state: Mutex::default(),
            progress: watch::Sender::new(0),
            watches: watch::Sender::default(),
        });
        let socket = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = socket.local_addr().expect("it listens");
        let task = tokio::spawn(accept(socket, shared.clone()));
        Proxy { shared, address, task }
    }

    /// The server URL for an operator's kubeconfig.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
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

    /// Breaks all open watches of a resource immediately. Events that were held back are never sent.
    pub fn cut(&self, resource: &str) {
        self.shared.watches.send_modify(|watches| {
            watches.held.remove(resource);
            *watches.cuts.entry(resource.to_owned()).or_default() += 1;
        });
    }

    /// Holds back the events of a resource's watches, until [`Proxy::cut`].
    pub fn hold(&self, resource: &str) {
        self.shared.watches.send_modify(|watches| {
            watches.held.insert(resource.to_owned());
        });
    }

    /// From now on, calls go to another API server. Open watches keep their server until they are cut.
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
        let met = tokio::time::timeout(MAX_WAIT, met).await;
        met.unwrap_or_else(|_| panic!("not {count} such calls in {:#?}", self.calls()));
    }
}

// === Connections ===

async fn accept(socket: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = socket.accept().await else { return };
        let shared = shared.clone();
        let answer = service_fn(move |request| answer(request, shared.clone()));
        connections.spawn(
            hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer),
        );
    }
}

impl Shared {
    /// Records the call and returns what to do to it.
    fn enter(&self, method: &Method, uri: &Uri) -> (usize, Call, Option<Fault>) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let (verb, object) = meaning(method, uri);
        let streams = uri.query().is_some_and(|query| query.contains("sendInitialEvents=true"));
        let lists = verb == "list" || streams;
        let call = Call { at: Instant::now(), verb, object, lists, answer: None };
        state.calls.push(call.clone());
        let rule = state.rules.iter_mut().find(|rule| rule.left > 0 && (rule.matches)(&call));
        let fault = rule.map(|rule| {
            rule.left -= 1;
            rule.fault
        });
        let number = state.calls.len() - 1;
        drop(guard);
        self.progress.send_modify(|progress| *progress += 1);
        (number, call, fault)
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
