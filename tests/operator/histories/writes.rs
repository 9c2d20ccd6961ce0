//! The number of writes: an object is written about as often as something changes, and pauses between retries grow.

use std::collections::BTreeMap;
use std::time::Duration;

use controller_machinery::testing::Server;

/// Maximum number of writes to an object within [`WINDOW`] while nothing else changes, for each start of a process. The
/// pauses of a workqueue double from 5 ms on, so it retries 14 times.
const RETRIES: usize = 16;

/// Maximum number of writes to an object for each change by others in its namespace, or of a node.
const PER_CHANGE: usize = 2;

const WINDOW: Duration = Duration::from_secs(60);

/// Returns the objects that processes, started at these times, have written too often.
pub fn breaches(server: &Server, starts: &[Duration]) -> Vec<String> {
    let mut by_object = BTreeMap::<(String, String), Vec<Duration>>::new();
    let mut by_namespace = BTreeMap::<String, Vec<Duration>>::new();
    for write in server.writes() {
        if ["/leases", "/events"].iter().any(|it| write.resource.ends_with(it)) {
            continue;
        }
        let path = write.uri.split('?').next().unwrap_or_default();
        let namespace = path.split('/').skip_while(|part| *part != "namespaces").nth(1);
        let namespace = namespace.unwrap_or_default().to_owned();
        let object = format!("{} {path}", write.method);
        by_namespace.entry(namespace.clone()).or_default().push(write.at);
        by_object.entry((namespace, object)).or_default().push(write.at);
    }
    let mut changes = BTreeMap::<&str, Vec<Duration>>::new();
    let versions = server.versions();
    for version in versions.iter().filter(|it| !it.id.resource.ends_with("/events")) {
        changes.entry(&version.id.namespace).or_default().push(version.at);
    }
    let none = Vec::new();
    let mut broken = Vec::new();
    for ((namespace, object), writes) in &by_object {
        // The writes of the operator are changes, too.
        let of = |namespace: &str, from| within(changes.get(namespace).unwrap_or(&none), from);
        let others =
            |from| of(namespace, from).saturating_sub(within(&by_namespace[namespace], from));
        let most = |from| {
            let retries = RETRIES * (1 + within(starts, from));
            retries + PER_CHANGE * (others(from) + of("", from))
        };
        let worst = writes.iter().find(|from| within(writes, **from) > most(**from));
        broken.extend(worst.map(|from| {
            let (count, most) = (within(writes, *from), most(*from));
            format!("{object}: {count} times in the minute from {from:?}, {most} at most")
        }));
    }
    broken
}

/// Returns the number of these times within the window. They are in order.
fn within(times: &[Duration], from: Duration) -> usize {
    times.partition_point(|at| *at < from + WINDOW) - times.partition_point(|at| *at < from)
}
