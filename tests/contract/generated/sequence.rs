//! One custom resource through a sequence of steps, with everything checked after each.

use std::sync::Arc;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::Run;
use super::compare::{differences, essence, lasting};
use super::expected::{Expected, expected};
use super::schema::defaulted;
use super::steps::{Otherwise, Step};
use super::{schema, values};
use crate::world::{APP, DEPLOYMENT, Kind, POD, conditions, has_condition};

/// The most writes to children that one edit may cause: two children, of each a change, one more to
/// clear its way, and one that somebody else's came before.
const WRITES_PER_STEP: usize = 6;

/// All of a custom resource's surroundings that counts, as plain JSON, and the UIDs of children.
struct Snapshot(Value, Vec<String>);

/// One custom resource.
pub struct Sequence {
    run: Arc<Run>,
    kind: Kind,
    name: String,
    schema: Value,
    spec: Value,
    /// Writes to children that are accounted for.
    writes: usize,
}

impl Sequence {
    /// A new one.
    pub async fn create(run: Arc<Run>, kind: Kind, name: String, spec: Value) -> Sequence {
        let schema = schema::of_spec(kind);
        let mut sequence = Sequence { run, kind, name, schema, spec, writes: 0 };
        sequence.make().await;
        sequence
    }

    async fn make(&mut self) {
        let object = json!({"metadata": {"name": self.name}, "spec": self.spec});
        self.run.world.create(self.kind, object).await.expect("a valid spec is accepted");
        self.settled().await;
    }

    /// What might come next.
    pub fn next(&self, rng: &mut Rng, slot: u64) -> Step {
        let valid = |spec| values::slot(spec, slot);
        let children = self.expected().children;
        let there: Vec<Kind> = children.iter().filter(|c| c.1.is_some()).map(|c| c.0).collect();
        match rng.u8(..16) {
            0..6 => Step::Edit(valid(schema::edited(&self.schema, &self.spec, rng))),
            6 => Step::Edit(valid(schema::valid(&self.schema, "spec", rng))),
            7..10 => {
                let (spec, why) = schema::bad(&self.schema, &self.spec, rng);
                Step::Refused(spec, why)
            }
            10..13 => Step::Same(*rng.choice(&Otherwise::ALL).expect("some")),
            13 if self.kind == APP => self.absurd(rng),
            13 | 14 => Step::Spoil(*rng.choice(&there).expect("each kind has a child")),
            _ => Step::Delete(*rng.choice(&there).expect("each kind has a child")),
        }
    }

    fn absurd(&self, rng: &mut Rng) -> Step {
        let mut spec = self.spec.clone();
        if rng.bool() {
            // No node has so much.
            spec["resources"] = json!({"requests": {"cpu": "100k"}});
            spec["replicas"] = json!(spec["replicas"].as_i64().unwrap_or(1).max(1));
            Step::Absurd(spec, "RollingOut")
        } else {
            // The schema cannot know which node ports a cluster gives out.
            spec["ports"] = json!([{"port": 80, "nodePort": 80}]);
            Step::Absurd(spec, "Invalid")
        }
    }

    /// Does it and checks everything.
    pub async fn step(&mut self, step: &Step) {
        let world = &self.run.world;
        self.assert_no_write_without_reason();
        match step {
            Step::Edit(spec) => {
                let accepted = world.replace_spec(self.kind, &self.name, spec).await;
                accepted.expect("a valid spec is accepted");
                self.spec = spec.clone();
                self.settled().await;
            }
            Step::Refused(spec, why) => {
                let answer = world.replace_spec(self.kind, &self.name, spec).await;
                let message = answer.err().unwrap_or_else(|| panic!("accepted: {why}: {spec}"));
                assert!(message.contains("spec"), "{message}");
            }
            Step::Same(otherwise) => {
                let spec = otherwise.write(&self.schema, &self.spec);
                let accepted = world.replace_spec(self.kind, &self.name, &spec).await;
                accepted.expect("the same is as valid");
                let before = self.writes;
                self.settled().await;
                assert_eq!(self.writes, before, "writes although {otherwise:?} means the same");
            }
            Step::Absurd(spec, reason) => self.undo(spec, reason).await,
            Step::Delete(child) => {
                let before = world.get(*child, &self.name).await.expect("it is there");
                world.delete(*child, &self.name).await;
                let new = |c: &Value| c["metadata"]["uid"] != before["metadata"]["uid"];
                let new = world.until(*child, &self.name, new).await;
                self.restored(*child, &new).await;
            }
            Step::Spoil(child) => self.spoil(*child).await,
        }
        self.run.laws.assert_kept();
    }

    /// Changes a child by hand and waits until that is undone.
    async fn spoil(&mut self, child: Kind) {
        let world = &self.run.world;
        let mut patch = json!({"metadata": {"labels": {"app.kubernetes.io/name": "spoilt"}}});
        if child == DEPLOYMENT {
            // Not its replicas: the ReplicaSet's counts lag so far behind that for a moment nobody
            // can tell that there are too many.
            patch["spec"] = json!({"template": {"spec": {"hostname": "mine"}}});
        }
        world.patch(child, &self.name, patch).await.expect("a person may");
        let is_healed = |c: &Value| c["metadata"]["labels"]["app.kubernetes.io/name"] != "spoilt";
        let mut healed = world.until(child, &self.name, is_healed).await;
        if child == DEPLOYMENT {
            // What is not the operator's stays; here it would be a difference.
            let mine = json!({"spec": {"template": {"spec": {"hostname": null}}}});
            healed = world.patch(child, &self.name, mine).await.expect("a person may");
        }
        self.restored(child, &healed).await;
    }

    /// A spec that nobody can bring about: it says so, and undone all is as before.
    async fn undo(&mut self, spec: &Value, reason: &str) {
        let world = &self.run.world;
        let before = self.snapshot().await;
        world.replace_spec(self.kind, &self.name, spec).await.expect("it is accepted");
        let told = |object: &Value| {
            has_condition(object, "Ready", "False")
                && conditions(object).any(|c| c["type"] == "Ready" && c["reason"] == reason)
        };
        let object = world.until(self.kind, &self.name, told).await;
        let stuck = if reason == "Invalid" { ["Stalled", "Degraded"] } else { ["Reconciling"; 2] };
        for condition in stuck {
            assert!(has_condition(&object, condition, "True"), "{condition}: {object}");
        }
        world
            .replace_spec(self.kind, &self.name, &self.spec)
            .await
            .expect("it was accepted before");
        self.writes = self.run.audit.of_children(&self.name);
        self.settled().await;
        let after = self.snapshot().await;
        assert_eq!(differences(&before.0, &after.0), [""; 0], "undone it is not as before");
        assert_eq!(before.1, after.1, "a child was deleted to undo it");
    }

    fn expected(&self) -> Expected {
        let spec = defaulted(&self.schema, &self.spec);
        expected(self.kind, &self.name, &spec, &self.run.nodes)
    }

    /// `child` was meddled with: waits until it is as it was and its pods run, in a state not
    /// older than `since`.
    async fn restored(&mut self, child: Kind, since: &Value) {
        let wanted = self.expected().children.into_iter().find(|(kind, _)| *kind == child);
        let wanted = wanted.and_then(|(_, wanted)| wanted).expect("it was there, so it is wanted");
        let wanted = self.as_the_server_has_it(child, wanted).await;
        let is_done = |object: &Value| {
            object["metadata"]["uid"] == since["metadata"]["uid"]
                && object["metadata"]["generation"].as_i64()
                    >= since["metadata"]["generation"].as_i64()
                && differences(&essence(&wanted, &wanted), &essence(object, &wanted)).is_empty()
                && is_rolled_out(object)
        };
        self.run.world.until(child, &self.name, is_done).await;
        self.surplus_gone().await;
        self.settled().await;
    }

    /// Waits until no more pods stay than are wanted: after a rescue the ReplicaSet controller may
    /// have some under way of which no count tells.
    async fn surplus_gone(&self) {
        let world = &self.run.world;
        let changed = Arc::new(Notify::new());
        let tell = changed.clone();
        let watch = tokio::spawn(world.for_each_change(POD, move |_| tell.notify_one()));
        let wanted = usize::try_from(self.expected().counts[0].1).expect("a count");
        while self.staying_pods().await.len() > wanted {
            changed.notified().await;
        }
        watch.abort();
    }

    async fn staying_pods(&self) -> Vec<Value> {
        let labels = format!("app.kubernetes.io/instance={}", self.name);
        let mut pods = self.run.world.list_with(POD, &labels).await;
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        pods
    }

    /// Waits until Ready says so of the newest generation, and holds it to that.
    async fn settled(&mut self) {
        let world = &self.run.world;
        let (kind, name) = (self.kind, self.name.as_str());
        let is_ready = |object: &Value| has_condition(object, "Ready", "True");
        let object = world.until(kind, name, is_ready).await;
        let Expected { children, counts } = self.expected();
        for (child, wanted) in children {
            let found = world.get(child, name).await;
            let Some(wanted) = wanted else {
                assert!(found.is_none(), "there is a {} although none is wanted", child.name());
                continue;
            };
            let asked = self.as_the_server_has_it(child, wanted).await;
            let found = found.unwrap_or_else(|| panic!("Ready without a {}", child.name()));
            let wrong = differences(&essence(&asked, &asked), &essence(&found, &asked));
            assert!(wrong.is_empty(), "{} is not as {} asks: {wrong:#?}", child.name(), self.spec);
            let owner = &found["metadata"]["ownerReferences"][0];
            assert_eq!(owner["uid"], object["metadata"]["uid"], "of the {}", child.name());
            // Waited for, not asserted: a Deployment that was scaled to 0 may count a pod that is
            // going as unavailable once more, after it had said that all is done.
            world.until(child, name, is_rolled_out).await;
        }
        for (field, count) in counts {
            assert_eq!(object["status"][field], count, "status.{field} of {object}");
        }
        for (condition, status) in [("Available", "True"), ("Degraded", "False")] {
            assert!(has_condition(&object, condition, status), "{condition} in {object}");
        }
        self.assert_pods_serve(&object).await;
        let writes = self.run.audit.of_children(name);
        let caused = writes - self.writes;
        assert!(caused <= WRITES_PER_STEP, "one step caused {caused} writes to children");
        self.writes = writes;
    }

    /// While Ready is True, the pods that are there are of this generation, and all of it.
    async fn assert_pods_serve(&self, object: &Value) {
        let pods = self.staying_pods().await;
        let images: Vec<&Value> =
            pods.iter().map(|pod| &pod["spec"]["containers"][0]["image"]).collect();
        let count = ["replicas", "size", "desired"].map(|field| object["status"][field].as_u64());
        let count = count.into_iter().flatten().next().expect("each kind has a count");
        assert_eq!(images.len() as u64, count, "Ready with these pods: {images:?}");
        if let Some(image) = self.spec["image"].as_str() {
            assert!(images.iter().all(|found| *found == image), "{images:?} for {image}");
        }
    }

    /// A child that a person would write, with what the API server fills in.
    async fn as_the_server_has_it(&self, child: Kind, wanted: Value) -> Value {
        let mut object = wanted.clone();
        object["metadata"]["name"] = json!(format!("{}-dry", self.name));
        // They are taken, by the child itself.
        for port in object["spec"]["ports"].as_array_mut().into_iter().flatten() {
            port.as_object_mut().expect("a port").remove("nodePort");
        }
        let mut made =
            self.run.world.dry_run(child, object).await.expect("what is expected is valid");
        for port in made["spec"]["ports"].as_array_mut().into_iter().flatten() {
            let same = |p: &&Value| p["port"] == port["port"] && p["protocol"] == port["protocol"];
            let asked = wanted["spec"]["ports"].as_array().expect("ports").iter().find(same);
            let asked = asked.map(|asked| asked["nodePort"].clone()).unwrap_or_default();
            let port = port.as_object_mut().expect("a port");
            port.remove("nodePort");
            if !asked.is_null() {
                port.insert("nodePort".to_owned(), asked);
            }
        }
        made
    }

    /// With nothing to do since the last step was over, nothing was written.
    fn assert_no_write_without_reason(&self) {
        let writes = self.run.audit.of_children(&self.name);
        assert_eq!(
            writes, self.writes,
            "children of {} were written after it was Ready",
            self.name
        );
    }

    async fn snapshot(&self) -> Snapshot {
        let (world, mut children, mut uids) = (&self.run.world, Vec::new(), Vec::new());
        for (child, _) in self.expected().children {
            let Some(found) = world.get(child, &self.name).await else { continue };
            let applied =
                &found["metadata"]["annotations"]["workload-operator.example.com/applied"];
            children.push(json!({"object": essence(&found, &json!({})), "applied": applied}));
            uids.push(found["metadata"]["uid"].to_string());
        }
        let object = world.get(self.kind, &self.name).await.expect("it is there");
        Snapshot(json!({"children": children, "status": lasting(&object["status"])}), uids)
    }

    /// Deletes it and makes it anew with the last spec: that is the same. Then deletes it.
    pub async fn end(mut self) {
        self.assert_no_write_without_reason();
        let after_all = self.snapshot().await;
        self.delete().await;
        self.writes = self.run.audit.of_children(&self.name);
        self.make().await;
        let fresh = self.snapshot().await;
        let wrong = differences(&fresh.0, &after_all.0);
        assert!(wrong.is_empty(), "made fresh with {} it is otherwise: {wrong:#?}", self.spec);
        self.delete().await;
    }

    async fn delete(&self) {
        let world = &self.run.world;
        let labels = format!("app.kubernetes.io/instance={}", self.name);
        let pods = world.list_with(POD, &labels).await;
        world.delete(self.kind, &self.name).await;
        world.until_gone(self.kind, &self.name).await;
        for (child, _) in self.expected().children {
            world.until_gone(child, &self.name).await;
        }
        for pod in pods {
            world.until_gone(POD, pod["metadata"]["name"].as_str().unwrap()).await;
        }
    }
}

/// Whether a child's pods, if it has any, are all of its newest generation and ready.
fn is_rolled_out(child: &Value) -> bool {
    let status = &child["status"];
    let count = |field: &str| status[field].as_i64().unwrap_or_default();
    let seen = status["observedGeneration"] == child["metadata"]["generation"];
    if child["spec"]["replicas"].is_i64() {
        let all = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
        return seen && all.iter().all(|f| Some(count(f)) == child["spec"]["replicas"].as_i64());
    }
    if child["spec"]["updateStrategy"].is_object() {
        let all = ["updatedNumberScheduled", "numberReady", "numberAvailable"];
        return seen && all.iter().all(|f| count(f) == count("desiredNumberScheduled"));
    }
    true
}
