//! Conditions in the format that `kubectl wait` and other controllers read.

use jiff::{RoundMode, TimestampRound, Unit};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::object::{InternedStr, Object};

/// An entry of `status.conditions` (metav1.Condition).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The aspect that it describes, such as `Ready`.
    pub r#type: InternedStr,
    /// `True`, `False` or `Unknown`.
    #[cfg_attr(feature = "schemars", schemars(extend("enum" = ["True", "False", "Unknown"])))]
    pub status: InternedStr,
    /// The reason in one word.
    pub reason: InternedStr,
    /// The reason in a sentence. Other controllers can omit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The observed generation of the object. Other controllers can omit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Time of the last change of `status`.
    #[cfg_attr(feature = "schemars", schemars(extend("format" = "date-time")))]
    pub last_transition_time: String,
}

/// The status of a condition. Also converts from `bool`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It applies.
    True,
    /// It does not apply.
    False,
    /// The controller does not know.
    Unknown,
}

/// The longest message that schemas of conditions allow (metav1.Condition), in bytes.
const MAX_MESSAGE: usize = 32_768;

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> ConditionStatus {
        if holds { ConditionStatus::True } else { ConditionStatus::False }
    }
}

// === impl Condition ===

impl Condition {
    /// Returns whether its status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == *"True"
    }

    /// Returns a condition of `object`. Keeps the transition time from `former`, the current conditions, unless the
    /// status changes. Truncates the message to 32 KiB.
    ///
    /// ```
    /// # use controller_machinery::{manager::Condition, object::Object};
    /// # fn example(site: &impl Object, former: &[Condition]) {
    /// let ready = Condition::new(site, former, "Ready", true, "Published", "The site is published");
    /// assert!(ready.is_true());
    /// # }
    /// ```
    pub fn new(
        object: &impl Object,
        former: &[Condition],
        r#type: &str,
        status: impl Into<ConditionStatus>,
        reason: &str,
        message: impl Into<String>,
    ) -> Condition {
        let status = match status.into() {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        };
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        let former = former.iter().find(|c| c.r#type == *r#type && c.status == *status);
        // Rounding up would give a time in the future.
        let seconds = TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Trunc);
        let now = || clock::now().round(seconds).unwrap_or_default().to_string();
        Condition {
            r#type: r#type.into(),
            status: status.into(),
            reason: reason.into(),
            message: Some(message),
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
    fn the_transition_time_changes_only_with_the_status() {
        let thing = Thing { meta: Meta::named(ObjectKey::new("ns", "a")) };
        let mut first = Condition::new(&thing, &[], "Ready", false, "Starting", "");
        first.last_transition_time = "2026-01-01T00:00:00Z".to_owned();
        let former = [first];
        let same = Condition::new(&thing, &former, "Ready", false, "Failing", "why");
        assert_eq!(same.last_transition_time, former[0].last_transition_time);
        for changed in [ConditionStatus::True, ConditionStatus::Unknown] {
            let other = Condition::new(&thing, &former, "Ready", changed, "Works", "");
            assert_ne!(other.last_transition_time, former[0].last_transition_time);
        }
    }

    #[test]
    fn a_message_is_cut_between_two_characters() {
        let thing = Thing { meta: Meta::named(ObjectKey::new("ns", "a")) };
        let long = format!("a{}", "é".repeat(MAX_MESSAGE));
        let cut = Condition::new(&thing, &[], "Ready", false, "Long", long).message;
        assert_eq!(cut.map(|message| message.len()), Some(MAX_MESSAGE - 1));
    }
}
