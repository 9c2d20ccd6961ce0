//! What may happen to a custom resource.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema::defaulted;
use crate::world::{APP, DAEMON_SET, DEPLOYMENT, FOO, GENERIC_DAEMON, Kind, MEMCACHED, SERVICE};

/// What somebody does. As JSON it is what a failed sequence is kept as.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Another spec; the first of all.
    Edit(Value),
    /// A spec that the API server refuses, and why it should.
    Refused(Value, String),
    /// The same spec, written otherwise.
    Same(Otherwise),
    /// A spec that nobody can bring about, undone at once; the reason that has to be told.
    Absurd(Value, String),
    /// A child is deleted by hand.
    Delete(Child),
    /// A child is deleted by hand while a quota forbids to make it; then the quota goes.
    Forbid(Child),
    /// A child is changed by hand.
    Spoil(Child),
}

impl Step {
    /// The child without which it means nothing.
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

/// The steps of one custom resource, from its making on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Script {
    /// What went wrong once, for people.
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

/// Those that failed once: all of regressions/, by file name.
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

/// How the same can be written.
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
pub type Trace = Arc<Mutex<Option<Script>>>;

/// The kinds, by seed.
pub fn kind_of(seed: u64) -> Kind {
    match seed % 8 {
        0 | 4 => MEMCACHED,
        1 | 5 => GENERIC_DAEMON,
        2 => FOO,
        // The one with the most to say.
        _ => APP,
    }
}
