//! Steps that a custom resource may go through.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema::defaulted;
use crate::world::{APP, DAEMON_SET, DEPLOYMENT, FOO, GENERIC_DAEMON, Kind, MEMCACHED, SERVICE};

/// An action of a user. Failed sequences are stored as these, in JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Another spec; also the very first one.
    Edit(Value),
    /// A spec that the API server refuses, and why it should.
    Refused(Value, String),
    /// The same spec, written differently.
    Same(Otherwise),
    /// A spec that cannot be carried out, reverted at once; the reason that must be reported.
    Absurd(Value, String),
    /// A child is deleted by hand.
    Delete(Child),
    /// A child is deleted by hand while a quota forbids creating it; then the quota is removed.
    Forbid(Child),
    /// A child is changed by hand.
    Spoil(Child),
}

impl Step {
    /// The child that the step is about, without which it is meaningless.
    pub fn child(&self) -> Option<Kind> {
        match self {
            Step::Delete(child) | Step::Forbid(child) | Step::Spoil(child) => Some(child.kind()),
            Step::Edit(_) | Step::Refused(..) | Step::Same(_) | Step::Absurd(..) => None,
        }
    }
}

/// A kind of child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Child {
    Deployment,
    DaemonSet,
    Service,
}

impl Child {
    pub fn kind(self) -> Kind {
        match self {
            Child::Deployment => DEPLOYMENT,
            Child::DaemonSet => DAEMON_SET,
            Child::Service => SERVICE,
        }
    }

    pub fn of(kind: Kind) -> Child {
        match kind {
            DAEMON_SET => Child::DaemonSet,
            SERVICE => Child::Service,
            _ => Child::Deployment,
        }
    }
}

/// The steps of one custom resource, from its creation on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Script {
    /// The former failure, for people.
    #[serde(default)]
    pub what: String,
    /// Memcached, GenericDaemon, App or Foo.
    pub kind: String,
    pub steps: Vec<Step>,
}

impl Script {
    pub fn kind(&self) -> Kind {
        let all = [MEMCACHED, GENERIC_DAEMON, APP, FOO];
        all.into_iter().find(|kind| kind.name() == self.kind).expect("one of the four kinds")
    }
}

/// Scripts that failed once: everything in regressions/, by file name.
pub fn regressions() -> Vec<(String, Script)> {
    let folder = std::fs::read_dir("tests/contract/generated/regressions").expect("a folder");
    let mut all: Vec<(String, Script)> = folder
        .map(|file| {
            let path = file.expect("a file").path();
            let text = std::fs::read(&path).expect("it can be read");
            let script = serde_json::from_slice(&text);
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, script.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// Another way to write the same spec.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
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

    /// `spec`, written this way.
    pub fn write(self, schema: &Value, spec: &Value) -> Value {
        let mut spec = spec.clone();
        match self {
            Otherwise::Identical => {}
            Otherwise::Reordered => {
                // The order of variables matters if one refers to another.
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

/// Steps done so far, shared with the code that reports a failure.
pub type Trace = Arc<Mutex<Option<Script>>>;

/// The kind for a seed.
pub fn kind_of(seed: u64) -> Kind {
    match seed % 8 {
        0 | 4 => MEMCACHED,
        1 | 5 => GENERIC_DAEMON,
        2 => FOO,
        // The kind with the largest spec.
        _ => APP,
    }
}
