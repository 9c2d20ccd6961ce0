//! Random histories of one kind of object, for a controller that nobody has to describe.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

use super::cluster::Cluster;
use super::histories::histories;
use super::history::Id;
use super::server::Server;
use crate::manager::Manager;
use crate::shutdown::Shutdown;

/// Time without a request after which nothing is due any more. It is longer than common retries.
const QUIET: Duration = Duration::from_secs(300);

/// Longest time, in tokio's time, from the last problem until there are no requests any more.
const LONGEST: Duration = Duration::from_secs(7_200);

/// Shares of requests and of events in watches that a fault strikes.
const RATES: (f64, f64) = (0.1, 0.05);

/// A trial of the controllers of one object: random histories of its users, of its owned objects, and of faults.
///
/// In a history, the object is created, changed to another spec, deleted and created again; its owned objects are
/// changed and deleted by others; requests fail and watches expire; the process is killed and started again. Pods of
/// Deployments, DaemonSets and Jobs become ready ([`Cluster`]).
///
/// Laws, after the last problem has ended
/// - The requests end, within two hours of tokio's time, and nothing is written any more.
/// - Another object with the same spec has the same owned objects, and conditions with the same status and reason.
///   Labels and annotations of owned objects are not compared. Their names must not depend on the history.
/// - After the deletion, no object that it has ever owned is left, nor what belongs to such objects.
///
/// ```
/// use controller_machinery::testing::{Id, Trial};
/// use serde_json::json;
/// # use std::sync::Arc;
/// # use controller_machinery::manager::{Context, Manager};
/// # use controller_machinery::{controller::{Action, ReconcileError}, object::{Kind, Meta}, view};
/// # #[derive(Debug, serde::Deserialize, serde::Serialize)]
/// # struct Website { metadata: Meta }
/// # view!(Website: Kind::namespaced("example.com", "v1", "Website", "websites"));
/// # async fn reconcile(_: Arc<Website>, cx: Context<Website>) -> Result<Action, ReconcileError> {
/// #     cx.patch_status(json!({"url": "https://a.example.com/"})).await?;
/// #     Ok(Action::Done)
/// # }
///
/// let site = Id::new("/apis/example.com/v1/websites", "shop", "front");
/// let specs = [json!({"host": "a"}), json!({"host": "b", "pages": 3}), json!({})];
/// let manager = || Manager::new("websites").controller::<Website>().reconcile(reconcile);
/// Trial::new(site, specs, manager).run(20);
/// ```
pub struct Trial {
    id: Id,
    specs: Vec<Value>,
    manager: Box<dyn Fn() -> Manager + Sync>,
    crds: Vec<String>,
}

opaque!(Trial);

/// What happens in a history.
#[derive(Clone, Debug)]
enum Act {
    /// The object gets this one of the specs. It is created if it does not exist.
    Spec(usize),
    Delete,
    DeleteOwned(usize),
    /// Another client changes a field of an owned object.
    ChangeOwned(usize, usize),
    /// Random faults begin or end.
    Faults(bool),
    /// All watches and continue tokens expire.
    Compact,
    /// The process is killed, and started again after this time.
    Kill(Duration),
}

/// A pause, then an act.
#[derive(Clone)]
struct Step(Duration, Act);

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {:?}: {:?}", self.0, self.1)
    }
}

impl Trial {
    /// Creates a trial of the controllers that `manager` returns, for an object of this name with these specs. The more
    /// the specs differ, the more a trial finds: use values, zero values, and absent fields.
    pub fn new(
        id: Id,
        specs: impl IntoIterator<Item = Value>,
        manager: impl Fn() -> Manager + Sync + 'static,
    ) -> Trial {
        let specs = specs.into_iter().collect();
        Trial { id, specs, manager: Box::new(manager), crds: Vec::new() }
    }

    /// Serves a CustomResourceDefinition, as [`Server::crd`].
    #[must_use]
    pub fn crd(mut self, yaml: impl Into<String>) -> Trial {
        self.crds.push(yaml.into());
        self
    }

    /// Plays this number of histories, as [`histories`].
    ///
    /// # Panics
    ///
    /// If there are no specs, if a definition is invalid, or if a history breaks a law.
    pub fn run(self, count: u64) {
        assert!(!self.specs.is_empty(), "a trial needs a spec");
        histories(
            count,
            |rng| self.plan(rng),
            async |server, steps| self.play(server, steps).await,
        );
    }

    fn plan(&self, rng: &mut Rng) -> Vec<Step> {
        let act = |rng: &mut Rng| match rng.u8(..10) {
            0..3 => Act::Spec(rng.usize(..self.specs.len())),
            3 => Act::Delete,
            4 => Act::DeleteOwned(rng.usize(..8)),
            5 => Act::ChangeOwned(rng.usize(..8), rng.usize(..64)),
            6 => Act::Faults(true),
            7 => Act::Faults(false),
            8 => Act::Compact,
            _ => Act::Kill(Duration::from_secs(rng.u64(..60))),
        };
        let pause = |rng: &mut Rng| match rng.u8(..3) {
            0 => Duration::from_millis(rng.u64(..50)),
            1 => Duration::from_millis(rng.u64(50..5_000)),
            _ => Duration::from_secs(rng.u64(5..300)),
        };
        let first = Step(Duration::ZERO, Act::Spec(rng.usize(..self.specs.len())));
        let rest = (0..rng.usize(1..12)).map(|_| Step(pause(rng), act(rng))).collect::<Vec<_>>();
        [first].into_iter().chain(rest).collect()
    }

    #[expect(clippy::panic, reason = "as an assertion, it fails the test")]
    async fn play(&self, server: Server, steps: &[Step]) {
        for crd in &self.crds {
            server.crd(crd).unwrap_or_else(|why| panic!("{why}"));
        }
        let _cluster = Cluster::start(&server, 3);
        let (kill, mut kills) = unbounded_channel();
        let story = async {
            for Step(pause, act) in steps {
                sleep(*pause).await;
                self.act(&server, act, &kill);
            }
            server.clear_faults();
            self.check(&server).await;
        };
        tokio::select! {
            biased;
            () = story => {}
            () = self.processes(&server, &mut kills) => {}
        }
    }

    /// Runs the program again and again.
    #[expect(clippy::panic, reason = "as an assertion, it fails the test")]
    async fn processes(&self, server: &Server, kills: &mut UnboundedReceiver<Duration>) {
        loop {
            let manager = (self.manager)().serving_nothing();
            let program = manager.program(|options| server.client(options)).await;
            let program = program.unwrap_or_else(|error| panic!("{error}"));
            let down = tokio::select! {
                biased;
                down = kills.recv() => down,
                ended = program.run(Shutdown::manual()) => panic!("the program has ended: {ended:?}"),
            };
            let Some(down) = down else { return };
            sleep(down).await;
        }
    }

    fn act(&self, server: &Server, act: &Act, kill: &UnboundedSender<Duration>) {
        match act {
            Act::Spec(number) => self.set_spec(server, &self.specs[*number]),
            Act::Delete => server.delete(&self.id),
            Act::DeleteOwned(number) => {
                if let Some((id, _)) = picked(&self.owned(server), *number) {
                    server.delete(id);
                }
            }
            Act::ChangeOwned(number, field) => {
                if let Some((id, mut content)) = picked(&self.owned(server), *number).cloned()
                    && let Some(field) = picked(&leaves(&content), *field)
                    && let Some(value) = content.pointer_mut(field)
                {
                    change(value);
                    drop(server.patch(&id, &content));
                }
            }
            Act::Faults(true) => server.faults(RATES.0, RATES.1),
            Act::Faults(false) => server.clear_faults(),
            Act::Compact => server.compact(),
            Act::Kill(down) => drop(kill.send(*down)),
        }
    }

    #[expect(clippy::panic, reason = "as an assertion, it fails the test")]
    fn set_spec(&self, server: &Server, spec: &Value) {
        let written = match server.get(&self.id) {
            Some(now) => server.patch(&self.id, &json!({"spec": merge_patch(&now["spec"], spec)})),
            None => server.create(&self.id, json!({ "spec": spec })),
        };
        written.map(drop).unwrap_or_else(|why| panic!("the spec {spec} is refused: {why}"));
    }

    // === Laws ===

    async fn check(&self, server: &Server) {
        self.is_quiet(server).await;
        let Some(object) = server.get(&self.id) else { return self.is_gone(server).await };
        let before = self.texts(server);
        let status = conditions(&object);
        server.delete(&self.id);
        self.is_gone(server).await;
        self.set_spec(server, &object["spec"]);
        self.is_quiet(server).await;
        let now = server.get(&self.id).unwrap_or_default();
        for (name, text) in self.texts(server) {
            let former = before.get(&name);
            assert!(former == Some(&text), "{name} is {former:?}; that of a new object is {text}");
        }
        let surplus = before.len().saturating_sub(self.texts(server).len());
        assert!(
            surplus == 0,
            "of {:?}, a new object with the same spec lacks {surplus}",
            before.keys()
        );
        assert!(
            status == conditions(&now),
            "the conditions are {status:?}; those of a new object are {:?}",
            conditions(&now)
        );
        server.delete(&self.id);
        self.is_gone(server).await;
    }

    /// The requests end, and nothing is written for a while.
    async fn is_quiet(&self, server: &Server) {
        let is_quiet = timeout(LONGEST, server.settled(QUIET)).await.is_ok();
        let last = server.requests().pop().map(|request| request.uri);
        assert!(is_quiet, "there are still requests {LONGEST:?} after the last problem: {last:?}");
    }

    async fn is_gone(&self, server: &Server) {
        self.is_quiet(server).await;
        assert!(
            server.get(&self.id).is_none(),
            "the deleted object is left: {:?}",
            server.get(&self.id)
        );
        let mut ever = BTreeSet::new();
        for version in server.versions() {
            if version.object.is_some_and(|it| it["metadata"]["ownerReferences"].is_array()) {
                ever.insert(version.id);
            }
        }
        let left: Vec<_> = ever.into_iter().filter(|id| server.get(id).is_some()).collect();
        assert!(left.is_empty(), "after the deletion of the object, these are left: {left:?}");
    }

    /// Returns the owned objects as texts, without the UID of the object.
    fn texts(&self, server: &Server) -> BTreeMap<String, String> {
        let object = server.get(&self.id).unwrap_or_default();
        let uid = object["metadata"]["uid"].as_str().unwrap_or("-");
        let bare = |text: String| text.replace(uid, "UID");
        let text = |(id, mut content): (Id, Value)| {
            without_empty(&mut content);
            (
                bare(format!("{} {}/{}", id.resource, id.namespace, id.name)),
                bare(content.to_string()),
            )
        };
        self.owned(server).into_iter().map(text).collect()
    }

    /// Returns the contents of the objects that the object owns.
    fn owned(&self, server: &Server) -> Vec<(Id, Value)> {
        let Some(owner) = server.get(&self.id) else { return Vec::new() };
        let is_owned = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            owners.into_iter().any(|it| it["uid"] == owner["metadata"]["uid"])
        };
        let state = server.lock();
        let all = state.history.all().filter(|(_, object)| is_owned(object));
        all.map(|(id, object)| (id.clone(), content(object))).collect()
    }
}

/// Returns the JSON merge patch that makes `new` of `old`.
fn merge_patch(old: &Value, new: &Value) -> Value {
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else {
        return new.clone();
    };
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    let removed = removed.map(|name| (name.clone(), Value::Null));
    let kept = after.iter().map(|(name, value)| {
        let old = before.get(name);
        (name.clone(), old.map_or_else(|| value.clone(), |old| merge_patch(old, value)))
    });
    removed.chain(kept).collect()
}

/// Returns an object without metadata and status, which differ between objects and moments.
fn content(object: &Value) -> Value {
    let fields = object.as_object().into_iter().flatten();
    let left_out = ["apiVersion", "kind", "metadata", "status"];
    let content = fields.filter(|(name, _)| !left_out.contains(&name.as_str()));
    content.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Removes fields without a value, which mean the same as absent ones.
fn without_empty(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(without_empty);
            let is_empty =
                |value: &Value| value.is_null() || *value == json!({}) || *value == json!([]);
            map.retain(|_, value| !is_empty(value));
        }
        Value::Array(items) => items.iter_mut().for_each(without_empty),
        _ => {}
    }
}

/// Returns what the conditions say, by type.
fn conditions(object: &Value) -> Vec<[String; 3]> {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    let mut all: Vec<_> =
        all.map(|it| ["type", "status", "reason"].map(|field| it[field].to_string())).collect();
    all.sort_unstable();
    all
}

/// Returns an item by a number that may be too large.
fn picked<T>(all: &[T], number: usize) -> Option<&T> {
    all.get(number.checked_rem(all.len())?)
}

/// Fields that are keys of lists. With another key, an item is an addition of another client, and stays.
const KEYS: [&str; 11] = [
    "name",
    "port",
    "containerPort",
    "protocol",
    "mountPath",
    "key",
    "type",
    "topologyKey",
    "whenUnsatisfiable",
    "ip",
    "devicePath",
];

/// Returns the paths of all values that are no objects or lists. Selectors are left out: real API servers do not let
/// most of them change.
fn leaves(value: &Value) -> Vec<String> {
    fn walk(value: &Value, path: &str, into: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                let some = map.iter().filter(|(name, _)| !name.to_lowercase().contains("selector"));
                some.for_each(|(name, value)| {
                    walk(value, &format!("{path}/{}", escaped(name)), into);
                });
            }
            Value::Array(items) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(at, item)| walk(item, &format!("{path}/{at}"), into));
            }
            _ if KEYS.contains(&path.rsplit('/').next().unwrap_or_default()) => {}
            Value::Null => {}
            _ => into.push(path.to_owned()),
        }
    }
    let mut all = Vec::new();
    walk(value, "", &mut all);
    all
}

/// Returns a name as a part of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn change(value: &mut Value) {
    *value = match value {
        Value::Bool(is_set) => json!(!*is_set),
        Value::Number(number) => json!(number.as_i64().unwrap_or(0) + 1),
        _ => json!("changed"),
    };
}
