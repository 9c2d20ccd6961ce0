//! What the API server's audit log says of a namespace: the truth about who wrote what.

use std::io::{Read, Seek, SeekFrom};

use serde_json::Value;

use crate::world::World;

/// An answered request.
#[derive(Debug, Clone)]
pub struct Entry {
    pub verb: String,
    pub resource: String,
    pub code: i64,
    pub by_operator: bool,
}

/// The log from some point on.
pub struct Audit {
    from: u64,
}

impl Audit {
    /// From now on.
    pub fn from_now(world: &World) -> Audit {
        let log = std::fs::metadata(world.plane().audit_log()).expect("an audit log");
        Audit { from: log.len() }
    }

    /// The writes in the world's namespace that were answered so far; no leases, no Events.
    pub fn writes(&self, world: &World) -> Vec<Entry> {
        let mut log = std::fs::File::open(world.plane().audit_log()).expect("an audit log");
        log.seek(SeekFrom::Start(self.from)).expect("it only grows");
        let mut text = Vec::new();
        log.read_to_end(&mut text).expect("it can be read");
        let namespace = format!("\"namespace\":\"{}\"", world.namespace);
        let text = String::from_utf8_lossy(&text);
        text.lines().filter(|l| l.contains(&namespace)).filter_map(|l| entry(l, world)).collect()
    }
}

fn entry(line: &str, world: &World) -> Option<Entry> {
    // The last line may be half written.
    let entry: Value = serde_json::from_str(line).ok()?;
    let about = &entry["objectRef"];
    let (verb, resource) = (entry["verb"].as_str()?, about["resource"].as_str()?);
    let ours = about["namespace"] == world.namespace.as_str();
    let write = ["create", "update", "patch", "delete"].contains(&verb);
    if !ours || !write || ["leases", "events"].contains(&resource) {
        return None;
    }
    let operator = format!("system:serviceaccount:{}:workload-operator", world.namespace);
    Some(Entry {
        verb: verb.to_owned(),
        resource: resource.to_owned(),
        code: entry["responseStatus"]["code"].as_i64().unwrap_or_default(),
        by_operator: entry["user"]["username"] == operator.as_str(),
    })
}
