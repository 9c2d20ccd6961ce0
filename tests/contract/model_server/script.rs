//! Random requests. Values that a server chooses (versions, UIDs, tokens) are placeholders.

use http::Method;
use serde_json::{Value, json};

use super::{NAMES, NAMESPACES};

/// An object that can exist on both servers.
pub(super) type Key = (&'static str, &'static str);

/// A version, to be found in the server's responses.
#[derive(Debug, Clone, Copy)]
pub(super) enum Version {
    None,
    /// The last version in a response for this object.
    Last(Key),
    /// The first version in a response for this object.
    First(Key),
    /// The version in a response; the index wraps around.
    At(usize),
    /// Far beyond everything that exists.
    Future,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Uid {
    None,
    Last(Key),
    First(Key),
    Wrong,
}

/// The value of a parameter.
#[derive(Debug, Clone)]
pub(super) enum Query {
    Text(String),
    Version(Version),
    /// A continue token from a response; the index wraps around.
    Token(usize),
}

#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) namespace: Option<&'static str>,
    pub(super) name: Option<&'static str>,
    pub(super) status: bool,
    pub(super) content: &'static str,
    pub(super) query: Vec<(&'static str, Query)>,
    pub(super) body: Value,
    /// Place of `version` and `uid` in the body.
    pub(super) within: &'static str,
    pub(super) version: Version,
    pub(super) uid: Uid,
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const JSON_PATCH: &str = "application/json-patch+json";
/// Field managers, between which fields change their owners.
const MANAGERS: [&str; 2] = ["one", "other"];

impl Query {
    pub(super) fn text(text: &str) -> Query {
        Query::Text(text.to_owned())
    }
}

impl Request {
    fn new(method: Method, namespace: Option<&'static str>, name: Option<&'static str>) -> Request {
        Request {
            method,
            namespace,
            name,
            status: false,
            content: JSON,
            query: Vec::new(),
            body: Value::Null,
            within: "metadata",
            version: Version::None,
            uid: Uid::None,
        }
    }

    fn object(method: Method, (namespace, name): Key) -> Request {
        Request::new(method, Some(namespace), Some(name))
    }

    pub(super) fn get(namespace: &'static str, name: &'static str) -> Request {
        Request::object(Method::GET, (namespace, name))
    }

    pub(super) fn create(namespace: &'static str, name: &'static str, spec: Value) -> Request {
        let body = thing(name, json!({ "spec": spec }));
        let query = vec![("fieldManager", Query::text(MANAGERS[0]))];
        Request { body, query, ..Request::new(Method::POST, Some(namespace), None) }
    }

    pub(super) fn list(
        namespace: Option<&'static str>,
        query: Vec<(&'static str, Query)>,
    ) -> Request {
        Request { query, ..Request::new(Method::GET, namespace, None) }
    }

    pub(super) fn watched(mut self) -> Request {
        self.query.push(("watch", Query::text("true")));
        self
    }

    /// The name of the last object that a watch with this selector shows.
    pub(super) fn last_fence(&self) -> &'static str {
        match self.query.iter().find(|(name, _)| *name == "labelSelector") {
            Some((_, Query::Text(text))) if text == "!color" => "fence",
            Some((_, Query::Text(text))) if text == "color=red" || text.contains("(red,") => {
                "fence-red"
            }
            _ => "fence-blue",
        }
    }

    pub(super) fn has(&self, name: &str, value: &str) -> bool {
        let is = |query: &Query| matches!(query, Query::Text(text) if text == value);
        self.query.iter().any(|(known, query)| *known == name && is(query))
    }
}

/// The whole object `name`.
fn thing(name: &str, more: Value) -> Value {
    let mut thing = json!({
        "apiVersion": "test.example.com/v1", "kind": "Thing", "metadata": { "name": name },
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        if field == "metadata" {
            for (field, value) in value.as_object().into_iter().flatten() {
                thing["metadata"][field] = value.clone();
            }
        } else {
            thing[field] = value.clone();
        }
    }
    thing
}

/// The script for a seed.
pub(super) fn script(seed: u64) -> Vec<Request> {
    let mut author = Author { rng: fastrand::Rng::with_seed(seed), value: 0, futures: 0 };
    (0..author.rng.usize(30..60)).map(|_| author.request()).collect()
}

struct Author {
    rng: fastrand::Rng,
    /// The last written value: each is written only once, so that no write is accidentally empty.
    value: i64,
    /// Requests for future versions: each takes the API server three seconds.
    futures: u8,
}

impl Author {
    fn request(&mut self) -> Request {
        match self.rng.u8(..20) {
            0..5 => self.create(),
            5..7 => self.put(),
            7 => self.merge(),
            8 => self.json_patch(),
            9 => self.apply(),
            10 => self.unfinalize(),
            11..13 => self.delete(),
            13 => {
                let (namespace, name) = self.key();
                Request::get(namespace, name)
            }
            14..17 => self.list(),
            _ => self.watch(),
        }
    }

    fn key(&mut self) -> Key {
        (NAMESPACES[self.rng.usize(..2)], NAMES[self.rng.usize(..3)])
    }

    fn scope(&mut self) -> Option<&'static str> {
        self.rng.bool().then(|| NAMESPACES[self.rng.usize(..2)])
    }

    /// True once in `many` times.
    fn rarely(&mut self, many: u8) -> bool {
        self.rng.u8(..many) == 0
    }

    fn value(&mut self) -> i64 {
        self.value += 1;
        self.value
    }

    /// Returns the spec, status and finalizers that an object should have.
    fn content(&mut self, is_status: bool) -> Value {
        let mut more = json!({ "spec": self.spec() });
        // If a value has a wrong type, an API server stops tracking the owners of a status.
        if self.rarely(4) && !is_status {
            more["strict"] = self.strict();
        }
        if self.rarely(3) {
            more["status"] = json!({ "seen": self.value() });
        }
        if self.rarely(3) {
            more["metadata"]["finalizers"] = json!(["test.example.com/stay"]);
        }
        if self.rarely(6) {
            let owner = |number: u8| {
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": number.to_string(),
                    "uid": format!("00000000-0000-4000-8000-00000000000{number}") })
            };
            let owners: Vec<_> = (0..3).filter(|_| self.rng.bool()).map(owner).collect();
            more["metadata"]["ownerReferences"] = json!(owners);
        }
        if self.rarely(4) {
            more["metadata"]["labels"] = json!({ "value": self.value().to_string() });
            more["metadata"]["labels"]["color"] = json!(["red", "blue"][self.rng.usize(..2)]);
        }
        more
    }

    /// Returns fields of every type, with few values, so that several managers set the same value.
    fn spec(&mut self) -> Value {
        let mut spec = json!({});
        if self.rarely(2) {
            spec["value"] = json!(self.value());
        }
        let few = |rng: &mut fastrand::Rng| rng.u8(..3);
        let map = |rng: &mut fastrand::Rng| {
            let mut map = json!({});
            for name in ["a", "b"] {
                if rng.bool() {
                    map[name] = json!(few(rng));
                }
            }
            map
        };
        for name in ["nested", "chosen", "free", "undeclared"] {
            if self.rarely(3) {
                spec[name] = map(&mut self.rng);
            }
        }
        for name in ["list", "set"] {
            if self.rarely(3) {
                let mut numbers: Vec<u8> = (0..4).filter(|_| self.rng.bool()).collect();
                self.rng.shuffle(&mut numbers);
                spec[name] = json!(numbers);
            }
        }
        if self.rarely(2) {
            let mut items = Vec::new();
            for (name, side) in [("x", None), ("x", Some("right")), ("y", Some("left"))] {
                if self.rng.bool() {
                    let mut item = map(&mut self.rng);
                    item["name"] = json!(name);
                    if let Some(side) = side {
                        item["side"] = json!(side);
                    }
                    items.push(item);
                }
            }
            self.rng.shuffle(&mut items);
            spec["items"] = json!(items);
        }
        spec
    }

    /// Often something that the schema refuses, or does not declare.
    fn strict(&mut self) -> Value {
        let mut strict = json!({ "must": "be" });
        let others = [
            ("must", json!(null)),
            ("must", json!("long")),
            ("must", json!("")),
            ("must", json!(1)),
            ("one", json!("b")),
            ("one", json!("c")),
            ("number", json!(2)),
            ("number", json!(0)),
            ("number", json!(3)),
            ("many", json!([1, 2, 3])),
            ("many", json!(["1"])),
            ("many", json!({})),
            ("either", json!("50%")),
            ("either", json!(true)),
            ("deeper", json!({})),
            ("deeper", json!({ "up": "yes" })),
            ("unknown", json!(1)),
        ];
        for _ in 0..self.rng.u8(..3) {
            let (name, value) = others[self.rng.usize(..others.len())].clone();
            strict[name] = value;
        }
        if let Some(fields) = strict.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        strict
    }

    /// Rarely, a body that does not fit its path, or a null.
    fn mistake(&mut self, body: &mut Value) {
        let (field, value) = match self.rng.u8(..24) {
            0 => ("kind", json!("Other")),
            1 => ("apiVersion", json!(null)),
            2 => ("spec", json!({ "free": null, "nested": { "a": null } })),
            3 => ("strict", json!({ "must": "be", "one": null, "number": null })),
            _ => return,
        };
        body[field] = value;
    }

    fn manager(&mut self) -> Vec<(&'static str, Query)> {
        vec![("fieldManager", Query::text(MANAGERS[self.rng.usize(..2)]))]
    }

    fn version(&mut self, key: Key) -> Version {
        match self.rng.u8(..8) {
            0..3 => Version::None,
            3..6 => Version::Last(key),
            6 => Version::First(key),
            _ => Version::At(self.rng.usize(..)),
        }
    }

    fn uid(&mut self, key: Key) -> Uid {
        match self.rng.u8(..8) {
            0..4 => Uid::None,
            4..6 => Uid::Last(key),
            6 => Uid::First(key),
            _ => Uid::Wrong,
        }
    }

    fn create(&mut self) -> Request {
        let (namespace, name) = self.key();
        let mut request = Request::create(namespace, name, Value::Null);
        request.body = thing(name, self.content(false));
        self.mistake(&mut request.body);
        request.query = self.manager();
        if self.rarely(12) {
            request.version = Version::At(self.rng.usize(..));
        }
        if self.rarely(12) {
            request.uid = Uid::Last((namespace, name));
        }
        request
    }

    fn put(&mut self) -> Request {
        let key = self.key();
        let status = self.rarely(3);
        let mut body = thing(key.1, self.content(status));
        self.mistake(&mut body);
        let (version, uid) = (self.version(key), self.uid(key));
        let query = self.manager();
        Request { status, body, version, uid, query, ..Request::object(Method::PUT, key) }
    }

    fn merge(&mut self) -> Request {
        let key = self.key();
        let status = self.rarely(3);
        let body = match self.rng.u8(..4) {
            // Changes nothing.
            0 => json!({ "spec": { "gone": null } }),
            _ => self.content(status),
        };
        let (version, uid) = (self.version(key), self.uid(key));
        let (content, query) = (MERGE, self.manager());
        Request {
            status,
            body,
            version,
            uid,
            query,
            content,
            ..Request::object(Method::PATCH, key)
        }
    }

    /// Returns one operation that is valid for most objects, or none.
    fn json_patch(&mut self) -> Request {
        let key = self.key();
        let field = ["value", "nested", "nested/a", "free/b", "items/0", "list/-"];
        let path = format!("/spec/{}", field[self.rng.usize(..field.len())]);
        let body = match self.rng.u8(..8) {
            0..3 => json!([{ "op": "remove", "path": path }]),
            3 => json!([{ "op": "replace", "path": "/spec", "value": self.spec() }]),
            4 => json!([{ "op": "test", "path": path, "value": 1 },
                { "op": "remove", "path": path }]),
            5 if self.rng.bool() => json!([{ "op": "replace", "path": "/metadata", "value": [] }]),
            5 => json!([{ "op": "remove", "path": "/metadata/managedFields/0" }]),
            6 => json!([{ "op": "replace", "path": "/metadata/managedFields", "value": [{}] }]),
            _ => json!([{ "op": "add", "path": "/spec/list/-", "value": self.value() }]),
        };
        let (content, query) = (JSON_PATCH, self.manager());
        Request { body, query, content, ..Request::object(Method::PATCH, key) }
    }

    fn apply(&mut self) -> Request {
        let key = self.key();
        let status = self.rarely(6);
        let body = thing(key.1, self.content(status));
        let (version, uid) = (self.version(key), self.uid(key));
        let mut query = self.manager();
        if !self.rarely(3) {
            query.push(("force", Query::text("true")));
        }
        let content = APPLY;
        Request {
            status,
            body,
            version,
            uid,
            query,
            content,
            ..Request::object(Method::PATCH, key)
        }
    }

    fn unfinalize(&mut self) -> Request {
        let key = self.key();
        let body = json!({ "metadata": { "finalizers": null } });
        let query = self.manager();
        Request { body, query, content: MERGE, ..Request::object(Method::PATCH, key) }
    }

    fn delete(&mut self) -> Request {
        let key = self.key();
        let body = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
        });
        let (version, uid) = (self.version(key), self.uid(key));
        let within = "preconditions";
        Request { body, version, uid, within, ..Request::object(Method::DELETE, key) }
    }

    /// A version for a list or a watch.
    fn moment(&mut self) -> Option<Query> {
        if self.futures == 0 && self.rarely(24) {
            self.futures += 1;
            return Some(Query::Version(Version::Future));
        }
        match self.rng.u8(..8) {
            0 => None,
            1 => Some(Query::text("0")),
            _ => Some(Query::Version(Version::At(self.rng.usize(..)))),
        }
    }

    /// A selector of labels or of names.
    fn selector(&mut self, is_watch: bool) -> Vec<(&'static str, Query)> {
        const OF: [(&str, &str); 11] = [
            ("labelSelector", "color"),
            ("labelSelector", "!color"),
            ("labelSelector", "color=red"),
            ("labelSelector", "color==blue, value"),
            ("labelSelector", "color!=red"),
            ("labelSelector", "color in (red,green)"),
            ("labelSelector", "color notin (red),color"),
            ("labelSelector", "color of red"),
            ("labelSelector", "color,color!=red"),
            // A watch with these would see no fence.
            ("fieldSelector", "metadata.name=a"),
            ("fieldSelector", "metadata.namespace!=model"),
        ];
        let number = if is_watch { OF.len() - 3 } else { OF.len() };
        let (name, value) = OF[self.rng.usize(..number)];
        if self.rarely(3) { vec![(name, Query::text(value))] } else { Vec::new() }
    }

    fn list(&mut self) -> Request {
        let mut query = self.selector(false);
        if self.rng.bool() {
            query.push(("limit", Query::Text(self.rng.u8(1..4).to_string())));
        }
        if self.rarely(2) {
            query.push(("continue", Query::Token(self.rng.usize(..))));
        }
        let plain = query.iter().any(|(name, _)| *name == "continue") && !self.rarely(8);
        if !plain && self.rng.bool() {
            query.extend(self.moment().map(|at| ("resourceVersion", at)));
            let how = ["NotOlderThan", "Exact", "", "Sometime"];
            let how = how[if self.rarely(8) { 3 } else { self.rng.usize(..3) }];
            if !how.is_empty() {
                query.push(("resourceVersionMatch", Query::text(how)));
            }
        }
        Request::list(self.scope(), query)
    }

    fn watch(&mut self) -> Request {
        let mut query = self.selector(true);
        let selected = query.len();
        query.extend(self.moment().map(|at| ("resourceVersion", at)));
        if self.rarely(8) {
            query.truncate(selected);
            query.push(("resourceVersion", Query::text("1")));
        }
        if self.rng.u8(..8) != 0 {
            query.push(("allowWatchBookmarks", Query::text("true")));
        }
        if self.rng.bool() {
            query.push(("sendInitialEvents", Query::text("true")));
        }
        if self.rng.bool() != self.rarely(8) {
            query.push(("resourceVersionMatch", Query::text("NotOlderThan")));
        }
        Request::list(self.scope(), query).watched()
    }
}
