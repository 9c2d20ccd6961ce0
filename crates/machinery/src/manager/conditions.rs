//! Conditions, as `kubectl wait` and other controllers read them.

use jiff::{Timestamp, Unit};
use serde::{Deserialize, Serialize};

use crate::object::{Object, Text};

/// An entry of `status.conditions` (metav1.Condition).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about: `Ready`.
    pub r#type: Text,
    /// `True`, `False` or `Unknown`.
    pub status: Text,
    /// Why, as one word.
    pub reason: Text,
    /// Why, as a sentence. Others may leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The generation of the object that it was found for. Others may leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When `status` changed last.
    pub last_transition_time: String,
}

// === impl Condition ===

impl Condition {
    /// A condition of `object`, whose conditions so far are `former`: the time of its last
    /// transition is carried over unless its status changes.
    pub fn new(
        object: &impl Object,
        former: &[Condition],
        r#type: &str,
        is_true: bool,
        reason: &str,
        message: impl Into<String>,
    ) -> Condition {
        let status = if is_true { "True" } else { "False" };
        let former = former.iter().find(|c| c.r#type == *r#type && c.status == *status);
        let now = || Timestamp::now().round(Unit::Second).unwrap_or_default().to_string();
        Condition {
            r#type: r#type.into(),
            status: status.into(),
            reason: reason.into(),
            message: Some(message.into()),
            observed_generation: Some(object.meta().generation),
            last_transition_time: former.map_or_else(now, |c| c.last_transition_time.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::fixtures::Thing;
    use crate::object::{Meta, ObjectKey};

    #[test]
    fn the_time_of_a_transition_changes_with_the_status_only() {
        let thing = Thing { meta: Meta::named(ObjectKey::new("ns", "a")) };
        let mut first = Condition::new(&thing, &[], "Ready", false, "Starting", "");
        first.last_transition_time = "2026-01-01T00:00:00Z".to_owned();
        let former = [first];
        let same = Condition::new(&thing, &former, "Ready", false, "Failing", "why");
        assert_eq!(same.last_transition_time, former[0].last_transition_time);
        let other = Condition::new(&thing, &former, "Ready", true, "Works", "");
        assert_ne!(other.last_transition_time, former[0].last_transition_time);
    }
}
