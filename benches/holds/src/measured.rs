//! The rounds, and what is printed about them.

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::object::{Meta, Nothing, Object, ObjectKey, ResourceVersion};
use crate::store::{self, Hold, Index, Store, Writer, processor_time};

const COUNT: usize = 100_000;
/// How many objects have a write of our own that the list does not have.
const OWN_WRITES: usize = 20_000;
const READERS: usize = 4;
/// No hold may be longer than this.
const LIMIT: Duration = Duration::from_micros(100);
/// How many times [`nothing_held`] measures after each list.
const NOTHING_HELD: usize = 50_000;
/// A reader rests after this many lookups; otherwise the writer would rarely run on a small
/// machine.
const LOOKUPS: usize = 64;
const REST: Duration = Duration::from_micros(100);

/// How many bytes an object has besides its metadata, in an allocation of their own.
const PAYLOAD: usize = 400;

#[derive(Debug)]
struct Thing {
    meta: Meta,
    _payload: Box<[u8]>,
}

impl Object for Thing {
    type Keep = Nothing;
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

thread_local! {
    static HOLDS: RefCell<Vec<Hold>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn run() {
    store::observe(|hold| HOLDS.with_borrow_mut(|holds| holds.push(*hold)));
    for (name, indexes) in [("no index", Vec::new()), ("two indexes", indexes())] {
        println!("\n{name}, {READERS} readers");
        rounds(indexes.clone(), READERS);
    }
}

/// Like an index of owners with one child each, and one of namespaces with a single one for all:
/// the two extremes of what an index can be.
fn indexes() -> Vec<Index<Thing>> {
    vec![
        Index::new("name", |object: &Thing, each| each(object.key().name().clone())),
        Index::new("namespace", |object: &Thing, each| each(object.key().namespace().clone())),
    ]
}

/// Runs one list after another, each with its readers.
fn rounds(indexes: Vec<Index<Thing>>, readers: usize) {
    let (mut writer, store) = store::new(indexes);
    type Version = fn(usize) -> Option<u64>;
    let lists: [(&str, Version, u64); 6] = [
        ("the first list", |_| Some(1), 2),
        ("nothing changed", |_| Some(1), 3),
        ("a tenth changed", |i| Some(if i % 10 == 0 { 4 } else { 1 }), 5),
        ("all changed", |_| Some(6), 7),
        ("half deleted", |i| (i % 2 == 0).then_some(6), 8),
        ("half added", |i| Some(if i % 2 == 0 { 6 } else { 9 }), 10),
    ];
    for (name, version, at) in lists {
        report(name, &store, readers, || relist(&mut writer, version, at));
    }
    let own = |from: u64| {
        for i in 0..OWN_WRITES {
            store.wrote(object(i * 5, from + i as u64));
        }
    };
    own(100);
    report("own writes, listed", &store, readers, || {
        relist(&mut writer, |i| Some(if i % 10 == 0 { 50 } else { 9 }), 60);
    });
    report("own writes, passed", &store, readers, || {
        writer.bookmark(ResourceVersion::new(1_000_000));
    });
}

/// What the clocks show for work that holds nothing and whose length is known: some microseconds.
/// Anything longer is due to the machine: interrupts, and a host that runs something else, count as
/// processor time of the thread that they hit.
fn nothing_held() {
    let mut bytes = [1u8; 512];
    for _ in 0..NOTHING_HELD {
        let (began, worked) = (Instant::now(), processor_time());
        for round in 0..4u8 {
            for byte in &mut bytes {
                *byte = black_box(byte.wrapping_mul(31).wrapping_add(round));
            }
        }
        let worked = processor_time().saturating_sub(worked);
        let hold = Hold { exclusive: true, waited: None, held: began.elapsed(), worked };
        HOLDS.with_borrow_mut(|holds| holds.push(hold));
    }
}

fn object(i: usize, version: u64) -> Thing {
    let mut meta = Meta::named(ObjectKey::new("default", format!("deployment-{i:05}")));
    let uid = format!("{i:08x}-0000-4000-8000-000000000000");
    meta.uid = uid.parse().expect("it is a UID");
    meta.version = ResourceVersion::new(version);
    Thing { meta, _payload: vec![0; PAYLOAD].into() }
}

fn relist(writer: &mut Writer<Thing>, version: impl Fn(usize) -> Option<u64>, at: u64) {
    writer.begin();
    for i in 0..COUNT {
        if let Some(version) = version(i) {
            writer.listed(object(i, version));
        }
    }
    assert!(writer.commit(ResourceVersion::new(at)));
}

/// Looks up objects until told to stop.
fn read(store: &Store<Thing>, stop: &AtomicBool, seed: usize) {
    let mut next = seed;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..LOOKUPS {
            next = (next + 7919) % COUNT;
            let name = format!("deployment-{next:05}");
            if next % 2 == 0 {
                black_box(store.get(&ObjectKey::new("default", name)));
            } else {
                let _ = black_box(store.by_index("name", &name));
            }
        }
        std::thread::sleep(REST);
    }
}

/// Does `work` alongside readers and prints how the lock was used.
fn report(name: &str, store: &Store<Thing>, readers: usize, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let reads = Mutex::new(Vec::new());
    HOLDS.take();
    let holds = std::thread::scope(|scope| {
        for reader in 0..readers {
            let (stop, reads) = (&stop, &reads);
            scope.spawn(move || {
                read(store, stop, reader * 1000);
                reads.lock().expect("no reader panics").append(&mut HOLDS.take());
            });
        }
        work();
        let holds = HOLDS.take();
        nothing_held();
        stop.store(true, Ordering::Relaxed);
        holds
    });
    let nothing = HOLDS.take();
    let (exclusive, shared): (Vec<Hold>, Vec<Hold>) =
        holds.into_iter().partition(|hold| hold.exclusive);
    let reads = reads.into_inner().expect("no reader panics");
    println!(" {name}");
    line("the list's holds, CPU", exclusive.iter().map(|hold| hold.worked));
    line("nothing held, CPU", nothing.iter().map(|hold| hold.worked));
    line("the list's holds, wall", exclusive.iter().map(|hold| hold.held));
    line("the list's looks, CPU", shared.iter().map(|hold| hold.worked));
    line("readers' holds, CPU", reads.iter().map(|hold| hold.worked));
    line("readers' waits, wall", reads.iter().map(|hold| hold.waited.unwrap_or_default()));
}

fn line(what: &str, times: impl Iterator<Item = Duration>) {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable_by(|a, b| b.cmp(a));
    let Some(longest) = times.first() else { return };
    let over = times.iter().take_while(|time| **time > LIMIT).count();
    println!(
        "  {what:<24} {:>8} × p99 {:>8.1?} p99.99 {:>8.1?} max {longest:>8.1?}, {over} over {LIMIT:?}",
        times.len(),
        times[times.len() / 100],
        times[times.len() / 10_000],
    );
}
