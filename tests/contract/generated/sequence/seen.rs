//! Checks of a sequence after a step.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::super::compare::{differences, essence, lasting};
use super::super::expected::{Expected, expected};
use super::super::schema::defaulted;
use super::super::values::OWN;
use super::{Sequence, Snapshot};
use crate::world::{
    DEPLOYMENT, FOO, GENERIC_DAEMON, Kind, MEMCACHED, POD, has_condition, is_ready,
};

/// Maximum number of writes to owned objects by one edit. A refused apply to an object with other owners
/// takes six: own the unwanted fields, apply, remove the conflicts, apply, and disown the removed fields. The
/// other owned object takes one.
const WRITES_PER_STEP: usize = 7;

/// Interpretation of surplus pods although Ready is True.
enum Surplus {
    /// An edit was not carried out.
    IsWrong,
    /// An owned object was changed: the ReplicaSet controller can have pods in creation that no count shows
    /// yet, so it is unknown whether they are too many.
    MayBeUnderWay,
}

impl Sequence {
    pub(super) fn expected(&self) -> Expected {
        let spec = defaulted(&self.schema, &self.placed(&self.spec));
        expected(self.kind, &self.name, &spec, &self.run.nodes)
    }

    /// After a change of `child`, waits until it is as before and its pods run, in a state not older than
    /// `since`.
    pub(super) async fn restored(&mut self, child: Kind, since: &Value) {
        let wanted = self.as_the_server_has_it(child, self.wanted(child)).await;
        let is_done = |object: &Value| {
            object["metadata"]["uid"] == since["metadata"]["uid"]
                && object["metadata"]["generation"].as_i64()
                    >= since["metadata"]["generation"].as_i64()
                && differences(&essence(&wanted, &wanted), &essence(object, &wanted)).is_empty()
                && is_rolled_out(object)
        };
        self.run.world.until(child, &self.child_name(), is_done).await;
        self.holds_while_ready(Surplus::MayBeUnderWay).await;
    }

    /// A child that should exist.
    pub(super) fn wanted(&self, child: Kind) -> Value {
        let wanted = self.expected().children.into_iter().find(|(kind, _)| *kind == child);
        wanted.and_then(|(_, wanted)| wanted).expect("it was there, so it is wanted")
    }

    /// Waits until there are no more pods than wanted, and returns them.
    async fn pods_without_surplus(&self) -> Vec<Value> {
        let world = &self.run.world;
        let changed = Arc::new(Notify::new());
        let tell = changed.clone();
        let watch = tokio::spawn(world.for_each_change(POD, move |_| tell.notify_one()));
        let wanted = usize::try_from(self.expected().counts[0].1).expect("a count");
        let pods = loop {
            let pods = self.staying_pods().await;
            if pods.len() <= wanted {
                break pods;
            }
            changed.notified().await;
        };
        watch.abort();
        pods
    }

    pub(super) async fn staying_pods(&self) -> Vec<Value> {
        let mut pods = self.run.world.list_with(POD, &self.pods()).await;
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        pods
    }

    /// Waits until Ready is True for the newest generation, and checks all promises of that.
    pub(super) async fn until_complete(&mut self) {
        self.holds_while_ready(Surplus::IsWrong).await;
    }

    async fn holds_while_ready(&mut self, surplus: Surplus) {
        let object = self.ready().await;
        let (world, name) = (&self.run.world, self.child_name());
        let Expected { children, counts } = self.expected();
        for (child, wanted) in children {
            let found = world.get(child, &name).await;
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
            // Waited for, not asserted: a Deployment that was scaled to 0 may count a terminating
            // pod as unavailable once more, after it had reported that all is done.
            world.until(child, &name, is_rolled_out).await;
        }
        for (field, count) in counts {
            assert_eq!(object["status"][field], count, "status.{field} of {object}");
        }
        for (condition, status) in [("Available", "True"), ("Degraded", "False")] {
            let said = self.kind == FOO || has_condition(&object, condition, status);
            assert!(said, "{condition} in {object}");
        }
        let pods = match surplus {
            Surplus::IsWrong => self.staying_pods().await,
            Surplus::MayBeUnderWay => self.pods_without_surplus().await,
        };
        self.assert_pods_serve(&object, &pods);
        let writes = self.run.audit.of_children(&self.name);
        let caused = writes - self.writes;
        assert!(caused <= WRITES_PER_STEP, "one step caused {caused} writes to children");
        self.writes = writes;
    }

    /// Waits until its own status reports that it is as desired. A Foo reports only a number, so its
    /// Deployment is checked first.
    pub(super) async fn ready(&self) -> Value {
        let (world, kind, name) = (&self.run.world, self.kind, self.name.as_str());
        if kind != FOO {
            return world.until(kind, name, is_ready).await;
        }
        let (child, replicas) = (self.child_name(), &self.expected().counts[0].1);
        let is_done = |d: &Value| d["spec"]["replicas"] == *replicas && is_rolled_out(d);
        world.until(DEPLOYMENT, &child, is_done).await;
        for former in [OWN, "OWN--1", "OWN--2"].map(|former| former.replace(OWN, name)) {
            if former != child {
                world.until_gone(DEPLOYMENT, &former).await;
            }
        }
        world.until(kind, name, |foo| foo["status"]["availableReplicas"] == *replicas).await
    }

    /// The label of its pods.
    pub(super) fn pods(&self) -> String {
        let label = match self.kind {
            FOO => "controller",
            MEMCACHED => "cache.example.com/memcached",
            GENERIC_DAEMON => "mydomain.com/genericdaemon",
            _ => "app.example.com/v1",
        };
        format!("{label}={}", self.name)
    }

    /// While Ready is True, the existing pods are of this generation, and they are all of it.
    fn assert_pods_serve(&self, object: &Value, pods: &[Value]) {
        let images: Vec<&Value> =
            pods.iter().map(|pod| &pod["spec"]["containers"][0]["image"]).collect();
        let counts = ["replicas", "size", "desired", "availableReplicas"];
        let count = counts.map(|field| object["status"][field].as_u64());
        let count = count.into_iter().flatten().next().expect("each kind has a count");
        assert_eq!(images.len() as u64, count, "Ready with these pods: {images:?}");
        if let Some(image) = self.spec["image"].as_str() {
            assert!(images.iter().all(|found| *found == image), "{images:?} for {image}");
        }
    }

    /// Returns an owned object as a user would write it, with the API server's defaults.
    pub(super) async fn as_the_server_has_it(&self, child: Kind, wanted: Value) -> Value {
        let mut object = wanted.clone();
        object["metadata"]["name"] = json!(format!("{}-dry", self.name));
        // They are taken by the child itself.
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

    /// Asserts that nothing was written after the last step, because there was nothing to do.
    pub(super) fn assert_no_write_without_reason(&self) {
        let writes = self.run.audit.of_children(&self.name);
        assert_eq!(
            writes, self.writes,
            "children of {} were written after it was Ready",
            self.name
        );
    }

    pub(super) async fn snapshot(&self) -> Snapshot {
        let (world, mut children, mut uids) = (&self.run.world, Vec::new(), Vec::new());
        for (child, _) in self.expected().children {
            let Some(found) = world.get(child, &self.child_name()).await else { continue };
            let applied =
                &found["metadata"]["annotations"]["workload-operator.example.com/applied"];
            children.push(json!({"object": essence(&found, &json!({})), "applied": applied}));
            uids.push(found["metadata"]["uid"].to_string());
        }
        let object = world.get(self.kind, &self.name).await.expect("it is there");
        Snapshot(json!({"children": children, "status": lasting(&object["status"])}), uids)
    }
}

/// Returns whether a child's pods, if it has any, are all of its newest generation and ready.
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
