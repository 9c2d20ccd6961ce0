//! Conditions.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// One aspect of the state of an object (metav1.Condition).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which aspect, one word: `Ready`.
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The `metadata.generation` that it speaks of.
    #[serde(default)]
    pub observed_generation: i64,
    /// Time of the last change of `status`, RFC 3339.
    pub last_transition_time: String,
    /// Why, one word.
    pub reason: String,
    /// Why, a sentence.
    pub message: String,
}

/// With metav1.Condition's own bounds, which k8s-openapi's type does not carry.
impl JsonSchema for Condition {
    fn schema_name() -> Cow<'static, str> {
        "Condition".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "One aspect of the state of the object.",
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {
                    "description": "Which aspect, one word.",
                    "type": "string", "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": {
                    "description": "Whether it is so.",
                    "type": "string", "enum": ["True", "False", "Unknown"],
                },
                "observedGeneration": {
                    "description": "The metadata.generation that the condition speaks of; -1 while no controller has seen the object.",
                    "type": "integer", "format": "int64", "minimum": -1,
                },
                "lastTransitionTime": {
                    "description": "When the status last changed.",
                    "type": "string", "format": "date-time",
                },
                "reason": {
                    "description": "Why, one word.",
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "description": "Why, a sentence.",
                    "type": "string", "maxLength": 32768,
                },
            },
        })
    }
}
