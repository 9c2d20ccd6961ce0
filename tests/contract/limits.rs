//! The operator under limits: the kernel limits its memory and processor time.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::cgroup::Cgroup;
use crate::operator_process::{OperatorProcess, command};
use crate::unchecked::not_checked;
use crate::world::{APP, GENERIC_DAEMON, Kind, MEMCACHED, MEMCACHED_IMAGE, World, is_ready};

/// Number of objects, unless LIMITED_OBJECTS overrides it. They are scaled to zero or match no node, so that no pod
/// changes on its own.
const OBJECTS: u64 = 16;
/// In bytes.
const MEMORY: u64 = 64 << 20;
/// In percent of one processor, unless LIMITED_PERCENT overrides it.
const PERCENT: u64 = 5;
/// Maximum time of a start: a debug build with a twentieth of a busy processor.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// All events and all work arrive at the start.
#[tokio::test(flavor = "multi_thread")]
async fn the_operator_works_with_64_mib_and_50_millicores() {
    let percent = setting("LIMITED_PERCENT").unwrap_or(PERCENT);
    let cgroup = match Cgroup::new(MEMORY, percent) {
        Ok(cgroup) => cgroup,
        Err(why) => {
            return not_checked("limits of memory and processor", &format!("no cgroup: {why}"));
        }
    };
    let world = World::new("limits", "restricted").await;
    let objects = setting("LIMITED_OBJECTS").unwrap_or(OBJECTS);
    create_all(&world, objects).await;
    let began = Instant::now();
    let mut operator = start_in(&cgroup, &world).await;
    let ready = operator.line(|line| line.contains("Ready to work"));
    timeout(MAX_WAIT, ready).await.expect("its informers sync");
    until_ready(&world).await;
    let took = began.elapsed();
    world.patch(MEMCACHED, "idle-0", json!({"spec": {"size": 1}})).await.unwrap();
    let grown = |m: &Value| is_ready(m) && m["status"]["size"] == 1;
    world.until(MEMCACHED, "idle-0", grown).await;
    let most = peak(&operator);
    operator.assert_alive();
    assert_eq!(cgroup.killed(), 0, "it wanted more memory");
    operator.kill().await;
    println!(
        "{objects} objects, {percent} % of a processor: all Ready after {took:.1?}, at most {most} MiB"
    );
}

/// Starts the operator of this world, in the cgroup from its first instruction on.
async fn start_in(cgroup: &Cgroup, world: &World) -> OperatorProcess {
    let kubeconfig = world.operator_kubeconfig().await;
    let doors: Vec<String> = cgroup.doors().iter().map(|door| door.display().to_string()).collect();
    let enter = "for door in $DOORS; do echo $$ >\"$door\" || exit; done; exec \"$0\" \"$@\"";
    let operator = command(&kubeconfig, &["--namespace", &world.namespace], &[]);
    let operator = operator.as_std();
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", enter]).arg(operator.get_program()).args(operator.get_args());
    shell.env("DOORS", doors.join(" ")).env("MEMCACHED_IMAGE", MEMCACHED_IMAGE);
    OperatorProcess::of(shell)
}

/// An object by its number: two out of four are Memcacheds, the others are of the other kinds.
fn object(number: u64) -> (Kind, Value) {
    let (kind, spec) = match number % 4 {
        0 | 1 => (MEMCACHED, json!({"size": 0})),
        2 => (GENERIC_DAEMON, json!({"image": "a:1", "label": "no-node-has-this"})),
        _ => (APP, json!({"image": "a:1", "replicas": 0, "ports": [{"name": "web", "port": 80}]})),
    };
    (kind, json!({"metadata": {"name": format!("idle-{number}")}, "spec": spec}))
}

/// Creates all of them, one after another.
async fn create_all(world: &World, objects: u64) {
    for number in 0..objects {
        let (kind, object) = object(number);
        world.create(kind, object).await.expect("it is created");
    }
}

/// Waits until every object is Ready.
async fn until_ready(world: &World) {
    for kind in [MEMCACHED, GENERIC_DAEMON, APP] {
        let (mut most, mut since) = (0, Instant::now());
        loop {
            let began = Instant::now();
            let all = world.list(kind).await;
            let ready = all.iter().filter(|one| is_ready(one)).count();
            if ready == all.len() {
                break;
            }
            if ready > most {
                (most, since) = (ready, began);
            }
            let (plural, all) = (kind.plural(), all.len());
            assert!(since.elapsed() < MAX_WAIT, "{ready} of {all} {plural} are Ready");
            // Ten thousand objects are expensive to list for the API server.
            tokio::time::sleep(Duration::from_secs(2).max(10 * began.elapsed())).await;
        }
    }
}

/// The most memory it has ever used, in MiB (VmHWM).
fn peak(operator: &OperatorProcess) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", operator.pid()));
    let status = status.expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux has it");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib / 1024
}

/// A number from the environment.
pub fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
