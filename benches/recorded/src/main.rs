//! The same recorded bytes through our informer and through kube-runtime's watcher and reflector.
//!
//!     recorded write FILE
//!     recorded ours|kube-runtime|bytes FILE [count]    one contender, one process; prints JSON
//!     recorded table FOLDER                            of such JSON: CONTENDER.{timed,counted}.N
//!
//! hack/recorded.sh runs all of it.

mod counting;
mod measure;
mod ours;
mod peer;
mod recording;
#[path = "../../sample/mod.rs"]
mod sample;
mod table;

use std::path::{Path, PathBuf};

use measure::{Found, Meter};
use table::Runs;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["write", file] => recording::write(Path::new(file))?,
        ["table", folder] => {
            let [ours, peer, bytes] =
                ["ours", "kube-runtime", "bytes"].map(|name| runs(folder, name));
            table::print(&ours?, &peer?, &bytes?);
        }
        [contender, file] => println!("{}", serde_json::to_string(&run(contender, file))?),
        [contender, file, "count"] => {
            counting::on();
            println!("{}", serde_json::to_string(&run(contender, file))?);
        }
        _ => return Err("see the head of benches/recorded/src/main.rs".into()),
    }
    Ok(())
}

fn run(contender: &str, file: &str) -> Found {
    let path = PathBuf::from(file);
    // The first read brings the file into the kernel's cache.
    recording::drain(&path);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime needs nothing that could be missing");
    let mut meter = Meter::begin();
    match contender {
        "ours" => runtime.block_on(ours::run(path, meter)).found(),
        "kube-runtime" => runtime.block_on(peer::run(path, meter)).found(),
        _ => {
            recording::drain(&path);
            meter.all_at_once();
            meter.found()
        }
    }
}

fn runs(folder: &str, name: &str) -> Result<Runs, Box<dyn std::error::Error>> {
    let read = |kind: &str| -> Result<Vec<Found>, Box<dyn std::error::Error>> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&format!("{name}.{kind}.")) {
                all.push(serde_json::from_slice(&std::fs::read(entry.path())?)?);
            }
        }
        Ok(all)
    };
    Ok(Runs { timed: read("timed")?, counted: read("counted")? })
}
