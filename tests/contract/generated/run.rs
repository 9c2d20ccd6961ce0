//! State that all sequences of a run share.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::RwLock;

use super::audit::Audit;
use super::laws::Laws;
use super::values::LICENCES;
use crate::foo;
use crate::operator_process::OperatorProcess;
use crate::world::{
    APP, FOO, GENERIC_DAEMON, Kind, MAX_WAIT, MEMCACHED, NODE, QUOTA, SERVICE_ACCOUNT, World,
};

/// A namespace with the operator and the program for Foos in it, and everything that watches them.
pub struct Run {
    pub world: World,
    pub audit: Audit,
    pub laws: Laws,
    /// The labels of all nodes.
    pub nodes: Vec<Value>,
    /// Held for reading during a step. A quota affects the whole namespace, so a step that sets one
    /// runs alone.
    pub turns: RwLock<()>,
    processes: Mutex<Vec<OperatorProcess>>,
}

impl Run {
    /// Starts a run in a new namespace.
    pub async fn start(namespace: &str) -> Arc<Run> {
        let (world, operator) = World::with_operator_at(namespace, "baseline").await;
        let account = json!({"metadata": {"name": "foo"}});
        world.create(SERVICE_ACCOUNT, account).await.expect("an account");
        foo::prepare(&world, "foo").await;
        let processes = Mutex::new(vec![operator, foo::start_as(&world, "foo").await]);
        world.forbid("licences", &format!("requests.{LICENCES}")).await;
        let audit = Audit::open(&world);
        let laws = Laws::watch(&world, &[MEMCACHED, GENERIC_DAEMON, APP, FOO]).await;
        let nodes = world.list(NODE).await;
        let nodes = nodes.into_iter().map(|mut node| node["metadata"]["labels"].take()).collect();
        let turns = RwLock::default();
        Arc::new(Run { world, audit, laws, nodes, turns, processes })
    }

    /// Sets a quota that forbids creating a child of this kind; returns when it is in force.
    pub async fn forbid_to_make(&self, child: Kind, mut probe: Value) -> Quota {
        let of = match child.group() {
            "" => child.plural().to_owned(),
            group => format!("{}.{group}", child.plural()),
        };
        let name = format!("no-{}", child.plural());
        self.world.forbid(&name, &format!("count/{of}")).await;
        probe["metadata"]["name"] = json!("probe");
        // Admission has its own cache, and nothing announces its changes: ask until it knows.
        let in_force = async {
            while self.world.dry_run(child, probe.clone()).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(MAX_WAIT, in_force).await.expect("a quota in force");
        Quota(name)
    }

    /// Fails if a process is no longer the one that was started, or if a reconcile panicked.
    pub fn assert_unharmed(&self) {
        for process in self.processes.lock().iter_mut() {
            process.assert_alive();
            let lines = process.lines().into_iter().filter(|line| line.contains("panicked"));
            assert_eq!(lines.collect::<Vec<_>>(), [""; 0]);
        }
    }
}

/// A quota that forbids something.
#[must_use]
pub struct Quota(String);

impl Quota {
    /// Removes it.
    pub async fn lift(self, world: &World) {
        world.delete(QUOTA, &self.0).await;
        world.until_gone(QUOTA, &self.0).await;
    }
}
