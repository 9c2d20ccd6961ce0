//! Admission policies that interfere with the operator's writes, on an API server that enforces
//! them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::audit::{Entry, operator_writes, writes_to};
use crate::world::{
    APP, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, Kind, MAX_WAIT, MEMCACHED, World, conditions,
    has_condition, is_ready,
};

/// The maximum number of writes for one custom resource in a minute.
const MOST_A_MINUTE: usize = 12;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

fn app(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

/// A policy for writes to Deployments and DaemonSets in one namespace. It lasts until it is lifted or the control
/// plane ends.
pub struct Policy {
    plural: &'static str,
    name: String,
}

impl Policy {
    /// Applies these mutations to every object that is written.
    pub async fn mutate(world: &World, mutations: Value) -> Policy {
        let spec = json!({"mutations": mutations, "reinvocationPolicy": "Never"});
        let policy =
            Policy::create(world, "mutatingadmissionpolicies", spec, &["CREATE", "UPDATE"]);
        let policy = policy.await;
        policy.until(world, |answer| answer.as_ref().is_ok_and(is_changed)).await;
        policy
    }

    /// Forbids creating Deployments.
    async fn deny(world: &World, message: &str) -> Policy {
        let spec = json!({"validations": [{"expression": "false", "message": message}]});
        let policy = Policy::create(world, "validatingadmissionpolicies", spec, &["CREATE"]).await;
        policy.until(world, |answer| answer.is_err()).await;
        policy
    }

    async fn create(
        world: &World,
        plural: &'static str,
        mut spec: Value,
        operations: &[&str],
    ) -> Policy {
        let name = format!("{}-{plural}", world.namespace);
        spec["failurePolicy"] = json!("Fail");
        spec["matchConstraints"] = json!({
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
            "resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"],
                "operations": operations, "resources": ["deployments", "daemonsets"]}],
        });
        let mut binding = json!({"policyName": name});
        if plural == "validatingadmissionpolicies" {
            binding["validationActions"] = json!(["Deny"]);
        }
        let (kind, of_binding) = match plural {
            "validatingadmissionpolicies" => ("Validating", "validatingadmissionpolicybindings"),
            _ => ("Mutating", "mutatingadmissionpolicybindings"),
        };
        for (path, kind, spec) in [
            (plural, format!("{kind}AdmissionPolicy"), spec),
            (of_binding, format!("{kind}AdmissionPolicyBinding"), binding),
        ] {
            let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": name}, "spec": spec});
            world.post(&format!("{GROUP}/{path}"), object).await.expect("a policy");
        }
        Policy { plural, name }
    }

    /// Removes it and returns once it is no longer in force.
    async fn lift(self, world: &World) {
        let path = format!("{GROUP}/{}/{}", self.plural, self.name);
        let send = world.send(http::Method::DELETE, &path, "application/json", Value::Null);
        send.await.expect("it was there");
        self.until(world, |answer| answer.as_ref().is_ok_and(|made| !is_changed(made))).await;
    }

    /// Polls until the API server has noticed the policy or its removal, because nothing announces it.
    async fn until(&self, world: &World, wanted: impl Fn(&Result<Value, String>) -> bool) {
        let mut last = None;
        let asked = async {
            while !wanted(last.insert(world.dry_run(DEPLOYMENT, probe()).await)) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let outcome = tokio::time::timeout(MAX_WAIT, asked).await;
        outcome.unwrap_or_else(|_| panic!("{} is not what it ought to be: {last:?}", self.name));
    }
}

/// Returns whether a policy changed the probe.
fn is_changed(made: &Value) -> bool {
    let image =
        |object: &Value| object["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    made["spec"]["replicas"] != probe()["spec"]["replicas"]
        || made["spec"]["template"]["spec"]["containers"][1].is_object()
        || image(made) != image(&probe())
}

fn probe() -> Value {
    let labels = json!({"probe": "yes"});
    json!({"metadata": {"name": "probe"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "shop", "image": "probe:1"}]}},
    }})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_by_a_policy_is_reported_and_recovers() {
    let (world, _operator) = World::with_operator_at("policy-denies", "baseline").await;
    let policy = Policy::deny(&world, "no new Deployments on a Friday").await;
    world.create(APP, app("shop", json!({"image": "shop:1"}))).await.unwrap();
    world.create(MEMCACHED, app("cart", json!({"size": 1}))).await.unwrap();
    for (kind, name) in [(APP, "shop"), (MEMCACHED, "cart")] {
        for condition in ["Degraded", "Stalled"] {
            let message = world.until_condition(kind, name, condition, ("True", "Forbidden")).await;
            assert!(message.contains("no new Deployments on a Friday"), "{message}");
        }
        world.until_condition(kind, name, "Ready", ("False", "Forbidden")).await;
        let event = world.until_event(name, "Forbidden").await;
        let note = event["note"].as_str().unwrap();
        assert!(note.contains("no new Deployments on a Friday"), "{note}");
    }
    policy.lift(&world).await;
    for (kind, name) in [(APP, "shop"), (MEMCACHED, "cart")] {
        let healed = world.until(kind, name, is_ready).await;
        assert!(!has_condition(&healed, "Degraded", "True"), "{healed}");
    }
}

/// A mutation that adds a sidecar, as the webhook of a service mesh does.
pub fn inject() -> Value {
    let expression = r#"object.spec.template.spec.containers.exists(c, c.name == "proxy") ? [] : [
        JSONPatch{op: "add", path: "/spec/template/spec/containers/-",
            value: {"name": "proxy", "image": "proxy:1"}}]"#;
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// Returns digests, a sidecar with variables, and a toleration, as JSON patches. A policy of the first kind
/// pins unpinned images; one of the second kind injects missing parts.
fn pin_inject_and_tolerate() -> Value {
    const CONTAINERS: &str = "/spec/template/spec/containers";
    let patch = |expression: String| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    let pod = "object.spec.template.spec";
    let digest = format!("@sha256:{}", "0".repeat(64));
    json!([
        patch(format!(
            r#"{pod}.containers[0].image.contains("@") ? [] : [JSONPatch{{op: "replace",
                path: "{CONTAINERS}/0/image", value: {pod}.containers[0].image + "{digest}"}}]"#
        )),
        inject(),
        patch(format!(
            r#"has({pod}.tolerations) ? [] : [JSONPatch{{op: "add",
                path: "/spec/template/spec/tolerations",
                value: [{{"operator": "Exists"}}]}}]"#
        )),
    ])
}

/// An object of each kind, and the kind of its child.
const EACH: [(Kind, &str, Kind); 3] = [
    (APP, "shop", DEPLOYMENT),
    (MEMCACHED, "cart", DEPLOYMENT),
    (GENERIC_DAEMON, "agent", DAEMON_SET),
];

/// The operator's writes to the child of this name.
fn writes_of_child(world: &World, kind: Kind, name: &str) -> Vec<Entry> {
    writes_to(world, kind.plural(), name).into_iter().filter(|write| write.by_operator).collect()
}

fn container(child: &Value) -> &Value {
    &child["spec"]["template"]["spec"]["containers"][0]
}

/// Waits until the operator has reconciled everything that came before.
async fn fence(world: &World, name: &str) {
    for (kind, spec) in [
        (APP, json!({"image": "fence:1", "replicas": 0})),
        (MEMCACHED, json!({"size": 0})),
        (GENERIC_DAEMON, json!({"image": "fence:1", "label": "no-node-has-this"})),
    ] {
        let name = format!("{name}-of-{}", kind.plural());
        world.create(kind, app(&name, spec)).await.unwrap();
        world.until(kind, &name, is_ready).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_by_admission_are_accepted_and_later_changes_reverted() {
    let (world, operator) = World::with_operator_at("policy-pins", "baseline").await;
    let policy = Policy::mutate(&world, pin_inject_and_tolerate()).await;
    world.create(APP, app("shop", json!({"image": "shop:1", "replicas": 2}))).await.unwrap();
    world.create(MEMCACHED, app("cart", json!({"size": 2}))).await.unwrap();
    world.create(GENERIC_DAEMON, app("agent", json!({"image": "agent:1"}))).await.unwrap();
    for (kind, name, child) in EACH {
        let object = world.until(kind, name, is_ready).await;
        assert!(!has_condition(&object, "Degraded", "True"), "{object}");
        let child = world.get(child, name).await.unwrap();
        assert!(container(&child)["image"].as_str().unwrap().contains("@sha256:"), "{child}");
        assert_eq!(child["spec"]["template"]["spec"]["tolerations"][0]["operator"], "Exists");
    }
    // Every change causes a reconcile.
    for number in 0..3 {
        for (_, name, child) in EACH {
            let poke = json!({"metadata": {"annotations": {"poke": number.to_string()}}});
            world.patch(child, name, poke).await.unwrap();
        }
    }
    fence(&world, "fence").await;
    for (_, name, child) in EACH {
        // One write creates the object, and one records the admitted state.
        let writes = writes_of_child(&world, child, name);
        assert_eq!(writes.len(), 2, "{writes:#?}");
    }
    operator.kill().await;
    let restarted = jiff::Timestamp::now();
    let _operator = world.start_operator().await;
    fence(&world, "second-fence").await;
    let since = |write: &&Entry| write.received > restarted && !write.name.contains("fence");
    let writes = operator_writes(&world);
    let needless: Vec<_> = writes.iter().filter(since).collect();
    assert!(needless.is_empty(), "{needless:#?}");
    people_are_reverted(&world).await;
    // A change by the operator itself takes one write, because the same state is admitted.
    world.patch(APP, "shop", json!({"spec": {"replicas": 3}})).await.unwrap();
    let grown = |app: &Value| is_ready(app) && app["status"]["replicas"] == 3;
    world.until(APP, "shop", grown).await;
    let writes = writes_of_child(&world, DEPLOYMENT, "shop");
    assert_eq!(writes.len(), 2 + 2 + 1, "{writes:#?}");
    // Without the policy, the admitted state remains until the next write.
    policy.lift(&world).await;
    fence(&world, "third-fence").await;
    assert_eq!(writes_of_child(&world, DEPLOYMENT, "shop").len(), 2 + 2 + 1);
    world.patch(APP, "shop", json!({"spec": {"image": "shop:2"}})).await.unwrap();
    let plain = |child: &Value| {
        let record = &child["metadata"]["annotations"]["workload-operator.example.com/admitted"];
        container(child)["image"] == "shop:2" && record.is_null()
    };
    world.until(DEPLOYMENT, "shop", plain).await;
}

/// Each manual change causes one write.
async fn people_are_reverted(world: &World) {
    for (kind, name, child) in EACH {
        let before = world.get(child, name).await.unwrap();
        let image = container(&before)["image"].clone();
        let what = format!("{}/{name}", child.plural());
        world.kubectl(&["set", "image", &what, "*=evil:1"]).unwrap();
        let later = |child: &Value| child["metadata"]["generation"].as_i64() > Some(1);
        let reverted = |child: &Value| later(child) && container(child)["image"] == image;
        world.until(child, name, reverted).await;
        let mut restored = 1;
        if child == DEPLOYMENT {
            world.kubectl(&["scale", &what, "--replicas=9"]).unwrap();
            let generation = |child: &Value| child["metadata"]["generation"].as_i64().unwrap();
            let reverted = |child: &Value| generation(child) >= 5 && child["spec"]["replicas"] == 2;
            world.until(child, name, reverted).await;
            restored += 1;
        }
        world.until(kind, name, is_ready).await;
        let writes = writes_of_child(world, child, name);
        assert_eq!(writes.len(), 2 + restored, "{writes:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_with_random_changes_is_reported_and_causes_few_writes() {
    let (world, _operator) = World::with_operator_at("policy-rewrites", "baseline").await;
    let rewritten =
        "Object{spec: Object.spec{replicas: oldObject == null ? 3 : oldObject.spec.replicas + 1}}";
    let rewritten = json!({"patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": rewritten}});
    let policy = Policy::mutate(&world, json!([rewritten])).await;
    let spec = json!({"image": "shop:1", "replicas": 2});
    world.create(APP, app("shop", spec)).await.unwrap();
    let told = |object: &Value| conditions(object).any(|c| c["reason"] == "Contested");
    let object = world.until(APP, "shop", told).await;
    assert!(has_condition(&object, "Degraded", "True") && !is_ready(&object), "{object}");
    let degraded = conditions(&object).find(|c| c["type"] == "Degraded").unwrap();
    let message = degraded["message"].as_str().unwrap();
    for part in ["spec.replicas of Deployment shop", "admission policy"] {
        assert!(message.contains(part), "{message}");
    }
    // Every change of the Deployment causes a reconcile. There are more changes than allowed writes, so an
    // operator that responds to each one fails the test.
    for number in 0..2 * MOST_A_MINUTE {
        let poke = json!({"metadata": {"annotations": {"poke": number.to_string()}}});
        world.patch(DEPLOYMENT, "shop", poke).await.unwrap();
    }
    world.create(MEMCACHED, app("fence", json!({"size": 0}))).await.unwrap();
    world.until(MEMCACHED, "fence", told).await;
    let writes: Vec<Entry> =
        operator_writes(&world).into_iter().filter(|write| write.name == "shop").collect();
    let minute = jiff::SignedDuration::from_secs(60);
    for (at, first) in writes.iter().enumerate() {
        let within =
            writes[at..].iter().filter(|w| w.received.duration_since(first.received) < minute);
        let children = within.filter(|write| write.resource == "deployments").count();
        assert!(children <= MOST_A_MINUTE, "{children} writes in a minute: {writes:#?}");
    }
    let still = world.get(APP, "shop").await.unwrap();
    assert!(told(&still) && !is_ready(&still), "{still}");
    // Once no policy rewrites it any more, the next change or a minute restores it.
    policy.lift(&world).await;
    world.patch(APP, "shop", json!({"spec": {"image": "shop:2"}})).await.unwrap();
    world.until(APP, "shop", is_ready).await;
    assert_eq!(world.get(DEPLOYMENT, "shop").await.unwrap()["spec"]["replicas"], 2);
}
