//! What may happen to a custom resource.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::schema::defaulted;
use crate::world::{APP, GENERIC_DAEMON, Kind, MEMCACHED};

/// What somebody does.
#[derive(Clone, Debug)]
pub enum Step {
    /// Another spec.
    Edit(Value),
    /// A spec that the API server refuses, and why it should.
    Refused(Value, String),
    /// The same spec, written otherwise.
    Same(Otherwise),
    /// A spec that nobody can bring about, undone at once; the reason that Ready has to give.
    Absurd(Value, &'static str),
    /// A child is deleted by hand.
    Delete(Kind),
    /// A child is changed by hand.
    Spoil(Kind),
}

/// How the same can be written.
#[derive(Clone, Copy, Debug)]
pub enum Otherwise {
    Identical,
    Reordered,
    Defaulted,
    WithNulls,
    WithAFieldUnknown,
}

impl Otherwise {
    pub const ALL: [Otherwise; 5] = [
        Otherwise::Identical,
        Otherwise::Reordered,
        Otherwise::Defaulted,
        Otherwise::WithNulls,
        Otherwise::WithAFieldUnknown,
    ];

    /// `spec`, written so.
    pub fn write(self, schema: &Value, spec: &Value) -> Value {
        let mut spec = spec.clone();
        match self {
            Otherwise::Identical => {}
            Otherwise::Reordered => {
                // The order of variables counts where one refers to another.
                let refers = spec["envs"].to_string().contains("$(");
                for name in ["envs", "ports"] {
                    let items = spec.get_mut(name).and_then(Value::as_array_mut);
                    if let Some(items) = items.filter(|_| name == "ports" || !refers) {
                        items.reverse();
                    }
                }
            }
            Otherwise::Defaulted => spec = defaulted(schema, &spec),
            Otherwise::WithNulls => {
                let map = spec.as_object_mut().expect("a spec");
                for name in schema["properties"].as_object().expect("properties").keys() {
                    map.entry(name.clone()).or_insert(Value::Null);
                }
            }
            Otherwise::WithAFieldUnknown => spec["colour"] = json!("blue"),
        }
        spec
    }
}

/// What was done so far, shared with whoever tells of a failure.
pub type Trace = Arc<Mutex<Vec<Step>>>;

/// The kinds, by seed.
pub fn kind_of(seed: u64) -> (Kind, &'static str) {
    match seed % 4 {
        0 => (MEMCACHED, "cache"),
        1 => (GENERIC_DAEMON, "daemon"),
        // The one with the most to say.
        _ => (APP, "app"),
    }
}
