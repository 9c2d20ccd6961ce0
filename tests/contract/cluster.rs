//! `testing::Cluster` produces the same statuses as Kubernetes' own controllers.

use controller_machinery::testing::{Cluster, Id, Server, condition};
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::world::{DAEMON_SET, DEPLOYMENT, JOB, Kind, NODE, World};

/// The real control plane, and the same nodes in memory.
struct Both {
    world: World,
    server: Server,
    _cluster: Cluster,
}

impl Both {
    async fn start(name: &str) -> Both {
        Both::with(World::new(name, "baseline").await).await
    }

    async fn with(world: World) -> Both {
        let server = Server::new(1);
        let cluster = Cluster::start(&server, 0);
        for mut node in world.list(NODE).await {
            let name = node["metadata"]["name"].as_str().unwrap().to_owned();
            node["metadata"]["resourceVersion"].take();
            server.put(&Id::new("/api/v1/nodes", "", name), node);
        }
        Both { world, server, _cluster: cluster }
    }

    fn id(&self, kind: Kind, name: &str) -> Id {
        let root = if kind.group().is_empty() { "/api" } else { "/apis" };
        let namespace = if kind == NODE { "" } else { &*self.world.namespace };
        Id::new(format!("{root}/{}/{}", kind.api_version(), kind.plural()), namespace, name)
    }

    async fn create(&self, kind: Kind, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.world.create(kind, object.clone()).await.unwrap();
        self.server.create(&self.id(kind, &name), object).unwrap();
    }

    async fn patch(&self, kind: Kind, name: &str, patch: Value) {
        self.server.patch(&self.id(kind, name), &patch).unwrap();
        self.world.patch(kind, name, patch).await.unwrap();
    }

    /// Sets how many pods a node has room for.
    async fn set_room(&self, node: &str, pods: &str) {
        let room = json!({"status": {"allocatable": {"pods": pods}}});
        self.server.patch_status(&self.id(NODE, node), &room).unwrap();
        let path = format!("{}/{node}/status", NODE.path(""));
        self.world.patch_at(&path, room).await.unwrap();
    }

    /// Waits until the object is as wanted on both, and compares its status.
    async fn same(&self, kind: Kind, name: &str, wanted: impl Fn(&Value) -> bool) {
        let is_seen = |object: &Value| {
            // Jobs have none.
            kind == JOB
                || object["status"]["observedGeneration"] == object["metadata"]["generation"]
        };
        let wanted = |object: &Value| is_seen(object) && wanted(object);
        let real = self.world.until(kind, name, wanted).await;
        let modelled = self.server.until(&self.id(kind, name), wanted).await;
        assert_eq!(comparable(&modelled), comparable(&real), "left: the model; right: Kubernetes");
    }
}

/// Fields of a Job's status that the model leaves out.
const NOT_OF_JOBS: [&str; 3] = ["ready", "terminating", "uncountedTerminatedPods"];

/// Returns the status without times, hashes and parts that the model lacks.
fn comparable(object: &Value) -> Value {
    let name = object["metadata"]["name"].as_str().unwrap();
    let mut status = object["status"].clone();
    let times = ["startTime", "completionTime"];
    for field in
        ["terminatingReplicas", "collisionCount"].into_iter().chain(times).chain(NOT_OF_JOBS)
    {
        status.as_object_mut().unwrap().remove(field);
    }
    let conditions = status["conditions"].as_array_mut();
    for condition in conditions.into_iter().flatten() {
        let message = condition["message"].as_str().unwrap().to_owned();
        if let Some((before, hash)) = message.split_once(&format!("{name}-")) {
            let after = hash.split_once('"').map_or("", |(_, after)| after);
            condition["message"] = json!(format!("{before}HASH{after}"));
        }
        condition["lastTransitionTime"].take();
        condition["lastUpdateTime"].take();
        condition["lastProbeTime"].take();
    }
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.sort_by_key(|condition| condition["type"].to_string());
    }
    status
}

fn template(name: &str, image: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": image}]}})
}

fn workload(name: &str, mut spec: Value) -> Value {
    spec["selector"] = json!({"matchLabels": {"app": name}});
    spec["template"] = template(name, "one");
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Returns whether all desired pods have the newest template and are available.
fn complete(deployment: &Value) -> bool {
    let (status, wanted) = (&deployment["status"], deployment["spec"]["replicas"].as_i64());
    ["replicas", "updatedReplicas", "availableReplicas"]
        .iter()
        .all(|count| status[count].as_i64().unwrap_or(0) == wanted.unwrap_or(1))
}

fn progress(reason: &'static str) -> impl Fn(&Value) -> bool {
    move |deployment| {
        let conditions = deployment["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|it| it["reason"] == reason))
    }
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_simulated_job_has_the_status_of_a_real_one() {
    let both = Both::start("model-job").await;
    let mut template = template("batch", "one");
    template["spec"]["restartPolicy"] = json!("Never");
    let spec = json!({"completions": 3, "parallelism": 2, "template": template});
    let is = |kind: &'static str| {
        move |job: &Value| condition(job, kind).is_some_and(|it| it["status"] == "True")
    };
    both.create(JOB, json!({"metadata": {"name": "all"}, "spec": &spec})).await;
    both.same(JOB, "all", is("Complete")).await;
    let mut suspended = spec.clone();
    suspended["suspend"] = json!(true);
    both.create(JOB, json!({"metadata": {"name": "later"}, "spec": suspended})).await;
    both.same(JOB, "later", is("Suspended")).await;
    both.patch(JOB, "later", json!({"spec": {"suspend": false}})).await;
    both.same(JOB, "later", is("Complete")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_simulated_deployment_has_the_status_of_a_real_one() {
    let both = Both::start("model-deployment").await;
    both.create(DEPLOYMENT, workload("web", json!({"replicas": 3}))).await;
    both.same(DEPLOYMENT, "web", complete).await;
    for (patch, what) in [
        (json!({"spec": {"replicas": 5}}), "scaled up"),
        (image("two"), "rolled out"),
        (json!({"spec": {"replicas": 2}}), "scaled down"),
        (json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}}), "Recreate"),
        (image("three"), "recreated"),
        (json!({"spec": {"replicas": 0}}), "scaled to zero"),
        (json!({"spec": {"replicas": 1}}), "scaled from zero"),
    ] {
        println!("{what}");
        both.patch(DEPLOYMENT, "web", patch).await;
        both.same(DEPLOYMENT, "web", complete).await;
    }
    both.patch(DEPLOYMENT, "web", json!({"spec": {"paused": true}})).await;
    both.patch(DEPLOYMENT, "web", image("four")).await;
    both.same(DEPLOYMENT, "web", progress("DeploymentPaused")).await;
    both.patch(DEPLOYMENT, "web", json!({"spec": {"paused": false}})).await;
    both.same(DEPLOYMENT, "web", complete).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_simulated_rollout_exceeds_its_deadline_like_a_real_one() {
    let both = Both::start("model-late").await;
    both.create(DEPLOYMENT, workload("web", json!({"replicas": 4, "progressDeadlineSeconds": 5})))
        .await;
    both.same(DEPLOYMENT, "web", complete).await;
    let nowhere = json!({"spec": {"template": {"spec": {"nodeSelector": {"no": "where"}}}}});
    both.patch(DEPLOYMENT, "web", nowhere).await;
    both.same(DEPLOYMENT, "web", progress("ProgressDeadlineExceeded")).await;
    let back = json!({"spec": {"template": {"spec": {"nodeSelector": null}}}});
    both.patch(DEPLOYMENT, "web", back).await;
    both.same(DEPLOYMENT, "web", complete).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_simulated_daemon_set_has_the_status_of_a_real_one() {
    // Taints would disturb other tests.
    let plane = ControlPlane::of_this_test(|| ControlPlane::private("model-daemon")).await;
    let both = Both::with(World::on(plane, "model-daemon", "baseline").await).await;
    let mut daemon = workload("agent", json!({}));
    daemon["spec"]["template"]["spec"]["nodeSelector"] = json!({"model-daemon": "yes"});
    both.create(DAEMON_SET, daemon).await;
    let available = |count: i64| {
        move |set: &Value| {
            let status = &set["status"];
            let updated = status["updatedNumberScheduled"].as_i64().unwrap_or(0);
            let left = status["currentNumberScheduled"].as_i64();
            updated == count
                && status["numberMisscheduled"] == 0
                && status["numberReady"] == count
                && left == Some(count)
                && status["numberAvailable"].as_i64().unwrap_or(0) == count
        }
    };
    both.same(DAEMON_SET, "agent", available(0)).await;
    let nodes = both.server.objects("/api/v1/nodes");
    let label = |value: Value| json!({"metadata": {"labels": {"model-daemon": value}}});
    let full = &nodes[0].0.name;
    both.set_room(full, "0").await;
    both.patch(NODE, full, label(json!("yes"))).await;
    let is_waiting = |set: &Value| {
        set["status"]["currentNumberScheduled"] == 1 && set["status"]["numberReady"] == 0
    };
    both.same(DAEMON_SET, "agent", is_waiting).await;
    both.set_room(full, "1000").await;
    for (count, (node, _)) in nodes.iter().take(2).enumerate() {
        both.patch(NODE, &node.name, label(json!("yes"))).await;
        both.same(DAEMON_SET, "agent", available(i64::try_from(count).unwrap() + 1)).await;
    }
    both.patch(DAEMON_SET, "agent", image("two")).await;
    both.same(DAEMON_SET, "agent", available(2)).await;
    let taint = |effect: &str| json!({"spec": {"taints": [{"key": "a", "effect": effect}]}});
    let node = &nodes[0].0.name;
    let misplaced = |count: i64| {
        move |set: &Value| {
            set["status"]["numberMisscheduled"] == count && set["status"]["numberReady"] == 1
        }
    };
    // Kubernetes counts again only when something else changes.
    both.patch(NODE, node, taint("NoSchedule")).await;
    crate::nodes::count_again(&both.world).await;
    both.same(DAEMON_SET, "agent", misplaced(1)).await;
    both.patch(NODE, node, taint("NoExecute")).await;
    both.same(DAEMON_SET, "agent", misplaced(0)).await;
    both.patch(NODE, node, json!({"spec": {"taints": null}})).await;
    both.same(DAEMON_SET, "agent", available(2)).await;
    for (node, _) in nodes.iter().take(2) {
        both.patch(NODE, &node.name, label(Value::Null)).await;
    }
    both.same(DAEMON_SET, "agent", available(0)).await;
}
