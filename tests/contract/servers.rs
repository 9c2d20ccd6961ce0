//! Kubernetes' own servers: killed, restarted, and started next to the existing ones.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::control_plane::ControlPlane;
use crate::stall::Stall;
use crate::world::{MAX_WAIT, MEMCACHED, World};

/// A process of a control plane, such as etcd or kube-apiserver.
pub struct Server {
    /// The file by which hack/controlplane.sh finds the process, so that it stops this one, too.
    record: PathBuf,
    log: PathBuf,
    program: PathBuf,
    arguments: Vec<std::ffi::OsString>,
    pid: rustix::process::Pid,
    is_additional: bool,
    /// Set once the test has started it.
    child: Option<Child>,
}

impl Server {
    /// The running process `name`.
    pub fn of(plane: &ControlPlane, name: &str) -> Server {
        let record = plane.dir().join(format!("run/{name}.pid"));
        let text = fs::read_to_string(&record).expect("it runs");
        let pid: i32 = text.split(' ').next().unwrap_or_default().parse().expect("a pid");
        let line = fs::read(format!("/proc/{pid}/cmdline")).expect("it runs");
        let line = line.split(|byte| *byte == 0).filter(|argument| !argument.is_empty());
        let arguments = line.skip(1).map(|argument| OsStringExt::from_vec(argument.to_vec()));
        Server {
            log: plane.dir().join(format!("log/{name}.log")),
            program: fs::read_link(format!("/proc/{pid}/exe")).expect("it runs"),
            arguments: arguments.collect(),
            pid: rustix::process::Pid::from_raw(pid).expect("a pid"),
            record,
            is_additional: false,
            child: None,
        }
    }

    /// Sends SIGKILL and returns after the process has ended.
    pub async fn kill(&mut self) {
        rustix::process::kill_process(self.pid, rustix::process::Signal::KILL).expect("it runs");
        match &mut self.child {
            Some(child) => {
                child.wait().expect("a child can be waited for");
            }
            // It is not a child of this process, so nothing announces its end.
            None => {
                while rustix::process::test_kill_process(self.pid).is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }

    /// Starts it again as before.
    pub fn start(&mut self) {
        let log = fs::OpenOptions::new().append(true).create(true).open(&self.log).expect("a log");
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("it was started before");
        let pid = child.id();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        let started = stat_field(&stat, 22);
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("an id");
        fs::write(&self.record, format!("{pid} {started} {boot}")).expect("a file");
        self.pid = rustix::process::Pid::from_raw(pid as i32).expect("a pid");
        self.child = Some(child);
    }

    /// A server like it, under another name that hack/controlplane.sh knows, with changed
    /// arguments: `(before the =, after it)`. It is not started.
    pub fn like(&self, name: &str, changes: &[(&str, String)]) -> Server {
        let changed = |argument: &std::ffi::OsString| {
            let text = argument.to_string_lossy();
            let key = text.split('=').next().unwrap_or_default();
            let change = changes.iter().find(|(changed, _)| *changed == key);
            change.map_or_else(|| argument.clone(), |(key, to)| format!("{key}={to}").into())
        };
        Server {
            record: self.record.with_file_name(format!("{name}.pid")),
            log: self.log.with_file_name(format!("{name}.log")),
            program: self.program.clone(),
            arguments: self.arguments.iter().map(changed).collect(),
            pid: self.pid,
            is_additional: true,
            child: None,
        }
    }
}

/// A field of /proc/PID/stat, by its number in proc_pid_stat(5), where the name, the second, may
/// contain anything.
fn stat_field(stat: &str, number: usize) -> &str {
    let from_the_third = stat.rsplit(") ").next().unwrap_or_default();
    from_the_third.split(' ').nth(number - 3).expect("Linux has it")
}

impl Drop for Server {
    /// Additional servers end here. The others end with their control plane.
    fn drop(&mut self) {
        if let Some(child) = self.child.as_mut().filter(|_| self.is_additional) {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Waits until the API server behind `client` serves.
pub async fn ready(client: &kube::Client) {
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        let request = http::Request::get("/readyz").body(Vec::new()).expect("a request");
        if client.request_text(request).await.is_ok_and(|answer| answer == "ok") {
            return;
        }
        assert!(Instant::now() < deadline, "the API server does not come back");
        // A server that is down sends no event.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A second API server on the same etcd.
pub struct Second {
    /// Ends when this is dropped.
    _server: Server,
    pub nobody: kube::Client,
    admin: kube::Client,
}

impl Second {
    /// Starts one that reaches `etcd` through this connection; returns once it serves.
    pub async fn start(plane: &ControlPlane, etcd: &Stall) -> Second {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = free.expect("a free port").port();
        let log = plane.audit_log().with_file_name("audit-second.log");
        let changes = [
            ("--secure-port", port.to_string()),
            ("--etcd-servers", format!("https://{}", etcd.address)),
            ("--audit-log-path", log.to_string_lossy().into_owned()),
        ];
        let mut server =
            Server::of(plane, "kube-apiserver").like("kube-apiserver-second", &changes);
        server.start();
        let (nobody, admin) = (plane.nobody_at(port).await, plane.admin_at(port).await);
        ready(&nobody).await;
        Second { _server: server, nobody, admin }
    }

    /// Waits until it shows this Memcached from its cache, which follows etcd with a small delay.
    pub async fn shows(&self, world: &World, name: &str) {
        let path = format!("{}?resourceVersion=0", MEMCACHED.path(&world.namespace));
        let shown = async {
            loop {
                let request = http::Request::get(&path).body(Vec::new()).expect("a request");
                let list: Value = self.admin.request(request).await.expect("a list");
                let mut items = list["items"].as_array().into_iter().flatten();
                if items.any(|item| item["metadata"]["name"] == name) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(MAX_WAIT, shown).await.expect("it is shown");
    }
}
