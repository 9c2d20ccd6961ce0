//! What must hold of every status that anybody can ever see.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::world::{Kind, World, conditions};

/// Watches all custom resources of a kind in a namespace and keeps what broke a law.
pub struct Laws {
    broken: Arc<Mutex<Vec<String>>>,
    seen: Arc<Mutex<usize>>,
}

impl Laws {
    /// Watches these kinds until the test ends.
    pub fn watch(world: &World, kinds: &[Kind]) -> Laws {
        let (broken, seen) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<usize>>::default());
        for kind in kinds {
            let (broken, seen) = (broken.clone(), seen.clone());
            let name = kind.name();
            let task = world.for_each_change(*kind, move |object| {
                *seen.lock() += 1;
                let what = format!("{name} {}", object["metadata"]["name"]);
                let found = breaches(&object).into_iter();
                broken.lock().extend(found.map(|law| format!("{what}: {law}: {object}")));
            });
            tokio::spawn(task);
        }
        Laws { broken, seen }
    }

    /// Fails if any status so far broke a law.
    pub fn assert_kept(&self) {
        let broken = self.broken.lock();
        assert!(broken.is_empty(), "{} statuses broke a law, first {}", broken.len(), broken[0]);
    }

    /// How many statuses were looked at.
    pub fn seen(&self) -> usize {
        *self.seen.lock()
    }
}

/// The laws that the status of this custom resource breaks: those by which Flux checks conditions
/// (fluxcd/pkg, runtime/conditions/check) and those that kstatus and `kubectl wait` rely on.
fn breaches(object: &Value) -> Vec<&'static str> {
    let status = |kind: &str| {
        conditions(object).find(|c| c["type"] == kind).map(|c| c["status"].as_str().unwrap_or(""))
    };
    let (ready, reconciling, stalled, degraded) =
        (status("Ready"), status("Reconciling"), status("Stalled"), status("Degraded"));
    let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
    let root = object["status"]["observedGeneration"].as_i64();
    let is_true = |status: Option<&str>| status == Some("True");
    let mut laws = vec![
        (!(is_true(ready) && is_true(degraded)), "FAIL0001: Ready and Degraded"),
        (ready.is_some(), "FAIL0002: Ready is missing"),
        (!(is_true(reconciling) && is_true(ready)), "FAIL0003: Reconciling and Ready"),
        (!(is_true(stalled) && is_true(ready)), "FAIL0004: Stalled and Ready"),
        (!(is_true(stalled) && is_true(reconciling)), "FAIL0005: Stalled and Reconciling"),
        (root.is_some_and(|root| root <= generation), "FAIL0006: of a generation to come"),
        (ready != Some("Unknown") || is_true(reconciling), "FAIL0011: Unknown, not Reconciling"),
        (reconciling != Some("False"), "WARN0003: Reconciling is False, not absent"),
        (stalled != Some("False"), "WARN0004: Stalled is False, not absent"),
        (conditions(object).next().is_some_and(|c| c["type"] == "Ready"), "Ready is not the first"),
    ];
    for condition in conditions(object) {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        let reason = text("reason");
        laws.extend([
            (
                condition["observedGeneration"].as_i64() == root,
                "FAIL0009: not of the root's generation",
            ),
            (
                reason.chars().all(|c| c.is_ascii_alphanumeric()) && !reason.is_empty(),
                "a reason is no word",
            ),
            (!text("message").is_empty(), "a message is empty"),
        ]);
    }
    // Who is on the way or stuck is Ready=False: kstatus reads it as such.
    let under_way = is_true(reconciling) || is_true(stalled);
    laws.push((!under_way || ready != Some("True"), "under way and Ready"));
    laws.into_iter().filter(|(kept, _)| !kept).map(|(_, law)| law).collect()
}
