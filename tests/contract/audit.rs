//! The API server's audit log: the truth about who wrote what, and when.

use std::io::{Read, Seek, SeekFrom};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use crate::world::{MAX_WAIT, World};

/// A completed request.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Time of its arrival.
    pub received: Timestamp,
    /// Time of its response.
    pub done: Timestamp,
    pub user: String,
    pub verb: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    /// Empty for a create that has the name only in its body.
    pub name: String,
    /// The status code, or 0 if there was none.
    pub code: i64,
    pub by_operator: bool,
    /// True if it was a dry run.
    pub is_dry_run: bool,
}

/// The log from a point in time on.
pub struct Audit {
    from: u64,
}

impl Entry {
    /// Parses a line of the log; `None` if the line is incomplete. `operator` is the name of the
    /// account that counts as the operator's.
    pub fn parse(line: &[u8], operator: &str) -> Option<Entry> {
        let entry: Value = serde_json::from_slice(line).ok()?;
        let about = |field: &str| entry["objectRef"][field].as_str().unwrap_or_default().to_owned();
        let at = |field: &str| entry[field].as_str()?.parse().ok();
        let user = entry["user"]["username"].as_str()?.to_owned();
        Some(Entry {
            received: at("requestReceivedTimestamp")?,
            done: at("stageTimestamp")?,
            verb: entry["verb"].as_str()?.to_owned(),
            group: about("apiGroup"),
            resource: about("resource"),
            subresource: about("subresource"),
            namespace: about("namespace"),
            name: about("name"),
            code: entry["responseStatus"]["code"].as_i64().unwrap_or_default(),
            by_operator: user == operator,
            is_dry_run: entry["requestURI"].as_str()?.contains("dryRun=All"),
            user,
        })
    }

    /// Returns whether it requested a change.
    pub fn is_write(&self) -> bool {
        ["create", "update", "patch", "delete"].contains(&self.verb.as_str())
    }

    /// Returns whether it was accepted.
    pub fn is_accepted(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Returns whether it counts as work. Leases and Events do not.
    fn is_work(&self) -> bool {
        !["leases", "events"].contains(&self.resource.as_str())
    }
}

impl Audit {
    /// The log from now on.
    pub fn from_now(world: &World) -> Audit {
        let log = std::fs::metadata(world.plane().audit_log()).expect("an audit log");
        Audit { from: log.len() }
    }

    /// The log from the beginning.
    pub fn from_start() -> Audit {
        Audit { from: 0 }
    }

    /// Returns the completed writes in the world's namespace so far, without leases and Events.
    pub fn writes(&self, world: &World) -> Vec<Entry> {
        let here = |entry: &Entry| entry.namespace == world.namespace;
        self.of(world, &world.namespace, |e| here(e) && e.is_write() && e.is_work())
    }

    /// The entries of lines that contain `text`, in order of arrival.
    pub fn of(&self, world: &World, text: &str, counts: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let mut log = std::fs::File::open(world.plane().audit_log()).expect("an audit log");
        log.seek(SeekFrom::Start(self.from)).expect("it only grows");
        let mut bytes = Vec::new();
        log.read_to_end(&mut bytes).expect("it can be read");
        let operator = format!("system:serviceaccount:{}:workload-operator", world.namespace);
        // Cheaper than parsing the entries of other clients. The last line can be incomplete.
        let log = String::from_utf8_lossy(&bytes);
        let lines = log.lines().filter(|line| line.contains(text));
        let entries = lines.filter_map(|line| Entry::parse(line.as_bytes(), &operator));
        let mut entries: Vec<Entry> = entries.filter(counts).collect();
        entries.sort_by_key(|entry| entry.received);
        entries
    }
}

/// All writes of the operator in this namespace so far, including Events but not leases.
pub fn operator_writes(world: &World) -> Vec<Entry> {
    let ours = |entry: &Entry| entry.by_operator && entry.namespace == world.namespace;
    let counts = |entry: &Entry| ours(entry) && entry.is_write() && entry.resource != "leases";
    Audit::from_start().of(world, &world.namespace, counts)
}

/// All writes to one object so far, except those of Kubernetes' own controllers.
pub fn writes_to(world: &World, resource: &str, name: &str) -> Vec<Entry> {
    let people = |write: &Entry| write.by_operator || write.user == "admin";
    let it = |write: &Entry| write.resource == resource && write.name == name;
    Audit::from_start()
        .writes(world)
        .into_iter()
        .filter(|write| people(write) && it(write))
        .collect()
}

/// The operator's writes to objects of this name that have not been accepted so far.
pub fn refused_writes(world: &World, name: &str) -> Vec<Entry> {
    let refused = |write: &Entry| write.name == name && !write.is_accepted();
    operator_writes(world).into_iter().filter(refused).collect()
}

/// Waits until `find` finds something in the log: a request is logged a little after its effect can
/// be seen.
pub async fn logged<T>(mut find: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < deadline, "it is not in the audit log");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
