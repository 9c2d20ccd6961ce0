//! The resources of a container.

use serde::{Deserialize, Serialize};

use crate::manager::Foreign;
use crate::object::{Quantity, Text};

/// Amounts by resource name, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Quantities(pub Box<[(Text, Quantity)]>);

/// What a container may use, and what is reserved for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// The most that it may use.
    #[serde(skip_serializing_if = "Quantities::is_empty")]
    pub limits: Quantities,
    /// What is reserved for it.
    #[serde(skip_serializing_if = "Quantities::is_empty")]
    pub requests: Quantities,
}

// === impl Resources ===

impl Resources {
    /// Returns whether neither limits nor requests are set.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.requests.is_empty()
    }

    /// JSON pointers, relative to the resources, to what somebody else set and what conflicts with
    /// what `self` sets: a request above its limit, or for an extended resource without one.
    pub(super) fn in_the_way(&self, there: &Resources, foreign: Foreign<'_>) -> Vec<String> {
        let pointer = |list: &str, name: &str| format!("/{list}/{}", name.replace('/', "~1"));
        let mut pointers = Vec::new();
        for (name, request) in &there.requests.0 {
            // Without a wanted limit, one that somebody else set stays.
            let theirs = || there.limits.get(name).filter(|_| foreign(&pointer("limits", name)));
            let conflicts = match self.limits.get(name) {
                Some(limit) => !fits(name, request, limit),
                None => is_extended(name) && theirs().is_none(),
            };
            if self.requests.get(name).is_none() && conflicts {
                pointers.push(pointer("requests", name));
            }
        }
        for (name, limit) in &there.limits.0 {
            let request = self.requests.get(name);
            let conflicts = request.is_some_and(|request| !fits(name, request, limit));
            if self.limits.get(name).is_none() && conflicts {
                pointers.push(pointer("limits", name));
            }
        }
        pointers
    }
}

impl Quantities {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn get(&self, name: &str) -> Option<&Quantity> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, amount)| amount)
    }
}

/// Returns whether the API server accepts the two together. For an extended resource they must be
/// equal (k8s.io/kubernetes/pkg/apis/core/validation, ValidateContainerResourceRequirements).
fn fits(name: &str, request: &Quantity, limit: &Quantity) -> bool {
    request.is_same_as(limit) || !is_extended(name) && request.millis() < limit.millis()
}

/// Returns whether a resource cannot be overcommitted: a container that requests it has a limit,
/// too.
fn is_extended(name: &str) -> bool {
    name.contains('/')
}

impl Serialize for Quantities {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, amount)| (name, amount)))
    }
}

impl<'de> Deserialize<'de> for Quantities {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Quantities, D::Error> {
        let map = Option::<std::collections::BTreeMap<Text, Quantity>>::deserialize(deserializer)?;
        Ok(Quantities(map.unwrap_or_default().into_iter().collect()))
    }
}
