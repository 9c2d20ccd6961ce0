//! The cause that blocks an object. Pure functions.
//!
//! The words are the reasons of the conditions, and the health of the child is computed as for the
//! status; this only looks at once, where the operator waits to see whether there is progress.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::Facts;
use crate::generic_daemon;
use crate::workload::{Answer, Context, PAUSED, Progress, Reason};

/// The cause, in a word, and a sentence of details.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Diagnosis {
    /// A reason of docs/REASONS.md.
    pub(super) cause: String,
    pub(super) detail: String,
    /// True if the object is in its desired state, and that is somewhere.
    pub(super) is_fine: bool,
}

// === impl Diagnosis ===

impl Diagnosis {
    fn new(cause: impl Into<String>, detail: impl Into<String>) -> Diagnosis {
        Diagnosis { cause: cause.into(), detail: detail.into(), is_fine: false }
    }

    fn of(reason: Reason, detail: impl Into<String>) -> Diagnosis {
        Diagnosis::new(reason.as_str(), detail)
    }

    /// A remedy for a user.
    pub(super) fn next(&self) -> &'static str {
        match Reason::named(&self.cause) {
            Some(reason) => reason.next(),
            // Before any operator has seen it.
            None => {
                "workload-operator check: does the operator run, and may it work in this namespace?"
            }
        }
    }
}

/// The one cause that blocks.
pub(super) fn diagnose(facts: &Facts) -> Diagnosis {
    intended(&facts.object)
        .or_else(|| refused(&facts.object))
        .or_else(|| of_child(facts))
        .unwrap_or_else(|| summary(&facts.object))
}

/// A state that somebody intended, or that no operator has seen yet.
fn intended(object: &Value) -> Option<Diagnosis> {
    let meta = &object["metadata"];
    if meta["deletionTimestamp"].is_string() {
        let held = words(&meta["finalizers"]).join(", ");
        return Some(Diagnosis::of(
            Reason::Deleting,
            format!("it is being deleted; held by {held}"),
        ));
    }
    if meta["annotations"][PAUSED] == "true" {
        let detail = "an annotation pauses it, so nothing but its status is written";
        return Some(Diagnosis::of(Reason::Paused, detail));
    }
    let (seen, newest) =
        (object["status"]["observedGeneration"].as_i64(), meta["generation"].as_i64());
    (seen < newest).then(|| match seen {
        Some(-1) | None => Diagnosis::new("Pending", "no operator has looked at it yet"),
        Some(_) => Diagnosis::new("Pending", "no operator has looked at its newest spec yet"),
    })
}

/// The write that the operator could not carry out, according to its condition.
fn refused(object: &Value) -> Option<Diagnosis> {
    let ready = condition(object, "Ready")?;
    let reason = Reason::named(ready["reason"].as_str()?)?;
    let is_of_a_write = matches!(
        reason,
        Reason::ErrResourceExists
            | Reason::QuotaExceeded
            | Reason::Forbidden
            | Reason::Contested
            | Reason::ImageMissing
            | Reason::HostPathNotAllowed
            | Reason::Invalid
            | Reason::FieldImmutable
            | Reason::ApiError
            | Reason::AwaitingDeletion
    );
    is_of_a_write.then(|| Diagnosis::of(reason, ready["message"].as_str().unwrap_or_default()))
}

/// The problem of the child now. If there is none, the operator's condition says how far it is.
fn of_child(facts: &Facts) -> Option<Diagnosis> {
    let evidence = facts.evidence.clone();
    let refused = matches!(evidence.refusal, Answer::Found(Some(_)));
    let shown = refused || evidence.of_pods(None).is_some();
    let spec = generic_daemon::Spec::deserialize(&facts.object["spec"]).ok();
    let label = spec.and_then(|spec| spec.node_labels());
    let context = Context {
        idle: if shown { Progress::IDLE_MAX } else { Duration::ZERO },
        label: label.as_deref(),
        evidence,
        ..Context::default()
    };
    let health = facts.child.as_ref()?.health(&context);
    let blocked = health.trouble().is_some() || health.reason == Reason::NoMatchingNodes;
    blocked.then(|| Diagnosis::of(health.reason, health.message))
}

/// The operator's condition, if nothing closer to the origin is known.
fn summary(object: &Value) -> Diagnosis {
    let Some(ready) = condition(object, "Ready") else {
        return Diagnosis::new("Pending", "no operator has looked at it yet");
    };
    let word = |field: &str| ready[field].as_str().unwrap_or_default();
    let is_fine = word("status") == "True";
    Diagnosis { is_fine, ..Diagnosis::new(word("reason"), word("message")) }
}

/// The conditions of any object, unchanged.
pub(super) fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions(object).find(|condition| condition["type"] == kind)
}

fn words(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
