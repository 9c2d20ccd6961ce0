//! The steps of a workload: what is done, and how one can tell that it has come about.

use serde_json::{Value, json};

use super::workloads::{NAME, Workload};
use crate::world::{Kind, NODE, QUOTA, World, has_condition, is_ready};

/// A step.
#[derive(Clone)]
pub(super) enum Step {
    /// The custom resource is created.
    Create(Value),
    /// It is created while its child's name is taken or a quota forbids the child, and gets this
    /// condition.
    CreateInVain(Value, &'static str),
    /// It is changed.
    Change(Value),
    /// It is changed and immediately changed back.
    Flap(Value, Value),
    /// It is deleted.
    Delete,
    /// It is deleted and, as soon as it is gone, recreated under its name.
    Recreate(Value),
    /// Somebody changes this field of a child.
    Edit { child: Kind, patch: Value, field: &'static str },
    /// Somebody deletes a child.
    Remove(Kind),
    /// Somebody creates an object with the name of a future child.
    Occupy(Kind, Value),
    /// They delete it again.
    Vacate(Kind),
    /// A quota of zero for this resource, named as the API server counts it.
    Forbid(&'static str),
    /// The quota is lifted.
    Permit,
    /// A node gains or loses the label `NAMESPACE`; the daemon should then run on `then` nodes.
    Label { node: &'static str, bears: bool, then: i64 },
}

/// Evidence that a step has come about.
pub(super) enum Awaited {
    Is(Kind, Box<dyn Fn(&Value) -> bool + Send + Sync>),
    Gone(Kind),
}

impl Awaited {
    fn is(kind: Kind, wanted: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Awaited {
        Awaited::Is(kind, Box::new(wanted))
    }

    fn ready(kind: Kind) -> Awaited {
        Awaited::is(kind, is_ready)
    }

    fn runs_on(kind: Kind, nodes: i64) -> Awaited {
        Awaited::is(kind, move |daemon| {
            daemon["status"]["installed"] == nodes
                && daemon["status"]["desired"] == nodes
                && is_ready(daemon)
        })
    }

    pub(super) async fn come_about(&self, world: &World) {
        match self {
            Awaited::Is(kind, wanted) => drop(world.until(*kind, NAME, wanted).await),
            Awaited::Gone(kind) => world.until_gone(*kind, NAME).await,
        }
    }
}

impl Step {
    /// Does it and returns what to wait for.
    pub(super) async fn act(&self, world: &World, workload: &Workload) -> Vec<Awaited> {
        let kind = workload.kind;
        let here = |value: &Value| in_namespace(world, value);
        match self {
            Step::Create(object) => {
                world.create(kind, here(object)).await.expect("a new object");
            }
            Step::CreateInVain(object, condition) => {
                world.create(kind, here(object)).await.expect("a new object");
                let condition = *condition;
                return vec![Awaited::is(kind, |object| has_condition(object, condition, "True"))];
            }
            Step::Change(patch) => {
                world.patch(kind, NAME, here(patch)).await.expect("a changed object");
            }
            Step::Flap(one, other) => {
                world.patch(kind, NAME, here(one)).await.expect("a changed object");
                world.patch(kind, NAME, here(other)).await.expect("a changed object");
            }
            Step::Delete => {
                world.delete(kind, NAME).await;
                let all = [&[kind], workload.children].concat();
                return all.into_iter().map(Awaited::Gone).collect();
            }
            Step::Recreate(object) => {
                world.delete(kind, NAME).await;
                world.until_gone(kind, NAME).await;
                world.create(kind, here(object)).await.expect("a new object");
            }
            Step::Edit { child, patch, field } => {
                let restored = edit(world, *child, patch, field).await;
                return vec![restored, Awaited::ready(kind)];
            }
            Step::Remove(child) => {
                let old = world.get(*child, NAME).await.expect("a child");
                world.delete(*child, NAME).await;
                let is_another =
                    move |now: &Value| now["metadata"]["uid"] != old["metadata"]["uid"];
                let anew = Awaited::is(*child, is_another);
                return vec![anew, Awaited::ready(kind)];
            }
            Step::Occupy(child, object) => {
                world.create(*child, object.clone()).await.expect("a foreign object");
                return Vec::new();
            }
            Step::Vacate(child) => world.delete(*child, NAME).await,
            Step::Forbid(resource) => {
                world.forbid(NAME, resource).await;
                return Vec::new();
            }
            Step::Permit => world.delete(QUOTA, NAME).await,
            Step::Label { node, bears, then } => {
                let value = if *bears { json!("yes") } else { Value::Null };
                let label = json!({"metadata": {"labels": {"NAMESPACE": value}}});
                world.patch(NODE, node, here(&label)).await.expect("a changed node");
                return vec![Awaited::runs_on(kind, *then)];
            }
        }
        vec![Awaited::ready(kind)]
    }
}

/// Changes a field of a child, which should be changed back.
async fn edit(world: &World, child: Kind, patch: &Value, field: &'static str) -> Awaited {
    let was = world.get(child, NAME).await.expect("a child").pointer(field).cloned();
    world.patch(child, NAME, patch.clone()).await.expect("a changed child");
    Awaited::is(child, move |now| now.pointer(field) == was.as_ref())
}

/// `value` with this world's namespace in place of `NAMESPACE`.
fn in_namespace(world: &World, value: &Value) -> Value {
    let text = value.to_string().replace("NAMESPACE", &world.namespace);
    serde_json::from_str(&text).expect("it was JSON")
}
