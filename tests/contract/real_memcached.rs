//! memcached itself, with the arguments of a Memcached's container: it starts and serves with each setting
//! that the schema accepts, and the worst mix of items stays below the memory limit.
//!
//! The tests run the memcached on PATH (Debian's package `memcached`), or the program in MEMCACHED.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use workload_operator::memcached::{Images, Memcached, desired};
use workload_operator::object::Quantity;

use crate::unchecked::not_checked;
use crate::values::MEMCACHED_OPTIONS;

/// Maximum time for the start of a command.
const MAX_WAIT: Duration = Duration::from_secs(20);

fn program(unchecked: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut on_path = std::env::split_paths(&path).map(|folder| folder.join("memcached"));
    let named = std::env::var_os("MEMCACHED").map(PathBuf::from);
    let found = named.or_else(|| on_path.find(|file| file.is_file()));
    if found.is_none() {
        not_checked(unchecked, "there is no memcached on PATH: apt-get install memcached");
    }
    found
}

/// A running memcached, which ends when this is dropped.
struct Instance {
    child: Child,
    socket: PathBuf,
    limit: i128,
    _folder: tempfile::TempDir,
}

impl Instance {
    /// Starts the container of a Memcached with this spec; `Err` is memcached's output when it terminates.
    async fn start(program: &Path, spec: &Value) -> Result<Instance, String> {
        let object = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": spec});
        let object: Memcached = serde_json::from_value(object).unwrap();
        let spec = desired(&object, &Images::of("memcached:1")).deployment.spec;
        let container = &spec["template"]["spec"]["containers"][0];
        let limit = &container["resources"]["limits"]["memory"];
        let limit = Quantity::new(limit.as_str().unwrap()).millis().unwrap() / 1000;
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let words = |field: &str| container[field].as_array().unwrap().iter();
        let arguments = words("command").skip(1).chain(words("args"));
        let mut child = Command::new(program)
            .args(arguments.map(|word| word.as_str().unwrap()))
            .args(["-u", "root", "-s"])
            .arg(&socket)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + MAX_WAIT;
        while UnixStream::connect(&socket).is_err() {
            if child.try_wait().unwrap().is_some() {
                let mut said = String::new();
                child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                return Err(said);
            }
            assert!(Instant::now() < deadline, "it does not listen");
            // Nothing announces a new socket.
            sleep(Duration::from_millis(5)).await;
        }
        Ok(Instance { child, socket, limit, _folder: folder })
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
        stream
    }

    /// Stores an item, and reads it.
    fn serves(&self) {
        let mut stream = self.connect();
        stream.write_all(b"set a 0 0 1\r\nx\r\nget a\r\n").unwrap();
        let wanted = b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n";
        let mut answer = vec![0; wanted.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, wanted);
    }

    /// Returns the maximum memory that it has used, in bytes.
    fn peak(&self) -> i128 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<i128>().unwrap() * 1024
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn starts(program: &Path, spec: Value) -> Result<(), String> {
    let started = Instance::start(program, &spec).await;
    started.map(|instance| instance.serves()).map_err(|said| format!("{spec}: {said}"))
}

#[tokio::test]
async fn memcached_starts_with_each_option_that_the_schema_accepts() {
    let Some(program) = program("that memcached takes each option") else { return };
    let each = MEMCACHED_OPTIONS.iter().map(|option| json!({"options": [option]}));
    let others = [
        json!({"threads": 64, "options": ["hashpower=16"]}),
        json!({"threads": 1, "memory": "16Mi", "maxItemSize": "8Mi"}),
        json!({"maxConnections": 512, "containerPort": 12345}),
    ];
    let mut failed = Vec::new();
    for spec in each.chain(others) {
        failed.extend(starts(&program, spec).await.err());
    }
    assert!(failed.is_empty(), "{failed:#?}");
    // memcached terminates with settings that the schema refuses.
    for bad in ["slab_chunk_max=512k", "hashpower=64", "lru_crawlr", "hot_lru_pct=90"] {
        assert!(starts(&program, json!({"options": [bad]})).await.is_err(), "{bad}");
    }
}

#[tokio::test]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn memcached_starts_with_any_two_options() {
    let Some(program) = program("that memcached takes any two options") else { return };
    let mut failed = Vec::new();
    // The schema refuses these.
    let contradict = |one: &str, other: &str| {
        one.starts_with("temporary_ttl") && ["no_lru_maintainer", "no_modern"].contains(&other)
    };
    for one in MEMCACHED_OPTIONS {
        let others = MEMCACHED_OPTIONS.iter().filter(|other| *other != one);
        for other in others.filter(|other| !contradict(one, other) && !contradict(other, one)) {
            failed.extend(starts(&program, json!({"options": [one, other]})).await.err());
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// The smallest items are the most numerous and make the hash table largest. Each size class then takes a
/// page beyond the limit, and busy connections have their own buffers.
#[tokio::test]
#[ignore = "takes minutes: cargo test --test contract -- --ignored"]
async fn the_worst_mix_of_items_stays_below_the_memory_limit() {
    let Some(program) = program("that memcached stays below its limit") else { return };
    for memory in [64, 256, 1024] {
        let spec = json!({"memory": format!("{memory}Mi")});
        let instance = Instance::start(&program, &spec).await.unwrap();
        fill(&instance, memory);
        let busy: Vec<UnixStream> = (0..950).map(|number| busy(&instance, number)).collect();
        instance.serves();
        let (peak, limit) = (instance.peak() >> 20, instance.limit >> 20);
        println!("memory {memory}Mi: {peak} MiB of {limit} with {} busy connections", busy.len());
        assert!(peak < limit, "memory {memory}Mi: {peak} MiB, the limit is {limit}");
    }
}

fn fill(instance: &Instance, mebibytes: usize) {
    let mut stream = instance.connect();
    // The smallest chunk has 96 bytes; a few more than fit.
    let small = (mebibytes << 20) / 96 * 11 / 10;
    let mut batch = Vec::new();
    for number in 0..small {
        write!(batch, "set k{number:08} 0 0 1 noreply\r\nx\r\n").unwrap();
        if batch.len() > 1 << 16 || number + 1 == small {
            stream.write_all(&batch).unwrap();
            batch.clear();
        }
    }
    let mut size = 60;
    while size < 1_000_000 {
        for number in 0..8 {
            write!(batch, "set c{size}-{number} 0 0 {size} noreply\r\n").unwrap();
            batch.resize(batch.len() + size, b'y');
            batch.extend_from_slice(b"\r\n");
            stream.write_all(&batch).unwrap();
            batch.clear();
        }
        size += size / 5 + 8;
    }
    for number in 0..8 {
        write!(batch, "set big{number} 0 0 1000000 noreply\r\n").unwrap();
        batch.resize(batch.len() + 1_000_000, b'z');
        batch.extend_from_slice(b"\r\n");
        stream.write_all(&batch).unwrap();
        batch.clear();
    }
    stream.write_all(b"version\r\n").unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"VERSION ");
}

/// A connection that has sent half of a value, or does not read a large response.
fn busy(instance: &Instance, number: usize) -> UnixStream {
    let mut stream = instance.connect();
    let half = format!("set h{number} 0 0 100000\r\n{}", "q".repeat(12_000));
    let unread = format!("get{}\r\n", " big0".repeat(50));
    let sent = if number.is_multiple_of(2) { half } else { unread };
    stream.write_all(sent.as_bytes()).unwrap();
    stream
}
