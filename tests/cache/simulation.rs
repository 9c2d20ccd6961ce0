//! Random histories under random faults.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use workload_operator::client::{Client, Deletion, Patch, Preconditions, PropagationPolicy};
use workload_operator::informer::Informer;
use workload_operator::object::Object;

use crate::thing::{THINGS, Thing, client, held, id, key, pass, poison, run, served, thing};
use crate::witness::{Listener, Reader, Verdict};
use controller_machinery::testing::{Fault, Id, Server};

/// The number of histories without `CACHE_SEEDS`.
const SEEDS: u64 = 2_500;
/// The number of steps in a history before the faults stop.
const STEPS: u32 = 40;
/// In seconds. After the faults stop, a silent watch is detected within 150 s, and no wait is
/// longer than 30 s.
const CONVERGED_WITHIN: u64 = 400;

/// All objects that may exist.
const NAMESPACES: [&str; 2] = ["a", "b"];
const NAMES: [&str; 3] = ["x", "y", "z"];

/// One history.
struct Simulation {
    model: Server,
    client: Client,
    informer: Informer<Thing>,
    rng: fastrand::Rng,
    verdict: Verdict,
    reader: Reader,
    prompt: Listener,
    value: i64,
    /// The last term that requested a list.
    term: u64,
}

#[test]
fn the_store_converges_to_the_server_after_any_faults() {
    let var = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let seeds = match var("CACHE_SEED") {
        Some(first) => first..first + var("CACHE_SEEDS").unwrap_or(1),
        None => 0..var("CACHE_SEEDS").unwrap_or(SEEDS),
    };
    let many = seeds.end - seeds.start >= 1000;
    let (next, struck) = (AtomicU64::new(seeds.start), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|s| *s < seeds.end)
        {
            for (fault, times) in simulate(seed) {
                *struck.lock().entry(fault).or_insert(0) += times;
            }
        }
    };
    std::thread::scope(|threads| {
        let others = std::thread::available_parallelism().map_or(1, |n| n.get());
        (0..others).for_each(|_| drop(threads.spawn(work)));
    });
    let struck = struck.into_inner();
    println!("{struck:#?}");
    if many {
        // A fault that never strikes proves nothing.
        assert_eq!(struck.len(), Fault::KINDS, "{struck:#?}");
        assert!(struck.values().all(|times| *times >= 20), "{struck:#?}");
    }
}

/// Runs one history. Returns how often each fault struck in it.
fn simulate(seed: u64) -> BTreeMap<String, u64> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing");
    // All randomness in the library comes from the thread's generator.
    fastrand::seed(seed);
    runtime.block_on(async {
        let simulation = Simulation::new(seed);
        let model = simulation.model.clone();
        let wrong = simulation.run().await;
        assert_eq!(
            wrong, None,
            "seed {seed}; CACHE_SEED={seed} cargo test --test cache repeats it"
        );
        model.injected()
    })
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let mut rng = fastrand::Rng::with_seed(seed);
        let model = Server::new(rng.u64(..));
        model.set_page(rng.usize(1..6));
        model.set_streaming(rng.u8(..4) != 0);
        let client = client(&model);
        let builder = Informer::builder(client.clone());
        let builder = if rng.u8(..4) == 0 { builder.namespaces(NAMESPACES) } else { builder };
        let informer = builder.build();
        let verdict = Verdict::default();
        let keys = NAMESPACES.iter().flat_map(|ns| NAMES.iter().map(|name| key(&id(ns, name))));
        let reader = Reader::new(keys);
        let prompt = Listener::new("a handler was notified of", &verdict);
        Simulation { model, client, informer, rng, verdict, reader, prompt, value: 0, term: 0 }
    }

    async fn run(mut self) -> Option<String> {
        for _ in 0..self.rng.usize(..8) {
            self.change();
        }
        // Some servers are bad, and some so bad that hardly anything gets done.
        let (of_requests, of_frames) = ([0.05, 0.15, 0.3], [0.02, 0.05, 0.15]);
        self.model.faults(of_requests[self.rng.usize(..3)], of_frames[self.rng.usize(..3)]);
        let heard = self.prompt.clone();
        self.informer.handle(move |delta, _| heard.reported(delta));
        run(self.informer.clone());
        for _ in 0..STEPS {
            self.step().await;
        }
        self.heal();
        self.poisoned().await;
        if let Some(wrong) = self.converge().await {
            return Some(wrong);
        }
        self.verdict.get()
    }

    /// Makes something happen, and lets a reader look.
    async fn step(&mut self) {
        match self.rng.u8(..21) {
            0 => self.model.compact(),
            1 => drop(self.model.bump()),
            2 => {
                let served = self.rng.u8(..4) != 0;
                self.model.set_served(THINGS, served);
            }
            3 => {
                let allowed = self.rng.u8(..4) != 0;
                self.model.set_allowed(THINGS, allowed);
            }
            4 => {
                let id = self.any();
                self.model.put(&id, poison());
            }
            5 => {
                // As a new leader does.
                self.term += 1;
                drop(self.informer.refresh(self.term));
            }
            6..10 => self.write().await,
            _ => self.change(),
        }
        self.reader.look(&self.informer, &self.verdict);
        if self.rng.u8(..3) != 0 {
            let wait = self.rng.u64(..9000);
            tokio::time::sleep(Duration::from_millis(wait)).await;
            self.reader.look(&self.informer, &self.verdict);
        }
    }

    fn any(&mut self) -> Id {
        id(NAMESPACES[self.rng.usize(..2)], NAMES[self.rng.usize(..3)])
    }

    /// Changes something, as another client would.
    fn change(&mut self) {
        let id = self.any();
        self.value += 1;
        match self.rng.u8(..8) {
            0 | 1 => self.model.delete(&id),
            2 => {
                self.model.delete(&id);
                self.model.put(&id, thing(self.value));
            }
            _ => drop(self.model.put(&id, thing(self.value))),
        }
    }

    /// Changes something as one of us would, based on the store's view, and passes the answer to the
    /// store.
    async fn write(&mut self) {
        let id = self.any();
        let key = key(&id);
        self.value += 1;
        let (client, store) = (self.client.clone(), self.informer.store());
        let Some(old) = store.get(&key) else {
            let mut body = thing(self.value);
            body["metadata"] = json!({ "name": id.name, "namespace": id.namespace });
            if let Ok(new) = client.create::<Thing>(&key, &body).await {
                store.apply_response(new);
            }
            return;
        };
        if self.rng.u8(..3) == 0 {
            let (uid, version) = (old.uid(), old.meta().version);
            let deletion = client
                .delete::<Thing>(
                    &key,
                    Preconditions { uid, version },
                    PropagationPolicy::Background,
                )
                .await;
            if let Ok(Deletion::Deleted) = deletion {
                store.apply_delete(&key, uid);
            }
            return;
        }
        let mut body = json!({"metadata": {"uid": old.uid()}, "spec": {"value": self.value}});
        if self.rng.bool() {
            // Otherwise it can overwrite another client's change that has not been shown yet.
            body["metadata"]["resourceVersion"] = json!(old.meta().version);
        }
        if let Ok(new) = client.patch::<Thing>(&key, &Patch::Merge(&body)).await {
            store.apply_response(new);
        }
    }

    /// Stops all faults: from now on nothing goes wrong.
    fn heal(&mut self) {
        self.model.faults(0.0, 0.0);
        self.model.script([]);
        self.model.set_served(THINGS, true);
        self.model.set_allowed(THINGS, true);
    }

    /// Replaces some objects by ones that do not decode, and lets lists and watches show them; what
    /// the store held must stay. Then mends all objects.
    async fn poisoned(&mut self) {
        let mut watched = Vec::new();
        if self.rng.u8(..4) == 0 && self.converge().await.is_none() {
            for (id, object) in self.model.objects(THINGS) {
                let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                let good = object["spec"]["value"].is_i64();
                if good && self.rng.bool() {
                    self.model.put(&id, poison());
                    watched.push((key(&id), uid));
                }
            }
            if self.rng.bool() {
                self.model.compact();
            }
            self.model.script([Fault::GoneInStream]);
            pass(60).await;
            self.reader.look(&self.informer, &self.verdict);
        }
        for (key, uid) in watched {
            if !self.reader.sees(&key, &uid) {
                self.verdict.wrong(format!("{key} was lost when it could not be decoded"));
            }
        }
        for (id, object) in self.model.objects(THINGS) {
            if !object["spec"]["value"].is_i64() {
                self.model.put(&id, thing(0));
            }
        }
    }

    async fn converge(&mut self) -> Option<String> {
        for _ in 0..CONVERGED_WITHIN / 5 {
            self.reader.look(&self.informer, &self.verdict);
            if self.verdict.get().is_some() {
                break;
            }
            let served = served(&self.model);
            if self.prompt.believes() == served && held(&self.informer) == served {
                return None;
            }
            pass(5).await;
        }
        Some(self.verdict.get().unwrap_or_else(|| {
            let (held, served) = (held(&self.informer), served(&self.model));
            let (believes, health) = (self.prompt.believes(), self.informer.health());
            format!("held {held:?}, told {believes:?}, served {served:?}; {health:?}")
        }))
    }
}
