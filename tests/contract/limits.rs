//! The operator under limits: the kernel limits its memory and processor time.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::cgroup::Cgroup;
use crate::idle::{create_all, peak, setting, until_ready};
use crate::operator_process::{OperatorProcess, command};
use crate::unchecked::not_checked;
use crate::world::{MEMCACHED, MEMCACHED_IMAGE, World, is_ready};

/// Number of objects, unless LIMITED_OBJECTS overrides it. They are those of idle.rs.
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
    let grown = |m: &serde_json::Value| is_ready(m) && m["status"]["size"] == 1;
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
