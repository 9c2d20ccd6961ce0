//! A custom resource of each kind.

use serde_json::{Value, json};

use crate::world::{APP, DAEMON_SET, DEPLOYMENT, GENERIC_DAEMON, Kind, MEMCACHED};

pub struct Sample {
    pub kind: Kind,
    /// Different for each kind: a Memcached and an App of the same name would need the same owned objects.
    pub name: &'static str,
    pub object: Value,
    /// The owned object that has its pods.
    pub child: Kind,
}

pub fn one_of_each() -> [Sample; 3] {
    let sample = |kind, name, spec, child| {
        let object = json!({"metadata": {"name": name}, "spec": spec});
        Sample { kind, name, object, child }
    };
    [
        sample(MEMCACHED, "cart", json!({"size": 2}), DEPLOYMENT),
        sample(GENERIC_DAEMON, "agent", json!({"image": "agent:1", "label": "logs"}), DAEMON_SET),
        sample(APP, "shop", json!({"image": "shop:1", "ports": [{"port": 80}]}), DEPLOYMENT),
    ]
}
