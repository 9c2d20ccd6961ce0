//! What a container may use.

use serde::{Deserialize, Serialize};

use crate::object::Text;
use crate::reconcilers::quantity::Quantity;

/// Amounts by resource name, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Quantities(pub Box<[(Text, Quantity)]>);

/// What a container may use, and what is kept free for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// The most.
    #[serde(skip_serializing_if = "Quantities::is_empty")]
    pub limits: Quantities,
    /// What is kept free.
    #[serde(skip_serializing_if = "Quantities::is_empty")]
    pub requests: Quantities,
}

// === impl Resources ===

impl Resources {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.requests.is_empty()
    }

    pub(super) fn are_covered_by(&self, there: &Resources) -> bool {
        self.limits.are_covered_by(&there.limits) && self.requests.are_covered_by(&there.requests)
    }

    /// Written so that equal amounts are equal text.
    pub(super) fn normalise(&mut self) {
        self.limits.normalise();
        self.requests.normalise();
    }
}

impl Quantities {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn are_covered_by(&self, there: &Quantities) -> bool {
        self.0.iter().all(|(name, wanted)| {
            there.0.iter().any(|(other, amount)| name == other && wanted.is_same_as(amount))
        })
    }

    fn normalise(&mut self) {
        self.0.iter_mut().for_each(|(_, amount)| *amount = amount.normalised());
    }
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
