//! Conditions of custom resources.

use std::borrow::Cow;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::reason::Reason;
use crate::object::InternedStr;

/// The longest message that the schema allows (metav1.Condition).
const MAX_MESSAGE: usize = 32768;

/// One aspect of the state of the object.
// The bounds are those of metav1.Condition. The type of k8s-openapi lacks them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["type", "status", "lastTransitionTime", "reason", "message"]))]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    #[schemars(with = "String", length(max = 316), pattern(r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"))]
    pub kind: InternedStr,
    /// Status of the condition.
    pub status: Status,
    /// The metadata.generation that the condition describes. It is -1 until a controller has seen the object.
    #[serde(default)]
    #[schemars(!default, range(min = -1))]
    pub observed_generation: i64,
    /// Time of the last change of the status.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_transition_time: Time,
    /// Cause, as one word.
    #[schemars(
        with = "String",
        length(min = 1, max = 1024),
        pattern(r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    )]
    pub reason: InternedStr,
    /// Cause, as a sentence.
    #[schemars(with = "String", length(max = 32768))]
    pub message: InternedStr,
}

/// Status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Status {
    True,
    False,
    Unknown,
}

/// The types of conditions that the operator sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// The summary: the state matches the spec.
    Ready,
    /// Work is in progress. Absent otherwise.
    Reconciling,
    /// Manual action is required. Absent otherwise.
    Stalled,
    /// The object can be used.
    Available,
    /// A rollout is running.
    Progressing,
    /// There is a problem.
    Degraded,
    /// Kubernetes cannot create the pods. For an App, as its Deployment reports it.
    ReplicaFailure,
}

/// A time in whole seconds since 1970, as Kubernetes stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(i64);

/// A desired condition. Its time is decided later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Type.
    pub kind: Type,
    /// True if it holds.
    pub status: Status,
    /// Reason, one word.
    pub reason: InternedStr,
    /// Message, a sentence.
    pub message: String,
    /// Time of the last change, if another source reports it; otherwise derived from the change of `status`.
    pub since: Option<Time>,
}

/// Returns the conditions to store: `wanted`, in this order, for `generation`. A time changes only together
/// with its status. Conditions of types that the operator does not set are kept unchanged.
pub(crate) fn merge(
    there: &[Condition],
    wanted: Vec<Wanted>,
    generation: i64,
    now: Time,
) -> Box<[Condition]> {
    let foreign = there.iter().filter(|condition| !Type::NAMES.contains(&&*condition.kind));
    let settled = wanted.into_iter().map(|wanted| {
        // The schema's default, of generation -1, has no time.
        let is_own = |it: &&Condition| it.is(wanted.kind) && it.observed_generation >= 0;
        let before = there.iter().find(is_own);
        let unchanged = before.filter(|before| before.status == wanted.status);
        Condition {
            kind: InternedStr::new(wanted.kind.as_str()),
            status: wanted.status,
            observed_generation: generation,
            last_transition_time: wanted
                .since
                .unwrap_or_else(|| unchanged.map_or(now, |before| before.last_transition_time)),
            reason: wanted.reason,
            message: bounded(&wanted.message),
        }
    });
    settled.chain(foreign.cloned()).collect()
}

/// Cuts a message at the length that the schema allows.
fn bounded(message: &str) -> InternedStr {
    let mut end = message.len().min(MAX_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    InternedStr::new(&message[..end])
}

// === impl Condition ===

impl Condition {
    /// Returns whether the condition has this type.
    pub fn is(&self, kind: Type) -> bool {
        self.kind == kind.as_str()
    }
}

// === impl Type ===

impl Type {
    /// The names in the API, in the order of the types.
    pub const NAMES: [&str; 7] = [
        "Ready",
        "Reconciling",
        "Stalled",
        "Available",
        "Progressing",
        "Degraded",
        "ReplicaFailure",
    ];

    const _IS_COMPLETE: () = assert!(Type::ReplicaFailure as usize + 1 == Type::NAMES.len());

    /// Returns the name in the API.
    pub const fn as_str(self) -> &'static str {
        Type::NAMES[self as usize]
    }

    /// Returns a condition of this type.
    pub fn is(self, status: Status, reason: Reason, message: impl Into<String>) -> Wanted {
        let reason = InternedStr::new(reason.as_str());
        Wanted { kind: self, status, reason, message: message.into(), since: None }
    }
}

// === impl Time ===

impl Time {
    /// Returns the time `seconds` after the beginning of 1970.
    pub fn new(seconds: i64) -> Time {
        Time(seconds)
    }

    /// Returns the time this many seconds later.
    pub fn plus(self, seconds: i64) -> Time {
        Time(self.0.saturating_add(seconds))
    }

    /// Returns the seconds from `earlier` to this time, at least 0.
    pub fn seconds_since(self, earlier: Time) -> i64 {
        self.0.saturating_sub(earlier.0).max(0)
    }

    /// Returns the time of the system's clock.
    pub fn now() -> Time {
        Time(crate::clock::now().as_second())
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every parsed time fits a Timestamp.
        jiff::Timestamp::from_second(self.0).unwrap_or_default().fmt(f)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    /// Parses RFC 3339. Anything else becomes 1970, because an invalid time must not fail the whole object.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        /// Borrowed from the input where that is possible.
        #[derive(Deserialize)]
        struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

        let Text(text) = Text::deserialize(deserializer)?;
        Ok(Time(text.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(status: Status, message: &str) -> Vec<Wanted> {
        vec![Type::Ready.is(status, Reason::RollingOut, message)]
    }

    #[test]
    fn a_time_changes_only_with_its_status() {
        let first = merge(&[], wanted(Status::False, "a"), 1, Time::new(10));
        let second = merge(&first, wanted(Status::False, "b"), 2, Time::new(20));
        assert_eq!(second[0].last_transition_time, Time::new(10));
        assert_eq!((second[0].observed_generation, second[0].message.as_str()), (2, "b"));
        let third = merge(&second, wanted(Status::True, "b"), 2, Time::new(30));
        assert_eq!(third[0].last_transition_time, Time::new(30));
    }

    #[test]
    fn an_unchanged_condition_keeps_its_time() {
        let first = merge(&[], wanted(Status::False, "a"), 1, Time::new(10));
        assert_eq!(merge(&first, wanted(Status::False, "a"), 1, Time::new(99)), first);
    }

    #[test]
    fn foreign_conditions_are_kept_and_unwanted_own_ones_removed() {
        let mut there = merge(&[], wanted(Status::False, "a"), 1, Time::new(10)).into_vec();
        there.push(Condition { kind: InternedStr::new("example.com/Backup"), ..there[0].clone() });
        there.push(Condition { kind: InternedStr::new("Stalled"), ..there[0].clone() });
        let after = merge(&there, wanted(Status::True, "a"), 1, Time::new(20));
        let kinds: Vec<_> = after.iter().map(|condition| condition.kind.as_str()).collect();
        assert_eq!(kinds, ["Ready", "example.com/Backup"]);
    }

    #[test]
    fn times_are_written_as_kubernetes_writes_them() {
        let json = serde_json::to_string(&Time::new(1_795_248_000)).unwrap();
        assert_eq!(json, "\"2026-11-21T08:00:00Z\"");
        assert_eq!(serde_json::from_str::<Time>(&json).unwrap(), Time::new(1_795_248_000));
        assert_eq!(serde_json::from_str::<Time>("\"yesterday\"").unwrap(), Time::default());
    }

    #[test]
    fn a_long_message_is_cut_at_a_character_boundary() {
        let long = "é".repeat(MAX_MESSAGE);
        assert_eq!(bounded(&long).len(), MAX_MESSAGE);
        assert!(bounded(&format!("a{long}")).len() < MAX_MESSAGE);
    }
}
