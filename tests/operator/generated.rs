//! Every sequence of edits of a custom resource ends in the desired state.
//!
//! The steps are generated from the CRD's OpenAPI schema: valid edits, edits at and beyond each bound, of the wrong type,
//! null, missing and unknown fields, the same spec in another notation, owned objects deleted and changed by hand, restarts of the operator.
//! - Ready: after each step, the object becomes Ready for its newest generation.
//! - No-op: a change without a difference in meaning causes no write to an owned object.
//! - Refusal: an invalid spec is refused, and causes no write.
//! - Recovery: a deleted owned object is created again, a changed one is as before.
//! - Differential: a new object with the last spec has the same owned objects and the same status.
//! - Health: every visible status and Event obeys the laws in status.rs, columns.rs and events.rs.
//! - At the end, nothing is left.
//!
//! A seed determines a sequence. `GENERATED_SEED` is the first (default 1), `GENERATED_SEQUENCES` the number of consecutive
//! ones.

pub mod columns;
mod events;
pub mod schema;
pub mod status;
pub mod values;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use controller_machinery::testing::Server;
use fastrand::Rng;
use serde_json::{Value, json};

use columns::Columns;

use crate::world::{
    APP, BUDGET, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, Kind, MEMCACHED, POD, SERVICE, World, id,
    is_ready,
};

/// Number of sequences by default: some seconds on two cores.
const SEQUENCES: u64 = 4;

/// Number of steps between two restarts of the operator.
const STEPS: usize = 8;

/// The name of every custom resource here.
const NAME: &str = "it";

const CHILDREN: [Kind; 4] = [DEPLOYMENT, DAEMON_SET, SERVICE, BUDGET];

#[test]
fn every_sequence_of_edits_ends_in_the_desired_state() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let (first, count) = (number("GENERATED_SEED", 1), number("GENERATED_SEQUENCES", SEQUENCES));
    let next = AtomicU64::new(first);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let sequence = AssertUnwindSafe(|| sequence(seed));
                    if let Err(failure) = catch_unwind(sequence) {
                        eprintln!("GENERATED_SEED={seed} GENERATED_SEQUENCES=1 repeats it");
                        resume_unwind(failure);
                    }
                }
            });
        }
    });
}

/// Runs a custom resource from its creation to its end.
fn sequence(seed: u64) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(async {
        let mut rng = Rng::with_seed(seed);
        // An App has the largest spec.
        let kind = *rng.choice(&[MEMCACHED, GENERIC_DAEMON, APP, APP]).unwrap();
        let world = World::on(Server::new(seed));
        let schema = schema::of_spec(kind);
        let mut sequence =
            Sequence { world: &world, kind, schema: &schema, spec: Value::Null, did: Vec::new() };
        let object = id(kind, NAME);
        let mut laws = Laws { kind, columns: Columns::of(kind), before: None };
        let flags = [
            "--memcached-image=memcached:1",
            "--memcached-exporter-image=exporter:1",
            "--allow-templates",
        ];
        let story = async {
            let spec = schema::valid(&schema, "spec", &mut rng);
            world.run_with(&flags, sequence.create(spec)).await;
            // The operator restarts after each part.
            for _ in 0..rng.usize(2..=4) {
                let part = async {
                    for _ in 0..STEPS {
                        sequence.step(&mut rng).await;
                    }
                };
                world.run_with(&flags, part).await;
            }
            world.run_with(&flags, sequence.end()).await;
        };
        tokio::select! {
            () = story => {}
            _ = world.server.until(&object, |it| laws.see(it)) => unreachable!("it never returns true"),
        }
    });
}

/// One custom resource.
struct Sequence<'a> {
    world: &'a World,
    kind: Kind,
    schema: &'a Value,
    spec: Value,
    /// The steps so far, for messages.
    did: Vec<String>,
}

impl Sequence<'_> {
    async fn create(&mut self, spec: Value) {
        self.did.push(format!("create {spec}"));
        self.spec = spec;
        self.world.create(self.kind, json!({"metadata": {"name": NAME}, "spec": self.spec}));
        self.settled().await;
    }

    /// Waits until nothing changes any more. Then, the object is Ready.
    async fn settled(&self) {
        self.world.quiet().await;
        let object = self.world.get(self.kind, NAME).expect("it exists");
        assert!(is_ready(&object), "{}\nafter {:#?}", object["status"], self.did);
    }

    async fn step(&mut self, rng: &mut Rng) {
        let schema = self.schema;
        let there: Vec<Kind> =
            CHILDREN.into_iter().filter(|kind| self.world.get(*kind, NAME).is_some()).collect();
        let child = *rng.choice(&there).expect("each kind has a child");
        match rng.u8(..16) {
            0..6 => self.edit(schema::edited(schema, &self.spec, rng)).await,
            6 => self.edit(schema::valid(schema, "spec", rng)).await,
            7..10 => {
                let (spec, why) = schema::bad(schema, &self.spec, rng);
                self.did.push(format!("refused: {why}: {spec}"));
                let writes = self.writes();
                let answer = self.replace_spec(&spec);
                assert!(answer.is_err(), "{why} is accepted: {:#?}", self.did);
                self.settled().await;
                assert_eq!(self.writes(), writes, "{:#?}", self.did);
            }
            10..13 => self.write_otherwise(schema, rng).await,
            13 | 14 => self.spoil(child).await,
            _ => {
                self.did.push(format!("delete {}", child.name()));
                let before = self.snapshot();
                self.world.delete(child, NAME);
                self.settled().await;
                self.assert_equal(&before);
            }
        }
    }

    async fn edit(&mut self, spec: Value) {
        self.did.push(format!("edit {spec}"));
        self.replace_spec(&spec).unwrap_or_else(|why| panic!("{why}: {:#?}", self.did));
        self.spec = spec;
        self.settled().await;
    }

    /// Replaces the whole spec, as `kubectl replace` does.
    fn replace_spec(&self, spec: &Value) -> Result<(), Value> {
        let now = self.world.get(self.kind, NAME).expect("it exists");
        let patch = json!({ "spec": merge_patch(&now["spec"], spec) });
        self.world.server.patch(&id(self.kind, NAME), &patch).map(drop)
    }

    /// Writes the same spec in another way.
    async fn write_otherwise(&mut self, schema: &Value, rng: &mut Rng) {
        let mut spec = self.spec.clone();
        match rng.u8(..4) {
            0 => {
                // The order of variables matters if one refers to another.
                let refers = spec["envs"].to_string().contains("$(");
                for name in ["envs", "ports"] {
                    let items = spec.get_mut(name).and_then(Value::as_array_mut);
                    if let Some(items) = items.filter(|_| name == "ports" || !refers) {
                        items.reverse();
                    }
                }
            }
            1 => spec = schema::defaulted(schema, &spec),
            2 => {
                let map = spec.as_object_mut().expect("a spec");
                for name in schema["properties"].as_object().expect("properties").keys() {
                    map.entry(name.clone()).or_insert(Value::Null);
                }
            }
            _ => spec["colour"] = json!("blue"),
        }
        self.did.push(format!("the same: {spec}"));
        let (before, writes) = (self.snapshot(), self.writes());
        let patch = json!({ "spec": spec });
        self.world.server.patch(&id(self.kind, NAME), &patch).expect("it is the same");
        self.settled().await;
        assert_eq!(self.writes(), writes, "{:#?}", self.did);
        self.assert_equal(&before);
    }

    /// Changes an owned object by hand.
    async fn spoil(&mut self, child: Kind) {
        self.did.push(format!("spoil {}", child.name()));
        let before = self.snapshot();
        let patch = match child {
            DEPLOYMENT | DAEMON_SET => {
                json!({"spec": {"template": {"metadata": {"labels": {"app.kubernetes.io/name": "x"}}}}})
            }
            SERVICE => json!({"spec": {"selector": {"other": "x"}}}),
            _ => json!({"spec": {"maxUnavailable": 7}}),
        };
        self.world.patch(child, NAME, patch);
        self.settled().await;
        self.assert_equal(&before);
    }

    /// Number of writes of the operator to owned objects so far.
    fn writes(&self) -> usize {
        let plurals = CHILDREN.map(|kind| format!("/{}", kind.plural()));
        let writes = self.world.server.writes().into_iter();
        writes.filter(|write| plurals.iter().any(|plural| write.resource.ends_with(plural))).count()
    }

    /// The owned objects and the status, without what differs between objects or moments.
    fn snapshot(&self) -> BTreeMap<&'static str, Value> {
        let mut all = BTreeMap::new();
        for kind in CHILDREN {
            let Some(child) = self.world.get(kind, NAME) else { continue };
            let mut spec = child["spec"].clone();
            canonical(&mut spec, "");
            all.insert(kind.name(), json!({"spec": spec, "labels": child["metadata"]["labels"]}));
        }
        let object = self.world.get(self.kind, NAME).expect("it exists");
        all.insert("status", lasting(&object["status"]));
        all
    }

    fn assert_equal(&self, before: &BTreeMap<&'static str, Value>) {
        let now = self.snapshot();
        for (what, value) in before {
            let is = now.get(what);
            assert_eq!(is, Some(value), "{what} after {:#?}", self.did);
        }
        assert_eq!(now.len(), before.len(), "{:?} after {:#?}", now.keys(), self.did);
    }

    /// Deletes it and creates it again with the last spec, which has the same result. Then deletes it.
    async fn end(mut self) {
        let last = self.snapshot();
        self.delete().await;
        self.create(self.spec.clone()).await;
        self.assert_equal(&last);
        self.delete().await;
        for event in self.world.server.events(&id(self.kind, NAME)) {
            assert_eq!(events::breaches(&event), [""; 0], "{event:#}");
        }
    }

    async fn delete(&self) {
        self.world.delete(self.kind, NAME);
        self.world.quiet().await;
        for kind in CHILDREN.into_iter().chain([self.kind, POD]) {
            let left = self.world.list(kind);
            assert!(left.is_empty(), "{left:#?} is left after {:#?}", self.did);
        }
    }
}

/// The laws, for every version of the custom resource.
struct Laws {
    kind: Kind,
    columns: Columns,
    before: Option<Value>,
}

impl Laws {
    /// Checks a version. Returns false, to see the next one.
    fn see(&mut self, object: &Value) -> bool {
        let mut broken = status::breaches(self.kind, object);
        broken.extend(self.columns.breaches(object));
        let former = self.before.take();
        match former.filter(|it| {
            // Else, the status is the default of the schema.
            it["metadata"]["uid"] == object["metadata"]["uid"]
                && it["status"]["observedGeneration"] != -1
        }) {
            Some(before) if before["status"] != object["status"] => {
                broken.extend(status::breaches_of_write(self.kind, &before, object));
            }
            _ => {}
        }
        assert_eq!(broken, [""; 0], "{}: {}", object["spec"], object["status"]);
        self.before = Some(object.clone());
        false
    }
}

/// Returns the merge patch that makes `new` of `old`.
pub fn merge_patch(old: &Value, new: &Value) -> Value {
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else {
        return new.clone();
    };
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    let removed = removed.map(|name| (name.clone(), Value::Null));
    let kept = after.iter().map(|(name, value)| {
        (
            name.clone(),
            before.get(name).map_or_else(|| value.clone(), |old| merge_patch(old, value)),
        )
    });
    removed.chain(kept).collect()
}

/// Lists with keys sorted by key, quantities by value.
pub fn canonical(value: &mut Value, name: &str) {
    match value {
        Value::Array(items) => {
            items.iter_mut().for_each(|item| canonical(item, ""));
            match name {
                "ports" => items.sort_by_key(|port| {
                    let number = port["port"].as_i64().or(port["containerPort"].as_i64());
                    (number, port["protocol"].to_string())
                }),
                // The order matters only if one variable refers to another.
                "env" if !items.iter().any(|var| var["value"].to_string().contains("$(")) => {
                    items.sort_by_key(|var| var["name"].to_string());
                }
                _ => {}
            }
        }
        Value::Object(map) if name == "limits" || name == "requests" => {
            map.values_mut().for_each(|amount| *amount = json!(amount_of(amount)));
        }
        Value::Object(map) => map.iter_mut().for_each(|(name, value)| canonical(value, name)),
        _ => {}
    }
}

fn amount_of(quantity: &Value) -> f64 {
    let text = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let units = [("", 0), ("m", -3), ("k", 3), ("M", 6), ("G", 9)];
    let decimal = units.iter().find(|(unit, _)| *unit == &text[digits.len()..]);
    let binary = ["Ki", "Mi", "Gi"].iter().position(|unit| *unit == &text[digits.len()..]);
    let unit = match (decimal, binary) {
        (Some((_, power)), _) => 10_f64.powi(*power),
        (_, Some(at)) => 1024_f64.powi(at as i32 + 1),
        _ => panic!("the unit of {text} is not known here"),
    };
    digits.parse::<f64>().expect("a number") * unit
}

/// Returns a status without parts that differ between objects or moments.
pub fn lasting(status: &Value) -> Value {
    let mut status = status.clone();
    let map = status.as_object_mut().expect("a status");
    map.remove("observedGeneration");
    if let Some(nodes) = map.get_mut("nodes") {
        *nodes = json!(nodes.as_array().map(Vec::len));
    }
    for condition in map.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let condition = condition.as_object_mut().expect("a condition");
        condition.remove("observedGeneration");
        condition.remove("lastTransitionTime");
        // The Deployment's own sentence: ReplicaSet "NAME" has successfully progressed.
        if let Some(message) = condition.get_mut("message") {
            let outside = message.as_str().unwrap_or_default().split('"').step_by(2);
            *message = json!(outside.collect::<Vec<_>>());
        }
    }
    status
}
