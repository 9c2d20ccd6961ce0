//! The API server's audit log, read incrementally as it grows.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use parking_lot::Mutex;

use crate::audit::Entry;
use crate::world::{Kind, World};

/// Writes of the operator and of the program for Foos in one namespace so far, by object.
pub struct Audit {
    log: Mutex<Log>,
    /// Common beginning of the names of their accounts.
    accounts: String,
}

struct Log {
    file: File,
    /// The beginning of an incomplete line.
    rest: Vec<u8>,
    /// Number of writes by resource (with subresource) and name: for a subresource only
    /// successful writes count, otherwise all.
    writes: BTreeMap<(String, String), usize>,
}

impl Audit {
    /// The log from now on.
    pub fn open(world: &World) -> Audit {
        let mut file = File::open(world.plane().audit_log()).expect("an audit log");
        file.seek(SeekFrom::End(0)).expect("a file has an end");
        let accounts = format!("system:serviceaccount:{}:", world.namespace);
        let log = Mutex::new(Log { file, rest: Vec::new(), writes: BTreeMap::new() });
        Audit { log, accounts }
    }

    /// Counts the writes to children of this custom resource so far: their name is its name,
    /// or begins with it followed by `--`.
    pub fn of_children(&self, name: &str) -> usize {
        self.count(|resource, other| {
            let is_its =
                other.strip_prefix(name).is_some_and(|r| r.is_empty() || r.starts_with("--"));
            is_its && ["deployments", "daemonsets", "services"].contains(&resource)
        })
    }

    /// Counts the successful writes to the status of this custom resource so far.
    pub fn of_status(&self, kind: Kind, name: &str) -> usize {
        let status = format!("{}/status", kind.plural());
        self.count(|resource, other| resource == status && other == name)
    }

    fn count(&self, counts: impl Fn(&str, &str) -> bool) -> usize {
        let mut log = self.log.lock();
        log.read_on(&self.accounts);
        let counted = log.writes.iter().filter(|((resource, name), _)| counts(resource, name));
        counted.map(|(_, count)| count).sum()
    }
}

impl Log {
    fn read_on(&mut self, accounts: &str) {
        self.file.read_to_end(&mut self.rest).expect("a file can be read");
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        for line in lines.split(|byte| *byte == b'\n') {
            // Cheaper than parsing what others did.
            if !line.windows(accounts.len()).any(|window| window == accounts.as_bytes()) {
                continue;
            }
            let entry = Entry::parse(line, accounts).expect("a whole line is an entry");
            if !entry.user.starts_with(accounts) || !entry.is_write() {
                continue;
            }
            let resource = match entry.subresource.as_str() {
                "" => entry.resource,
                _ if entry.code >= 300 => continue,
                sub => format!("{}/{sub}", entry.resource),
            };
            *self.writes.entry((resource, entry.name)).or_default() += 1;
        }
    }
}
