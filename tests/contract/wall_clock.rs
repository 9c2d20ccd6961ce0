//! Promises of the operator on a machine whose clock changes: it reports times by that clock, but measures
//! none with it. In these tests, each process has its own clock (wall_clock.c).

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::audit::operator_writes;
use crate::operator_process::OperatorProcess;
use crate::packaging::bind_lease_roles;
use crate::unchecked::not_checked;
use crate::world::{LEASE, MAX_WAIT, MEMCACHED, MEMCACHED_IMAGE, World, is_ready, memcached};

/// Jump of a clock, in seconds: the API server's certificate is still valid then.
const DAY: i64 = 24 * 3600;
/// Number of renewals after a jump that shows that the jump has no effect.
const RENEWALS: usize = 8;
/// A busy machine does not lose a Lease of this length, and no test here waits for its expiry.
const FLAGS: [&str; 4] = [
    "--leader-elect",
    "--leader-elect-lease-duration=90s",
    "--leader-elect-renew-deadline=70s",
    "--leader-elect-retry-period=1s",
];

/// The wall clock of one process.
struct WallClock {
    file: std::fs::File,
    folder: tempfile::TempDir,
}

// === impl WallClock ===

impl WallClock {
    /// Creates a correct clock. `Err` explains why this machine cannot have one.
    fn new() -> Result<WallClock, String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let library = folder.path().join("wall_clock.so");
        let mut cc = std::process::Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(library).arg("tests/contract/wall_clock.c");
        let made = cc.output().map_err(|error| format!("cc: {error}"))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned());
        }
        let file = std::fs::File::create(folder.path().join("ahead")).expect("a file");
        let clock = WallClock { file, folder };
        clock.set(0);
        Ok(clock)
    }

    /// Makes it jump. From now on, it is ahead by this many seconds.
    fn set(&self, seconds: i64) {
        self.file.write_all_at(&seconds.to_ne_bytes(), 0).expect("a file can be written");
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Starts an operator called `name` that uses this clock.
    async fn start(&self, world: &World, kubeconfig: &Path, name: &str) -> OperatorProcess {
        let here = ["--namespace", &world.namespace, "--leader-elect-namespace", &world.namespace];
        let (library, ahead) = (self.path("wall_clock.so"), self.path("ahead"));
        let environment = [
            ("MEMCACHED_IMAGE", MEMCACHED_IMAGE),
            ("POD_NAME", name),
            ("LD_PRELOAD", &library),
            ("WALL_CLOCK", &ahead),
        ];
        let operator =
            OperatorProcess::start(kubeconfig, &[&FLAGS[..], &here].concat(), &environment);
        operator.logged("Ready to work").await;
        operator
    }
}

/// A clock, or `None` and a message about it.
fn wall_clock() -> Option<WallClock> {
    WallClock::new().inspect_err(|why| not_checked("jumps of the clock", why)).ok()
}

/// Waits until `holder` has renewed the Lease [`RENEWALS`] times, with times on the day that is
/// `ahead` by this many seconds; returns the Lease.
async fn renewed(world: &World, holder: &str, ahead: i64) -> Value {
    let mut lease = Value::Null;
    for _ in 0..RENEWALS {
        let before = lease["spec"]["renewTime"].clone();
        let again = |lease: &Value| {
            let spec = &lease["spec"];
            let time: Option<Timestamp> = spec["renewTime"].as_str().and_then(|t| t.parse().ok());
            let on_that_day = |time: Timestamp| {
                let there = Timestamp::now() + SignedDuration::from_secs(ahead);
                time.duration_since(there).abs() < SignedDuration::from_hours(1)
            };
            spec["holderIdentity"].as_str().is_some_and(|it| it.starts_with(holder))
                && spec["renewTime"] != before
                && time.is_some_and(on_that_day)
        };
        lease = world.until(LEASE, "workload-operator", again).await;
    }
    lease
}

/// Creates work and waits until it is done.
async fn work(world: &World, name: &str) {
    world.create(MEMCACHED, memcached(name, 1)).await.unwrap();
    world.until(MEMCACHED, name, is_ready).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn a_clock_jump_of_a_day_affects_neither_lease_nor_work() {
    let (Some(clock), Some(other)) = (wall_clock(), wall_clock()) else { return };
    let world = World::new("wall-clock", "restricted").await;
    bind_lease_roles(&world).await;
    let kubeconfig = world.operator_kubeconfig().await;
    let mut leader = clock.start(&world, &kubeconfig, "leader").await;
    let first = renewed(&world, "leader_", 0).await;
    let mut standby = other.start(&world, &kubeconfig, "standby").await;
    work(&world, "before").await;
    let written = || operator_writes(&world).iter().filter(|w| w.name == "before").count();
    let before = written();

    clock.set(DAY);
    renewed(&world, "leader_", DAY).await;
    work(&world, "ahead").await;
    // One of the two is a day ahead, alternately.
    clock.set(0);
    other.set(DAY);
    let last = renewed(&world, "leader_", 0).await;
    work(&world, "back").await;
    for held in ["holderIdentity", "leaseTransitions", "acquireTime"] {
        assert_eq!(last["spec"][held], first["spec"][held], "{held}");
    }
    assert_eq!(written(), before, "what is done is not done again");
    leader.assert_alive();
    standby.assert_alive();
    assert_eq!(leader.terminate().await, Some(0));
    renewed(&world, "standby_", DAY).await;
    work(&world, "by-the-other").await;
    standby.assert_alive();
}

/// Returns a token for the operator. It is valid while the Secret `name`, created for it, exists.
async fn token(world: &World, name: &str) -> String {
    let here = format!("/api/v1/namespaces/{}", world.namespace);
    world.post(&format!("{here}/secrets"), json!({"metadata": {"name": name}})).await.unwrap();
    let bound = json!({"apiVersion": "v1", "kind": "Secret", "name": name});
    let path = format!("{here}/serviceaccounts/workload-operator/token");
    let answer = world.post(&path, json!({"spec": {"boundObjectRef": bound}})).await;
    answer.unwrap()["status"]["token"].as_str().unwrap().to_owned()
}

/// Revokes the token that is bound to the Secret `name` and waits until the API server has noticed:
/// it trusts a token for some seconds after checking it.
async fn end(world: &World, name: &str, token: &str) {
    let path = format!("/api/v1/namespaces/{}/secrets/{name}", world.namespace);
    world.send(Method::DELETE, &path, "application/json", Value::Null).await.unwrap();
    let nobody = world.plane().nobody().await;
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        let request = Request::get("/version").header("Authorization", format!("Bearer {token}"));
        match nobody.request_text(request.body(Vec::new()).unwrap()).await {
            Err(kube::Error::Api(status)) if status.code == 401 => return,
            _ => assert!(Instant::now() < deadline, "the token is still good"),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_token_is_used_after_the_clock_jumped_back() {
    let Some(clock) = wall_clock() else { return };
    let world = World::new("wall-clock-token", "restricted").await;
    bind_lease_roles(&world).await;
    let kubeconfig = world.operator_kubeconfig().await;
    let mut config: Value =
        serde_json::from_str(&std::fs::read_to_string(&kubeconfig).unwrap()).unwrap();
    config["users"][0]["user"] = json!({"tokenFile": clock.path("token")});
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let first = token(&world, "first").await;
    std::fs::write(clock.path("token"), &first).unwrap();
    clock.set(DAY);
    let mut operator = clock.start(&world, &kubeconfig, "it").await;
    work(&world, "before").await;

    clock.set(0);
    std::fs::write(clock.path("token"), token(&world, "second").await).unwrap();
    end(&world, "first", &first).await;
    work(&world, "after").await;
    operator.assert_alive();
}
