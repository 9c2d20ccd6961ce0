//! One custom resource goes through a sequence of steps, with everything checked after each.

mod seen;

use std::sync::Arc;

use fastrand::Rng;
use serde_json::{Value, json};

use super::compare::differences;
use super::run::Run;
use super::schema;
use super::steps::{Child, Otherwise, Step};
use super::values::{LICENCES, OWN, placed};
use crate::world::{APP, DEPLOYMENT, FOO, Kind, POD, conditions, has_condition};

/// The relevant state of a custom resource, as plain JSON, and the UIDs of its owned objects.
struct Snapshot(Value, Vec<String>);

/// One custom resource.
pub struct Sequence {
    run: Arc<Run>,
    kind: Kind,
    name: String,
    slot: u64,
    schema: Value,
    /// As the steps have it; see [`placed`].
    spec: Value,
    /// Writes to owned objects that have been accounted for.
    writes: usize,
    /// Status writes that can leave it unchanged: before the operator recreates an owned object, such a write
    /// asks the API server whether it is still necessary.
    questions: usize,
}

impl Sequence {
    /// Creates a new one.
    pub async fn create(
        run: Arc<Run>,
        kind: Kind,
        name: String,
        slot: u64,
        spec: Value,
    ) -> Sequence {
        let schema = schema::of_spec(kind);
        let mut sequence =
            Sequence { run, kind, name, slot, schema, spec, writes: 0, questions: 0 };
        let run = sequence.run.clone();
        let _turn = run.turns.read().await;
        sequence.make().await;
        sequence
    }

    async fn make(&mut self) {
        let object = json!({"metadata": {"name": self.name}, "spec": self.placed(&self.spec)});
        self.run.world.create(self.kind, object).await.expect("a valid spec is accepted");
        self.until_complete().await;
    }

    /// A possible next step.
    pub fn next(&self, rng: &mut Rng) -> Step {
        let there: Vec<Child> = self.children().into_iter().map(Child::of).collect();
        let child = *rng.choice(&there).expect("each kind has a child");
        match rng.u8(..16) {
            0..6 => Step::Edit(schema::edited(&self.schema, &self.spec, rng)),
            6 => Step::Edit(schema::valid(&self.schema, "spec", rng)),
            7..10 => {
                let (spec, why) = schema::bad(&self.schema, &self.spec, rng);
                Step::Refused(spec, why)
            }
            10..13 => Step::Same(*rng.choice(&Otherwise::ALL).expect("some")),
            13 if self.kind == APP || self.kind == FOO => self.absurd(rng),
            13 | 14 => Step::Spoil(child),
            _ if rng.u8(..4) == 0 => Step::Forbid(child),
            _ => Step::Delete(child),
        }
    }

    /// The children that should exist.
    fn children(&self) -> Vec<Kind> {
        let all = self.expected().children.into_iter();
        all.filter(|(_, wanted)| wanted.is_some()).map(|(kind, _)| kind).collect()
    }

    fn absurd(&self, rng: &mut Rng) -> Step {
        let mut spec = self.spec.clone();
        if self.kind == FOO {
            let (name, reason) =
                *rng.choice(&[("", "ErrUnnamed"), ("Not a name", "ErrRefused")]).expect("some");
            spec["deploymentName"] = json!(name);
            return Step::Absurd(spec, reason.to_owned());
        }
        let (resources, reason) = match rng.u8(..3) {
            // No node has that much CPU.
            0 => (json!({"requests": {"cpu": "100k"}}), "RollingOut"),
            // No pod can have one.
            1 => (json!({"limits": {LICENCES: "1"}}), "ReplicaFailure"),
            _ => {
                // The schema cannot know which node ports a cluster assigns.
                spec["ports"] = json!([{"port": 80, "nodePort": 80}]);
                return Step::Absurd(spec, "Invalid".to_owned());
            }
        };
        spec["resources"] = resources;
        spec["replicas"] = json!(spec["replicas"].as_i64().unwrap_or(1).max(1));
        Step::Absurd(spec, reason.to_owned())
    }

    /// Takes the step and checks everything.
    pub async fn step(&mut self, step: &Step) {
        // In a shortened sequence, the step can refer to an unwanted object.
        if step.child().is_some_and(|child| !self.children().contains(&child)) {
            return;
        }
        let run = self.run.clone();
        let alone = matches!(step, Step::Forbid(_));
        let _turn = if alone {
            (None, Some(run.turns.write().await))
        } else {
            (Some(run.turns.read().await), None)
        };
        self.assert_no_write_without_reason();
        match step {
            Step::Edit(spec) => {
                self.replace_spec(spec).await.expect("a valid spec is accepted");
                self.spec = spec.clone();
                self.until_complete().await;
            }
            Step::Refused(spec, why) => {
                let answer = self.replace_spec(spec).await;
                let message = answer.err().unwrap_or_else(|| panic!("accepted: {why}: {spec}"));
                assert!(message.contains("spec"), "{message}");
            }
            Step::Same(otherwise) => {
                let spec = otherwise.write(&self.schema, &self.spec);
                self.replace_spec(&spec).await.expect("the same is as valid");
                let before = self.writes;
                self.until_complete().await;
                assert_eq!(self.writes, before, "writes although {otherwise:?} means the same");
            }
            Step::Absurd(spec, reason) => self.asking(async |it| it.undo(spec, reason).await).await,
            Step::Delete(child) => {
                self.asking(async |it| it.delete_child(child.kind()).await).await;
            }
            Step::Forbid(child) => self.asking(async |it| it.forbid(child.kind()).await).await,
            Step::Spoil(child) => self.spoil(child.kind()).await,
        }
        self.run.laws.assert_kept_by(&self.name);
    }

    async fn replace_spec(&self, spec: &Value) -> Result<Value, String> {
        self.run.world.replace_spec(self.kind, &self.name, &self.placed(spec)).await
    }

    fn placed(&self, spec: &Value) -> Value {
        placed(spec, self.slot, &self.name)
    }

    /// The name of the children.
    fn child_name(&self) -> String {
        let name = self.spec["deploymentName"].as_str().unwrap_or(OWN);
        name.replace(OWN, &self.name)
    }

    /// Does something during which the operator can ask whether its action is still necessary.
    async fn asking(&mut self, does: impl AsyncFnOnce(&mut Sequence)) {
        let written = |it: &Sequence| it.run.audit.of_status(it.kind, &it.name);
        let before = written(self);
        does(self).await;
        // One more, because the log can lag behind.
        self.questions += written(self) - before + 1;
    }

    /// Deletes a child by hand and waits until it exists again.
    async fn delete_child(&mut self, child: Kind) {
        let (world, name) = (&self.run.world, self.child_name());
        let before = world.get(child, &name).await.expect("it is there");
        world.delete(child, &name).await;
        let new = |c: &Value| c["metadata"]["uid"] != before["metadata"]["uid"];
        let new = world.until(child, &name, new).await;
        self.restored(child, &new).await;
    }

    /// The same while a quota forbids its creation: that is reported, and recovers after the quota is
    /// removed.
    async fn forbid(&mut self, child: Kind) {
        let (run, name) = (self.run.clone(), self.child_name());
        let before = run.world.get(child, &name).await.expect("it is there");
        let wanted = self.wanted(child);
        let quota = run.forbid_to_make(child, wanted).await;
        run.world.delete(child, &name).await;
        let reason = if self.kind == FOO { "ErrRefused" } else { "QuotaExceeded" };
        let object = self.until_reported(reason).await;
        assert!(self.kind == FOO || has_condition(&object, "Degraded", "True"), "{object}");
        quota.lift(&run.world).await;
        let new = |c: &Value| c["metadata"]["uid"] != before["metadata"]["uid"];
        let new = run.world.until(child, &name, new).await;
        self.writes = run.audit.of_children(&self.name);
        self.restored(child, &new).await;
    }

    /// Waits until the reason is reported: in Ready or, for a Foo, in an Event.
    async fn until_reported(&self, reason: &str) -> Value {
        let world = &self.run.world;
        if self.kind == FOO {
            return world.until_event(&self.name, reason).await;
        }
        let told = |object: &Value| {
            has_condition(object, "Ready", "False")
                && conditions(object).any(|c| c["type"] == "Ready" && c["reason"] == reason)
        };
        world.until(self.kind, &self.name, told).await
    }

    /// Changes an owned object manually and waits until the change is reverted.
    async fn spoil(&mut self, child: Kind) {
        let world = &self.run.world;
        if self.kind == FOO {
            return self.scale_by_hand().await;
        }
        let mut patch = json!({"metadata": {"labels": {"app.kubernetes.io/name": "spoilt"}}});
        if child == DEPLOYMENT {
            // Not the replicas: the ReplicaSet's counts lag so far behind that it is unknown for a moment
            // whether there are too many.
            patch["spec"] = json!({"template": {"spec": {"hostname": "mine"}}});
        }
        world.patch(child, &self.name, patch).await.expect("a person may");
        let is_healed = |c: &Value| c["metadata"]["labels"]["app.kubernetes.io/name"] != "spoilt";
        let mut healed = world.until(child, &self.name, is_healed).await;
        if child == DEPLOYMENT {
            // A foreign field is kept, and would be a difference here.
            let mine = json!({"spec": {"template": {"spec": {"hostname": null}}}});
            healed = world.patch(child, &self.name, mine).await.expect("a person may");
        }
        self.restored(child, &healed).await;
    }

    /// A Foo controls only the replicas of its Deployment.
    async fn scale_by_hand(&mut self) {
        let (world, name) = (&self.run.world, self.child_name());
        let wanted = self.wanted(DEPLOYMENT)["spec"]["replicas"].clone();
        let other = json!({"spec": {"replicas": wanted.as_i64().expect("a count") + 1}});
        world.patch(DEPLOYMENT, &name, other).await.expect("a person may");
        let is_healed = |d: &Value| d["spec"]["replicas"] == wanted;
        let healed = world.until(DEPLOYMENT, &name, is_healed).await;
        self.restored(DEPLOYMENT, &healed).await;
    }

    /// Applies a spec that cannot be carried out. It is reported, and after it is reverted, everything is as
    /// before.
    async fn undo(&mut self, spec: &Value, reason: &str) {
        let before = self.snapshot().await;
        self.replace_spec(spec).await.expect("it is accepted");
        let object = self.until_reported(reason).await;
        let also: &[&str] = match reason {
            "Invalid" => &["Stalled", "Degraded"],
            "ReplicaFailure" => &["Reconciling", "Degraded"],
            "RollingOut" => &["Reconciling"],
            _ => &[],
        };
        for condition in also {
            assert!(has_condition(&object, condition, "True"), "{condition}: {object}");
        }
        self.replace_spec(&self.spec).await.expect("it was accepted before");
        self.writes = self.run.audit.of_children(&self.name);
        self.until_complete().await;
        let after = self.snapshot().await;
        assert_eq!(differences(&before.0, &after.0), [""; 0], "undone it is not as before");
        assert_eq!(before.1, after.1, "a child was deleted to undo it");
    }

    /// Deletes it and recreates it with the last spec, which has the same result. Then deletes it.
    pub async fn end(mut self) {
        let run = self.run.clone();
        let _turn = run.turns.read().await;
        self.assert_no_write_without_reason();
        let after_all = self.snapshot().await;
        let told = run.audit.of_status(self.kind, &self.name).saturating_sub(self.questions);
        run.laws.assert_each_write_changed_the_status(self.kind, &self.name, told).await;
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
        let pods = world.list_with(POD, &self.pods()).await;
        world.delete(self.kind, &self.name).await;
        world.until_gone(self.kind, &self.name).await;
        for (child, _) in self.expected().children {
            world.until_gone(child, &self.child_name()).await;
        }
        for pod in pods {
            world.until_gone(POD, pod["metadata"]["name"].as_str().unwrap()).await;
        }
    }
}
