//! The number of writes: an object is written about as often as something changes, and pauses between retries grow.

use std::collections::BTreeMap;
use std::time::Duration;

use controller_machinery::testing::{Id, Server, Version};
use serde_json::Value;

/// Maximum number of writes to an object within [`WINDOW`] while nothing else changes, for each start of a process. The
/// pauses of a workqueue double from 5 ms on, so it retries 14 times.
const RETRIES: usize = 16;

/// Maximum number of writes to an object for each change by others in its namespace, or of a node.
const PER_CHANGE: usize = 2;

const WINDOW: Duration = Duration::from_secs(60);

/// Returns the objects that processes, started at these times, have written too often.
pub fn breaches(server: &Server, starts: &[Duration], backoff_restarts: bool) -> Vec<String> {
    let mut by_object = BTreeMap::<(String, String), Vec<Duration>>::new();
    for write in server.writes() {
        if ["/leases", "/events"].iter().any(|it| write.resource.ends_with(it)) {
            continue;
        }
        let path = write.uri.split('?').next().unwrap_or_default();
        let namespace = path.split('/').skip_while(|part| *part != "namespaces").nth(1);
        let object = format!("{} {path}", write.method);
        let key = (namespace.unwrap_or_default().to_owned(), object);
        by_object.entry(key).or_default().push(write.at);
    }
    let mut changes = BTreeMap::<&str, Vec<Duration>>::new();
    let mut former = BTreeMap::new();
    let versions = server.versions();
    for Version { at, id, object } in &versions {
        let before = former.insert(id, object).and_then(|it| it.as_deref());
        if is_of_others(id, before, object.as_deref()) {
            changes.entry(&id.namespace).or_default().push(*at);
        }
    }
    let none = Vec::new();
    let mut broken = Vec::new();
    for ((namespace, object), writes) in &by_object {
        let of = |namespace: &str, from| within(changes.get(namespace).unwrap_or(&none), from);
        let most = |from| {
            let retries =
                RETRIES * (1 + within(starts, from)) * (1 + usize::from(backoff_restarts));
            retries + PER_CHANGE * (of(namespace, from) + of("", from))
        };
        let worst = writes.iter().find(|from| within(writes, **from) > most(**from));
        broken.extend(worst.map(|from| {
            let (count, most) = (within(writes, *from), most(*from));
            format!("{object}: {count} times in the minute from {from:?}, {most} at most")
        }));
    }
    broken
}

/// Returns whether a version is a change by the cluster or a user: the operator writes the status of custom resources, and
/// the other fields of what they own.
fn is_of_others(id: &Id, before: Option<&Value>, now: Option<&Value>) -> bool {
    let field = |object: Option<&Value>, name: &str| object.map(|it| it[name].clone());
    let differs = |name: &str| field(before, name) != field(now, name);
    match id.resource.rsplit('/').next().unwrap_or_default() {
        "pods" | "replicasets" | "nodes" => true,
        "deployments" | "daemonsets" => differs("status"),
        "services" | "poddisruptionbudgets" | "leases" | "events" => false,
        _ => differs("spec"),
    }
}

/// Returns the number of these times within the window. They are in order.
fn within(times: &[Duration], from: Duration) -> usize {
    times.partition_point(|at| *at < from + WINDOW) - times.partition_point(|at| *at < from)
}
