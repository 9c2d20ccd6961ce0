//! The API server's audit log, read on as it grows.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use parking_lot::Mutex;
use serde_json::Value;

use crate::world::World;

/// The operator's writes in one namespace so far, by object.
pub struct Audit {
    log: Mutex<Log>,
    operator: String,
}

struct Log {
    file: File,
    /// The beginning of a line that is not yet whole.
    rest: Vec<u8>,
    /// Resource (with subresource) and name, and how often it was written with success or without.
    writes: BTreeMap<(String, String), usize>,
}

impl Audit {
    /// From now on.
    pub fn open(world: &World) -> Audit {
        let mut file = File::open(world.plane().audit_log()).expect("an audit log");
        file.seek(SeekFrom::End(0)).expect("a file has an end");
        let operator = format!("system:serviceaccount:{}:workload-operator", world.namespace);
        let log = Mutex::new(Log { file, rest: Vec::new(), writes: BTreeMap::new() });
        Audit { log, operator }
    }

    /// How often the operator wrote children of this name until now.
    pub fn of_children(&self, name: &str) -> usize {
        self.count(|resource, other| {
            other == name && ["deployments", "daemonsets", "services"].contains(&resource)
        })
    }

    fn count(&self, counts: impl Fn(&str, &str) -> bool) -> usize {
        let mut log = self.log.lock();
        log.read_on(&self.operator);
        let counted = log.writes.iter().filter(|((resource, name), _)| counts(resource, name));
        counted.map(|(_, count)| count).sum()
    }
}

impl Log {
    fn read_on(&mut self, operator: &str) {
        self.file.read_to_end(&mut self.rest).expect("a file can be read");
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        for line in lines.split(|byte| *byte == b'\n') {
            // Cheaper than to parse what others did.
            if !line.windows(operator.len()).any(|window| window == operator.as_bytes()) {
                continue;
            }
            let entry: Value = serde_json::from_slice(line).expect("a line is JSON");
            let writes = ["create", "update", "patch", "delete"].map(Value::from);
            let about = &entry["objectRef"];
            if entry["user"]["username"] != operator || !writes.contains(&entry["verb"]) {
                continue;
            }
            let text = |field: &str| about[field].as_str().unwrap_or_default();
            let resource = match text("subresource") {
                "" => text("resource").to_owned(),
                sub => format!("{}/{sub}", text("resource")),
            };
            *self.writes.entry((resource, text("name").to_owned())).or_default() += 1;
        }
    }
}
