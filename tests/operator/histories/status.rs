//! The laws of a status: those by which Flux checks conditions (fluxcd/pkg,
//! runtime/conditions/check: FAIL and WARN), those that kstatus and `kubectl wait` rely on (K), and
//! those of the API conventions (A).
//!
//! Two of Flux's are deliberately not kept. WARN0001 requires Degraded to be absent while Ready;
//! people who know the operator's predecessors look for it. FAIL0010 conflicts with `kubectl wait`,
//! which needs one generation for all.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::world::{APP, GENERIC_DAEMON, Kind, conditions};

/// The types that the operator sets; each is part of the interface.
const TYPES: [&str; 7] =
    ["Ready", "Reconciling", "Stalled", "Available", "Progressing", "Degraded", "ReplicaFailure"];

/// The maximum size of a status, because every watcher reads all of it.
const MAX_STATUS: usize = 16 << 10;

/// A law that does not hold if the operator's clock jumps.
pub const TIME_WENT_BACK: &str = "A1: a time went back";

/// True if a law is kept, and the law.
type Law = (bool, &'static str);

/// Returns the laws that this custom resource violates.
pub fn breaches(kind: Kind, object: &Value) -> Vec<String> {
    let (ready, reconciling) = (status(object, "Ready"), status(object, "Reconciling"));
    let (stalled, degraded) = (status(object, "Stalled"), status(object, "Degraded"));
    let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
    let root = object["status"]["observedGeneration"].as_i64();
    let types: Vec<&Value> = conditions(object).map(|condition| &condition["type"]).collect();
    let distinct: BTreeSet<String> = types.iter().map(ToString::to_string).collect();
    let mut laws = vec![
        (!(ready == "True" && degraded == "True"), "FAIL0001: Ready and Degraded"),
        (!ready.is_empty(), "FAIL0002: Ready is missing"),
        (!(reconciling == "True" && ready == "True"), "FAIL0003: Reconciling and Ready"),
        (!(stalled == "True" && ready == "True"), "FAIL0004: Stalled and Ready"),
        (stalled.is_empty() || reconciling.is_empty(), "FAIL0005, K4: Stalled and Reconciling"),
        (root.is_some_and(|root| root <= generation), "FAIL0006: of a generation to come"),
        (ready != "Unknown" || reconciling == "True", "FAIL0011: Unknown, not Reconciling"),
        (reconciling != "False", "WARN0003, K4: Reconciling is False, not absent"),
        (stalled != "False", "WARN0004, K4: Stalled is False, not absent"),
        (types.first().is_some_and(|first| *first == "Ready"), "Ready is not the first"),
        (distinct.len() == types.len(), "A1: a type is there twice"),
        (object["status"].to_string().len() <= MAX_STATUS, "A3: the status is large"),
        (object["status"]["phase"].is_null(), "A2: there is a phase"),
    ];
    if ready == "True" && root == Some(generation) {
        laws.push((is_rolled_out(kind, object), "K6: Ready, and by its counts not rolled out"));
    }
    conditions(object).for_each(|condition| laws.extend(of_condition(condition, root)));
    broken(laws)
}

fn of_condition(condition: &Value, root: Option<i64>) -> [Law; 7] {
    let text = |field: &str| condition[field].as_str().unwrap_or_default();
    let letters = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric());
    let is_word = |word: &str| letters(word) && word.starts_with(|c: char| c.is_ascii_uppercase());
    [
        (
            condition["observedGeneration"].as_i64() == root,
            "FAIL0009, WARN0005, K3: a condition is not of the root's generation",
        ),
        (is_word(text("reason")) && text("reason").len() <= 1024, "A1: a reason is no word"),
        (!text("message").is_empty() && text("message").len() <= 32768, "A1: a message"),
        (TYPES.contains(&text("type")), "A2: a type that nobody knows"),
        (["True", "False", "Unknown"].contains(&text("status")), "A1: a status of a condition"),
        (text("lastTransitionTime").ends_with('Z'), "A1: a time"),
        (root == Some(-1) || text("lastTransitionTime") > "1971", "A1: no time"),
    ]
}

/// The laws broken by a write to the status that turned `before` into `after`.
pub fn breaches_of_write(kind: Kind, before: &Value, after: &Value) -> Vec<String> {
    let generation = &after["metadata"]["generation"];
    let condition = |object: &Value, of: &str| {
        conditions(object).find(|c| c["type"] == of).cloned().unwrap_or_default()
    };
    let (ready, degraded) = (condition(after, "Ready"), condition(after, "Degraded"));
    let same = |field: &str| ready[field] == degraded[field];
    let mut laws = vec![
        // This covers FAIL0007, FAIL0008 and K4: Ready and Stalled always refer to the newest generation, in
        // the root and in the conditions, which have the same generation.
        (
            after["status"]["observedGeneration"] == *generation,
            "FAIL0007, FAIL0008, K3, K4: written of a generation that is past",
        ),
        (
            status(after, "Reconciling") != "True" || ready["status"] == "False",
            "FAIL0003: Reconciling, and Ready not False",
        ),
        (
            status(after, "Stalled") != "True" || ready["status"] == "False",
            "FAIL0004: Stalled, and Ready not False",
        ),
        (
            // An object that is being deleted reports the progress of its deletion in Degraded, for
            // compatibility.
            !after["metadata"]["deletionTimestamp"].is_null()
                || degraded["status"] != "True"
                // The pods of a paused object may have a problem, too.
                || ready["reason"] == "Paused"
                || same("reason") && same("message"),
            "WARN0002: Degraded and Ready tell different things",
        ),
        (!degraded.is_null(), "A2: not all known conditions are there from the first visit"),
    ];
    // The others come from an App's Deployment, with its times; that may be another Deployment now.
    let own = if kind == APP { &TYPES[..3] } else { &TYPES[..] };
    for of in own {
        let (old, new) = (condition(before, of), condition(after, of));
        let (was, is) = (&old["lastTransitionTime"], &new["lastTransitionTime"]);
        if old["status"] == new["status"] {
            laws.push((was == is, "A1: a time changed without its status"));
        } else if !old.is_null() && !new.is_null() {
            laws.push((was.as_str() <= is.as_str(), TIME_WENT_BACK));
        }
    }
    broken(laws)
}

/// Returns whether everything the spec asks for exists, judging by the counts in the status.
fn is_rolled_out(kind: Kind, object: &Value) -> bool {
    let (spec, told) = (&object["spec"], &object["status"]);
    let count = |field: &str| told[field].as_i64().unwrap_or_default();
    let all = |wanted: i64, fields: &[&str]| fields.iter().all(|field| count(field) == wanted);
    let progressed = || {
        conditions(object)
            .any(|c| c["type"] == "Progressing" && c["reason"] == "NewReplicaSetAvailable")
    };
    let available = status(object, "Available") == "True";
    if kind == APP {
        let wanted = spec["replicas"].as_i64().unwrap_or(1);
        let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
        return available
            && progressed()
            && all(wanted, &counts)
            && count("unavailableReplicas") == 0;
    }
    // Its pods are replaced when a user deletes them.
    if kind == GENERIC_DAEMON && spec["updateStrategy"]["type"] == "OnDelete" {
        return available;
    }
    if kind == GENERIC_DAEMON {
        return available && told["desired"].is_i64() && all(count("desired"), &["installed"]);
    }
    available && all(spec["size"].as_i64().unwrap_or(1), &["size", "readyReplicas"])
}

/// The status of the condition of this type; empty if there is none.
fn status<'a>(object: &'a Value, of: &str) -> &'a str {
    let found = conditions(object).find(|condition| condition["type"] == of);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default()
}

fn broken(laws: Vec<Law>) -> Vec<String> {
    laws.into_iter().filter(|(kept, _)| !kept).map(|(_, law)| law.to_owned()).collect()
}
